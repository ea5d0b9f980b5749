//! The files of the bundle by name.

use std::sync::Arc;

use super::LAYER;
use super::Remote;
use super::file::{File, Opened};
use super::layout::{FileState, Part, Plain, ROOT};
use super::names::NameState;
use super::remote_state::RemoteState;
use crate::device::{Access, AfterDiscard, BlockDevice};
use crate::store::objects::ObjectMeta;
use crate::store::{Entry, Guard, Lock, Meta, Open, Put, Store, check_folder, check_name};
use crate::{Error, Result};

/// Refuses names that are not valid in a bundle.
fn check_bundle_name(name: &str) -> Result<()> {
    check_name(name)?;
    if name.starts_with(ROOT) {
        return Err(Error::invalid(LAYER, "the name is reserved for bandsaw").named(name));
    }
    Ok(())
}

impl FileState {
    /// Returns the file that an object represents.
    pub(super) fn of_plain(object: &ObjectMeta) -> Self {
        let plain = Plain {
            len: object.len,
            size: object.len,
            tag: object.tag.clone(),
        };
        Self {
            len: object.len,
            plain: Some(plain),
            ..Self::default()
        }
    }
}

impl RemoteState {
    fn meta_of(&self, file: &FileState) -> Meta {
        Meta {
            len: file.len,
            allocated: file.len,
            version: file.version(),
            changed: None,
        }
    }

    /// Finds the state of a name. `None`: no file.
    fn find(&self, name: &str) -> Result<Option<NameState>> {
        match self.names.live().get(name) {
            Some(NameState::Gone) => return Ok(None),
            Some(live) => return Ok(Some(live.clone())),
            None if !self.plain_only => return Ok(None),
            None => {}
        }
        Ok(self
            .objects
            .stat(name)?
            .map(|found| NameState::Known(Arc::new(FileState::of_plain(&found)))))
    }

    /// Opens the file of a name. `None`: there is none.
    pub(super) fn open_file(self: &Arc<Self>, name: &str) -> Result<Option<Arc<File>>> {
        if !self.plain_only
            && let Some(NameState::Known(known)) = self.find(name)?
            && let Some(plain) = &known.plain
        {
            self.check_plain(name, plain)?;
        }
        self.open_to_fetch(name)
    }

    /// Opens the file of a name without checking its plain object: each fetch from it verifies that
    /// it is the one in the commit.
    pub(super) fn open_to_fetch(self: &Arc<Self>, name: &str) -> Result<Option<Arc<File>>> {
        let known = match self.find(name)? {
            None | Some(NameState::Gone) => return Ok(None),
            Some(NameState::Open(file)) => return Ok(Some(file)),
            Some(NameState::Known(known)) => known,
        };
        let mut live = self.names.live();
        match live.get(name) {
            // Another thread was faster.
            Some(NameState::Open(file)) => Ok(Some(file.clone())),
            Some(NameState::Gone) => Ok(None),
            _ => {
                let file = Arc::new(File::new(name, self, (*known).clone()));
                live.insert(name.to_owned(), NameState::Open(file.clone()));
                Ok(Some(file))
            }
        }
    }

    /// Creates a file under a name. `None`: it exists and must not be replaced.
    fn new_file(self: &Arc<Self>, name: &str, base: FileState, cond: Put) -> Option<Arc<File>> {
        let mut live = self.names.live();
        if cond == Put::IfAbsent && !matches!(live.get(name), None | Some(NameState::Gone)) {
            return None;
        }
        let file = Arc::new(File::new(name, self, base));
        live.insert(name.to_owned(), NameState::Open(file.clone()));
        drop(live);
        self.mark_dirty(&file);
        Some(file)
    }

    /// Stores the dirty data of a file.
    fn store_dirty(self: &Arc<Self>, name: &str) -> Result<()> {
        let file = self
            .open_file(name)?
            .ok_or_else(|| Error::not_found(LAYER, name))?;
        self.store_files(&[file])
    }

    /// Returns the file, entirely in objects that never change, except for the latest writes. The
    /// caller holds [`staying`](Self::staying).
    fn frozen(self: &Arc<Self>, name: &str) -> Result<FileState> {
        let file = self
            .open_file(name)?
            .ok_or_else(|| Error::not_found(LAYER, name))?;
        let base = file.pages().base.clone();
        self.without_plain(name, base)
    }

    /// Returns the file with its plain object replaced by a copy of its own.
    pub(super) fn without_plain(&self, name: &str, mut base: FileState) -> Result<FileState> {
        let Some(plain) = base.plain.take() else {
            return Ok(base);
        };
        self.check_plain(name, &plain)?;
        let object = self.new_object();
        self.objects.copy(name, &object.key())?;
        self.check_plain(name, &plain)?;
        for index in 0..plain.len.div_ceil(self.part) {
            let offset = index * self.part;
            let len = (plain.len - offset).min(self.part);
            base.parts.entry(index).or_insert(Part {
                object: Some(object),
                offset,
                len,
            });
        }
        Ok(base)
    }
}

impl Remote {
    /// Checks the names of a copy, and stores what is dirty of its source.
    fn prepare(&self, from: &str, to: &str) -> Result<()> {
        check_bundle_name(from)?;
        check_bundle_name(to)?;
        self.shared().check_changeable()?;
        self.shared().store_dirty(from)
    }
}

impl Store for Remote {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_bundle_name(name)?;
        let shared = self.shared();
        let access = match mode {
            Open::Read => Access::ReadOnly,
            Open::Write | Open::Create | Open::CreateNew => {
                shared.check_changeable()?;
                Access::ReadWrite
            }
        };
        let found = shared.open_file(name)?;
        let file = match (mode, found) {
            (Open::CreateNew, Some(_)) | (Open::Read | Open::Write, None) => return Ok(None),
            (_, Some(file)) => file,
            (_, None) => match shared.new_file(name, FileState::default(), Put::IfAbsent) {
                Some(file) => file,
                None if mode == Open::CreateNew => return Ok(None),
                None => return self.open(name, Open::Write),
            },
        };
        Ok(Some(Arc::new(Opened {
            session: self.session.clone(),
            file,
            access,
        })))
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_bundle_name(name)?;
        let shared = self.shared();
        shared.check_changeable()?;
        if cond == Put::IfAbsent && shared.find(name)?.is_some() {
            return Ok(false);
        }
        // Filled before it gets its name, so that no partial file is visible.
        let file = Arc::new(File::new(name, shared, FileState::default()));
        let filled = Opened {
            session: self.session.clone(),
            file: file.clone(),
            access: Access::ReadWrite,
        };
        file.listed().set();
        filled.set_len(bytes.len() as u64, AfterDiscard::Zeros)?;
        filled.write_at(0, bytes)?;
        let mut live = shared.names.live();
        if cond == Put::IfAbsent && !matches!(live.get(name), None | Some(NameState::Gone)) {
            return Ok(false);
        }
        live.insert(name.to_owned(), NameState::Open(file));
        drop(live);
        shared.mark_names_dirty([name]);
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_bundle_name(name)?;
        let meta = |len, version| Meta {
            len,
            allocated: len,
            version,
            changed: None,
        };
        Ok(self.shared().find(name)?.map(|live| match live {
            NameState::Open(file) => {
                let pages = file.pages();
                meta(pages.base.len, pages.version)
            }
            NameState::Known(known) => self.shared().meta_of(&known),
            NameState::Gone => meta(0, 0),
        }))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.prepare(from, to)?;
        let _staying = self.shared().staying();
        let base = self.shared().frozen(from)?;
        self.shared().new_file(to, base, Put::Replace);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.prepare(from, to)?;
        let _staying = self.shared().staying();
        let base = self.shared().frozen(from)?;
        if from == to {
            return Ok(());
        }
        let file = Arc::new(File::new(to, self.shared(), base));
        file.listed().set();
        let mut live = self.shared().names.live();
        live.insert(to.to_owned(), NameState::Open(file));
        live.insert(from.to_owned(), NameState::Gone);
        // Noted together, so that they are in one commit.
        self.shared().mark_names_dirty([from, to]);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        check_bundle_name(name)?;
        self.shared().check_changeable()?;
        let mut live = self.shared().names.live();
        if matches!(live.get(name), None | Some(NameState::Gone)) {
            return Ok(false);
        }
        live.insert(name.to_owned(), NameState::Gone);
        drop(live);
        self.shared().mark_names_dirty([name]);
        Ok(true)
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let shared = self.shared();
        if shared.plain_only {
            return shared.objects.list(prefix, &mut |key, found| {
                if check_bundle_name(key).is_err() {
                    return Ok(());
                }
                each(Entry::new(key, &|| {
                    Ok(Some(shared.meta_of(&FileState::of_plain(found))))
                }))
            });
        }
        let names: Vec<String> = {
            let live = shared.names.live();
            let found = live
                .range(prefix.to_owned()..)
                .take_while(|(name, _)| name.starts_with(prefix));
            found
                .filter(|(_, live)| !matches!(live, NameState::Gone))
                .map(|(name, _)| name.clone())
                .collect()
        };
        names
            .iter()
            .try_for_each(|name| each(Entry::new(name, &|| self.stat(name))))
    }

    fn sync(&self) -> Result<()> {
        self.shared().flush()
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_bundle_name(name)?;
        match mode {
            Lock::Exclusive => drop(self.open(name, Open::Create)?),
            Lock::Shared if self.stat(name)?.is_none() => return Ok(Guard::nothing()),
            Lock::Shared => {}
        }
        self.shared().locks.acquire(name, mode)
    }
}
