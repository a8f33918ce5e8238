//! Data files and manifests: a checkpoint, one file of which is replaced by the input.
//!
//! Where the recipe says so, the checksums in the manifest or in a file's tail are corrected. So
//! the input reaches the code behind the check of checksums.

use crate::files::{FOLDER, MemoryFiles, after, open, rows};
use serac_storage::durability::checkpoint::{DATA_FOLDER, MANIFEST, MANIFEST_COPY};
use serac_storage::{Durability, StorageOptions};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const SCRIPT: &str = "
    CREATE TABLE t (id INT PRIMARY KEY, name TEXT, price NUMERIC(9, 2), flag BOOLEAN);
    INSERT INTO t VALUES (1, 'one', 1.5, true), (2, 'a name that is longer than a view', NULL, NULL), (3, '', 0, false);
    DELETE FROM t WHERE id = 3;
";

/// The text before the digits of a tail's own checksum.
const TAIL_MARK: &[u8] = b"the tail's CRC-32 with zeros here: ";

/// A database of one data file.
struct Base {
    files: MemoryFiles,
    path: PathBuf,
    data: Vec<u8>,
    manifest: String,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let files = after(SCRIPT, |database| {
            database.checkpoint().expect("a checkpoint can be made");
        });
        let mut data = files.files_in(&Path::new(FOLDER).join(DATA_FOLDER));
        let (path, data) = data.pop().expect("there is a data file");
        let in_folder = files.files_in(Path::new(FOLDER));
        let manifest = in_folder.into_iter().find(|(path, _)| path.ends_with(MANIFEST)).expect("there is a manifest");
        let manifest = String::from_utf8(manifest.1).expect("it is a text");
        Base { files, path, data, manifest: manifest[9..].to_owned() }
    })
}

/// Puts a manifest in place, with its checksum.
fn put_manifest(files: &MemoryFiles, json: &[u8]) {
    let text = [format!("{:08x}\n", crc32fast::hash(json)).as_bytes(), json].concat();
    for name in [MANIFEST, MANIFEST_COPY] {
        files.put(&Path::new(FOLDER).join(name), text.clone());
    }
}

/// The offset of the tail, from the file's own metadata, or else from the manifest of the base.
fn tail_from(data: &[u8]) -> usize {
    let key = b"\"tail_from\":";
    let of = |bytes: &[u8]| {
        let at = bytes.windows(key.len()).rposition(|window| window == key)? + key.len();
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&bytes[at..at + digits]).ok()?.parse::<usize>().ok()
    };
    of(data).or_else(|| of(base().manifest.as_bytes())).unwrap_or(0).min(data.len())
}

/// Corrects the manifest's figures for the data file.
fn seal(files: &MemoryFiles, data: &[u8]) {
    let mut manifest: Value = serde_json::from_str(&base().manifest).expect("a manifest is JSON");
    let from = tail_from(data);
    let file = &mut manifest["tables"][0]["files"][0];
    file["bytes"] = json!(data.len());
    file["tail_from"] = json!(from);
    file["tail_crc32"] = json!(crc32fast::hash(&data[from..]));
    put_manifest(files, manifest.to_string().as_bytes());
}

/// Corrects the checksum that a tail has of itself.
fn seal_tail(data: &mut [u8]) {
    let from = tail_from(data);
    let tail = &mut data[from..];
    let Some(at) = tail.windows(TAIL_MARK.len()).rposition(|window| window == TAIL_MARK) else { return };
    let at = at + TAIL_MARK.len();
    let Some(digits) = tail.get_mut(at..at + 8) else { return };
    digits.fill(b'0');
    let digits = format!("{:08x}", crc32fast::hash(tail));
    tail[at..at + 8].copy_from_slice(digits.as_bytes());
}

/// Opens a database whose data file or manifest is the input without its first byte.
pub fn run(bytes: &[u8]) {
    let Some((settings, bytes)) = bytes.split_first() else { return };
    let base = base();
    let files = base.files.copy();
    let mut data = bytes.to_vec();
    match settings % 4 {
        // The data file as it is, in place of the base's.
        0 => files.put(&base.path, data),
        1 => {
            seal(&files, &data);
            files.put(&base.path, data);
        }
        // The data file without a manifest, to be salvaged.
        2 => {
            seal_tail(&mut data);
            files.put(&base.path, data);
            [MANIFEST, MANIFEST_COPY].iter().for_each(|name| files.forget(&Path::new(FOLDER).join(name)));
        }
        _ => put_manifest(&files, bytes),
    }
    let options = StorageOptions { durability: Durability::Off, salvage: settings & 4 != 0, ..files.options() };
    let Some(database) = open(options) else { return };
    let found = rows(&database);
    drop(database);
    let again = open(StorageOptions { durability: Durability::Off, ..files.options() });
    assert_eq!(rows(&again.expect("what was opened once opens again")), found);
}

/// The file and the manifest of the database, with every way of correcting checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let base = base();
    let with = |settings: u8, bytes: &[u8]| [&[settings], bytes].concat();
    let mut seeds: Vec<_> = [0, 1, 4, 5, 6].map(|settings| with(settings, &base.data)).into();
    seeds.extend([3, 7].map(|settings| with(settings, base.manifest.as_bytes())));
    seeds.push(with(1, &base.data[tail_from(&base.data)..]));
    seeds
}
