//! The table of crates in ARCHITECTURE.md, compared with the manifests.
//!
//! A row of the table has a crate's name in backticks, and the crates that it uses without their
//! `serac-`. These are the ordinary dependencies of its manifest, all of them and no others. All
//! crates that a crate uses, also for its tests, stand above it in the table.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// A crate with its place in the table and the crates that it uses.
struct Row {
    name: String,
    uses: BTreeSet<String>,
}

/// The crates of the workspace that a manifest names.
#[derive(Debug, Default, PartialEq)]
struct Manifest {
    dependencies: BTreeSet<String>,
    /// The dependencies of tests, examples and build scripts.
    others: BTreeSet<String>,
}

/// Complaints about rows and manifests that differ.
///
/// # Errors
/// If a file cannot be read.
pub fn check(workspace: &Path) -> io::Result<Vec<String>> {
    let rows = rows(&fs::read_to_string(workspace.join("ARCHITECTURE.md"))?);
    let mut manifests =
        vec![("xtask".to_owned(), workspace.join("xtask")), ("serac-fuzz".to_owned(), workspace.join("fuzz"))];
    for entry in fs::read_dir(workspace.join("crates"))? {
        let entry = entry?;
        manifests.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    manifests.sort();
    let mut found = Vec::new();
    for (name, folder) in manifests {
        found.push((name, manifest(&fs::read_to_string(folder.join("Cargo.toml"))?)));
    }
    Ok(differences(&rows, &found))
}

fn differences(rows: &[Row], manifests: &[(String, Manifest)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |name: &str, what: String| complaints.push(format!("ARCHITECTURE.md, {name}: {what}"));
    for row in rows.iter().filter(|row| !manifests.iter().any(|(name, _)| *name == row.name)) {
        complain(&row.name, "there is no such crate".to_owned());
    }
    for (name, manifest) in manifests {
        let Some(place) = rows.iter().position(|row| row.name == *name) else {
            complain(name, "the crate has no row in the table of crates".to_owned());
            continue;
        };
        for unused in rows[place].uses.difference(&manifest.dependencies) {
            complain(name, format!("its manifest does not name {unused}"));
        }
        for untold in manifest.dependencies.difference(&rows[place].uses) {
            complain(name, format!("its manifest names {untold}, and its row does not"));
        }
        for used in manifest.dependencies.union(&manifest.others) {
            if !rows[..place].iter().any(|row| row.name == *used) {
                complain(name, format!("it uses {used}, which does not stand above it"));
            }
        }
    }
    complaints
}

/// The rows of the table below "## Crates".
fn rows(architecture: &str) -> Vec<Row> {
    let section = architecture.lines().skip_while(|line| *line != "## Crates").skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let mut rows = Vec::new();
    for line in section {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next().and_then(|cell| cell.strip_prefix('`')).and_then(|cell| cell.strip_suffix('`'));
        let (Some(name), Some(uses)) = (name, cells.next()) else { continue };
        let uses = uses.split(',').map(str::trim).filter(|name| !name.is_empty());
        rows.push(Row { name: name.to_owned(), uses: uses.map(|name| format!("serac-{name}")).collect() });
    }
    rows
}

/// The dependencies that a manifest names. Its sections are read line by line: `serac-sql.workspace
/// = true`.
fn manifest(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut section = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or(line);
        if !name.starts_with("serac-") {
            continue;
        }
        let into = match section.rsplit('.').next() {
            Some("dependencies") => &mut manifest.dependencies,
            Some("dev-dependencies" | "build-dependencies") => &mut manifest.others,
            _ => continue,
        };
        into.insert(name.to_owned());
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        ## Crates\n\n| crate | uses | knows |\n|---|---|---|\n\
        | `serac-a` | | x |\n| `serac-b` | a | y |\n\n## More\n| `serac-c` | a | z |\n";

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn complaints(b: &str) -> Vec<String> {
        let manifests = [("serac-a", "[package]\nname = \"serac-a\"\n"), ("serac-b", b)];
        differences(&rows(TABLE), &manifests.map(|(name, text)| (name.to_owned(), manifest(text))))
    }

    #[test]
    fn a_manifest_is_read_by_its_sections() {
        let text = "[package]\nname = \"serac-x\"\n[features]\nserac-y = []\n[dependencies]\nserac-a.workspace = true\n\
            arrow.workspace = true\nserac-b = { workspace = true, optional = true }\n[dev-dependencies]\nserac-c.workspace = true\n\
            [target.'cfg(shuttle)'.dependencies]\nserac-d.workspace = true\n";
        let others = names(&["serac-c"]);
        assert_eq!(manifest(text), Manifest { dependencies: names(&["serac-a", "serac-b", "serac-d"]), others });
    }

    #[test]
    fn rows_and_manifests_agree_in_both_directions() {
        assert!(complaints("[dependencies]\nserac-a.workspace = true\n").is_empty());
        assert_eq!(complaints("[dependencies]\n"), ["ARCHITECTURE.md, serac-b: its manifest does not name serac-a"]);
        let upwards = "[dependencies]\nserac-a.workspace = true\n[dev-dependencies]\nserac-c.workspace = true\n";
        assert_eq!(complaints(upwards), ["ARCHITECTURE.md, serac-b: it uses serac-c, which does not stand above it"]);
        let untold = "[dependencies]\nserac-a.workspace = true\nserac-c.workspace = true\n";
        assert!(complaints(untold)[0].ends_with("its manifest names serac-c, and its row does not"));
    }

    #[test]
    fn every_crate_has_a_row_and_every_row_a_crate() {
        let manifests = ["serac-a", "serac-z"].map(|name| (name.to_owned(), Manifest::default()));
        let complaints = differences(&rows(TABLE), &manifests);
        assert_eq!(complaints[0], "ARCHITECTURE.md, serac-b: there is no such crate");
        assert_eq!(complaints[1], "ARCHITECTURE.md, serac-z: the crate has no row in the table of crates");
    }
}
