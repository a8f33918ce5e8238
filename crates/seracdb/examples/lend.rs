//! A program lends a session its own data, and its own functions: SQL reads frames of Arrow by
//! name, and calls Rust with whole batches.
//!
//! `cargo run --example lend`

use seracdb::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use seracdb::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use seracdb::prelude::*;
use seracdb::{Frame, FrameProvider, FrameRows, FunctionBody, LentFunction, ScalarBody, Volatility};
use std::sync::Arc;

/// A batch that lies in the program's memory. Queries read it there.
struct Measured(RecordBatch);

impl Frame for Measured {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn row_count(&self) -> Option<usize> {
        Some(self.0.num_rows())
    }

    fn read(&self) -> Result<FrameRows, SqlError> {
        Ok(Box::new([Ok(self.0.clone())].into_iter()))
    }
}

/// The program's frames by name.
struct Frames(Arc<Measured>);

impl FrameProvider for Frames {
    fn frame(&self, name: &str) -> Result<Option<Arc<dyn Frame>>, SqlError> {
        Ok((name == "measured").then(|| self.0.clone() as Arc<dyn Frame>))
    }
}

/// The distance of two numbers.
struct Distance;

impl ScalarBody for Distance {
    fn call(
        &self,
        arguments: &[ArrayRef],
        _rows: usize,
        _returns: &DataType,
        _check: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<ArrayRef, SqlError> {
        let (a, b) = (arguments[0].as_primitive::<Float64Type>(), arguments[1].as_primitive::<Float64Type>());
        let distances = a.values().iter().zip(b.values()).map(|(a, b)| (a - b).abs());
        Ok(Arc::new(Float64Array::from_iter_values(distances)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = seracdb::in_memory()?;
    let mut session = Session::new(&db);
    session.execute("CREATE TABLE sensor (id BIGINT PRIMARY KEY, wanted DOUBLE PRECISION)").await?;
    session.execute("INSERT INTO sensor VALUES (1, 20), (2, 5)").await?;

    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 2]));
    let values: ArrayRef = Arc::new(Float64Array::from(vec![19.5, 7.0, 5.0]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("value", values)])?;
    session.lend_frames(Arc::new(Frames(Arc::new(Measured(batch)))));
    let body = FunctionBody::Scalar {
        returns: "double precision".into(),
        volatility: Volatility::Immutable,
        is_strict: true,
        body: Arc::new(Distance),
    };
    let parameters = vec!["double precision".into(), "double precision".into()];
    session.lend_function(LentFunction { name: "distance".into(), parameters, body })?;

    let query = "SELECT id, max(distance(value, wanted)) FROM measured JOIN sensor USING (id) GROUP BY id ORDER BY id";
    let results = session.execute(query).await?;
    let Some(StatementResult::Rows { batches, .. }) = results.first() else { return Err("no rows".into()) };
    let batch = &batches[0];
    println!("{:?} {:?}", batch.column(0), batch.column(1));
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(batch.column(1).as_primitive::<Float64Type>().values(), &[0.5, 2.0]);
    Ok(())
}
