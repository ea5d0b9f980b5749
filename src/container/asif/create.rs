//! Creation of an image, byte for byte as macOS does it. Source: docs/formats/asif.md §6.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;
use zerocopy::IntoBytes;

use super::geometry::{CHUNK, Geometry};
use super::layout::{ChunkEntry, FileChunk, HeaderRaw, entry_offset, table_offset};
use super::mask::{BlockState, Mask};
use super::metadata::{Metadata, segment};
use super::{Asif, LAYER, blocks_of};
use crate::device::{AfterDiscard, BlockDevice};
use crate::size::narrow;
use crate::{Error, Result};

/// Chunk numbers in a new image, following those of header and directories.
const TABLE: FileChunk = FileChunk(1);
const METADATA: FileChunk = FileChunk(2);
const BITMAP: FileChunk = FileChunk(3);
const CHUNKS: u64 = 4;

/// Parameters of a new image.
#[derive(Debug, Clone, Copy)]
pub struct AsifOptions {
    /// Length of the disk in bytes, a multiple of `block`, not zero, up to 4 PiB.
    pub len: u64,
    /// Block size in bytes: 512 or 4096.
    pub block: u32,
    /// Role of the image: a disk, or a layer of a stack.
    pub kind: Kind,
}

/// Role of a new image in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A disk of its own, or the base of a stack.
    Disk,
    /// A layer of writes above the image with this UUID (nil for a raw disk).
    Overlay(Uuid),
    /// A layer of copies of blocks of the image with this UUID, which is its own UUID, too.
    Cache(Uuid),
}

impl Asif {
    /// Initializes `file`, which must be empty, as a blank image. It is durable on return.
    pub fn create(file: Arc<dyn BlockDevice>, options: &AsifOptions) -> Result<Self> {
        Self::create_as(file, options, None)
    }

    /// Creates a blank image with the UUID `id`, from which its stable UUID is derived. `None`:
    /// random UUIDs.
    pub fn create_as(
        file: Arc<dyn BlockDevice>,
        options: &AsifOptions,
        id: Option<Uuid>,
    ) -> Result<Self> {
        if !matches!(options.block, 512 | 4096) {
            let expected = format!(
                "invalid block size {}: expected 512 or 4096 bytes",
                options.block
            );
            return Err(Error::invalid(LAYER, expected));
        }
        let sectors = blocks_of(options.block, options.len)?;
        let geometry = Geometry::for_disk(options.block, sectors)?;
        if file.info().len != 0 {
            let taken = format!("the file is not empty: it has {} bytes", file.info().len);
            return Err(Error::conflict(LAYER, taken));
        }
        write_blank(&*file, &geometry, sectors, options.kind, id)?;
        let image = Self::open(file)?;
        // A new image has a new UUID already.
        image.begun.store(true, Ordering::Release);
        Ok(if options.kind == Kind::Disk {
            image
        } else {
            image.overlaid()
        })
    }
}

fn write_blank(
    file: &dyn BlockDevice,
    geometry: &Geometry,
    sectors: u64,
    kind: Kind,
    id: Option<Uuid>,
) -> Result<()> {
    let own = id.unwrap_or_else(Uuid::new_v4);
    let stable = id.map_or_else(Uuid::new_v4, |id| Uuid::new_v5(&id, b"stable uuid"));
    let list = Metadata::new(stable).to_xml()?;
    let segment = segment(geometry, &list)?;
    let place = geometry.table_place(geometry.default_metadata_chunk());
    let mut mask = Mask::all(geometry.mask_bytes(), BlockState::Uninit);
    mask.set(
        0..narrow::<u32>(segment.len()) / geometry.block,
        BlockState::Written,
    );
    let directories = geometry.directories();
    file.set_len(CHUNKS * u64::from(CHUNK), AfterDiscard::Zeros)?;
    let number = |at: u64, number: u64| file.write_at(at, &number.to_be_bytes());
    for at in directories {
        number(at + table_offset(place.table), TABLE.0)?;
    }
    number(directories[1], 1)?; // the first directory has version 0
    let entry = |entry: u32| geometry.in_file(TABLE, 0..0).start + entry_offset(entry);
    number(entry(place.entry), ChunkEntry::Partial(METADATA).raw())?;
    number(entry(place.bitmap_entry), BITMAP.0)?;
    file.write_at(geometry.in_file(METADATA, 0..0).start, &segment)?;
    let masks = geometry.in_file(BITMAP, 0..0).start;
    file.write_at(
        masks + u64::from(place.in_group) * u64::from(geometry.mask_bytes()),
        mask.as_bytes(),
    )?;
    file.flush()?;
    let (uuid, parent, is_cache) = match kind {
        Kind::Disk => (own, Uuid::nil(), false),
        Kind::Overlay(below) => (own, below, false),
        Kind::Cache(below) => (below, below, true),
    };
    file.write_at(
        0,
        HeaderRaw::new(geometry, sectors, uuid, parent, is_cache).as_bytes(),
    )?;
    file.flush()
}
