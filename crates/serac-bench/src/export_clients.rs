//! Figure 1 of the paper: lineitem into a pandas DataFrame, by the clients that people use, from
//! SeracDB and from PostgreSQL.
//!
//! | way | from SeracDB | from PostgreSQL |
//! |---|---|---|
//! | psycopg | its PostgreSQL protocol, over loopback | over a Unix socket |
//! | CSV by COPY, read by pandas | the same | the same |
//! | connectorx | the same | the same |
//! | ADBC over Flight SQL, columns as Arrow | over loopback, in four forms | |
//! | a buffer of the client's own, columns as Arrow | an Arrow file, mapped | |
//!
//! Every answer is checked: the number of rows and the sum of the first column.

use crate::peer::Peer;
use crate::postgres::{Cluster, Installation, PostgresArguments};
use crate::report::{Report, median};
use crate::setup::{Folder, lineitem, text};
use arrow::array::{AsArray, RecordBatchReader};
use arrow::compute::sum;
use arrow::datatypes::Int64Type;
use arrow::ipc::writer::FileWriter;
use serac_export::flight::{FlightOptions, FlightServer};
use serac_server::{FlightSql, FlightSqlOptions, PgOptions, PgServer};
use serac_sql::Session;
use serac_storage::StorageOptions;
use serac_workload::tpch::TABLES;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub struct ExportClientsArguments {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Measured runs of each way.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only the ways whose name contains this, such as "ADBC" or "psycopg, PostgreSQL".
    #[arg(long, default_value = "")]
    way: String,
    #[command(flatten)]
    postgres: PostgresArguments,
}

struct Way {
    name: String,
    request: Json,
}

pub fn run(arguments: &ExportClientsArguments, report: &mut Report) -> Result<(), String> {
    let wanted = |name: &str| name.contains(&arguments.way);
    let (mut python, versions) = Peer::start("export_clients.py", [""; 0])?;
    report.note(format!("client: {versions}; ms: from the connection to the DataFrame, medians"));
    let folder = Folder::new("export-clients");
    std::fs::create_dir_all(&folder.0).map_err(text)?;

    let (db, table) = lineitem(arguments.sf, StorageOptions { freeze_after: None, ..StorageOptions::default() })?;
    let (frozen, blocks) = db.database().storage().freeze_table(&table.data, Duration::from_secs(60));
    if frozen < blocks {
        return Err(format!("{frozen} of {blocks} blocks froze"));
    }
    let all: Vec<usize> = (0..table.definition.columns.len()).collect();
    let scan = db.database().begin().scan_arrow(&table, &all, &[]).map_err(text)?;
    let arrow_file = folder.0.join("lineitem.arrow");
    let mut writer = FileWriter::try_new(File::create(&arrow_file).map_err(text)?, &scan.schema()).map_err(text)?;
    let (mut rows, mut total) = (0, 0);
    for batch in scan {
        let batch = batch.map_err(text)?;
        rows += batch.num_rows() as i64;
        total += sum(batch.column(0).as_primitive::<Int64Type>()).unwrap_or(0);
        writer.write(&batch).map_err(text)?;
    }
    writer.finish().map_err(text)?;

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let (pg, flight) = runtime.block_on(async {
        let pg = PgServer::bind(db.clone(), any_port, PgOptions::default()).await.map_err(text)?;
        let extension = Arc::new(FlightSql::new(db.clone(), FlightSqlOptions::default()));
        let database = db.database().clone();
        let flight = FlightServer::bind(database, any_port, FlightOptions::default()).await.map_err(text)?;
        let flight = flight.with_extension(extension);
        let addresses = (pg.local_address().map_err(text)?, flight.local_address().map_err(text)?);
        tokio::spawn(pg.run(std::future::pending()));
        tokio::spawn(flight.run(std::future::pending()));
        Ok::<_, String>(addresses)
    })?;

    let mut ways = Vec::new();
    let mut add = |name: String, request: Json| {
        if wanted(&name) {
            ways.push(Way { name, request });
        }
    };
    let by_postgresql = ["psycopg", "CSV by COPY", "connectorx"];
    for way in by_postgresql {
        let dsn = format!("host={} port={} user=serac dbname=serac", pg.ip(), pg.port());
        let uri = format!("postgresql://serac@{pg}/serac");
        add(format!("{way}, SeracDB"), json!({ "way": way, "table": "lineitem", "dsn": dsn, "uri": uri }));
    }
    for (form, headers) in [
        ("", json!({})),
        (", decimal64", json!({ "serac-decimals": "decimal64" })),
        (", decimal64 and utf8", json!({ "serac-decimals": "decimal64", "serac-strings": "utf8" })),
        (", decimal64 and dictionaries", json!({ "serac-decimals": "decimal64", "serac-strings": "dictionary" })),
    ] {
        let uri = format!("grpc://{flight}");
        let request = json!({ "way": "ADBC", "table": "lineitem", "uri": uri, "headers": headers });
        add(format!("ADBC over Flight SQL{form}, SeracDB"), request);
    }
    add("buffer in memory".into(), json!({ "way": "buffer", "file": arrow_file }));
    // PostgreSQL is started for its ways alone.
    let its_way = |way: &str| format!("{way}, PostgreSQL {}", arguments.postgres.major);
    let cluster = match Installation::find(arguments.postgres.major) {
        Ok(installation) if by_postgresql.iter().any(|way| wanted(&its_way(way))) => {
            Some(Cluster::create(installation, &folder.0)?)
        }
        Ok(_) => None,
        Err(missing) => {
            report.note(format!("{missing}; it is left out"));
            None
        }
    };
    let server = match &cluster {
        None => None,
        Some(cluster) => {
            let server = cluster.start()?;
            let csv = std::path::absolute(folder.0.join("lineitem.csv")).map_err(text)?;
            let copy = format!("COPY lineitem TO '{}'", csv.display());
            runtime.block_on(Session::new(&db).execute(&copy)).map_err(text)?;
            let workload = TABLES.iter().find(|t| t.name == "lineitem").expect("a table of TPC-H");
            server.load(&workload.create_sql(false), "lineitem", &csv)?;
            std::fs::remove_file(&csv).map_err(text)?;
            let folder = cluster.sockets().display().to_string();
            for way in by_postgresql {
                let dsn = format!("host={folder} port=5432 user=serac dbname=postgres");
                let uri = format!("postgresql://serac@{}:5432/postgres", folder.replace('/', "%2F"));
                let request = json!({ "way": way, "table": "lineitem", "dsn": dsn, "uri": uri });
                add(its_way(way), request);
            }
            Some(server)
        }
    };

    for Way { name, request } in &ways {
        let mut times = Vec::new();
        for _ in 0..arguments.runs {
            eprintln!("{name}");
            match python.ask(&request.to_string()) {
                Ok(answer) if answer["rows"] == rows && answer["sum"] == total => {
                    times.push(answer["ms"].as_f64().ok_or("the client gave no time")?);
                }
                Ok(answer) => return Err(format!("{name}: {} of {rows} rows, or other values", answer["rows"])),
                Err(error) => {
                    report.note(format!("{name}: {error}"));
                    break;
                }
            }
        }
        if times.is_empty() {
            continue;
        }
        let ms = median(times.clone());
        report.row(&[
            ("way", json!(name)),
            ("ms", json!(ms)),
            ("least", json!(times.iter().copied().fold(f64::INFINITY, f64::min))),
            ("most", json!(times.iter().copied().fold(0.0, f64::max))),
            ("rows/s", json!(rows as f64 / ms * 1e3)),
        ]);
    }
    drop(server);
    Ok(())
}
