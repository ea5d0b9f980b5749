//! Summaries of a container's volumes, from their superblocks alone.

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
use crate::{LockedVolume, Timestamp, VolumeKey};
use bandsaw_core::{Error, Result};

/// A summary of a volume, available without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number, name and role.
    pub label: Label,
    /// UUID of the volume.
    pub uuid: Uuid,
    /// True if names are case-sensitive.
    pub case_sensitive: bool,
    /// Encryption state.
    pub locking: Locking,
    /// True if the volume is sealed: immutable and verified by hashes.
    pub sealed: bool,
    /// Space used in the container, in bytes.
    pub used: u64,
    /// Quota in bytes.
    pub quota: Option<u64>,
    /// Reserved space in bytes.
    pub reserve: u64,
    /// Number of files, by the volume's own count.
    pub files: u64,
    /// Number of folders, by the volume's own count.
    pub folders: u64,
    /// Time of formatting.
    pub created: Option<Timestamp>,
    /// Time of the last modification.
    pub modified: Option<Timestamp>,
    /// Program that formatted the volume.
    pub formatted_by: String,
    /// Snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
}

/// The encryption state of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// Not encrypted.
    Plain,
    /// Encrypted in software with one key: a passphrase unlocks it.
    Software,
    /// Encrypted with keys that only the Mac's own processor has.
    Hardware,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Transaction in which it was taken.
    pub xid: u64,
    /// Time at which it was taken.
    pub created: Option<Timestamp>,
}

/// The identification of a volume in its container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Number of the volume in the container, from 1.
    pub number: u32,
    /// Name of the volume.
    pub name: String,
    /// Role in macOS: `System`, `Data`, ... `None` without a role.
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

    /// Returns true if the volume is one that macOS keeps for starting and maintaining the Mac,
    /// next to the user's.
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
    /// Returns the labels of the volumes, in the order of their slots, from their superblocks
    /// alone; an error for each superblock that cannot be read.
    pub fn labels(&self) -> Vec<Result<Label>> {
        let label = |(number, oid)| {
            self.volume_superblock(oid)
                .map(|(raw, _)| Label::new(number, &raw))
        };
        (1..).zip(self.volume_oids()).map(label).collect()
    }

    /// Returns the summaries of the volumes, in the order of their slots; an error for each
    /// superblock that cannot be read.
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

    /// Opens the volume of a number, from 1, in its current state or in that of a snapshot. `key`
    /// is called for the key of an encrypted volume.
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

    /// Returns the first error of unlocking the volumes, by number, with the keys that `key` returns;
    /// `None` if every encrypted volume is unlocked.
    pub fn find_locked(&self, key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>) -> Option<Error> {
        self.volume_oids().find_map(|oid| {
            let (raw, _) = self.volume_superblock(oid).ok()?;
            self.cipher(&raw, key).err()
        })
    }

    /// Returns the cipher of a volume with this superblock, `None` if it is not encrypted. `key` is
    /// called for the key.
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
                let message = "encrypted with hardware keys of its Mac; cannot be read elsewhere";
                Err(Error::unsupported("apfs volume", message).named(raw.label()))
            }
        }
    }
}

/// Returns the encryption state of a volume.
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
