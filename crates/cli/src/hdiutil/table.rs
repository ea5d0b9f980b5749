//! The tables of hdiutil's verbs and options and their effects here, for parsing and for
//! docs/hdiutil.md.

use super::call::Call;
use crate::failure::Outcome;

/// A verb.
#[derive(Debug)]
pub(super) struct Verb {
    /// The name and its synonyms.
    pub(super) names: &'static [&'static str],
    /// The operands.
    pub(super) operands: &'static str,
    /// The smallest and largest number of operands.
    pub(super) count: (usize, usize),
    /// The effect, in a sentence.
    pub(super) says: &'static str,
    /// The options; those of several verbs have their own tables.
    pub(super) options: &'static [&'static [Opt]],
    /// The function; `None` for an unsupported verb, for which `says` gives the reason.
    pub(super) run: Option<fn(&Call) -> Outcome>,
}

/// An option.
#[derive(Debug)]
pub(super) struct Opt {
    /// The names without the dash. The first is the one that [`Call`] uses.
    pub(super) names: &'static [&'static str],
    pub(super) takes: OptionValue,
    pub(super) effect: Effect,
}

/// The value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionValue {
    Nothing,
    /// A value of this name.
    Value(&'static str),
    /// An optional value, one of these words in any case.
    Word(&'static [&'static str]),
    /// A file, unless the verb would be left without an operand.
    File,
}

/// The effect of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The option has its usual effect.
    Done(&'static str),
    /// The option is accepted without effect, for this reason.
    Ignored(&'static str),
    /// The option is refused, for this reason.
    Refused(&'static str),
}

use Effect::{Done, Ignored, Refused};
use OptionValue::{File, Nothing, Value, Word};

impl Verb {
    pub(super) fn options(&self) -> impl Iterator<Item = &'static Opt> {
        self.options.iter().flat_map(|table| table.iter())
    }
}

pub(super) const fn opt(names: &'static [&'static str], takes: OptionValue, effect: Effect) -> Opt {
    Opt {
        names,
        takes,
        effect,
    }
}

/// The options for keys that are refused.
pub(super) const PASSPHRASE: Opt = opt(
    &["passphrase"],
    Value("text"),
    Refused("arguments are visible to all users; use -stdinpass"),
);
pub(super) const AGENTPASS: Opt = opt(
    &["agentpass"],
    Nothing,
    Refused("no agent is supported; use -stdinpass"),
);
pub(super) const RECOVER: Opt = opt(
    &["recover"],
    Value("keychain"),
    Refused("keychains are not supported; use `bandsaw --private-key FILE`"),
);

/// The options of every verb.
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
        Done(
            "prints nothing but errors and warnings that contents are missing; the exit status is unchanged",
        ),
    ),
];

/// The option for output as a property list.
pub(super) const PLIST: &[Opt] = &[opt(
    &["plist"],
    Nothing,
    Done("prints the result as a property list"),
)];

/// The option for progress for programs.
pub(super) const PUPPET: &[Opt] = &[opt(
    &["puppetstrings"],
    Nothing,
    Done("prints lines PERCENTAGE:n; -1 if the length is unknown"),
)];

/// The options for opening an image.
pub(super) const OPENING: &[Opt] = &[
    opt(
        &["stdinpass"],
        Nothing,
        Done("reads the passphrase from standard input, up to a NUL"),
    ),
    opt(
        &["shadow"],
        File,
        Done("writes changes to this file; IMAGE.shadow by default"),
    ),
    opt(
        &["srcimagekey", "imagekey"],
        Value("key=value"),
        Done(
            "diskimage-class=CRawDiskImage opens the source as a raw image; other keys are not \
             required",
        ),
    ),
    PASSPHRASE,
    AGENTPASS,
    RECOVER,
    opt(
        &["cacert"],
        Value("file"),
        Ignored("the trusted certificates are the system's"),
    ),
    opt(
        &["insecurehttp"],
        Nothing,
        Ignored("images at http:// are always read"),
    ),
];

/// The options for encrypting a new image.
pub(super) const ENCRYPTING: &[Opt] = &[
    opt(
        &["encryption"],
        Word(&["AES-128", "AES-256", "CEncryptedEncoding"]),
        Done("encrypts the new image; AES-128 by default"),
    ),
    opt(
        &["certificate"],
        Value("file"),
        Done("the private key of this certificate can also open the image"),
    ),
    opt(
        &["pubkey"],
        Value("hashes"),
        Refused("keychains are not supported; use -certificate"),
    ),
];

/// The option for overwriting files.
pub(super) const OVERWRITE: &[Opt] = &[opt(&["ov"], Nothing, Done("replaces an existing image"))];
