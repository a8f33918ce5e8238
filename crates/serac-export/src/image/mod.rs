//! Images: tables of a snapshot whose buffers stay in place, and a manifest that describes them.
//!
//! The holder's side of [`serac_client::image`], where the form is described. A builder walks the
//! record batches of scans and asks a [`Placement`] for a place of each buffer:
//!
//! ```text
//! ArrowScan ──▶ ImageBuilder ──▶ Placement: shared memory (a file's descriptor, or a copy),
//!                    │                      RDMA (registered memory, or a write)
//!                    ▼
//!               TableManifest: headers of Arrow IPC whose offsets count in one range
//! ```
//! A place lies in a *region*. The offsets of regions in the range come last, when the length of
//! each is known.

mod request;

use crate::body::{Body, Parts, header, with_own_words, words_of};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt16Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{ArrowError, Schema};
use serac_client::image::{MOST_MANIFEST_BYTES, TableManifest, put_message};
use serac_engine::EngineError;
use std::slice;

pub use request::{ImageScan, scans};

/// The reason why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The tables cannot be read, or not by this role.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The arrays cannot be read, or are of a type that images do not have.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The image would be larger than a limit.
    #[error("{0}")]
    TooLarge(String),
    /// All room for images is in use.
    #[error("{0}")]
    NoRoom(String),
    /// The system refuses memory, or a descriptor.
    #[error("{0}: {1}")]
    System(&'static str, #[source] std::io::Error),
    /// The client has cancelled the request, or has gone.
    #[error("the request for an image was cancelled")]
    Cancelled,
}

/// The place of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of its region.
    pub region: u32,
    /// The offset in the region.
    pub offset: u64,
}

/// Gives the buffers of an image their places.
pub trait Placement {
    /// Gives a buffer a place. It stands in `parts`, which are adjacent there. The implementation
    /// must keep the buffers that it does not copy. No part is empty.
    ///
    /// # Errors
    /// When there is no room.
    fn place(&mut self, parts: &[Buffer]) -> Result<Place, ImageError>;
    /// Whether the image may have all of a buffer, although the rows name only a part: the rest is
    /// of deleted rows, or of uncommitted ones.
    fn lends(&self, buffer: &Buffer) -> bool;
    /// Called before each batch.
    ///
    /// # Errors
    /// When the image is not wanted any more.
    fn check(&self) -> Result<(), ImageError> {
        Ok(())
    }
}

/// A batch, or a dictionary, whose buffers have their places.
struct Placed {
    body: Body,
    places: Vec<(Place, u64)>,
    rows: usize,
    dictionary: Option<i64>,
}

struct BuiltTable {
    namespace: String,
    name: String,
    schema: Vec<u8>,
    batches: Vec<Placed>,
}

/// Makes the tables of a manifest from record batches, as the [module](self) describes.
#[derive(Default)]
pub struct ImageBuilder {
    tables: Vec<BuiltTable>,
    /// About as many bytes as the manifest will have.
    manifest_bytes: usize,
}

impl std::fmt::Debug for ImageBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageBuilder").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}

impl ImageBuilder {
    /// Adds a table with these batches.
    ///
    /// # Errors
    /// The errors of a batch or of a buffer's place; an error when the manifest would be too long.
    pub fn add_table(
        &mut self,
        namespace: &str,
        name: &str,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch, ArrowError>>,
        placement: &mut dyn Placement,
    ) -> Result<(), ImageError> {
        let schema = schema_message(schema);
        let mut table = BuiltTable { namespace: namespace.into(), name: name.into(), schema, batches: Vec::new() };
        self.grow(table.schema.len() + namespace.len() + name.len() + 64)?;
        let mut batches = batches.into_iter();
        loop {
            placement.check()?;
            let Some(batch) = batches.next() else { break };
            let batch = with_exact_words(batch?, placement)?;
            // The client has one dictionary of a column at a time: that of the batch that follows.
            for (id, words) in batch.columns().iter().filter_map(words_of).enumerate() {
                let placed = place(slice::from_ref(words), words.len(), Some(id as i64), placement)?;
                self.grow(placed.manifest_bytes())?;
                table.batches.push(placed);
            }
            let placed = place(batch.columns(), batch.num_rows(), None, placement)?;
            self.grow(placed.manifest_bytes())?;
            table.batches.push(placed);
        }
        self.tables.push(table);
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), ImageError> {
        self.manifest_bytes += bytes;
        if self.manifest_bytes > MOST_MANIFEST_BYTES - (1 << 20) {
            let message = format!("the manifest of an image has at most {MOST_MANIFEST_BYTES} bytes: ask for less");
            return Err(ImageError::TooLarge(message));
        }
        Ok(())
    }

    /// The tables, if region `i` begins at `bases[i]` of a range of `range_bytes` bytes.
    pub fn finish(self, bases: &[u64], range_bytes: u64) -> Vec<TableManifest> {
        let table = |table: BuiltTable| {
            let mut messages = Vec::new();
            put_message(&mut messages, &table.schema);
            for placed in &table.batches {
                let place = |(place, bytes): &(Place, u64)| {
                    let offset = bases.get(place.region as usize).map_or(0, |base| base + place.offset);
                    arrow_ipc::Buffer::new(offset as i64, *bytes as i64)
                };
                let places: Vec<_> = placed.places.iter().map(place).collect();
                let message = header(&placed.body, &places, range_bytes as usize, placed.rows, placed.dictionary);
                put_message(&mut messages, &message);
            }
            TableManifest { namespace: table.namespace, name: table.name, messages: messages.into() }
        };
        self.tables.into_iter().map(table).collect()
    }
}

impl Placed {
    fn manifest_bytes(&self) -> usize {
        256 + 16 * (self.body.nodes.len() + self.places.len()) + 8 * self.body.variadic.len()
    }
}

/// The schema message of Arrow IPC. Dictionaries are numbered in the order of the columns.
fn schema_message(schema: &Schema) -> Vec<u8> {
    let mut tracker = DictionaryTracker::new(false);
    let options = IpcWriteOptions::default();
    IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options).ipc_message
}

/// Gives the buffers of arrays their places.
fn place(
    arrays: &[ArrayRef],
    rows: usize,
    dictionary: Option<i64>,
    placement: &mut dyn Placement,
) -> Result<Placed, ImageError> {
    let (mut nodes, mut variadic, mut buffers) = (Vec::new(), Vec::new(), Vec::<Parts>::new());
    {
        let mut body = Body::lending(|buffer: &Buffer| placement.lends(buffer));
        arrays.iter().try_for_each(|array| body.push_column(slice::from_ref(array)))?;
        std::mem::swap(&mut nodes, &mut body.nodes);
        std::mem::swap(&mut variadic, &mut body.variadic);
        std::mem::swap(&mut buffers, &mut body.buffers);
    }
    let mut places = Vec::with_capacity(buffers.len());
    for mut parts in buffers {
        parts.retain(|part| !part.is_empty());
        let bytes: usize = parts.iter().map(Buffer::len).sum();
        // A buffer without bytes is never read, at any place.
        let nowhere = Place { region: u32::MAX, offset: 0 };
        let place = if parts.is_empty() { nowhere } else { placement.place(&parts)? };
        places.push((place, bytes as u64));
    }
    let mut body = Body::default();
    (body.nodes, body.variadic) = (nodes, variadic);
    Ok(Placed { body, places, rows, dictionary })
}

/// The batch with dictionaries of only those words that its rows have, unless the rest may be given
/// along.
fn with_exact_words(batch: RecordBatch, placement: &dyn Placement) -> Result<RecordBatch, ArrowError> {
    let is_exact = |column: &ArrayRef| {
        let Some(words) = words_of(column) else { return true };
        let is_used = || {
            let codes = column.as_dictionary_opt::<UInt16Type>();
            codes.is_some_and(|codes| codes.occupancy().count_set_bits() == words.len())
        };
        words.to_data().buffers().iter().all(|buffer| placement.lends(buffer)) || is_used()
    };
    if batch.columns().iter().all(is_exact) { Ok(batch) } else { with_own_words(&batch) }
}

#[cfg(test)]
mod tests;
