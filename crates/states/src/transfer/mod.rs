//! A state on its way to another folder, through a pipe.
//!
//! ```text
//!    0   16  "bandsaw-state 1\n"
//!   16    8  length of the header in bytes, least byte first
//!   24       header: a sealed list, names and files of the state
//!            for each file that is sent: length of its name (4 bytes), name, contents
//!            4 zero bytes, "end\n"
//! ```
//!
//! Contents have the length that the header states. The receiver has told which contents it has,
//! so only others are sent.

mod bucket;
mod receive;
mod send;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;

pub use bucket::{OpenBucket, receive_from_bucket, send_to_bucket};
pub use receive::{Received, have, have_in, receive, receive_in};
pub use send::{Sent, send, send_to_folder};

const LAYER: &str = "transfer";
const MAGIC: &[u8; 16] = b"bandsaw-state 1\n";
const END: &[u8; 4] = b"end\n";
/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;
const FORMAT: u64 = 1;

/// The contents that a receiver has, by their hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Have {
    /// BLAKE3 in hexadecimal.
    pub have: BTreeSet<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    id: String,
    manifest: Manifest,
}
