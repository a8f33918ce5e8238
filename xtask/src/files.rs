//! The files of the workspace, as texts.

use std::path::Path;
use std::{fs, io};

/// A file below the workspace.
pub struct File {
    /// Its path below the workspace, with `/` between its parts.
    pub path: String,
    pub text: String,
}

impl File {
    /// The crate that a source file belongs to: `serac-sql` of `crates/serac-sql/src/lib.rs`.
    pub fn crate_name(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path)
    }
}

/// The Rust sources of all crates: libraries, binaries, tests and examples.
///
/// # Errors
/// If a file cannot be read.
pub fn sources(workspace: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for folder in ["crates", "fuzz", "xtask"] {
        read(workspace, folder, "rs", &mut files)?;
    }
    Ok(files)
}

/// The Python sources of all crates.
///
/// # Errors
/// If a file cannot be read.
pub fn python(workspace: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    read(workspace, "crates", "py", &mut files)?;
    read(workspace, "crates", "pyi", &mut files)?;
    Ok(files)
}

/// The Markdown of the repository.
///
/// # Errors
/// If a file cannot be read.
pub fn documents(workspace: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    read(workspace, "", "md", &mut files)?;
    Ok(files)
}

/// Reads the files below `folder` with this extension, in the order of their names. The folder
/// `target` is left out, and so are hidden folders.
fn read(workspace: &Path, folder: &str, extension: &str, files: &mut Vec<File>) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(workspace.join(folder))? {
        let entry = entry?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?.is_dir()));
    }
    names.sort();
    for (name, is_folder) in names {
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if is_folder && name != "target" && !name.starts_with('.') {
            read(workspace, &path, extension, files)?;
        } else if !is_folder && Path::new(&name).extension().is_some_and(|its| its == extension) {
            let text = fs::read_to_string(workspace.join(&path))
                .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_file_belongs_to_a_crate() {
        let file = |path: &str| File { path: path.to_owned(), text: String::new() };
        assert_eq!(file("crates/serac-sql/src/point/mod.rs").crate_name(), "serac-sql");
        assert_eq!(file("xtask/src/main.rs").crate_name(), "xtask");
    }
}
