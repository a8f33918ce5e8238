//! FROM: files by name, and the functions that read them: `'a.parquet'`,
//! `read_csv('dir/*.csv', delim => ';')`.
//!
//! The environment knows the files. Here it is decided which call is one of files, and what its
//! arguments are.

use crate::binder::Binder;
use crate::calls::of_aggregates;
use crate::environment::{FileCall, Relation};
use crate::error::{BindError, Result};
use crate::from::Rows;
use crate::scope::{Context, ScopeItem};
use crate::selected::Selected;
use crate::statement::OutputColumn;
use crate::types::or_no_type;
use datafusion::common::TableReference;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use serac_parser::tree::{Alias, Call, ColumnType, Expr as Tree, ExprKind, Span};

/// The name of a function without a schema, or with that of the system's functions.
fn own_name(call: &Call) -> Option<&str> {
    match &call.name.parts[..] {
        [name] => Some(&name.name),
        [schema, name] if schema.name == "pg_catalog" => Some(&name.name),
        _ => None,
    }
}

/// The name under which the rows of a file are known: the last part of its path, up to a point; of
/// several files, `files`.
fn item_name(path: &str) -> &str {
    if path.contains(['*', '?', '[']) {
        return "files";
    }
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path);
    match last.split('.').next() {
        Some(stem) if !stem.is_empty() => stem,
        _ => last,
    }
}

impl Binder<'_> {
    /// The call of a function that reads files; `None` for another expression.
    pub(crate) fn file_call<'t>(&self, tree: &'t Tree) -> Option<(&'t Call, &'t str)> {
        let ExprKind::Call(call) = &tree.kind else { return None };
        let call: &Call = call;
        let name = own_name(call)?;
        self.environment.reads_files(name).then_some((call, name))
    }

    /// The rows of a call of such a function.
    pub(crate) fn called_files(
        &self,
        (call, name): (&Call, &str),
        columns: &[ColumnType],
        span: Span,
        context: Context<'_>,
    ) -> Result<Relation> {
        if let Some(what) = of_aggregates(name, call) {
            let message = format!("{what} specified, but {name} is not an aggregate function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if call.over.is_some() || call.variadic {
            return Err(BindError::unsupported(format!("function {name} with OVER or VARIADIC"), span));
        }
        let mut arguments: Vec<(Option<&str>, Expr)> = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            let own = argument.name.as_ref().map(|name| name.name.as_str());
            match own {
                Some(again) if arguments.iter().any(|(name, _)| *name == Some(again)) => {
                    let message = format!("argument name \"{again}\" used more than once");
                    return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, argument.value.span));
                }
                None if arguments.iter().any(|(name, _)| name.is_some()) => {
                    let message = "positional argument cannot follow named argument";
                    return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, argument.value.span));
                }
                _ => {}
            }
            arguments.push((own, self.expression(&argument.value, context)?.expr));
        }
        self.environment.files(&FileCall { function: Some(name), arguments, columns, span })
    }

    /// The rows of a file, or of several that fit a pattern, by name.
    pub(crate) fn named_file(&self, path: &str, alias: Option<&Alias>, span: Span) -> Result<Rows> {
        self.reads(1)?;
        let call = FileCall { function: None, arguments: vec![(None, lit(path))], columns: &[], span };
        let found = self.environment.files(&call)?;
        let name = TableReference::bare(self.qualifier("#file"));
        let scan = LogicalPlanBuilder::scan(name, found.source, None)?.build()?;
        let columns = scan.schema().fields().iter().zip(&found.types);
        let columns = columns.map(|(field, of)| OutputColumn::new(field.name(), or_no_type(*of), span)).collect();
        let shown = alias.map_or_else(|| item_name(path), |alias| &alias.name.name);
        self.named(Selected::new(scan, columns), ScopeItem::named(shown), alias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_file_are_known_by_the_stem_of_its_name() {
        let cases = [("a/b.csv", "b"), ("b.tar.gz", "b"), ("dir/*.csv", "files"), (".hidden", ".hidden"), ("a/", "a")];
        for (path, wanted) in cases {
            assert_eq!(item_name(path), wanted);
        }
    }
}
