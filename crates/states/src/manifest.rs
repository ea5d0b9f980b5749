//! The list of a state's files, `.bandsaw/state.json`.

use std::collections::BTreeMap;

use bandsaw::container::sparsebundle::STATE;
use bandsaw::open::{Conclusion, Contents, Examination};
use bandsaw::store::{HostStore, check_name};
use bandsaw::{Kind, Result};
use serde::{Deserialize, Serialize};

use crate::bundle::Identity;
use crate::sealed::{self, Found};

/// Version of the format. States of another version are neither used nor removed.
pub(crate) const FORMAT: u64 = 1;

/// The result of the check of a state when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Soundness {
    /// Everything was checked, and nothing is damaged.
    Sound,
    /// Damage was found.
    Damaged,
    /// It is encrypted, and no key was given.
    Locked,
    /// The contents are of a kind that cannot be checked.
    Unknown,
    /// No check was asked for.
    Unchecked,
}

impl Soundness {
    /// Returns the soundness of a bundle by its check. Fails if the check could not be made.
    pub fn of(examined: Result<Examination>) -> Result<Self> {
        match examined {
            Ok(found) => Ok(match found.conclusion() {
                Conclusion::Damaged => Self::Damaged,
                Conclusion::Warned if found.is_in_doubt => Self::Damaged,
                Conclusion::Unknown(error) if error.kind() == Kind::WrongKey => Self::Locked,
                Conclusion::Unknown(_) | Conclusion::Unchecked => Self::Unknown,
                // Nothing of a backup was found that could be sound.
                _ if found.contents == Some(Contents::Blank) => Self::Unknown,
                Conclusion::Warned | Conclusion::Sound => Self::Sound,
            }),
            Err(error) => match error.kind() {
                Kind::Corrupt | Kind::Undecided => Ok(Self::Damaged),
                Kind::WrongKey => Ok(Self::Locked),
                Kind::Unsupported => Ok(Self::Unknown),
                _ => Err(error),
            },
        }
    }

    /// Returns the name for programs and people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Damaged => "damaged",
            Self::Locked => "locked",
            Self::Unknown => "unknown",
            Self::Unchecked => "unchecked",
        }
    }
}

/// A file of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// BLAKE3 of the contents, in hexadecimal.
    pub hash: String,
    /// Length in bytes.
    pub len: u64,
    /// Modification time of the state's file, in nanoseconds since 1970.
    pub modified: i64,
    /// The bundle's file when the state was made.
    pub live: Identity,
}

/// The contents of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Position in the order of states: clocks can run backwards.
    pub sequence: u64,
    /// The time at which the bundle's files were listed, in nanoseconds since 1970.
    pub listed: i64,
    /// The name of the bundle.
    pub bundle: String,
    /// The result of the check.
    pub check: Soundness,
    /// Bytes that were copied for it: it shares the others with earlier states.
    pub copied: u64,
    /// The files by name.
    pub files: BTreeMap<String, StateFile>,
}

impl Manifest {
    /// Returns the number of bytes of all files.
    pub fn size(&self) -> u64 {
        self.files
            .values()
            .fold(0, |sum, file| sum.saturating_add(file.len))
    }

    /// Returns true if another state has files of the same names with the same contents.
    pub fn has_same_files(&self, other: &Self) -> bool {
        self.contents().eq(other.contents())
    }

    /// Returns the names of the files, each with the hash of its contents.
    fn contents(&self) -> impl Iterator<Item = (&String, &String)> {
        self.files.iter().map(|(name, file)| (name, &file.hash))
    }

    pub(crate) fn put(&self, store: &dyn HostStore, folder: &str) -> Result<()> {
        sealed::put(store, &format!("{folder}{STATE}"), FORMAT, self)
    }

    pub(crate) fn get(store: &dyn HostStore, folder: &str) -> Result<Found<Self>> {
        sealed::get::<Self>(store, &format!("{folder}{STATE}"), FORMAT).map(Self::checked)
    }

    /// Takes a list with a name that leads out of the bundle for damaged.
    pub(crate) fn checked(found: Found<Self>) -> Found<Self> {
        match found {
            Found::Whole(list) if !list.files.keys().all(|name| is_inside(name)) => Found::Damaged,
            found => found,
        }
    }
}

/// Returns true for a name that a bundle's own files can have.
fn is_inside(name: &str) -> bool {
    check_name(name).is_ok() && !name.starts_with(".bandsaw") && name != "lock"
}
