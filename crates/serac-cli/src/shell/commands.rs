//! Backslash commands.

use super::source::Source;
use super::{Data, Shell, show_error};
use crate::blocks::{Canvas, tables_in, watch};
use crate::output::Mode;
use serac_sql::{Session, TransactionStatus};
use std::fs::File;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The most files that may be nested by \i. Each takes a part of the stack.
const MOST_NESTED: usize = 32;

pub(super) const GREETING: &str = "\
This is the shell of SeracDB. Type SQL, ended by a semicolon, or a command:
  \\?  lists the commands
  \\d  lists tables and views
  \\g  runs what was typed, as a semicolon does
  \\q  quits
";

const HELP: &str = "\
\\d [NAME]        tables and views, or one table, view, index or sequence; \\d+ shows more
\\dt \\dv \\di \\dn \\ds  tables, views, indexes, schemas, sequences
\\du              roles
\\df [PATTERN]    procedures and functions of one's own, or all whose names are like \"to_*\"
\\g [FILE]        run the statement, or the last one again; its result to a file
\\gx [FILE]       the same, a line per column
\\watch [N]       run the statement every N seconds (2), until Ctrl-C; c=COUNT: so many times
\\e [FILE]        edit the statement, or the last one, or a file, and run it
\\p \\r           print, forget the statement that is being typed
\\timing          show how long statements take
\\mode MODE       table, csv, json, markdown, expanded
\\x               expanded on or off
\\pager           show long results a page at a time, or not
\\copy …          COPY, as in SQL; FROM STDIN reads what follows, up to a line \\.
\\i FILE          run a file
\\o [FILE]        write results to a file
\\conninfo        the database, and who one is there
\\blocks [TABLE]  the blocks by state, as a map; \\blocks+ draws it again and again, until Ctrl-C
\\metrics         figures of the database
\\checkpoint      write a checkpoint
\\q               quit
Statements end with a semicolon. Ctrl-C cancels what runs.
";

const TABLES: &str = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
    WHERE table_type <> 'VIEW' AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2";
const VIEWS: &str = "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
    WHERE table_type = 'VIEW' AND table_schema NOT IN ('pg_catalog', 'information_schema') \
    UNION ALL SELECT schemaname, matviewname FROM pg_matviews ORDER BY 1, 2";
const RELATIONS: &str = "SELECT table_schema AS schema, table_name AS name, \
    CASE table_type WHEN 'BASE TABLE' THEN 'table' WHEN 'FOREIGN' THEN 'foreign table' ELSE lower(table_type) END AS type \
    FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') \
    UNION ALL SELECT schemaname, matviewname, 'materialized view' FROM pg_matviews ORDER BY 1, 2";
const ROLES: &str = "SELECT rolname AS role, concat_ws(', ', \
    CASE WHEN rolsuper THEN 'superuser' END, CASE WHEN rolcreaterole THEN 'create role' END, \
    CASE WHEN rolcreatedb THEN 'create DB' END, CASE WHEN NOT rolinherit THEN 'no inheritance' END, \
    CASE WHEN NOT rolcanlogin THEN 'cannot login' END) AS attributes, \
    array_to_string(ARRAY(SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid \
    WHERE m.member = r.oid ORDER BY 1), ', ') AS member_of FROM pg_roles r ORDER BY 1";
const METRICS: &str = "SELECT * FROM serac_metrics";
const SCHEMAS: &str = "SELECT nspname AS schema FROM pg_namespace \
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' ORDER BY 1";
const INDEXES: &str =
    "SELECT index_name AS \"index\", table_name AS \"table\", method, columns FROM serac_indexes ORDER BY 2, 1";
const SEQUENCES: &str = "SELECT sequencename AS sequence, last_value FROM pg_sequences ORDER BY 1";
const PROCEDURES: &str = "SELECT n.nspname AS schema, p.proname AS name, \
    pg_get_function_result(p.oid) AS result, pg_get_function_arguments(p.oid) AS arguments, \
    obj_description(p.oid, 'pg_proc') AS description \
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE ";

/// The query that lists the procedures and functions whose names match a pattern; without one,
/// those that are not built in.
fn procedures(pattern: &str) -> String {
    let condition = match pattern {
        "" => "n.nspname <> 'pg_catalog'".to_owned(),
        pattern => {
            let like = pattern.to_lowercase().replace('_', "\\_").replace('*', "%").replace('?', "_");
            format!("p.proname LIKE '{}'", like.replace('\'', "''"))
        }
    };
    format!("{PROCEDURES}{condition} ORDER BY 1, 2, 4")
}

/// Seconds and, perhaps, how many times, of \watch.
fn watching(argument: &str) -> Result<(f64, Option<usize>), String> {
    let (mut seconds, mut times) = (2.0f64, None);
    for word in argument.split_whitespace() {
        let wrong = || format!("\\watch takes seconds, and c=COUNT, not \"{word}\"");
        match word.split_once('=') {
            Some(("c", count)) => times = Some(count.parse().map_err(|_| wrong())?),
            Some(("i", text)) => seconds = text.parse().map_err(|_| wrong())?,
            None => seconds = word.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        }
    }
    if !(0.0..1e6).contains(&seconds) {
        return Err(format!("\\watch {seconds}: that are no seconds"));
    }
    Ok((seconds, times))
}

/// The state of a switch after a command with this argument. Without an argument the command
/// toggles it.
fn switched(now: bool, argument: &str) -> Result<bool, String> {
    match argument {
        "" => Ok(!now),
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("\"{other}\": on or off")),
    }
}

fn time_of_day() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn metrics(session: &Session) -> String {
    let m = session.database().metrics();
    let mut text = format!(
        "transactions  {} committed, {} rolled back, {} snapshots held\n\
         collector     {} waiting, {} versions unlinked, {:.1} MB of undo\n\
         log           {:.1} MB written, {} syncs\n\
         hot blocks    {:.1} MB, and {:.1} MB of idle halves of huge pages\n",
        m.commits,
        m.aborts,
        m.active_snapshots,
        m.gc_backlog,
        m.gc_unlinked,
        m.undo_bytes as f64 / 1e6,
        m.log_bytes_written as f64 / 1e6,
        m.log_syncs,
        m.block_memory_bytes as f64 / 1e6,
        m.idle_block_memory_bytes as f64 / 1e6,
    );
    for (_, name, table) in &m.tables {
        text.push_str(&format!(
            "table {name}: {} rows, {} blocks ({} frozen, {} with versions), {:.1} MB of hot heaps, {:.1} of it garbage\n",
            table.rows,
            table.blocks,
            table.frozen_blocks,
            table.versioned_blocks,
            table.heap_bytes as f64 / 1e6,
            table.garbage_bytes as f64 / 1e6
        ));
    }
    text
}

/// Lets the user edit a text in the editor of the environment.
fn edited(text: &str, file: Option<&str>) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("\\e: {error}");
    let temporary = tempfile::Builder::new().prefix("serac-").suffix(".sql").tempfile().map_err(failed)?;
    let path = match file {
        Some(file) => file.into(),
        None => {
            std::fs::write(temporary.path(), text).map_err(failed)?;
            temporary.path().to_owned()
        }
    };
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "vi".into());
    // The variable may have arguments.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$0\"")]).arg(&path).status().map_err(failed)?;
    if !status.success() {
        return Err(format!("\\e: {editor} ended with {status}"));
    }
    std::fs::read_to_string(&path).map_err(failed)
}

impl Shell {
    /// Runs a backslash command, which may end a statement; Ok(false) for \q.
    pub(super) async fn command(&mut self, line: &str, statement: String, source: &Source) -> Result<bool, String> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        // The statement of the command: the statement that it ends, or the last one that ran.
        let about = || match statement.is_empty() {
            true if self.last.is_empty() => Err(format!("{name}: there is no statement yet")),
            true => Ok(self.last.clone()),
            false => Ok(statement.clone()),
        };
        match name {
            "\\g" | "\\gx" => {
                let (sql, mode) = (about()?, self.display.mode);
                let output = match argument {
                    "" => None,
                    path => Some(File::create(path).map_err(|e| format!("{path}: {e}"))?),
                };
                if name == "\\gx" {
                    self.display.mode = Mode::Expanded;
                }
                let before = output.map(|file| self.display.output.replace(file));
                let result = self.statement(&sql).await;
                if let Some(before) = before {
                    self.display.output = before;
                }
                self.display.mode = mode;
                return result.map(|()| true);
            }
            "\\watch" => {
                let sql = about()?;
                let (seconds, times) = watching(argument)?;
                self.watch(&sql, seconds, times).await?;
                return Ok(true);
            }
            "\\e" => {
                let file = Some(argument).filter(|file| !file.is_empty());
                let text = edited(&about().map_or(String::new(), |sql| format!("{sql};\n")), file)?;
                self.write(&format!("{}\n", text.trim_end()));
                let edited = Source::text(text);
                let result = Box::pin(self.run_complete(&edited)).await.map_err(|()| String::new());
                if let Some((rest, _)) = edited.incomplete() {
                    source.put_back(&rest);
                }
                return result;
            }
            "\\p" => {
                let text = about()?;
                self.write(&format!("{text}\n"));
                source.put_back(&statement);
                return Ok(true);
            }
            "\\r" => {
                self.write("Query buffer reset (cleared).\n");
                return Ok(true);
            }
            _ if !statement.is_empty() => {
                return Err(format!("{name} cannot stand behind the beginning of a statement"));
            }
            _ => {}
        }
        let of_procedures;
        let listing = match name {
            "\\q" => return Ok(false),
            "\\?" | "\\h" => {
                self.show(HELP);
                return Ok(true);
            }
            "\\timing" => {
                self.display.timing = switched(self.display.timing, argument)?;
                self.write(if self.display.timing { "Timing is on.\n" } else { "Timing is off.\n" });
                return Ok(true);
            }
            "\\pager" => {
                self.display.pager = switched(self.display.pager, argument)?;
                self.write(if self.display.pager { "The pager is on.\n" } else { "The pager is off.\n" });
                return Ok(true);
            }
            "\\x" => {
                let expanded = switched(self.display.mode == Mode::Expanded, argument)?;
                self.display.mode = if expanded { Mode::Expanded } else { Mode::Table };
                self.write(if expanded { "Expanded display is on.\n" } else { "Expanded display is off.\n" });
                return Ok(true);
            }
            "\\mode" => {
                self.display.mode = clap::ValueEnum::from_str(argument, true)
                    .map_err(|_| format!("no mode \"{argument}\": table, csv, json, markdown or expanded"))?;
                return Ok(true);
            }
            "\\o" => {
                self.display.output = match argument {
                    "" => None,
                    path => Some(File::create(path).map_err(|e| format!("{path}: {e}"))?),
                };
                return Ok(true);
            }
            "\\i" => {
                if self.nested == MOST_NESTED {
                    return Err(format!("{argument}: more than {MOST_NESTED} files run one another"));
                }
                let script = std::fs::read_to_string(argument).map_err(|e| format!("{argument}: {e}"))?;
                let data = std::mem::replace(&mut self.data, Data::Script);
                self.nested += 1;
                let result = Box::pin(self.script(&Source::text(script))).await;
                self.nested -= 1;
                self.data = data;
                return result.map_err(|()| String::new());
            }
            "\\conninfo" => {
                let place = match &self.path {
                    Some(path) => format!("The database is the folder {}", path.display()),
                    None => "The database is in memory".to_owned(),
                };
                let holder = match self.session.holder() {
                    Some(holder) => {
                        format!("opened by process {holder}, through which this one ({}) works", std::process::id())
                    }
                    None => format!("opened by this process ({})", std::process::id()),
                };
                let role =
                    self.role.as_ref().map_or("its superuser".into(), |role| format!("the role \"{role}\" there"));
                let state = match self.session.transaction_status() {
                    TransactionStatus::Idle => "",
                    TransactionStatus::Open => ", in a transaction",
                    TransactionStatus::Failed => ", in a transaction that has failed",
                };
                self.write(&format!("{place}, {holder}. You are {role}{state}.\n"));
                return Ok(true);
            }
            "\\checkpoint" => {
                let Some(session) = self.session.here().filter(|_| self.role.is_none()) else {
                    self.sql("CHECKPOINT").await.map_err(|error| show_error(&error, ""))?;
                    return Ok(true);
                };
                let report = session.database().checkpoint().map_err(|e| e.to_string())?;
                let megabytes = report.bytes as f64 / 1e6;
                self.write(&format!("{} tables, {} rows, {megabytes:.1} MB\n", report.tables, report.rows));
                return Ok(true);
            }
            "\\blocks" => {
                let canvas = match &self.display.output {
                    Some(_) => Canvas::PLAIN,
                    None => Canvas::stdout(),
                };
                let map = canvas.draw(&tables_in(&mut self.session, argument).await?);
                self.write(&map);
                return Ok(true);
            }
            "\\blocks+" => {
                watch(&mut self.session, argument).await?;
                return Ok(true);
            }
            "\\metrics" => match self.session.here().filter(|_| self.role.is_none()) {
                Some(session) => {
                    let text = metrics(session);
                    self.write(&text);
                    return Ok(true);
                }
                None => METRICS,
            },
            "\\dt" => TABLES,
            "\\dv" => VIEWS,
            "\\d" | "\\d+" if argument.is_empty() => RELATIONS,
            "\\du" => ROLES,
            "\\df" => {
                of_procedures = procedures(argument);
                &of_procedures
            }
            "\\d" | "\\d+" => {
                let text = self.describe(argument, name == "\\d+").await?;
                self.show(&text);
                return Ok(true);
            }
            "\\di" | "\\dn" | "\\ds" if let Some(session) = self.session.here() => {
                let text = Self::listed(&session.database().catalog(), name);
                self.show(&text);
                return Ok(true);
            }
            "\\dn" => SCHEMAS,
            "\\di" => INDEXES,
            "\\ds" => SEQUENCES,
            other => return Err(format!("unknown command {other}; \\? lists them")),
        };
        self.sql(listing).await.map_err(|error| show_error(&error, listing))?;
        Ok(true)
    }

    /// Runs a statement again and again, until Ctrl-C, an error, or the end of `times` runs.
    async fn watch(&mut self, sql: &str, seconds: f64, times: Option<usize>) -> Result<(), String> {
        let people = self.display.is_for_people();
        let mut done = 0;
        loop {
            if people {
                self.write(&format!("{} (every {seconds} s)\n\n", time_of_day()));
            }
            self.statement(sql).await?;
            done += 1;
            if times.is_some_and(|times| done >= times) {
                return Ok(());
            }
            tokio::select! {
                _ = tokio::signal::ctrl_c() => return Ok(()),
                () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
            }
        }
    }
}
