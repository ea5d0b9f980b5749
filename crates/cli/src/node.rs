//! An object of a volume, for output.

use bandsaw::Result;
use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use serde::Serialize;

use crate::output::{Output, Style};
use crate::text::rfc3339;

/// Returns the entries of a folder sorted by name; names that differ only in case are adjacent.
pub(crate) fn entries(fs: &dyn FileSystem, folder: NodeId) -> Result<Vec<Entry>> {
    let mut entries = fs.entries(folder)?;
    let case_sensitive = fs.volume().case_sensitive;
    entries.sort_by_cached_key(|entry| {
        let folded = if case_sensitive {
            String::new()
        } else {
            entry.name.to_lowercase()
        };
        (folded, entry.name.clone())
    });
    Ok(entries)
}

/// An object in the JSON output: sizes in bytes, dates as RFC 3339, the mode in octal.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    name: String,
    volume_path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// The number of objects in a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_count: Option<u64>,
    allocated: u64,
    resource_fork_size: u64,
    mode: String,
    uid: u32,
    gid: u32,
    links: u32,
    flags: u32,
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    has_xattrs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accessed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backed_up: Option<String>,
}

impl Node {
    /// Describes an object with these attributes. Reads the target of a symbolic link.
    pub(crate) fn new(
        fs: &dyn FileSystem,
        name: &str,
        path: &str,
        of: &Attributes,
    ) -> Result<Self> {
        let special = matches!(of.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Self {
            name: name.to_owned(),
            volume_path: path.to_owned(),
            kind: of.kind.name(),
            size: (of.kind != FileKind::Folder).then_some(of.size),
            entry_count: (of.kind == FileKind::Folder).then_some(of.size),
            allocated: of.allocated,
            resource_fork_size: of.resource_size,
            mode: format!("{:04o}", of.mode),
            uid: of.uid,
            gid: of.gid,
            links: of.links,
            flags: of.flags,
            id: of.id.0,
            target: target(fs, of)?,
            device: special.then_some(of.device),
            has_xattrs: of.has_xattrs,
            created: of.created.map(rfc3339),
            modified: of.modified.map(rfc3339),
            changed: of.changed.map(rfc3339),
            accessed: of.accessed.map(rfc3339),
            backed_up: of.backed_up.map(rfc3339),
        })
    }
}

/// Returns the target of a symbolic link; `None` for anything else.
pub(crate) fn target(fs: &dyn FileSystem, of: &Attributes) -> Result<Option<String>> {
    if of.kind == FileKind::Symlink {
        fs.read_link(of.id).map(Some)
    } else {
        Ok(None)
    }
}

/// Returns a name for output: colored by kind, with control characters escaped.
pub(crate) fn shown(output: &Output, name: &str, kind: FileKind) -> String {
    let name = output.name(name);
    match kind {
        FileKind::Folder => output.paint(Style::Folder, &name),
        FileKind::Symlink => output.paint(Style::Symlink, &name),
        _ => name,
    }
}

/// Formats a mode as `drwxr-xr-x`, with `@` behind it, as on macOS, if there are attributes or a
/// resource fork.
pub(crate) fn mode(of: &Attributes) -> String {
    let kind = match of.kind {
        FileKind::File => '-',
        FileKind::Folder => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    // Set-user-ID, set-group-ID and sticky bits replace the `x` that they affect.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = of.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (of.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text.push(if of.has_xattrs || of.resource_size > 0 {
        '@'
    } else {
        ' '
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(kind: FileKind, mode: u16) -> Attributes {
        Attributes {
            id: NodeId(16),
            kind,
            size: 0,
            allocated: 0,
            resource_size: 0,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            flags: 0,
            created: None,
            modified: None,
            changed: None,
            accessed: None,
            backed_up: None,
            has_xattrs: false,
        }
    }

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(mode(&attributes(FileKind::Folder, 0o755)), "drwxr-xr-x ");
        assert_eq!(mode(&attributes(FileKind::File, 0o640)), "-rw-r----- ");
        assert_eq!(mode(&attributes(FileKind::File, 0o6755)), "-rwsr-sr-x ");
        assert_eq!(mode(&attributes(FileKind::File, 0o4644)), "-rwSr--r-- ");
        assert_eq!(mode(&attributes(FileKind::Folder, 0o1777)), "drwxrwxrwt ");
        assert_eq!(
            mode(&Attributes {
                has_xattrs: true,
                ..attributes(FileKind::Symlink, 0o777)
            }),
            "lrwxrwxrwx@"
        );
    }
}
