//! Settings of `serac serve`: from flags, from the environment, from a file, in this order.
//!
//! A table lists all settings. A setting `max_connections` is the flag `--max-connections`, the
//! variable `SERAC_MAX_CONNECTIONS` and the key `max_connections` of the file, with the same values
//! in all three.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;

/// An entry of the table of settings.
struct Known {
    name: &'static str,
    /// The placeholder for its value in the help.
    value: &'static str,
    usual: Option<&'static str>,
    help: &'static str,
}

const fn known(name: &'static str, value: &'static str, usual: Option<&'static str>, help: &'static str) -> Known {
    Known { name, value, usual, help }
}

const KNOWN: [Known; 41] = [
    known(
        "pg",
        "ADDRESS",
        None,
        "Where clients of PostgreSQL connect, such as 127.0.0.1:5432 (port 0: any that is free)",
    ),
    known(
        "flight",
        "ADDRESS",
        None,
        "Where the Arrow Flight service listens, such as 127.0.0.1:8815 (port 0: any that is free)",
    ),
    known(
        "pg_socket",
        "FOLDER",
        None,
        "Folder for a Unix socket for clients of PostgreSQL on this machine: FOLDER/.s.PGSQL.5432, with the port of pg. They say it for the host",
    ),
    known(
        "flight_socket",
        "PATH",
        None,
        "A Unix socket for the Arrow Flight service, without TLS: clients on this machine connect to grpc+unix:///PATH",
    ),
    known(
        "operators",
        "ADDRESSES",
        None,
        "Where clients of the operator language connect: a path for a Unix socket, an address such as 127.0.0.1:5555 (port 0: any that is free), or several with commas between them",
    ),
    known(
        "metrics",
        "ADDRESS",
        None,
        "Where /metrics, /ready and /live are answered over HTTP (port 0: any that is free). Where other machines reach it, /metrics wants the token or a superuser's password",
    ),
    known(
        "allow_remote",
        "BOOL",
        Some("false"),
        "Listens also on addresses that other machines reach, although somebody there could read without a password, or what passes between",
    ),
    known(
        "passwords",
        "FILE",
        None,
        "Passwords for pg besides those of roles: a file with a line \"user:password\" for each. Without any password, everybody may connect",
    ),
    known("tls_cert", "FILE", None, "A certificate (PEM) with which pg encrypts; from then on clients must use TLS"),
    known("tls_key", "FILE", None, "The certificate's key (PEM)"),
    known(
        "token",
        "TOKEN",
        None,
        "A token without which the Flight service answers nobody: clients send the header \"authorization: Bearer TOKEN\". Other users of this machine can see the arguments of a process, but not its environment",
    ),
    known(
        "flight_role",
        "ROLE",
        None,
        "The role as which clients of Flight read; without it, the bootstrap role, which may read everything",
    ),
    known(
        "flight_rdma",
        "DEVICE",
        None,
        "An RDMA device (\"any\" for the first) by which clients of Flight may read frozen blocks and have blocks written into their memory; what it moves is not encrypted",
    ),
    known(
        "flight_location",
        "ADDRESSES",
        None,
        "Where clients of Flight are told to read tables, separated by commas: further addresses of this server (grpc://host:port, grpc+tls://host:port), and arrow-flight-reuse-connection://? for the one that they have asked; only that if not said",
    ),
    known("lease", "DURATION", Some("60s"), "How long a flight's snapshot is held for its tickets"),
    known(
        "flight_transaction_timeout",
        "DURATION",
        Some("300s"),
        "How long a transaction of Flight SQL stays open of which nothing is heard",
    ),
    known("max_streams", "NUMBER", Some("256"), "Flight streams at a time"),
    known("max_connections", "NUMBER", Some("1024"), "Connections at a time, for each service"),
    known("max_message", "BYTES", Some("256MB"), "The longest message that a client of PostgreSQL may send"),
    known("login_timeout", "DURATION", Some("60s"), "How long a client may take to say who it is"),
    known(
        "statement_timeout",
        "DURATION",
        Some("0"),
        "How long a statement may take, unless the client sets it; 0 for ever",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "DURATION",
        Some("0"),
        "How long a connection may be idle with a transaction open, unless the client sets it; 0 for ever",
    ),
    known(
        "idle_session_timeout",
        "DURATION",
        Some("0"),
        "How long a connection may be idle, unless the client sets it; 0 for ever",
    ),
    known(
        "work_mem",
        "BYTES",
        Some("0"),
        "Memory of a connection's query, unless the client sets it; 0 for no limit of its own",
    ),
    known("max_work_mem", "BYTES", Some("0"), "The most that a client may set work_mem to; 0 for no bound"),
    known(
        "memory_limit",
        "BYTES",
        Some("half"),
        "Memory for all queries together; beyond it they spill or fail; half: of what the machine, or its cgroup, has; 0 for no limit",
    ),
    known(
        "operators_memory",
        "BYTES",
        Some("8GB"),
        "Memory for the variables of all clients of the operator language together",
    ),
    known(
        "images_memory",
        "BYTES",
        Some("4GB"),
        "Memory into which tables are copied, for all processes together that read them in shared memory",
    ),
    known(
        "programs_memory",
        "BYTES",
        Some("8GB"),
        "Memory for all jobs together: their inputs and outputs, and the programs that run beside the data",
    ),
    known("threads", "NUMBER", Some("0"), "Threads of a query; 0 for as many as there are processors"),
    known(
        "durability",
        "LEVEL",
        Some("full"),
        "When a commit is acknowledged: full (when it is on the disk), relaxed (at once; a crash may lose the last 10 ms or so), off (at once; only a clean end keeps it)",
    ),
    known(
        "freeze_after",
        "DURATION",
        Some("10s"),
        "Blocks that nobody has changed for so long freeze; 0 for only on demand",
    ),
    known(
        "gc_threads",
        "NUMBER",
        Some("0"),
        "Threads of the garbage collector; 0 for one for every two processors, up to 4",
    ),
    known("log_segment", "BYTES", Some("64MB"), "Size of a file of the write-ahead log"),
    known(
        "salvage",
        "BOOL",
        Some("false"),
        "Opens a damaged database with what is whole, and keeps the rest in a folder of its own",
    ),
    known(
        "standalone",
        "BOOL",
        Some("false"),
        "Lets no other process of this machine work through this one by the socket in the database's folder",
    ),
    known(
        "shutdown_timeout",
        "DURATION",
        Some("5s"),
        "How long statements may go on after SIGTERM or SIGINT before they are cancelled",
    ),
    known(
        "checkpoint_at_shutdown",
        "BOOL",
        Some("true"),
        "Writes a checkpoint at the end, so that the next start is quick",
    ),
    known("log_format", "FORMAT", Some("human"), "How the server's log is written to standard error: human or json"),
    known("log_level", "LEVEL", Some("info"), "The least that is logged: error, warn, info, debug or trace"),
    known(
        "slow_query_ms",
        "MILLISECONDS",
        None,
        "Logs statements that take at least so long, with their text but without their parameters; 0 for all",
    ),
];

/// The source of a value.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    Default,
    File(PathBuf, usize),
    Environment,
    Flag,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}, line {line}", path.display()),
            Self::Environment => f.write_str("environment"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// The effective settings: texts with their sources.
#[derive(Clone, Debug)]
pub struct Settings {
    values: HashMap<&'static str, (String, Source)>,
    /// Whether to print the settings and end.
    pub print: bool,
}

/// The flags of `serac serve`.
#[derive(Clone, Debug)]
pub struct Flags {
    config: Option<PathBuf>,
    print: bool,
    values: Vec<(&'static str, String)>,
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |known: &Known| Some((known.name, matches.get_one::<String>(known.name)?.clone()));
        Ok(Self {
            config: matches.get_one::<PathBuf>("config").cloned(),
            print: matches.get_flag("print_config"),
            values: KNOWN.iter().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let config = config.help("A file (TOML) with settings: max_connections = 100. Flags and variables (SERAC_MAX_CONNECTIONS) go before it");
        let print = Arg::new("print_config").long("print-config").action(ArgAction::SetTrue);
        let print = print.help("Shows the settings and where each comes from, and ends");
        KNOWN.iter().fold(command.arg(config).arg(print), |command, known| {
            let help = match known.usual {
                Some(usual) => format!("{} [default: {usual}]", known.help),
                None => known.help.to_owned(),
            };
            // Leaked once for each flag: clap needs static texts.
            let flag: &'static str = known.name.replace('_', "-").leak();
            let arg = Arg::new(known.name).long(flag).value_name(known.value).help(help);
            command.arg(match known.value {
                "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
                _ => arg,
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    // JSON's escapes are TOML's.
    serde_json::Value::from(text).to_string()
}

/// The line of a place in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

impl Settings {
    /// Puts the settings together: flags before the environment before the file.
    ///
    /// # Errors
    /// The error in the file, with its line.
    pub fn new(flags: &Flags, environment: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut values = HashMap::new();
        for known in &KNOWN {
            if let Some(usual) = known.usual {
                values.insert(known.name, (usual.to_owned(), Source::Default));
            }
        }
        if let Some(path) = &flags.config {
            read_file(path, &mut values)?;
        }
        for known in &KNOWN {
            if let Some(value) = environment(&format!("SERAC_{}", known.name.to_uppercase())) {
                values.insert(known.name, (value, Source::Environment));
            }
        }
        for (name, value) in &flags.values {
            values.insert(name, (value.clone(), Source::Flag));
        }
        Ok(Self { values, print: flags.print })
    }

    /// The settings as a file, with the source of each.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for known in &KNOWN {
            let line = match self.values.get(known.name) {
                None => format!("# {} is not set", known.name),
                // The token is secret, even from readers of the settings.
                Some((_, source)) if known.name == "token" => format!("# token is set ({source})"),
                Some((value, source)) => {
                    let plain = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
                    let value = if plain { value.clone() } else { quoted(value) };
                    format!("{} = {value} # {source}", known.name)
                }
            };
            text += &line;
            text.push('\n');
        }
        text
    }

    fn read<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        debug_assert!(KNOWN.iter().any(|known| known.name == name), "{name}");
        let Some((value, source)) = self.values.get(name) else { return Ok(None) };
        parse(value).map(Some).map_err(|error| match source {
            Source::Flag => format!("--{}: {error}", name.replace('_', "-")),
            Source::Environment => format!("SERAC_{}: {error}", name.to_uppercase()),
            source => format!("{source}: {name}: {error}"),
        })
    }

    /// A value as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).map(|(value, _)| value.clone())
    }

    /// A value of a type that is read from text.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, String> {
        self.read(name, |text| text.parse().map_err(|error: T::Err| format!("\"{text}\": {error}")))
    }

    /// A number; `None` for 0.
    pub fn number(&self, name: &str) -> Result<Option<usize>, String> {
        Ok(self.parsed::<usize>(name)?.filter(|number| *number > 0))
    }

    /// Whether a switch is on.
    pub fn switch(&self, name: &str) -> Result<bool, String> {
        let read = |text: &str| match text {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            other => Err(format!("\"{other}\" is neither true nor false")),
        };
        Ok(self.read(name, read)?.unwrap_or_default())
    }

    /// One of these words.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T, String> {
        let read = |text: &str| {
            let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
            let all = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            found.map(|(_, value)| *value).ok_or_else(|| format!("\"{text}\" is none of {}", all()))
        };
        Ok(self.read(name, read)?.unwrap_or(words[0].1))
    }

    /// Bytes; `None` for 0.
    pub fn bytes(&self, name: &str) -> Result<Option<usize>, String> {
        Ok(self.read(name, crate::parse_bytes)?.filter(|bytes| *bytes > 0))
    }

    /// Bytes, or `half` of what this process may have; `None` for 0, and where nothing tells how
    /// much that is.
    pub fn bytes_or_half(&self, name: &str) -> Result<Option<usize>, String> {
        let half = || {
            crate::memory::available().map_or(0, |bytes| {
                // Whole megabytes are easier to read.
                usize::try_from(((bytes / 2) >> 20) << 20).unwrap_or(usize::MAX)
            })
        };
        let read = |text: &str| match text.eq_ignore_ascii_case("half") {
            true => Ok(half()),
            false => crate::parse_bytes(text),
        };
        Ok(self.read(name, read)?.filter(|bytes| *bytes > 0))
    }

    /// A time; `None` for 0.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>, String> {
        Ok(self.read(name, parse_duration)?.filter(|duration| !duration.is_zero()))
    }
}

/// A time with its unit (ms, s, min, h), by default seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let number: f64 = digits.trim().parse().map_err(|_| format!("\"{text}\" is no time"))?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("\"{other}\" is no unit of time: ms, s, min, h")),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| format!("\"{text}\" is no time"))
}

fn read_file(path: &Path, values: &mut HashMap<&'static str, (String, Source)>) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let wrong = |at: usize, message: &str| format!("{}, line {}: {message}", path.display(), line_of(&text, at));
    let entries: HashMap<Spanned<String>, Spanned<toml::Value>> = toml::from_str(&text)
        .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message().trim()))?;
    for (key, value) in entries {
        let at = key.span().start;
        let Some(known) = KNOWN.iter().find(|known| known.name == key.get_ref()) else {
            let message = format!("there is no setting \"{}\" (--print-config shows all)", key.get_ref());
            return Err(wrong(at, &message));
        };
        let value = match value.into_inner() {
            toml::Value::String(value) => value,
            toml::Value::Integer(value) => value.to_string(),
            toml::Value::Float(value) => value.to_string(),
            toml::Value::Boolean(value) => value.to_string(),
            _ => return Err(wrong(at, &format!("{} takes a text, a number or a boolean", known.name))),
        };
        values.insert(known.name, (value, Source::File(path.to_owned(), line_of(&text, at))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serac.toml");
        std::fs::write(&path, file).unwrap();
        let values = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let flags = Flags { config: Some(path), print: false, values };
        let of = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let settings = Settings::new(&flags, of);
        settings.map_err(|error| error.replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_the_file() {
        let file = "# limits\nmax_connections = 7\n\nlease = \"2min\"\nlogin_timeout = 5\nallow_remote = true\n";
        let environment = [("SERAC_LEASE", "1500ms"), ("SERAC_MAX_STREAMS", "3")];
        let settings = settings(file, &environment, &[("max_streams", "4")]).unwrap();
        assert_eq!(settings.number("max_connections"), Ok(Some(7)));
        assert_eq!(settings.duration("lease"), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(settings.duration("login_timeout"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(settings.number("max_streams"), Ok(Some(4)));
        assert_eq!(settings.duration("statement_timeout"), Ok(None));
        assert_eq!(settings.switch("allow_remote"), Ok(true));
        assert_eq!(settings.bytes("max_message"), Ok(Some(256 << 20)));
        let shown = settings.shown();
        for line in
            ["lease = \"1500ms\" # environment", "max_streams = 4 # flag", "threads = 0 # default", "# pg is not set"]
        {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(
            shown
                .lines()
                .any(|line| line.starts_with("max_connections = 7 # ") && line.ends_with("serac.toml, line 2")),
            "{shown}"
        );
        // The shown settings can be read back.
        assert!(toml::from_str::<toml::Table>(&shown).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = |file: &str| settings(file, &[], &[]).unwrap_err();
        assert_eq!(
            wrong("pg = \"x\"\n\nmax_conections = 3\n"),
            "serac.toml, line 3: there is no setting \"max_conections\" (--print-config shows all)"
        );
        assert!(wrong("pg = \n").starts_with("serac.toml, line 1: "));
        assert_eq!(wrong("\npg = [1]"), "serac.toml, line 2: pg takes a text, a number or a boolean");
        let values = settings("lease = \"soon\"", &[("SERAC_MAX_STREAMS", "many")], &[("durability", "some")]).unwrap();
        assert_eq!(
            values.duration("lease").unwrap_err().split_once("serac.toml").unwrap().1,
            ", line 1: lease: \"soon\" is no time"
        );
        assert!(values.number("max_streams").unwrap_err().starts_with("SERAC_MAX_STREAMS: \"many\": "));
        assert_eq!(
            values.word("durability", &[("full", 1), ("off", 2)]).unwrap_err(),
            "--durability: \"some\" is none of full, off"
        );
    }
}
