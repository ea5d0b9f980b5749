//! All tests of the server over real connections. The test of memory is a program of its own.

#[cfg(target_os = "linux")]
mod browser;
#[cfg(target_os = "linux")]
mod changes;
#[cfg(target_os = "linux")]
mod common;
#[cfg(target_os = "linux")]
mod downloads;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod pages;
#[cfg(target_os = "linux")]
mod previews;
#[cfg(target_os = "linux")]
mod public;
#[cfg(target_os = "linux")]
mod security;
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the tests use a part")]
#[path = "../../../tests/common/server.rs"]
mod server;
#[cfg(target_os = "linux")]
#[path = "../../../tests/common/skip.rs"]
mod skip;
#[cfg(target_os = "linux")]
mod states;
#[cfg(target_os = "linux")]
mod urls;
