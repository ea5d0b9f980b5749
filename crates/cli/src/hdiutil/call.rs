//! A verb with its options and operands, parsed by the table of the verb.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::container::Format;
use bandsaw::crypt::Secret;
use bandsaw::device::Access;
use bandsaw::open::{self, Image, KeyFile};
use plist::Value as Plist;

use super::table::{Effect, Opt, OptionValue, Verb};
use crate::failure::{Failure, Outcome};
use crate::global_args::{Color, Global};
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::passphrase::{Passphrase, UnlockArgs};
use crate::source::OpenArgs;

/// A parsed command line.
#[derive(Debug)]
pub(super) struct Call {
    options: Vec<(&'static str, Option<String>)>,
    operands: Vec<String>,
    pub(super) output: Output,
}

impl Call {
    /// Parses the arguments of a verb.
    pub(super) fn parse(verb: &'static Verb, words: &[OsString]) -> Outcome<Self> {
        let mut texts = Vec::with_capacity(words.len());
        for word in words {
            texts.push(
                word.to_str()
                    .ok_or_else(|| Failure::usage("arguments", "the arguments are not UTF-8"))?,
            );
        }
        let mut call = Self {
            options: Vec::new(),
            operands: Vec::new(),
            output: Output::new(&GLOBAL),
        };
        let mut rest = texts.iter().copied().enumerate();
        while let Some((at, word)) = rest.next() {
            let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else {
                // dmgbuild passes an empty operand.
                if !word.is_empty() {
                    call.operands.push(word.to_owned());
                }
                continue;
            };
            let name = name.strip_prefix('-').unwrap_or(name);
            let (name, joined) = name
                .split_once('=')
                .map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
            let option = find(verb, name)?;
            let next = texts.get(at + 1).copied();
            let value = match option.takes {
                OptionValue::Nothing => None,
                _ if joined.is_some() => joined,
                OptionValue::Value(what) | OptionValue::Choice(what, _) => {
                    let missing = || usage(format!("option -{name} requires a value: {what}"));
                    Some(rest.next().ok_or_else(missing)?.1.to_owned())
                }
                OptionValue::Word(words) => {
                    let is_one = next.is_some_and(|next| {
                        words.iter().any(|word| word.eq_ignore_ascii_case(next))
                    });
                    if is_one {
                        rest.next().map(|(_, word)| word.to_owned())
                    } else {
                        None
                    }
                }
                OptionValue::File => {
                    let mut behind = texts[at + 1..].iter().filter(|word| !word.starts_with('-'));
                    let spare = behind.clone().count() + call.operands.len() > verb.count.0;
                    let is_one = spare && behind.next().copied() == next;
                    if is_one {
                        rest.next().map(|(_, word)| word.to_owned())
                    } else {
                        None
                    }
                }
            };
            match option.effect {
                Effect::Refused => return Err(usage(format!("-{name}: {}", option.says))),
                Effect::Ignored => {}
                Effect::Done => call.options.push((option.names[0], value)),
            }
        }
        let (least, most) = verb.count;
        if !(least..=most).contains(&call.operands.len()) {
            return Err(usage(format!(
                "usage: {} [options] {}",
                verb.names[0], verb.operands
            )));
        }
        let global = Global {
            quiet: true,
            ..GLOBAL
        };
        call.output = Output::new(&global).for_programs(call.has("puppetstrings"));
        Ok(call)
    }

    /// Returns true if the option with this first name, without its hyphen, was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == name)
    }

    /// Fails if both options of a pair are given.
    pub(super) fn check_pairs(&self, pairs: &[[&str; 2]]) -> Outcome {
        match pairs.iter().find(|[a, b]| self.has(a) && self.has(b)) {
            Some([a, b]) => Err(usage(format!("-{a} cannot be used with -{b}"))),
            None => Ok(()),
        }
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .filter(|(option, _)| *option == name)
            .filter_map(|(_, value)| value.as_deref())
            .next_back()
    }

    /// Returns every occurrence of an option, with its value if it has one.
    pub(super) fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Option<&'a str>> + 'a {
        self.options
            .iter()
            .filter(move |(option, _)| *option == name)
            .map(|(_, value)| value.as_deref())
    }

    /// Returns all values of an option, in order.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.each(name).flatten()
    }

    /// Returns the value of a key of `-imagekey` and similar options.
    pub(super) fn key(&self, option: &str, key: &str) -> Option<&str> {
        let pairs = self
            .options
            .iter()
            .filter(|(name, _)| *name == option)
            .filter_map(|(_, value)| value.as_deref());
        pairs
            .filter_map(|pair| pair.split_once('='))
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .next_back()
    }

    /// Returns the first operand, which most verbs require.
    pub(super) fn image(&self) -> &str {
        self.operands.first().map_or("", String::as_str)
    }

    pub(super) fn operands(&self) -> &[String] {
        &self.operands
    }

    /// Returns the output of a verb of bandsaw whose output is the result.
    pub(super) fn aloud(&self) -> Output {
        let global = Global {
            quiet: self.has("quiet"),
            ..GLOBAL
        };
        Output::new(&global).for_programs(self.has("puppetstrings"))
    }

    /// Returns the options for opening an image as requested.
    pub(super) fn opening(&self) -> OpenArgs {
        self.opening_for(true)
    }

    /// The same if a passphrase may be meant for the new image.
    pub(super) fn opening_for(&self, is_encrypted: bool) -> OpenArgs {
        OpenArgs::with(
            UnlockArgs::stdinpass(self.has("stdinpass") && is_encrypted),
            self.shadows(),
            self.is_raw().then_some(Format::Udrw),
        )
    }

    /// Returns the options of the server that opens an image as requested.
    pub(super) fn server_words(&self, is_encrypted: bool) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.has("stdinpass") && is_encrypted {
            words.push("--stdinpass".into());
        }
        for shadow in self.shadows() {
            words.extend(["--shadow".into(), shadow.into_os_string()]);
        }
        if self.is_raw() {
            words.extend(["--image-format".into(), "udrw".into()]);
        }
        words
    }

    fn is_raw(&self) -> bool {
        self.key("srcimagekey", "diskimage-class") == Some("CRawDiskImage")
    }

    fn shadows(&self) -> Vec<PathBuf> {
        if !self.has("shadow") {
            return Vec::new();
        }
        let default = || format!("{}.shadow", self.image().trim_end_matches('/'));
        vec![
            self.value("shadow")
                .map_or_else(default, str::to_owned)
                .into(),
        ]
    }

    /// Opens the image for reading.
    pub(super) fn open(&self) -> Outcome<(Image, OpenArgs)> {
        let opening = self.opening();
        Ok((
            opening.open(&self.image().into(), Access::ReadOnly)?,
            opening,
        ))
    }

    /// Returns true if an image is encrypted, without a passphrase.
    pub(super) fn is_encrypted_at(path: &str) -> Outcome<bool> {
        let network = NetworkArgs::default();
        if let Some(archive) = open::archive(Path::new(path), network.options())? {
            return Ok(archive.profile.is_encrypted());
        }
        Ok(KeyFile::open(Path::new(path), Access::ReadOnly, network.options())?.is_some())
    }

    /// Returns a passphrase for a new image.
    pub(super) fn new_passphrase(&self) -> Outcome<Secret> {
        Ok(Passphrase::stdinpass(self.has("stdinpass")).choose(0)?)
    }

    /// Prints the names of new files, as `create` and `convert` do.
    pub(super) fn created(&self, paths: &[PathBuf]) -> Outcome {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()))
            .collect();
        let texts = || paths.iter().map(|path| path.to_string_lossy().into_owned());
        if self.has("plist") {
            return self.plist(Plist::Array(texts().map(Plist::String).collect()));
        }
        self.print(
            &texts()
                .map(|path| format!("created: {path}\n"))
                .collect::<String>(),
        )
    }

    /// Prints a result.
    pub(super) fn print(&self, text: &str) -> Outcome {
        use std::io::Write;
        if !self.has("quiet") {
            let mut out = self.output.stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    /// Prints a property list.
    pub(super) fn plist(&self, value: Plist) -> Outcome {
        let mut bytes = Vec::new();
        let failed =
            |error: plist::Error| Error::invalid("property list", "write").caused_by(error);
        value.to_writer_xml(&mut bytes).map_err(failed)?;
        bytes.push(b'\n');
        self.print(&String::from_utf8_lossy(&bytes))
    }
}

const GLOBAL: Global = Global {
    json: false,
    quiet: false,
    color: Color::Never,
    quoting: None,
    progress: false,
};

/// Returns the option of this name, or the only one that begins with it, in any case.
pub(super) fn find(verb: &'static Verb, name: &str) -> Outcome<Opt> {
    let is_it = |full: &&str| full.eq_ignore_ascii_case(name);
    if let Some(option) = verb.options().find(|option| option.names.iter().any(is_it)) {
        return Ok(option);
    }
    let begins = |full: &&str| {
        full.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let mut begun = verb
        .options()
        .filter(|option| option.names.iter().any(begins));
    match (begun.next(), begun.next()) {
        (Some(option), None) => Ok(option),
        (Some(_), Some(_)) => Err(usage(format!("ambiguous option -{name}"))),
        _ => Err(usage(format!(
            "{}: unknown option -{name}; run `bandsaw hdiutil help -markdown` to list all",
            verb.names[0]
        ))),
    }
}

/// Returns an error about arguments.
pub(super) fn usage(message: String) -> Failure {
    Failure::usage("hdiutil", message)
}
