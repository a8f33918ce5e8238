//! Images in shared memory for the clients of a folder, and for sessions in the holder itself.
//!
//! A request runs as a statement of the client's session: in its transaction, as its role and under
//! its limits. It can be cancelled like one.

use super::connection::{Image, ImageSource};
use datafusion::arrow::array::RecordBatchReader;
use serac_client::image::{self, SnapshotRequest, Table};
use serac_export::image::{ImageError, ImageScan, scans};
use serac_export::shared_memory::{SharedImage, SharedMemory};
use serac_sql::{Result, Session, SnapshotReading, SqlError};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The error of an image, in the form of a statement's.
fn sql_error(error: ImageError) -> SqlError {
    let message = error.to_string();
    match error {
        ImageError::Engine(error) => error.into(),
        ImageError::Arrow(error) => error.into(),
        ImageError::Request(_) => SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message),
        ImageError::TooLarge(_) => SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message),
        ImageError::NoRoom(_) => SqlError::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, message),
        ImageError::System(..) => SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, message),
        ImageError::Cancelled => SqlError::new(sqlstate::QUERY_CANCELED, message),
    }
}

/// Fails when the reading is cancelled, or its time is over.
fn check(reading: &SnapshotReading<'_>) -> std::result::Result<(), ImageError> {
    reading.check().map_err(|_| ImageError::Cancelled)
}

fn request_of(bytes: &[u8]) -> std::result::Result<SnapshotRequest, ImageError> {
    SnapshotRequest::decode(bytes).map_err(|error| ImageError::Request(error.to_string()))
}

/// A source of images with these limits for all clients together.
pub fn shared_memory(memory: SharedMemory) -> ImageSource {
    Arc::new(move |session, request| {
        let request = request_of(request);
        let make = |reading: &SnapshotReading<'_>| {
            let made = request.and_then(|request| {
                memory.image(&request, reading.transaction(), reading.access(), &|| check(reading))
            });
            made.map_err(sql_error)
        };
        let SharedImage { manifest, descriptors, copied } = Handle::current().block_on(session.read_snapshot(make))?;
        let (time, lease) = (Some(manifest.lease), Box::new(copied));
        Ok(Image { manifest: manifest.encode(), descriptors, lease, time })
    })
}

/// The tables of a request in the holder itself: the blocks' own buffers.
pub(super) async fn tables_here(session: &mut Session, request: &SnapshotRequest) -> Result<Vec<Table>> {
    let read = |reading: &SnapshotReading<'_>| -> std::result::Result<Vec<Table>, ImageError> {
        let request = request_of(&request.encode())?;
        let table = |ImageScan { namespace, name, scan }| {
            let schema = scan.schema();
            let batches = scan.map(|batch| -> std::result::Result<_, ImageError> {
                check(reading)?;
                Ok(batch?)
            });
            let batches = batches.collect::<std::result::Result<_, ImageError>>()?;
            Ok(image::Table { namespace, name, schema, batches })
        };
        scans(reading.transaction(), reading.access(), &request)?.into_iter().map(table).collect()
    };
    session.read_snapshot(|reading| read(reading).map_err(sql_error)).await
}
