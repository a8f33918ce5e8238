//! Arrow out, in process: a table's rows as a transaction sees them, as a reader of record batches
//! (Mainlining Databases §5).

use crate::catalog::definition::{ColumnDefinition, TableDefinition};
use crate::error::{EngineError, Result};
use crate::security::{Access, Privilege};
use crate::table::Table;
use crate::table::column_filter::{BoundFilter, ColumnFilter};
use crate::table::statistics::TableStatistics;
use crate::transaction::Transaction;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StringViewArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serac_numeric::Numeric;
use serac_storage::{
    BlockNo, ColumnForm, ColumnId, ColumnType, FreezeFormat, ScanColumn, Snapshot, marked, with_offsets,
};
use std::ops::Range;
use std::sync::Arc;

/// The form in which DECIMAL columns of up to 18 digits are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DecimalForm {
    /// As Decimal128, which every Arrow implementation knows. The values are copied.
    #[default]
    Decimal128,
    /// As Decimal64, the form in which they are stored: nothing is copied.
    Decimal64,
}

/// The form in which a column of variable length is handed out. Blocks that have it in this form
/// lend it; others convert it, so that all batches are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VarlenForm {
    /// As Utf8View or BinaryView: the form of hot blocks, and of those frozen in `view` format.
    /// JSON as LargeUtf8, and NUMERIC without precision as text, which each batch makes.
    #[default]
    View,
    /// As Utf8 or Binary: the form of blocks frozen in `utf8` format.
    Offsets,
    /// As Dictionary(UInt16, Utf8 or Binary), each batch with a dictionary of its own. This is the
    /// form of blocks frozen in `dictionary` format, except for columns that a dictionary would not
    /// make smaller. JSON and NUMERIC without precision have offsets.
    Dictionary,
}

impl VarlenForm {
    /// The type of a column, if it is of variable length.
    fn data_type(self, column_type: ColumnType) -> Option<DataType> {
        let (view, offsets) = match column_type {
            ColumnType::Utf8 => (DataType::Utf8View, DataType::Utf8),
            ColumnType::Json | ColumnType::JsonText => (DataType::LargeUtf8, DataType::Utf8),
            ColumnType::Binary => (DataType::BinaryView, DataType::Binary),
            // As texts, which tools read. No dictionaries: these are made of stored bytes.
            ColumnType::Numeric => (DataType::Utf8View, DataType::Utf8),
            _ => return None,
        };
        Some(match self {
            Self::View => view,
            Self::Offsets => offsets,
            // Arrow's extension type for JSON has no dictionaries.
            Self::Dictionary if column_type.is_document() || column_type == ColumnType::Numeric => offsets,
            Self::Dictionary => DataType::Dictionary(Box::new(DataType::UInt16), Box::new(offsets)),
        })
    }
}

/// The rows of a table, one record batch per block. Batches of frozen blocks are the blocks' own
/// buffers. They never change and live while they are referenced, also after the reader, the
/// transaction and the database have gone.
#[derive(Clone, Debug)]
pub struct ArrowScan {
    table: Arc<Table>,
    snapshot: Snapshot,
    schema: SchemaRef,
    columns: Vec<ScanColumn>,
    filter: Vec<BoundFilter>,
    blocks: Range<u32>,
    /// The rows that may still be read; `None` for all.
    limit: Option<usize>,
}

impl Transaction {
    /// Reads `columns` (positions in the table's definition) of all rows that the transaction sees
    /// and that fulfil every condition of `filter`. The reader keeps the snapshot.
    ///
    /// # Errors
    /// [`EngineError::InvalidDefinition`] if a column is not there, or a condition does not fit its
    /// column.
    pub fn scan_arrow(&self, table: &Arc<Table>, columns: &[usize], filter: &[ColumnFilter]) -> Result<ArrowScan> {
        ArrowScan::new(self.snapshot(), table, columns, filter)
    }
}

/// The key of the metadata in which a field tells PostgreSQL's type: its number, a colon, and the
/// modifier.
pub const TYPE_KEY: &str = "postgresql.type";

/// The field with the number of a PostgreSQL type and its modifier (-1: no modifier).
pub fn with_type(field: Field, oid: u32, modifier: i32) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(TYPE_KEY.into(), format!("{oid}:{modifier}"));
    field.with_metadata(metadata)
}

/// The columns of a table that a scan reads, to check again later whether a role may read them.
#[derive(Clone, Debug)]
pub struct ColumnsRead {
    table: Arc<Table>,
    columns: Vec<usize>,
}

impl ColumnsRead {
    /// Refuses columns that a role may not read.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check_access(&self, access: &Access) -> Result<()> {
        access.check_columns(&self.table.definition, Privilege::Select, &self.columns)
    }
}

/// A column as scans hand it out by default.
fn field_of(column: &ColumnDefinition) -> Field {
    let column_type = column.sql_type.column_type;
    let data_type = VarlenForm::View.data_type(column_type).unwrap_or_else(|| column_type.arrow());
    let field = marked(Field::new(&column.name, data_type, column.nullable));
    match column.sql_type.told() {
        Some((oid, modifier)) => with_type(field, oid, modifier),
        None => field,
    }
}

impl TableDefinition {
    /// The columns that users see, as scans hand them out by default.
    pub fn exported_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.visible_columns().iter().map(field_of).collect::<Vec<_>>()))
    }
}

fn external(error: serac_storage::StorageError) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

impl ArrowScan {
    /// Reads `columns` (positions in the table's definition) of all rows that the snapshot sees and
    /// that fulfil every condition of `filter`. The table is of the snapshot's catalog.
    ///
    /// # Errors
    /// [`EngineError::InvalidDefinition`] if a column is not there, or a condition does not fit its
    /// column.
    pub fn new(snapshot: &Snapshot, table: &Arc<Table>, columns: &[usize], filter: &[ColumnFilter]) -> Result<Self> {
        let all = &table.definition.columns;
        if let Some(column) = columns.iter().find(|&&column| column >= all.len()) {
            let message = format!("relation \"{}\" has no column {column}", table.name());
            return Err(EngineError::InvalidDefinition(message));
        }
        Ok(Self {
            table: table.clone(),
            snapshot: snapshot.clone(),
            schema: Arc::new(Schema::new(columns.iter().map(|&c| field_of(&all[c])).collect::<Vec<_>>())),
            columns: columns.iter().map(|&c| ScanColumn::arrow(ColumnId(c as u16))).collect(),
            filter: filter.iter().map(|filter| BoundFilter::new(table, filter)).collect::<Result<_>>()?,
            // Every row that the snapshot sees lies in a block that there is already.
            blocks: 0..table.data.block_count(),
            limit: None,
        })
    }

    /// The same rows, with columns in the forms that `form_of` gives by position and type.
    fn reform(mut self, form_of: impl Fn(usize, ColumnType) -> Option<(ColumnForm, DataType)>) -> Self {
        let stored = &self.table.data.schema().columns;
        let mut fields = self.schema.fields().to_vec();
        for (at, (column, field)) in self.columns.iter_mut().zip(&mut fields).enumerate() {
            if let Some((form, data_type)) = form_of(at, stored[column.id.0 as usize].column_type) {
                column.form = form;
                *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
            }
        }
        self.schema = Arc::new(Schema::new(fields));
        self
    }

    /// The same rows with short decimals in this form.
    #[must_use]
    pub fn with_decimals(self, decimals: DecimalForm) -> Self {
        self.reform(|_, column_type| match (column_type, decimals) {
            (ColumnType::Decimal { precision: 19.., .. }, _) => None,
            (ColumnType::Decimal { .. }, DecimalForm::Decimal128) => Some((ColumnForm::Arrow, column_type.arrow())),
            (ColumnType::Decimal { precision, scale }, DecimalForm::Decimal64) => {
                Some((ColumnForm::Stored, DataType::Decimal64(precision, scale)))
            }
            _ => None,
        })
    }

    /// The same rows in the forms that most frozen blocks have. Short decimals have 64 bits. A
    /// column of variable length is as in most blocks (JSON as Utf8View or Utf8), or as the table
    /// freezes if no block is frozen. Only blocks in other forms are converted.
    #[must_use]
    pub fn as_stored(self) -> Self {
        let stored = &self.table.data.schema().columns;
        let formats: Vec<FreezeFormat> = self
            .columns
            .iter()
            .map(|column| {
                let is_varlen = VarlenForm::View.data_type(stored[column.id.0 as usize].column_type).is_some();
                let prevalent = is_varlen.then(|| self.table.data.prevalent_format(column.id)).flatten();
                prevalent.unwrap_or(self.table.definition.freeze_format)
            })
            .collect();
        self.with_decimals(DecimalForm::Decimal64).reform(|at, column_type| {
            let data_type = match (column_type, formats[at]) {
                (
                    ColumnType::Json | ColumnType::JsonText,
                    FreezeFormat::View | FreezeFormat::Compact | FreezeFormat::Never,
                ) => Some(DataType::Utf8View),
                (_, FreezeFormat::View | FreezeFormat::Compact | FreezeFormat::Never) => {
                    VarlenForm::View.data_type(column_type)
                }
                (_, FreezeFormat::Utf8) => VarlenForm::Offsets.data_type(column_type),
                (_, FreezeFormat::Dictionary) => VarlenForm::Dictionary.data_type(column_type),
            };
            data_type.map(|data_type| (ColumnForm::Stored, data_type))
        })
    }

    /// The same rows with all columns of variable length in this form.
    #[must_use]
    pub fn with_varlen(self, form: VarlenForm) -> Self {
        self.with_varlen_where(form, |_| true)
    }

    /// The same rows, with the columns of variable length at the `wanted` positions in this form.
    #[must_use]
    pub fn with_varlen_where(self, form: VarlenForm, wanted: impl Fn(usize) -> bool) -> Self {
        let column_form = if form == VarlenForm::View { ColumnForm::Arrow } else { ColumnForm::Stored };
        self.reform(|at, column_type| {
            form.data_type(column_type).filter(|_| wanted(at)).map(|data_type| (column_form, data_type))
        })
    }

    /// Refuses a scan of columns that a role may not read.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check_access(&self, access: &Access) -> Result<()> {
        self.columns_read().check_access(access)
    }

    /// The columns that the scan reads or compares. They keep the table, not the snapshot.
    pub fn columns_read(&self) -> ColumnsRead {
        let filtered = self.filter.iter().map(BoundFilter::column);
        let columns = self.columns.iter().map(|column| column.id.0 as usize).chain(filtered).collect();
        ColumnsRead { table: self.table.clone(), columns }
    }

    /// The addresses of the buffers of a block, if it is frozen now and lies in memory of the
    /// process. Empty for a block that is hot, or that lies in a mapped file. A buffer of a batch
    /// that lies at such addresses is the block's own, so it never changes.
    pub fn frozen_memory(&self, block: u32) -> Vec<Range<usize>> {
        let block = self.table.data.block(BlockNo(block));
        let frozen = block.as_ref().and_then(|block| block.frozen()).filter(|frozen| !frozen.is_mapped());
        frozen.map_or_else(Vec::new, |frozen| frozen.addresses().collect())
    }

    /// The rows in the unread blocks whose numbers lie in `blocks`.
    #[must_use]
    pub fn within(mut self, blocks: Range<u32>) -> Self {
        self.blocks = self.blocks.start.max(blocks.start)..self.blocks.end.min(blocks.end);
        self
    }

    /// The first `limit` of the unread rows, in the order of their row ids.
    #[must_use]
    pub fn first(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Estimates of the table, for planning.
    pub fn statistics(&self) -> Arc<TableStatistics> {
        self.table.statistics(&self.snapshot)
    }

    /// The position in the table's definition of each column that is read.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| column.id.0 as usize)
    }

    /// The rows of blocks, whatever the conditions say: an estimate while writers are active.
    pub fn rows_in(&self, blocks: Range<u32>) -> u64 {
        let rows = |no| self.table.data.block(BlockNo(no)).map_or(0, |block| u64::from(block.rows()));
        blocks.map(rows).sum()
    }

    /// The blocks that are still to be read.
    pub fn blocks(&self) -> Range<u32> {
        self.blocks.clone()
    }

    /// Reads the next block; `None` after the last, and no batch if none of the block's rows
    /// qualify. [`Iterator::next`] repeats it. A snapshot gives the rows of a block in the order of
    /// their slots, every time in the same one: a row keeps its slot while a snapshot sees it.
    ///
    /// # Errors
    /// Arrow's error.
    pub fn next_block(&mut self) -> Option<std::result::Result<Option<RecordBatch>, ArrowError>> {
        if self.limit == Some(0) {
            return None;
        }
        let no = self.blocks.next()?;
        let batch = self.read(BlockNo(no));
        if let (Some(limit), Ok(Some(batch))) = (&mut self.limit, &batch) {
            *limit -= batch.num_rows();
        }
        Some(batch)
    }

    fn read(&self, no: BlockNo) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let Some(mut reader) = self.table.data.read_block(&self.snapshot, no) else { return Ok(None) };
        if self.filter.iter().any(|filter| filter.excludes(&reader)) {
            return Ok(None);
        }
        let mut selection = reader.visible().clone();
        for filter in &self.filter {
            selection = filter.select(&mut reader, selection)?;
            if selection.is_empty() {
                return Ok(None);
            }
        }
        if let Some(limit) = self.limit {
            selection = selection.first(limit);
        }
        let arrays = reader.columns(&self.columns, &selection).map_err(external)?;
        let stored = &self.table.data.schema().columns;
        let arrays = self.columns.iter().zip(&arrays).zip(self.schema.fields()).map(|((column, array), field)| {
            match stored[column.id.0 as usize].column_type {
                ColumnType::Numeric => into_form(&as_texts(array)?, field.data_type()),
                _ => into_form(array, field.data_type()),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.collect::<std::result::Result<_, _>>()?, &options)
            .map(Some)
    }
}

/// Numbers with digits of their own as the texts that PostgreSQL writes.
///
/// # Errors
/// For bytes that are no number.
fn as_texts(stored: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let stored = arrow_cast::cast(stored, &DataType::LargeBinary)?;
    let text = |stored: Option<&[u8]>| stored.map(|bytes| Numeric::of_stored(bytes).map(|number| number.to_string()));
    let texts = stored.as_binary::<i64>().iter().map(|stored| text(stored).transpose());
    let texts = texts.collect::<std::result::Result<StringViewArray, _>>();
    texts.map(|texts| Arc::new(texts) as ArrayRef).map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

/// A column in another of Arrow's types for the same values; as it is if that is its type.
///
/// # Errors
/// An array that Arrow cannot convert.
pub fn into_form(array: &ArrayRef, data_type: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    match data_type {
        same if array.data_type() == same => Ok(array.clone()),
        DataType::Utf8 | DataType::Binary if let Some(array) = with_offsets(array) => Ok(array),
        other => arrow_cast::cast(array, other),
    }
}

impl Iterator for ArrowScan {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        std::iter::from_fn(|| self.next_block()).find_map(std::result::Result::transpose)
    }
}

impl RecordBatchReader for ArrowScan {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
