//! Backups of both kinds, compared with what a model of `backupd` put into them.

mod common;
mod convert;
mod damage;
mod dates;
mod files;
mod fuzz_seeds;
mod search;
