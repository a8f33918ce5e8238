//! CPU time of processes, bytes of interfaces, and figures of servers.

use crate::Result;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Ticks of /proc in a second, on every Linux of today.
const TICKS: f64 = 100.0;
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// Seconds of CPU that a process has used, in steps of 10 ms; 0 if it is not there.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may have spaces: state, and then numbers. These are utime and stime.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// The most memory that a process has had, in MB; 0 if it is not there.
pub fn peak_megabytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1_024 / 1_000_000
}

/// Bytes that an interface has received, which its other end has sent.
pub fn received_bytes(interface: &str) -> Option<u64> {
    let path = Path::new("/sys/class/net").join(interface).join("statistics/rx_bytes");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The body of an HTTP answer with status 200.
pub async fn get(address: SocketAddr, path: &str, token: Option<&str>) -> Result<String> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(HTTP_TIMEOUT, answer).await??;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer in HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") { Ok(body.to_owned()) } else { Err(status.into()) }
}

/// The snapshots that a server holds.
pub async fn snapshots(metrics: SocketAddr, token: Option<&str>) -> Result<u64> {
    let figures = get(metrics, "/metrics", token).await?;
    let line = figures.lines().find_map(|line| line.strip_prefix("serac_snapshots "));
    Ok(line.ok_or("the server does not tell its snapshots")?.trim().parse()?)
}
