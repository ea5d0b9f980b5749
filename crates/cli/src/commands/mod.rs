//! The verbs, one file each: arguments, one call into the library, output.

mod advise;
#[cfg(target_os = "linux")]
mod attach;
mod cat;
mod check;
mod checksum;
mod chmod;
mod compact;
mod completions;
mod compress;
mod convert;
mod cp;
mod create;
#[cfg(target_os = "linux")]
mod detach;
mod diagnose;
mod dmg;
mod du;
mod erase_keys;
mod extract;
mod faces;
mod format;
mod info;
mod isencrypted;
mod join;
mod journal;
mod list;
mod ln;
mod ls;
mod man;
mod mkdir;
#[cfg(target_os = "linux")]
mod mount;
mod mv;
mod passwd;
mod put;
mod reband;
mod repair;
mod report;
mod resize;
mod resources;
mod rm;
mod segment;
mod serve;
mod stack;
mod touch;
mod tree;
pub(crate) mod trim;
mod verify;
mod xattr;

pub(crate) use create::epoch;

use std::ffi::OsString;

use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::hdiutil::Face;
use crate::output::Output;

/// A verb and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Format(format::Format),
    Dmg(Box<dmg::Dmg>),
    /// Show what an image is, layer by layer, and what is in it
    #[command(alias = "imageinfo")]
    Info(info::Info),
    /// List a folder of a volume
    Ls(ls::Ls),
    /// Show a volume, or a folder of it, as a tree
    Tree(tree::Tree),
    /// Print files of a volume
    Cat(cat::Cat),
    Extract(extract::Extract),
    Cp(cp::Cp),
    Put(put::Put),
    Rm(rm::Rm),
    Mv(mv::Mv),
    Mkdir(mkdir::Mkdir),
    Ln(ln::Ln),
    Xattr(xattr::Xattr),
    Chmod(chmod::Chmod),
    Touch(touch::Touch),
    Compress(compress::Compress),
    Decompress(compress::Decompress),
    /// Make the same disk in another format, or with other bands
    Convert(convert::Convert),
    Segment(segment::Segment),
    Join(join::Join),
    Resources(resources::Resources),
    Du(du::Du),
    Trim(trim::Trim),
    Compact(Box<compact::Compact>),
    Reband(reband::Reband),
    Advise(advise::Advise),
    Report(report::Report),
    Verify(verify::Verify),
    Checksum(checksum::Checksum),
    Check(check::Check),
    Diagnose(diagnose::Diagnose),
    Repair(repair::Repair),
    Resize(resize::Resize),
    #[command(alias = "enablejournal")]
    EnableJournal(journal::EnableJournal),
    #[command(alias = "disablejournal")]
    DisableJournal(journal::DisableJournal),
    Stack(stack::Stack),
    #[cfg(target_os = "linux")]
    Attach(Box<attach::Attach>),
    #[cfg(target_os = "linux")]
    Detach(detach::Detach),
    #[cfg(target_os = "linux")]
    Mount(Box<mount::Mount>),
    Serve(Box<serve::Serve>),
    List(list::List),
    #[command(alias = "chpass")]
    Passwd(Box<passwd::Passwd>),
    #[command(name = "isencrypted")]
    IsEncrypted(isencrypted::IsEncrypted),
    #[command(alias = "erasekeys")]
    EraseKeys(erase_keys::EraseKeys),
    Hdiutil(faces::Hdiutil),
    Diskutil(faces::Diskutil),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(man::Man),
}

impl Command {
    /// The face of another program that is meant, and the words behind its name.
    pub(crate) fn face(&self) -> Option<(Face, &[OsString])> {
        match self {
            Self::Hdiutil(face) => Some((Face::Hdiutil, &face.words)),
            Self::Diskutil(face) => Some((Face::Diskutil, &face.words)),
            _ => None,
        }
    }

    /// Does what was asked and prints what came of it.
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self {
            Self::Create(verb) => verb.run(output),
            Self::Format(verb) => verb.run(output),
            Self::Dmg(verb) => verb.run(output),
            Self::Info(verb) => verb.run(output),
            Self::Ls(verb) => verb.run(output),
            Self::Tree(verb) => verb.run(output),
            Self::Cat(verb) => verb.run(output),
            Self::Extract(verb) => verb.run(output),
            Self::Cp(verb) => verb.run(output),
            Self::Put(verb) => verb.run(output),
            Self::Rm(verb) => verb.run(output),
            Self::Mv(verb) => verb.run(output),
            Self::Mkdir(verb) => verb.run(output),
            Self::Ln(verb) => verb.run(output),
            Self::Xattr(verb) => verb.run(output),
            Self::Chmod(verb) => verb.run(output),
            Self::Touch(verb) => verb.run(output),
            Self::Compress(verb) => verb.run(output),
            Self::Decompress(verb) => verb.run(output),
            Self::Convert(verb) => verb.run(output),
            Self::Segment(verb) => verb.run(output),
            Self::Join(verb) => verb.run(output),
            Self::Resources(verb) => verb.run(output),
            Self::Du(verb) => verb.run(output),
            Self::Trim(verb) => verb.run(output),
            Self::Compact(verb) => verb.run(output),
            Self::Reband(verb) => verb.run(output),
            Self::Advise(verb) => verb.run(output),
            Self::Report(verb) => verb.run(output),
            Self::Verify(verb) => verb.run(output),
            Self::Checksum(verb) => verb.run(output),
            Self::Check(verb) => verb.run(output),
            Self::Diagnose(verb) => verb.run(output),
            Self::Repair(verb) => verb.run(output),
            Self::Resize(verb) => verb.run(output),
            Self::EnableJournal(verb) => verb.run(output),
            Self::DisableJournal(verb) => verb.run(output),
            Self::Stack(verb) => verb.run(output),
            #[cfg(target_os = "linux")]
            Self::Attach(verb) => verb.run(output),
            #[cfg(target_os = "linux")]
            Self::Detach(verb) => verb.run(output),
            #[cfg(target_os = "linux")]
            Self::Mount(verb) => verb.run(output),
            Self::Serve(verb) => verb.run(output),
            Self::List(verb) => verb.run(output),
            Self::Passwd(verb) => verb.run(output),
            Self::IsEncrypted(verb) => verb.run(output),
            Self::EraseKeys(verb) => verb.run(output),
            Self::Hdiutil(_) | Self::Diskutil(_) => {
                Err(Failure::usage("hdiutil", "another program's words are not understood within its own"))
            }
            Self::Completions(verb) => verb.run(output),
            Self::Man(verb) => verb.run(output),
        }
    }
}
