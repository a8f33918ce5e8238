//! The client of a folder as a program uses it: COPY, tables, channels, open files and their
//! leases.

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use serac_client::client::{Client, Error, Options};
use serac_engine::Database;
use serac_server::folder::{FolderOptions, FolderServer, Image};
use serac_sql::{SqlDatabase, SqlError, SqlOptions};
use serac_storage::StorageOptions;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts those that are alive.
struct Lease(Arc<AtomicUsize>);

impl Lease {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(folder: &Path, options: FolderOptions) -> (SqlDatabase, FolderServer) {
    let storage = StorageOptions { path: Some(folder.into()), serves_others: true, ..StorageOptions::default() };
    let db = SqlDatabase::new(Database::open_with(storage).unwrap(), &SqlOptions::default()).unwrap();
    let server = FolderServer::start(db.clone(), folder, options).unwrap();
    (db, server)
}

fn wait_for(alive: &AtomicUsize, count: usize) {
    serac_testing::wait_for("leases end", || alive.load(Ordering::SeqCst), |left| *left == count);
}

/// Text of the error that a statement has ended with.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Statement(failure)) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn images_come_with_their_files_and_are_kept_to_their_end() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let alive = Arc::new(AtomicUsize::new(0));
    let (held, files) = (alive.clone(), outer.path().to_owned());
    // More files than one message takes, and a manifest of several frames.
    let source = move |_: &mut serac_sql::Session, request: &[u8]| {
        let count = usize::from(*request.first().ok_or_else(|| SqlError::new("22023", "the request is empty"))?);
        let open = |i: usize| {
            let path = files.join(i.to_string());
            std::fs::write(&path, format!("file {i}")).unwrap();
            OwnedFd::from(File::open(path).unwrap())
        };
        let manifest = vec![request[0]; count << 16];
        Ok(Image {
            manifest,
            descriptors: (0..count).map(open).collect(),
            lease: Box::new(Lease::new(&held)),
            time: None,
        })
    };
    let (db, server) = serve(&folder, FolderOptions { images: Some(Arc::new(source)), ..FolderOptions::default() });
    let mut client = Client::connect(&folder, &Options::default()).unwrap();
    for count in [0, 1, 250] {
        let image = client.snapshot_bytes(&[count]).unwrap();
        assert_eq!(image.manifest, vec![count; usize::from(count) << 16]);
        assert_eq!(image.descriptors.len(), usize::from(count));
        for (i, descriptor) in image.descriptors.into_iter().enumerate() {
            let mut text = String::new();
            File::from(descriptor).read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("file {i}"));
        }
        assert_eq!(alive.load(Ordering::SeqCst), 1);
        client.end_lease(image.lease).unwrap();
        wait_for(&alive, 0);
    }
    assert!(refusal(client.snapshot_bytes(&[])).contains("22023"));
    assert_eq!(client.execute("SELECT 1 AS a").unwrap().count(), 3, "columns, rows, and the end");
    for _ in 0..3 {
        client.snapshot_bytes(&[1]).unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 3);
    drop(client);
    wait_for(&alive, 0);
    server.stop();
    db.database().close().unwrap();
}

#[test]
fn a_holder_without_images_says_so() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let (db, server) = serve(&folder, FolderOptions { max_connections: 2, images: None, ..FolderOptions::default() });
    let mut client = Client::connect(&folder, &Options::default()).unwrap();
    assert!(refusal(client.snapshot_bytes(b"t")).contains("0A000"));
    // A server with all of its connections refuses more.
    let other = Client::connect(&folder, &Options::default()).unwrap();
    let refused = Client::connect(&folder, &Options::default()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("too many clients"), "{refused}");
    drop((client, other));
    server.stop();
    db.database().close().unwrap();
}

#[test]
fn a_client_copies_makes_tables_and_listens() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("db");
    let (db, server) = serve(&folder, FolderOptions::default());
    let mut client = Client::connect(&folder, &Options::default()).unwrap();
    let columns = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8View, true)]);
    client.create_table(None, "t", &columns).unwrap();
    let rows: String = (0..100_000).map(|n| format!("{n},row {n}\n")).collect();
    assert_eq!(client.copy_in("COPY t FROM STDIN", std::io::Cursor::new(rows.clone())).unwrap(), 100_000);
    let mut copied = Vec::new();
    assert_eq!(client.copy_out("COPY (SELECT * FROM t ORDER BY a) TO STDOUT", &mut copied).unwrap(), 100_000);
    assert!(copied == rows.as_bytes());
    // Data that is wrong, an input that fails, and an output that fails, are errors of the COPY.
    let wrong = std::io::Cursor::new("x,y\n");
    assert!(refusal(client.copy_in("COPY t FROM STDIN", wrong)).contains("22P02"));
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("it is torn"))
        }
    }
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("it is full"))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(refusal(client.copy_in("COPY t FROM STDIN", Failing)).contains("it is torn"));
    assert!(refusal(client.copy_out("COPY t TO STDOUT", &mut Failing)).contains("it is full"));
    // A COPY needs its own call, and the client can be used behind each of these.
    let refused = client.execute("COPY t FROM STDIN").unwrap().find_map(Result::err).unwrap();
    assert!(refused.to_string().contains("call copy_in"), "{refused}");
    assert_eq!(client.execute("LISTEN c; DROP TABLE IF EXISTS missing").unwrap().filter_map(Result::err).count(), 0);
    assert_eq!(client.notices().len(), 1);
    let mut other = Client::connect(&folder, &Options::default()).unwrap();
    assert_eq!(other.execute("NOTIFY c, 'told'").unwrap().filter_map(Result::err).count(), 0);
    let told = client.notifications(Duration::from_secs(60));
    assert_eq!(told.iter().map(|told| &*told.payload).collect::<Vec<_>>(), ["told"]);
    drop((client, other));
    server.stop();
    db.database().close().unwrap();
}
