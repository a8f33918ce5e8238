//! Windows with names (`WINDOW w AS (…)`), written out where they are used. The planner puts them
//! only into the select list, and of `OVER (w …)` it takes no notice.

use crate::identifiers::fold;
use crate::visits::visit_own_expressions_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, NamedWindowDefinition, NamedWindowExpr, Query, SetExpr, WindowSpec, WindowType,
};

/// Writes out the windows of a query. What cannot be is left for the planner to refuse.
pub(super) fn write_out(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let mut windows = Windows { known: Vec::new() };
    for NamedWindowDefinition(name, window) in &select.named_window {
        let spec = match window {
            NamedWindowExpr::NamedWindow(other) => windows.named(&fold(other)).cloned(),
            NamedWindowExpr::WindowSpec(spec) => windows.written_out(spec),
        };
        match spec {
            Some(spec) if windows.named(&fold(name)).is_none() => windows.known.push((fold(name), spec)),
            _ => return,
        }
    }
    select.named_window.clear();
    let mut write = |expr: &mut Expr| windows.write(expr);
    visit_own_expressions_mut(select, &mut write);
    visit_own_expressions_mut(&mut query.order_by, &mut write);
}

struct Windows {
    known: Vec<(String, WindowSpec)>,
}

impl Windows {
    fn named(&self, name: &str) -> Option<&WindowSpec> {
        self.known.iter().find(|(known, _)| known == name).map(|(_, spec)| spec)
    }
    /// A window with what it has from another one. None if there is no such, or if it may not add
    /// what it does.
    fn written_out(&self, spec: &WindowSpec) -> Option<WindowSpec> {
        let Some(base) = &spec.window_name else { return Some(spec.clone()) };
        let base = self.named(&fold(base))?;
        let both_ordered = !base.order_by.is_empty() && !spec.order_by.is_empty();
        if base.window_frame.is_some() || !spec.partition_by.is_empty() || both_ordered {
            return None;
        }
        let order_by = if spec.order_by.is_empty() { &base.order_by } else { &spec.order_by };
        Some(WindowSpec {
            window_name: None,
            partition_by: base.partition_by.clone(),
            order_by: order_by.clone(),
            window_frame: spec.window_frame.clone(),
        })
    }
    /// Puts a window in the place of its name.
    fn write(&self, expr: &mut Expr) {
        let Expr::Function(function) = expr else { return };
        let Some(over) = &mut function.over else { return };
        let known = match &*over {
            WindowType::NamedWindow(name) => self.named(&fold(name)).cloned(),
            WindowType::WindowSpec(spec) => self.written_out(spec),
        };
        match (known, &*over) {
            (Some(spec), _) => *over = WindowType::WindowSpec(spec),
            // By a name that the planner does not find.
            (None, WindowType::WindowSpec(WindowSpec { window_name: Some(name), .. })) => {
                *over = WindowType::NamedWindow(name.clone());
            }
            _ => {}
        }
    }
}
