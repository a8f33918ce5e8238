//! Pieces of the input, chunks of pieces, and the frames of their rows.

use super::plan::{Bound, Computed, Frame, WindowPlan};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, make_comparator, new_empty_array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::compute::{SortOptions, concat};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use std::ops::Range;

/// Rows of the input with the values of the plan's expressions.
pub(super) struct Piece {
    pub(super) batch: RecordBatch,
    pub(super) values: Vec<ArrayRef>,
    /// The rows that begin a partition, in order.
    pub(super) partitions: Vec<u32>,
    /// The rows that begin a group of peers, if the plan needs them: a partition begins one, too.
    pub(super) peers: Vec<u32>,
}

/// Which rows differ from each other. NULL is equal to NULL, and floats are compared by their bits:
/// what sorts rows does the same, and keys have one zero and one NaN.
fn differences(left: &ArrayRef, right: &ArrayRef) -> Result<BooleanBuffer> {
    let is_plain = match left.data_type() {
        DataType::Dictionary(_, values) => !values.is_nested(),
        DataType::RunEndEncoded(..) => false,
        data_type => !data_type.is_nested(),
    };
    if is_plain {
        return Ok(distinct(&left.as_ref(), &right.as_ref())?.values().clone());
    }
    let compare = make_comparator(left.as_ref(), right.as_ref(), SortOptions::default())?;
    Ok(BooleanBuffer::collect_bool(left.len(), |row| compare(row, row).is_ne()))
}

/// Which rows of any column differ; `None` for no columns.
fn all_differences<'a>(columns: impl Iterator<Item = (&'a ArrayRef, &'a ArrayRef)>) -> Result<Option<BooleanBuffer>> {
    let mut all: Option<BooleanBuffer> = None;
    for (left, right) in columns {
        let of_column = differences(left, right)?;
        all = Some(match all {
            Some(all) => &all | &of_column,
            None => of_column,
        });
    }
    Ok(all)
}

/// The last row of the input so far: its keys of partitions, and of the order.
#[derive(Default)]
pub(super) struct LastRow {
    keys: Option<(Vec<ArrayRef>, Vec<ArrayRef>)>,
}

impl LastRow {
    /// Whether the first rows of columns differ from this one: in partitions, in the order.
    fn differs(&self, partition_by: &[&ArrayRef], order_by: &[&ArrayRef]) -> Result<(bool, bool)> {
        let Some((of_partition, of_order)) = &self.keys else { return Ok((true, true)) };
        let differ = |last: &[ArrayRef], columns: &[&ArrayRef]| {
            let first: Vec<ArrayRef> = columns.iter().map(|column| column.slice(0, 1)).collect();
            all_differences(last.iter().zip(&first)).map(|all| all.is_some_and(|all| all.value(0)))
        };
        Ok((differ(of_partition, partition_by)?, differ(of_order, order_by)?))
    }

    fn set(&mut self, partition_by: &[&ArrayRef], order_by: &[&ArrayRef], row: usize) {
        let of = |columns: &[&ArrayRef]| columns.iter().map(|column| column.slice(row, 1)).collect();
        self.keys = Some((of(partition_by), of(order_by)));
    }
}

/// The rows after changes, with the first one if it is one of them.
fn starts(first: bool, changes: Option<&BooleanBuffer>) -> Vec<u32> {
    let rows = changes.map(|changes| changes.set_indices().map(|row| row as u32 + 1));
    first.then_some(0).into_iter().chain(rows.into_iter().flatten()).collect()
}

impl Piece {
    /// The rows of a batch, which has some, after `last`.
    pub(super) fn new(plan: &WindowPlan, batch: RecordBatch, last: &mut LastRow) -> Result<Self> {
        let rows = batch.num_rows();
        let evaluated = plan.expressions.iter().map(|expr| expr.evaluate(&batch)?.into_array(rows));
        let values: Vec<ArrayRef> = evaluated.collect::<Result<_>>()?;
        let columns = |of: &[usize]| -> Vec<&ArrayRef> { of.iter().map(|at| &values[*at]).collect() };
        let (partition_by, order_by) = (columns(&plan.partition_by), columns(&plan.order_by));
        let changes = |columns: &[&ArrayRef]| {
            let pairs: Vec<_> =
                columns.iter().map(|column| (column.slice(0, rows - 1), column.slice(1, rows - 1))).collect();
            all_differences(pairs.iter().map(|(left, right)| (left, right)))
        };
        let (of_partition, of_order) = last.differs(&partition_by, &order_by)?;
        let partition_changes = changes(&partition_by)?;
        let partitions = starts(of_partition, partition_changes.as_ref());
        let peers = match plan.needs_peers {
            false => Vec::new(),
            true => {
                let all = match (partition_changes, changes(&order_by)?) {
                    (Some(of_partition), Some(of_order)) => Some(&of_partition | &of_order),
                    (one, other) => one.or(other),
                };
                starts(of_partition || of_order, all.as_ref())
            }
        };
        last.set(&partition_by, &order_by, rows - 1);
        Ok(Self { batch, values, partitions, peers })
    }

    pub(super) fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The first rows, and the others.
    pub(super) fn split(self, at: usize) -> (Self, Self) {
        let rest = self.rows() - at;
        let divided = |mut starts: Vec<u32>| {
            let later = starts.split_off(starts.partition_point(|start| (*start as usize) < at));
            (starts, later.into_iter().map(|start| start - at as u32).collect())
        };
        let ((partitions, other_partitions), (peers, other_peers)) = (divided(self.partitions), divided(self.peers));
        let values = |from, rows| self.values.iter().map(|column| column.slice(from, rows)).collect();
        let first = Self { batch: self.batch.slice(0, at), values: values(0, at), partitions, peers };
        let other = Self {
            batch: self.batch.slice(at, rest),
            values: values(at, rest),
            partitions: other_partitions,
            peers: other_peers,
        };
        (first, other)
    }
}

/// The frames of rows: for each row its first row, and the row after its last one.
pub(super) struct FrameBounds {
    pub(super) starts: Vec<u32>,
    pub(super) ends: Vec<u32>,
}

impl FrameBounds {
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.starts.iter().zip(&self.ends).map(|(start, end)| (*start as usize, *end as usize))
    }
}

/// Rows that functions are computed for.
pub(super) struct Chunk {
    pub(super) rows: usize,
    pub(super) values: Vec<ArrayRef>,
    /// The rows that begin a partition; 0 is one of them.
    partitions: Vec<u32>,
    peers: Vec<u32>,
    /// Whether the first partition goes on from the chunk before.
    pub(super) continues: bool,
    /// Whether the first peers go on from the chunk before.
    pub(super) peers_continue: bool,
    pub(super) frames: Vec<FrameBounds>,
}

fn ranges(starts: &[u32], rows: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let ends = starts.iter().skip(1).map(|start| *start as usize).chain(std::iter::once(rows));
    starts.iter().zip(ends).map(|(start, end)| *start as usize..end)
}

impl Chunk {
    /// A chunk of pieces, of which there is one, with the values and the frames that functions ask
    /// for.
    pub(super) fn new(plan: &WindowPlan, pieces: &[&Piece], asks: impl Fn(&Computed) -> bool) -> Result<Self> {
        let asked = || plan.functions.iter().filter(|computed| asks(computed)).map(|computed| &computed.function);
        let values: Result<Vec<ArrayRef>> = (0..plan.expressions.len())
            .map(|at| match pieces {
                _ if !asked().any(|function| function.values().contains(&at)) => Ok(new_empty_array(&DataType::Null)),
                [piece] => Ok(piece.values[at].clone()),
                _ => {
                    let columns: Vec<&dyn Array> = pieces.iter().map(|piece| piece.values[at].as_ref()).collect();
                    Ok(concat(&columns)?)
                }
            })
            .collect();
        let rows = pieces.iter().map(|piece| piece.rows()).sum();
        let all = |of: fn(&Piece) -> &[u32]| {
            let (mut starts, mut before) = (Vec::new(), 0);
            for piece in pieces {
                starts.extend(of(piece).iter().map(|start| start + before));
                before += piece.rows() as u32;
            }
            let continues = starts.first() != Some(&0);
            if continues {
                starts.insert(0, 0);
            }
            (starts, continues)
        };
        let (partitions, continues) = all(|piece| &piece.partitions);
        let (peers, peers_continue) = all(|piece| &piece.peers);
        let mut chunk =
            Self { rows, values: values?, partitions, peers, continues, peers_continue, frames: Vec::new() };
        let frames = plan.frames.iter().enumerate();
        chunk.frames = frames
            .map(|(at, frame)| match asked().any(|function| function.frame() == Some(at)) {
                true => chunk.bounds(*frame),
                false => FrameBounds { starts: Vec::new(), ends: Vec::new() },
            })
            .collect();
        Ok(chunk)
    }

    /// The partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        ranges(&self.partitions, self.rows)
    }

    pub(super) fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The groups of peers, if the plan needs them.
    pub(super) fn peers(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        ranges(&self.peers, self.rows)
    }

    /// The rows of the first partition if it goes on from the chunk before, otherwise 0.
    pub(super) fn continued_rows(&self) -> usize {
        match self.continues {
            true => self.partitions.get(1).map_or(self.rows, |start| *start as usize),
            false => 0,
        }
    }

    fn bounds(&self, frame: Frame) -> FrameBounds {
        let bound = |bound: Bound, is_end: bool| {
            let mut all: Vec<u32> = Vec::with_capacity(self.rows);
            let mut fill = |range: Range<usize>| {
                all.resize(range.end, if is_end { range.end } else { range.start } as u32);
            };
            match bound {
                Bound::Partition => self.partitions().for_each(&mut fill),
                Bound::Peers => self.peers().for_each(&mut fill),
                Bound::Row(distance) => {
                    for Range { start, end } in self.partitions() {
                        let (first, last) = (start as i64, end as i64);
                        let distance = distance.saturating_add(i64::from(is_end));
                        all.extend((first..last).map(|row| row.saturating_add(distance).clamp(first, last) as u32));
                    }
                }
            }
            all
        };
        let (mut starts, ends) = (bound(frame.start, false), bound(frame.end, true));
        // A frame without rows.
        starts.iter_mut().zip(&ends).for_each(|(start, end)| *start = (*start).min(*end));
        FrameBounds { starts, ends }
    }
}
