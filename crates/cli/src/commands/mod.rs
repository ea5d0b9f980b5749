//! The verbs, one file each: arguments, one call into the library, output.

mod advise;
mod apple_cli;
#[cfg(target_os = "linux")]
mod attach;
mod band_usage;
#[cfg(feature = "bench")]
mod bench;
mod cat;
mod check;
mod checkpoint;
mod checksum;
mod chmod;
pub(crate) mod compact;
mod complete;
mod completions;
mod compress;
pub(crate) mod convert;
mod convert_archive;
mod cp;
pub(crate) mod create;
#[cfg(target_os = "linux")]
mod detach;
mod diagnose;
mod diff;
mod dmg;
mod du;
pub(crate) mod erase_keys;
#[cfg(feature = "evidence")]
mod evidence;
mod extract;
mod format;
#[cfg(feature = "health")]
mod health;
mod info;
pub(crate) mod isencrypted;
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
pub(crate) mod passwd;
mod put;
mod reband;
mod receive;
#[cfg(feature = "evidence")]
mod recover;
mod repair;
mod report;
pub(crate) mod resize;
pub(crate) mod resources;
mod rm;
mod scrub;
pub(crate) mod segment;
mod send;
mod serve;
mod shims;
mod snapshot;
mod stack;
mod stat;
pub(crate) mod timemachine;
mod touch;
mod tree;
pub(crate) mod trim;
mod verify;
#[cfg(feature = "health")]
mod watch;
mod web;
mod xattr;

pub(crate) use complete::{Candidates, ShellCompletion, set_other_program};
pub(crate) use create::{Create, epoch};
pub(crate) use dmg::is_bundle;
pub(crate) use info::Info;

use std::ffi::OsString;

use clap::Subcommand;

use crate::failure::{Failure, Outcome};
use crate::hdiutil::AppleCli;
use crate::output::Output;

/// Declares the verbs of features that this build does not have: each says so.
macro_rules! absent {
    ($($module:ident::$verb:ident of $feature:literal: $about:literal;)*) => {$(
        #[cfg(not(feature = $feature))]
        mod $module {
            #[derive(Debug, clap::Args)]
            #[command(about = concat!($about, " (not in this build)"), disable_help_flag = true)]
            pub(crate) struct $verb {
                #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
                _words: Vec<std::ffi::OsString>,
            }

            impl $verb {
                pub(crate) fn run(self, _: &crate::output::Output) -> crate::failure::Outcome {
                    let why = concat!("this build does not have the verb (feature `", $feature, "`)");
                    Err(bandsaw::Error::unsupported(stringify!($module), why).into())
                }
            }
        }
    )*};
}

absent! {
    bench::Bench of "bench": "Measure the speed of folders and disk images";
    evidence::Evidence of "evidence": "List, hash and compare the files of an image as evidence";
    health::HealthVerb of "health": "Check the health of all bundles below folders";
    recover::Recover of "evidence": "Recover deleted files, and files of damaged volumes";
    watch::Watch of "health": "Check bundles again and again, and tell of changes";
}

/// Runs the verb that a variant of an enum holds: one of those that are named, or as the arms after
/// these say.
macro_rules! run_verb {
    ($verb:expr, $output:expr, $of:ident: $($(#[$cfg:meta])? $name:ident)*; $($others:tt)*) => {
        match $verb {
            $($(#[$cfg])? $of::$name(verb) => verb.run($output),)*
            $($others)*
        }
    };
}
pub(crate) use run_verb;

/// A verb and its arguments.
///
/// Only the arguments of the requested verb are built, as building all of them takes longer than
/// most verbs run. The first sentence of each verb is therefore repeated here for the list of
/// verbs.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Create an image, blank or filled from a folder or archive
    Create(Create),
    /// Create an empty volume in an image
    Format(format::Format),
    /// Create a disk image for distributing software
    Dmg(Box<dmg::Dmg>),
    /// Show the format, layers and volumes of an image
    #[command(alias = "imageinfo")]
    Info(Info),
    /// List files and folders of a volume
    Ls(ls::Ls),
    /// Show a folder of a volume as a tree
    Tree(tree::Tree),
    /// Compare files of two images, snapshots or folders
    Diff(Box<diff::Diff>),
    /// Show how files are compressed, and what that saves
    Stat(stat::Stat),
    /// Print files of a volume
    Cat(cat::Cat),
    /// Extract files of a volume to a folder or tar archive
    Extract(extract::Extract),
    /// Copy files out of an image, into one, or between two
    Cp(cp::Cp),
    /// Write a file of a volume from standard input or a file
    Put(put::Put),
    /// Remove files and folders from a volume
    Rm(rm::Rm),
    /// Rename or move files and folders within a volume
    Mv(mv::Mv),
    /// Make folders in a volume
    Mkdir(mkdir::Mkdir),
    /// Make a hard link or symbolic link in a volume
    Ln(ln::Ln),
    /// List, set and remove extended attributes
    Xattr(xattr::Xattr),
    /// Change permissions, owner and group
    Chmod(chmod::Chmod),
    /// Change file times, and create missing files
    Touch(touch::Touch),
    /// Compress files in place, as afsctool and ditto do
    Compress(compress::Compress),
    /// Decompress files in place
    Decompress(compress::Decompress),
    /// Convert an image to another format or band size
    Convert(convert::Convert),
    /// Split a compressed image into files of limited size
    Segment(segment::Segment),
    /// Join the segments of an image to one file
    Join(join::Join),
    /// Show and change resources of an image, such as a license
    Resources(resources::Resources),
    /// Show the space that images use and could free
    Du(du::Du),
    /// Give unused space of volumes back to the host
    Trim(trim::Trim),
    /// Shrink the storage of an image
    Compact(Box<compact::Compact>),
    /// Change the band size of a sparse bundle in place
    Reband(reband::Reband),
    /// Recommend a band size for a sparse bundle
    Advise(advise::Advise),
    /// Write an HTML report about an image
    Report(report::Report),
    /// Measure the speed of folders and disk images
    Bench(bench::Bench),
    /// Compare an image with the checksums stored in it
    Verify(verify::Verify),
    /// Compute a checksum of the disk in an image
    Checksum(checksum::Checksum),
    /// Check the health of all bundles below folders
    Health(Box<health::HealthVerb>),
    /// Check bundles of a file server by a schedule
    Watch(Box<watch::Watch>),
    /// Send a state of a bundle to another folder or machine
    Send(send::Send),
    /// Receive a state that `bandsaw send` wrote
    Receive(receive::Receive),
    /// Find bands that changed although no program wrote to them
    Scrub(scrub::Scrub),
    /// Check the structure of an image, layer by layer
    Check(check::Check),
    /// List, hash and compare the files of an image as evidence
    Evidence(Box<evidence::Evidence>),
    /// Explain why an image does not open
    Diagnose(diagnose::Diagnose),
    /// Recover deleted files, and files of damaged volumes
    Recover(Box<recover::Recover>),
    /// Repair an image, or undo a repair
    Repair(repair::Repair),
    /// Grow or shrink an image with its volume
    Resize(resize::Resize),
    /// Add a journal to an HFS+ volume
    #[command(alias = "enablejournal")]
    EnableJournal(journal::EnableJournal),
    /// Remove the journal of an HFS+ volume
    #[command(alias = "disablejournal")]
    DisableJournal(journal::DisableJournal),
    /// Keep changes in layers over an unchanged image
    Stack(stack::Stack),
    /// Create, list and restore snapshots of a sparse bundle
    Snapshot(snapshot::Snapshot),
    /// Read Time Machine backups, and keep states of a bundle
    #[command(alias = "tm")]
    Timemachine(Box<timemachine::TimeMachine>),
    /// Update a bundle in a bucket for other programs
    Checkpoint(checkpoint::Checkpoint),
    /// Attach an image as a disk, or its volumes as folders
    #[cfg(target_os = "linux")]
    Attach(Box<attach::Attach>),
    /// Detach an image and end its server
    #[cfg(target_os = "linux")]
    Detach(detach::Detach),
    /// Mount a volume on a folder
    #[cfg(target_os = "linux")]
    Mount(Box<mount::Mount>),
    /// Serve an image as a network block device (NBD)
    Serve(Box<serve::Serve>),
    /// Show images and their files in a browser
    Web(Box<web::Web>),
    /// List attached, mounted and served images
    List(list::List),
    /// Change passphrases of an encrypted image
    #[command(alias = "chpass")]
    Passwd(Box<passwd::Passwd>),
    /// Show whether an image is encrypted
    #[command(name = "isencrypted")]
    IsEncrypted(isencrypted::IsEncrypted),
    /// Erase the keys of an encrypted image, permanently
    #[command(alias = "erasekeys")]
    EraseKeys(erase_keys::EraseKeys),
    /// Emulate macOS's hdiutil, for programs that call it
    Hdiutil(apple_cli::Hdiutil),
    /// Emulate `diskutil image` of macOS 26
    Diskutil(apple_cli::Diskutil),
    /// Stand in for macOS's programs in release scripts
    Shims(shims::Shims),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Print the candidates for a word
    #[command(name = "__complete", hide = true)]
    Complete(complete::Complete),
    /// Write the manual pages to a folder
    #[command(hide = true)]
    Man(man::Man),
}

impl Command {
    /// Returns the emulated program and its arguments, if one is requested.
    pub(crate) fn apple_cli(&self) -> Option<(AppleCli, &[OsString])> {
        match self {
            Self::Hdiutil(tool) => Some((AppleCli::Hdiutil, &tool.words)),
            Self::Diskutil(tool) => Some((AppleCli::Diskutil, &tool.words)),
            _ => None,
        }
    }

    /// Runs the verb and prints its result.
    pub(crate) fn run(self, output: &Output) -> Outcome {
        run_verb!(self, output, Command:
            Create Format Dmg Info Ls Stat Tree Cat Extract Cp Put Rm Mv Mkdir Ln Xattr Chmod
            Touch Compress Decompress Convert Segment Join Resources Du Trim Compact Reband
            Advise Report Bench Verify Checksum Health Watch Send Receive Scrub Check Diff
            Evidence Diagnose Recover Repair Resize EnableJournal DisableJournal Stack Snapshot
            Timemachine Checkpoint Serve Web List Passwd IsEncrypted EraseKeys Shims Completions
            Complete Man
            #[cfg(target_os = "linux")] Attach
            #[cfg(target_os = "linux")] Detach
            #[cfg(target_os = "linux")] Mount
            ;
            Self::Hdiutil(_) | Self::Diskutil(_) => Err(Failure::usage(
                "hdiutil",
                "internal: arguments of another program",
            )),
        )
    }
}
