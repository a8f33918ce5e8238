//! The floors of a crate: the table in the header of its `lib.rs`, compared with the code.
//!
//! If a header says [`SENTENCE`], the rows of its last table are the floors, the lowest first. The
//! first cell of a row has the modules of that floor in backticks, `point::{plan, rows}` for
//! several modules of one folder. A module that stands in no row is on the floor of the module that
//! declares it. A file may use files of its own floor and of those below it, by the measure of
//! [`circles`](crate::circles). Every module that the root declares has a floor.

use crate::circles::{Arrows, arrows};
use crate::source::{Module, modules};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// What a header says above its floors.
const SENTENCE: &str = "A module uses those of its own line and of the lines before it.";

/// Complaints about uses that lead up, and about tables that do not fit the modules.
///
/// # Errors
/// If a file cannot be read.
pub fn check(workspace: &Path) -> io::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for entry in fs::read_dir(workspace.join("crates"))? {
        let entry = entry?;
        let src = entry.path().join("src");
        let root = src.join("lib.rs");
        let Some(floors) = root.exists().then(|| fs::read_to_string(&root)).transpose()?.and_then(|text| floors(&text))
        else {
            continue;
        };
        let modules = modules(&src)?;
        let name = entry.file_name();
        let found = differences(&floors, &modules, &arrows(&modules));
        complaints.extend(found.into_iter().map(|what| format!("{}: {what}", name.display())));
    }
    complaints.sort();
    Ok(complaints)
}

/// The floor of each module that a header names; `None` if the header has no floors.
fn floors(root: &str) -> Option<BTreeMap<String, usize>> {
    let header: Vec<&str> = root.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    if !header.join(" ").contains(SENTENCE) {
        return None;
    }
    let mut tables = header.rsplit(|line| !line.starts_with('|')).filter(|table| !table.is_empty());
    let rows = tables.next().unwrap_or_default().iter().skip(2);
    let mut floors = BTreeMap::new();
    for (floor, row) in rows.enumerate() {
        let cell = row.split('|').nth(1).unwrap_or_default();
        // What stands between backticks are the odd parts.
        for path in cell.split('`').skip(1).step_by(2) {
            match path.split_once("::{") {
                None => _ = floors.insert(path.to_owned(), floor),
                Some((folder, names)) => floors.extend(
                    names.trim_end_matches('}').split(',').map(|name| (format!("{folder}::{}", name.trim()), floor)),
                ),
            }
        }
    }
    Some(floors)
}

/// The paths of all modules, in their order: `point::rows`; the root's is empty.
fn paths(modules: &[Module]) -> Vec<String> {
    let mut paths = vec![String::new(); modules.len()];
    // A module is declared by one before it.
    for at in 0..modules.len() {
        for (name, child) in &modules[at].children {
            paths[*child] = if paths[at].is_empty() { name.clone() } else { format!("{}::{name}", paths[at]) };
        }
    }
    paths
}

fn differences(floors: &BTreeMap<String, usize>, modules: &[Module], arrows: &Arrows) -> Vec<String> {
    let paths = paths(modules);
    let mut complaints = Vec::new();
    for named in floors.keys().filter(|named| !paths.contains(named)) {
        complaints.push(format!("the floors name {named}, which is no module"));
    }
    let floor_of = |path: &str| {
        let mut path = path;
        loop {
            match (floors.get(path), path.rsplit_once("::")) {
                (Some(floor), _) => return Some(*floor),
                (None, Some((above, _))) => path = above,
                (None, None) => return None,
            }
        }
    };
    let found: Vec<Option<usize>> = paths.iter().map(|path| floor_of(path)).collect();
    for (path, floor) in paths.iter().zip(&found).skip(1) {
        if floor.is_none() && !path.contains("::") {
            complaints.push(format!("{path} is on no floor"));
        }
    }
    for ((from, to), names) in arrows {
        if let (Some(below), Some(above)) = (found[*from], found[*to])
            && below < above
        {
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let [from, to] = [from, to].map(|module| &paths[*module]);
            complaints.push(format!("{from} (floor {below}) uses {to} (floor {above}): {names}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(parent: Option<usize>, children: &[(&str, usize)]) -> Module {
        let children = children.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        Module { parent, children, ..Module::default() }
    }

    #[test]
    fn uses_that_lead_up_are_found() {
        let header =
            format!("//! | `b` | is no floor |\n//!\n//! {SENTENCE}\n//!\n//! | modules | what |\n//! |---|---|\n")
                + "//! | `a` `c::{d, e}` | low |\n//! | `b`, [`c`] | high |\n\nmod a;\n";
        let floors = floors(&header).unwrap();
        let modules = [
            module(None, &[("a", 1), ("b", 2), ("c", 3)]),
            module(Some(0), &[]),
            module(Some(0), &[]),
            module(Some(0), &[("d", 4), ("e", 5)]),
            module(Some(3), &[]),
            module(Some(3), &[]),
        ];
        let uses = |from, to| Arrows::from([((from, to), ["X".to_owned()].into())]);
        let complaints = |from, to| differences(&floors, &modules, &uses(from, to));
        assert_eq!(complaints(2, 1), Vec::<String>::new());
        assert_eq!(complaints(3, 4), Vec::<String>::new());
        assert_eq!(complaints(1, 4), Vec::<String>::new());
        assert_eq!(complaints(1, 2), ["a (floor 0) uses b (floor 1): X"]);
        assert_eq!(complaints(4, 3), ["c::d (floor 0) uses c (floor 1): X"]);
    }

    #[test]
    fn tables_that_do_not_fit_are_found() {
        let header = format!("//! {SENTENCE}\n//!\n//! | modules | what |\n//! |---|---|\n//! | `a` `gone` | low |\n");
        let modules = [module(None, &[("a", 1), ("new", 2)]), module(Some(0), &[]), module(Some(0), &[])];
        let found = differences(&floors(&header).unwrap(), &modules, &Arrows::new());
        assert_eq!(found, ["the floors name gone, which is no module", "new is on no floor"]);
        assert!(floors("//! A crate without floors.\n").is_none());
    }
}
