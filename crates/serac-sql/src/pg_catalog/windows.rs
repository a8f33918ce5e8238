//! Windows with names (`WINDOW w AS (…)`), written out where they are used. The planner puts them only into the select list, and of `OVER (w …)` it takes no notice.

use crate::session::fold;
use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, NamedWindowDefinition, NamedWindowExpr, Query, SetExpr, VisitorMut, WindowSpec, WindowType,
};
use std::ops::ControlFlow;

/// Writes out the windows of a query. What cannot be is left for the planner to refuse.
pub(super) fn write_out(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let mut writer = Writer { known: Vec::new(), depth: 0 };
    for NamedWindowDefinition(name, window) in &select.named_window {
        let spec = match window {
            NamedWindowExpr::NamedWindow(other) => writer.named(&fold(other)).cloned(),
            NamedWindowExpr::WindowSpec(spec) => writer.written_out(spec),
        };
        match spec {
            Some(spec) if writer.named(&fold(name)).is_none() => writer.known.push((fold(name), spec)),
            _ => return,
        }
    }
    select.named_window.clear();
    let _ = visit_mut(select, &mut writer);
    let _ = visit_mut(&mut query.order_by, &mut writer);
}

struct Writer {
    known: Vec<(String, WindowSpec)>,
    /// How many subqueries deep: windows mean nothing in those.
    depth: usize,
}

impl Writer {
    fn named(&self, name: &str) -> Option<&WindowSpec> {
        self.known.iter().find(|(known, _)| known == name).map(|(_, spec)| spec)
    }
    /// A window with what it has from another one. None if there is no such, or if it may not add what it does.
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
}

impl VisitorMut for Writer {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(over) = function.over.as_mut().filter(|_| self.depth == 0) else { return ControlFlow::Continue(()) };
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
        ControlFlow::Continue(())
    }
}
