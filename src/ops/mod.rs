//! What people ask for, each in one file.

pub mod advise;
mod ahead;
pub mod checksum;
pub mod compact;
pub mod compress;
pub mod convert;
pub mod create;
pub mod diagnose;
pub mod export;
pub mod finder;
mod folders;
pub mod format;
pub mod import;
pub mod put;
pub mod reband;
pub mod repair;
pub mod report;
pub mod resize;
pub mod resources;
pub mod segment;
pub mod space;
pub mod stack;
mod tar;
pub mod trim;
pub mod usage;
pub mod verify;
