//! `serac serve`, as a service manager would use it.

use serac_testing::{Process, wait_for, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn serac() -> Command {
    Command::new(env!("CARGO_BIN_EXE_serac"))
}

#[test]
fn it_says_where_it_listens_and_ends_cleanly_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let made =
        serac().arg(&path).args(["-c", "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)"]).status().unwrap();
    assert!(made.success());
    for signal in ["-TERM", "-INT"] {
        let mut child = serac()
            .arg("serve")
            .arg(&path)
            .args(["--flight", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(
            line.starts_with(&format!("serving {} over Arrow Flight at grpc://127.0.0.1:", path.display())),
            "{line}"
        );
        let address = line.split("grpc://").nth(1).unwrap().split(' ').next().unwrap();
        TcpStream::connect(address).unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.trim_end().ends_with("stopped") && log.contains("stopping") && log.contains("ready"), "{log}");
        assert!(log.contains("checkpoint written"), "{log}");
        assert!(TcpStream::connect(address).is_err());
    }
    let rows = serac().arg(&path).args(["--mode", "csv", "-c", "SELECT a FROM t"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&rows.stdout), "a\n1\n");
}

#[test]
fn clients_of_postgresql_are_served_beside_flight() {
    let mut child = serac()
        .args(["serve", "--pg", "127.0.0.1:0", "--flight", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for scheme in ["postgresql://", "grpc://"] {
        let line = lines.next().unwrap().unwrap();
        let address = line.split(scheme).nth(1).unwrap_or_else(|| panic!("{line}")).split(' ').next().unwrap();
        TcpStream::connect(address).unwrap();
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    for (arguments, wanted) in [
        (&["--pg", "0.0.0.0:0"][..], "--passwords"),
        (&["--flight", "0.0.0.0:0", "--token", "x"], "--tls-cert"),
        (&["--flight", "127.0.0.1:0", "--passwords", "/nowhere"], "/nowhere"),
        (&["--pg", "127.0.0.1:0", "--tls-cert", "x"], "--tls-key"),
        (&["--pg", "127.0.0.1:0", "--passwords", "/nowhere"], "/nowhere"),
        (&[], "--pg"),
    ] {
        let output = serac().arg("serve").args(arguments).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(wanted), "{arguments:?}: {output:?}");
    }
}

#[test]
fn unix_sockets_are_named_in_use_and_gone_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, flight) = (folder.path().join(".s.PGSQL.5432"), folder.path().join("flight"));
    let command = || {
        let mut command = serac();
        command.args(["serve", "--pg-socket"]).arg(folder.path()).arg("--flight-socket").arg(&flight);
        command
    };
    // A socket left behind by a server that was killed.
    drop(UnixListener::bind(&socket).unwrap());
    let mut child = command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for path in [&socket, &flight] {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&path.display().to_string()), "{line}");
        UnixStream::connect(path).unwrap();
    }
    let second = command().output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another server answers there"), "{said}");
    assert!(socket.exists() && flight.exists());
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists() && !flight.exists());
    std::fs::write(&flight, "").unwrap();
    let said = command().output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&said).contains("a file that is no socket"));
    assert!(flight.exists());
}

#[test]
fn an_address_that_others_reach_must_be_meant() {
    let output = serac().args(["serve", "--flight", "0.0.0.0:0"]).output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("0.0.0.0 can be reached by other machines") && message.contains("--allow-remote"),
        "{message}"
    );
    let output = serac().args(["serve", "--flight", "nonsense"]).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn locations_of_flight_are_addresses_or_the_server_does_not_start() {
    let many = vec!["grpc://a:1"; 17].join(",");
    for (locations, wanted) in [
        ("http://a:1", "flight_location: \"http://a:1\" is not of the form grpc://host:port"),
        ("grpc://a:1,", "flight_location: \"\" is not of the form"),
        ("", "flight_location: \"\" is not of the form"),
        ("arrow-flight-reuse-connection://", "is not of the form"),
        (many.as_str(), "flight_location: 17 addresses, and there may be 16"),
    ] {
        let output =
            serac().args(["serve", "--flight", "127.0.0.1:0", "--flight-location", locations]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(wanted), "{locations}: {message}");
    }
    let good = "grpc://a:1, grpc+tls://[::1]:2,arrow-flight-reuse-connection://?";
    let output = serac()
        .args(["serve", "--flight", "127.0.0.1:0", "--print-config", "--flight-location", good])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains(&format!("flight_location = \"{good}\" # flag")), "{output:?}");
}

#[test]
fn a_token_is_taken_from_the_argument_or_the_environment_and_must_fit_a_header() {
    for (argument, variable) in [(Some("two words"), None), (None, Some("")), (Some("ü"), Some("good"))] {
        let mut command = serac();
        command.args(["serve", "--flight", "127.0.0.1:0"]).env_remove("SERAC_TOKEN");
        if let Some(token) = argument {
            command.args(["--token", token]);
        }
        if let Some(token) = variable {
            command.env("SERAC_TOKEN", token);
        }
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{argument:?}, {variable:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("visible ASCII"), "{output:?}");
    }
}

/// A server that has been started, and where it listens.
struct Served {
    process: Process,
    addresses: Vec<String>,
}

impl Served {
    fn new(command: &mut Command, schemes: &[&str]) -> Self {
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let address = |scheme: &&str| {
            let line = process.line();
            let rest = line.split(*scheme).nth(1).unwrap_or_else(|| panic!("{line}"));
            rest.split([' ', '/']).next().unwrap().to_owned()
        };
        let addresses = schemes.iter().map(address).collect();
        Self { process, addresses }
    }

    fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(self.addresses.last().unwrap()).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(self) -> (bool, String) {
        let output = self.process.end();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

/// Logs in as a client of PostgreSQL, and sends a statement.
fn send(address: &str, sql: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let mut message = 196_608i32.to_be_bytes().to_vec();
    message.extend_from_slice(b"user\0ada\0\0");
    message.splice(0..0, (message.len() as i32 + 4).to_be_bytes());
    socket.write_all(&message).unwrap();
    say(&mut socket, sql);
    socket
}

/// Sends a statement.
fn say(socket: &mut TcpStream, sql: &str) {
    let mut message = vec![b'Q'];
    message.extend_from_slice(&(sql.len() as i32 + 5).to_be_bytes());
    message.extend_from_slice(sql.as_bytes());
    message.push(0);
    socket.write_all(&message).unwrap();
}

/// The same, and reads the answer; the connection stays open.
fn ask(address: &str, sql: &str) -> (TcpStream, String) {
    let mut socket = send(address, sql);
    // Ready after the login, and after the statement.
    let answer = read_ready(&mut socket, 2);
    (socket, answer)
}

/// The server's messages, up to the `readies`-th ReadyForQuery.
fn read_ready(socket: &mut TcpStream, readies: usize) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while answer.windows(6).filter(|bytes| bytes.starts_with(b"Z\0\0\0\x05")).count() < readies {
        let count = socket.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn metrics_readiness_and_the_log_tell_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serac.toml");
    std::fs::write(
        &config,
        "pg = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nslow_query_ms = 0\nlog_format = \"human\"\n",
    )
    .unwrap();
    let mut command = serac();
    command.arg("serve").arg(folder.path().join("db")).arg("--config").arg(&config);
    let served = Served::new(command.args(["--log-format", "json"]), &["postgresql://", "http://"]);
    assert!(served.get("/live").starts_with("HTTP/1.1 200"));
    assert!(served.get("/ready").ends_with("\r\n\r\nready\n"));
    assert!(served.get("/nothing").starts_with("HTTP/1.1 404"));
    let (_open, answer) = ask(&served.addresses[0], "CREATE TABLE t (a INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)");
    assert!(answer.contains("INSERT 0 1"), "{answer}");
    ask(&served.addresses[0], "INSERT INTO t VALUES (1)");
    ask(&served.addresses[0], "SELECT a FROM t WHERE a = 987654");
    let metrics = served.get("/metrics");
    for line in [
        "serac_transactions_aborted_total{cause=\"23\"} 1",
        "serac_statement_duration_seconds_count{kind=\"insert\"} 2",
        "serac_statement_duration_seconds_count{kind=\"select\"} 1",
        "serac_connections_total 3",
        "serac_table_rows{schema=\"public\",table=\"t\"} 1",
        "serac_index_entries{schema=\"public\",table=\"t\",index=\"t_pkey\"} 1",
        "# TYPE serac_statement_duration_seconds histogram",
    ] {
        assert!(metrics.lines().any(|text| text == line), "{line}: {metrics}");
    }
    let figure = |name: &str| -> f64 {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{name}: {metrics}"));
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert!(figure("serac_blocks{schema=\"public\",table=\"t\",state=\"hot\"}") >= 1.0);
    assert!(figure("serac_wal_bytes_total") > 0.0 && figure("serac_wal_syncs_total") > 0.0);
    assert!(figure("serac_wal_frames_total") >= 2.0 && figure("serac_wal_flush_seconds_total") > 0.0);
    served.signal("-TERM");
    let (success, log) = served.end();
    assert!(success, "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    for message in ["starting", "opened", "ready", "slow statement", "stopping", "checkpoint written"] {
        assert!(messages.contains(&message), "{message}: {log}");
    }
    assert_eq!(messages.last(), Some(&"stopped"));
    let slow = lines.iter().find(|line| line["statement"] == "SELECT a FROM t WHERE a = 987654").unwrap();
    assert!(slow["user"] == "ada" && slow["rows"] == 0 && slow["milliseconds"].as_f64().unwrap() > 0.0, "{slow}");
}

#[test]
fn a_second_signal_ends_at_once_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let mut command = serac();
    command.arg("serve").arg(&path).args(["--pg", "127.0.0.1:0", "--shutdown-timeout", "100s"]);
    let served = Served::new(&mut command, &["postgresql://"]);
    let (_done, answer) = ask(&served.addresses[0], "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (7)");
    assert!(answer.contains("INSERT 0 1"), "{answer}");
    // Runs far longer than the test.
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a (x) WHERE x % 1000003 = 7";
    let busy = send(&served.addresses[0], endless);
    let began = Instant::now();
    let active = || ask(&served.addresses[0], "SELECT query FROM serac_activity WHERE state = 'active'").1;
    wait_for("the statement runs", active, |shown| shown.contains("generate_series(1, 1000"));
    served.signal("-TERM");
    wait_until("the server listens no more", || {
        TcpStream::connect_timeout(&served.addresses[0].parse().unwrap(), Duration::from_secs(1)).is_err()
    });
    served.signal("-INT");
    let (success, log) = served.end();
    assert!(!success && log.trim_end().ends_with("stopped at once, at a second signal"), "{log}");
    assert!(began.elapsed() < Duration::from_secs(60));
    drop(busy);
    let rows = serac().arg(&path).args(["--mode", "csv", "-c", "SELECT a FROM t"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&rows.stdout), "a\n7\n", "{rows:?}");
}

#[test]
fn the_configuration_is_shown_with_its_sources_and_its_faults_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serac.toml");
    std::fs::write(&path, "max_connections = 7\npg = \"127.0.0.1:0\"\n").unwrap();
    let run = |arguments: &[&str], connections: Option<&str>| {
        let mut command = serac();
        command.arg("serve").arg("--config").arg(&path).args(arguments).env_remove("SERAC_TOKEN");
        connections.map(|number| command.env("SERAC_MAX_CONNECTIONS", number));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let source = format!("max_connections = 7 # {}, line 1", path.display());
    for (arguments, variable, line) in [
        (&["--print-config"][..], None, source.as_str()),
        (&["--print-config"], Some("8"), "max_connections = 8 # environment"),
        (&["--print-config", "--max-connections", "9"], Some("8"), "max_connections = 9 # flag"),
        (&["--print-config"], None, "shutdown_timeout = \"5s\" # default"),
        (&["--print-config"], None, "memory_limit = \"half\" # default"),
    ] {
        let (success, out, err) = run(arguments, variable);
        assert!(success && out.lines().any(|text| text == line), "{line}: {out}{err}");
    }
    std::fs::write(&path, "pg = \"127.0.0.1:0\"\n\nmax_conections = 3\n").unwrap();
    let (success, _, err) = run(&[], None);
    assert!(!success && err.contains("line 3: there is no setting \"max_conections\""), "{err}");
    std::fs::write(&path, "pg = \"127.0.0.1:0\"\nstatement_timeout = \"soon\"\n").unwrap();
    let (success, _, err) = run(&[], None);
    assert!(!success && err.contains("line 2: statement_timeout: \"soon\" is no time"), "{err}");
    let (success, _, err) = run(&["--statement-timeout", "1s"], Some("many"));
    assert!(!success && err.contains("SERAC_MAX_CONNECTIONS: \"many\""), "{err}");
}

/// A server on a database, with segments of the log so small that a transaction has many.
fn serve_small_segments(path: &std::path::Path) -> Served {
    let mut command = serac();
    command.arg("serve").arg(path).args(["--pg", "127.0.0.1:0", "--log-segment", "64KB"]);
    Served::new(&mut command, &["postgresql://"])
}

/// The result of a query after the server was killed, in CSV.
fn rows_after_kill(served: Served, path: &std::path::Path, sql: &str) -> String {
    served.signal("-KILL");
    served.end();
    let rows = serac().arg(path).args(["--mode", "csv", "-c", sql]).output().unwrap();
    assert!(rows.status.success(), "{rows:?}");
    String::from_utf8(rows.stdout).unwrap()
}

#[test]
fn what_commits_during_a_checkpoint_is_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    for delay in [10, 30, 60, 100] {
        let path = folder.path().join(format!("db{delay}"));
        let served = serve_small_segments(&path);
        let address = &served.addresses[0];
        // The checkpoint has data to write. The transaction hands parts of itself to the log before
        // it commits.
        let made = "CREATE TABLE other (a INTEGER, b TEXT); CREATE TABLE t (a INTEGER, b TEXT); \
                    INSERT INTO other SELECT x, repeat('o', 100) FROM generate_series(1, 100000) AS g (x)";
        assert!(ask(address, made).1.contains("INSERT 0 100000"));
        let insert = "BEGIN; INSERT INTO t SELECT x, repeat('t', 150) FROM generate_series(1, 60000) AS g (x)";
        let (mut open, answer) = ask(address, insert);
        assert!(answer.contains("INSERT 0 60000"), "{answer}");
        let mut checkpoint = send(address, "CHECKPOINT");
        std::thread::sleep(Duration::from_millis(delay));
        say(&mut open, "COMMIT");
        assert!(read_ready(&mut open, 1).contains("COMMIT"));
        let answer = read_ready(&mut checkpoint, 2);
        assert!(answer.contains("CHECKPOINT"), "{answer}");
        let sql = "SELECT count(*) AS n, sum(a) AS s FROM t";
        assert_eq!(rows_after_kill(served, &path, sql), "n,s\n60000,1800030000\n", "{delay} ms");
    }
}

#[test]
fn rows_copied_into_a_recycled_block_are_what_they_were_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("db"), folder.path().join("rows.csv"));
    let served = serve_small_segments(&path);
    let address = &served.addresses[0];
    ask(address, "CREATE TABLE t (a INTEGER, b BOOLEAN)");
    for value in ["true", "false"] {
        let rows: String = (0..20_100).map(|a| format!("{a},{value}\n")).collect();
        std::fs::write(&file, rows).unwrap();
        let (_, answer) = ask(address, &format!("COPY t FROM '{}'", file.display()));
        assert!(answer.contains("COPY 20100"), "{answer}");
        if value == "true" {
            // The block is given up, and its number is free for the next.
            let (_, answer) = ask(address, "DELETE FROM t");
            assert!(answer.contains("DELETE 20100"), "{answer}");
            let (_, answer) = ask(address, "FREEZE TABLE t");
            assert!(answer.contains("FREEZE TABLE"), "{answer}");
        }
    }
    let sql = "SELECT count(*) AS n, count(*) FILTER (WHERE b) AS t FROM t";
    assert_eq!(rows_after_kill(served, &path, sql), "n,t\n20100,0\n");
}

#[test]
fn queries_have_half_of_the_memory_unless_another_limit_is_said() {
    let shown = |arguments: &[&str]| {
        let mut command = serac();
        command.args(["serve", "--pg", "127.0.0.1:0"]).args(arguments);
        let served = Served::new(&mut command, &["postgresql://"]);
        let (_, answer) = ask(&served.addresses[0], "SELECT 'limit ' || current_setting('memory_limit') || ' bytes'");
        let limit = answer.split_once("limit ").and_then(|(_, rest)| rest.split_once(" bytes"));
        limit.unwrap_or_else(|| panic!("{answer}")).0.to_owned()
    };
    assert_eq!(shown(&["--memory-limit", "64MB"]), "64MB");
    assert_eq!(shown(&["--memory-limit", "0"]), "0");
    let status = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = status.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let megabytes = total.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10;
    let half = shown(&[]);
    let units = [("MB", 0), ("GB", 10), ("TB", 20)];
    let limit = units.iter().find_map(|(unit, shift)| Some(half.strip_suffix(unit)?.parse::<u64>().unwrap() << shift));
    // A cgroup may leave less.
    assert!(limit.is_some_and(|limit| (32..=megabytes / 2).contains(&limit)), "{half} of {megabytes} MB");
}

#[test]
fn functions_keep_to_the_memory_limit_and_the_memory_goes_back() {
    const LIMIT: u64 = 256 << 20;
    /// The memory that functions may hold beside it, plus a server's base: see the book, "Limits".
    const BESIDE: u64 = 320 << 20;
    let mut command = serac();
    command.args(["serve", "--pg", "127.0.0.1:0", "--memory-limit", "256MB", "--threads", "2"]);
    let served = Served::new(&mut command, &["postgresql://"]);
    let address = &served.addresses[0];
    let resident = |field: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", served.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let (_, answer) = ask(
        address,
        "CREATE TABLE t (a INTEGER, s TEXT); \
         INSERT INTO t SELECT x, repeat('some text ', 20) FROM generate_series(1, 100000) AS g (x)",
    );
    assert!(answer.contains("INSERT 0 100000"), "{answer}");
    let before = resident("VmRSS");
    let doubled = (0..40).fold("SELECT s AS x0 FROM t".to_owned(), |inner, level| {
        format!("SELECT x{level} || x{level} AS x{} FROM ({inner}) AS q{level}", level + 1)
    });
    // Each is different, so that none is computed for all.
    let columns: Vec<String> = (0..500).map(|column| format!("max(length(repeat(s, {})))", 900 + column)).collect();
    let columns = columns.join(", ");
    // A cast may give far more than it takes: a number of a document has no exponent.
    let documents = "SELECT max(length((('[' || repeat('1e100000,', 20)) || a || ']')::jsonb::text)) FROM t";
    // Statements that are refused, with the SQLSTATE, and those that are not. "?" allows either:
    // two threads may want more than there is.
    let statements: &[(&str, &str)] = &[
        ("SELECT count(repeat(s, 20000)) FROM t", "53200"),
        ("SELECT length(repeat('x', 1000000000))", "53200"),
        ("SELECT length(repeat('x', 2000000000))", "54000"),
        ("SELECT lpad('x', 2000000000, 'ab')", "54000"),
        ("SELECT sum(length(lpad(s, 1000000, 'ab'))) FROM t", "53200"),
        ("SELECT array_repeat(-0.001, 2147483647)", "54000"),
        ("SELECT count(array_repeat(a, 1000000)) FROM t", "53200"),
        ("SELECT max(length(replace(repeat(s, 100), 'e', repeat('y', 1000)))) FROM t", "53200"),
        ("SELECT max(length(regexp_replace(repeat(s, 100), 'e', repeat('y', 1000), 'g'))) FROM t", "53200"),
        ("SELECT length(concat(repeat('x', 200000000), repeat('y', 200000000)))", "53200"),
        ("SELECT max(length(quote_literal(repeat('''', 200000000))))", "53200"),
        (documents, "53200"),
        ("SELECT count(array_repeat(repeat('x', 2000), 1000)::varchar[]) FROM generate_series(1, 100000)", "?"),
        ("SELECT array_repeat(a, 2000)::text FROM t WHERE a < 10", ""),
        (&doubled, "5"),
        (&columns, ""),
        ("SELECT max(length(lpad(s, 300, 'ab'))) FROM t", ""),
        ("SELECT max(length(repeat('x', 1000000))) FROM t WHERE a < 100", ""),
        ("SELECT count(*) FROM (SELECT repeat('x', 10000000) AS x FROM t) AS q WHERE x IS NOT NULL", ""),
    ];
    for (sql, wanted) in statements {
        let sql = if *sql == columns { format!("SELECT {sql} FROM t WHERE a < 200") } else { (*sql).to_owned() };
        let (_, answer) = ask(address, &sql);
        let shown = &sql[..sql.len().min(120)];
        match *wanted {
            "?" => {}
            "" => assert!(!answer.contains("ERROR"), "{shown}: {}", &answer[answer.len().saturating_sub(300)..]),
            state => assert!(
                answer.contains(&format!("C{state}")),
                "{shown}: {}",
                &answer[answer.len().saturating_sub(300)..]
            ),
        }
        assert!(resident("VmHWM") < before + LIMIT + BESIDE, "{shown}: {} MB", resident("VmHWM") >> 20);
    }
    wait_for("the memory goes back", || resident("VmRSS"), |bytes| *bytes <= before + (96 << 20));
}
