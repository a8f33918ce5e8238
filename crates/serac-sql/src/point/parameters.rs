//! The parameters of a statement: their types, and the digits of those that are numbers.
//!
//! To the binder a NUMERIC parameter is a number with digits of its own. Here it is a decimal with
//! the digits of the columns beside which it stands, or to which it is assigned. A value that does
//! not fit these digits takes the other path. The effect of a statement must then depend on the
//! values of the numbers alone, not on the number of digits with which they are written.

use super::expression::column_type_of;
use crate::binding::BoundWithNames;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use serac_binder::{BoundBody, BoundChange, BoundReturning, InsertSource, SetColumn, Target, arrow_type};
use serac_pg::TypeId;
use serac_query::optimizer::operator_of;
use serac_storage::ColumnType;

/// All digits of a decimal, and those behind the point.
type Digits = (u8, i8);

/// The most digits of a decimal.
const MOST_DIGITS: i16 = 38;

/// The types of the parameters in the storage; `None` if one of them has no type there. `digits`
/// are those of numbers.
pub(super) fn types_of(ids: &[TypeId], digits: &[Option<Digits>]) -> Option<Vec<ColumnType>> {
    let type_of = |(at, id): (usize, &TypeId)| match *id {
        TypeId::NUMERIC => Some(match digits.get(at).copied().flatten() {
            Some((precision, scale)) => ColumnType::Decimal { precision, scale },
            None => ColumnType::Numeric,
        }),
        TypeId::JSON => Some(ColumnType::JsonText),
        id => column_type_of(&arrow_type(id)?),
    };
    ids.iter().enumerate().map(type_of).collect()
}

fn of_decimal(data_type: &DataType) -> Option<Digits> {
    match data_type {
        DataType::Decimal128(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

/// Digits that have room for those of both; `None` if there are too many.
fn wider((p, s): Digits, (q, r): Digits) -> Option<Digits> {
    let whole = (i16::from(p) - i16::from(s)).max(i16::from(q) - i16::from(r));
    let scale = s.max(r);
    let all = whole + i16::from(scale);
    (all <= MOST_DIGITS).then_some((u8::try_from(all).ok()?, scale))
}

/// The digits of the parameters that are numbers, as far as columns determine them; `None` if there
/// are too many.
pub(super) fn digits_of_numbers(bound: &BoundWithNames) -> Option<Vec<Option<Digits>>> {
    let mut found = Numbers { digits: vec![None; bound.parameters.len()] };
    let columns = |target: &Target, columns: &mut dyn Iterator<Item = usize>| -> Vec<Option<Digits>> {
        let schema = target.relation.source.schema();
        columns.map(|column| of_decimal(schema.field(column).data_type())).collect()
    };
    // Before the values of SET stands which row it is.
    let of_set = |target: &Target, set: &[SetColumn]| {
        let valued = &mut set.iter().filter(|own| own.value.is_some()).map(|own| own.column);
        let mut all = vec![None];
        all.extend(columns(target, valued));
        all
    };
    let mut returning: Option<&BoundReturning> = None;
    match &bound.body {
        BoundBody::Query(plan, _) => found.plan(plan, &[])?,
        BoundBody::Change(BoundChange::Insert(insert)) => {
            if let InsertSource::Plan(plan) = &insert.source {
                found.plan(plan, &columns(&insert.target, &mut insert.columns.iter().copied()))?;
            }
            if let Some(update) = insert.conflict.as_ref().and_then(|conflict| conflict.update.as_ref()) {
                found.plan(&update.plan, &of_set(&insert.target, &update.set))?;
            }
            returning = insert.returning.as_ref();
        }
        BoundBody::Change(BoundChange::Rows(rows)) => {
            found.plan(&rows.plan, &of_set(&rows.target, rows.set.as_deref().unwrap_or_default()))?;
            returning = rows.returning.as_ref();
        }
        BoundBody::Change(BoundChange::Merge(_)) => return None,
    }
    if let Some(returning) = returning {
        found.plan(&returning.plan, &[])?;
    }
    Some(found.digits)
}

/// See [`digits_of_numbers`].
struct Numbers {
    digits: Vec<Option<Digits>>,
}

impl Numbers {
    /// Collects the digits in a plan; `assigned` are the digits of columns to which its own are
    /// assigned.
    fn plan(&mut self, plan: &LogicalPlan, assigned: &[Option<Digits>]) -> Option<()> {
        let inputs = plan.inputs();
        let nothing = DFSchema::empty();
        let schema = inputs.first().map_or(&nothing, |input| input.schema().as_ref());
        match plan {
            LogicalPlan::Values(values) => {
                for row in &values.values {
                    self.all(row, assigned, schema)?;
                }
            }
            LogicalPlan::Projection(projection) => self.all(&projection.expr, assigned, schema)?,
            other => self.all(&other.expressions(), &[], schema)?,
        }
        inputs.into_iter().try_for_each(|input| self.plan(input, &[]))
    }

    fn all(&mut self, exprs: &[Expr], assigned: &[Option<Digits>], schema: &DFSchema) -> Option<()> {
        for (at, expr) in exprs.iter().enumerate() {
            let (_, open) = self.expr(expr, schema)?;
            if let Some(digits) = assigned.get(at).copied().flatten() {
                self.note(open, digits)?;
            }
        }
        Some(())
    }

    /// The digits of the columns in an expression, and the parameters in it that stand beside no
    /// column there.
    fn expr(&mut self, expr: &Expr, schema: &DFSchema) -> Option<(Option<Digits>, Vec<usize>)> {
        match expr {
            Expr::Placeholder(placeholder) => return Some((None, number_of(&placeholder.id).into_iter().collect())),
            Expr::Column(column) => {
                return Some((of_decimal(schema.field_from_column(column).ok()?.data_type()), Vec::new()));
            }
            _ => {}
        }
        let (mut digits, mut open, mut all) = (None::<Digits>, Vec::new(), true);
        let _ = expr.apply_children(|part| {
            match self.expr(part, schema) {
                Some((Some(own), more)) => {
                    digits = digits.map_or(Some(own), |other| wider(own, other));
                    all = all && digits.is_some();
                    open.extend(more);
                }
                Some((None, more)) => open.extend(more),
                None => all = false,
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if !all {
            return None;
        }
        if let Some(digits) = digits {
            self.note(std::mem::take(&mut open), digits)?;
        }
        Some((digits, open))
    }

    fn note(&mut self, parameters: Vec<usize>, digits: Digits) -> Option<()> {
        for at in parameters {
            let known = self.digits.get_mut(at)?;
            *known = Some(known.map_or(Some(digits), |other| wider(digits, other))?);
        }
        Some(())
    }
}

/// The place of a parameter, from 0.
fn number_of(id: &str) -> Option<usize> {
    id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Whether parameters that are decimals count by their values alone in an expression, however many
/// digits these are written with.
pub(super) fn is_by_value(expr: &Expr) -> bool {
    let is_transparent = match expr {
        Expr::BinaryExpr(binary) => binary.op != Operator::StringConcat,
        Expr::Cast(cast) => matches!(cast.field.data_type(), DataType::Decimal128(..) | DataType::Decimal256(..)),
        Expr::ScalarFunction(call) => operator_of(&call.func).is_some(),
        Expr::Placeholder(_)
        | Expr::Alias(_)
        | Expr::Negative(_)
        | Expr::InList(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::Case(_) => true,
        _ => false,
    };
    if !is_transparent {
        let is_decimal = |part: &Expr| match part {
            Expr::Placeholder(placeholder) => {
                placeholder.field.as_ref().is_some_and(|field| of_decimal(field.data_type()).is_some())
            }
            _ => false,
        };
        return !expr.exists(|part| Ok(is_decimal(part))).unwrap_or(true);
    }
    let mut all = true;
    let _ = expr.apply_children(|part| {
        all = all && is_by_value(part);
        Ok(TreeNodeRecursion::Continue)
    });
    all
}
