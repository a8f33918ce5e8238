//! The dependency graph of a batch (column-store report, §2.1).
//!
//! A *link* is a statement of the batch. A *name* may be assigned several times: each assignment is
//! a version of its own, and a use means the newest version above it. So links form a graph without
//! cycles whatever names they reuse. The *depth* of a link is one more than the greatest depth
//! among the links that it uses, and 1 if it uses none; links of one depth do not depend on each
//! other.

use crate::statement::Statement;
use std::collections::HashMap;

/// The source of an input of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    /// An output of a link above.
    Link { link: usize, output: usize },
    /// The variable with this number among those from before the batch.
    Before(usize),
}

/// A statement and its inputs.
#[derive(Debug)]
pub(crate) struct Link<'b> {
    pub(crate) line: u64,
    pub(crate) statement: &'b Statement,
    /// In the order of [`Statement::inputs`].
    pub(crate) inputs: Vec<Input>,
    /// By output, the link and output that assigned the name before.
    pub(crate) earlier: Vec<Option<(usize, usize)>>,
    /// By output, the number of the assignment to its name, from 1.
    pub(crate) versions: Vec<u32>,
    pub(crate) depth: usize,
    /// The number of inputs of other links that it feeds.
    pub(crate) uses: usize,
}

/// The statements of a batch and their inputs.
#[derive(Debug, Default)]
pub(crate) struct Graph<'b> {
    pub(crate) links: Vec<Link<'b>>,
    /// The names of the variables from before the batch, in the order of their first use.
    pub(crate) before: Vec<&'b str>,
    /// By depth less 1, the links.
    pub(crate) levels: Vec<Vec<usize>>,
}

impl<'b> Graph<'b> {
    /// The graph of statements with their lines.
    pub(crate) fn new(batch: impl Iterator<Item = (u64, &'b Statement)>) -> Self {
        let mut graph = Self::default();
        // By name, its newest version, and the number of versions.
        let mut newest: HashMap<&str, (usize, usize, u32)> = HashMap::new();
        let mut before: HashMap<&str, usize> = HashMap::new();
        for (at, (line, statement)) in batch.enumerate() {
            let (mut inputs, mut depth) = (Vec::new(), 1);
            for name in statement.inputs() {
                inputs.push(match newest.get(name) {
                    Some(&(link, output, _)) => {
                        let used: &mut Link<'_> = &mut graph.links[link];
                        used.uses += 1;
                        depth = depth.max(used.depth + 1);
                        Input::Link { link, output }
                    }
                    None => Input::Before(*before.entry(name).or_insert_with(|| {
                        graph.before.push(name);
                        graph.before.len() - 1
                    })),
                });
            }
            let (mut earlier, mut versions) = (Vec::new(), Vec::new());
            for (output, name) in statement.outputs().iter().enumerate() {
                let replaced = newest.get(name.as_str()).copied();
                let version = replaced.map_or(1, |(_, _, version)| version + 1);
                earlier.push(replaced.map(|(link, output, _)| (link, output)));
                versions.push(version);
                newest.insert(name, (at, output, version));
            }
            graph.links.push(Link { line, statement, inputs, earlier, versions, depth, uses: 0 });
            if graph.levels.len() < depth {
                graph.levels.push(Vec::new());
            }
            graph.levels[depth - 1].push(at);
        }
        graph
    }

    /// A version of a name: "a", "a#2", …
    pub(crate) fn shown(&self, link: usize, output: usize) -> String {
        let link = &self.links[link];
        match (link.statement.outputs().get(output), link.versions.get(output)) {
            (Some(name), Some(1)) => name.clone(),
            (Some(name), Some(version)) => format!("{name}#{version}"),
            _ => "_".into(),
        }
    }

    /// A link as "s1 = select(db1.t.c, …)", with versions.
    pub(crate) fn describe(&self, link: usize) -> String {
        let statement = self.links[link].statement;
        let outputs = (0..statement.outputs().len()).map(|output| self.shown(link, output));
        let outputs: Vec<String> = outputs.collect();
        let inputs = self.links[link].inputs.iter().map(|input| match *input {
            Input::Link { link, output } => self.shown(link, output),
            Input::Before(at) => self.before[at].to_owned(),
        });
        let columns = statement.columns().into_iter().map(ToString::to_string);
        let inputs: Vec<String> = columns.chain(inputs).collect();
        let outputs = if outputs.is_empty() { "_".into() } else { outputs.join(", ") };
        format!("{outputs} = {}({})", statement.command(), inputs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn graph_of(lines: &[&str], check: impl Fn(&Graph<'_>)) {
        let parsed: Vec<Statement> = lines.iter().map(|line| parse(line).unwrap().unwrap()).collect();
        check(&Graph::new(parsed.iter().enumerate().map(|(at, statement)| (at as u64 + 1, statement))));
    }

    #[test]
    fn the_example_of_the_report_has_three_levels() {
        let lines = [
            "s1=select(d.t.col1,0,10)",
            "f1=fetch(d.t.col1,s1)",
            "s2=select(d.t.col1,5,20)",
            "f2=fetch(d.t.col2,s2)",
            "s3=select(d.t.col2,0,1)",
            "f3=fetch(d.t.col2,s3)",
            "add12=add(f1,f2)",
        ];
        graph_of(&lines, |graph| {
            assert_eq!(graph.levels, [vec![0, 2, 4], vec![1, 3, 5], vec![6]]);
            assert_eq!(graph.describe(6), "add12 = add(f1, f2)");
            assert_eq!(graph.links[0].uses, 1);
            assert!(graph.before.is_empty());
        });
    }

    #[test]
    fn a_name_means_its_newest_assignment_above() {
        let lines = ["a=fetch(d.t.c,a)", "b=fetch(a,p)", "a=select(d.t.c,0,1)", "c=fetch(d.t.c,a)", "a=fetch(d.t.c,a)"];
        graph_of(&lines, |graph| {
            assert_eq!(graph.before, ["a", "p"]);
            assert_eq!(graph.links[0].inputs, [Input::Before(0)]);
            assert_eq!(graph.links[1].inputs, [Input::Link { link: 0, output: 0 }, Input::Before(1)]);
            assert_eq!(graph.links[3].inputs, [Input::Link { link: 2, output: 0 }]);
            assert_eq!(graph.links[2].earlier, [Some((0, 0))]);
            assert_eq!(graph.levels, [vec![0, 2], vec![1, 3, 4]]);
            assert_eq!(graph.describe(4), "a#3 = fetch(d.t.c, a#2)");
        });
    }
}
