//! Ambiguities that a repair cannot resolve by itself, and the user's decisions on them.
//!
//! If two sources of an image disagree and the remaining evidence does not decide, a layer changes
//! nothing and fails with [`Undecided`]: the alternatives, each with its evidence and with the text
//! of `--assume` that chooses it. The choice is passed in [`Assumptions`].

use std::collections::BTreeMap;
use std::fmt;

use crate::{Error, Kind, Result, size};

const LAYER: &str = "--assume";

/// One of two copies of a list, a map or a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyChoice {
    /// `Info.plist`, the GPT at the beginning of the disk, the volume header at byte 1024.
    Primary,
    /// `Info.bckup`, the GPT at the end of the disk, the alternate volume header.
    Alternate,
}

impl CopyChoice {
    /// Returns the value in the text of `--assume`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Alternate => "alternate",
        }
    }
}

/// The treatment of stored data that belongs to no part of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrphanChoice {
    /// It is removed.
    Remove,
    /// It becomes the band or chunk that is in use and has no storage.
    Restore,
}

/// Decisions of the user, each of which is used only if the evidence does not decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// `size=BYTES`: the length of the disk, in bytes.
    pub size: Option<u64>,
    /// `band-size=BYTES`: the length of a band of a sparse bundle, in bytes.
    pub band_size: Option<u64>,
    /// `orphans=remove|restore`: the use of stored data that belongs to no part of the disk.
    pub orphans: Option<OrphanChoice>,
    /// `directory=0|1`: the directory of an ASIF image to use.
    pub directory: Option<usize>,
    /// `map=primary|alternate`: the copy of the GPT to use.
    pub map: Option<CopyChoice>,
    /// `header=primary|alternate`: the volume header to use.
    pub header: Option<CopyChoice>,
    /// `header@N=primary|alternate`: the volume header to use of the volume in partition N.
    headers: BTreeMap<u32, CopyChoice>,
}

impl Assumptions {
    /// The texts of all decisions; a size follows those that end in `=`.
    pub const CHOICES: [&str; 10] = [
        "size=",
        "band-size=",
        "orphans=remove",
        "orphans=restore",
        "directory=0",
        "directory=1",
        "map=primary",
        "map=alternate",
        "header=primary",
        "header=alternate",
    ];

    /// Adds one `KEY=VALUE`. [`Kind::Invalid`] if the key is unknown, its value is invalid, or it
    /// was given before.
    pub fn add(&mut self, text: &str) -> Result<()> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| invalid(text, "expected KEY=VALUE"))?;
        let which = || match value {
            "primary" => Ok(CopyChoice::Primary),
            "alternate" => Ok(CopyChoice::Alternate),
            _ => Err(invalid(
                text,
                "expected `primary` or `alternate` as the value",
            )),
        };
        let bytes = || {
            size::parse(value)
                .map_err(|error| invalid(text, "expected a size as the value").caused_by(error))
        };
        let was_given = match key {
            "size" => self.size.replace(bytes()?).is_some(),
            "band-size" => self.band_size.replace(bytes()?).is_some(),
            "orphans" => {
                let choice = match value {
                    "remove" => OrphanChoice::Remove,
                    "restore" => OrphanChoice::Restore,
                    _ => {
                        let message = "expected `remove` or `restore` as the value";
                        return Err(invalid(text, message));
                    }
                };
                self.orphans.replace(choice).is_some()
            }
            "directory" => {
                let number = match value {
                    "0" => 0,
                    "1" => 1,
                    _ => return Err(invalid(text, "expected `0` or `1` as the value")),
                };
                self.directory.replace(number).is_some()
            }
            "map" => self.map.replace(which()?).is_some(),
            "header" => self.header.replace(which()?).is_some(),
            _ => {
                let partition = key
                    .strip_prefix("header@")
                    .and_then(|number| number.parse().ok());
                let partition = partition.ok_or_else(|| {
                    invalid(text, "expected one of the keys `size`, `band-size`, `orphans`, `directory`, `map`, `header` and `header@PARTITION`")
                })?;
                self.headers.insert(partition, which()?).is_some()
            }
        };
        if was_given {
            Err(invalid(text, "the key is given twice"))
        } else {
            Ok(())
        }
    }

    /// Returns the decisions that concern the volume in `partition`. A `header` without a partition
    /// concerns the only volume of a disk.
    #[must_use]
    pub fn for_volume(&self, partition: Option<u32>, is_only: bool) -> Self {
        let own = partition.and_then(|partition| self.headers.get(&partition).copied());
        Self {
            header: own.or(self.header.filter(|_| is_only)),
            ..self.clone()
        }
    }
}

fn invalid(text: &str, message: &'static str) -> Error {
    Error::invalid(LAYER, message).named(text)
}

/// One way to resolve a disagreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// The text of `--assume` that chooses this alternative, `header=alternate` for example;
    /// several of them are separated by spaces.
    pub assume: String,
    /// The evidence for and against it, a clause.
    pub evidence: String,
}

/// A disagreement of two sources that the remaining evidence does not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    /// The disagreement, a clause: "Info.plist tells 0 bytes, Info.bckup 41943040".
    pub what: String,
    /// The alternatives. Empty if no assumption resolves the disagreement.
    pub alternatives: Vec<Alternative>,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Alternative { assume, evidence }) in self.alternatives.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{assume}: {evidence}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Undecided {}

impl Undecided {
    /// Returns the error of [`Kind::Undecided`] of a layer that stops here; [`Undecided::of`]
    /// extracts the alternatives.
    pub fn into_error(self, layer: &'static str) -> Error {
        let error = Error::new(Kind::Undecided, layer, self.what.clone());
        if self.alternatives.is_empty() {
            error
        } else {
            error.caused_by(self)
        }
    }

    /// Returns an error about a volume whose alternatives name its partition, for a disk with several
    /// volumes.
    pub fn in_partition(error: Error, number: u32) -> Error {
        if error.kind() != Kind::Undecided {
            return error;
        }
        let named = |one: &Alternative| Alternative {
            assume: one
                .assume
                .replacen("header=", &format!("header@{number}="), 1),
            evidence: one.evidence.clone(),
        };
        Self {
            what: error.message().to_owned(),
            alternatives: Self::of(&error).iter().map(named).collect(),
        }
        .into_error(error.layer())
    }

    /// Returns the alternatives that an error carries.
    pub fn of(error: &Error) -> &[Alternative] {
        let source =
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<Self>());
        source.map_or(&[], |undecided| &undecided.alternatives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_choice_is_one() {
        for choice in Assumptions::CHOICES {
            let text = match choice.ends_with('=') {
                true => format!("{choice}8m"),
                false => choice.to_owned(),
            };
            let mut found = Assumptions::default();
            found.add(&text).unwrap();
            assert_ne!(found, Assumptions::default(), "{choice}");
        }
    }

    #[test]
    fn decisions_are_read_once_each() {
        let mut found = Assumptions::default();
        for text in [
            "size=40m",
            "band-size=1048576",
            "header@2=alternate",
            "header=primary",
        ] {
            found.add(text).unwrap();
        }
        assert_eq!(
            (found.size, found.band_size),
            (Some(40 << 20), Some(1 << 20))
        );
        assert_eq!(
            found.for_volume(Some(2), false).header,
            Some(CopyChoice::Alternate)
        );
        assert_eq!(found.for_volume(Some(1), false).header, None);
        assert_eq!(
            found.for_volume(Some(1), true).header,
            Some(CopyChoice::Primary)
        );
        for text in [
            "size=1g",
            "size",
            "size=x",
            "map=2",
            "orphans=keep",
            "directory=2",
            "colour=blue",
            "header@2=primary",
            "header@x=primary",
        ] {
            assert_eq!(found.add(text).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
    }

    #[test]
    fn alternatives_travel_in_the_error() {
        let alternatives = vec![Alternative {
            assume: "header=alternate".into(),
            evidence: "its trees are there".into(),
        }];
        let error = Undecided {
            what: "the headers disagree".into(),
            alternatives: alternatives.clone(),
        }
        .into_error("test");
        assert_eq!(
            (error.kind(), Undecided::of(&error)),
            (Kind::Undecided, &alternatives[..])
        );
        assert_eq!(
            error.to_string(),
            "test: the headers disagree: header=alternate: its trees are there"
        );
        assert!(Undecided::of(&Error::unsupported("test", "no")).is_empty());
    }
}
