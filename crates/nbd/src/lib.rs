//! An NBD server: block devices for the kernel, for virtual machines and for every program that
//! speaks the protocol.
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
//! It knows no format: all it serves is [`BlockDevice`](bandsaw::device::BlockDevice). It speaks
//! the fixed newstyle handshake with TLS, simple and structured replies and block status in
//! `base:allocation`; requests read and write up to 32 MiB.
//!
//! | what | where |
//! | --- | --- |
//! | who is let in, how it ends | `server`, `listener` |
//! | the handshake | `handshake`, its data in `options` |
//! | the thread that receives requests | `transmission`, how it waits for them `busy_poll` |
//! | what a request does | `read`, `coalesce` where several are one, `write`, `perform` |
//! | which thread does it | `dispatch` decides, `worker_pool` are the others |
//! | what the messages look like | `layout` |
//! | the kernel of this host as client | `kernel`, told over `netlink` |
//!
//! Threads block; there is no runtime. Memory is bounded for each connection, and so is the number
//! of these.
#![forbid(unsafe_code)]

mod buffers;
mod busy_poll;
mod channel;
mod coalesce;
mod dispatch;
mod export;
mod handshake;
#[cfg(target_os = "linux")]
pub mod kernel;
mod known_data;
mod layout;
mod link;
mod listener;
#[cfg(target_os = "linux")]
mod netlink;
mod options;
mod perform;
mod platform;
mod read;
mod server;
mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod transmission;
mod watch;
mod worker_pool;
mod write;

pub use export::Export;
pub use listener::Listener;
pub use server::{Limits, Options, Server};
pub use socket::Socket;
pub use tls::Tls;
pub use watch::{Note, Unwatched, Watch};

const LAYER: &str = "nbd";
