//! Protocols and their models name each other.
//!
//! The header of a protocol has a line ``Model: `serac-models/tests/freezing.rs`.``. The header of
//! that model has a line ``Of: `serac-storage/src/freeze/mod.rs`.``. Paths are below `crates`. A
//! line may have several paths, and a header several such lines.

use crate::files::File;
use std::collections::BTreeSet;

const MODELS: &str = "crates/serac-models/tests/";

/// A file and another file that it names.
type Name = (String, String);

/// Complaints about models that name no protocol, and about files that are named but do not exist
/// or do not name the file in turn.
pub fn check(sources: &[File]) -> Vec<String> {
    let (models, protocols): (Vec<&File>, Vec<&File>) = sources.iter().partition(|file| file.path.starts_with(MODELS));
    let (of, model) = (names(&models, "Of"), names(&protocols, "Model"));
    let mut complaints = Vec::new();
    for file in models.iter().filter(|file| !of.iter().any(|(from, _)| *from == file.path)) {
        complaints.push(format!("{}: the header does not say what the model is of (`Of: …`)", file.path));
    }
    complaints.extend(unreturned(sources, &of, &model, "Model"));
    complaints.extend(unreturned(sources, &model, &of, "Of"));
    complaints
}

/// Complaints about `names` whose reverse is not among `returned`, the names behind `word` in the
/// other files.
fn unreturned(sources: &[File], names: &BTreeSet<Name>, returned: &BTreeSet<Name>, word: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (from, to) in names {
        if !sources.iter().any(|file| file.path == *to) {
            complaints.push(format!("{from}: there is no {to}"));
        } else if !returned.contains(&(to.clone(), from.clone())) {
            complaints.push(format!("{to}: the header does not name {from} (`{word}: …`)"));
        }
    }
    complaints
}

/// The files that headers name behind `word`.
fn names(files: &[&File], word: &str) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for file in files {
        for line in file.text.lines().take_while(|line| line.starts_with("//!")) {
            let named = line.strip_prefix("//! ").and_then(|line| line.strip_prefix(word)?.strip_prefix(": "));
            // Every second part stands between backticks.
            for path in named.into_iter().flat_map(|named| named.split('`').skip(1).step_by(2)) {
                names.insert((file.path.clone(), format!("crates/{path}")));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(model: &str, protocol: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        check(&[file("crates/serac-models/tests/m.rs", model), file("crates/serac-storage/src/p.rs", protocol)])
    }

    #[test]
    fn a_model_and_its_protocol_name_each_other() {
        let (of, model) =
            ("//! Of: `serac-storage/src/p.rs`.\n", "//! P.\n//!\n//! Model: `serac-models/tests/m.rs`.\n");
        assert!(complaints(of, model).is_empty());
        assert_eq!(
            complaints(of, "//! P.\n"),
            ["crates/serac-storage/src/p.rs: the header does not name crates/serac-models/tests/m.rs (`Model: …`)"]
        );
        let without = complaints("//! M.\n", model);
        assert!(without[0].starts_with("crates/serac-models/tests/m.rs: the header does not say"), "{without:?}");
        assert!(without[1].ends_with("does not name crates/serac-storage/src/p.rs (`Of: …`)"), "{without:?}");
    }

    #[test]
    fn both_files_are_there() {
        let two = "//! Of: `serac-storage/src/p.rs`, `serac-storage/src/q.rs`.\n";
        let model = "//! Model: `serac-models/tests/m.rs`.\n";
        assert_eq!(
            complaints(two, model),
            ["crates/serac-models/tests/m.rs: there is no crates/serac-storage/src/q.rs"]
        );
    }
}
