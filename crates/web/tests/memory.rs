//! The memory of the server, in a program of its own.

#[cfg(target_os = "linux")]
mod common;
#[cfg(target_os = "linux")]
#[path = "memory/many_visitors.rs"]
mod many_visitors;
