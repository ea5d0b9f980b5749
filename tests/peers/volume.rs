//! The volumes that the other programs read: one tree, built by us in every available way.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bandsaw::container::Format;
use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::open::{Image, OpenOptions, open};
use bandsaw::ops;
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source};
use bandsaw::ops::format::{FormatOptions, NewFormat, format};
use bandsaw::ops::import::{self, FolderOptions};
use bandsaw::ops::put::{PutOptions, put};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::progress::Silent;

use crate::tree::{self, Listing};

/// Name of the volumes.
pub(crate) const NAME: &str = "Peers é";

/// Creation date of the volumes: later than any file, since files created later would get it, too.
pub(crate) const CREATED: i64 = 2_210_000_000;

/// A volume built from a folder.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) case_sensitive: bool,
    /// True if the disk has a partition map.
    pub(crate) mapped: bool,
    /// True if it was created empty and filled file by file, instead of built as a whole.
    pub(crate) changed: bool,
    /// True if it has a journal and was grown and shrunk.
    pub(crate) resized: bool,
    /// Path of the raw image.
    pub(crate) disk: PathBuf,
    /// Path of the same disk as a sparse bundle.
    pub(crate) bundle: PathBuf,
    /// Range of the volume on the disk.
    pub(crate) range: Range<u64>,
    /// Files that it was built from, [as stored](as_stored).
    pub(crate) files: Arc<Listing>,
}

/// Returns HFS+ and HFSX volumes, built on a whole disk and in a partition, filled file by file on
/// a whole disk, and with a journal in a partition, filled and then resized; each as a raw image
/// and as a bundle. They must not be changed.
pub(crate) fn all() -> &'static [Volume] {
    static ALL: LazyLock<Vec<Volume>> = LazyLock::new(|| {
        let folder = crate::scratch().keep();
        [false, true]
            .into_iter()
            .flat_map(|case_sensitive| build_both(&folder, case_sensitive))
            .collect()
    });
    &ALL
}

fn build_both(scratch: &Path, case_sensitive: bool) -> Vec<Volume> {
    let name = if case_sensitive { "hfsx" } else { "hfsplus" };
    let source = scratch.join(name);
    tree::write(&source, case_sensitive);
    let files = Arc::new(as_stored(tree::list(&source)));
    let volumes = [Layout::None, Layout::Gptspud].map(|layout| {
        let path = scratch.join(format!("{name} {layout}"));
        let (disk, bundle) = (
            path.with_extension("img"),
            path.with_extension("sparsebundle"),
        );
        let range = create(
            Source::Folder(source.clone()),
            &disk,
            Format::Udrw,
            case_sensitive,
            layout,
        );
        create(
            Source::Folder(source.clone()),
            &bundle,
            Format::Udsb,
            case_sensitive,
            layout,
        );
        let mapped = layout == Layout::Gptspud;
        Volume {
            case_sensitive,
            mapped,
            changed: false,
            resized: false,
            disk,
            bundle,
            range,
            files: Arc::clone(&files),
        }
    });
    let path = scratch.join(format!("{name} changed"));
    let (disk, bundle) = (
        path.with_extension("img"),
        path.with_extension("sparsebundle"),
    );
    let range = create_of(
        Some(CHANGED),
        Source::Empty,
        &bundle,
        Format::Udsb,
        case_sensitive,
        Layout::None,
    );
    fill(&bundle, &source);
    // Filling it a second time would result in other dates.
    let filled = open(&bundle, &OpenOptions::default()).expect("opening the bundle");
    convert(&filled, &disk, &ConvertOptions::default(), &Silent).expect("converting the bundle");
    let changed = Volume {
        case_sensitive,
        mapped: false,
        changed: true,
        resized: false,
        disk,
        bundle,
        range,
        files: Arc::clone(&files),
    };
    let resized = build_resized(
        &scratch.join(format!("{name} resized")),
        &source,
        case_sensitive,
        files,
    );
    fs::remove_dir_all(source).expect("removing the source");
    volumes.into_iter().chain([changed, resized]).collect()
}

/// Formats a partition with a journal, fills it, grows and shrinks it.
fn build_resized(path: &Path, source: &Path, case_sensitive: bool, files: Arc<Listing>) -> Volume {
    let (disk, bundle) = (
        path.with_extension("img"),
        path.with_extension("sparsebundle"),
    );
    create_of(
        Some(CHANGED),
        Source::Empty,
        &bundle,
        Format::Udsb,
        !case_sensitive,
        Layout::Gptspud,
    );
    let options = FormatOptions {
        place: None,
        format: if case_sensitive {
            NewFormat::HfsxJournaled
        } else {
            NewFormat::HfsPlusJournaled
        },
        name: NAME.into(),
        block_size: None,
        erase: true,
        epoch: Some(Timestamp::from_seconds(CREATED)),
        encryption: None,
    };
    format(&writable(&bundle), options, &Silent).expect("formatting");
    fill(&bundle, source);
    let sizes = if case_sensitive {
        [Size::Min, Size::Bytes(2 * CHANGED)]
    } else {
        [Size::Bytes(2 * CHANGED), Size::Min]
    };
    for size in sizes {
        let options = ResizeOptions {
            size,
            parts: Parts::All,
            volume: None,
            dry_run: false,
        };
        resize(&writable(&bundle), &options, &Silent).expect("resizing");
    }
    let resized = open(&bundle, &OpenOptions::default()).expect("opening the bundle");
    convert(&resized, &disk, &ConvertOptions::default(), &Silent).expect("converting the bundle");
    let range = resized.volumes()[0].range.clone();
    Volume {
        case_sensitive,
        mapped: true,
        changed: true,
        resized: true,
        disk,
        bundle,
        range,
        files,
    }
}

fn writable(image: &Path) -> Image {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    open(image, &options).expect("opening the image")
}

/// Size of the disk of a volume that is filled file by file, in bytes.
const CHANGED: u64 = 128 << 20;

/// Copies everything in a folder to the volume of an image.
fn fill(image: &Path, source: &Path) {
    let image = writable(image);
    let volume = image.file_system_mut(None).expect("opening the volume");
    let tree =
        import::folder(source, &FolderOptions::default(), &Silent).expect("reading the folder");
    put(&tree, &*volume, "/", &PutOptions::default(), &Silent).expect("filling the volume");
    volume.unmount().expect("leaving the volume clean");
}

/// Returns a tree as a volume stores it: dates before 1970 become 1970, as on macOS.
pub(crate) fn as_stored(mut files: Listing) -> Listing {
    files
        .values_mut()
        .for_each(|item| item.modified = item.modified.max(0));
    files
}

/// Creates an image; returns the range of the volume on the disk.
pub(crate) fn create(
    source: Source,
    path: &Path,
    format: Format,
    case_sensitive: bool,
    layout: Layout,
) -> Range<u64> {
    create_of(None, source, path, format, case_sensitive, layout)
}

/// Creates an image with a disk of `len` bytes; returns the range of the volume on the disk.
pub(crate) fn create_of(
    len: Option<u64>,
    source: Source,
    path: &Path,
    format: Format,
    case_sensitive: bool,
    layout: Layout,
) -> Range<u64> {
    let file_system = if case_sensitive {
        NewFormat::Hfsx
    } else {
        NewFormat::HfsPlus
    };
    let volume = NewVolume {
        layout,
        name: NAME.into(),
        format: file_system,
        block_size: None,
        source,
    };
    let options = CreateOptions {
        format,
        len,
        band_size: (format == Format::Udsb).then_some(1 << 20),
        volume: Some(volume),
        epoch: Some(Timestamp::from_seconds(CREATED)),
        ..CreateOptions::default()
    };
    let created = ops::create::create(path, options, &Silent).expect("making an image");
    let [volume] = created.image.volumes() else {
        panic!("one volume is expected: {:?}", created.image.volumes())
    };
    volume.range.clone()
}
