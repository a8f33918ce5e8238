//! Programs beside the data: their inputs, their outputs, and their isolation.
#![cfg(target_os = "linux")]

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use serac_export::compute::{
    Account, ComputeError, Input, Isolation, JobDescription, JobInput, Limits, Outcome, PassedLimit, ProgramStage,
    Stage, StreamFile, StreamFileWriter, check_runnable, run, run_charged,
};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROWS: i64 = 10_000;

fn batch() -> RecordBatch {
    let numbers = Arc::new((0..ROWS).collect::<Int64Array>());
    let texts = Arc::new((0..ROWS).map(|i| Some(format!("text {i}"))).collect::<StringArray>());
    RecordBatch::try_from_iter([("n", numbers as _), ("t", texts as _)]).unwrap()
}

fn input(name: &str) -> Input {
    let batch = batch();
    let stream =
        StreamFile::write(&batch.schema(), [Ok(batch.slice(0, 4_000)), Ok(batch.slice(4_000, 6_000))], 1 << 30);
    Input { name: name.to_owned(), stream: stream.unwrap() }
}

fn shell(script: &str) -> ProgramStage {
    ProgramStage::new("/bin/sh", ["-c", script])
}

fn perl(script: &str) -> ProgramStage {
    ProgramStage::new("/usr/bin/perl", ["-e", script])
}

fn job(stages: impl IntoIterator<Item = ProgramStage>) -> JobDescription {
    let limits = Limits { cpu_seconds: 5, memory_bytes: 256 << 20, wall_seconds: 20, ..Limits::default() };
    JobDescription { inputs: Vec::new(), stages: stages.into_iter().map(Stage::Program).collect(), limits }
}

fn runs(job: &JobDescription, inputs: Vec<Input>) -> Result<Outcome, ComputeError> {
    run(job, inputs, Isolation::Full, &AtomicBool::new(false))
}

fn text_of(outcome: &Outcome) -> String {
    String::from_utf8_lossy(outcome.output.map().unwrap().as_ref()).into_owned()
}

/// The output of a script.
fn says(script: &str) -> String {
    text_of(&runs(&job([shell(script)]), Vec::new()).unwrap())
}

fn rows_of(outcome: &Outcome) -> Vec<RecordBatch> {
    StreamReader::try_new(outcome.output.map().unwrap().as_ref(), None).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_program_reads_its_input_as_a_file_or_as_standard_input_and_gives_arrow() {
    for script in ["cat", "cat $SERAC_INPUT_1", "cat <&$SERAC_INPUT_1_FD"] {
        let outcome = runs(&job([shell(script)]), vec![input("numbers")]).unwrap();
        let rows = rows_of(&outcome);
        assert_eq!(joined(&rows), batch(), "{script}");
        assert!(outcome.stages[0].output_bytes > 80_000, "{script}: {:?}", outcome.stages);
    }
}

/// The rows of batches, which must be those of the input.
fn joined(batches: &[RecordBatch]) -> RecordBatch {
    let whole = batch();
    let mut from = 0;
    for part in batches {
        assert_eq!(*part, whole.slice(from, part.num_rows()));
        from += part.num_rows();
    }
    whole.slice(0, from)
}

#[test]
fn inputs_have_names_and_nobody_can_write_to_them() {
    let script = "echo $SERAC_INPUTS $SERAC_INPUT_1_NAME $SERAC_INPUT_2_NAME; \
                  (echo x >> $SERAC_INPUT_2) 2>/dev/null && echo written || echo refused";
    let outcome = runs(&job([shell(script)]), vec![input("one"), input("the other")]).unwrap();
    assert_eq!(text_of(&outcome), "2 one the other\nrefused\n");
}

#[test]
fn the_output_of_a_stage_is_the_input_of_the_next() {
    let stages = [shell("cat"), shell("cat $SERAC_INPUT_1"), shell("test $SERAC_INPUTS = 1 && cat")];
    let outcome = runs(&job(stages), vec![input("numbers"), input("others")]).unwrap();
    assert_eq!(joined(&rows_of(&outcome)), batch());
    assert_eq!(outcome.stages.len(), 3);
}

#[test]
fn a_program_that_fails_says_how_and_what_it_wrote_last() {
    let failed = |script| runs(&job([shell(script)]), Vec::new()).unwrap_err();
    match failed("i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3") {
        ComputeError::Failed { how, errors, .. } => {
            assert_eq!(how, "exit code 3");
            assert!(errors.ends_with("line 1999\n") && errors.len() == 4_096, "{} bytes", errors.len());
        }
        other => panic!("{other}"),
    }
    // A fault of the processor, as of a wrong pointer.
    let fault = perl("unpack 'p', pack 'J', 1");
    match runs(&job([fault]), Vec::new()).unwrap_err() {
        error @ ComputeError::Failed { .. } => assert!(error.to_string().contains("signal 11"), "{error}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_program_that_is_not_there_or_cannot_run_is_an_error() {
    for (program, wrong) in
        [("/usr/bin/no-such-program", "No such file"), ("/usr", "no file"), ("/etc/passwd", "denied")]
    {
        let error = runs(&job([ProgramStage::new(program, [""; 0])]), Vec::new()).unwrap_err();
        assert_eq!(error.sqlstate(), "58P01", "{error}");
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

fn limit_of(job: &JobDescription) -> PassedLimit {
    let begun = Instant::now();
    match runs(job, Vec::new()) {
        Err(ComputeError::Limit { limit, .. }) => {
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
            limit
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_hangs_ends_at_its_time() {
    let mut job = job([shell("trap '' TERM INT; sleep 1000 & sleep 1000 & wait")]);
    job.limits.wall_seconds = 1;
    assert_eq!(limit_of(&job), PassedLimit::Wall(1));
}

#[test]
fn a_program_that_computes_for_ever_ends_at_its_processor_time_alone_or_by_many() {
    for script in ["while :; do :; done", "for i in 1 2 3 4; do (while :; do :; done) & done; wait"] {
        let mut job = job([shell(script)]);
        job.limits.cpu_seconds = 1;
        assert_eq!(limit_of(&job), PassedLimit::Cpu(1), "{script}");
    }
}

#[test]
fn processor_time_counts_of_processes_that_nobody_waits_for() {
    // Each ends soon, and its parent is not told how long it ran.
    let script = "$SIG{CHLD} = 'IGNORE'; while (1) { if (!fork) { 1 while (times)[0] < 0.1; exit } wait }";
    let mut job = job([perl(script)]);
    job.limits.cpu_seconds = 1;
    assert_eq!(limit_of(&job), PassedLimit::Cpu(1));
    // Each outlives its parent.
    let script = "while (1) { if (!fork) { exit if fork; 1 while (times)[0] < 0.1; exit } wait; select undef, undef, undef, 0.1 }";
    job.stages = vec![Stage::Program(perl(script))];
    assert_eq!(limit_of(&job), PassedLimit::Cpu(1));
}

#[test]
fn page_tables_and_sockets_count_as_memory() {
    // Pages of zeros take no memory, but their tables do: 7,000 of 4 KiB.
    let tables = "my $size = 14 << 30; my $at = syscall(9, 0, $size, 1, 0x4022, -1, 0); \
                  $at == -1 and exit 3; for my $i (0 .. 6_999) { my $x = unpack 'P1', pack 'J', $at + ($i << 21) } sleep 100";
    // 200 sockets, of which each may hold twice 208 KiB.
    let sockets = "use Socket; my @all; for (1 .. 100) { socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or exit 4; \
                   push @all, $a, $b } sleep 100";
    let mut job = job([]);
    job.limits.memory_bytes = 24 << 20;
    for script in [tables, sockets] {
        if script == sockets || cfg!(target_arch = "x86_64") {
            job.stages = vec![Stage::Program(perl(script))];
            assert_eq!(limit_of(&job), PassedLimit::Memory(24 << 20), "{script}");
        }
    }
}

#[test]
fn addresses_are_bounded() {
    // 1 TiB, read-only, without a reserve of memory.
    let script = "print syscall(9, 0, 1 << 40, 1, 0x4022, -1, 0) == -1 ? 'no' : 'yes'";
    if cfg!(target_arch = "x86_64") {
        assert_eq!(text_of(&runs(&job([perl(script)]), Vec::new()).unwrap()), "no");
    }
}

#[test]
fn a_program_that_allocates_without_end_is_refused_or_ended() {
    let mut job = job([perl("my @all; push @all, 'x' x (1 << 20) while 1")]);
    job.limits.memory_bytes = 64 << 20;
    match runs(&job, Vec::new()).unwrap_err() {
        ComputeError::Limit { limit: PassedLimit::Memory(_), .. } => {}
        ComputeError::Failed { errors, .. } => assert!(errors.contains("Out of memory"), "{errors}"),
        other => panic!("{other}"),
    }
    // No single process has too much (40 MiB each, as Perl keeps a constant and its copy), but all
    // together have.
    let hold = "my $all = q(x) x (20 << 20); sleep 100";
    job.stages = vec![Stage::Program(shell(&format!("for i in 1 2 3 4; do perl -e '{hold}' & done; wait")))];
    assert_eq!(limit_of(&job), PassedLimit::Memory(64 << 20));
}

#[test]
fn memory_that_nobody_counts_is_refused() {
    // MAP_SHARED | MAP_ANONYMOUS, and memfd_create.
    let script = "my $a = syscall(9, 0, 4096, 3, 0x21, -1, 0); print $a == -1 ? 'no ' : 'yes '; \
                  my $n = 'x'; my $b = syscall(319, $n, 0); print $b == -1 ? 'no' : 'yes'";
    if cfg!(target_arch = "x86_64") {
        assert_eq!(text_of(&runs(&job([perl(script)]), Vec::new()).unwrap()), "no no");
    }
}

#[test]
fn a_program_that_writes_without_end_ends_at_its_limit_in_output_and_files() {
    let mut job = job([shell("while :; do cat /bin/sh; done")]);
    job.limits.output_bytes = 8 << 20;
    assert_eq!(limit_of(&job), PassedLimit::Output(8 << 20));
    job.limits.temporary_bytes = 1 << 20;
    job.stages = vec![Stage::Program(shell("cat /usr/bin/* > /tmp/all; echo full >&2; exit 9"))];
    match runs(&job, Vec::new()).unwrap_err() {
        ComputeError::Failed { errors, .. } => assert!(errors.contains("No space left"), "{errors}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_fork_bomb_stays_within_its_processes_and_nothing_of_it_is_left() {
    let mut job = job([shell("bomb() { bomb | bomb & }; bomb; sleep 1000")]);
    job.limits.processes = 30;
    job.limits.wall_seconds = 2;
    let before = processes();
    match runs(&job, Vec::new()).unwrap_err() {
        ComputeError::Limit { .. } | ComputeError::Failed { .. } => {}
        other => panic!("{other}"),
    }
    // Other tests have processes, too; a bomb that lives has more than all of them.
    assert!(processes() < before + 30, "{before} processes became {}", processes());
    let mut counted = self::job([shell("i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; echo all")]);
    counted.limits.processes = 20;
    match runs(&counted, Vec::new()) {
        Err(ComputeError::Failed { errors, .. }) => assert!(errors.contains("fork"), "{errors}"),
        other => panic!("{other:?}"),
    }
}

fn processes() -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|c| c.is_ascii_digit())).count()
}

#[test]
fn what_a_program_has_started_ends_with_it() {
    let marker = format!("86{:03}", std::process::id() % 1_000);
    says(&format!("sleep {marker} & (setsid sleep {marker} &) ; echo done"));
    let is_left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == format!("sleep\0{marker}\0").as_bytes())
    });
    assert!(!is_left);
}

#[test]
fn a_program_sees_no_files_but_the_systems_and_writes_nowhere_but_in_its_own() {
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("secret"), "hidden").unwrap();
    let path = secret.path().display();
    let script = format!(
        "ls / | tr '\\n' ' '; cat {path}/secret 2>/dev/null || echo hidden; \
         for place in / /usr /usr/bin /dev /proc /etc; do (echo x > $place/x) 2>/dev/null && echo wrote to $place; done; \
         echo x > /tmp/x && cat /tmp/x; id -u; cat /etc/shadow 2>/dev/null; cat /proc/1/environ | tr '\\0' '\\n' | grep -c CARGO"
    );
    let said = text_of(&runs(&job([shell(&format!("{script}; true"))]), Vec::new()).unwrap());
    assert!(!said.contains("wrote to") && !said.contains("root:"), "{said}");
    assert!(said.starts_with("bin ") && !said.contains("home") && !said.contains("work"), "{said}");
    assert!(said.ends_with("hidden\nx\n1000\n0\n"), "{said}");
}

#[test]
fn what_is_granted_can_be_read_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(folder.path().join("data"), "granted").unwrap();
    let path = folder.path().display().to_string();
    let mut program = shell(&format!("cat {path}/data; (echo x > {path}/new) 2>/dev/null || echo ' only'"));
    program.read.push(path.clone());
    assert_eq!(text_of(&runs(&job([program.clone()]), Vec::new()).unwrap()), "granted only\n");
    assert!(!folder.path().join("new").exists());
    program.read = vec![format!("{path}/nothing")];
    assert_eq!(runs(&job([program]), Vec::new()).unwrap_err().sqlstate(), "22023");
}

#[test]
fn a_program_has_no_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0) or do {{ print 'no socket'; exit }}; \
         print connect($s, pack_sockaddr_in({port}, inet_aton('127.0.0.1'))) ? 'connected' : 'refused'"
    );
    assert_eq!(text_of(&runs(&job([perl(&script)]), Vec::new()).unwrap()), "no socket");
    // Without the filter's help: its own loopback is the only device.
    assert_eq!(says("cat /proc/net/dev | grep -c :"), "1\n");
}

#[test]
fn a_program_reaches_no_socket_in_a_granted_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("socket");
    let outside = UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    outside.set_nonblocking(true).unwrap();
    let path = path.display();
    let script = format!(
        "use Socket; my $to = pack_sockaddr_un('{path}'); \
         my $made = socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0); \
         print $made ? 'made ' : 'refused '; $made and print send($a, 'x', 0, $to) ? 'sent ' : 'unsent '; \
         socketpair(my $c, my $d, AF_UNIX, SOCK_STREAM, 0) or die; syswrite $c, 'pair '; sysread $d, my $got, 5; print $got; \
         print send($c, 'x', 0, $to) ? 'sent ' : 'unsent '; print connect($c, $to) ? 'connected ' : 'unconnected '; \
         print setsockopt($c, SOL_SOCKET, SO_SNDBUF, pack 'i', 1 << 20) ? 'longer' : 'as long'"
    );
    let mut program = perl(&script);
    program.read.push(folder.path().display().to_string());
    let said = text_of(&runs(&job([program]), Vec::new()).unwrap());
    assert_eq!(said, "refused pair unsent unconnected as long");
    assert!(outside.recv(&mut [0; 8]).is_err(), "something has come");
}

/// An account of so many bytes.
#[derive(Default)]
struct Room {
    most: u64,
    held: AtomicU64,
}

impl Account for Room {
    fn grow(&self, bytes: u64) -> Result<(), ComputeError> {
        if self.held.load(Ordering::SeqCst) + bytes > self.most {
            return Err(ComputeError::Refused { sqlstate: "53200", message: "there is no room".to_owned() });
        }
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Ok(())
    }

    fn shrink(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }
}

#[test]
fn inputs_outputs_and_memory_are_charged_as_long_as_they_are_there() {
    let room = Arc::new(Room { most: 100 << 20, ..Room::default() });
    let account: Arc<dyn Account> = room.clone();
    let held = || room.held.load(Ordering::SeqCst);
    let input = |most: u64, account: &Arc<dyn Account>| {
        let mut writer = StreamFileWriter::charged(&batch().schema(), most, account)?;
        writer.write(&batch())?;
        Ok::<_, ComputeError>(Input { name: "t".to_owned(), stream: writer.finish()? })
    };
    let whole = input(1 << 30, &account).unwrap();
    let bytes = whole.stream.len();
    assert_eq!(held(), bytes);
    let cancelled = AtomicBool::new(false);
    let outcome = run_charged(&job([shell("cat")]), vec![whole], Isolation::Full, &cancelled, &account).unwrap();
    assert_eq!(held(), outcome.output.len(), "the input has gone, and the output is there");
    let map = outcome.output.map().unwrap();
    drop(outcome);
    assert_eq!(held(), map.as_ref().len() as u64);
    drop(map);
    assert_eq!(held(), 0);

    let small: Arc<dyn Account> = Arc::new(Room { most: bytes - 1, ..Room::default() });
    assert_eq!(input(1 << 30, &small).unwrap_err().sqlstate(), "53200");
    match input(bytes - 1, &account).unwrap_err() {
        ComputeError::Limit { limit: PassedLimit::Input(most), .. } => assert_eq!(most, bytes - 1),
        other => panic!("{other}"),
    }
    // Memory, files and output that there is no room for, though they are within the limits.
    for script in [
        "my $all = 'x' x (120 << 20); sleep 100",
        "$| = 1; print 'x' x (1 << 20) for 1 .. 120; sleep 100",
        "open my $f, '>', '/tmp/x'; $f->autoflush(1); print $f 'x' x (1 << 20) for 1 .. 120; sleep 100",
    ] {
        let mut job = job([perl(script)]);
        job.limits.temporary_bytes = 200 << 20;
        let begun = Instant::now();
        let ran = run_charged(&job, Vec::new(), Isolation::Full, &cancelled, &account);
        assert_eq!(ran.unwrap_err().sqlstate(), "53200", "{script}");
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert_eq!(held(), 0, "{script}");
    }
}

#[test]
fn what_cannot_run_is_known_before_it_has_inputs() {
    let state = |job: &JobDescription| check_runnable(job).unwrap_err().sqlstate();
    assert_eq!(state(&job([ProgramStage::new("/usr/bin/no-such-program", [""; 0])])), "58P01");
    let module = JobDescription { stages: vec![Stage::Wasm(Vec::new())], ..job([]) };
    let with_input = JobDescription { inputs: vec![JobInput::table("t")], ..module.clone() };
    if cfg!(feature = "wasm") {
        assert_eq!(state(&module), "22023");
        check_runnable(&with_input).unwrap();
    } else {
        assert_eq!((state(&module), state(&with_input)), ("0A000", "0A000"));
    }
    check_runnable(&job([shell("true")])).unwrap();
}

#[test]
fn a_program_cannot_gain_what_it_does_not_have() {
    let said = says(
        "grep -E 'CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t' | tr '\\n' ' '; \
         (unshare -Ur true || mount -t tmpfs x /tmp || chroot / true) 2>/dev/null || echo refused; ls /proc/self/fd | wc -l",
    );
    assert!(said.contains("CapPrm:0000000000000000 CapEff:0000000000000000"), "{said}");
    assert!(said.contains("NoNewPrivs:1 Seccomp:2"), "{said}");
    // Its three, and the one with which `ls` looks.
    assert!(said.ends_with("refused\n4\n"), "{said}");
}

#[test]
fn a_job_that_is_cancelled_ends_at_once() {
    let (job, cancelled) = (job([shell("sleep 1000 & sleep 1000")]), Arc::new(AtomicBool::new(false)));
    let flag = cancelled.clone();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        flag.store(true, Ordering::Relaxed);
    });
    let begun = Instant::now();
    let error = run(&job, Vec::new(), Isolation::Full, &cancelled).unwrap_err();
    assert_eq!(error.sqlstate(), "57014");
    assert!(begun.elapsed() < Duration::from_secs(5));
    other.join().unwrap();
}

#[test]
fn many_programs_run_beside_each_other() {
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            std::thread::spawn(move || {
                for round in 0..5 {
                    assert_eq!(says(&format!("echo {thread} {round}")), format!("{thread} {round}\n"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn without_isolation_a_program_sees_what_its_user_sees_and_keeps_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "there").unwrap();
    let mut job = job([shell(&format!("cat {}/data", folder.path().display()))]);
    let outcome = run(&job, Vec::new(), Isolation::None, &AtomicBool::new(false)).unwrap();
    assert_eq!(text_of(&outcome), "there");
    job.limits.wall_seconds = 1;
    job.stages = vec![Stage::Program(shell("sleep 1000 & sleep 1000"))];
    let error = run(&job, Vec::new(), Isolation::None, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.sqlstate(), "54000", "{error}");
}

#[test]
fn a_description_is_read_back_and_a_wrong_one_is_refused() {
    let text = r#"{"inputs": [{"table": "t", "columns": ["a", "b\"c"]}, {"name": "q", "query": "SELECT 1"}],
                   "stages": [{"program": "/bin/cat"}], "limits": {"cpu_seconds": 3}}"#;
    let job = JobDescription::from_json(text).unwrap();
    assert_eq!(JobDescription::from_json(&job.to_json()).unwrap(), job);
    assert_eq!(job.inputs[0].query().unwrap(), "SELECT \"a\", \"b\"\"c\" FROM t");
    assert_eq!((job.limits.cpu_seconds, job.limits.processes), (3, 64));
    let wrong = [
        "",
        "{}",
        r#"{"stages": []}"#,
        r#"{"stages": [{"program": "cat"}]}"#,
        r#"{"stages": [{"program": "/bin/../cat"}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "read": ["/proc"]}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "read": ["/dev/sda"]}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "read": ["relative"]}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "env": {"A=B": "c"}}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "args": ["a\u0000b"]}]}"#,
        r#"{"stages": [{"program": "/bin/cat", "colour": "red"}]}"#,
        r#"{"stages": [{"program": "/bin/cat"}], "limits": {"cpu_seconds": 0}}"#,
        r#"{"stages": [{"program": "/bin/cat"}], "limits": {"processes": 100000}}"#,
        r#"{"stages": [{"program": "/bin/cat"}], "inputs": [{}]}"#,
        r#"{"stages": [{"program": "/bin/cat"}], "inputs": [{"table": "t", "query": "SELECT 1"}]}"#,
    ];
    for text in wrong {
        let error = JobDescription::from_json(text).expect_err(text);
        assert_eq!(error.sqlstate(), "22023", "{text}");
    }
}

#[cfg(feature = "wasm")]
mod wasm {
    use super::*;

    #[test]
    fn memory_that_there_is_no_room_for_ends_a_module() {
        let account: Arc<dyn Account> = Arc::new(Room { most: 16 << 20, ..Room::default() });
        let job = job_of(module("(drop (memory.grow (i32.const 1000)))"));
        let ran = run_charged(&job, vec![input("n")], Isolation::Full, &AtomicBool::new(false), &account);
        assert_eq!(ran.unwrap_err().sqlstate(), "53200");
    }

    /// A module with this body of `run`, whose output is its input by default.
    fn module(body: &str) -> Stage {
        let text = format!(
            r#"(module
              (memory (export "memory") 1)
              (global $end (mut i32) (i32.const 1024))
              (func (export "alloc") (param $length i32) (result i32)
                (local $place i32)
                (local.set $place (global.get $end))
                (global.set $end (i32.add (global.get $end) (local.get $length)))
                (drop (memory.grow (i32.add (i32.shr_u (local.get $length) (i32.const 16)) (i32.const 1))))
                (local.get $place))
              (func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))
              (func (export "run") (param $place i32) (param $length i32) (result i64)
                {body}
                (i64.or (i64.shl (i64.extend_i32_u (local.get $place)) (i64.const 32))
                        (i64.extend_i32_u (local.get $length)))))"#
        );
        Stage::Wasm(wat::parse_str(text).unwrap())
    }

    fn job_of(stage: Stage) -> JobDescription {
        JobDescription { stages: vec![stage], ..job([]) }
    }

    #[test]
    fn a_module_gets_its_input_and_gives_its_output_and_may_stand_beside_programs() {
        let outcome = runs(&job_of(module("")), vec![input("numbers")]).unwrap();
        assert_eq!(joined(&rows_of(&outcome)), batch());
        let mut mixed = job([shell("cat"), shell("cat")]);
        mixed.stages.insert(1, module(""));
        assert_eq!(joined(&rows_of(&runs(&mixed, vec![input("numbers")]).unwrap())), batch());
        let kept = JobDescription::from_json(&mixed.to_json()).unwrap();
        assert_eq!(kept, mixed);
        assert!(kept.runs_programs() && !job_of(module("")).runs_programs());
    }

    #[test]
    fn a_module_that_hangs_traps_or_takes_too_much_ends_alone() {
        let error = |body: &str, change: &dyn Fn(&mut Limits)| {
            let mut job = job_of(module(body));
            change(&mut job.limits);
            runs(&job, vec![input("numbers")]).unwrap_err()
        };
        let endless = "(loop $again (br $again))";
        for (change, limit) in [
            (&(|limits: &mut Limits| limits.fuel = 1_000_000) as &dyn Fn(&mut Limits), PassedLimit::Fuel(1_000_000)),
            (&|limits| limits.wall_seconds = 1, PassedLimit::Wall(1)),
            (&|limits| limits.cpu_seconds = 1, PassedLimit::Cpu(1)),
        ] {
            match error(endless, change) {
                ComputeError::Limit { limit: passed, .. } => assert_eq!(passed, limit),
                other => panic!("{other}"),
            }
        }
        for trap in ["unreachable", "(drop (call $deep (i32.const 0)))", "(drop (i32.load (i32.const -4)))"] {
            assert_eq!(error(trap, &|_| {}).sqlstate(), "38000", "{trap}");
        }
        // Memory that is refused: the module's memory stays, and it sees the refusal.
        let grow = "(if (i32.ne (memory.grow (i32.const 60000)) (i32.const -1)) (then unreachable))";
        let outcome = runs(&job_of(module(grow)), vec![input("numbers")]).unwrap();
        assert_eq!(joined(&rows_of(&outcome)), batch());
        // An output outside of its memory, and one that is too long.
        assert_eq!(error("(local.set $place (i32.const -1))", &|_| {}).sqlstate(), "38000");
        assert_eq!(error("", &|limits| limits.output_bytes = 1_000).sqlstate(), "54000");
        let cancelled = AtomicBool::new(true);
        let job = job_of(module(endless));
        assert_eq!(run(&job, vec![input("n")], Isolation::Full, &cancelled).unwrap_err().sqlstate(), "57014");
    }

    #[test]
    fn what_is_no_module_of_this_kind_is_refused() {
        let import = r#"(module (import "host" "call" (func)) (memory (export "memory") 1))"#;
        for module in ["(module)", import, r#"(module (memory (export "memory") 1) (func (export "alloc")))"#] {
            let job = job_of(Stage::Wasm(wat::parse_str(module).unwrap()));
            assert_eq!(runs(&job, vec![input("n")]).unwrap_err().sqlstate(), "22023", "{module}");
        }
        let job = job_of(Stage::Wasm(b"no module".to_vec()));
        assert_eq!(runs(&job, vec![input("n")]).unwrap_err().sqlstate(), "22023");
        assert_eq!(runs(&job_of(module("")), vec![input("a"), input("b")]).unwrap_err().sqlstate(), "22023");
    }
}
