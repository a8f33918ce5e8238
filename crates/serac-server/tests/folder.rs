//! Open files that a holder gives to a client, and the leases on them.

use serac_client::client::{Client, Error, Options};
use serac_engine::Database;
use serac_server::folder::{FolderOptions, FolderServer, Image};
use serac_sql::{SqlDatabase, SqlError, SqlOptions};
use serac_storage::StorageOptions;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    while alive.load(Ordering::SeqCst) != count {
        std::thread::yield_now();
    }
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
        Ok(Image { manifest, descriptors: (0..count).map(open).collect(), lease: Box::new(Lease::new(&held)) })
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
    let (db, server) = serve(&folder, FolderOptions { max_connections: 2, ..FolderOptions::default() });
    let mut client = Client::connect(&folder, &Options::default()).unwrap();
    assert!(refusal(client.snapshot_bytes(b"t")).contains("0A000"));
    // And one that has its connections refuses more.
    let other = Client::connect(&folder, &Options::default()).unwrap();
    let refused = Client::connect(&folder, &Options::default()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("too many clients"), "{refused}");
    drop((client, other));
    server.stop();
    db.database().close().unwrap();
}
