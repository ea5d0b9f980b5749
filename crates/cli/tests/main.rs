//! All tests of the command.

mod bench;
mod bucket;
mod changes;
mod checks;
mod common;
mod compress;
mod compressed;
mod dmg;
mod dmg_makers;
mod encrypted_verbs;
mod encrypted_volumes;
mod encryption;
mod foreign_images;
mod format;
mod hdiutil;
mod help;
mod mount;
mod passwd;
mod reband;
mod refusals;
mod report;
mod round_trip;
mod serve;
mod signals;
mod space;
mod stack;
