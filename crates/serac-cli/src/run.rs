//! `serac run`: a program beside the data, of a local or a remote database.
//!
//! The job's description is the same everywhere. The place of the job fetches its inputs in one
//! snapshot: from the folder, through the process that has it open, or by Flight SQL from another
//! machine (`--connect`).

use crate::output::{Mode, RowsWriter};
use crate::quoting::identifier;
use crate::{AccessOptions, OpenOptions, check_folder, parse_bytes};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;
use console::Term;
use serac_export::compute::{
    self, ComputeError, Input, Isolation, JobDescription, JobInput, Limits, ProgramStage, StreamFile, StreamFileWriter,
};
use serac_server::folder::{FolderSession, SessionOptions, Sink};
use serac_server::remote::RemoteDatabase;
use std::fs::File;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(clap::Args, Debug)]
pub struct RunArguments {
    /// Folder of the database; left out with --connect.
    #[arg(required_unless_present = "connect", conflicts_with = "connect")]
    path: Option<PathBuf>,
    /// Tables that the program reads, all in one snapshot: 'orders, lineitem(l_quantity, l_tax)'.
    #[arg(long, value_name = "TABLES", default_value = "")]
    snapshot: String,
    /// A query that the program reads, after the tables; may be given several times.
    #[arg(long, value_name = "NAME=SQL")]
    query: Vec<String>,
    /// A file with the description of the job, in place of tables, limits and a program.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["snapshot", "query", "program", "read"])]
    job: Option<PathBuf>,
    /// Fetches the inputs from a server on another machine, by Flight SQL: grpc://HOST:PORT.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "into")]
    connect: Option<String>,
    /// A token for that server; otherwise that of the variable `SERAC_TOKEN`, if there is one.
    #[arg(long, value_name = "TOKEN", requires = "connect")]
    token: Option<String>,
    /// A file or folder that the program may read, as an absolute path; may be given several times.
    #[arg(long, value_name = "PATH")]
    read: Vec<String>,
    /// Seconds of processor time of all its processes.
    #[arg(long, value_name = "SECONDS")]
    cpu: Option<u64>,
    /// Seconds that it may take.
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// Memory of all its processes, such as 512MB.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    memory: Option<usize>,
    /// Bytes of its output.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    output_limit: Option<usize>,
    /// Processes and threads that it may have at a time.
    #[arg(long, value_name = "COUNT")]
    processes: Option<u64>,
    /// Puts the rows into this table, which is made if it is not there.
    #[arg(long, value_name = "TABLE", conflicts_with = "output")]
    into: Option<String>,
    /// Writes the rows to this file, as Arrow.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Shows the description of the job as JSON, and runs nothing.
    #[arg(long)]
    describe: bool,
    /// Says what each stage has used.
    #[arg(long)]
    usage: bool,
    /// Runs the program as any other of this user, where the system cannot isolate it.
    #[arg(long)]
    no_sandbox: bool,
    /// How the rows are shown.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    #[command(flatten)]
    options: OpenOptions,
    #[command(flatten)]
    access: AccessOptions,
    /// The program and its arguments, behind `--`.
    #[arg(last = true, required_unless_present = "job", value_name = "PROGRAM")]
    program: Vec<String>,
}

/// The tables of a list, with their columns.
fn tables(list: &str) -> Result<Vec<JobInput>, String> {
    let mut depth = 0i32;
    let is_between = |c: char| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    };
    let parts: Vec<&str> = list.split(is_between).map(str::trim).filter(|part| !part.is_empty()).collect();
    let table = |part: &str| match part.split_once('(') {
        None => Ok(JobInput::table(part)),
        Some((table, columns)) => {
            let columns = columns.strip_suffix(')').ok_or_else(|| format!("\"{part}\" is no table with columns"))?;
            let columns = columns.split(',').map(|column| folded(column.trim())).collect();
            let table = table.trim();
            Ok(JobInput { name: Some(table.into()), columns: Some(columns), ..JobInput::table(table) })
        }
    };
    parts.into_iter().map(table).collect()
}

/// A name as the catalog has it.
fn folded(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

/// The place of a program: a path, or a name that is looked for in `PATH`.
fn program_path(name: &str) -> Result<String, String> {
    let found = match name.contains('/') {
        true => PathBuf::from(name),
        false => {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| format!("there is no program \"{name}\""))?
        }
    };
    let path = std::path::absolute(&found).map_err(|error| format!("{name}: {error}"))?;
    // A link to a program of the system exists in the sandbox, too. It is kept, because the
    // program's behaviour may depend on its name.
    let is_of_system = ["/usr", "/bin", "/sbin"].iter().any(|folder| path.starts_with(folder));
    let path = if is_of_system { path } else { path.canonicalize().map_err(|error| format!("{name}: {error}"))? };
    path.into_os_string().into_string().map_err(|path| format!("{}: its name is no text", path.display()))
}

impl RunArguments {
    fn description(&self) -> Result<JobDescription, String> {
        if let Some(path) = &self.job {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let job = JobDescription::from_json(&text).map_err(|error| shown(&error))?;
            check_inputs(&job)?;
            return Ok(job);
        }
        let mut inputs = tables(&self.snapshot)?;
        for query in &self.query {
            let (name, query) = query.split_once('=').ok_or_else(|| format!("\"{query}\" is no NAME=SQL"))?;
            inputs.push(JobInput { name: Some(name.into()), query: Some(query.into()), ..JobInput::default() });
        }
        let [name, arguments @ ..] = &self.program[..] else { return Err("a program is wanted behind --".into()) };
        let mut program = ProgramStage::new(program_path(name)?, arguments);
        program.read.clone_from(&self.read);
        let usual = Limits::default();
        let limits = Limits {
            cpu_seconds: self.cpu.unwrap_or(usual.cpu_seconds),
            wall_seconds: self.time.unwrap_or(usual.wall_seconds),
            memory_bytes: self.memory.map_or(usual.memory_bytes, |bytes| bytes as u64),
            output_bytes: self.output_limit.map_or(usual.output_bytes, |bytes| bytes as u64),
            processes: self.processes.unwrap_or(usual.processes),
            ..usual
        };
        let job = JobDescription { limits, ..JobDescription::of_program(program, inputs) };
        job.check().map_err(|error| shown(&error))?;
        check_inputs(&job)?;
        Ok(job)
    }
}

/// Refuses an input that is not a single read-only query. A text of several statements could end
/// the transaction that reads all inputs, and change the database.
fn check_inputs(job: &JobDescription) -> Result<(), String> {
    for input in &job.inputs {
        let query = input.query().map_err(|error| shown(&error))?;
        serac_sql::check_job_input(&query).map_err(|error| format!("{}: {error}", input.name()))?;
    }
    Ok(())
}

/// An error as the shell shows errors.
fn shown(error: &ComputeError) -> String {
    serac_server::job_error(error).to_string()
}

/// Takes the rows of a query into a file in memory.
struct InputSink {
    writer: Option<StreamFileWriter>,
    left: u64,
    error: Option<ComputeError>,
}

impl InputSink {
    fn keep(&mut self, result: Result<(), ComputeError>) -> bool {
        self.error = result.err();
        self.error.is_none()
    }

    fn finish(self) -> Result<StreamFile, ComputeError> {
        match (self.error, self.writer) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.finish(),
            (None, None) => Err(ComputeError::Job("an input is a query, which gives rows".into())),
        }
    }
}

impl Sink for InputSink {
    fn rows(&mut self, schema: &SchemaRef) -> bool {
        let begun = StreamFileWriter::new(schema, self.left).map(|writer| self.writer = Some(writer));
        self.keep(begun)
    }

    fn batch(&mut self, batch: &RecordBatch) -> bool {
        let Some(writer) = &mut self.writer else { unreachable!("the columns come first") };
        let written = writer.write(batch);
        self.keep(written)
    }

    fn complete(&mut self, _tag: &str, _rows: u64, _is_data: bool) {}
}

/// Fetches a job's inputs from a folder, in one snapshot.
async fn inputs_of(session: &mut FolderSession, job: &JobDescription) -> Result<Vec<Input>, String> {
    let mut left = job.limits.input_bytes;
    let mut inputs = Vec::with_capacity(job.inputs.len());
    session
        .execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        .await
        .map_err(|error| error.to_string())?;
    for input in &job.inputs {
        let query = input.query().map_err(|error| shown(&error))?;
        let mut sink = InputSink { writer: None, left, error: None };
        let ran = session.run(&query, &mut sink).await;
        if sink.error.is_none() {
            ran.map_err(|error| format!("{}: {error}", input.name()))?;
        }
        let stream = sink.finish().map_err(|error| shown(&error))?;
        left = left.saturating_sub(stream.len());
        inputs.push(Input { name: input.name().to_owned(), stream });
    }
    session.execute("COMMIT").await.map_err(|error| error.to_string())?;
    Ok(inputs)
}

/// Fetches a job's inputs from a server on another machine, in one snapshot.
async fn inputs_from(database: &mut RemoteDatabase, job: &JobDescription) -> Result<Vec<Input>, String> {
    let mut left = job.limits.input_bytes;
    let mut inputs = Vec::with_capacity(job.inputs.len());
    database.begin().await.map_err(|error| error.to_string())?;
    for input in &job.inputs {
        let query = input.query().map_err(|error| shown(&error))?;
        let mut sink = InputSink { writer: None, left, error: None };
        database.query(&query, &mut sink).await.map_err(|error| format!("{}: {error}", input.name()))?;
        let stream = sink.finish().map_err(|error| shown(&error))?;
        left = left.saturating_sub(stream.len());
        inputs.push(Input { name: input.name().to_owned(), stream });
    }
    database.end().await.map_err(|error| error.to_string())?;
    Ok(inputs)
}

/// Runs the job on a thread of its own, until Ctrl-C; its output.
async fn run_job(job: JobDescription, inputs: Vec<Input>, arguments: &RunArguments) -> Result<StreamFile, String> {
    let isolation = if arguments.no_sandbox { Isolation::None } else { Isolation::Full };
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = cancelled.clone();
    let work = tokio::task::spawn_blocking(move || compute::run(&job, inputs, isolation, &flag));
    tokio::pin!(work);
    let ran = loop {
        tokio::select! {
            ran = &mut work => break ran,
            // Relaxed: a reader only stops.
            _ = tokio::signal::ctrl_c() => cancelled.store(true, Ordering::Relaxed),
        }
    };
    let outcome = ran.map_err(|panic| panic.to_string())?.map_err(|error| shown(&error))?;
    if arguments.usage {
        for stage in &outcome.stages {
            eprintln!(
                "{}: {:.3} s of processor time, {:.3} s, {} bytes of memory at most, {} bytes of output",
                stage.program,
                stage.cpu.as_secs_f64(),
                stage.wall.as_secs_f64(),
                stage.peak_memory,
                stage.output_bytes
            );
        }
    }
    Ok(outcome.output)
}

fn write_file(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<(), String> {
    let failed = |error: String| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(|error| failed(error.to_string()))?;
    let mut writer = FileWriter::try_new_buffered(file, schema).map_err(|error| failed(error.to_string()))?;
    for batch in batches {
        writer.write(batch).map_err(|error| failed(error.to_string()))?;
    }
    let mut file = writer.into_inner().map_err(|error| failed(error.to_string()))?;
    file.flush().map_err(|error| failed(error.to_string()))
}

/// Prints the rows, or loads them into a table.
async fn use_rows(
    output: StreamFile,
    session: Option<&mut FolderSession>,
    arguments: &RunArguments,
) -> Result<(), String> {
    let map = output.map().map_err(|error| shown(&error))?;
    let read = serac_sql::read_job_output(map.as_ref()).map_err(|error| error.to_string());
    let (schema, batches) = read.map_err(|error| format!("the program's output cannot be read: {error}"))?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if let Some(path) = &arguments.output {
        write_file(path, &schema, &batches)?;
        println!("{rows} rows written to {}", path.display());
        return Ok(());
    }
    if let (Some(table), Some(session)) = (&arguments.into, session) {
        let (namespace, name) = match table.split_once('.') {
            Some((schema, table)) => (Some(folded(schema)), folded(table)),
            None => (None, folded(table)),
        };
        let qualified: Vec<String> = namespace.iter().chain([&name]).map(|name| identifier(name)).collect();
        let text = |error: serac_client::wire::Failure| error.to_string();
        session.execute("BEGIN").await.map_err(text)?;
        session.create_table(namespace.as_deref(), &name, &schema).await.map_err(text)?;
        session.set_copy_input(Box::new(Cursor::new(map)));
        let columns: Vec<String> = schema.fields().iter().map(|field| identifier(field.name())).collect();
        let copy = format!("COPY {} ({}) FROM STDIN WITH (FORMAT arrow)", qualified.join("."), columns.join(", "));
        session.execute(&copy).await.map_err(text)?;
        session.execute("COMMIT").await.map_err(text)?;
        println!("{rows} rows put into {table}");
        return Ok(());
    }
    let mut writer = RowsWriter::new(schema, arguments.mode);
    let mut text = writer.start();
    for batch in &batches {
        text.push_str(&writer.rows(batch));
    }
    let term = Term::stdout();
    let size = term.size_checked().filter(|_| term.is_term());
    text.push_str(&writer.finish(size.map(|(_, width)| usize::from(width))));
    // A closed output (head, less) is no error of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Runs a job.
pub fn run(runtime: &tokio::runtime::Runtime, arguments: &RunArguments) -> Result<(), String> {
    let job = arguments.description()?;
    if arguments.describe {
        println!("{}", job.to_json());
        return Ok(());
    }
    compute::check_runnable(&job).map_err(|error| shown(&error))?;
    if let Some(address) = &arguments.connect {
        return runtime.block_on(async {
            let token = arguments.token.clone().or_else(|| std::env::var("SERAC_TOKEN").ok());
            let connected = RemoteDatabase::connect(address, token.as_deref()).await;
            let mut database = connected.map_err(|error| error.to_string())?;
            let inputs = inputs_from(&mut database, &job).await?;
            let output = run_job(job, inputs, arguments).await?;
            use_rows(output, None, arguments).await
        });
    }
    let path = arguments.path.clone();
    path.as_deref().map_or(Ok(()), check_folder)?;
    let database = arguments.options.attach(&path, arguments.access.standalone)?;
    let (role, application) = (arguments.access.user.clone(), "serac run".into());
    let options = SessionOptions { role, application, ..SessionOptions::default() };
    crate::ending::with_session(runtime, &database, options, arguments.access.wait, |mut session| async move {
        let inputs = inputs_of(&mut session, &job).await?;
        let output = run_job(job, inputs, arguments).await?;
        use_rows(output, Some(&mut session), arguments).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tables_may_say_columns() {
        let found = tables("orders, public.lineitem(L_Quantity, \"A b\") ,x").unwrap();
        let queries: Vec<String> = found.iter().map(|input| input.query().unwrap()).collect();
        assert_eq!(
            queries,
            ["SELECT * FROM orders", "SELECT \"l_quantity\", \"A b\" FROM public.lineitem", "SELECT * FROM x"]
        );
        assert!(tables("a(b").is_err());
        assert!(tables("").unwrap().is_empty());
    }
}
