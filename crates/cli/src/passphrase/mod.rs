//! Where passphrases come from. Never from the arguments, which every user can see.
//!
//! A command may need several: of the image that it opens, of an encrypted volume in it, and for
//! what it makes. The options of the second carry the prefix `--volume-`, those of the third
//! `--new-`. Over one standard input they come in this order, each ended by a NUL.

mod handed;
mod keys;
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

pub(crate) use handed::hide;
pub(crate) use keys::{ImageUnlocking, Iterations, Unlocking, Wrapping, certificate};
use source::Source;

/// What to do about a key that is missing or wrong.
pub(crate) const HINT: &str = "a passphrase is read by --passfile FILE, --passfd N, --passenv NAME or --stdinpass, a private key by --private-key FILE";

/// The same of an encrypted volume in an image.
pub(crate) const VOLUME_HINT: &str = "the passphrase of a volume is read by --volume-passfile FILE, --volume-passfd N, \
                                      --volume-passenv NAME or --volume-stdinpass, a recovery key by --recovery-key-file FILE";

/// What a passphrase is for, and so which options say where it comes from.
pub(crate) trait Role: fmt::Debug + Clone + Default {
    /// The name of the options together, for those that exclude them all.
    const GROUP: &'static str;
    /// From standard input, a file, a file descriptor, an environment variable.
    const OPTIONS: [&'static str; 4];
    /// What is read, as the help of the options calls it.
    const WHAT: &'static str;
    /// The same of something new, as the terminal is asked.
    const NEW: &'static str;
    /// The heading in the help, and the place of the first option below it.
    const HEADING: &'static str;
    const ORDER: usize;
}

/// The passphrase of an encrypted image, for every verb that opens one. Without an option the
/// terminal is asked.
pub(crate) type Passphrase = PassphraseOf<TheImage>;
/// The passphrase of an encrypted volume in an image. Without an option the terminal is asked.
pub(crate) type VolumePassphrase = PassphraseOf<TheVolume>;
/// The passphrase of what a verb makes, beside that of the image it opens. Without an option the
/// terminal is asked, twice.
pub(crate) type NewPassphrase = PassphraseOf<TheNew>;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TheImage;

impl Role for TheImage {
    const GROUP: &'static str = "passphrase";
    const OPTIONS: [&'static str; 4] = ["--stdinpass", "--passfile", "--passfd", "--passenv"];
    const WHAT: &'static str = "the passphrase of an encrypted image";
    const NEW: &'static str = "new passphrase";
    const HEADING: &'static str = "Encrypted images";
    const ORDER: usize = 800;
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TheVolume;

impl Role for TheVolume {
    const GROUP: &'static str = "volume-passphrase";
    const OPTIONS: [&'static str; 4] = [
        "--volume-stdinpass",
        "--volume-passfile",
        "--volume-passfd",
        "--volume-passenv",
    ];
    const WHAT: &'static str = "the passphrase of an encrypted volume";
    const NEW: &'static str = "passphrase of the new volume";
    const HEADING: &'static str = "Encrypted volumes";
    const ORDER: usize = 820;
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TheNew;

impl Role for TheNew {
    const GROUP: &'static str = "new-passphrase";
    const OPTIONS: [&'static str; 4] = [
        "--new-stdinpass",
        "--new-passfile",
        "--new-passfd",
        "--new-passenv",
    ];
    const WHAT: &'static str = "the new passphrase";
    const NEW: &'static str = "new passphrase";
    const HEADING: &'static str = "New passphrase";
    const ORDER: usize = 850;
}

/// One passphrase: where it comes from and, once it was read or typed, what it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassphraseOf<R: Role> {
    source: Source,
    /// `None`: not read yet.
    known: RefCell<Option<Option<Secret>>>,
    role: PhantomData<R>,
}

impl<R: Role> PassphraseOf<R> {
    /// The option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.source.option()
    }

    /// Returns how many passphrases it is on standard input: one or none.
    pub(crate) fn on_stdin(&self) -> usize {
        usize::from(matches!(self.source, Source::Stdin(_)))
    }

    /// The passphrase that opens something; `None` if nobody knows it. `before` are on standard
    /// input before it.
    fn read(&self, before: usize, question: &str) -> Result<Option<Secret>> {
        self.once(|| self.source.read(before, question))
    }

    /// The passphrase that a verb gives to what it makes: asked for twice on a terminal, and never
    /// empty. `before` are on standard input before it, those of what the verb opens.
    pub(crate) fn choose(&self, before: usize) -> Result<Secret> {
        self.once(|| self.source.choose(before, R::NEW))?
            .ok_or_else(|| Error::new(Kind::WrongKey, R::NEW, "is needed"))
    }

    /// What `read` gives, asked for no more than once.
    fn once(&self, read: impl FnOnce() -> Result<Option<Secret>>) -> Result<Option<Secret>> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.clone());
        }
        let secret = read()?;
        Ok(self.known.borrow_mut().insert(secret).clone())
    }

    /// Wipes it from memory: everything that it opens is open.
    fn forget(&self) {
        *self.known.borrow_mut() = None;
        stdin::forget();
    }
}

impl<R: Role> Args for PassphraseOf<R> {
    fn group_id() -> Option<Id> {
        Some(Id::from(R::GROUP))
    }

    fn augment_args(command: Command) -> Command {
        let [stdin, file, descriptor, variable] = R::OPTIONS;
        let args = [
            (
                Arg::new(stdin).action(ArgAction::SetTrue),
                "Read",
                "from standard input, up to a NUL or the end; a newline is part of it",
            ),
            (
                Arg::new(file)
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .value_hint(ValueHint::FilePath),
                "Read",
                "from a file, without the newline at its end if it has one",
            ),
            (
                Arg::new(descriptor)
                    .value_name("N")
                    .value_parser(value_parser!(u32)),
                "Read",
                "from an open file descriptor, as from a file",
            ),
            (
                Arg::new(variable)
                    .value_name("NAME")
                    .value_parser(value_parser!(OsString)),
                "Take",
                "from an environment variable",
            ),
        ];
        let command = command.group(ArgGroup::new(R::GROUP).args(R::OPTIONS));
        args.into_iter().zip(R::OPTIONS).enumerate().fold(
            command,
            |command, (n, ((arg, verb, whence), option))| {
                let help = format!("{verb} {} {whence}", R::WHAT);
                command.arg(
                    arg.long(&option[2..])
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

impl<R: Role> FromArgMatches for PassphraseOf<R> {
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
