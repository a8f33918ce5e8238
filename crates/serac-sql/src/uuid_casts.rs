//! Casts to UUID in a statement: `UUID 'text'` and CAST (text AS UUID) are read as `uuid_in
//! (text)`.

use crate::ddl::parse_expression;
use crate::visits::visit_expressions_mut;
use datafusion::sql::sqlparser::ast::{DataType as AstType, Expr as AstExpr, Ident, ObjectName, Statement};
use std::ops::ControlFlow;

/// Casts to UUID in a statement as calls.
pub(crate) fn read_casts(statement: &mut Statement) {
    let _ = visit_expressions_mut(statement, |expr| {
        let text = match expr {
            AstExpr::Cast { data_type: AstType::Uuid, expr, .. } => Some(expr.to_string()),
            AstExpr::TypedString(typed) if typed.data_type == AstType::Uuid => Some(typed.value.to_string()),
            _ => None,
        };
        if let Some(text) = text
            && let Ok(mut call) = parse_expression(&format!("uuid_in({text})"))
        {
            if let AstExpr::Function(function) = &mut call {
                function.name = ObjectName::from(vec![Ident::new("uuid_in")]);
            }
            *expr = call;
        }
        ControlFlow::<()>::Continue(())
    });
}
