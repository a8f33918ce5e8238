//! The file of measured service times.

use crate::setup::text;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the file's form.
const VERSION: u32 = 1;

/// Service times of one machine, in JSON. Bytes are those of the table as Arrow, before a filter,
/// where the name does not say otherwise.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    pub version: u32,
    /// The machine and the command that have measured them.
    pub machine: String,
    pub command: String,
    pub rows: u64,
    pub row_bytes: f64,
    /// The part of the rows that the measured filter leaves.
    pub selectivity: f64,
    /// Mean bytes of a message, without the filter and with it.
    pub message_bytes: f64,
    pub filtered_message_bytes: f64,
    /// Reading blocks: CPU time of the server.
    pub scan_ns_per_byte: f64,
    /// Testing the filter and making batches of the rows that qualify: CPU time of the server.
    pub filter_ns_per_byte: f64,
    /// Making messages and sending them, the kernel's work among it: CPU time of the server for
    /// each byte that is sent.
    pub encode_ns_per_byte: f64,
    /// Receiving messages and making batches: CPU time of a worker for each byte that is sent.
    pub decode_ns_per_byte: f64,
    /// Adding up a column: CPU time of a worker for each byte that is sent.
    pub merge_ns_per_byte: f64,
    /// A stream of one row: CPU time at either end, and the time from the request to its end.
    pub request_server_us: f64,
    pub request_worker_us: f64,
    pub request_us: f64,
    /// A bare TCP connection over loopback, and the CPU time of both ends together. That is part of
    /// `encode` and `decode`.
    pub loopback_bytes_per_second: f64,
    pub loopback_ns_per_byte: f64,
    /// Memory that a changed row costs while a snapshot keeps its old version.
    pub version_bytes: f64,
}

impl Costs {
    /// Mean bytes of the table that are in a message.
    pub fn message_bytes(&self, is_filtered: bool) -> f64 {
        if is_filtered { self.filtered_message_bytes } else { self.message_bytes }
    }

    /// Costs that say where they are from.
    pub fn of_this_machine() -> Self {
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        Self { version: VERSION, machine: crate::report::machine(), command, ..Self::default() }
    }

    /// Refuses numbers of which a simulation could make nothing.
    pub fn check(self) -> Result<Self, String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, and {VERSION} is wanted", self.version));
        }
        let positive = [
            ("row_bytes", self.row_bytes),
            ("message_bytes", self.message_bytes),
            ("filtered_message_bytes", self.filtered_message_bytes),
            ("encode_ns_per_byte", self.encode_ns_per_byte),
            ("decode_ns_per_byte", self.decode_ns_per_byte),
        ];
        let others = [
            ("selectivity", self.selectivity),
            ("scan_ns_per_byte", self.scan_ns_per_byte),
            ("filter_ns_per_byte", self.filter_ns_per_byte),
            ("merge_ns_per_byte", self.merge_ns_per_byte),
            ("request_server_us", self.request_server_us),
            ("request_worker_us", self.request_worker_us),
            ("request_us", self.request_us),
            ("loopback_bytes_per_second", self.loopback_bytes_per_second),
            ("loopback_ns_per_byte", self.loopback_ns_per_byte),
            ("version_bytes", self.version_bytes),
        ];
        // An hour in nanoseconds, and more bytes than a block has.
        let is_sound = |value: f64| (0.0..=3.6e12).contains(&value);
        let bad = positive.iter().find(|(_, value)| !is_sound(*value) || *value == 0.0);
        match bad.or_else(|| others.iter().find(|(_, value)| !is_sound(*value))) {
            Some((name, value)) => Err(format!("{name} is {value}")),
            None => Ok(self),
        }
    }

    pub fn read(path: &Path) -> Result<Self, String> {
        let said = |error: String| format!("{}: {error}", path.display());
        let content = std::fs::read_to_string(path).map_err(|error| said(text(error)))?;
        serde_json::from_str::<Self>(&content).map_err(text).and_then(Self::check).map_err(said)
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let content = serde_json::to_string_pretty(self).map_err(text)?;
        std::fs::write(path, content + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_makes_no_sense_is_refused() {
        let good = Costs {
            row_bytes: 100.0,
            message_bytes: 1e6,
            filtered_message_bytes: 1e6,
            encode_ns_per_byte: 0.1,
            decode_ns_per_byte: 0.1,
            ..Costs::of_this_machine()
        };
        assert_eq!(good.clone().check(), Ok(good.clone()));
        for (bad, wanted) in [
            (Costs { version: 2, ..good.clone() }, "its version is 2"),
            (Costs { message_bytes: 0.0, ..good.clone() }, "message_bytes is 0"),
            (Costs { encode_ns_per_byte: f64::NAN, ..good.clone() }, "encode_ns_per_byte is NaN"),
            (Costs { scan_ns_per_byte: -1.0, ..good.clone() }, "scan_ns_per_byte is -1"),
            (Costs { request_us: f64::INFINITY, ..good.clone() }, "request_us is inf"),
        ] {
            assert!(bad.check().unwrap_err().starts_with(wanted), "{wanted}");
        }
        let folder = std::env::temp_dir().join(format!("scale-out-{}", std::process::id()));
        good.write(&folder).unwrap();
        assert_eq!(Costs::read(&folder), Ok(good));
        std::fs::write(&folder, "{\"version\": 1}").unwrap();
        assert!(Costs::read(&folder).unwrap_err().contains("missing field"));
        std::fs::remove_file(&folder).unwrap();
        assert!(Costs::read(&folder).unwrap_err().contains("No such file"));
    }
}
