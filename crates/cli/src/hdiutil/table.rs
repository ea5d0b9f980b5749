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
    /// The tables of its [options](Opt), a row a line; options of several verbs have their own.
    pub(super) options: &'static [&'static str],
    /// The function; `None` for an unsupported verb, for which `says` gives the reason.
    pub(super) run: Option<fn(&Call) -> Outcome>,
}

/// An option: a row of a table of options, which has its names and its value, its effect, and what
/// that is, as docs/hdiutil.md shows them.
#[derive(Debug)]
pub(super) struct Opt {
    /// The names without the dash. The first is the one that [`Call`] uses.
    pub(super) names: Vec<&'static str>,
    pub(super) takes: OptionValue,
    pub(super) effect: Effect,
    /// The effect or the reason, in a sentence.
    pub(super) says: &'static str,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OptionValue {
    Nothing,
    /// A value of this name: `*name*`.
    Value(&'static str),
    /// A value of this name, one of these words, or one that begins with a word that ends in `=`:
    /// `*name*{one|other=}`.
    Choice(&'static str, Vec<&'static str>),
    /// An optional value, one of these words in any case: `[one|other]`.
    Word(Vec<&'static str>),
    /// A file, unless the verb would be left without an operand: `[*file*]`.
    File,
}

/// The effect of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The option has its usual effect.
    Done,
    /// The option is accepted without effect.
    Ignored,
    /// The option is refused.
    Refused,
}

impl Opt {
    /// Parses a row; `None` for a line that is none.
    pub(super) fn parse(row: &'static str) -> Option<Self> {
        let (syntax, rest) = row.split_once(" | ")?;
        let (effect, says) = rest.split_once(" | ")?;
        let (names, value) = syntax.split_at(syntax.find(['*', '[']).unwrap_or(syntax.len()));
        let words = value
            .strip_prefix('[')
            .and_then(|value| value.strip_suffix(']'));
        Some(Self {
            names: names
                .split_whitespace()
                .map(|name| name.trim_start_matches('-'))
                .collect(),
            takes: match words {
                Some("*file*") => OptionValue::File,
                Some(words) => OptionValue::Word(words.split('|').collect()),
                None if value.is_empty() => OptionValue::Nothing,
                None => match value.trim_end_matches('}').split_once('{') {
                    None => OptionValue::Value(value.trim_matches('*')),
                    Some((what, words)) => {
                        OptionValue::Choice(what.trim_matches('*'), words.split('|').collect())
                    }
                },
            },
            effect: match effect {
                "done" => Effect::Done,
                "ignored" => Effect::Ignored,
                "refused" => Effect::Refused,
                _ => return None,
            },
            says,
        })
    }
}

impl Verb {
    /// Returns the options in the tables of the verb, in their order.
    pub(super) fn options(&self) -> impl Iterator<Item = Opt> {
        let rows = self.options.iter().flat_map(|table| table.lines());
        rows.filter_map(Opt::parse)
    }
}

/// The options for keys that are refused.
pub(super) const KEYS: &str = "
-passphrase *text* | refused | arguments are visible to all users; use -stdinpass
-agentpass | refused | no agent is supported; use -stdinpass
-recover *keychain* | refused | keychains are not supported; use `bandsaw --private-key FILE`
";

/// The options of every verb.
pub(super) const COMMON: &str = "
-verbose | ignored | messages are always complete
-debug | ignored | there is no framework log
-quiet | done | prints nothing but errors and warnings that contents are missing; the exit status is unchanged
";

/// The option for output as a property list.
pub(super) const PLIST: &str = "
-plist | done | prints the result as a property list
";

/// The option for progress for programs.
pub(super) const PUPPET: &str = "
-puppetstrings | done | prints lines PERCENTAGE:n; -1 if the length is unknown
";

/// The options for opening an image.
pub(super) const OPENING: &str = "
-stdinpass | done | reads the passphrase from standard input, up to a NUL
-shadow [*file*] | done | writes changes to this file; IMAGE.shadow by default
-srcimagekey -imagekey *key=value*{diskimage-class=CRawDiskImage} | done | diskimage-class=CRawDiskImage opens the source as a raw image; other keys are not required
-cacert *file* | ignored | the trusted certificates are the system's
-insecurehttp | ignored | images at http:// are always read
";

/// The options for encrypting a new image.
pub(super) const ENCRYPTING: &str = "
-encryption [AES-128|AES-256|CEncryptedEncoding] | done | encrypts the new image; AES-128 by default
-certificate *file* | done | the private key of this certificate can also open the image
-pubkey *hashes* | refused | keychains are not supported; use -certificate
";

/// The option for overwriting files.
pub(super) const OVERWRITE: &str = "
-ov | done | replaces an existing image
";
