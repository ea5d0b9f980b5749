//! Layers in files of their own, and the records in their user metadata. Source: docs/formats/stack.md §2, §5.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plist::{Dictionary, Value};
use uuid::Uuid;

use super::LAYER;
use crate::address::redacted;
use crate::container::asif::{Asif, Metadata};
use crate::container::stack::{ChainLink, Identity, Role};
use crate::fs::Timestamp;
use crate::{Error, Result};

const BELOW: &str = "bandsaw";
const COMMIT: &str = "bandsaw commit";

/// The state of an image without a UUID when a layer was created over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParentNote {
    /// The name of its file, for messages.
    pub(crate) below: String,
    /// Length of its disk in bytes.
    pub(crate) size: u64,
    /// Modification time in seconds since 1970; of single files only.
    modified: Option<i64>,
}

/// A commit in progress: a layer's contents being written to the image below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The UUID that the image below gets, or already has.
    pub(crate) parent: Uuid,
    /// Bytes of the disk already written.
    pub(crate) done: u64,
    /// The layer's own UUID when the record was written.
    pub(crate) uuid: Uuid,
}

impl ParentNote {
    /// Describes the image at `path`, whose disk has `size` bytes.
    pub(super) fn of(path: &Path, size: u64) -> Self {
        let shown = redacted(&path.to_string_lossy()).into_owned();
        let below = Path::new(&shown)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file);
        let modified = meta.and_then(|meta| meta.modified().ok());
        Self {
            below,
            size,
            modified: modified.map(|time| Timestamp::from(time).seconds),
        }
    }

    /// Returns the user metadata of a new layer.
    pub(super) fn to_dictionary(&self) -> Dictionary {
        let mut note = Dictionary::new();
        note.insert("below".to_owned(), Value::String(self.below.clone()));
        note.insert("size".to_owned(), Value::Integer(self.size.into()));
        if let Some(modified) = self.modified {
            note.insert("modified".to_owned(), Value::Integer(modified.into()));
        }
        Dictionary::from_iter([(BELOW, Value::Dictionary(note))])
    }

    /// Refuses an image that cannot be the one recorded as `then`; returns a warning about lesser
    /// differences.
    pub(super) fn compare(&self, then: &Self) -> Result<Option<String>> {
        if self.size != then.size {
            let message = format!(
                "the layer was created over {}, a disk of {} bytes, but this one has {}",
                then.below, then.size, self.size
            );
            return Err(Error::conflict(LAYER, message));
        }
        let changed = then.modified.is_some() && self.modified != then.modified;
        Ok(changed.then(|| {
            format!(
                "may have changed since the layer was created over it ({}): its date differs",
                then.below
            )
        }))
    }
}

impl Commit {
    /// Returns `user` with this record added.
    pub(crate) fn add_to(&self, mut user: Dictionary) -> Dictionary {
        let mut commit = Dictionary::new();
        commit.insert("parent".to_owned(), Value::String(self.parent.to_string()));
        commit.insert("done".to_owned(), Value::Integer(self.done.into()));
        commit.insert("uuid".to_owned(), Value::String(self.uuid.to_string()));
        user.insert(COMMIT.to_owned(), Value::Dictionary(commit));
        user
    }
}

/// Reads the record of the image below. `None`: there is none, or it is invalid.
pub(crate) fn below(metadata: &Metadata) -> Option<ParentNote> {
    let note = metadata.user.get(BELOW)?.as_dictionary()?;
    let below = note
        .get("below")
        .and_then(Value::as_string)
        .unwrap_or("another image")
        .to_owned();
    let size = note.get("size")?.as_unsigned_integer()?;
    Some(ParentNote {
        below,
        size,
        modified: note.get("modified").and_then(Value::as_signed_integer),
    })
}

/// Reads the record of a commit in progress.
pub(crate) fn commit(metadata: &Metadata) -> Option<Commit> {
    let commit = metadata.user.get(COMMIT)?.as_dictionary()?;
    let uuid = |key| Uuid::try_parse(commit.get(key)?.as_string()?).ok();
    let done = commit
        .get("done")
        .and_then(Value::as_unsigned_integer)
        .unwrap_or(0);
    Some(Commit {
        parent: uuid("parent")?,
        done,
        uuid: uuid("uuid").unwrap_or_default(),
    })
}

/// A layer over a disk, in a file of its own.
#[derive(Debug, Clone)]
pub struct LayerFile {
    /// The file.
    pub path: PathBuf,
    /// Its role: it holds writes, or copies of the data below.
    pub role: Role,
    /// Its contents and metadata.
    pub image: Arc<Asif>,
}

impl LayerFile {
    pub(crate) fn link(&self) -> ChainLink {
        let layer = self.image.layer();
        let next_parent = commit(&self.image.metadata()).map(|commit| commit.parent);
        let identity = Identity {
            uuid: self.image.uuid(),
            parent: layer.parent,
            next_parent,
            is_cache: layer.is_cache,
        };
        ChainLink {
            name: self.path.display().to_string(),
            identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(user: Dictionary) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.user.extend(user);
        metadata
    }

    #[test]
    fn notes_are_read_again() {
        let note = ParentNote {
            below: "a.img".to_owned(),
            size: 512,
            modified: Some(-5),
        };
        assert_eq!(below(&metadata(note.to_dictionary())), Some(note.clone()));
        let begun = Commit {
            parent: Uuid::from_u128(5),
            done: 7,
            uuid: Uuid::from_u128(6),
        };
        let user = begun.add_to(note.to_dictionary());
        assert_eq!(
            (commit(&metadata(user.clone())), below(&metadata(user))),
            (Some(begun), Some(note))
        );
        assert_eq!(
            (commit(&Metadata::default()), below(&Metadata::default())),
            (None, None)
        );
    }

    #[test]
    fn changes_of_the_disk_below_are_reported() {
        let then = ParentNote {
            below: "a.img".to_owned(),
            size: 512,
            modified: Some(5),
        };
        assert_eq!(then.compare(&then).unwrap(), None);
        let longer = ParentNote {
            size: 1024,
            ..then.clone()
        };
        assert!(
            longer
                .compare(&then)
                .unwrap_err()
                .to_string()
                .contains("created over a.img, a disk of 512 bytes")
        );
        let later = ParentNote {
            modified: Some(6),
            below: "b.img".to_owned(),
            ..then.clone()
        };
        assert!(later.compare(&then).unwrap().unwrap().contains("(a.img)"));
        let copied = ParentNote {
            modified: None,
            ..then.clone()
        };
        assert!(
            then.compare(&copied).unwrap().is_none(),
            "nothing was noted"
        );
    }
}
