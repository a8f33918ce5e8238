//! `serac operators` and its server, as scripts use them: over a Unix socket, with files of the
//! client's side.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_testing::Process;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn serac() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serac"));
    command.env_remove("SERAC_PASSWORD").env_remove("PGPASSWORD").env_remove("SERAC_USER");
    command
}

/// A server on a Unix socket, and the folder of its clients.
struct Served {
    process: Process,
    folder: PathBuf,
}

impl Served {
    fn new(folder: &Path) -> Self {
        Self::with(folder, &["--operators", "socket"])
    }

    /// With these arguments, including `--operators socket`.
    fn with(folder: &Path, arguments: &[&str]) -> Self {
        let mut server = serac();
        server.args(["serve", "db"]).args(arguments).current_dir(folder).stderr(Stdio::null());
        let mut process = Process::start(&mut server);
        let line = process.line();
        assert!(line.contains("operator language") && line.contains("socket"), "{line}");
        Self { process, folder: folder.to_owned() }
    }

    fn client(&self) -> Command {
        let mut command = serac();
        command.args(["operators", "--connect", "socket"]).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Child {
        self.client().spawn().unwrap()
    }

    fn run(&self, script: &str) -> Output {
        run(&mut self.client(), script)
    }

    /// The output of a script without errors.
    fn shown(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits for the server's end, and says whether that was in order.
    fn ends(&mut self) -> bool {
        self.process.wait().success()
    }

    fn kill(&mut self) {
        self.process.kill();
    }
}

fn run(command: &mut Command, script: &str) -> Output {
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const TABLE: &str = "create(db,\"d\")\ncreate(tbl,\"t\",d,1)\ncreate(col,\"a\",d.t)\n";

/// The scripts of the language's own tests: `NAME.dsl`, `NAME.2.dsl` behind a restart, `.out`, and
/// `NAME.FILE.csv`. A line that ends in `-- error` is refused.
#[test]
fn the_examples_give_what_they_should() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serac-column-language/tests/scripts");
    let all: Vec<PathBuf> = fs::read_dir(&scripts).unwrap().map(|entry| entry.unwrap().path()).collect();
    let name_of = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_first = |name: &String| name.ends_with(".dsl") && name.matches('.').count() == 1;
    let names: Vec<String> = all.iter().map(|path| name_of(path)).filter(is_first).collect();
    assert!(names.len() > 9, "{names:?}");
    for name in names.iter().map(|name| name.strip_suffix(".dsl").unwrap()) {
        let folder = tempfile::tempdir().unwrap();
        for path in &all {
            if let Some(csv) = name_of(path).strip_prefix(&format!("{name}.")).filter(|rest| rest.ends_with(".csv")) {
                fs::copy(path, folder.path().join(csv)).unwrap();
            }
        }
        let mut served = Served::new(folder.path());
        for (i, part) in [name.to_owned(), format!("{name}.2")].iter().enumerate() {
            let Ok(script) = fs::read_to_string(scripts.join(format!("{part}.dsl"))) else { continue };
            let expected = fs::read_to_string(scripts.join(format!("{part}.out"))).unwrap();
            if i > 0 {
                served = Served::new(folder.path());
            }
            let output = served.run(&script);
            let (shown, errors) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(shown.trim(), expected.trim(), "{part}: {errors}");
            let reported: Vec<usize> =
                errors.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()?.parse().ok()).collect();
            let refused = script.lines().enumerate().filter(|(_, line)| line.trim_end().ends_with("-- error"));
            let refused: Vec<usize> = refused.map(|(i, _)| i + 1).collect();
            if !refused.is_empty() {
                assert!(refused.iter().all(|line| reported.contains(line)), "{part}: {refused:?}\n{errors}");
            }
            assert_eq!(output.status.success(), reported.is_empty(), "{part}: {errors}");
            if script.lines().any(|line| line.trim() == "shutdown") {
                assert!(served.ends(), "{part}");
                assert!(!folder.path().join("socket").exists());
            }
        }
    }
}

#[test]
fn errors_have_lines_and_the_script_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path());
    let script =
        format!("{TABLE}\n-- a comment\nload(\"missing.csv\")\nrelational_insert(d.t,5)\nnonsense\nprint(d.t.a)");
    let output = served.run(&script);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "5\n".into()));
    let errors = text(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("line 6: ") && lines[0].contains("missing.csv"), "{errors}");
    assert!(lines[1].starts_with("line 8: "), "{errors}");
    // A script without errors, and one without statements.
    assert_eq!(served.shown("print(d.t.a)\r\n\n"), "5\n");
    assert_eq!(served.shown(""), "");
    // A line that is too long does not reach the server.
    let long = format!("{}\nprint(d.t.a)\n", "x".repeat((1 << 20) + 10));
    let output = served.run(&long);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "5\n".into()));
    assert!(text(&output.stderr).starts_with("line 1: "));
}

#[test]
fn a_bad_row_ends_the_load_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path());
    let rows: String = (0..400_000).map(|i| if i == 1_000 { "x\n".into() } else { format!("{i}\n") }).collect();
    fs::write(folder.path().join("bad.csv"), format!("d.t.a\n{rows}")).unwrap();
    fs::write(folder.path().join("good.csv"), "d.t.a\n1\n2\n").unwrap();
    let script = format!("{TABLE}load(\"bad.csv\")\nload(\"good.csv\")\nprint(d.t.a)\n");
    let output = served.run(&script);
    assert_eq!(text(&output.stdout), "1\n2\n");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("line 4: ") && errors.contains("bad.csv, line 1002"), "{errors}");
    // A load in a batch is refused, and its file skipped.
    let output = served.run("batch_queries()\nload(\"bad.csv\")\nbatch_execute()\nprint(d.t.a)\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("1\n2\n".into(), Some(1)));
}

#[test]
fn many_clients_and_long_scripts_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path());
    served.shown(TABLE);
    let inserts: String = (0..20).map(|i| format!("relational_insert(d.t,{i})\n")).collect();
    served.shown(&inserts);
    let script: String = (0..2_000)
        .map(|i| format!("p=select(d.t.a,{},{})\nv=fetch(d.t.a,p)\nprint(v)\n", i % 20, i % 20 + 1))
        .collect();
    let expected: String = (0..2_000).map(|i| format!("{}\n", i % 20)).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| served.shown(&script))).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), expected);
        }
    });
}

#[test]
fn acknowledged_statements_survive_a_kill_and_unfinished_loads_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::new(folder.path());
    served.shown(&format!("{TABLE}relational_insert(d.t,7)\n"));
    // A load whose client is killed: the file is a pipe that has no end.
    let pipe = folder.path().join("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut client = served.start();
    client.stdin.as_mut().unwrap().write_all(b"load(\"pipe.csv\")\n").unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let rows: String = (0..200_000).map(|i| format!("{i}\n")).collect();
    file.write_all(format!("d.t.a\n{rows}").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(served.shown("print(d.t.a)\n"), "7\n");
    served.kill();
    let served = Served::new(folder.path());
    assert_eq!(served.shown("print(d.t.a)\n"), "7\n");
}

/// Each client sends inserts as fast as they are answered, and prints behind each: a printed line
/// is the acknowledgement. The server is killed in the middle, three times.
#[test]
fn what_clients_were_told_is_there_after_each_kill() {
    const CLIENTS: usize = 3;
    let seed = serac_testing::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    Served::new(folder.path()).shown(&format!("{TABLE}create(idx,d.t.a,sorted,clustered)\nshutdown\n"));
    // By client, how many of its inserts were sent and acknowledged.
    let mut counts = [(0, 0); CLIENTS];
    for round in 0..3 {
        let mut served = Served::new(folder.path());
        let patience = Duration::from_millis(rng.random_range(0..600));
        let waiting = AtomicUsize::new(CLIENTS);
        let told: Vec<(i64, i64)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| served.start()).collect();
            let running: Vec<_> = clients
                .into_iter()
                .zip(counts)
                .enumerate()
                .map(|(number, (mut client, (sent_before, _)))| {
                    let waiting = &waiting;
                    scope.spawn(move || {
                        let mut input = client.stdin.take().unwrap();
                        let mut shown = BufReader::new(client.stdout.take().unwrap()).lines();
                        let _ = input.write_all(b"t=time()\nd=time(t)\n");
                        let (mut last, mut told) = (sent_before, sent_before);
                        loop {
                            let row = number as i64 * 10_000_000 + last;
                            last += 1;
                            let sent = input.write_all(format!("relational_insert(d.t,{row})\nprint(d)\n").as_bytes());
                            match sent.ok().and_then(|()| shown.next()) {
                                Some(Ok(_)) => {
                                    if told == sent_before {
                                        waiting.fetch_sub(1, Ordering::Relaxed);
                                    }
                                    told = last;
                                }
                                _ => break,
                            }
                        }
                        drop(input);
                        client.wait().unwrap();
                        (last, told)
                    })
                })
                .collect();
            let until = Instant::now() + Duration::from_secs(60);
            while waiting.load(Ordering::Relaxed) > 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(patience);
            served.kill();
            running.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let served = Served::new(folder.path());
        let printed = served.shown("print(d.t.a)\n");
        let rows: HashSet<i64> = printed.lines().map(|row| row.parse().unwrap()).collect();
        assert_eq!(rows.len(), printed.lines().count(), "no row is there twice");
        for (number, ((sent, told), count)) in told.into_iter().zip(&mut counts).enumerate() {
            assert!(told > count.0, "client {number} was told of nothing");
            let first = number as i64 * 10_000_000;
            let is_there = |row: i64| rows.contains(&(first + row));
            // A state that an earlier kill left open stays as it was then.
            let missing = (count.0..told).find(|row| !is_there(*row));
            assert_eq!(
                missing, None,
                "client {number}, round {round}, seed {seed}: {count:?}, {sent} sent, {told} told"
            );
            assert!(!(sent..sent + 10).any(is_there));
            *count = (sent, told);
        }
        assert_eq!(served.shown("s=select(d.t.a,0,10000000)\nf=fetch(d.t.a,s)\nm=min(f)\nprint(m)\n"), "0\n");
    }
}

#[test]
fn clients_that_load_one_table_at_once_lose_nothing() {
    const ROWS: i64 = 150_000;
    for index in ["", "create(idx,d.t.a,btree,clustered)\n", "create(idx,d.t.a,sorted,unclustered)\n"] {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::new(folder.path());
        served.shown(&format!("{TABLE}{index}"));
        for client in 0..2 {
            let rows: String = (0..ROWS).map(|row| format!("{}\n", row * 2 + client)).collect();
            fs::write(folder.path().join(format!("{client}.csv")), format!("d.t.a\n{rows}")).unwrap();
        }
        std::thread::scope(|scope| {
            let load = |client: i64| served.shown(&format!("load(\"{client}.csv\")\n"));
            let loads = [scope.spawn(move || load(0)), scope.spawn(move || load(1))];
            loads.into_iter().for_each(|load| drop(load.join().unwrap()));
        });
        let sum = ROWS * (2 * ROWS - 1);
        for access in ["scan", "index"] {
            let script = format!(
                "set(access,{access})\np=select(d.t.a,1000,1100)\nf=fetch(d.t.a,p)\nt=sum(f)\ns=sum(d.t.a)\n\
                 n=min(d.t.a)\nx=max(d.t.a)\nprint(s,n,x,t)\n"
            );
            assert_eq!(served.shown(&script), format!("{sum},0,{},104950\n", 2 * ROWS - 1), "{index}{access}");
        }
    }
}

#[test]
fn clients_encrypt_and_log_in_with_roles() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder.path())
        .output()
        .expect("the command openssl makes the certificate");
    assert!(made.status.success(), "{made:?}");
    let sql = "CREATE SCHEMA d; CREATE TABLE d.t (a INTEGER NOT NULL, b INTEGER NOT NULL); \
        INSERT INTO d.t VALUES (4, 40); ALTER ROLE serac PASSWORD 'secret'; \
        CREATE ROLE writer LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA d TO writer; \
        GRANT INSERT ON d.t TO writer; GRANT SELECT (a) ON d.t TO writer";
    assert!(serac().current_dir(folder.path()).args(["db", "-c", sql]).status().unwrap().success());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let place = format!("socket,{address}");
    let served =
        Served::with(folder.path(), &["--operators", &place, "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let as_user = |tls: &[&str], user: &str, password: &str, script: &str| {
        let mut command = serac();
        command.args(["operators", "--connect", &address, "--user", user]).args(tls).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(command.env("SERAC_PASSWORD", password), script)
    };
    let tls = ["--tls-ca", "cert.pem", "--tls-name", "localhost"];
    let output = as_user(&tls, "writer", "w", "relational_insert(d.t,5,50)\nprint(d.t.a)\nprint(d.t.b)\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("4\n5\n".into(), Some(1)), "{output:?}");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("line 3: ") && errors.contains("permission denied"), "{errors}");
    for (tls, user, password) in [
        (&[][..], "writer", "w"),
        (&["--tls-ca", "cert.pem", "--tls-name", "elsewhere"], "writer", "w"),
        (&tls, "writer", "secret"),
        (&tls, "nobody", "w"),
    ] {
        let output = as_user(tls, user, password, "print(d.t.a)\n");
        assert!(!output.status.success() && output.stdout.is_empty(), "{tls:?} {user}: {output:?}");
    }
    let output = as_user(&tls, "serac", "secret", "print(d.t.b)\nshutdown\n");
    assert!(output.status.success() && text(&output.stdout) == "40\n50\n", "{output:?}");
    drop(served);
}

#[test]
fn shutdown_ends_the_server_and_disconnects_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::new(folder.path());
    let mut idle = served.start();
    // It is connected once it has printed.
    idle.stdin.as_mut().unwrap().write_all(b"info()\nt=time()\nd=time(t)\nprint(d)\n").unwrap();
    let mut shown = BufReader::new(idle.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    let output = served.run(&format!("{TABLE}relational_insert(d.t,3)\nshutdown\nprint(d.t.a)\n"));
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(!folder.path().join("socket").exists());
    assert!(served.ends());
    assert_eq!(idle.wait().unwrap().code(), Some(1));
    let mut errors = String::new();
    idle.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("the server is shutting down"), "{errors}");
    // There is no answer any more.
    assert_eq!(served.run("info()\n").status.code(), Some(1));
    assert_eq!(Served::new(folder.path()).shown("print(d.t.a)\n"), "3\n");
}

#[test]
fn a_database_of_its_own_needs_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let command = || {
        let mut command = serac();
        command.args(["operators", "db"]).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let output = run(&mut command(), &format!("{TABLE}relational_insert(d.t,3)\nshutdown\n"));
    assert!(output.status.success(), "{output:?}");
    let output = run(&mut command(), "print(d.t.a)\nprint(x)\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "3\n".into()), "{output:?}");
}

/// The command `script` gives the client a terminal.
#[test]
fn at_a_terminal_the_graph_of_a_batch_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let batch = "batch_queries()\np=select(d.t.a,0,5)\nf=fetch(d.t.a,p)\ns=sum(f)\nbatch_execute()\ninfo()\nprint(s)\n";
    let statements = format!("{TABLE}relational_insert(d.t,3)\n{batch}");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} operators db", env!("CARGO_BIN_EXE_serac")), "/dev/null"]);
    command.current_dir(folder.path()).env("TERM", "dumb").env("HOME", folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Behind the statements, the end of a terminal's input.
    let shown = text(&run(&mut command, &format!("{statements}\u{4}")).stdout);
    for drawn in ["── level 1 ─", " ┌─── p = select(d.t.a)", " └─┬─ f = fetch(d.t.a, p)", "└─ s = sum(f)"]
    {
        assert!(shown.contains(drawn), "{drawn} in {shown}");
    }
    assert!(shown.contains("database d") && shown.contains("operators> 3"), "{shown}");
    // Through a pipe, the text is as the server sends it.
    let mut command = serac();
    command.args(["operators", "db"]).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let plain = text(&run(&mut command, batch).stdout);
    assert!(plain.contains("level 1") && plain.contains(": p = select(d.t.a), 1 row\n"), "{plain}");
    assert!(!plain.contains('└'), "{plain}");
}

#[test]
fn passwords_and_rights_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "CREATE SCHEMA d; CREATE TABLE d.t (a INTEGER NOT NULL); INSERT INTO d.t VALUES (4); \
        ALTER ROLE serac PASSWORD 'secret'; CREATE ROLE reader LOGIN PASSWORD 'other'; \
        GRANT USAGE ON SCHEMA d TO reader; GRANT SELECT ON d.t TO reader";
    assert!(serac().current_dir(folder.path()).args(["db", "-c", sql]).status().unwrap().success());
    let served = Served::new(folder.path());
    let as_user = |user: &str, password: Option<&str>, script: &str| {
        let mut command = served.client();
        command.args(["--user", user]);
        if let Some(password) = password {
            command.env("SERAC_PASSWORD", password);
        }
        run(&mut command, script)
    };
    for (user, password, said) in [
        ("serac", None, "SERAC_PASSWORD"),
        ("serac", Some("other"), "password authentication failed"),
        ("nobody", Some("secret"), "password authentication failed"),
    ] {
        let output = as_user(user, password, "print(d.t.a)\n");
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
    let script = "print(d.t.a)\nrelational_insert(d.t,5)\ncreate(db,\"e\")\nshutdown\nprint(d.t.a)\n";
    let output = as_user("reader", Some("other"), script);
    assert_eq!((text(&output.stdout), output.status.code()), ("4\n4\n".into(), Some(1)));
    let errors = text(&output.stderr);
    let refused: Vec<&str> = errors.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(refused, ["line 2", "line 3", "line 4"], "{errors}");
    let output = as_user("serac", Some("secret"), "relational_insert(d.t,5)\nprint(d.t.a)\nshutdown\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("4\n5\n".into(), Some(0)), "{output:?}");
}

#[test]
fn nonsense_ends_its_own_connection_only() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path());
    served.shown(&format!("{TABLE}relational_insert(d.t,1)\n"));
    let hello = [&[b'h', 0, 0, 0, 5, 0, 1, 0, 0][..], &[0]].concat();
    let statement = [&[b's', 0, 0, 0, 14][..], &[0, 0, 0, 0, 0, 0, 0, 1], b"info()"].concat();
    let valid = [&hello[..], &statement, &[b'b', 0, 0, 0, 0, b'e', 0, 0, 0, 1, 0]].concat();
    // A generator, so that a failure can be had again.
    let mut state = 42_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let began = Instant::now();
    for round in 0..200 {
        let mut bytes = valid.clone();
        match round % 4 {
            0 => bytes = (0..random() % 64).map(|_| random() as u8).collect(),
            1 => {
                let at = random() as usize % bytes.len();
                bytes[at] = random() as u8;
            }
            2 => bytes.truncate(random() as usize % bytes.len()),
            // A frame that says that it is huge.
            _ => bytes.extend_from_slice(&[b's', 0xff, 0xff, 0xff, random() as u8]),
        }
        let mut socket = UnixStream::connect(folder.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may have ended the connection before all was sent.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match socket.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "round {round}: {bytes:?}"),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(300));
    assert_eq!(served.shown("print(d.t.a)\n"), "1\n");
}
