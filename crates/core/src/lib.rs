//! The parts that every layer of [Bandsaw](https://docs.rs/bandsaw) needs: devices of bytes and folders of them,
//! errors, progress, codecs, encrypted images, and contents that macOS stores compressed.
//!
//! Programs use it through `bandsaw` or `bandsaw-fs`, which export what they need of it.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod codec;
pub mod crc32c;
pub mod crypt;
pub mod decision;
pub mod decmpfs;
pub mod device;
pub mod error;
pub mod parallel;
#[cfg_attr(windows, path = "platform/windows.rs")]
pub mod platform;
pub mod problem;
pub mod progress;
pub mod rate;
pub mod size;
pub mod store;
pub mod sync;

pub use error::{Error, Kind, Reason, Result};
