//! EXPLAIN's result as JSON, in PostgreSQL's shape. It is an array with one object; its `Plan` is
//! an operator with its inputs in `Plans`.

use serac_engine::json_text::quote;

/// A document to be written.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Text(String),
    /// Digits.
    Number(String),
    Bool(bool),
    List(Vec<Self>),
    Object(Vec<(&'static str, Self)>),
}

/// The relation of an operator to the one that takes its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relationship {
    /// The first, or only, input.
    Outer,
    /// The second of a join.
    Inner,
    /// One of several inputs whose rows are concatenated.
    Member,
    /// A part of WITH, which is done before.
    InitPlan,
}

impl Relationship {
    /// The relationship of a child at a place among `all` children.
    pub(crate) fn of_child(at: usize, all: usize) -> Self {
        match (at, all) {
            (0, 1 | 2) => Self::Outer,
            (1, 2) => Self::Inner,
            _ => Self::Member,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Outer => "Outer",
            Self::Inner => "Inner",
            Self::Member => "Member",
            Self::InitPlan => "InitPlan",
        }
    }
}

/// An operator of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanNode {
    /// Its kind.
    pub(crate) kind: String,
    /// Further properties and measurements.
    pub(crate) fields: Vec<(&'static str, Json)>,
    pub(crate) children: Vec<(Relationship, Self)>,
}

impl PlanNode {
    pub(crate) fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), fields: Vec::new(), children: Vec::new() }
    }

    /// The same with a text about it.
    pub(crate) fn with(mut self, key: &'static str, text: impl Into<String>) -> Self {
        self.fields.push((key, Json::Text(text.into())));
        self
    }

    /// As a document.
    pub(crate) fn document(self, relationship: Option<Relationship>) -> Json {
        let mut object = vec![("Node Type", Json::Text(self.kind))];
        object.extend(relationship.map(|relationship| ("Parent Relationship", Json::Text(relationship.name().into()))));
        object.push(("Parallel Aware", Json::Bool(false)));
        object.push(("Async Capable", Json::Bool(false)));
        object.extend(self.fields);
        if !self.children.is_empty() {
            let children = self.children.into_iter().map(|(relationship, child)| child.document(Some(relationship)));
            object.push(("Plans", Json::List(children.collect())));
        }
        Json::Object(object)
    }
}

impl Json {
    /// The text of the document, a value a line.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
        };
        match self {
            Self::Text(text) => quote(out, text),
            Self::Number(digits) => out.push_str(digits),
            Self::Bool(is_so) => out.push_str(if *is_so { "true" } else { "false" }),
            Self::List(values) => {
                out.push('[');
                for (i, value) in values.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    line(out, depth + 1);
                    value.write(out, depth + 1);
                }
                line(out, depth);
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    line(out, depth + 1);
                    quote(out, key);
                    out.push_str(": ");
                    value.write(out, depth + 1);
                }
                line(out, depth);
                out.push('}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_written_as_postgresql_writes_them() {
        let scan = PlanNode::new("Scan").with("Details", "a\"\\\n\u{1}");
        let filter = PlanNode { children: vec![(Relationship::of_child(0, 1), scan)], ..PlanNode::new("Filter") };
        let triggers = ("Triggers", Json::List(Vec::new()));
        let all = Json::List(vec![Json::Object(vec![("Plan", filter.document(None)), triggers])]);
        let wanted = r#"[
  {
    "Plan": {
      "Node Type": "Filter",
      "Parallel Aware": false,
      "Async Capable": false,
      "Plans": [
        {
          "Node Type": "Scan",
          "Parent Relationship": "Outer",
          "Parallel Aware": false,
          "Async Capable": false,
          "Details": "a\"\\\n\u0001"
        }
      ]
    },
    "Triggers": [
    ]
  }
]"#;
        assert_eq!(all.text(), wanted);
    }
}
