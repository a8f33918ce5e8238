//! Lineitem in PySpark: read, counted, filtered and joined, from SeracDB over Flight, from
//! PostgreSQL by JDBC, and from Parquet files.
//!
//! The measurement itself is Python: `peers/spark.py`. This side makes the data and the servers.

use crate::peer::Peer;
use crate::postgres::{Cluster, Installation, PostgresArguments, Server};
use crate::report::Report;
use crate::serac::free_address;
use crate::setup::{Folder, text};
use crate::tpch::load_all;
use serac_engine::Database;
use serac_export::flight::{FlightOptions, FlightServer};
use serac_server::{FlightSql, FlightSqlOptions};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_workload::tpch::TABLES;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

const READ: [&str; 2] = ["lineitem", "orders"];

#[derive(clap::Args, Debug)]
pub struct SparkArguments {
    /// Folder with the package `seracdb`; `scripts/python wheel` makes it.
    #[arg(long, default_value = "target/wheels/package")]
    package: PathBuf,
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Threads of Spark, and partitions of each read.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measured runs of each system, which take turns.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    #[command(flatten)]
    postgres: PostgresArguments,
}

/// Copies the tables into PostgreSQL.
fn fill(server: &Server<'_>, db: &SqlDatabase, folder: &Path, runtime: &Runtime) -> Result<(), String> {
    for name in READ {
        let csv = std::path::absolute(folder.join(name).with_extension("csv")).map_err(text)?;
        let copy = format!("COPY {name} TO '{}'", csv.display());
        runtime.block_on(Session::new(db).execute(&copy)).map_err(text)?;
        let workload = TABLES.iter().find(|table| table.name == name).expect("a table of TPC-H");
        server.load(&workload.create_sql(false), name, &csv)?;
        std::fs::remove_file(&csv).map_err(text)?;
    }
    Ok(())
}

pub fn run(arguments: &SparkArguments, report: &mut Report) -> Result<(), String> {
    let SparkArguments { package, sf, threads, runs, postgres } = arguments;
    let package = package.canonicalize().map_err(|error| format!("{}: {error}", package.display()))?;
    let folder = Folder::new("spark");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let path = folder.0.canonicalize().map_err(text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    let db = SqlDatabase::new(Database::in_memory().map_err(text)?, &SqlOptions::default()).map_err(text)?;
    load_all(&db, *sf, &runtime)?;
    for name in READ {
        runtime.block_on(Session::new(&db).execute(&format!("FREEZE TABLE {name}"))).map_err(text)?;
    }
    let flight = runtime.block_on(async {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let extension = Arc::new(FlightSql::new(db.clone(), FlightSqlOptions::default()));
        let server = FlightServer::bind(db.database().clone(), any_port, FlightOptions::default()).await;
        let server = server.map_err(text)?.with_extension(extension);
        let address = server.local_address().map_err(text)?;
        tokio::spawn(server.run(std::future::pending()));
        Ok::<_, String>(address)
    })?;
    let cluster = match Installation::find(postgres.major) {
        Ok(installation) => Some(Cluster::create(installation, &folder.0)?),
        Err(missing) => {
            report.note(format!("{missing}; it is left out"));
            None
        }
    };
    let address = free_address()?;
    let server = cluster.as_ref().map(|cluster| cluster.start_at(address, &[])).transpose()?;
    if let Some(server) = &server {
        fill(server, &db, &path, &runtime)?;
        report.note(format!("{}, whose indexes are none", cluster.as_ref().expect("it runs").version()));
    }
    let (mut peer, versions) = Peer::start_with("python-engines", "spark.py", [("PYTHONPATH", &package)])?;
    report.note(versions);
    let request = json!({
        "url": format!("grpc://{flight}"), "threads": threads, "runs": runs, "folder": path, "sf": sf,
        "jdbc": server.as_ref().map(|_| format!("jdbc:postgresql://{address}/postgres?user=serac")),
        "driver": Path::new("target/peers/postgresql.jar").canonicalize().map_err(text)?,
    });
    let answer = peer.ask(&request.to_string())?;
    for row in answer["rows"].as_array().ok_or("no rows")? {
        let columns = ["read", "source", "ms", "least", "most", "rows/s", "to JDBC", "to Parquet"];
        let figures: Vec<(&str, Json)> = columns.iter().map(|name| (*name, row[*name].clone())).collect();
        report.row(&figures);
    }
    Ok(())
}
