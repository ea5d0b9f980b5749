//! A local web page that shows disk images and the files in them: the front end of `bandsaw web`.
//!
//! * `server`, `connection`: sockets, TLS, and time limits of connections.
//! * `request_checks`: every check that a request passes before a page is made.
//! * `session`, `token`, `password`, `key_ring`: visitors and their secrets.
//! * `roots`, `open_images`: the files that may be opened, and the images that are open.
//! * `change`, `change_log`, `upload`, `restore`, `visitor_folders`: what visitors may change.
//! * `health`: the results of checks.
//! * `memory`: the bytes that all requests together may hold.
//! * `pages`, `stream`, `archive`, `job`: what is sent.
//!
//! The threat model is in `docs/web.md`.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod app;
mod archive;
mod change;
mod change_log;
mod connection;
mod health;
mod job;
mod key_ring;
mod memory;
mod names;
mod open_images;
mod options;
mod pages;
mod password;
mod query;
mod range;
mod reply;
mod request_checks;
mod restore;
mod roots;
mod server;
mod session;
mod stream;
mod text;
mod tls;
mod token;
mod treemap;
mod upload;
mod visitor_folders;

pub use options::{AllowedUrls, Bind, Limits, LogSink, Options, Permissions, PublicAddress};
pub use password::Password;
pub use server::{Running, start};

const LAYER: &str = "web";
