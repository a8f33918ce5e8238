//! Expressions of aggregates as programs over 64-bit columns.

use super::super::exec::SeracScanExec;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_plan::projection::ProjectionExec;
use serac_operators::arithmetic::{Program, Step};
use serac_storage::{ColumnForm, ColumnType};
use std::sync::Arc;

/// A program, the columns that it reads, and the sets of them that must not be NULL.
#[derive(PartialEq, Debug, Default)]
pub(super) struct Compiled {
    pub(super) program: Program,
    /// Columns of the table, in the order of the program's.
    pub(super) columns: Vec<(usize, ColumnForm)>,
    /// Sets of columns, by their places in `columns`, ascending: NULL in any of them is NULL for a
    /// step.
    pub(super) nullable: Vec<Vec<usize>>,
    /// Each sum's step and set.
    pub(super) sums: Vec<(usize, Option<usize>)>,
    /// Each extreme's column place and set.
    pub(super) extremes: Vec<(usize, Option<usize>)>,
}

/// An expression of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Compilation {
    pub(super) step: usize,
    /// Digits after the point; `None` for an integer, or for another number without arithmetic.
    pub(super) scale: Option<i8>,
}

/// The source of the columns of an aggregate's arguments.
pub(super) struct Source<'p> {
    pub(super) scan: &'p SeracScanExec,
    pub(super) projection: Option<&'p ProjectionExec>,
}

impl Source<'_> {
    /// The expressions that a column stands for, and the schema that these are over.
    fn resolve(&self, column: &Column) -> Option<&Arc<dyn PhysicalExpr>> {
        self.projection.map(|projection| &projection.expr()[column.index()].expr)
    }
}

/// The form in which a column is read as integers, and its scale if it is a decimal.
fn integers(column_type: ColumnType) -> Option<(ColumnForm, Option<i8>)> {
    match column_type {
        ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::Date
        | ColumnType::Time
        | ColumnType::Timestamp { .. } => Some((ColumnForm::Arrow, None)),
        ColumnType::Decimal { precision, scale } if precision <= 18 => Some((ColumnForm::Scaled64, Some(scale))),
        _ => None,
    }
}

impl Compiled {
    /// The place of a column of the table, with its scale; `None` if it is not read as 64-bit
    /// integers.
    pub(super) fn column(&mut self, source: &Source<'_>, column: usize) -> Option<(usize, Option<i8>)> {
        let (form, scale) = integers(source.scan.table().definition.columns.get(column)?.sql_type.column_type)?;
        let known = self.columns.iter().position(|known| *known == (column, form));
        let at = known.unwrap_or_else(|| {
            self.columns.push((column, form));
            self.columns.len() - 1
        });
        Some((at, scale))
    }

    /// The expression, over the output of the scan or of the projection above it; `schema` is that
    /// output's.
    pub(super) fn compile(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        source: &Source<'_>,
        schema: &Schema,
    ) -> Option<Compilation> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            if let Some(inner) = source.resolve(column) {
                let inner = inner.clone();
                let below = Source { projection: None, ..*source };
                let schema = source.projection?.input().schema();
                return self.compile(&inner, &below, &schema);
            }
            let (at, scale) = self.column(source, source.scan.column_of(column.index())?)?;
            return Some(Compilation { step: self.program.step(Step::Column(at)), scale });
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            let ScalarValue::Decimal128(Some(value), _, scale) = literal.value() else { return None };
            return Some(Compilation { step: self.program.step(Step::Constant(*value)), scale: Some(*scale) });
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let inner = self.compile(cast.expr(), source, schema)?;
            let from = cast.expr().data_type(schema).ok()?;
            let digits = match from {
                DataType::Int16 => 5,
                DataType::Int32 => 10,
                DataType::Int64 => 19,
                _ => return None,
            };
            return match cast.cast_type() {
                DataType::Int32 if digits <= 10 => Some(inner),
                DataType::Int64 => Some(inner),
                DataType::Decimal128(precision, 0) if *precision >= digits => {
                    Some(Compilation { scale: Some(0), ..inner })
                }
                _ => None,
            };
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let DataType::Decimal128(_, scale) = expr.data_type(schema).ok()? else { return None };
        let left = self.compile(binary.left(), source, schema)?;
        let right = self.compile(binary.right(), source, schema)?;
        let (l, r) = (left.scale?, right.scale?);
        let step = match binary.op() {
            Operator::Plus | Operator::Minus if scale == l.max(r) => Step::Sum {
                left: left.step,
                right: right.step,
                left_factor: 10i128.checked_pow(u32::try_from(scale - l).ok()?)?,
                right_factor: 10i128.checked_pow(u32::try_from(scale - r).ok()?)?,
                subtract: *binary.op() == Operator::Minus,
            },
            Operator::Multiply if i16::from(scale) == i16::from(l) + i16::from(r) => {
                Step::Product { left: left.step, right: right.step }
            }
            _ => return None,
        };
        Some(Compilation { step: self.program.step(step), scale: Some(scale) })
    }

    /// The set of the nullable columns of a step; `None` if there are none.
    pub(super) fn nullable_of(&mut self, step: usize, source: &Source<'_>) -> Option<usize> {
        let columns = &source.scan.table().definition.columns;
        let mut of_step = self.program.columns(step);
        of_step.retain(|&at| columns[self.columns[at].0].nullable);
        if of_step.is_empty() {
            return None;
        }
        Some(self.nullable.iter().position(|known| *known == of_step).unwrap_or_else(|| {
            self.nullable.push(of_step);
            self.nullable.len() - 1
        }))
    }

    /// The number of the sum of a step.
    pub(super) fn sum(&mut self, step: usize, source: &Source<'_>) -> (usize, Option<usize>) {
        let nullable = self.nullable_of(step, source);
        let at = self.sums.iter().position(|known| known.0 == step).unwrap_or_else(|| {
            self.sums.push((step, nullable));
            self.sums.len() - 1
        });
        (at, nullable)
    }
}
