//! `bandsaw passwd`: the key slots of an encrypted image.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::address::ImagePath;
use bandsaw::crypt::{KeyRing, KeySlot, NewKeySlot};
use bandsaw::device::Access;
use bandsaw::open::KeyFile;
use bandsaw::ops::describe::KeySlotInfo;
use bandsaw::{Error, Kind};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::info_text;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::passphrase::{self, ImageUnlockArgs, Iterations, KeyWrapArgs, NewPassphrase};
use crate::source;

/// Change passphrases of an encrypted image
///
/// Only the header of the image is written; the data and its keys stay the same. After a crash
/// either the old or the new passphrase is valid. A copy of the old header still opens with the old
/// passphrase. To prevent that, make a copy with new keys: `bandsaw convert --re-encrypt`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  bandsaw passwd Secret.dmg                                       ask for the old and new one
  bandsaw passwd --passfile old --new-passfile new Secret.dmg     with passphrases in files
  bandsaw passwd --private-key admin.pem Secret.dmg               replace a forgotten passphrase
  bandsaw passwd list Secret.dmg                                  list the entries
  bandsaw passwd add Secret.dmg                                   add a passphrase
  bandsaw passwd add --key-wrap aes Secret.dmg                    with keys wrapped by AES
  bandsaw passwd add --certificate admin.cer Secret.dmg           add a certificate
  bandsaw passwd remove Secret.dmg 2                              remove entry 2"
)]
pub(crate) struct Passwd {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a passphrase or a certificate
    Add(Add),
    /// Remove a passphrase or a certificate
    ///
    /// Another passphrase or private key of the image is required.
    Remove(Remove),
    /// List passphrases and certificates
    ///
    /// This needs no passphrase.
    List(List),
}

#[derive(Debug, Default, Args)]
struct Change {
    /// The encrypted image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true)]
    image: Option<OsString>,
    /// Change this passphrase, a number of `passwd list`
    ///
    /// The default is the passphrase that was entered, or the only one.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    entry: Option<u32>,
    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Debug, Args)]
struct Add {
    /// The encrypted image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Add this certificate instead of a passphrase
    ///
    /// The certificate is an X.509 file, PEM or DER. Its RSA private key then opens the image.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["new-passphrase", "iterations", "key_wrap"])]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
}

/// The keys that open the image, and a new passphrase.
#[derive(Debug, Default, Args)]
struct KeyArgs {
    #[command(flatten)]
    unlocking: ImageUnlockArgs,
    #[command(flatten)]
    new: NewPassphrase,
    #[command(flatten)]
    iterations: Iterations,
    #[command(flatten)]
    wrapping: KeyWrapArgs,
    #[command(flatten)]
    network_args: NetworkArgs,
}

#[derive(Debug, Args)]
struct Remove {
    /// The encrypted image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// The entry to remove, a number of `passwd list`
    #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    entry: u32,
    #[command(flatten)]
    unlocking: ImageUnlockArgs,
    #[command(flatten)]
    network_args: NetworkArgs,
}

#[derive(Debug, Args)]
struct List {
    /// The encrypted image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`: the current key slots.
#[derive(Serialize)]
struct KeySlotsReport {
    path: String,
    key_slots: Vec<KeySlotInfo>,
}

impl Passwd {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match &self.action {
            Some(Action::Add(add)) => add.run(output),
            Some(Action::Remove(remove)) => remove.run(output),
            Some(Action::List(list)) => list.run(output),
            None => self.change.run(output),
        }
    }
}

/// The passphrases that are read from standard input.
pub(crate) struct FromStdin {
    pub(crate) old: bool,
    pub(crate) new: bool,
}

/// Changes the passphrase of an image.
pub(crate) fn change_passphrase(image: &str, from_stdin: FromStdin, output: &Output) -> Outcome {
    Change {
        image: Some(image.into()),
        keys: KeyArgs {
            unlocking: ImageUnlockArgs::stdinpass(from_stdin.old),
            new: NewPassphrase::stdinpass(from_stdin.new),
            ..KeyArgs::default()
        },
        ..Change::default()
    }
    .run(output)
}

impl Change {
    fn run(&self, output: &Output) -> Outcome {
        let Some(image) = &self.image else {
            return Err(Failure::usage("passwd", "an image is required"));
        };
        let image = source::image(image)?;
        let ring = self.keys.unlock(&image)?;
        let entry = self.entry(&ring).map_err(|error| error.in_file(&image))?;
        let new = self.keys.new_passphrase()?;
        ring.replace(entry, &new)
            .map_err(|error| error.in_file(&image))?;
        warn_of_copies(output);
        report(
            image,
            &self.keys.network_args,
            output,
            &format!("changed passphrase {}", entry + 1),
        )
    }

    /// Returns the key slot to change.
    fn entry(&self, ring: &KeyRing) -> bandsaw::Result<usize> {
        let key_slots = ring.key_slots();
        let is_passphrase =
            |entry: usize| matches!(key_slots.get(entry), Some(KeySlot::Passphrase { .. }));
        let refused = |message: &'static str| Err(Error::invalid("--entry", message));
        if let Some(entry) = self.entry {
            let entry = entry as usize - 1;
            return if is_passphrase(entry) {
                Ok(entry)
            } else {
                refused(
                    "the image has no passphrase entry with this number: run `bandsaw passwd list` \
                     to see them",
                )
            };
        }
        if is_passphrase(ring.opened()) {
            return Ok(ring.opened());
        }
        let all: Vec<_> = (0..key_slots.len())
            .filter(|&entry| is_passphrase(entry))
            .collect();
        match all[..] {
            [only] => Ok(only),
            [] => refused(
                "the image has no passphrase to change: run `bandsaw passwd add` to add one",
            ),
            _ => refused(
                "the number of an entry is required, because the image has several passphrases: \
                 run `bandsaw passwd list` to see them",
            ),
        }
    }
}

impl Add {
    fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        // Before the keys are unlocked: a wrong path is reported without asking for a passphrase.
        let certificate = self
            .certificate
            .as_deref()
            .map(passphrase::certificate)
            .transpose()?;
        let ring = self.keys.unlock(&image)?;
        let new = match certificate {
            Some(certificate) => NewKeySlot::Certificate(certificate),
            None => self.keys.new_passphrase()?,
        };
        let entry = ring.insert(&new).map_err(|error| error.in_file(&image))?;
        report(
            image,
            &self.keys.network_args,
            output,
            &format!("added entry {}", entry + 1),
        )
    }
}

impl Remove {
    fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let ring = unlock(&image, &self.unlocking, &self.network_args)?;
        let removed = ring
            .remove(self.entry as usize - 1)
            .map_err(|error| error.in_file(&image));
        removed.advise(Kind::NotFound, || {
            format!("run `bandsaw passwd list {image}` to list them")
        })?;
        warn_of_copies(output);
        report(
            image,
            &self.network_args,
            output,
            &format!("removed entry {}", self.entry),
        )
    }
}

impl List {
    fn run(&self, output: &Output) -> Outcome {
        let facts = KeySlotsReport::of(source::image(&self.image)?, &self.network_args)?;
        output.result(&facts, |out| {
            facts.key_slots.iter().try_for_each(|way| {
                writeln!(out, "{:>3}  {}", way.number, info_text::key_slot(way))
            })
        })
    }
}

impl KeySlotsReport {
    fn of(image: ImagePath, network_args: &NetworkArgs) -> Outcome<Self> {
        let file = header(&image, Access::ReadOnly, network_args)?;
        Ok(Self {
            key_slots: KeySlotInfo::all(&file.description().key_slots),
            path: image.to_string(),
        })
    }
}

fn header(image: &ImagePath, access: Access, network_args: &NetworkArgs) -> Outcome<KeyFile> {
    KeyFile::open(Path::new(image), access, network_args.options())?.ok_or_else(|| {
        let error = Error::invalid("passwd", "the image is not encrypted").in_file(image);
        Failure::from(error).hint("use `bandsaw convert` to create an encrypted copy")
    })
}

fn unlock(
    image: &ImagePath,
    unlocking: &ImageUnlockArgs,
    network_args: &NetworkArgs,
) -> Outcome<KeyRing> {
    header(image, Access::ReadWrite, network_args)?
        .unlock(unlocking)
        .map_err(|error| source::advise(error, image))
}

impl KeyArgs {
    fn unlock(&self, image: &ImagePath) -> Outcome<KeyRing> {
        unlock(image, &self.unlocking, &self.network_args)
    }

    fn new_passphrase(&self) -> Outcome<NewKeySlot> {
        let passphrase = self.new.choose(self.unlocking.on_stdin());
        let passphrase = passphrase.advise(Kind::WrongKey, || {
            "use --new-passfile FILE, --new-passfd N, --new-passenv NAME or --new-stdinpass"
                .to_owned()
        })?;
        Ok(NewKeySlot::Passphrase {
            passphrase,
            iterations: self.iterations.count(),
            wrap: self.wrapping.cipher(),
        })
    }
}

fn warn_of_copies(output: &Output) {
    output.warn(
        "copies of the image or its header still open with the old keys; convert the image to get \
         new keys",
    );
}

/// Prints the result and the current key slots.
fn report(image: ImagePath, network_args: &NetworkArgs, output: &Output, done: &str) -> Outcome {
    let facts = KeySlotsReport::of(image, network_args)?;
    output.done(&facts, |out| {
        writeln!(out, "{done}; the image now opens with")?;
        facts
            .key_slots
            .iter()
            .try_for_each(|way| writeln!(out, "{:>3}  {}", way.number, info_text::key_slot(way)))
    })
}
