//! Listings of a volume by our own reader, for comparison with those of other programs.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt, Slice};
use bandsaw::fs::hfsplus::{self, HfsPlus};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use bandsaw::open::OpenOptions;
use bandsaw::ops::repair::{Mode, Options, repair as repair_image};
use bandsaw::problem::{Problem, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::disk;
use crate::tree::{FINDER_INFO, Item, Kind, Listing, is_private, sha256};

/// Opens the volume in a range of a raw disk.
pub(crate) fn open(disk: &Path, range: Range<u64>) -> HfsPlus {
    let disk: Arc<dyn BlockDevice> = Arc::new(disk::open(disk, Open::Read));
    let volume = Slice::new(disk, range).expect("the volume is on the disk");
    HfsPlus::open(Arc::new(volume)).expect("opening the volume")
}

/// Checks the volume in a range of a raw disk; returns its problems.
pub(crate) fn check(disk: &Path, range: Range<u64>) -> Vec<Problem> {
    let disk: Arc<dyn BlockDevice> = Arc::new(disk::open(disk, Open::Read));
    let volume = Slice::new(disk, range).expect("the volume is on the disk");
    let mut found = hfsplus::check(Arc::new(volume), &Silent).expect("reading the volume");
    found.retain(|problem| problem.severity > Severity::Note);
    found
}

/// Destroys the first header, the head of the catalog and a part of the bitmap of a volume that is
/// the whole disk.
pub(crate) fn damage(disk: &Path) {
    let disk = disk::open(disk, Open::Write);
    let number = |at: u64| {
        u64::from(u32::from_be_bytes(
            disk.read_array(at).expect("reading the header"),
        ))
    };
    let (block_size, catalog, bitmap) = (
        number(1024 + 40),
        number(1024 + 272 + 16),
        number(1024 + 112 + 16),
    );
    disk.write_at(catalog * block_size, &[0xA5; 600])
        .expect("writing to the catalog");
    disk.write_at(bitmap * block_size + 3, &[0x0F; 40])
        .expect("writing to the bitmap");
    disk.write_at(1024, &[0; 512])
        .expect("writing to the header");
    disk.flush().expect("flushing");
}

/// Repairs the image.
pub(crate) fn repair(disk: &Path) {
    let repaired = repair_image(
        disk,
        &OpenOptions::default(),
        &Options {
            mode: Mode::Apply,
            ..Options::default()
        },
        &Silent,
    )
    .expect("repairing");
    assert!(
        repaired.refused.is_empty() && !repaired.steps.is_empty(),
        "{repaired:?}"
    );
}

/// Lists all of a volume, without Finder information.
pub(crate) fn list(volume: &dyn FileSystem) -> Listing {
    let mut listing = Listing::new();
    list_folder(volume, volume.root(), "", &mut listing);
    listing
}

fn list_folder(volume: &dyn FileSystem, folder: NodeId, prefix: &str, into: &mut Listing) {
    for entry in volume
        .entries(folder)
        .unwrap_or_else(|error| panic!("{prefix}: {error}"))
    {
        let path = format!("{prefix}{}", entry.name);
        if is_private(&path) {
            continue;
        }
        if entry.attributes.kind == FileKind::Folder {
            list_folder(volume, entry.attributes.id, &format!("{path}/"), into);
        }
        into.insert(path, item(volume, &entry.attributes));
    }
}

fn item(volume: &dyn FileSystem, attributes: &Attributes) -> Item {
    let id = attributes.id;
    let kind = match attributes.kind {
        FileKind::Folder => Kind::Folder,
        FileKind::File => {
            let contents = all(&*volume.open(id, Fork::Data).expect("opening a file"));
            Kind::File {
                len: attributes.size,
                sha256: sha256(&contents),
            }
        }
        FileKind::Symlink => Kind::Symlink(volume.read_link(id).expect("reading a symbolic link")),
        FileKind::Fifo => Kind::Fifo,
        other => panic!("{other:?} is not what these trees have"),
    };
    let names = volume
        .xattrs(id)
        .expect("listing attributes")
        .into_iter()
        .filter(|name| name != FINDER_INFO);
    let xattrs = names.map(|name| {
        let value = volume
            .xattr(id, &name)
            .expect("opening an attribute")
            .expect("what is listed is there");
        (name, all(&*value))
    });
    Item {
        kind,
        mode: attributes.mode.into(),
        modified: attributes.modified.expect("everything has a date").seconds,
        links: attributes.links.into(),
        xattrs: xattrs.collect(),
    }
}

fn all(device: &dyn BlockDevice) -> Vec<u8> {
    let len = usize::try_from(device.info().len).expect("files of tests fit in memory");
    device.read_vec(0, len).expect("reading a file")
}
