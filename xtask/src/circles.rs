//! No circle of files has more than [`MOST`] files. [`LARGER`] has the crates where one still has
//! more; these may only shrink.
//!
//! **The measure.** A file uses another one if a path in it leads there: in a `use` item or written
//! out, and beginning with `crate`, `self`, `super`, a child module or an imported name. The path
//! is followed through re-exports to the file that defines the name, or to the file of the module
//! where it ends. A name that `use …::*` brings counts as if it were imported. A circle is a
//! strongly connected set of files: a path of such uses leads from each file to each other one. So
//! no file of it can be read, or moved to a crate of its own, without all others.
//!
//! Not counted: tests in the sources (`#[cfg(test)]`), `mod` declarations, names that a file
//! re-exports and does not use itself, and methods. So parts of one type's `impl` may stand in
//! several files and call each other.

use crate::source::{Module, Written, modules};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// The most files that a circle may have.
const MOST: usize = 6;

/// Crates with larger circles, and the files of the largest one.
const LARGER: [(&str, usize); 1] = [("serac-storage", 15)];

/// Folders, by their crate, whose files are the parts of one recursive type: a statement has
/// queries, a query has expressions, and a query of WITH is a statement.
const ONE_TYPE: [(&str, &str); 1] = [("serac-parser", "tree")];

/// The longest chain of imports that is followed.
const IMPORTS: usize = 16;

/// The names by which one file uses another one, by the modules of both.
pub type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Complaints about circles that are too large, each with the arrows inside it, and about entries
/// of [`LARGER`] that can be lowered.
///
/// # Errors
/// If a file cannot be read.
pub fn check(workspace: &Path) -> io::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for entry in fs::read_dir(workspace.join("crates"))? {
        let (name, src) = entry.map(|entry| (entry.file_name(), entry.path().join("src")))?;
        let name = name.to_string_lossy();
        if !src.join("lib.rs").exists() {
            continue;
        }
        let modules = modules(&src)?;
        let arrows = arrows(&modules);
        let is_one_type = |circle: &BTreeSet<usize>| {
            ONE_TYPE
                .iter()
                .any(|(one, folder)| *one == name && circle.iter().all(|at| modules[*at].file.starts_with(folder)))
        };
        let ceiling = LARGER.iter().find(|(one, _)| *one == name).map_or(MOST, |(_, files)| *files);
        let circles = circles(modules.len(), &arrows).into_iter().filter(|circle| !is_one_type(circle));
        let circles: Vec<_> = circles.collect();
        let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0).max(MOST);
        if largest < ceiling {
            complaints.push(format!("{name}: its largest circle has {largest} files, and LARGER says {ceiling}"));
        }
        let large = circles.iter().filter(|circle| circle.len() > ceiling);
        complaints.extend(large.map(|circle| complaint(&name, ceiling, &modules, &arrows, circle)));
    }
    complaints.sort();
    Ok(complaints)
}

fn complaint(name: &str, ceiling: usize, modules: &[Module], arrows: &Arrows, circle: &BTreeSet<usize>) -> String {
    let mut text =
        format!("{name}: a circle of {} files, of which at most {ceiling} may use each other:", circle.len());
    for ((from, to), names) in arrows {
        if circle.contains(from) && circle.contains(to) {
            let [from, to] = [from, to].map(|module| modules[*module].file.display());
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            text += &format!("\n  {from} -> {to}: {names}");
        }
    }
    text
}

/// The uses between the files of a crate.
pub fn arrows(modules: &[Module]) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, module) in modules.iter().enumerate() {
        let mut add = |path: &[String], to: Option<usize>| {
            if let Some(to) = to.filter(|to| *to != from) {
                arrows.entry((from, to)).or_default().insert(path.last().cloned().unwrap_or_default());
            }
        };
        for path in &module.paths {
            add(path, target(modules, from, path, IMPORTS));
        }
        // A name that is re-exported may be used here, too.
        for (_, path) in module.passed_on.iter().filter(|(name, _)| module.words.contains(name)) {
            add(path, target(modules, from, path, IMPORTS));
        }
        for glob in &module.globs {
            let Some(globbed) = target(modules, from, glob, IMPORTS) else { continue };
            for word in &module.words {
                let path = std::slice::from_ref(word);
                if brings(modules, globbed, word, IMPORTS) {
                    add(path, within(modules, globbed, path, IMPORTS));
                }
            }
        }
    }
    arrows
}

/// Whether a module defines, imports or globs a name.
fn brings(modules: &[Module], module: usize, name: &str, imports: usize) -> bool {
    let here = &modules[module];
    let is_here = here.definitions.contains(name) || here.imports.contains_key(name);
    let is_globbed = |glob: &Written| {
        let Some(imports) = imports.checked_sub(1) else { return false };
        target(modules, module, glob, imports).is_some_and(|globbed| brings(modules, globbed, name, imports))
    };
    is_here || here.globs.iter().any(is_globbed)
}

/// The module that defines the target of a path in module `from`, if it is of this crate.
fn target(modules: &[Module], from: usize, path: &[String], imports: usize) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => within(modules, 0, rest, imports),
        "self" => within(modules, from, rest, imports),
        "super" => {
            let mut above = modules[from].parent?;
            let mut rest = rest;
            while let Some(("super", behind)) = rest.split_first().map(|(first, behind)| (first.as_str(), behind)) {
                above = modules[above].parent?;
                rest = behind;
            }
            within(modules, above, rest, imports)
        }
        first => {
            let module = &modules[from];
            let is_here = module.children.contains_key(first) || module.imports.contains_key(first);
            is_here.then(|| within(modules, from, path, imports))?
        }
    }
}

/// The module that defines the target of a path that is relative to `module`.
fn within(modules: &[Module], module: usize, path: &[String], imports: usize) -> Option<usize> {
    let Some((first, rest)) = path.split_first() else { return Some(module) };
    let here = &modules[module];
    let is_defined = here.definitions.contains(first);
    if let Some(child) = here.children.get(first)
        && !(is_defined && rest.is_empty())
    {
        return within(modules, *child, rest, imports);
    }
    if is_defined {
        return Some(module);
    }
    let imports = imports.checked_sub(1)?;
    let onwards = |import: &Written| {
        let path: Written = import.iter().chain(rest).cloned().collect();
        target(modules, module, &path, imports)
    };
    if let Some(import) = here.imports.get(first) {
        return onwards(import);
    }
    let through_glob = here.globs.iter().find_map(|glob| {
        let globbed = target(modules, module, glob, imports)?;
        brings(modules, globbed, first, imports).then(|| within(modules, globbed, path, imports))?
    });
    // A macro may define an unknown name.
    through_glob.or(Some(module))
}

/// The strongly connected sets of more than one module, by Tarjan's algorithm.
fn circles(modules: usize, arrows: &Arrows) -> Vec<BTreeSet<usize>> {
    let (order, low) = (vec![None; modules], vec![0; modules]);
    let mut search = Search { arrows, order, low, met: 0, open: Vec::new(), found: Vec::new() };
    for module in 0..modules {
        if search.order[module].is_none() {
            search.visit(module);
        }
    }
    search.found
}

struct Search<'a> {
    arrows: &'a Arrows,
    /// The order in which each module was met.
    order: Vec<Option<usize>>,
    /// The earliest module that each one reaches.
    low: Vec<usize>,
    met: usize,
    open: Vec<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, module: usize) {
        self.order[module] = Some(self.met);
        self.low[module] = self.met;
        self.met += 1;
        self.open.push(module);
        for ((_, to), _) in self.arrows.range((module, 0)..(module + 1, 0)) {
            match self.order[*to] {
                None => {
                    self.visit(*to);
                    self.low[module] = self.low[module].min(self.low[*to]);
                }
                Some(order) if self.open.contains(to) => self.low[module] = self.low[module].min(order),
                Some(_) => {}
            }
        }
        if Some(self.low[module]) == self.order[module] {
            let start = self.open.iter().position(|open| *open == module).expect("an open module is there");
            let circle: BTreeSet<usize> = self.open.drain(start..).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(parent: Option<usize>, paths: &[&str]) -> Module {
        let written = |path: &&str| path.split("::").map(str::to_owned).collect::<Written>();
        let paths: Vec<Written> = paths.iter().map(written).collect();
        let imports = paths.iter().map(|path| (path.last().unwrap().clone(), path.clone())).collect();
        Module { parent, imports, paths, ..Module::default() }
    }

    #[test]
    fn names_are_followed_to_their_file() {
        // The root passes `A` on from `a`; `b` takes it from there, and `a` uses `b`.
        let mut root = module(None, &[]);
        root.children = [("a".to_owned(), 1), ("b".to_owned(), 2)].into();
        root.imports = [("A".to_owned(), vec!["a".to_owned(), "A".to_owned()])].into();
        let mut a = module(Some(0), &["super::b::B"]);
        a.definitions = ["A".to_owned()].into();
        let mut b = module(Some(0), &["crate::A"]);
        b.definitions = ["B".to_owned()].into();
        let modules = [root, a, b];
        let arrows = arrows(&modules);
        assert_eq!(arrows.keys().copied().collect::<Vec<_>>(), [(1, 2), (2, 1)]);
        assert_eq!(circles(modules.len(), &arrows), [BTreeSet::from([1, 2])]);
    }
}
