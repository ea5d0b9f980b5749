//! What the verbs of hdiutil take, and what becomes of it here: the tables that are parsed by, and
//! that docs/hdiutil.md prints.

use super::call::Call;
use crate::failure::Outcome;

/// A verb.
#[derive(Debug)]
pub(super) struct Verb {
    /// Its name, and others that it goes by.
    pub(super) names: &'static [&'static str],
    /// What stands behind it.
    pub(super) operands: &'static str,
    /// How many: the least and the most.
    pub(super) count: (usize, usize),
    /// What it does here, in a sentence.
    pub(super) says: &'static str,
    /// Its options, those of several verbs in tables of their own.
    pub(super) options: &'static [&'static [Opt]],
    /// The work; `None` for a verb that is refused, for which `says` tells why.
    pub(super) run: Option<fn(&Call) -> Outcome>,
}

/// An option.
#[derive(Debug)]
pub(super) struct Opt {
    /// Without the dash. The first is the one that [`Call`] knows it by.
    pub(super) names: &'static [&'static str],
    pub(super) takes: Takes,
    pub(super) effect: Effect,
}

/// What follows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// A value, called this.
    Value(&'static str),
    /// A value if it is one of these words, in any case.
    Word(&'static [&'static str]),
    /// A file, unless that leaves the verb without an operand.
    File,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It does what it says.
    Done(&'static str),
    /// It is taken and changes nothing, for this reason.
    Ignored(&'static str),
    /// It ends the verb, for this reason.
    Refused(&'static str),
}

use Effect::{Done, Ignored, Refused};
use Takes::{File, Nothing, Value, Word};

impl Verb {
    pub(super) fn options(&self) -> impl Iterator<Item = &'static Opt> {
        self.options.iter().flat_map(|table| table.iter())
    }
}

pub(super) const fn opt(names: &'static [&'static str], takes: Takes, effect: Effect) -> Opt {
    Opt {
        names,
        takes,
        effect,
    }
}

/// Of every verb.
pub(super) const COMMON: &[Opt] = &[
    opt(
        &["verbose"],
        Nothing,
        Ignored("messages are always complete"),
    ),
    opt(&["debug"], Nothing, Ignored("there is no framework log")),
    opt(
        &["quiet"],
        Nothing,
        Done("nothing is printed; the exit status remains"),
    ),
];

/// Results for programs.
pub(super) const PLIST: &[Opt] = &[opt(
    &["plist"],
    Nothing,
    Done("the result is a property list on standard output"),
)];

/// Progress for programs.
pub(super) const PUPPET: &[Opt] = &[opt(
    &["puppetstrings"],
    Nothing,
    Done("lines PERCENTAGE:n on standard output; -1 where the length is not known"),
)];

/// What opens an image.
pub(super) const OPENING: &[Opt] = &[
    opt(
        &["stdinpass"],
        Nothing,
        Done("the passphrase is read from standard input up to a NUL"),
    ),
    opt(
        &["shadow"],
        File,
        Done("changes go to this file; IMAGE.shadow by default"),
    ),
    opt(
        &["srcimagekey", "imagekey"],
        Value("key=value"),
        Done(
            "diskimage-class=CRawDiskImage treats the source as a raw image; other keys are recognition hints, which are not needed",
        ),
    ),
    opt(
        &["passphrase"],
        Value("text"),
        Refused("every user of the machine can read it in the list of processes; use -stdinpass"),
    ),
    opt(
        &["agentpass"],
        Nothing,
        Refused("there is no agent to ask; use -stdinpass"),
    ),
    opt(
        &["recover"],
        Value("keychain"),
        Refused("keychains are not read; `bandsaw` takes a private key as --private-key FILE"),
    ),
    opt(
        &["cacert"],
        Value("file"),
        Ignored("the trusted certificates are the system's"),
    ),
    opt(
        &["insecurehttp"],
        Nothing,
        Ignored("images behind http:// are always read"),
    ),
];

/// How a new image is encrypted.
pub(super) const ENCRYPTING: &[Opt] = &[
    opt(
        &["encryption"],
        Word(&["AES-128", "AES-256", "CEncryptedEncoding"]),
        Done("the new image is encrypted; AES-128 by default"),
    ),
    opt(
        &["certificate"],
        Value("file"),
        Done("the private key of this certificate opens it too"),
    ),
    opt(
        &["pubkey"],
        Value("hashes"),
        Refused("keys are not looked up by their hashes in a keychain; use -certificate"),
    ),
];

/// Files that are made.
pub(super) const OVERWRITE: &[Opt] =
    &[opt(&["ov"], Nothing, Done("an existing image is replaced"))];
