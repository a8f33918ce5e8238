//! The default names of a result's columns.

use serac_parser::tree::{Expr, ExprKind, Postfix, Span, Special};
use std::collections::HashMap;

/// The names of the columns that subqueries select, by where the query stands.
pub(crate) type SubqueryNames = HashMap<Span, String>;

/// The name of an expression's column: a column's, a function's, a cast's type.
pub(crate) fn column_name(expr: &Expr, names: &SubqueryNames) -> String {
    found(expr, names).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// A name, and whether a cast or a CASE around it keeps it.
fn found(expr: &Expr, names: &SubqueryNames) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match &expr.kind {
        ExprKind::Name(name) => strong(&name.parts.last()?.name),
        ExprKind::Call(call) => strong(&call.name.parts.last()?.name),
        ExprKind::Cast { operand, to } => {
            let kept = found(operand, names).filter(|(_, keeps)| *keeps);
            Some(kept.unwrap_or_else(|| (type_name(to), false)))
        }
        ExprKind::Postfix(operand, rest) => of_postfix(operand, rest, names),
        ExprKind::Case { otherwise, .. } => {
            let kept = otherwise.as_deref().and_then(|expr| found(expr, names)).filter(|(_, keeps)| *keeps);
            Some(kept.unwrap_or_else(|| ("case".into(), false)))
        }
        ExprKind::Exists(_) => strong("exists"),
        ExprKind::Array(_) | ExprKind::ArrayQuery(_) => strong("array"),
        ExprKind::Row { .. } => strong("row"),
        ExprKind::Grouping(_) => strong("grouping"),
        ExprKind::Subquery(query) => Some((names.get(&query.span)?.clone(), true)),
        ExprKind::Special(special) => strong(special_name(special)),
        _ => None,
    }
}

fn type_name(to: &serac_parser::tree::TypeName) -> String {
    to.name.parts.last().map_or_else(String::new, |part| part.name.clone())
}

fn of_postfix(operand: &Expr, rest: &[Postfix], names: &SubqueryNames) -> Option<(String, bool)> {
    let mut name = found(operand, names);
    for postfix in rest {
        name = match postfix {
            Postfix::Cast(to, _) => Some(name.filter(|(_, keeps)| *keeps).unwrap_or_else(|| (type_name(to), false))),
            Postfix::Field(field) => Some((field.name.clone(), true)),
            Postfix::Index(_) | Postfix::Slice(..) | Postfix::Collate(_) => name,
            Postfix::AtTimeZone(..) => Some(("timezone".into(), true)),
            Postfix::AllFields(_) | Postfix::Is { .. } => None,
        };
    }
    name
}

fn special_name(special: &Special) -> &'static str {
    match special {
        Special::Extract(..) => "extract",
        Special::Overlay(_) => "overlay",
        Special::Position(..) => "position",
        Special::Substring { .. } | Special::SubstringSimilar(..) => "substring",
        Special::Trim { side, .. } => match side {
            serac_parser::tree::TrimSide::Both => "btrim",
            serac_parser::tree::TrimSide::Leading => "ltrim",
            serac_parser::tree::TrimSide::Trailing => "rtrim",
        },
        Special::Coalesce(_) => "coalesce",
        Special::NullIf(..) => "nullif",
        Special::Greatest(_) => "greatest",
        Special::Least(_) => "least",
        Special::Normalize(..) => "normalize",
        Special::CurrentDate => "current_date",
        Special::CurrentTime(_) => "current_time",
        Special::CurrentTimestamp(_) => "current_timestamp",
        Special::LocalTime(_) => "localtime",
        Special::LocalTimestamp(_) => "localtimestamp",
        Special::CurrentUser => "current_user",
        Special::User => "user",
        Special::SessionUser => "session_user",
        Special::CurrentRole => "current_role",
        Special::CurrentCatalog => "current_catalog",
        Special::CurrentSchema => "current_schema",
        Special::CollationFor(_) => "pg_collation_for",
        Special::Overlaps(_) => "overlaps",
    }
}
