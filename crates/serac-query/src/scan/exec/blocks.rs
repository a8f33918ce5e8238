//! The blocks of a scan in order: the rows that its filters leave, and columns of these rows.

use super::super::circular::{MemberReader, ScanSharing};
use super::super::conjunct::Conjunct;
use super::super::places::places_of;
use super::super::progress::ScanProgress;
use super::{BlockOrder, SeracScanExec};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{Count, MetricBuilder};
use serac_storage::{BlockNo, BlockReadStats, BlockReader, ColumnForm, ColumnId, ScanColumn, Selection};
use std::sync::Arc;

/// Blocks after which the conjuncts are put in order anew.
const BLOCKS_PER_ORDER: u32 = 8;

/// Columns already read, for the rows of the current selection.
pub(super) type Loaded = Vec<((usize, ColumnForm), ArrayRef)>;

fn load(reader: &mut BlockReader<'_>, column: (usize, ColumnForm), selection: &Selection) -> Result<ArrayRef> {
    let column = ScanColumn { id: ColumnId(column.0 as u16), form: column.1 };
    let mut arrays = reader.columns(&[column], selection).map_err(|e| DataFusionError::External(Box::new(e)))?;
    Ok(arrays.remove(0))
}

/// Columns, from those that are loaded already if they are there.
fn load_all(
    reader: &mut BlockReader<'_>,
    columns: &[(usize, ColumnForm)],
    selection: &Selection,
    loaded: &mut Loaded,
) -> Result<Vec<ArrayRef>> {
    let mut arrays = Vec::with_capacity(columns.len());
    for &column in columns {
        let array = match loaded.iter().find(|(known, _)| *known == column) {
            Some((_, array)) => array.clone(),
            None => {
                let array = load(reader, column, selection)?;
                loaded.push((column, array.clone()));
                array
            }
        };
        arrays.push(array);
    }
    Ok(arrays)
}

/// Columns of the rows that are left, those that are not loaded yet all at once.
fn load_missing(
    reader: &mut BlockReader<'_>,
    columns: &[(usize, ColumnForm)],
    selection: &Selection,
    mut loaded: Loaded,
) -> Result<Vec<ArrayRef>> {
    let mut missing: Vec<(usize, ColumnForm)> = Vec::new();
    for column in columns {
        if loaded.iter().all(|(known, _)| known != column) && !missing.contains(column) {
            missing.push(*column);
        }
    }
    let wanted: Vec<ScanColumn> =
        missing.iter().map(|&(c, form)| ScanColumn { id: ColumnId(c as u16), form }).collect();
    let arrays = reader.columns(&wanted, selection).map_err(|e| DataFusionError::External(Box::new(e)))?;
    loaded.extend(missing.into_iter().zip(arrays));
    let array = |column: &(usize, ColumnForm)| {
        let (_, array) = loaded.iter().find(|(known, _)| known == column).expect("just loaded");
        array.clone()
    };
    Ok(columns.iter().map(array).collect())
}

/// Where the slots that are `left` of a selection stand in it.
fn positions_in(selection: &Selection, left: &Selection) -> Vec<u32> {
    let left = match left {
        Selection::All(n) => return (0..*n).collect(),
        Selection::Positions(left) => left,
    };
    let Selection::Positions(slots) = selection else { return left.clone() };
    let mut left = left.iter().peekable();
    let positions = slots.iter().zip(0..).filter(|(slot, _)| left.next_if_eq(slot).is_some());
    positions.map(|(_, at)| at).collect()
}

/// The rows of the block that all conjuncts leave of `selection`, and the columns that were read on
/// the way.
pub(super) fn filter_block(
    reader: &mut BlockReader<'_>,
    mut selection: Selection,
    conjuncts: &mut [Conjunct],
) -> Result<(Selection, Loaded)> {
    let mut loaded: Loaded = Vec::new();
    for conjunct in conjuncts.iter_mut().filter(|conjunct| !conjunct.is_idle()) {
        let is_loaded = |column: &(usize, ColumnForm)| loaded.iter().any(|(known, _)| known == column);
        if !conjunct.columns.iter().any(is_loaded)
            && let Some(left) = conjunct.select_packed(reader, &selection)
        {
            if left.is_empty() {
                return Ok((Selection::All(0), Vec::new()));
            }
            if left.len() < selection.len() {
                if !loaded.is_empty() {
                    let indices = UInt32Array::from(positions_in(&selection, &left));
                    for (_, array) in &mut loaded {
                        *array = take(array, &indices, None)?;
                    }
                }
                selection = left;
            }
            continue;
        }
        let positions = match conjunct.select_by_words(reader, &selection) {
            Some(positions) => positions,
            None => {
                let arrays = load_all(reader, &conjunct.columns, &selection, &mut loaded)?;
                conjunct.select(arrays, selection.len())?
            }
        };
        let Some(positions) = positions else { continue };
        if positions.is_empty() {
            return Ok((Selection::All(0), Vec::new()));
        }
        let indices = UInt32Array::from(positions);
        for (_, array) in &mut loaded {
            *array = take(array, &indices, None)?;
        }
        selection = selection.narrow(indices.values());
    }
    Ok((selection, loaded))
}

fn bits_of(slots: &[u32], all: usize) -> Vec<u64> {
    let mut bits = vec![0; all.div_ceil(64)];
    slots.iter().for_each(|&slot| bits[slot as usize / 64] |= 1 << (slot % 64));
    bits
}

/// Rows of one block, on their way into an aggregation.
pub(in crate::scan) struct BlockRows {
    pub(in crate::scan) no: BlockNo,
    /// The slots of which `columns` has the values.
    pub(in crate::scan) slots: Selection,
    /// The slots that are wanted, by bit; `None` for those of `slots`.
    pub(in crate::scan) wanted: Option<Vec<u64>>,
    pub(in crate::scan) columns: Vec<ArrayRef>,
}

/// A partition of a scan that is in a convoy, and its figures for EXPLAIN ANALYZE.
struct ConvoyReader {
    reader: MemberReader,
    blocks_followed: Count,
    left: Count,
}

/// What the scans of a session share.
#[derive(Clone)]
pub(in crate::scan) struct SessionScans {
    sharing: Option<Arc<ScanSharing>>,
    progress: Option<Arc<ScanProgress>>,
}

impl SessionScans {
    /// Of the query's session.
    pub(in crate::scan) fn of(context: &TaskContext) -> Self {
        Self { sharing: ScanSharing::of(context), progress: ScanProgress::of(context) }
    }
}

/// The part of a scan that one partition reads.
pub(in crate::scan) struct BlockScan {
    scan: SeracScanExec,
    session: SessionScans,
    /// The segment of the last block.
    segment: Option<u32>,
    /// In a convoy, from the first block on.
    convoy: Option<ConvoyReader>,
    partition: usize,
    conjuncts: Vec<Conjunct>,
    blocks_read: u32,
    blocks_skipped: Count,
    blocks_frozen: Count,
    blocks_bulk: Count,
    blocks_patched: Count,
    rows_patched: Count,
    bitmap_rows: Count,
    joined_rows: Count,
}

impl BlockScan {
    pub(in crate::scan) fn new(scan: &SeracScanExec, partition: usize, session: SessionScans) -> Result<Self> {
        let counter = |name: &'static str| MetricBuilder::new(&scan.metrics).counter(name, partition);
        Ok(Self {
            partition,
            session,
            segment: None,
            convoy: None,
            conjuncts: scan.conjuncts()?,
            blocks_read: 0,
            blocks_skipped: counter("blocks_skipped"),
            blocks_frozen: counter("blocks_frozen"),
            blocks_bulk: counter("blocks_bulk"),
            blocks_patched: counter("blocks_patched"),
            rows_patched: counter("rows_patched"),
            bitmap_rows: counter("bitmap_rows"),
            joined_rows: counter("joined_rows"),
            scan: scan.clone(),
        })
    }

    /// The next block for this partition.
    pub(in crate::scan) fn next(&mut self) -> Option<BlockNo> {
        let no = self.next_in_order()?;
        self.blocks_read += 1;
        if let Some(progress) = &self.session.progress {
            progress.block_begins();
        }
        if self.blocks_read.is_multiple_of(BLOCKS_PER_ORDER) {
            // A cheap conjunct that leaves few rows goes first. A stable sort: equals stay in the
            // order of the plan.
            self.conjuncts.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
        }
        Some(no)
    }

    fn next_in_order(&mut self) -> Option<BlockNo> {
        if let Some(ConvoyReader { reader, blocks_followed, left }) = &mut self.convoy {
            let step = reader.next()?;
            blocks_followed.add(step.follows.into());
            left.add(step.left.into());
            return Some(step.no);
        }
        let order = || {
            if let Some(progress) = &self.session.progress {
                progress.scan_begins(self.scan.block_range().len() as u32);
            }
            self.scan.new_order(self.session.sharing.as_deref())
        };
        match self.scan.blocks.get_or_init(order) {
            BlockOrder::Alone(queue) => queue.next(&mut self.segment),
            BlockOrder::Shared(member) => {
                let counter = |name: &'static str| MetricBuilder::new(&self.scan.metrics).counter(name, self.partition);
                self.convoy = Some(ConvoyReader {
                    reader: MemberReader::new(member),
                    blocks_followed: counter("shared_scan_followed"),
                    left: counter("shared_scan_left"),
                });
                self.next_in_order()
            }
        }
    }

    /// Whether the task gives way to other scans of the convoy before it takes the next block.
    /// Asked once for each.
    pub(in crate::scan) fn gives_way(&mut self) -> bool {
        self.convoy.as_mut().is_some_and(|convoy| convoy.reader.gives_way())
    }

    /// Calls `f` with the rows of a block that indexes name, if it has any that zone maps and
    /// dictionaries do not exclude. With `bits`, and if no test is left, more than half of a
    /// block's slots are passed as all slots with a bitmap of the wanted ones.
    fn visit<T>(
        &mut self,
        no: BlockNo,
        bits: bool,
        f: impl FnOnce(&SeracScanExec, &mut BlockReader<'_>, &mut [Conjunct], Selection, Option<Vec<u64>>) -> Result<T>,
    ) -> Result<Option<T>> {
        let scan = &self.scan;
        if scan.places.as_ref().is_some_and(|places| places.skips(no)) {
            self.blocks_skipped.add(1);
            return Ok(None);
        }
        let named = scan.bitmap.as_ref().map(|bitmap| bitmap.rows(no));
        let joined = scan.joined().map(|joined| joined.rows(no));
        if [named, joined].into_iter().flatten().any(|rows| rows.skips(no)) {
            self.blocks_skipped.add(1);
            return Ok(None);
        }
        let Some(mut reader) = scan.table.data.read_block(&scan.snapshot, no) else { return Ok(None) };
        self.conjuncts.iter_mut().for_each(|conjunct| conjunct.refresh(scan.table.data.schema()));
        let excludes = |conjunct: &Conjunct| conjunct.excludes(&reader) || conjunct.finds_no_word(&reader);
        if self.conjuncts.iter().any(excludes) {
            self.blocks_skipped.add(1);
            return Ok(None);
        }
        let mut selection = reader.visible().clone();
        let mut wanted = None;
        if let Some(rows) = named {
            let tested = joined.is_some() || scan.places.is_some() || !self.conjuncts.is_empty();
            if let (Selection::All(all), true, false) = (&selection, bits, tested) {
                wanted = rows.bits(no, *all);
            }
            if wanted.is_none() {
                selection = rows.select(no, &selection);
            }
            let bits = |wanted: &Vec<u64>| wanted.iter().map(|word| word.count_ones() as usize).sum();
            self.bitmap_rows.add(wanted.as_ref().map_or(selection.len(), bits));
        }
        if let Some(rows) = joined {
            selection = match &selection {
                Selection::Positions(slots) if named.is_some() => rows.narrow(no, slots),
                // All that is visible: no slot has to be looked up.
                all => rows.select(no, all),
            };
            self.joined_rows.add(selection.len());
        }
        if let Some(places) = &scan.places {
            selection = places.narrow(no, &selection);
        }
        if selection.is_empty() {
            return Ok(None);
        }
        if let Some(convoy) = &mut self.convoy {
            convoy.reader.reads();
        }
        let outcome = f(scan, &mut reader, &mut self.conjuncts, selection, wanted)?;
        let stats = reader.stats();
        match stats {
            BlockReadStats { frozen: true, .. } => &self.blocks_frozen,
            BlockReadStats { bulk: true, .. } => &self.blocks_bulk,
            _ => &self.blocks_patched,
        }
        .add(1);
        self.rows_patched.add(stats.rows_patched as usize);
        Ok(Some(outcome))
    }

    /// The rows of a block, in the scan's output columns.
    pub(super) fn batch(&mut self, no: BlockNo, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let batch = self.visit(no, false, |scan, reader, conjuncts, selection, _| {
            let (selection, loaded) = filter_block(reader, selection, conjuncts)?;
            if selection.is_empty() {
                return Ok(None);
            }
            let columns = scan.projection.iter().zip(schema.fields()).filter(|(c, _)| !scan.is_hidden(**c));
            let columns = columns.map(|(&c, field)| match field.data_type() {
                DataType::Decimal64(..) => (c, ColumnForm::Stored),
                _ => (c, ColumnForm::Arrow),
            });
            let columns: Vec<_> = columns.collect();
            let mut arrays = load_missing(reader, &columns, &selection, loaded)?.into_iter();
            let row_id = scan.table.definition.columns.len();
            let columns = scan.projection.iter().map(|&c| match c {
                c if c < row_id => Ok(arrays.next().expect("an array for each column")),
                c if c == row_id => Ok(Arc::new(reader.row_ids(&selection)) as ArrayRef),
                _ => places_of(reader.row_ids(&selection).values()),
            });
            let columns = columns.collect::<Result<_>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
            Ok(Some(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?))
        })?;
        Ok(batch.flatten())
    }

    /// The rows of a block, with other columns of the table. With `bits`, the wanted rows may be
    /// given as a bitmap over all.
    pub(in crate::scan) fn rows(
        &mut self,
        no: BlockNo,
        columns: &[(usize, ColumnForm)],
        bits: bool,
    ) -> Result<Option<BlockRows>> {
        let rows = self.visit(no, bits, |_, reader, conjuncts, all, wanted| {
            let (mut selection, mut loaded) = filter_block(reader, all.clone(), conjuncts)?;
            if selection.is_empty() {
                return Ok(None);
            }
            let mut wanted = wanted;
            if let (true, Selection::All(slots), Selection::Positions(left)) = (bits, &all, &selection)
                && left.len() * 2 > *slots as usize
            {
                // Reading what is not wanted costs less than copying the rest.
                wanted = Some(bits_of(left, *slots as usize));
                (selection, loaded) = (all, Vec::new());
            }
            let columns = load_missing(reader, columns, &selection, loaded)?;
            Ok(Some(BlockRows { no, slots: selection, wanted, columns }))
        })?;
        Ok(rows.flatten())
    }
}
