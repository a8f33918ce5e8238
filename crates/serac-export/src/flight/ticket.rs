//! The content of an endpoint's ticket, as JSON.

use super::request::ScanRequest;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tonic::Status;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ticket {
    #[serde(flatten)]
    pub(super) what: What,
    /// The blocks of the endpoint; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<Range<u32>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// The scan of a held snapshot.
    Lease(u64),
    /// A scan of the state when the stream begins.
    Request(ScanRequest),
}

impl Ticket {
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Status> {
        serde_json::from_slice(bytes)
            .map_err(|error| Status::invalid_argument(format!("this is no ticket of this server: {error}")))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a ticket is plain data")
    }
}
