//! Import of a tar archive as a tree.
//!
//! Contents stay in the archive and are read from there while the volume is written. A stream is
//! first copied to an unlinked file. Of two members with the same path the later one wins. Missing
//! folders are created. An absolute path is relative to the root of the volume, and one with `..`
//! is refused. A member whose name begins with `._` and that holds AppleDouble, the form in which
//! the tar of macOS stores attributes and resource forks, is merged into the file that follows it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::TAR_LAYER;
use super::apple_double::{self, Xattrs};
use super::tar_contents::{SparsePieces, TarContents};
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::fs::{FileKind, Timestamp};
use crate::ops::tar::read::{Member, MemberKind, SparsePiece, TarReader, Value, check_start};
use crate::platform::nodes;
use crate::progress::Progress;
use crate::size::narrow;
use crate::{Error, Result};

/// Returns the tree of the archive at `path`.
pub fn tar(path: &Path, progress: &dyn Progress) -> Result<Tree> {
    let file =
        File::open(path).map_err(|error| Error::io("source", "open", error).in_file(path))?;
    from_file(file, progress).map_err(|error| error.in_file(path))
}

/// Returns the tree of an archive that is read from `stream` to its end. The archive is kept in an
/// unlinked file in the folder `spool` until the tree is dropped.
pub fn tar_stream(stream: &mut dyn Read, spool: &Path, progress: &dyn Progress) -> Result<Tree> {
    let mut file = nodes::unlinked_file(spool)
        .map_err(|error| Error::io(TAR_LAYER, "create a temporary file", error).in_file(spool))?;
    progress.stage("receive", 0);
    let mut buffer = vec![0; 1 << 20];
    let mut first = true;
    loop {
        progress.check()?;
        let got = fill(stream, &mut buffer)
            .map_err(|error| Error::io(TAR_LAYER, "read the stream", error))?;
        if first {
            // Checked before gigabytes are copied in vain.
            check_start(&buffer[..got.min(512)])?;
            first = false;
        }
        if got == 0 {
            return from_file(file, progress);
        }
        file.write_all(&buffer[..got]).map_err(|error| {
            Error::io(TAR_LAYER, "write the temporary file", error).in_file(spool)
        })?;
        progress.advance(got as u64);
    }
}

/// Reads until the buffer is full or the stream ends.
fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn from_file(file: File, progress: &dyn Progress) -> Result<Tree> {
    progress.stage("scan", 0);
    let mut reader = TarReader::new(&file)?;
    let mut growing = TreeBuilder::new();
    while let Some(member) = reader.next()? {
        progress.check()?;
        progress.advance(1);
        growing.add(&file, member)?;
    }
    let TreeBuilder { nodes, pieces, .. } = growing.finish()?;
    Ok(Tree {
        nodes,
        contents: Box::new(TarContents::new(Arc::new(file), pieces)),
    })
}

/// The tree of the members read so far.
struct TreeBuilder {
    nodes: Vec<SourceNode>,
    /// By node: true if a later member replaced it, and the number of its children.
    state: Vec<ArchiveState>,
    by_name: HashMap<(u32, Box<str>), u32>,
    /// The pieces of sparse files, by the offset of their header in the archive.
    pieces: HashMap<u64, SparsePieces>,
    pending: Option<PendingAppleDouble>,
    /// True if the archive has a member for the root folder.
    root_known: bool,
}

/// An AppleDouble file whose partner has not been read yet.
struct PendingAppleDouble {
    /// Path of the partner.
    path: Vec<u8>,
    xattrs: Xattrs,
    /// The AppleDouble file itself, in case the partner does not follow.
    double: Member,
}

#[derive(Clone, Copy, Default)]
struct ArchiveState {
    replaced: bool,
    children: u32,
}

impl TreeBuilder {
    fn new() -> Self {
        let root = Tree::empty(Timestamp::from_seconds(0)).nodes;
        Self {
            nodes: root,
            state: vec![ArchiveState::default()],
            by_name: HashMap::new(),
            pieces: HashMap::new(),
            pending: None,
            root_known: false,
        }
    }

    fn add(&mut self, file: &File, member: Member) -> Result<()> {
        let mut xattrs = Vec::new();
        if let Some(pending) = self.pending.take() {
            if pending.path == without_slash(&member.path) {
                xattrs = pending.xattrs;
            } else {
                self.add_member(pending.double, Vec::new())?; // a file like any other
            }
        }
        if let Some(path) = apple_double::partner(&member)
            && let Some(xattrs) = apple_double::of_member(file, &member)?
        {
            self.pending = Some(PendingAppleDouble {
                path,
                xattrs,
                double: member,
            });
            return Ok(());
        }
        self.add_member(member, xattrs)
    }

    fn add_member(&mut self, member: Member, mut xattrs: Xattrs) -> Result<()> {
        let path = String::from_utf8(member.path.clone()).map_err(|error| {
            refused(
                &error.to_string(),
                "a name on an Apple volume must be UTF-8",
                &member.path,
            )
        })?;
        let mut parts: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        if parts.contains(&"..") {
            return Err(refused("", "unsafe path: it has ..", &member.path));
        }
        for (name, value) in &member.xattrs {
            let Some(name) = xattr_name(name) else {
                continue;
            };
            let stream = match value {
                Value::Bytes(bytes) => Stream::Bytes(bytes.as_slice().into()),
                Value::At(offset, len) => Stream::Extern {
                    node: 0,
                    offset: *offset,
                    len: *len,
                },
            };
            xattrs.retain(|(known, _)| **known != *name);
            xattrs.push((name.into(), stream));
        }
        let Some(name) = parts.pop() else {
            return self.set_root(&member, xattrs);
        };
        let mut parent = 0;
        for part in parts {
            parent = self.folder(parent, part, &member)?;
        }
        let node = next_index(&self.nodes)?;
        let kind = self.kind(&member, node)?;
        self.insert(
            source_node(parent, name, kind, &member, xattrs),
            node,
            &member,
        )
    }

    /// Sets the attributes of the root folder.
    fn set_root(&mut self, member: &Member, xattrs: Xattrs) -> Result<()> {
        if member.kind != MemberKind::Folder {
            return Err(refused("", "the root must be a folder", &member.path));
        }
        self.nodes[0] = source_node(0, "", SourceKind::Folder, member, xattrs);
        self.root_known = true;
        Ok(())
    }

    /// Returns the folder `name` in folder `parent`, created if missing.
    fn folder(&mut self, parent: u32, name: &str, member: &Member) -> Result<u32> {
        if let Some(&found) = self.by_name.get(&(parent, name.into())) {
            if self.nodes[found as usize].kind == SourceKind::Folder {
                return Ok(found);
            }
            return Err(refused("", "a parent is not a folder", &member.path));
        }
        let node = next_index(&self.nodes)?;
        let mut made = source_node(parent, name, SourceKind::Folder, member, Vec::new());
        (made.mode, made.flags, made.created) = (0o755, 0, None);
        self.push(made);
        self.by_name.insert((parent, name.into()), node);
        Ok(node)
    }

    fn kind(&mut self, member: &Member, node: u32) -> Result<SourceKind> {
        let special = |kind, (major, minor): (u32, u32)| match nodes::mac_device(major, minor) {
            Some(device) => Ok(SourceKind::Special(kind, device)),
            None => Err(refused(
                "",
                "the device number does not fit in the 8 and 24 bits of macOS",
                &member.path,
            )),
        };
        Ok(match member.kind {
            MemberKind::File => SourceKind::File(self.stream(member, node)),
            MemberKind::Folder => SourceKind::Folder,
            MemberKind::Symlink => match String::from_utf8(member.link.clone()) {
                Ok(target) => SourceKind::Symlink(target.into()),
                Err(_) => {
                    return Err(refused(
                        "",
                        "the target of a link on an Apple volume must be UTF-8",
                        &member.path,
                    ));
                }
            },
            MemberKind::HardLink => SourceKind::HardLink(self.target(member)?),
            MemberKind::Fifo => SourceKind::Special(FileKind::Fifo, 0),
            MemberKind::CharDevice => special(FileKind::CharDevice, member.device)?,
            MemberKind::BlockDevice => special(FileKind::BlockDevice, member.device)?,
        })
    }

    fn stream(&mut self, member: &Member, node: u32) -> Stream {
        let whole = SparsePiece {
            at: 0,
            offset: 0,
            len: member.len,
        };
        let offset = match member.pieces[..] {
            _ if member.len == 0 => return Stream::empty(),
            [SparsePiece { at: 0, offset, len }] if len == whole.len => offset,
            // A sparse file is identified by the offset of its header, which is unique.
            _ => {
                self.pieces
                    .insert(member.offset, member.pieces.clone().into());
                member.offset
            }
        };
        Stream::Extern {
            node,
            offset,
            len: member.len,
        }
    }

    /// Returns the node that is the target of a hard link.
    fn target(&self, member: &Member) -> Result<u32> {
        let missing = || {
            refused(
                &String::from_utf8_lossy(&member.link),
                "the target of the hard link is not in the archive",
                &member.path,
            )
        };
        let link = std::str::from_utf8(&member.link).map_err(|_| missing())?;
        let mut at = 0;
        for part in link.split('/').filter(|part| !matches!(*part, "" | ".")) {
            at = *self.by_name.get(&(at, part.into())).ok_or_else(missing)?;
        }
        match self.nodes[at as usize].kind {
            SourceKind::Folder => Err(refused(
                "",
                "the target of the hard link is a folder",
                &member.path,
            )),
            SourceKind::HardLink(target) => Ok(target),
            _ => Ok(at),
        }
    }

    fn insert(&mut self, source: SourceNode, node: u32, member: &Member) -> Result<()> {
        let key = (source.parent, source.name.clone());
        if let Some(&old) = self.by_name.get(&key) {
            let folders = (
                self.nodes[old as usize].kind == SourceKind::Folder,
                source.kind == SourceKind::Folder,
            );
            if folders == (true, true) {
                self.nodes[old as usize] = source;
                return Ok(());
            }
            if self.state[old as usize].children > 0 {
                return Err(refused(
                    "",
                    "replaces a folder that is not empty",
                    &member.path,
                ));
            }
            if source.kind == SourceKind::HardLink(old) {
                return Ok(()); // a link to itself
            }
            self.state[old as usize].replaced = true;
            self.state[source.parent as usize].children -= 1;
        }
        self.push(source);
        self.by_name.insert(key, node);
        Ok(())
    }

    fn push(&mut self, source: SourceNode) {
        self.state[source.parent as usize].children += 1;
        self.nodes.push(source);
        self.state.push(ArchiveState::default());
    }

    /// Removes replaced nodes. If hard links refer to a replaced node, the first of them takes over
    /// its contents.
    fn finish(mut self) -> Result<Self> {
        if let Some(pending) = self.pending.take() {
            self.add_member(pending.double, Vec::new())?;
        }
        if !self.root_known {
            // Without a member for the root, its date is that of its newest entry.
            let latest = self.nodes[1..].iter().map(|node| node.modified).max();
            self.nodes[0] = Tree::empty(latest.unwrap_or(self.nodes[0].modified))
                .nodes
                .remove(0);
        }
        if self.state.iter().any(|state| state.replaced) {
            self.compact();
        }
        Ok(self)
    }

    fn compact(&mut self) {
        let old = std::mem::take(&mut self.nodes);
        // New index of each old node; for a replaced one, that of the node with its contents.
        let mut new: Vec<Option<u32>> = Vec::with_capacity(old.len());
        for (index, source) in old.iter().enumerate() {
            if self.state[index].replaced {
                new.push(None);
                continue;
            }
            let mut source = source.clone();
            source.parent = new
                .get(source.parent as usize)
                .copied()
                .flatten()
                .unwrap_or(0);
            let here = narrow::<u32>(self.nodes.len());
            if let SourceKind::HardLink(target) = source.kind {
                match new[target as usize] {
                    Some(moved) => source.kind = SourceKind::HardLink(moved),
                    None => {
                        let body = &old[target as usize];
                        source = SourceNode {
                            parent: source.parent,
                            name: source.name,
                            ..body.clone()
                        };
                        new[target as usize] = Some(here);
                    }
                }
            }
            self.nodes.push(source);
            new.push(Some(here));
        }
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn next_index(nodes: &[SourceNode]) -> Result<u32> {
    u32::try_from(nodes.len())
        .map_err(|_| Error::limit(TAR_LAYER, "too many files and folders (limit 2^32)"))
}

fn source_node(
    parent: u32,
    name: &str,
    kind: SourceKind,
    member: &Member,
    xattrs: Xattrs,
) -> SourceNode {
    SourceNode {
        parent,
        name: name.into(),
        kind,
        mode: member.mode,
        uid: member.uid,
        gid: member.gid,
        flags: member.flags,
        created: member.created,
        modified: member.modified,
        changed: member.changed,
        accessed: member.accessed,
        xattrs,
    }
}

/// Returns the macOS name of an attribute: archives made on Linux have the prefix `user.`. `None`
/// for attributes specific to Linux.
fn xattr_name(name: &str) -> Option<&str> {
    let linux = ["security.", "system.", "trusted."];
    let name = name.strip_prefix("user.").unwrap_or(name);
    (!name.is_empty() && !linux.iter().any(|prefix| name.starts_with(prefix))).then_some(name)
}

fn refused(detail: &str, message: &'static str, path: &[u8]) -> Error {
    let message = if detail.is_empty() {
        message.to_owned()
    } else {
        format!("{message} ({detail})")
    };
    Error::unsupported(TAR_LAYER, message).named(String::from_utf8_lossy(path))
}
