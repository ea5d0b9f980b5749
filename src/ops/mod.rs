//! What people ask for, each in one file.

mod folders;
pub mod import;
