//! Transactions beside remote readers, at a small size: every snapshot keeps its promises.

use std::path::Path;
use std::process::Command;

#[test]
fn snapshots_beside_transactions_keep_their_promises() {
    let bench = Path::new(env!("CARGO_BIN_EXE_serac-bench"));
    let folder = std::env::temp_dir().join(format!("serac-remote-reads-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(bench);
    command.args(["remote-reads", "--json", "--sf", "0.01", "--scale", "1", "--seconds", "2", "--turns", "1"]);
    command.args(["--placements", "apart,free", "--durability", "off"]).current_dir(&folder);
    let output = command.arg("--serac").arg(bench.with_file_name("serac")).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("need two processors") {
        eprintln!("left out: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let rows = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<serde_json::Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{said}");
    for row in rows {
        assert_eq!(row["violations"], 0);
        for name in ["alone/s", "beside/s", "Mrows/s", "MB/s", "snapshots", "age p50 ms"] {
            assert!(row[name].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
    }
}
