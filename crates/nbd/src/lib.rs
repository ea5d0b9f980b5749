//! An NBD server: exports block devices to the kernel, to virtual machines and to any other NBD
//! client.
//!
//! ```no_run
//! use std::path::Path;
//! use bandsaw_nbd::{Export, Listener, Options, Server};
//!
//! # fn main() -> bandsaw::Result<()> {
//! let image = bandsaw::open::open(Path::new("Docs.sparsebundle"), &bandsaw::open::OpenOptions::default())?;
//! let exports = vec![Export::new("", "the disk", image.disk().clone())];
//! let server = Server::new(exports, Options::default())?;
//! server.listen(&Listener::unix(Path::new("/run/user/1000/docs.sock"))?)
//! # }
//! ```
//!
//! It is independent of image formats: it serves any [`BlockDevice`](bandsaw::device::BlockDevice).
//! It supports the fixed newstyle handshake, with TLS by the feature `tls`, simple and structured replies and block
//! status in `base:allocation`; requests read and write up to 32 MiB.
//!
//! | topic | module |
//! | --- | --- |
//! | accepting clients, shutdown | `server`, `listener` |
//! | handshake | `handshake`, its data in `options` |
//! | receiving thread | `transmission`; waiting for requests in `busy_poll` |
//! | serving requests | `read`, `coalesce` for coalesced reads, `write`, `requests` for all others |
//! | dispatch to threads | `worker_pool`, by the times in `latency` |
//! | message formats | `layout` |
//! | kernel of this host as client | `kernel`, over `netlink` |
//!
//! Threads use blocking I/O; there is no async runtime. Memory per connection and the number of
//! connections are limited.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod buffers;
mod busy_poll;
mod channel;
mod coalesce;
mod connection;
mod events;
mod export;
mod handshake;
#[cfg(target_os = "linux")]
pub mod kernel;
mod known_data;
mod latency;
mod layout;
mod listener;
#[cfg(target_os = "linux")]
mod netlink;
mod options;
mod platform;
mod read;
mod reply_queue;
mod requests;
mod server;
mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(feature = "tls")]
mod tls;
mod transmission;
mod worker_pool;
mod write;

pub use events::{Event, EventReceiver, IgnoreEvents};
pub use export::Export;
pub use listener::Listener;
pub use server::{Limits, Options, Server};
pub use socket::Socket;
#[cfg(feature = "tls")]
pub use tls::Tls;

const LAYER: &str = "nbd";
