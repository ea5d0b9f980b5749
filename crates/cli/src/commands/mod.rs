//! The verbs, one file each: arguments, one call into the library, output.

mod advise;
#[cfg(target_os = "linux")]
mod attach;
mod bench;
mod cat;
mod check;
mod checkpoint;
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
mod snapshot;
mod stack;
mod touch;
mod tree;
pub(crate) mod trim;
mod verify;
mod xattr;

pub(crate) use create::{Create, epoch};
pub(crate) use info::Info;

use std::ffi::OsString;

use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::hdiutil::Face;
use crate::output::Output;

/// A verb and its arguments.
///
/// The arguments of a verb are put together only when it is the one that was called: those of all
/// verbs cost more time than most of them need. Therefore its sentence in the list of verbs stands
/// here, once more.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Make an image, blank or filled from a folder or a tar archive
    Create(Create),
    /// Make a new, empty volume in an image
    Format(format::Format),
    /// Make a disk image to hand out, with a window as it should look
    Dmg(Box<dmg::Dmg>),
    /// Show what an image is, layer by layer, and what is in it
    #[command(alias = "imageinfo")]
    Info(Info),
    /// List a folder of a volume
    Ls(ls::Ls),
    /// Show a volume, or a folder of it, as a tree
    Tree(tree::Tree),
    /// Print files of a volume
    Cat(cat::Cat),
    /// Bring files out of a volume, into a folder or a tar archive
    Extract(extract::Extract),
    /// Copy files and folders out of an image, into one, or between two
    Cp(cp::Cp),
    /// Write a file of a volume, from standard input or a file
    Put(put::Put),
    /// Remove files and folders from a volume
    Rm(rm::Rm),
    /// Rename and move within a volume
    Mv(mv::Mv),
    /// Make folders in a volume
    Mkdir(mkdir::Mkdir),
    /// Give a file a second name, or make a symbolic link
    Ln(ln::Ln),
    /// List, set and remove extended attributes
    Xattr(xattr::Xattr),
    /// Change permissions, owner and group
    Chmod(chmod::Chmod),
    /// Set when files were changed and read; make those that do not exist
    Touch(touch::Touch),
    /// Compress files within their volume, as `ditto --hfsCompression` and afsctool do
    Compress(compress::Compress),
    /// Store compressed files of a volume as they are
    Decompress(compress::Decompress),
    /// Make the same disk in another format, or with other bands
    Convert(convert::Convert),
    /// Cut a compressed image into files of a size that media and hosts take
    Segment(segment::Segment),
    /// Make one file of an image that was cut into parts
    Join(join::Join),
    /// Show and change what is in a compressed image beside its disk, such as a licence
    Resources(resources::Resources),
    /// Show how much space images take, and what compaction would give back
    Du(du::Du),
    /// Give the space back that the volumes in an image do not use
    Trim(trim::Trim),
    /// Let an image take no more space than what is in it
    Compact(Box<compact::Compact>),
    /// Give a sparse bundle bands of another size, in place
    Reband(reband::Reband),
    /// Recommend a band size for a sparse bundle, with reasons
    Advise(advise::Advise),
    /// Write a page of HTML about an image: layers, volumes, and a map of its bands
    Report(report::Report),
    /// Measure folders and disk images as programs use them, and compare the results
    Bench(bench::Bench),
    /// Check an image against the checksums stored in it
    Verify(verify::Verify),
    /// Sum the disk in an image, whatever format it is in
    Checksum(checksum::Checksum),
    /// Check the structure of an image, layer by layer
    Check(check::Check),
    /// Say why an image does not open, and what can be done
    Diagnose(diagnose::Diagnose),
    /// Repair an image, and undo or commit a repair
    Repair(repair::Repair),
    /// Make an image larger or smaller, its HFS+ volume or APFS container too
    Resize(resize::Resize),
    /// Give an HFS+ volume a journal
    #[command(alias = "enablejournal")]
    EnableJournal(journal::EnableJournal),
    /// Take the journal of an HFS+ volume away
    #[command(alias = "disablejournal")]
    DisableJournal(journal::DisableJournal),
    /// Keep what changes in layers over an image that stays as it is
    Stack(stack::Stack),
    /// Keep a sparse bundle as it is now under a name, and go back to that
    Snapshot(snapshot::Snapshot),
    /// Bring the objects of a bundle in a bucket up to date for other programs
    Checkpoint(checkpoint::Checkpoint),
    /// Attach an image: as a disk of the kernel's, or each volume as a folder
    #[cfg(target_os = "linux")]
    Attach(Box<attach::Attach>),
    /// Unmount an image, leave it clean, and end its server
    #[cfg(target_os = "linux")]
    Detach(detach::Detach),
    /// Show a volume as a folder, to be read and changed by any program
    #[cfg(target_os = "linux")]
    Mount(Box<mount::Mount>),
    /// Serve an image as a network block device
    Serve(Box<serve::Serve>),
    /// Show which images are served, by which process, since when
    List(list::List),
    /// Change the passphrase of an encrypted image; add, remove and list what opens it
    #[command(alias = "chpass")]
    Passwd(Box<passwd::Passwd>),
    /// Say whether an image is encrypted
    #[command(name = "isencrypted")]
    IsEncrypted(isencrypted::IsEncrypted),
    /// Erase the keys of an encrypted image, so that nothing opens it ever again
    #[command(alias = "erasekeys")]
    EraseKeys(erase_keys::EraseKeys),
    /// Understand the words of macOS's hdiutil, for programs that call it
    Hdiutil(faces::Hdiutil),
    /// Understand the words of macOS 26's `diskutil image`
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
            Self::Bench(verb) => verb.run(output),
            Self::Verify(verb) => verb.run(output),
            Self::Checksum(verb) => verb.run(output),
            Self::Check(verb) => verb.run(output),
            Self::Diagnose(verb) => verb.run(output),
            Self::Repair(verb) => verb.run(output),
            Self::Resize(verb) => verb.run(output),
            Self::EnableJournal(verb) => verb.run(output),
            Self::DisableJournal(verb) => verb.run(output),
            Self::Stack(verb) => verb.run(output),
            Self::Snapshot(verb) => verb.run(output),
            Self::Checkpoint(verb) => verb.run(output),
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
            Self::Hdiutil(_) | Self::Diskutil(_) => Err(Failure::usage(
                "hdiutil",
                "another program's words are not understood within its own",
            )),
            Self::Completions(verb) => verb.run(output),
            Self::Man(verb) => verb.run(output),
        }
    }
}
