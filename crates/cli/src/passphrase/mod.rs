//! Sources of passphrases. Arguments are not one of them, as every user can see them.
//!
//! A command may need several: for the image that it opens, for an encrypted volume in it, and for
//! the image or volume that it makes. The options of the second have the prefix `--volume-`, those
//! of the third `--new-`. On standard input they come in this order, each ended by a NUL.

mod keys;
mod scrub_env;
mod secret_reader;
mod source;
mod stdin;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use bandsaw::crypt::Secret;
use bandsaw::{Error, Kind, Result};
use clap::{
    Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id, ValueHint,
    value_parser,
};

use crate::headings::{IMAGES, NEW_PASSPHRASES, VOLUMES};
pub(crate) use keys::{
    GivenPassphrase, ImageUnlockArgs, Iterations, KeyWrapArgs, UnlockArgs, certificate, key_in,
};
pub(crate) use scrub_env::hide;
use source::Source;

/// The hint for a missing or wrong key of an image.
pub(crate) const HINT: &str = "run the command again to type the passphrase, or use --passfile \
                               FILE, --passfd N, --passenv NAME or --stdinpass (a line break at its end does not count), \
                               --private-key FILE for a private key";

/// Returns the hint for a wrong passphrase that `option` gave.
pub(crate) fn wrong_hint(option: &str) -> String {
    format!(
        "the passphrase of {option} does not open the image; only a line break at its end does \
         not count"
    )
}

/// The hint for a missing or wrong key of a volume.
pub(crate) const VOLUME_HINT: &str = "use --volume-passfile FILE, --volume-passfd N, \
                                      --volume-passenv NAME or --volume-stdinpass for the \
                                      passphrase of a volume, --recovery-key-file FILE for a \
                                      recovery key";

/// The purpose of a passphrase, which determines its options.
pub(crate) trait Role: fmt::Debug + Clone + Default {
    /// The group of the options, for conflicts with other options.
    const GROUP: &'static str;
    /// The options: standard input, file, file descriptor, environment variable.
    const OPTIONS: [&'static str; 4];
    /// The object of the sentences in the help.
    const WHAT: &'static str;
    /// The prompt for a new passphrase.
    const NEW: &'static str;
    /// The heading in the help.
    const HEADING: &'static str;
    const ORDER: usize;
}

/// The passphrase of an encrypted image, for every verb that opens one. Without an option it is
/// asked for on the terminal.
pub(crate) type Passphrase = RolePassphrase<ImagePassphraseRole>;
/// The passphrase of an encrypted volume in an image. Without an option it is asked for on the
/// terminal.
pub(crate) type VolumePassphrase = RolePassphrase<VolumePassphraseRole>;
/// The passphrase of a new image or volume, for verbs that also open one. Without an option it is
/// asked for on the terminal, twice.
pub(crate) type NewPassphrase = RolePassphrase<NewPassphraseRole>;

/// The role of the passphrase that opens an encrypted image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ImagePassphraseRole;

impl Role for ImagePassphraseRole {
    const GROUP: &'static str = "passphrase";
    const OPTIONS: [&'static str; 4] = ["--stdinpass", "--passfile", "--passfd", "--passenv"];
    const WHAT: &'static str = "the passphrase of the image";
    const NEW: &'static str = "new passphrase";
    const HEADING: &'static str = IMAGES;
    const ORDER: usize = 800;
}

/// The role of the passphrase that opens an encrypted volume, or is to open a new one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumePassphraseRole;

impl Role for VolumePassphraseRole {
    const GROUP: &'static str = "volume-passphrase";
    const OPTIONS: [&'static str; 4] = [
        "--volume-stdinpass",
        "--volume-passfile",
        "--volume-passfd",
        "--volume-passenv",
    ];
    const WHAT: &'static str = "the passphrase of the volume";
    const NEW: &'static str = "passphrase of the new volume";
    const HEADING: &'static str = VOLUMES;
    const ORDER: usize = 820;
}

/// The role of the passphrase that replaces or joins that of an image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewPassphraseRole;

impl Role for NewPassphraseRole {
    const GROUP: &'static str = "new-passphrase";
    const OPTIONS: [&'static str; 4] = [
        "--new-stdinpass",
        "--new-passfile",
        "--new-passfd",
        "--new-passenv",
    ];
    const WHAT: &'static str = "the new passphrase";
    const NEW: &'static str = "new passphrase";
    const HEADING: &'static str = NEW_PASSPHRASES;
    const ORDER: usize = 850;
}

/// A passphrase: its source and, once read, its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct RolePassphrase<R: Role> {
    source: Source,
    /// `None` before the first read.
    known: RefCell<Option<Option<Secret>>>,
    role: PhantomData<R>,
}

impl<R: Role> RolePassphrase<R> {
    /// Returns the passphrase on standard input if `stdin` is true, otherwise that of the terminal.
    pub(crate) fn stdinpass(stdin: bool) -> Self {
        let [option, ..] = R::OPTIONS;
        Self {
            source: match stdin {
                true => Source::Stdin(option),
                false => Source::Terminal,
            },
            ..Self::default()
        }
    }

    /// Returns the option that was given, or `None`.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.source.option()
    }

    /// Returns the number of passphrases that it takes from standard input: one or none.
    pub(crate) fn on_stdin(&self) -> usize {
        usize::from(matches!(self.source, Source::Stdin(_)))
    }

    /// Returns the passphrase that opens something; `None` if it is not known. `before` counts the
    /// passphrases that come first on standard input.
    fn read(&self, before: usize, question: &str) -> Result<Option<Secret>> {
        self.once(|| self.source.read(before, question))
    }

    /// Returns a new passphrase, which is never empty. A terminal asks for it twice. `before`
    /// counts the passphrases that come first on standard input, for opening things.
    pub(crate) fn choose(&self, before: usize) -> Result<Secret> {
        self.once(|| self.source.choose(before, R::NEW))?
            .ok_or_else(|| Error::new(Kind::WrongKey, R::NEW, "not given"))
    }

    /// Calls `read` no more than once.
    fn once(&self, read: impl FnOnce() -> Result<Option<Secret>>) -> Result<Option<Secret>> {
        // Standard input and a descriptor can be read once only.
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.clone());
        }
        let secret = read()?;
        Ok(self.known.borrow_mut().insert(secret).clone())
    }

    /// Wipes the passphrase from memory, once everything that it opens is open.
    fn wipe(&self) {
        *self.known.borrow_mut() = None;
        stdin::wipe();
    }
}

impl<R: Role> Args for RolePassphrase<R> {
    fn group_id() -> Option<Id> {
        Some(Id::from(R::GROUP))
    }

    fn augment_args(command: Command) -> Command {
        let [stdin, file, descriptor, variable] = R::OPTIONS;
        let args = [
            (
                Arg::new(stdin).action(ArgAction::SetTrue),
                "Read",
                "from standard input",
                "It ends with a NUL or at the end of the input. A newline is part of it.",
            ),
            (
                Arg::new(file)
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .value_hint(ValueHint::FilePath),
                "Read",
                "from a file",
                "A newline at the end of the file is ignored.",
            ),
            (
                Arg::new(descriptor)
                    .value_name("N")
                    .value_parser(value_parser!(u32)),
                "Read",
                "from a file descriptor",
                "A newline at the end is ignored.",
            ),
            (
                Arg::new(variable)
                    .value_name("NAME")
                    .value_parser(value_parser!(OsString)),
                "Take",
                "from a variable",
                "NAME is an environment variable, which is removed from the environment of this process.",
            ),
        ];
        let command = command.group(ArgGroup::new(R::GROUP).args(R::OPTIONS));
        args.into_iter().zip(R::OPTIONS).enumerate().fold(
            command,
            |command, (n, ((arg, verb, origin, details), option))| {
                let help = format!("{verb} {} {origin}", R::WHAT);
                command.arg(
                    arg.long(&option[2..])
                        .long_help(format!("{help}\n\n{details}"))
                        .help(help)
                        .help_heading(R::HEADING)
                        .display_order(R::ORDER + n),
                )
            },
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<R: Role> FromArgMatches for RolePassphrase<R> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let [stdin, file, descriptor, variable] = R::OPTIONS;
        let source = if matches.get_flag(stdin) {
            Source::Stdin(stdin)
        } else if let Some(path) = matches.get_one::<PathBuf>(file) {
            Source::File(file, path.clone())
        } else if let Some(&number) = matches.get_one::<u32>(descriptor) {
            Source::Descriptor(descriptor, number)
        } else if let Some(name) = matches.get_one::<OsString>(variable) {
            Source::Variable(variable, name.clone())
        } else {
            Source::Terminal
        };
        Ok(Self {
            source,
            known: RefCell::default(),
            role: PhantomData,
        })
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
