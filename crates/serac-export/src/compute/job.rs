//! The description of a job, which is JSON: it can be kept in a catalog and moved to another
//! machine.
//!
//! ```json
//! {
//!   "inputs": [
//!     {"table": "lineitem", "columns": ["l_quantity"]},
//!     {"name": "small", "query": "SELECT * FROM orders WHERE o_totalprice < 1000"}
//!   ],
//!   "stages": [
//!     {"program": "/usr/bin/python3", "args": ["/srv/jobs/train.py"], "read": ["/srv/jobs"]}
//!   ],
//!   "limits": {"cpu_seconds": 10, "memory_bytes": 268435456}
//! }
//! ```

use super::error::{ComputeError, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most bytes of a description.
const MAX_TEXT: usize = 32 << 20;
/// The most inputs of a job.
const MAX_INPUTS: usize = 64;
/// The most stages of a job.
const MAX_STAGES: usize = 16;
/// The most arguments, variables and paths of a program, each.
const MAX_WORDS: usize = 1_000;
/// The most bytes of all arguments and variables of a program.
const MAX_WORD_BYTES: usize = 1 << 20;
/// The most bytes of a module of WebAssembly. Nothing can interrupt its compilation.
const MAX_MODULE: usize = 4 << 20;
/// The most processes of a program.
const MAX_PROCESSES: u64 = 4_096;

/// A job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDescription {
    /// The inputs of the first stage, in this order.
    #[serde(default)]
    pub inputs: Vec<JobInput>,
    /// The stages, in this order.
    pub stages: Vec<Stage>,
    /// The limits of each stage.
    #[serde(default)]
    pub limits: Limits,
}

/// A table, or the rows of a query.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobInput {
    /// Its name for the program; by default the table's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A table or view, as SQL names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Columns of the table; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// A query, in place of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

impl JobInput {
    /// All columns of a table.
    pub fn table(name: impl Into<String>) -> Self {
        Self { table: Some(name.into()), ..Self::default() }
    }

    /// The name for the program.
    pub fn name(&self) -> &str {
        self.name.as_deref().or(self.table.as_deref()).unwrap_or("input")
    }

    /// The query that gives the rows.
    ///
    /// # Errors
    /// [`ComputeError::Job`] unless there is either a table or a query.
    pub fn query(&self) -> Result<String> {
        match (&self.table, &self.query, &self.columns) {
            (None, Some(query), None) => Ok(query.clone()),
            (Some(table), None, None) => Ok(format!("SELECT * FROM {table}")),
            (Some(table), None, Some(columns)) if !columns.is_empty() => {
                let columns: Vec<_> =
                    columns.iter().map(|column| format!("\"{}\"", column.replace('"', "\"\""))).collect();
                Ok(format!("SELECT {} FROM {table}", columns.join(", ")))
            }
            _ => Err(ComputeError::Job("an input is a table, with columns perhaps, or a query".to_owned())),
        }
    }
}

/// A part of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "StageText", into = "StageText")]
pub enum Stage {
    /// A program of the machine.
    Program(ProgramStage),
    /// A module of WebAssembly, in its binary form.
    Wasm(Vec<u8>),
}

/// A stage as it is written: the present fields determine its kind.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StageText {
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<bool>,
    /// The module in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    wasm: Option<String>,
}

impl TryFrom<StageText> for Stage {
    type Error = String;

    fn try_from(text: StageText) -> std::result::Result<Self, String> {
        let is_bare = text.args.is_empty() && text.env.is_empty() && text.read.is_empty() && text.system.is_none();
        match (text.program, text.wasm) {
            (Some(program), None) => {
                let StageText { args, env, read, system, .. } = text;
                let system = system.unwrap_or(true);
                Ok(Self::Program(ProgramStage { program, args, env, read, system, arguments: Vec::new() }))
            }
            (None, Some(wasm)) if is_bare => match BASE64_STANDARD.decode(wasm) {
                Ok(module) => Ok(Self::Wasm(module)),
                Err(error) => Err(format!("the module is no base64: {error}")),
            },
            (None, Some(_)) => Err("a module has no arguments, variables or files".to_owned()),
            _ => Err("a stage is either a program or a module (wasm)".to_owned()),
        }
    }
}

impl From<Stage> for StageText {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Program(ProgramStage { program, args, env, read, system, arguments: _ }) => {
                Self { program: Some(program), args, env, read, system: (!system).then_some(false), wasm: None }
            }
            Stage::Wasm(module) => Self { wasm: Some(BASE64_STANDARD.encode(module)), ..Self::default() },
        }
    }
}

/// A program of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramStage {
    /// Its absolute path.
    pub program: String,
    /// Its arguments, without its own name.
    pub args: Vec<String>,
    /// Variables of its environment, beside the few that all have.
    pub env: BTreeMap<String, String>,
    /// Files and folders that it may read, as absolute paths. It finds them under the same paths.
    pub read: Vec<String>,
    /// Whether it may read the system's programs and libraries, such as those in `/usr` and `/lib`.
    pub system: bool,
    /// Further variables for a call of a function.
    arguments: Vec<(String, String)>,
}

impl ProgramStage {
    /// A program with its arguments, and the paths that all programs may read.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            read: Vec::new(),
            system: true,
            arguments: Vec::new(),
        }
    }

    /// Variables that a call of a function adds.
    pub(super) fn arguments(&self) -> &[(String, String)] {
        &self.arguments
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(ComputeError::Job(what));
        let words = || self.args.iter().chain(self.env.keys()).chain(self.env.values()).chain(&self.read);
        if self.args.len().max(self.env.len()).max(self.read.len()) > MAX_WORDS
            || words().map(String::len).sum::<usize>() > MAX_WORD_BYTES
        {
            return wrong(format!("{} has too many arguments, variables or paths", self.program));
        }
        if words().chain([&self.program]).any(|word| word.contains('\0')) {
            return wrong("a word has a zero in it".to_owned());
        }
        let is_place = |path: &str| {
            path.starts_with('/')
                && path.len() > 1
                && !path.split('/').skip(1).any(|part| ["", ".", ".."].contains(&part))
        };
        if let Some(path) = self.read.iter().chain([&self.program]).find(|path| !is_place(path)) {
            return wrong(format!("\"{path}\" is no absolute path in its shortest form"));
        }
        // The sandbox makes these paths itself.
        let is_own = |path: &&String| {
            ["/tmp", "/proc", "/dev"].iter().any(|own| {
                path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || (*own != "/tmp" && rest.starts_with('/')))
            })
        };
        if let Some(path) = self.read.iter().find(is_own) {
            return wrong(format!("\"{path}\" cannot be granted: every program has its own"));
        }
        if let Some(name) =
            self.env.keys().find(|name| name.is_empty() || name.contains('=') || name.starts_with("SERAC_"))
        {
            return wrong(format!("\"{name}\" is no name for a variable"));
        }
        Ok(())
    }
}

/// The limits of each stage of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Seconds of processor time of all its processes.
    pub cpu_seconds: u64,
    /// Bytes of memory of all its processes, its inputs not counted.
    pub memory_bytes: u64,
    /// Seconds from its start to its end.
    pub wall_seconds: u64,
    /// Bytes of its output.
    pub output_bytes: u64,
    /// Processes and threads at a time.
    pub processes: u64,
    /// Bytes of files in its `/tmp`.
    pub temporary_bytes: u64,
    /// Steps of a module of WebAssembly.
    pub fuel: u64,
    /// Bytes of all inputs of the job.
    pub input_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_seconds: 60,
            memory_bytes: 1 << 30,
            wall_seconds: 120,
            output_bytes: 256 << 20,
            processes: 64,
            temporary_bytes: 64 << 20,
            fuel: 100_000_000_000,
            input_bytes: 4 << 30,
        }
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let all = [
            ("cpu_seconds", self.cpu_seconds, 1, 7 * 24 * 3_600),
            ("memory_bytes", self.memory_bytes, 1 << 20, 1 << 44),
            ("wall_seconds", self.wall_seconds, 1, 7 * 24 * 3_600),
            ("output_bytes", self.output_bytes, 1, 1 << 36),
            ("processes", self.processes, 1, MAX_PROCESSES),
            ("temporary_bytes", self.temporary_bytes, 4_096, 1 << 40),
            ("fuel", self.fuel, 1, u64::MAX),
            ("input_bytes", self.input_bytes, 1, 1 << 44),
        ];
        match all.into_iter().find(|(_, value, least, most)| !(*least..=*most).contains(value)) {
            Some((name, value, least, most)) => {
                Err(ComputeError::Job(format!("{name} is {value}, and must be {least} to {most}")))
            }
            None => Ok(()),
        }
    }
}

impl JobDescription {
    /// A job of one program.
    pub fn of_program(program: ProgramStage, inputs: Vec<JobInput>) -> Self {
        Self { inputs, stages: vec![Stage::Program(program)], limits: Limits::default() }
    }

    /// Reads a description.
    ///
    /// # Errors
    /// [`ComputeError::Job`].
    pub fn from_json(text: &str) -> Result<Self> {
        if text.len() > MAX_TEXT {
            return Err(ComputeError::Job(format!("its text has more than {MAX_TEXT} bytes")));
        }
        let job: Self = serde_json::from_str(text).map_err(|error| ComputeError::Job(error.to_string()))?;
        job.check()?;
        Ok(job)
    }

    /// Its text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a description is plain data")
    }

    /// Sets the arguments of a call, which programs find as `SERAC_ARGUMENT_1` and so on, as text.
    /// A NULL argument has no variable.
    pub fn set_arguments(&mut self, arguments: &[Option<String>]) {
        for stage in &mut self.stages {
            let Stage::Program(program) = stage else { continue };
            // A variable's value cannot contain a zero byte, and neither can a text of SQL.
            let given = arguments.iter().zip(1..).filter_map(|(text, number)| Some((text.clone()?, number)));
            program.arguments = given.map(|(text, number)| (format!("SERAC_ARGUMENT_{number}"), text)).collect();
        }
    }

    /// Whether it runs programs of the machine, and not WebAssembly alone.
    pub fn runs_programs(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, Stage::Program(_)))
    }

    /// Makes sure that it is within bounds.
    ///
    /// # Errors
    /// [`ComputeError::Job`].
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(ComputeError::Job(what));
        if self.stages.is_empty() || self.stages.len() > MAX_STAGES {
            return wrong(format!("it has {} stages, and must have 1 to {MAX_STAGES}", self.stages.len()));
        }
        if self.inputs.len() > MAX_INPUTS {
            return wrong(format!("it has more than {MAX_INPUTS} inputs"));
        }
        for input in &self.inputs {
            input.query()?;
            if input.name().contains(['\0', '\n']) || input.name().len() > 1_000 {
                return wrong("an input's name cannot be a variable's value".to_owned());
            }
        }
        for stage in &self.stages {
            match stage {
                Stage::Program(program) => program.check()?,
                Stage::Wasm(module) if module.len() > MAX_MODULE => {
                    return wrong(format!("a module has more than {MAX_MODULE} bytes"));
                }
                Stage::Wasm(_) => {}
            }
        }
        self.limits.check()
    }
}
