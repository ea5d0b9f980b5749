//! The receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bandsaw::device::AfterDiscard;
use bandsaw::progress::Progress;
use bandsaw::store::{HostStore, Local, NodeKind, Open, check_name, names_in};
use bandsaw::{Error, Kind, Result};

use super::{END, FORMAT, Have, Header, LAYER, MAGIC, PIECE};
use crate::bundle::{self, Identity};
use crate::hash::hash;
use crate::keep::next_sequence;
use crate::manifest::Manifest;
use crate::sealed::{self, Found};
use crate::shelf::{Shelf, State};

/// Prefix of a state that has not arrived as a whole. It is kept, so that the next run resumes.
const PARTIAL: &str = ".part-";
/// The file that is being received, within a partial state.
const INCOMING: &str = ".incoming";

/// The result of [`receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The name of the bundle.
    pub bundle: String,
    /// The name of the state.
    pub id: String,
    /// The folder of the state.
    pub path: PathBuf,
    /// Bytes of contents that arrived.
    pub size: u64,
    /// Number of files that are shared with earlier states.
    pub shared_files: u64,
}

/// Returns the contents that a folder has of a bundle: those of whole states, and of a state that
/// arrived in part.
pub fn have(folder: &Path, bundle: &str, progress: &dyn Progress) -> Result<Have> {
    have_in(&Local::new(folder), bundle, progress)
}

/// Does the same for a folder of another host.
pub fn have_in(folder: &dyn HostStore, bundle: &str, progress: &dyn Progress) -> Result<Have> {
    check_plain(bundle)?;
    let shelf = Shelf::at(folder.elsewhere(&folder.host_path(bundle)));
    let mut have = BTreeSet::new();
    for state in shelf.list()? {
        if let Some(manifest) = state.manifest() {
            have.extend(manifest.files.values().map(|file| file.hash.clone()));
        }
    }
    let store = shelf.store();
    for partial in partials(store)? {
        for name in bundle::list(store, &partial)?
            .keys()
            .filter(|name| name.rsplit('/').next() != Some(INCOMING))
        {
            let found = hash(store, &format!("{partial}/{name}"), progress)?;
            have.extend(found.map(|(hash, _)| hash));
        }
    }
    Ok(Have { have })
}

fn partials(store: &dyn HostStore) -> Result<Vec<String>> {
    let names = names_in(store, "")?.into_iter().flatten();
    let names = names.filter_map(|name| name.into_string().ok());
    let mut partials = Vec::new();
    for name in names.filter(|name| name.starts_with(PARTIAL)) {
        let found = store.attributes(&name)?;
        if found.is_some_and(|found| found.kind == NodeKind::Folder) {
            partials.push(name);
        }
    }
    Ok(partials)
}

/// Reads a state and stores it in `folder`, in a folder named after its bundle. It gets its name
/// when every file of it was read again and has its hash. After an error, what arrived is kept, and
/// [`have`] lists it.
///
/// [`Kind::Corrupt`] if the stream is damaged or ends early, [`Kind::Conflict`] if another state has
/// the name, [`Kind::NotFound`] if the stream relies on contents that the folder does not have.
pub fn receive(folder: &Path, input: &mut dyn Read, progress: &dyn Progress) -> Result<Received> {
    receive_in(&Local::new(folder), input, progress)
}

/// Does the same in a folder of another host.
pub fn receive_in(
    folder: &dyn HostStore,
    input: &mut dyn Read,
    progress: &dyn Progress,
) -> Result<Received> {
    let Header { id, manifest } = header(input)?;
    let found = folder.attributes(&manifest.bundle)?;
    let shelf = Shelf::at(folder.elsewhere(&folder.host_path(&manifest.bundle)));
    if found.is_some_and(|found| found.kind != NodeKind::Folder) {
        let message = "expected a folder of states";
        return Err(shelf.named(Error::unsupported(LAYER, message), ""));
    }
    if bandsaw::container::sparsebundle::is_bundle(shelf.store())? {
        let message = "a bundle, expected a folder of states";
        return Err(shelf.named(Error::conflict(LAYER, message), ""));
    }
    let _states = shelf.lock()?;
    let states = shelf.list()?;
    let name = format!("{PARTIAL}{id}");
    let new = Incoming {
        part: name,
        shelf: &shelf,
        known: known(&states),
        manifest: &manifest,
    };
    let size = new.contents(input, progress)?;
    if let Some(other) = states.iter().find(|state| state.id == id) {
        let is_same = |other: &Manifest| other.has_same_files(&manifest);
        return match other.manifest().is_some_and(is_same) {
            true => Ok(new.done(id, size, manifest.files.len() as u64)),
            false => {
                let message = "another state has this name";
                Err(shelf.named(Error::conflict(LAYER, message), &id))
            }
        };
    }
    let shared_files = new.share(progress)?;
    new.finish(&id, next_sequence(&states), progress)?;
    Ok(new.done(id, size, shared_files))
}

fn damaged(why: &'static str) -> Error {
    Error::new(Kind::Corrupt, LAYER, why)
}

/// Reads exactly these bytes.
fn read(input: &mut dyn Read, buf: &mut [u8]) -> Result<()> {
    input.read_exact(buf).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => damaged("the stream ends early"),
        _ => Error::io(LAYER, "read", source),
    })
}

fn header(input: &mut dyn Read) -> Result<Header> {
    let mut magic = [0; MAGIC.len()];
    read(input, &mut magic)?;
    if magic != *MAGIC {
        return Err(Error::unsupported(LAYER, "not a stream of `bandsaw send`"));
    }
    let mut length = [0; 8];
    read(input, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > sealed::MAX_LEN {
        return Err(damaged("the header is longer than any list of files"));
    }
    // Grows with what arrives.
    let mut bytes = Vec::new();
    let read = input.take(length).read_to_end(&mut bytes);
    read.map_err(|source| Error::io(LAYER, "read", source))?;
    if bytes.len() as u64 != length {
        return Err(damaged("the stream ends early"));
    }
    let header: Header = match sealed::from_bytes(&bytes, FORMAT)? {
        Found::Whole(header) => header,
        Found::OtherFormat(version) => {
            let message = format!("version {version} of the format is not supported");
            return Err(Error::unsupported(LAYER, message));
        }
        Found::Absent | Found::Damaged => return Err(damaged("the header is damaged")),
    };
    check_plain(&header.id)?;
    check_plain(&header.manifest.bundle)?;
    let manifest = match Manifest::checked(Found::Whole(header.manifest)) {
        Found::Whole(manifest) => manifest,
        _ => return Err(damaged("a name leads out of the bundle")),
    };
    Ok(Header { manifest, ..header })
}

/// Refuses a name that is not one of a visible file in a folder.
fn check_plain(name: &str) -> Result<()> {
    check_name(name)?;
    if name.contains('/') || name.starts_with('.') {
        return Err(Error::invalid(LAYER, "expected the name of a folder").named(name));
    }
    Ok(())
}

/// Returns a file of a state for each contents.
fn known(states: &[State]) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for state in states {
        for (name, file) in state
            .manifest()
            .into_iter()
            .flat_map(|manifest| &manifest.files)
        {
            known.insert(file.hash.clone(), format!("{}/{name}", state.id));
        }
    }
    known
}

struct Incoming<'a> {
    /// The name of the state's folder until it is whole.
    part: String,
    shelf: &'a Shelf,
    /// A file of an earlier state for each contents.
    known: BTreeMap<String, String>,
    manifest: &'a Manifest,
}

impl Incoming<'_> {
    fn done(&self, id: String, size: u64, shared_files: u64) -> Received {
        Received {
            bundle: self.manifest.bundle.clone(),
            path: self.shelf.path(&id),
            id,
            size,
            shared_files,
        }
    }

    /// Stores the files of the stream; returns their size in bytes.
    fn contents(&self, input: &mut dyn Read, progress: &dyn Progress) -> Result<u64> {
        let mut size = 0_u64;
        let longest = self.manifest.files.keys().map(String::len).max();
        loop {
            let mut length = [0; 4];
            read(input, &mut length)?;
            let length = u32::from_le_bytes(length);
            if length == 0 {
                let mut end = [0; END.len()];
                read(input, &mut end)?;
                return match end == *END {
                    true => Ok(size),
                    false => Err(damaged("the end of the stream is damaged")),
                };
            }
            if longest.is_none_or(|longest| length as usize > longest) {
                return Err(damaged("a name is too long"));
            }
            let mut name = vec![0; length as usize];
            read(input, &mut name)?;
            let name = String::from_utf8(name).map_err(|_| damaged("a name is not UTF-8"))?;
            let Some(file) = self.manifest.files.get(&name) else {
                return Err(damaged("a file is not in the list").named(name));
            };
            self.file(&name, &file.hash, file.len, input, progress)?;
            size = size.saturating_add(file.len);
        }
    }

    fn file(
        &self,
        name: &str,
        expected: &str,
        len: u64,
        input: &mut dyn Read,
        progress: &dyn Progress,
    ) -> Result<()> {
        let store = self.shelf.store();
        let incoming = self.within(INCOMING);
        store.remove(&incoming)?;
        let file = store.open(&incoming, Open::CreateNew)?;
        let file = file.ok_or_else(|| bundle::changed(self.shelf.folder()))?;
        let mut hasher = blake3::Hasher::new();
        let mut buf = Vec::new();
        let mut left = len;
        while left > 0 {
            progress.check()?;
            let piece = PIECE.min(left);
            buf.resize(bandsaw::size::to_usize(piece), 0);
            read(input, &mut buf)?;
            hasher.update(&buf);
            let at = len - left;
            // Grows with what arrives.
            file.set_len(at + piece, AfterDiscard::Zeros)?;
            file.write_at(at, &buf)?;
            left -= piece;
        }
        if hasher.finalize().to_hex().as_str() != expected {
            return Err(damaged("a file was damaged on its way").named(name));
        }
        file.flush()?;
        store.rename(&incoming, &self.within(name))
    }

    /// Returns the name in the store of a file of the state.
    fn within(&self, name: &str) -> String {
        format!("{}/{name}", self.part)
    }

    /// Adds the files that were not sent; returns their number.
    fn share(&self, progress: &dyn Progress) -> Result<u64> {
        let store = self.shelf.store();
        // macOS requires this folder, and the store creates it with its first file.
        let first = self.within(&format!("bands/{INCOMING}"));
        store.open(&first, Open::Create)?;
        store.remove(&first)?;
        let mut own = BTreeMap::new();
        for name in bundle::list(store, &self.part)?.into_keys() {
            let is_listed = self.manifest.files.contains_key(&name);
            let full = self.within(&name);
            if let (true, Some((hash, _))) = (is_listed, hash(store, &full, progress)?) {
                own.insert(hash, full);
            } else {
                // Of an earlier version of the state, or half a file.
                store.remove(&full)?;
            }
        }
        let mut shared_files = 0;
        for (name, file) in &self.manifest.files {
            progress.check()?;
            let full = self.within(name);
            if own.get(&file.hash) == Some(&full) {
                continue;
            }
            let from = self.known.get(&file.hash).or_else(|| own.get(&file.hash));
            let Some(from) = from else {
                let message = "the stream relies on contents that are missing here; use the list \
                               of `bandsaw receive --have` of this folder";
                return Err(Error::new(Kind::NotFound, LAYER, message).named(name.clone()));
            };
            let incoming = self.within(INCOMING);
            store.remove(&incoming)?;
            // Files of the state itself can have another time.
            let is_earlier = self.known.contains_key(&file.hash);
            if is_earlier && store.link(from, &incoming)? {
                shared_files += 1;
            } else {
                store.copy_from(&store.host_path(from), &incoming)?;
            }
            store.rename(&incoming, &full)?;
        }
        Ok(shared_files)
    }

    /// Verifies the state, and gives it its name.
    fn finish(&self, id: &str, sequence: u64, progress: &dyn Progress) -> Result<()> {
        let mut manifest = self.manifest.clone();
        manifest.sequence = sequence;
        let store = self.shelf.store();
        for (name, file) in &mut manifest.files {
            let full = self.within(name);
            if store
                .attributes(&full)?
                .is_some_and(|found| found.links == 1)
            {
                store.set_modified(&full, file.modified)?;
            }
            let found = bundle::identity(store, &full)?;
            let found = found.ok_or_else(|| Error::not_found(LAYER, name))?;
            file.modified = found.modified;
            // No file of this host.
            file.live = Identity {
                len: 0,
                modified: 0,
                changed: 0,
                inode: 0,
            };
        }
        let bad = self.shelf.verify(&self.part, &manifest, progress)?;
        if let Some(first) = bad.first() {
            // A faulty file of an earlier state must not be shared again.
            for name in &bad {
                store.remove(&self.within(name))?;
            }
            return Err(damaged(
                "checksum mismatch: the file changed after it was sent, or in an earlier state",
            )
            .named(first.clone()));
        }
        manifest.put(store, &format!("{}/", self.part))?;
        // Also the names that an earlier run changed.
        store.sync_tree(&self.part)?;
        self.shelf.rename(&self.part, id)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::manifest::{Soundness, StateFile};
    use bandsaw::progress::Silent;

    /// A stream of one file.
    fn stream(id: &str, bundle: &str, name: &str) -> Vec<u8> {
        let bytes = b"contents";
        let file = StateFile {
            hash: blake3::hash(bytes).to_hex().to_string(),
            len: bytes.len() as u64,
            modified: 1,
            live: Identity {
                len: 8,
                modified: 1,
                changed: 1,
                inode: 1,
            },
        };
        let manifest = Manifest {
            sequence: 1,
            listed: 1,
            bundle: bundle.to_owned(),
            check: Soundness::Sound,
            copied: 8,
            files: [(name.to_owned(), file)].into(),
        };
        let id = id.to_owned();
        let header = sealed::to_bytes(FORMAT, &Header { id, manifest }).unwrap();
        let mut stream = MAGIC.to_vec();
        stream.extend((header.len() as u64).to_le_bytes());
        stream.extend(header);
        stream.extend((name.len() as u32).to_le_bytes());
        stream.extend(name.as_bytes());
        stream.extend(bytes);
        stream.extend([0; 4]);
        stream.extend(END);
        stream
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("within/states");
        fs::create_dir_all(&folder).unwrap();
        for (id, bundle, name) in [
            ("../x", "b", "bands/0"),
            (".new-1", "b", "bands/0"),
            ("a/b", "b", "bands/0"),
            ("1", "..", "bands/0"),
            ("1", "/tmp", "bands/0"),
            ("1", "", "bands/0"),
            ("1", "b", "../../x"),
            ("1", "b", "/etc/x"),
            ("1", "b", "bands/../../x"),
            ("1", "b", ".bandsaw/state.json"),
        ] {
            let received = receive(&folder, &mut &stream(id, bundle, name)[..], &Silent);
            assert!(received.is_err(), "{id} {bundle} {name}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        let received = receive(&folder, &mut &stream("1", "b", "bands/0")[..], &Silent);
        assert_eq!(
            fs::read(received.unwrap().path.join("bands/0")).unwrap(),
            b"contents"
        );
    }

    #[test]
    fn lengths_that_no_stream_has_take_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut long = MAGIC.to_vec();
        long.extend(u64::MAX.to_le_bytes());
        // Without an end: the length is refused before anything is read.
        let mut endless = (&long[..]).chain(io::repeat(b' '));
        let error = receive(folder.path(), &mut endless, &Silent).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        let other = receive(
            folder.path(),
            &mut &b"something else that is long"[..],
            &Silent,
        );
        assert_eq!(other.unwrap_err().kind(), Kind::Unsupported);
    }
}
