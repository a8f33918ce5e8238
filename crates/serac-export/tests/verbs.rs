//! One-sided access by an RDMA device: `scripts/rdma-test` runs this in a virtual machine with a
//! device. Elsewhere the tests are ignored.

mod one_sided;

use one_sided::flight::{self as suite, Raw};
use serac_export::flight::FlightOptions;
use serac_export::rdma::client::Slots;
use serac_export::rdma::wire::DISCONNECT;
use serac_export::rdma::{RdmaClient, RdmaOptions, Verbs};
use serac_storage::FreezeFormat;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn device() -> Arc<Verbs> {
    Arc::new(Verbs::open_device(None).expect("there is an RDMA device"))
}

#[test]
#[ignore = "needs an RDMA device: scripts/rdma-test"]
fn the_transport_keeps_its_promises() {
    one_sided::transport::all(&*device());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: scripts/rdma-test"]
async fn tables_over_flight() {
    suite::all(device()).await;
}

/// The other process: connects to the address that it is given, and waits for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is the other process of a test"]
async fn another_process() {
    let Ok(address) = std::env::var("SERAC_RDMA_SERVER") else { return };
    let flight = suite::flight(address.parse().unwrap()).await;
    let mut client = RdmaClient::connect(flight, device()).await.unwrap();
    let ticket = suite::ticket(client.flight(), suite::STORED).await;
    if std::env::var_os("SERAC_RDMA_RECEIVES").is_some() {
        // Writes to it are on their way when it ends.
        for round in 0.. {
            let mut receiving = client.receive(ticket.clone(), Slots::default());
            receiving.next().await.unwrap().unwrap();
            // The reader listens once.
            if round == 0 {
                println!("receiving");
            }
        }
    }
    let mut reading = client.read(ticket);
    reading.next().await.unwrap().unwrap();
    println!("reading");
    std::future::pending::<()>().await;
}

/// Starts the other process, and waits until it has said so.
fn start(address: std::net::SocketAddr, receives: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--include-ignored", "--exact", "another_process", "--nocapture"]);
    command.env("SERAC_RDMA_SERVER", address.to_string()).stdout(Stdio::piped());
    if receives {
        command.env("SERAC_RDMA_RECEIVES", "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let word = if receives { "receiving" } else { "reading" };
    assert!(lines.map_while(Result::ok).any(|line| line.contains(word)), "it ended before");
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: scripts/rdma-test"]
async fn a_client_that_is_killed_leaves_nothing_behind() {
    let device = device();
    let db = suite::database(FreezeFormat::View);
    let options = FlightOptions { lease: Duration::from_secs(12), ..FlightOptions::default() };
    let limits = RdmaOptions { max_sessions: 1, ..RdmaOptions::default() };
    let served = suite::serve(&db, options, Some(device.clone()), limits).await;
    for receives in [false, true] {
        let address = served.address;
        let mut child = tokio::task::spawn_blocking(move || start(address, receives)).await.unwrap();
        assert!(Raw::connect(&served, &*device).await.is_err(), "the only session is taken");
        child.kill().unwrap();
        child.wait().unwrap();
        // Writers go on at once, and the session's place is free when its lease has ended.
        if !receives {
            suite::thaw(&db);
        }
        suite::until("the session of a killed client ends", async || {
            let Ok(mut raw) = Raw::connect(&served, &*device).await else { return false };
            let ticket = suite::ticket(&mut raw.flight, suite::STORED).await;
            let (_, places) = raw.directory(&ticket).await.unwrap();
            raw.read(places[0]).unwrap();
            let of = raw.of(0);
            suite::act(&mut raw.flight, DISCONNECT, &of).await.unwrap();
            true
        })
        .await;
    }
}
