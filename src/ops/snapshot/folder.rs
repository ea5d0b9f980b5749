//! Snapshots of a bundle in a folder of this host.
//!
//! Each is a bundle of its own in `.bandsaw/snapshots/NAME` inside the bundle. If the host shares
//! storage between files (reflinks), it takes no storage at first. Otherwise files that changed
//! since the previous snapshot are copied, and the others are hard links to files of that one.
//! Bands of the bundle itself never have hard links: macOS writes to them in place, and would
//! change the snapshot too.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{LAYER, no_snapshot};
use crate::container::sparsebundle::{self, SNAPSHOTS};
use crate::device::BlockDeviceExt;
use crate::open::place::{ImagePlace, folder_of};
use crate::open::{NewMode, OpenOptions, examine};
use crate::problem::Severity;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::store::{HostStore, Local, NodeKind, Open, Snapshot, Store, names_in};
use crate::{Error, Kind, Result, platform};

/// Prefix of names that only Bandsaw uses.
const OURS: &str = ".bandsaw/";
/// The modification time of this file is that of the snapshot: it is always copied, never a hard
/// link.
const DATED: &str = "Info.plist";
/// Prefixes of snapshots that are incomplete, and that are being removed.
const UNFINISHED: &str = ".new-";
const GOING: &str = ".gone-";
/// Bytes compared at a time.
const PIECE: u64 = 1 << 20;

/// A bundle on this host.
pub(super) struct Folder {
    path: PathBuf,
    store: Arc<dyn HostStore>,
}

/// Files below one folder of a store to be copied below another.
struct CopiedFiles<'a> {
    store: &'a dyn HostStore,
    from: &'a str,
    to: &'a str,
    /// Names of the files, relative to `from`.
    names: Vec<String>,
}

impl Folder {
    /// Opens the bundle in the folder at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if !crate::open::look_at(path)?.is_dir() {
            return Err(not_a_bundle());
        }
        Self::in_store(Arc::new(Local::new(path)))
    }

    /// Opens the bundle in a folder of a host.
    pub(super) fn in_store(store: Arc<dyn HostStore>) -> Result<Self> {
        if !sparsebundle::is_bundle(&*store)? {
            return Err(not_a_bundle());
        }
        for ours in [OURS, SNAPSHOTS].map(|ours| ours.trim_end_matches('/')) {
            // A symbolic link would lead out of the bundle.
            let found = store.attributes(ours)?;
            if found.is_some_and(|found| found.kind != NodeKind::Folder) {
                let message = "not a folder, but snapshots are stored there";
                return Err(store.named(Error::invalid(LAYER, message), ours));
            }
        }
        Ok(Self {
            path: store.host_path(""),
            store,
        })
    }

    pub(super) fn list(&self) -> Result<Vec<Snapshot>> {
        let names = names_in(&*self.store, SNAPSHOTS.trim_end_matches('/'))?;
        let mut snapshots = Vec::new();
        for name in names.into_iter().flatten() {
            let Ok(name) = name.into_string() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            let folder = self.store.attributes(&within(&name))?;
            let Some(folder) = folder.filter(|folder| folder.kind == NodeKind::Folder) else {
                continue;
            };
            let dated = self.store.attributes(&within(&format!("{name}/{DATED}")))?;
            let nanos = dated.unwrap_or(folder).modified;
            snapshots.push(Snapshot {
                name,
                created: u64::try_from(nanos / 1_000_000_000).unwrap_or(0),
            });
        }
        Ok(snapshots)
    }

    fn find(&self, name: &str) -> Result<()> {
        if self.list()?.iter().any(|snapshot| snapshot.name == name) {
            Ok(())
        } else {
            Err(no_snapshot(name))
        }
    }

    pub(super) fn create(&self, name: &str, progress: &dyn Progress) -> Result<()> {
        let _nobody_writes = sparsebundle::lock_shared(self.store())?;
        self.check_kinds()?;
        let others = self.list()?;
        if others.iter().any(|other| other.name == name) {
            return Err(taken(name));
        }
        let previous = others
            .iter()
            .max_by_key(|other| other.created)
            .map(|other| format!("{SNAPSHOTS}{}/", other.name));
        let unfinished = self.unused_name(UNFINISHED)?;
        let made = self
            .fill(&unfinished, previous.as_deref(), progress)
            .and_then(|()| {
                // A snapshot is never empty, so an existing one is not replaced.
                match self
                    .store
                    .rename_folder(&within(&unfinished), &within(name))?
                {
                    true => self.store.sync(),
                    false => Err(taken(name)),
                }
            });
        if made.is_err() {
            // Best effort: the caller needs the original error.
            let _ = self.store.remove_tree(&within(&unfinished));
        }
        made
    }

    /// Refuses a bundle with a symbolic link or a special file, which a snapshot would not contain.
    fn check_kinds(&self) -> Result<()> {
        for folder in ["", "bands/"] {
            let names = names_in(&*self.store, folder.trim_end_matches('/'))?;
            for name in names.into_iter().flatten() {
                let Some(name) = name.to_str() else {
                    let message = "the name is not UTF-8, which a snapshot cannot contain";
                    return Err(self.store.named(Error::unsupported(LAYER, message), folder));
                };
                let name = format!("{folder}{name}");
                let found = self.store.attributes(&name)?;
                if found.is_some_and(|found| found.kind == NodeKind::Other) {
                    let message =
                        "a symbolic link or special file, which a snapshot cannot contain";
                    return Err(self.store.named(Error::unsupported(LAYER, message), &name));
                }
            }
        }
        Ok(())
    }

    /// Copies the bundle to an unfinished snapshot.
    fn fill(
        &self,
        unfinished: &str,
        previous: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let to = format!("{SNAPSHOTS}{unfinished}/");
        CopiedFiles::new(self.store(), "", &to)?.copy(previous, progress)?;
        self.store.sync()
    }

    pub(super) fn restore(&self, name: &str, progress: &dyn Progress) -> Result<()> {
        self.find(name)?;
        self.check_damage(name, progress)?;
        let failed = |source| Error::io(LAYER, "copy the permissions", source);
        let mode = fs::metadata(&self.path).map_err(failed)?.permissions();
        // From here on the bundle is locked against other processes.
        let mut place = ImagePlace::claim(&self.path, true, NewMode::default())?;
        fs::create_dir(place.aside())
            .and_then(|()| fs::set_permissions(place.aside(), mode))
            .map_err(failed)?;
        let store = Local::new(folder_of(&self.path));
        let (old, new) = (folder_name(&self.path)?, folder_name(place.aside())?);
        CopiedFiles::new(&store, &format!("{old}{SNAPSHOTS}{name}/"), &new)?
            .copy(None, progress)?;
        CopiedFiles::new(&store, &format!("{old}{OURS}"), &format!("{new}{OURS}"))?
            .link(progress)?;
        store.sync()?;
        place.publish()
    }

    /// Fails if the snapshot is damaged and the present state, which would be lost, is not.
    fn check_damage(&self, name: &str, progress: &dyn Progress) -> Result<()> {
        let is_damaged = |path: &Path| match examine(path, &OpenOptions::default(), progress) {
            Ok(found) => Ok(found.problems.count(Severity::Damage) > 0),
            Err(error) if error.kind() == Kind::Cancelled || error.io_kind().is_some() => {
                Err(error)
            }
            Err(error) => Ok(error.kind() != Kind::WrongKey),
        };
        if !is_damaged(&self.path.join(SNAPSHOTS).join(name))? || is_damaged(&self.path)? {
            return Ok(());
        }
        let message = "the snapshot is damaged, and the present state, which would be lost, is not: copy \
                       what is left of the snapshot with `bandsaw convert`";
        Err(Error::new(Kind::Corrupt, LAYER, message).named(name))
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        self.find(name)?;
        let going = within(&self.unused_name(GOING)?);
        if !self.store.rename_folder(&within(name), &going)? {
            return Err(taken(name));
        }
        // Before a file of it is removed: a snapshot that is listed is whole.
        self.store.sync()?;
        self.store.remove_tree(&going)?;
        self.store.sync()
    }

    /// Returns an unused name, after removing leftovers of killed processes.
    fn unused_name(&self, prefix: &str) -> Result<String> {
        let snapshots = SNAPSHOTS.trim_end_matches('/');
        self.store.remove_leftovers(snapshots, UNFINISHED);
        self.store.remove_leftovers(snapshots, GOING);
        loop {
            let name = format!("{prefix}{}", platform::own_suffix());
            if self.store.attributes(&within(&name))?.is_none() {
                return Ok(name);
            } // otherwise left by a crash of a process with our number
        }
    }

    fn store(&self) -> &dyn HostStore {
        &*self.store
    }
}

fn not_a_bundle() -> Error {
    let message = "only sparse bundles have snapshots; use `bandsaw stack create` for other images, and `bandsaw info --json` to list those of APFS volumes";
    Error::unsupported(LAYER, message)
}

/// Returns the name in the bundle of a file or folder of the snapshots.
fn within(name: &str) -> String {
    format!("{SNAPSHOTS}{name}")
}

fn taken(name: &str) -> Error {
    Error::conflict(LAYER, "the snapshot already exists").named(name)
}

/// Returns the name of a folder within its parent, as a prefix of names in a store.
fn folder_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name
        .ok_or_else(|| Error::unsupported(LAYER, "the name is empty or not UTF-8").in_file(path))?;
    Ok(format!("{name}/"))
}

impl<'a> CopiedFiles<'a> {
    /// Returns the files of a bundle, except for locks and those that only Bandsaw uses.
    fn new(store: &'a dyn HostStore, from: &'a str, to: &'a str) -> Result<Self> {
        let mut names = Vec::new();
        store.list(from, &mut |entry| {
            let name = entry.name.strip_prefix(from).unwrap_or(entry.name);
            let is_left = name
                .split('/')
                .any(|part| part.starts_with(UNFINISHED) || part.starts_with(GOING));
            let is_left_out = name == "lock" || name.starts_with(OURS) || is_left;
            names.extend((!is_left_out).then(|| name.to_owned()));
            Ok(())
        })?;
        Ok(Self {
            store,
            from,
            to,
            names,
        })
    }

    /// Copies the files, or shares storage with identical files of the same name below `previous`,
    /// which are never changed.
    fn copy(&self, previous: Option<&str>, progress: &dyn Progress) -> Result<()> {
        let len = |name: &String| {
            Ok(self
                .store
                .stat(&format!("{}{name}", self.from))?
                .map_or(0, |meta| meta.len))
        };
        let lens = self.names.iter().map(len).collect::<Result<Vec<u64>>>()?;
        progress.stage("copy", lens.iter().sum());
        // A store creates folders with their first file only, and macOS requires this folder.
        let first = format!("{}bands/0", self.to);
        self.store.open(&first, Open::Create)?;
        self.store.remove(&first)?;
        for (name, len) in self.names.iter().zip(lens) {
            progress.check()?;
            let (from, to) = (format!("{}{name}", self.from), format!("{}{name}", self.to));
            let kept = previous
                .filter(|_| name.contains('/'))
                .map(|previous| format!("{previous}{name}"));
            if !self.share(&from, kept.as_deref(), &to, progress)? {
                self.store.copy(&from, &to)?;
            }
            if name == DATED {
                self.date(&to)?;
            }
            progress.advance(len);
        }
        Ok(())
    }

    /// Creates `to` with the contents of `from` without storing them again, if possible. `kept` is
    /// never changed.
    fn share(
        &self,
        from: &str,
        kept: Option<&str>,
        to: &str,
        progress: &dyn Progress,
    ) -> Result<bool> {
        if self.store.clone_of(from, to)? {
            return Ok(true);
        }
        let Some(kept) = kept else { return Ok(false) };
        Ok(self.are_same(from, kept, progress)? && self.store.link(kept, to)?)
    }

    /// Creates hard links to the files, or copies on hosts without hard links.
    fn link(&self, progress: &dyn Progress) -> Result<()> {
        for name in &self.names {
            progress.check()?;
            let (from, to) = (format!("{}{name}", self.from), format!("{}{name}", self.to));
            if !self.store.link(&from, &to)? {
                self.store.copy(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Sets the modification time, because a clone may have that of the original.
    fn date(&self, name: &str) -> Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        self.store.set_modified(name, nanos)
    }

    /// Returns true if two files hold the same bytes.
    fn are_same(&self, one: &str, other: &str, progress: &dyn Progress) -> Result<bool> {
        let (Some(one), Some(other)) = (
            self.store.open(one, Open::Read)?,
            self.store.open(other, Open::Read)?,
        ) else {
            return Ok(false);
        };
        let len = one.info().len;
        if other.info().len != len {
            return Ok(false);
        }
        for start in (0..len).step_by(to_usize(PIECE)) {
            progress.check()?;
            let piece = to_usize(PIECE.min(len - start));
            if one.read_vec(start, piece)? != other.read_vec(start, piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
