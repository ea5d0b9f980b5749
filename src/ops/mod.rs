//! What people ask for, each in one file.

pub mod convert;
mod folders;
pub mod import;
