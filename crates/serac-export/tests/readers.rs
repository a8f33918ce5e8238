//! pyarrow and Polars read the database's output, value by value: over Flight, from Arrow IPC files
//! and streams, and through the C stream interface. Needs Python with both, which scripts/test
//! installs (scripts/peers too).

mod common;

use arrow_array::RecordBatchReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use common::*;
use serac_export::flight::FlightOptions;
use std::fs::File;
use std::path::Path;
use std::process::Command;

const ROWS: i64 = 8_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyarrow_and_polars_read_equal_values() {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/python");
    assert!(Path::new(python).exists(), "Python with pyarrow and polars is missing: run scripts/readers");
    let db = database();
    for (name, format) in [("every", "view"), ("every_utf8", "utf8"), ("every_dictionary", "dictionary")] {
        execute(&db, &EVERY.replace("every", name)).await;
        execute(&db, &format!("ALTER TABLE {name} SET (freeze_format = '{format}')")).await;
        insert(&db, name, &every(0..ROWS / 2));
        freeze(&db, name);
        insert(&db, name, &every(ROWS / 2..ROWS));
        execute(&db, &format!("UPDATE {name} SET x = x WHERE id % 1000 = 1 AND id > {}", ROWS / 4)).await;
    }
    let served = serve(&db, FlightOptions { blocks_per_endpoint: 1, ..FlightOptions::default() }).await;

    // Polars has no type for intervals: it gets files of its own, without the column.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let table = table(&db, "every");
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let known: Vec<usize> = all.iter().copied().filter(|&c| table.definition.columns[c].name != "iv").collect();
    for (columns, suffix) in [(all, ""), (known, ".polars")] {
        let scan = db.database().begin().scan_arrow(&table, &columns, &[]).unwrap();
        let mut file = FileWriter::try_new(File::create(path("file") + suffix).unwrap(), &scan.schema()).unwrap();
        let mut stream = StreamWriter::try_new(File::create(path("stream") + suffix).unwrap(), &scan.schema()).unwrap();
        for batch in scan {
            let batch = batch.unwrap();
            file.write(&batch).unwrap();
            stream.write(&batch).unwrap();
        }
        file.finish().unwrap();
        stream.finish().unwrap();
    }

    // The tests lie in target/<profile>/deps, the examples beside that.
    let built = std::env::current_exe().unwrap();
    let library = built.parent().unwrap().parent().unwrap().join("examples").join(format!(
        "{}c_stream{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    assert!(library.exists(), "{} is missing: cargo test builds it with the other examples", library.display());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py");
    let mut command = Command::new(python);
    command
        .arg(script)
        .arg(ROWS.to_string())
        .arg(served.address.to_string())
        .args([path("file"), path("stream")])
        .arg(library);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    assert_eq!(out.lines().filter(|line| line.ends_with("rows are equal")).count(), 16, "{out}{errors}");
}
