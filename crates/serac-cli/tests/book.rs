//! The examples of the book (`docs/book`) give the shown output.
//!
//! The `sql` blocks of a chapter run in order, in one fresh database in memory. A `text` block
//! directly behind a `sql` block is the exact output, with its errors. A `sql` block without one
//! must give no error. `sql,ignore` does not run. `docs.rs` has all other blocks.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// A fenced block of a chapter.
#[derive(Debug)]
struct Block {
    /// The line of its first fence, from 1.
    line: usize,
    /// The line of its last fence.
    end: usize,
    language: String,
    text: String,
}

/// An example: a block that runs, and its expected output, if the chapter shows it.
struct Example<'a> {
    block: &'a Block,
    shown: Option<&'a Block>,
}

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src")
}

/// All files of the book, by their paths below `src`, with their texts.
fn files() -> Vec<(String, String)> {
    let mut folders = vec![book()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(book()).unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// The fenced blocks of a chapter.
///
/// # Errors
/// The errors of its fences, each with its line.
fn blocks(text: &str) -> Result<Vec<Block>, Vec<String>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut complaints = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let at = i + 1;
        match (&mut open, line.strip_prefix("```")) {
            (None, Some("")) => complaints.push(format!("line {at}: a block without a language")),
            (None, Some(language)) => {
                open = Some(Block { line: at, end: at, language: language.trim().to_owned(), text: String::new() });
                continue;
            }
            (None, None) if line.trim_start().starts_with("```") => {
                complaints.push(format!("line {at}: an indented block"));
            }
            (None, None) => continue,
            (Some(_), Some("")) => {
                let mut block = open.take().unwrap();
                block.end = at;
                blocks.push(block);
                continue;
            }
            (Some(_), Some(_)) => complaints.push(format!("line {at}: a fence within a block")),
            (Some(block), None) => {
                block.text += line;
                block.text.push('\n');
                continue;
            }
        }
        // Text after a wrong fence may be read wrongly, too.
        break;
    }
    if let Some(block) = open.filter(|_| complaints.is_empty()) {
        complaints.push(format!("line {}: a block without an end", block.line));
    }
    if complaints.is_empty() { Ok(blocks) } else { Err(complaints) }
}

/// The examples among the blocks of a chapter.
///
/// # Errors
/// Texts that belong to no example, each with its line.
fn examples<'a>(text: &str, blocks: &'a [Block]) -> Result<Vec<Example<'a>>, Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut examples: Vec<Example<'a>> = Vec::new();
    let mut complaints = Vec::new();
    for block in blocks {
        match block.language.as_str() {
            "sql" => examples.push(Example { block, shown: None }),
            "text" => {
                let before = examples.last_mut().filter(|example| {
                    let between = lines.get(example.block.end..block.line - 1);
                    example.shown.is_none() && between.is_some_and(|lines| lines.iter().all(|line| line.is_empty()))
                });
                match before {
                    Some(example) => example.shown = Some(block),
                    None => complaints.push(format!("line {}: a text that is no example's output", block.line)),
                }
            }
            _ => {}
        }
    }
    if complaints.is_empty() { Ok(examples) } else { Err(complaints) }
}

/// The shell's output for each of these scripts, in one database; `None` if a script does not come
/// to its end.
fn outputs(scripts: &[&str]) -> Vec<Option<String>> {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" --continue-on-error 2>&1", env!("CARGO_BIN_EXE_serac")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // A mark behind each script, as a statement that is shown, forgotten and never runs.
    let script: String =
        scripts.iter().enumerate().map(|(i, script)| format!("{script}the end of block {i} \\p\n\\r\n")).collect();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // Beside the reader, because both pipes may be full. A shell that ends early reads a part.
        scope.spawn(move || {
            let _ = input.write_all(script.as_bytes());
        });
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    });
    let mut rest = output.as_str();
    let mut outputs = Vec::new();
    for (i, script) in scripts.iter().enumerate() {
        let mark = format!("the end of block {i}\nQuery buffer reset (cleared).\n");
        let Some((given, behind)) = rest.split_once(mark.as_str()) else {
            outputs.resize(scripts.len(), None);
            break;
        };
        // A statement that is not complete is shown before the mark.
        let is_complete = given.trim_end().lines().last() != script.trim_end().lines().last();
        outputs.push(is_complete.then(|| given.to_owned()));
        rest = behind;
    }
    outputs
}

/// The number of examples of a chapter that run, and its errors.
fn check(text: &str) -> (usize, Vec<String>) {
    let blocks = match blocks(text) {
        Ok(blocks) => blocks,
        Err(complaints) => return (0, complaints),
    };
    let examples = match examples(text, &blocks) {
        Ok(examples) => examples,
        Err(complaints) => return (0, complaints),
    };
    // Counted in another way, so that no block is passed over.
    let (fences, written) = text.lines().fold((0, 0), |(fences, written), line| {
        (fences + usize::from(line.contains("```")), written + usize::from(line.trim() == "```sql"))
    });
    let mut complaints = Vec::new();
    if fences != 2 * blocks.len() {
        complaints.push(format!("{fences} fences, of which {} blocks were made", blocks.len()));
    }
    if written != examples.len() {
        complaints.push(format!("{written} blocks of SQL, of which {} would run", examples.len()));
    }
    if examples.is_empty() {
        return (0, complaints);
    }
    let scripts: Vec<&str> = examples.iter().map(|example| example.block.text.as_str()).collect();
    for (example, output) in examples.iter().zip(outputs(&scripts)) {
        let at = example.block.line;
        match (output, example.shown) {
            (None, _) => complaints.push(format!("line {at}: the example does not come to its end")),
            (Some(output), Some(shown)) if output != shown.text => {
                complaints.push(format!("line {}: shown\n{}but the shell gives\n{output}", shown.line, shown.text));
            }
            (Some(output), None) if output.lines().any(|line| line.starts_with("ERROR ")) => {
                complaints.push(format!("line {at}: the shell gives\n{output}"));
            }
            (Some(_), _) => {}
        }
    }
    (examples.len(), complaints)
}

#[test]
fn examples_give_what_is_shown() {
    let mut complaints = Vec::new();
    let (mut chapters, mut examples) = (0, 0);
    for (name, text) in files() {
        let (run, wrong) = check(&text);
        chapters += usize::from(run > 0);
        examples += run;
        complaints.extend(wrong.iter().map(|complaint| format!("docs/book/src/{name}, {complaint}")));
    }
    println!("{examples} examples in {chapters} chapters");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(chapters > 30 && examples > 80, "{examples} examples in {chapters} chapters");
}

/// The check itself: each kind of mistake is told.
#[test]
fn mistakes_are_told() {
    let sql = |script: &str| format!("# Chapter\n\n```sql\n{script}\n```\n");
    let shown = |script: &str, text: &str| format!("{}\n```text\n{text}\n```\n", sql(script));
    let one = "┌───┐\n│ a │\n╞═══╡\n│ 1 │\n└───┘\n(1 row)";
    assert_eq!(check(&shown("SELECT 1 AS a;", one)), (1, Vec::new()));
    let error = "ERROR 42601: syntax error at or near \"SELEC\"\nLINE 1: SELEC 1\n        ^";
    assert_eq!(check(&shown("SELEC 1;", error)), (1, Vec::new()));
    let wrong = [
        (shown("SELECT 2 AS a;", one), "line 7: shown"),
        (sql("SELEC 1;"), "line 3: the shell gives\nERROR 42601"),
        (sql("SELECT 1"), "line 3: the example does not come to its end"),
        (sql("SELECT 'one;"), "line 3: the example does not come to its end"),
        (sql("\\q"), "line 3: the example does not come to its end"),
        ("```text\nno example\n```\n".to_owned(), "line 1: a text that is no example's output"),
        (format!("{}\nWords.\n\n```text\nx\n```\n", sql("SELECT 1;")), "line 9: a text that is no example's output"),
        ("```sql\nSELECT 1;\n".to_owned(), "line 1: a block without an end"),
        ("```\nSELECT 1;\n```\n".to_owned(), "line 1: a block without a language"),
        ("- item\n\n  ```sql\n  SELECT 1;\n  ```\n".to_owned(), "line 3: an indented block"),
        ("```sql\nSELECT 1;\n```sql\nSELECT 1;\n```\n".to_owned(), "line 3: a fence within a block"),
    ];
    for (chapter, complaint) in wrong {
        let complaints = check(&chapter).1;
        assert!(complaints.first().is_some_and(|first| first.starts_with(complaint)), "{chapter}{complaints:?}");
    }
}

/// The targets of a text's links, but for those in code and those to other sites.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        // Every second piece stands between backquotes.
        let prose: String = line.split('`').step_by(2).collect();
        for behind in prose.split("](").skip(1) {
            let target = behind.split(')').next().unwrap();
            if !target.contains("://") {
                links.push(target.to_owned());
            }
        }
    }
    links
}

/// The names by which links know the headings of a text.
fn headings(text: &str) -> BTreeSet<String> {
    let mut headings = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.starts_with('#') {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
            headings.insert(words.chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    headings
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn links_lead_somewhere() {
    let mut complaints = Vec::new();
    let mut count = 0;
    for (name, text) in files() {
        let chapter = plain(&book().join(&name));
        for link in links(&text) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let path = if file.is_empty() { chapter.clone() } else { plain(&chapter.parent().unwrap().join(file)) };
            if !path.exists() {
                complaints.push(format!("{name}: {link} leads nowhere"));
            } else if !heading.is_empty() && !headings(&std::fs::read_to_string(&path).unwrap()).contains(heading) {
                complaints.push(format!("{name}: {link} names no heading"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(count > 200, "{count} links");
}

#[test]
fn the_summary_names_every_chapter() {
    let files = files();
    let summary = &files.iter().find(|(name, _)| name == "SUMMARY.md").unwrap().1;
    let named = links(summary);
    let there: BTreeSet<&str> =
        files.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(named.iter().map(String::as_str).collect::<BTreeSet<_>>(), there);
    assert_eq!(named.len(), there.len(), "a chapter is named twice");
}
