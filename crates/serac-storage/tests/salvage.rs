//! Missing or damaged parts are refused by name, and salvaged without deleting or overwriting a
//! file.

mod one_table;

use one_table::{checkpoint, open_table, required};
use serac_storage::durability::checkpoint::{DATA_FOLDER, MANIFEST, MANIFEST_COPY};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ALL: [ColumnId; 2] = [ColumnId(0), ColumnId(1)];

fn schema() -> TableSchema {
    TableSchema { columns: vec![required("id", ColumnType::Int64), required("text", ColumnType::Utf8)] }
}

fn options(path: &Path) -> StorageOptions {
    StorageOptions { path: Some(path.to_owned()), gc_threads: 0, log_segment_bytes: 1 << 14, ..Default::default() }
}

fn open(path: &Path, salvage: bool) -> Result<(Arc<Storage>, Arc<DataTable>, RecoveryReport)> {
    open_table(StorageOptions { salvage, ..options(path) }, schema())
}

fn text(id: i64) -> String {
    format!("the text of {id}, which lies in the heap")
}

fn insert(storage: &Storage, table: &Arc<DataTable>, ids: std::ops::Range<i64>) -> Result<()> {
    let mut txn = storage.begin();
    for id in ids {
        table.insert(&mut txn, &[Value::Int64(id), Value::Bytes(text(id).as_bytes())])?;
    }
    txn.commit()?.wait().map(|_| ())
}

fn ids(storage: &Storage, table: &DataTable) -> BTreeSet<i64> {
    let (txn, mut buffer, mut found) = (storage.begin(), RowBuffer::default(), BTreeSet::new());
    for row in row_ids(storage, table) {
        assert!(table.read(txn.snapshot(), row, &ALL, &mut buffer).unwrap());
        let (Value::Int64(id), Value::Bytes(found_text)) = (buffer.value(0), buffer.value(1)) else {
            panic!("other types")
        };
        assert_eq!(found_text, text(id).as_bytes());
        assert!(found.insert(id), "{id} is there twice");
    }
    found
}

fn row_ids(storage: &Storage, table: &DataTable) -> Vec<RowId> {
    let txn = storage.begin();
    let readers = (0..table.block_count()).filter_map(|no| table.read_block(txn.snapshot(), BlockNo(no)));
    readers.flat_map(|reader| reader.row_ids(reader.visible()).values().to_vec()).map(RowId::from_u64).collect()
}

/// A database with 100 rows in its checkpoint and 50 more in its log.
fn database(path: &Path) {
    let (storage, table, _) = open(path, false).unwrap();
    insert(&storage, &table, 0..100).unwrap();
    checkpoint(&storage).unwrap();
    insert(&storage, &table, 100..150).unwrap();
    storage.close().unwrap();
}

/// All files of a folder and the folders in it, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.file_name() != "LOCK" {
            found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// Each file of `before` still exists with the same bytes: in its place, or in the folder of the
/// parts that salvaging left out. The log may have gone on behind these bytes.
fn assert_nothing_is_gone(path: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = files(path);
    for (file, bytes) in before {
        let aside = path.join("salvaged-1").join(file.strip_prefix(path).unwrap());
        assert!(is_there(&now, file, bytes) || is_there(&now, &aside, bytes), "{} is gone", file.display());
    }
}

/// Whether a file is as it was, or a part of the log that has gone on.
fn is_there(now: &BTreeMap<PathBuf, Vec<u8>>, file: &Path, bytes: &[u8]) -> bool {
    let is_log = file.extension().is_some_and(|extension| extension == "wal");
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    now.get(file).is_some_and(|now| now == bytes || is_log && now.starts_with(&bytes[..used]))
}

fn refused(path: &Path, file: &Path) {
    for _ in 0..2 {
        match open(path, false).map(|_| ()) {
            Err(StorageError::Corrupt { file: found, .. }) => assert_eq!(found, file),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn without_its_manifest_a_database_does_not_open_and_all_is_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    database(path);
    std::fs::remove_file(path.join(MANIFEST)).unwrap();
    let before = files(path);
    refused(path, &path.join(MANIFEST));
    assert_eq!(files(path), before, "who refuses changes nothing");
    let (storage, table, report) = open(path, true).unwrap();
    assert_eq!(ids(&storage, &table), (0..150).collect());
    assert!(report.lost.len() == 1 && report.lost[0].contains(MANIFEST), "{:?}", report.lost);
    storage.close().unwrap();
    drop((storage, table));
    assert_nothing_is_gone(path, &before);
    let (storage, table, _) = open(path, false).expect("what is salvaged is a whole database");
    assert_eq!(ids(&storage, &table), (0..150).collect());
}

#[test]
fn a_manifest_that_is_damaged_anywhere_is_refused_and_all_is_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    database(path);
    let whole = files(path);
    let manifest = path.join(MANIFEST);
    for at in (0..whole[&manifest].len()).step_by(7) {
        let mut bytes = whole[&manifest].clone();
        bytes[at] ^= 0x10;
        std::fs::write(&manifest, bytes).unwrap();
        let before = files(path);
        refused(path, &manifest);
        let (storage, table, report) = open(path, true).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!(ids(&storage, &table), (0..150).collect(), "byte {at}");
        assert_eq!(report.kept_aside, Some(path.join("salvaged-1")));
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        drop((storage, table));
        assert_eq!(files(path)[&path.join("salvaged-1").join(MANIFEST)], before[&manifest]);
        // As it was, for the next byte.
        std::fs::remove_dir_all(path).unwrap();
        ["data", "log"].iter().for_each(|folder| std::fs::create_dir_all(path.join(folder)).unwrap());
        whole.iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    }
}

/// With nothing but data files and log: blocks in their newest files, and the log's changes where
/// they are newer.
#[test]
fn data_files_and_log_alone_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (storage, table, _) = open(path, false).unwrap();
    let mut expected = BTreeSet::new();
    for round in 0..6 {
        let rows = i64::from(table.layout().slot_count()) / 3;
        insert(&storage, &table, round * 100_000..round * 100_000 + rows).unwrap();
        expected.extend(round * 100_000..round * 100_000 + rows);
        storage.run_gc();
        let found: Vec<RowId> = row_ids(&storage, &table);
        let mut txn = storage.begin();
        for row in found.iter().skip(round as usize * 7).step_by(100) {
            let mut buffer = RowBuffer::default();
            assert!(table.read(txn.snapshot(), *row, &ALL, &mut buffer).unwrap());
            let Value::Int64(id) = buffer.value(0) else { panic!("another type") };
            table.delete(&mut txn, *row).unwrap();
            expected.remove(&id);
        }
        txn.commit().unwrap().wait().unwrap();
        storage.run_gc();
        if round < 5 {
            checkpoint(&storage).unwrap();
        }
        if round == 2 {
            storage.freeze_table(&table, std::time::Duration::from_secs(60));
        }
    }
    assert_eq!(ids(&storage, &table), expected);
    storage.close().unwrap();
    drop((storage, table));
    for unfinished in [false, true] {
        if unfinished {
            // A checkpoint that wrote its data files, and no manifest.
            let files = FaultFileSystem::default();
            let options = StorageOptions { file_system: Arc::new(files.clone()), ..options(path) };
            let (storage, table, _) = open_table(options, schema()).unwrap();
            insert(&storage, &table, -10..0).unwrap();
            expected.extend(-10..0);
            files.faults().fail_name_in.store(2, Ordering::SeqCst);
            assert!(checkpoint(&storage).is_err());
            insert(&storage, &table, -20..-10).unwrap();
            expected.extend(-20..-10);
            storage.close().unwrap();
        }
        for manifest in [MANIFEST, MANIFEST_COPY] {
            std::fs::remove_file(path.join(manifest)).unwrap();
        }
        let before = files(path);
        refused(path, &path.join(MANIFEST));
        let (storage, table, report) = open(path, true).unwrap();
        assert_eq!(ids(&storage, &table), expected, "unfinished: {unfinished}");
        assert_eq!(report.lost.len(), 1, "{:?}", report.lost);
        let now = files(path);
        let folders: Vec<PathBuf> = ["", "salvaged-1", "salvaged-2"].iter().map(|folder| path.join(folder)).collect();
        for (file, bytes) in &before {
            let name = file.strip_prefix(path).unwrap();
            assert!(
                folders.iter().any(|folder| is_there(&now, &folder.join(name), bytes)),
                "{} is gone",
                name.display()
            );
        }
        insert(&storage, &table, -100 - i64::from(unfinished)..-99 - i64::from(unfinished)).unwrap();
        expected.insert(-100 - i64::from(unfinished));
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        drop((storage, table));
        let (storage, table, _) = open(path, false).expect("what is salvaged is a whole database");
        assert_eq!(ids(&storage, &table), expected);
        table.verify();
        storage.close().unwrap();
    }
}

#[test]
fn another_version_s_database_is_not_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    database(path);
    for name in [MANIFEST, MANIFEST_COPY] {
        let text = std::fs::read_to_string(path.join(name)).unwrap();
        let json = text.split_once('\n').unwrap().1.replacen("\"format_version\":", "\"format_version\":1", 1);
        std::fs::write(path.join(name), format!("{:08x}\n{json}", crc32fast::hash(json.as_bytes()))).unwrap();
        let before = files(path);
        assert!(matches!(open(path, true).map(|_| ()), Err(StorageError::OtherVersion { .. })));
        assert_eq!(files(path), before);
        if name == MANIFEST {
            std::fs::remove_file(path.join(name)).unwrap();
        }
    }
}

#[test]
fn what_salvaging_leaves_out_is_kept() {
    for damaged in ["log", DATA_FOLDER] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        database(path);
        let file = files(&path.join(damaged)).into_keys().next().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        // In a text of the data file; in an early record of the log.
        let at = if damaged == "log" { 200 } else { bytes.len() / 3 };
        bytes[at] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        std::fs::write(path.join(DATA_FOLDER).join("77-1-1.arrow"), "left by a checkpoint that was not finished")
            .unwrap();
        let before = files(path);
        let (storage, table, report) = open(path, true).unwrap();
        let found = ids(&storage, &table);
        assert!(found.len() < 150, "something is lost with the damage");
        assert_eq!(report.kept_aside, Some(path.join("salvaged-1")));
        assert_nothing_is_gone(path, &before);
        // Later checkpoints do not take it either.
        insert(&storage, &table, 1_000..1_010).unwrap();
        checkpoint(&storage).unwrap();
        storage.close().unwrap();
        drop((storage, table));
        let left_out = [file, path.join(DATA_FOLDER).join("77-1-1.arrow"), path.join(MANIFEST)];
        let aside = files(&path.join("salvaged-1"));
        for file in left_out {
            assert_eq!(aside[&path.join("salvaged-1").join(file.strip_prefix(path).unwrap())], before[&file]);
        }
        let (storage, table, report) = open(path, false).expect("what is salvaged is a whole database");
        assert_eq!(ids(&storage, &table), found.into_iter().chain(1_000..1_010).collect());
        assert!(report.lost.is_empty() && report.kept_aside.is_none());
    }
}

/// Calls `is_halted` with each number of file operations after which a process may stop, until the
/// process needs fewer and is not halted.
fn at_every_stop(mut is_halted: impl FnMut(u64) -> bool) {
    assert!((1..200).any(|operations| !is_halted(operations)), "the process has fewer operations");
}

/// The first opening of a database may stop at any operation. It leaves a database, or an empty
/// folder.
#[test]
fn a_new_database_opens_again_wherever_its_first_opening_ended() {
    at_every_stop(|n| {
        let mut is_halted = false;
        for seed in 0..4 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("folders/above/db");
            let files = FaultFileSystem::with_disk();
            let with_faults = || StorageOptions { file_system: Arc::new(files.clone()), ..options(&path) };
            files.faults().halt_in.store(n, Ordering::SeqCst);
            let mut acknowledged = false;
            if let Ok((storage, table, _)) = open_table(with_faults(), schema()) {
                acknowledged = insert(&storage, &table, 0..3).is_ok();
                let _ = storage.close();
            }
            is_halted = files.halted();
            if seed == 0 {
                files.process_restarts();
            } else {
                files.power_returns(seed).unwrap();
            }
            let (storage, table, _) =
                open_table(with_faults(), schema()).unwrap_or_else(|error| panic!("stop {n}, seed {seed}: {error}"));
            let found = ids(&storage, &table);
            assert!(found.len() == 3 || !acknowledged && found.is_empty(), "stop {n}, seed {seed}: {found:?}");
            insert(&storage, &table, 10..12).unwrap();
            storage.close().unwrap();
        }
        is_halted
    });
}

/// The power went between the renames of the two copies: the next opening removes the files that
/// the older one names.
#[test]
fn a_copy_that_was_left_behind_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    database(path);
    let older = std::fs::read(path.join(MANIFEST_COPY)).unwrap();
    let (storage, table, _) = open(path, false).unwrap();
    for round in 1..20 {
        insert(&storage, &table, round * 1_000..round * 1_000 + 100).unwrap();
    }
    checkpoint(&storage).unwrap();
    let expected = ids(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    std::fs::write(path.join(MANIFEST_COPY), older).unwrap();
    let (storage, ..) = open(path, false).unwrap();
    storage.close().unwrap();
    drop(storage);
    std::fs::write(path.join(MANIFEST), "damaged").unwrap();
    let (storage, table, _) = open(path, true).unwrap();
    assert_eq!(ids(&storage, &table), expected);
}

/// On a full disk the copy that was left behind cannot be written anew. It must not stay: the files
/// that it names are removed.
#[test]
fn a_copy_that_was_left_behind_goes_if_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    database(path);
    let older = std::fs::read(path.join(MANIFEST_COPY)).unwrap();
    let (storage, table, _) = open(path, false).unwrap();
    for round in 1..20 {
        insert(&storage, &table, round * 1_000..round * 1_000 + 100).unwrap();
    }
    checkpoint(&storage).unwrap();
    let expected = ids(&storage, &table);
    storage.close().unwrap();
    drop((storage, table));
    std::fs::write(path.join(MANIFEST_COPY), older).unwrap();
    let files = FaultFileSystem::default();
    files.faults().disk_full.store(true, Ordering::SeqCst);
    let with_faults = StorageOptions { file_system: Arc::new(files), ..options(path) };
    let (storage, ..) = open_table(with_faults, schema()).unwrap();
    storage.close().unwrap();
    drop(storage);
    std::fs::write(path.join(MANIFEST), "damaged").unwrap();
    let (storage, table, _) = open(path, true).unwrap();
    assert_eq!(ids(&storage, &table), expected);
}

/// Salvaging may stop at any operation, and another process may then open the database in the
/// ordinary way: the log is kept all the same.
#[test]
fn salvaging_that_is_stopped_has_kept_what_it_takes_away() {
    at_every_stop(|n| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (storage, table, _) = open(path, false).unwrap();
        for round in 0..20 {
            insert(&storage, &table, round * 50..round * 50 + 50).unwrap();
        }
        storage.close().unwrap();
        drop((storage, table));
        let segments: Vec<PathBuf> = files(&path.join("log")).into_keys().collect();
        assert!(segments.len() > 3);
        // At the end of a segment: the proof that the record was there lies in later segments.
        let mut bytes = std::fs::read(&segments[1]).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[end] ^= 1;
        std::fs::write(&segments[1], &bytes).unwrap();
        refused(path, &segments[1]);
        let before = files(&path.join("log"));
        let faults = FaultFileSystem::default();
        faults.faults().halt_in.store(n, Ordering::SeqCst);
        let salvage = StorageOptions { salvage: true, file_system: Arc::new(faults.clone()), ..options(path) };
        let opened = open_table(salvage, schema());
        if let Ok((storage, ..)) = opened {
            let _ = storage.close();
        }
        if let Ok((storage, ..)) = open(path, false) {
            storage.close().unwrap();
        }
        assert_nothing_is_gone(path, &before);
        faults.halted()
    });
}

/// A commit whose first parts are missing is left out. Its other parts are kept, though the next
/// checkpoint removes the log.
#[test]
fn the_log_of_a_commit_that_is_left_out_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let spilling = |salvage| StorageOptions { salvage, log_spill_bytes: 256, ..options(path) };
    let (storage, table, _) = open_table(spilling(false), schema()).unwrap();
    insert(&storage, &table, 0..100).unwrap();
    checkpoint(&storage).unwrap();
    insert(&storage, &table, 100..600).unwrap();
    insert(&storage, &table, 600..610).unwrap();
    storage.close().unwrap();
    drop((storage, table));
    for manifest in [MANIFEST, MANIFEST_COPY] {
        std::fs::remove_file(path.join(manifest)).unwrap();
    }
    let segments: Vec<PathBuf> = files(&path.join("log")).into_keys().collect();
    assert!(segments.len() > 2, "the commit lies in several segments");
    std::fs::remove_file(&segments[0]).unwrap();
    let before = files(path);
    let (storage, table, report) = open_table(spilling(true), schema()).unwrap();
    assert!(report.lost.iter().any(|lost| lost.contains("parts of the commit")), "{:?}", report.lost);
    assert_eq!(ids(&storage, &table), (0..100).chain(600..610).collect());
    for round in 1..4 {
        insert(&storage, &table, round * 1_000..round * 1_000 + 200).unwrap();
        checkpoint(&storage).unwrap();
    }
    storage.close().unwrap();
    drop((storage, table));
    let now = files(path);
    for segment in &segments[1..] {
        let aside = path.join("salvaged-1").join(segment.strip_prefix(path).unwrap());
        assert!(is_there(&now, &aside, &before[segment]), "{} is gone", segment.display());
    }
}

/// A folder that has tables without rows, and no log, is a database all the same.
#[test]
fn a_manifest_that_has_tables_alone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let without_log = |salvage| StorageOptions { salvage, durability: Durability::Off, ..options(path) };
    let (storage, ..) = open_table(without_log(false), schema()).unwrap();
    checkpoint(&storage).unwrap();
    storage.close().unwrap();
    drop(storage);
    std::fs::remove_file(path.join(MANIFEST)).unwrap();
    let before = files(path);
    refused(path, &path.join(MANIFEST));
    assert_eq!(files(path), before);
    let mut catalog = one_table::OneTable(schema());
    let (storage, report) = Storage::open(without_log(true), &mut catalog).unwrap();
    assert!(storage.table(TableId(1)).is_some(), "{report:?}");
    storage.close().unwrap();
    drop(storage);
    assert_nothing_is_gone(path, &before);
}

/// Files that were cut, emptied or removed, with a manifest and without.
#[test]
fn torn_data_files_are_left_out_and_kept() {
    for with_manifest in [true, false] {
        for left in [None, Some(0), Some(1), Some(2)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path();
            database(path);
            if !with_manifest {
                [MANIFEST, MANIFEST_COPY].iter().for_each(|name| std::fs::remove_file(path.join(name)).unwrap());
            }
            let file = files(&path.join(DATA_FOLDER)).into_keys().next().unwrap();
            let bytes = std::fs::read(&file).unwrap();
            match left {
                None => std::fs::remove_file(&file).unwrap(),
                Some(halves) => std::fs::write(&file, &bytes[..(bytes.len() * halves / 2).saturating_sub(1)]).unwrap(),
            }
            let before = files(path);
            assert!(open(path, false).is_err());
            assert_eq!(files(path), before);
            let (storage, table, report) = open(path, true).unwrap();
            // Without a position, all of the log is wanted.
            let whole = if with_manifest { 100..150 } else { 0..150 };
            assert_eq!(ids(&storage, &table), whole.clone().collect(), "manifest: {with_manifest}, left: {left:?}");
            assert!(!report.lost.is_empty());
            insert(&storage, &table, 1_000..1_010).unwrap();
            checkpoint(&storage).unwrap();
            table.verify();
            storage.close().unwrap();
            drop((storage, table));
            if left.is_some() {
                let aside = path.join("salvaged-1").join(file.strip_prefix(path).unwrap());
                assert_eq!(files(path)[&aside], before[&file]);
            }
            let (storage, table, report) = open(path, false).expect("what is salvaged is a whole database");
            assert_eq!(ids(&storage, &table), whole.chain(1_000..1_010).collect());
            assert!(report.lost.is_empty());
        }
    }
}

#[test]
fn folders_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("above/db");
    database(&path);
    for folder in ["..", ".", DATA_FOLDER, "log"] {
        let mode = std::fs::metadata(path.join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
    std::fs::remove_file(path.join(MANIFEST_COPY)).unwrap();
    open(&path, false).expect("the copy is for salvaging alone");
}
