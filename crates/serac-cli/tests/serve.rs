//! `serac serve`, as a service manager would use it.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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
        assert!(String::from_utf8_lossy(&output.stderr).ends_with("stopping\n"), "{output:?}");
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
