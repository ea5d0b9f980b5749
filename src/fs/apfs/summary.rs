//! What a container says of its volumes without opening them.

use std::sync::Arc;

use uuid::Uuid;

use super::cipher::VolumeCipher;
use super::container::Container;
use super::layout::{
    Oid, Paddr, VOLUME_ROLES, VolumeRaw, Xid, timestamp, until_nul, volume_flags,
    volume_incompatible,
};
use super::names::NameRules;
use super::volume::{Apfs, OpenState};
use crate::fs::{LockedVolume, Timestamp, VolumeKey};
use crate::{Error, Result};

/// What is known of a volume without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// What tells it from the others.
    pub label: Label,
    /// Its UUID.
    pub uuid: Uuid,
    /// True if `A` and `a` are different names.
    pub case_sensitive: bool,
    /// Whether it is encrypted.
    pub locking: Locking,
    /// True if it is sealed: never changed, and told by hashes.
    pub sealed: bool,
    /// Bytes that it uses of the container.
    pub used: u64,
    /// The most bytes that it may use.
    pub quota: Option<u64>,
    /// Bytes that are kept free for it.
    pub reserve: u64,
    /// Files, as it counts them.
    pub files: u64,
    /// Folders, as it counts them.
    pub folders: u64,
    /// When it was formatted.
    pub created: Option<Timestamp>,
    /// When it last changed.
    pub modified: Option<Timestamp>,
    /// The program that formatted it.
    pub formatted_by: String,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
}

/// Whether a volume is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// It is not.
    Plain,
    /// By software, with one key: a passphrase opens it.
    Software,
    /// With keys that only the Mac's own processor has.
    Hardware,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The transaction that it was taken in.
    pub xid: u64,
    /// When it was taken.
    pub created: Option<Timestamp>,
}

/// What tells a volume from the others of its container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its place among the volumes of the container, from 1.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// What macOS uses it for: `System`, `Data`, ... `None` for nothing in particular.
    pub role: Option<&'static str>,
}

impl Label {
    fn new(number: u32, raw: &VolumeRaw) -> Self {
        Self {
            number,
            name: raw.label(),
            role: role(raw),
        }
    }

    /// Returns whether it is one of those that macOS keeps beside the user's: what starts the Mac,
    /// and what it needs to.
    pub fn is_auxiliary(&self) -> bool {
        const AUXILIARY: [&str; 9] = [
            "Recovery",
            "VM",
            "Preboot",
            "Installer",
            "Baseband",
            "Update",
            "xART",
            "Hardware",
            "Prelogin",
        ];
        self.role.is_some_and(|role| AUXILIARY.contains(&role))
    }
}

impl Container {
    /// How the volumes are called, in the order of their slots, from their superblocks alone; an
    /// error for each that cannot be read.
    pub fn labels(&self) -> Vec<Result<Label>> {
        let label = |(number, oid)| {
            self.volume_superblock(oid)
                .map(|(raw, _)| Label::new(number, &raw))
        };
        (1..).zip(self.volume_oids()).map(label).collect()
    }

    /// The volumes, in the order of their slots; an error for each whose superblock cannot be read.
    pub fn volumes(&self) -> Vec<Result<Summary>> {
        (1..)
            .zip(self.volume_oids())
            .map(|(number, oid)| self.summary(number, oid))
            .collect()
    }

    fn summary(&self, number: u32, oid: Oid) -> Result<Summary> {
        let (raw, _) = self.volume_superblock(oid)?;
        let bytes = |blocks: u64| self.store.block_size.of(blocks).unwrap_or(u64::MAX);
        Ok(Summary {
            label: Label::new(number, &raw),
            uuid: raw.uuid(),
            case_sensitive: NameRules::of(&raw) != NameRules::CaseInsensitive,
            locking: locking(&raw),
            sealed: raw.has(volume_incompatible::SEALED),
            used: bytes(raw.allocated_blocks.get()),
            quota: Some(raw.quota_blocks.get())
                .filter(|&blocks| blocks > 0)
                .map(bytes),
            reserve: bytes(raw.reserve_blocks.get()),
            files: raw.files.get(),
            folders: raw.folders.get(),
            created: timestamp(raw.formatted_by.time),
            modified: timestamp(raw.last_modified),
            formatted_by: String::from_utf8_lossy(until_nul(&raw.formatted_by.id)).into_owned(),
            snapshots: self.snapshots(&raw)?,
        })
    }

    /// Opens the volume of a number, from 1, as it is now or was in a snapshot. Of an encrypted one
    /// `key` is asked for the key.
    pub fn open_volume(
        self: &Arc<Self>,
        number: u32,
        snapshot: Option<&str>,
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
    ) -> Result<Apfs> {
        let index = number
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let oid = index.and_then(|index| self.volume_oids().nth(index));
        let Some(oid) = oid else {
            return Err(Error::not_found(
                "apfs container",
                format!("volume {number}"),
            ));
        };
        let (raw, _) = self.volume_superblock(oid)?;
        let state = match snapshot {
            Some(name) => self.snapshot(&raw, name)?,
            None => OpenState {
                raw,
                omap: Paddr(raw.omap_oid.get()),
                xid: Xid(self.checkpoint()),
                dataless: false,
            },
        };
        Apfs::open(self, &state, self.cipher(&raw, key)?)
    }

    /// The cipher of a volume with this superblock, `None` for one that is not encrypted. `key` is
    /// asked for the key.
    pub(super) fn cipher(
        &self,
        raw: &VolumeRaw,
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
    ) -> Result<Option<Arc<VolumeCipher>>> {
        match locking(raw) {
            Locking::Plain => Ok(None),
            Locking::Software => {
                let lock = self.lock_of(raw)?;
                let key = lock.unlock(&key(&lock.locked)?)?;
                Ok(Some(Arc::new(VolumeCipher::new(
                    &key,
                    self.store.block_size,
                ))))
            }
            Locking::Hardware => {
                let message = "is encrypted with keys that only its Mac has, and is not read";
                Err(Error::unsupported("apfs volume", message).named(raw.label()))
            }
        }
    }
}

/// Returns whether and how a volume is encrypted.
pub(super) fn locking(raw: &VolumeRaw) -> Locking {
    match (
        raw.is_encrypted(),
        raw.flags.get() & volume_flags::ONE_KEY != 0,
    ) {
        (false, _) => Locking::Plain,
        (true, true) => Locking::Software,
        (true, false) => Locking::Hardware,
    }
}

fn role(raw: &VolumeRaw) -> Option<&'static str> {
    VOLUME_ROLES
        .iter()
        .find(|(role, _)| *role == raw.role.get())
        .map(|(_, name)| *name)
}
