//! What people ask for, each in one file.

pub mod convert;
pub mod export;
mod folders;
pub mod import;
