//! Images in shared memory: their rows are those of SQL, buffers in data files are not copied, and
//! a client gets only columns that its role may read.

mod common;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use common::*;
use serac_client::image::{DecimalChoice, Manifest, SnapshotRequest, Source, StringChoice, Table, TableRequest};
use serac_client::shared_memory::{map, map_and_copy};
use serac_engine::Database;
use serac_export::image::ImageError;
use serac_export::shared_memory::{SharedImage, SharedMemory, SharedMemoryOptions};
use serac_sql::{Session, SqlDatabase, SqlOptions};
use serac_storage::StorageOptions;
use serac_testing::{ran, this_test};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn open(folder: &Path) -> SqlDatabase {
    let options = StorageOptions { path: Some(folder.into()), freeze_after: None, ..StorageOptions::default() };
    SqlDatabase::new(Database::open_with(options).unwrap(), &SqlOptions::default()).unwrap()
}

/// The image that a role gets.
async fn image_for(
    db: &SqlDatabase,
    role: Option<&str>,
    memory: &SharedMemory,
    request: &SnapshotRequest,
) -> Result<SharedImage, ImageError> {
    let mut session = Session::new(db);
    if let Some(role) = role {
        session.execute(&format!("SET ROLE {role}")).await.unwrap();
    }
    let made =
        session.read_snapshot(|reading| Ok(memory.image(request, reading.transaction(), reading.access(), &|| Ok(()))));
    made.await.unwrap()
}

async fn image(db: &SqlDatabase, request: &SnapshotRequest) -> SharedImage {
    image_for(db, None, &SharedMemory::default(), request).await.unwrap()
}

/// The rows that a client reads; every value is checked.
fn read(image: &SharedImage) -> Vec<Table> {
    let manifest = Manifest::decode(image.manifest.encode()).unwrap();
    // SAFETY: the files of a checkpoint are never written to.
    let range = unsafe { map(&manifest, &image.descriptors) }.unwrap();
    let tables = manifest.read(&range).unwrap();
    let copied = manifest.read(&map_and_copy(&manifest, &image.descriptors).unwrap()).unwrap();
    for (mapped, copied) in tables.iter().zip(&copied) {
        assert_eq!(mapped.batches, copied.batches);
    }
    // SAFETY: it has just been read.
    let trusted = unsafe { manifest.read_trusted(&range) }.unwrap();
    for (checked, trusted) in tables.iter().zip(&trusted) {
        assert_eq!(checked.batches, trusted.batches);
    }
    tables
}

/// The table's rows in the types of `like`, in the order of the first column.
fn rows(table: &Table, like: &RecordBatch) -> RecordBatch {
    let column = |(array, field): (&ArrayRef, &Arc<Field>)| cast(array, field.data_type()).unwrap();
    let schema = like.schema();
    let batch = |batch: &RecordBatch| {
        assert_eq!(batch.schema(), table.schema);
        let columns = batch.columns().iter().zip(schema.fields()).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
    };
    let batches: Vec<RecordBatch> = table.batches.iter().map(batch).collect();
    if batches.is_empty() { RecordBatch::new_empty(schema) } else { sorted(&batches) }
}

async fn check(db: &SqlDatabase, what: &str) -> SharedImage {
    let sql = query(db, "SELECT * FROM every ORDER BY id").await;
    let made = image(db, &SnapshotRequest::new([("public", "every")])).await;
    assert_eq!(rows(&read(&made)[0], &sql).columns(), sql.columns(), "{what}");
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_those_of_sql_and_those_in_data_files_are_not_copied() {
    for format in ["view", "utf8", "dictionary", "compact"] {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path());
        execute(&db, EVERY).await;
        execute(&db, &format!("ALTER TABLE every SET (freeze_format = '{format}')")).await;
        assert_eq!(check(&db, "empty").await.manifest.copied_bytes, 0);
        insert(&db, "every", &every(0..20_000));
        execute(&db, "UPDATE every SET x = 'changed to something long', n = 1.5 WHERE id % 10 = 3").await;
        let hot = check(&db, "hot").await;
        assert!(hot.manifest.shared_bytes == 0 && hot.manifest.copied_bytes > 1 << 20);
        freeze(&db, "every");
        assert_eq!(check(&db, "frozen").await.manifest.shared_bytes, 0);
        db.database().checkpoint().unwrap();
        let shared = check(&db, "checkpointed").await;
        let Manifest { copied_bytes, shared_bytes, ref sources, .. } = shared.manifest;
        if format == "compact" {
            // Readers get copies of packed values, and share the texts.
            assert!(copied_bytes > 0 && shared_bytes > 0, "{copied_bytes} bytes are copied, {shared_bytes} shared");
        } else {
            assert_eq!(copied_bytes, 0, "{format}: {shared_bytes} bytes are shared");
            assert!(shared_bytes > 1 << 20 && sources.iter().all(|source| matches!(source, Source::File { .. })));
        }

        execute(&db, "DELETE FROM every WHERE id BETWEEN 100 AND 140").await;
        let deleted = check(&db, "rows are deleted").await;
        assert!(deleted.manifest.copied_bytes > 0);
        insert(&db, "every", &every(20_000..25_000));
        execute(&db, "UPDATE every SET v = NULL, w = 'a word that is new' WHERE id = 12000").await;
        let mixed = check(&db, "mixed").await;
        assert!(mixed.manifest.copied_bytes > 0 && mixed.manifest.shared_bytes > 0, "{format}");
        db.database().checkpoint().unwrap();
        check(&db, "mixed, checkpointed").await;
        db.database().close().unwrap();
        drop(db);

        let db = open(folder.path());
        check(&db, "opened again").await;
        // Earlier reads are still there, although their database has gone.
        assert_eq!(read(&shared)[0].batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
        db.database().close().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_columns_and_names_are_those_of_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    execute(&db, EVERY).await;
    insert(&db, "every", &every(0..3_000));
    execute(&db, "CREATE TABLE documents (id BIGINT NOT NULL, doc JSONB)").await;
    execute(&db, "INSERT INTO documents SELECT i, ('{\"key\": \"the value number ' || i || '\"}')::jsonb FROM generate_series(1, 2000) AS s (i)").await;
    execute(&db, "ALTER TABLE every RENAME COLUMN v TO renamed; ALTER TABLE every DROP COLUMN all_null").await;
    execute(&db, "ALTER TABLE every ADD COLUMN later TEXT").await;
    freeze(&db, "every");
    freeze(&db, "documents");
    db.database().checkpoint().unwrap();
    let table = |name: &str, columns: &[&str]| TableRequest {
        schema: "public".into(),
        table: name.into(),
        columns: Some(columns.iter().map(|&name| name.to_owned()).collect()),
    };
    let wanted = ["w", "id", "n", "later", "renamed"];
    let tables = vec![table("every", &wanted), table("documents", &["id", "doc"]), table("every", &["id"])];
    let request = SnapshotRequest { tables, ..SnapshotRequest::default() };
    let made = image(&db, &request).await;
    let read_tables = read(&made);
    assert_eq!(made.manifest.copied_bytes, 0);
    let names: Vec<&str> = read_tables[0].schema.fields().iter().map(|field| &**field.name()).collect();
    assert_eq!(names, wanted);
    assert_eq!(*read_tables[0].schema.field(2).data_type(), DataType::Decimal64(12, 3));
    let document = read_tables[1].schema.field(1).clone();
    assert_eq!((document.data_type(), document.extension_type_name()), (&DataType::Utf8View, Some("arrow.json")));
    let sql = query(&db, "SELECT id, doc FROM documents ORDER BY id").await;
    assert_eq!(rows(&read_tables[1], &sql).columns(), sql.columns());

    for (strings, decimals, expected) in [
        (StringChoice::View, DecimalChoice::Decimal128, [DataType::Utf8View, DataType::Decimal128(12, 3)]),
        (StringChoice::Utf8, DecimalChoice::Stored, [DataType::Utf8, DataType::Decimal64(12, 3)]),
        (
            StringChoice::Dictionary,
            DecimalChoice::Stored,
            [DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8)), DataType::Decimal64(12, 3)],
        ),
    ] {
        let request = SnapshotRequest { strings, decimals, ..request.clone() };
        let tables = read(&image(&db, &request).await);
        let types = [0, 2].map(|at| tables[0].schema.field(at).data_type().clone());
        assert_eq!(types, expected);
        let sql = query(&db, "SELECT id, n, w, later FROM every ORDER BY id").await;
        let batch = |batch: &RecordBatch| batch.project(&[1, 2, 0, 3]).unwrap();
        let batches: Vec<RecordBatch> = tables[0].batches.iter().map(batch).collect();
        let table = Table { schema: batches[0].schema(), batches, ..tables[0].clone() };
        assert_eq!(rows(&table, &sql).columns(), sql.columns(), "{strings:?}");
    }

    // A table without rows, one without wanted columns, and a missing one.
    execute(&db, "CREATE TABLE nothing (a INTEGER, t TEXT)").await;
    let empty = read(&image(&db, &SnapshotRequest::new([("public", "nothing")])).await);
    assert_eq!((empty[0].batches.len(), empty[0].schema.fields().len()), (0, 2));
    let none = SnapshotRequest { tables: vec![table("every", &[])], ..SnapshotRequest::default() };
    let counted = read(&image(&db, &none).await);
    assert_eq!(counted[0].batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3_000);
    for missing in [table("nowhere", &[]), table("every", &["all_null"]), table("every", &["v"])] {
        let request = SnapshotRequest { tables: vec![missing], ..SnapshotRequest::default() };
        let error = image_for(&db, None, &SharedMemory::default(), &request).await.unwrap_err();
        assert!(matches!(error, ImageError::Engine(serac_engine::EngineError::Missing { .. })), "{error}");
    }
}

/// Whether a text lies in any of an image's files.
fn has(image: &SharedImage, text: &str) -> bool {
    image.descriptors.iter().any(|file| {
        let bytes = std::fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()))).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_get_copies_of_just_what_they_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    execute(&db, "CREATE ROLE reader; CREATE TABLE people (id BIGINT NOT NULL, name TEXT, secret TEXT)").await;
    execute(&db, "GRANT SELECT (id, name) ON people TO reader").await;
    let names =
        "CREATE TABLE words (id BIGINT NOT NULL, word TEXT); ALTER TABLE words SET (freeze_format = 'dictionary')";
    execute(&db, names).await;
    execute(&db, "GRANT SELECT ON words TO reader").await;
    execute(&db, "INSERT INTO people SELECT i, 'the long name of person ' || i, 'the long secret of person ' || i FROM generate_series(1, 5000) AS s (i)").await;
    execute(&db, "INSERT INTO words SELECT i, 'the long word number ' || i % 9 FROM generate_series(1, 5000) AS s (i)")
        .await;
    for table in ["people", "words"] {
        freeze(&db, table);
    }
    db.database().checkpoint().unwrap();
    execute(&db, "DELETE FROM people WHERE id = 4999; DELETE FROM words WHERE word = 'the long word number 5'").await;
    let table = |name: &str, columns: Option<&[&str]>| TableRequest {
        schema: "public".into(),
        table: name.into(),
        columns: columns.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
    };
    let of = |tables: Vec<TableRequest>| SnapshotRequest { tables, ..SnapshotRequest::default() };
    let memory = SharedMemory::default();
    let allowed = of(vec![table("people", Some(&["id", "name"])), table("words", None)]);
    let made = image_for(&db, Some("reader"), &memory, &allowed).await.unwrap();
    assert_eq!(made.manifest.shared_bytes, 0);
    assert!(made.manifest.sources.iter().all(|source| matches!(source, Source::Memory { .. })));
    assert!(has(&made, "the long name of person 4998") && has(&made, "the long word number 6"));
    for secret in ["the long secret of person", "the long name of person 4999", "the long word number 5"] {
        assert!(!has(&made, secret), "{secret}");
    }
    let sql = query(&db, "SELECT id, name FROM people ORDER BY id").await;
    assert_eq!(rows(&read(&made)[0], &sql).columns(), sql.columns());
    let sql = query(&db, "SELECT id, word FROM words ORDER BY id").await;
    assert_eq!(rows(&read(&made)[1], &sql).columns(), sql.columns());
    for denied in [table("people", None), table("people", Some(&["id", "secret"])), table("people", Some(&["secret"]))]
    {
        let error = image_for(&db, Some("reader"), &memory, &of(vec![denied])).await.unwrap_err();
        assert!(matches!(error, ImageError::Engine(serac_engine::EngineError::Denied(_))), "{error}");
    }
    // A superuser gets the files as they are, with all columns.
    freeze(&db, "people");
    db.database().checkpoint().unwrap();
    let whole = image_for(&db, None, &memory, &allowed).await.unwrap();
    assert!(has(&whole, "the long secret of person") && whole.manifest.shared_bytes > 0);
}

/// Puts rows into four files, one by each of four checkpoints.
async fn fill_files(db: &SqlDatabase) {
    execute(db, EVERY).await;
    for part in 0..4 {
        insert(db, "every", &every(part * 10_000..(part + 1) * 10_000));
        freeze(db, "every");
        db.database().checkpoint().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_and_files_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    fill_files(&db).await;
    let request = SnapshotRequest::new([("public", "every")]);
    let sql = query(&db, "SELECT * FROM every ORDER BY id").await;
    let files = |image: &SharedImage| image.descriptors.len();
    let all = image(&db, &request).await;
    assert!(files(&all) >= 4 && all.manifest.copied_bytes == 0);
    let few = SharedMemory::new(SharedMemoryOptions { most_files: 2, ..SharedMemoryOptions::default() });
    let made = image_for(&db, None, &few, &request).await.unwrap();
    assert_eq!(files(&made), 3, "two files and the memory");
    assert_eq!(rows(&read(&made)[0], &sql).columns(), sql.columns());
    let copied = few.copied_bytes();
    assert!(copied >= made.manifest.copied_bytes && copied > 0);
    drop(made);
    assert_eq!(few.copied_bytes(), 0);

    let options =
        SharedMemoryOptions { most_files: 0, most_copied_bytes: 2 * copied, ..SharedMemoryOptions::default() };
    let tight = SharedMemory::new(options);
    let held = image_for(&db, None, &tight, &SnapshotRequest::new([("public", "every")])).await;
    let first = held.unwrap_or_else(|error| panic!("{error}"));
    let error = image_for(&db, None, &tight, &request).await.unwrap_err();
    assert!(matches!(error, ImageError::NoRoom(_)), "{error}");
    assert_eq!(tight.copied_bytes(), first.copied.bytes());
    drop(first);
    image_for(&db, None, &tight, &request).await.unwrap();
    assert_eq!(tight.copied_bytes(), 0);
}

/// The descriptors are counted in a process of its own: other tests open and close theirs.
#[test]
fn an_image_that_is_not_wanted_any_more_leaves_nothing() {
    let (output, error, succeeded) = ran(&mut this_test("descriptors_of_images_that_are_not_wanted_any_more"));
    assert!(succeeded && output.contains("1 passed"), "{output}{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_of_all_images_together_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    fill_files(&db).await;
    let request = SnapshotRequest::new([("public", "every")]);
    let sql = query(&db, "SELECT * FROM every ORDER BY id").await;
    let memory = SharedMemory::new(SharedMemoryOptions { most_descriptors: 4, ..SharedMemoryOptions::default() });
    let first = image_for(&db, None, &memory, &request).await.unwrap();
    assert_eq!((first.descriptors.len(), memory.open_descriptors()), (4, 4), "three files and the memory");
    assert_eq!(rows(&read(&first)[0], &sql).columns(), sql.columns());
    let error = image_for(&db, None, &memory, &request).await.unwrap_err();
    assert!(matches!(error, ImageError::NoRoom(_)), "{error}");
    assert_eq!(memory.open_descriptors(), 4);
    // They have been sent; the lease goes on.
    let SharedImage { descriptors, copied, .. } = first;
    drop(descriptors);
    assert_eq!(memory.open_descriptors(), 0);
    // With one descriptor, all is copied.
    let memory = SharedMemory::new(SharedMemoryOptions { most_descriptors: 1, ..SharedMemoryOptions::default() });
    let one = image_for(&db, None, &memory, &request).await.unwrap();
    assert_eq!((one.descriptors.len(), one.manifest.shared_bytes), (1, 0));
    assert_eq!(rows(&read(&one)[0], &sql).columns(), sql.columns());
    drop((one, copied));
    assert_eq!(memory.open_descriptors(), 0);
    // A quarter of the files that this process may open.
    assert!(SharedMemoryOptions::default().most_descriptors >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is the other process of a test"]
async fn descriptors_of_images_that_are_not_wanted_any_more() {
    let db = database();
    execute(&db, EVERY).await;
    insert(&db, "every", &every(0..30_000));
    let (memory, descriptors) = (SharedMemory::default(), || std::fs::read_dir("/proc/self/fd").unwrap().count());
    let before = descriptors();
    for batches in 0..3 {
        let left = std::cell::Cell::new(batches);
        let check = || match left.get() {
            0 => Err(ImageError::Cancelled),
            some => {
                left.set(some - 1);
                Ok(())
            }
        };
        let mut session = Session::new(&db);
        let request = SnapshotRequest::new([("public", "every")]);
        let made = session
            .read_snapshot(|reading| Ok(memory.image(&request, reading.transaction(), reading.access(), &check)));
        assert!(matches!(made.await.unwrap(), Err(ImageError::Cancelled)));
        assert_eq!(memory.copied_bytes(), 0);
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(descriptors(), before, "descriptors are left");
}
