//! Contents packed: chunk by chunk on all cores, into the attribute where they fit, else for the resource fork.

use rayon::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{EntryRaw, HeaderRaw, MAGIC, MAX_ATTRIBUTE, MapRaw, RESOURCES, ResourceForkRaw, ResourceRaw};
use super::{CHUNK, LAYER, Method, Place};
use crate::codec::{Codec, Encoder, Level, LzvnEncoder};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// The longest contents that are packed: macOS fails on longer ones (§6).
pub const MAX_LEN: u64 = u32::MAX as u64 - 1;

/// How contents are to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    method: Method,
    level: Level,
}

impl Packing {
    /// `level` counts for zlib only. [`Kind::Unsupported`] for what is not written: LZBITMAP, and contents as they are.
    pub fn new(method: Method, level: Level) -> Result<Self> {
        match method {
            Method::Zlib | Method::Lzvn | Method::Lzfse => Ok(Self { method, level }),
            Method::Stored | Method::Lzbitmap => {
                Err(Error::unsupported(LAYER, format!("{method} is read, and not written; zlib, LZVN and LZFSE are")))
            }
        }
    }

    /// The type's number (§3) for contents in this place.
    fn number(self, place: Place) -> u32 {
        let in_attribute = match self.method {
            Method::Lzvn => 7,
            Method::Lzfse => 11,
            _ => 3,
        };
        in_attribute + u32::from(place == Place::Fork)
    }

    /// The attribute that goes with contents of `len` bytes.
    fn attribute(self, place: Place, len: u64, payload: &[u8]) -> Vec<u8> {
        let compression_type = self.number(place).into();
        let header = HeaderRaw { magic: MAGIC, compression_type, uncompressed_size: len.into() };
        [header.as_bytes(), payload].concat()
    }
}

/// Contents that are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The value of [`ATTRIBUTE`](super::ATTRIBUTE).
    pub attribute: Vec<u8>,
    /// Bytes of the resource fork; 0 where all is in the attribute.
    pub fork_len: u64,
}

/// What may come of packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The longest attribute, up to the 3802 bytes that macOS takes.
    pub attribute: usize,
    /// The longest resource fork that is worth it.
    pub fork: u64,
}

/// Packs all of `plain`, of 1 to [`MAX_LEN`] bytes. What belongs in the resource fork is given to `write`, with where it goes, not
/// always in order. `None`: it would be longer than `bounds` allow; then nothing that was written counts.
pub fn pack(
    plain: &dyn BlockDevice,
    packing: Packing,
    bounds: Bounds,
    progress: &dyn Progress,
    write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Option<Packed>> {
    let len = plain.info().len;
    if !(1..=MAX_LEN).contains(&len) {
        return Err(Error::new(Kind::Limit, LAYER, format!("{len} bytes cannot be packed; 1 to {MAX_LEN} expected")));
    }
    let count = len.div_ceil(CHUNK) as usize;
    let mut table = Table::new(packing.method, count);
    let mut at = table.len();
    // So many chunks at a time that no core waits long for the others.
    let batch = CHUNK * 8 * rayon::current_num_threads() as u64;
    let mut start = 0;
    while start < len {
        progress.check()?;
        let now = batch.min(len - start);
        let bytes = plain.read_vec(start, now as usize)?;
        let packed = bytes.par_chunks(CHUNK as usize).map_init(|| ChunkEncoder::new(packing), ChunkEncoder::encode);
        let packed = packed.collect::<Result<Vec<_>>>()?;
        if let ([only], 1) = (packed.as_slice(), count)
            && size_of::<HeaderRaw>() + only.len() <= bounds.attribute.min(MAX_ATTRIBUTE)
        {
            progress.advance(now);
            return Ok(Some(Packed { attribute: packing.attribute(Place::Attribute, len, only), fork_len: 0 }));
        }
        let joined = packed.concat();
        let Ok(end) = u32::try_from(at + joined.len() as u64 + table.tail_len()) else { return Ok(None) };
        if u64::from(end) > bounds.fork {
            return Ok(None);
        }
        packed.iter().for_each(|chunk| table.add(chunk.len()));
        write(at, &joined)?;
        at += joined.len() as u64;
        start += now;
        progress.advance(now);
    }
    let tail = table.tail();
    if !tail.is_empty() {
        write(at, &tail)?;
    }
    write(0, &table.head(at))?;
    let fork_len = at + tail.len() as u64;
    Ok(Some(Packed { attribute: packing.attribute(Place::Fork, len, &[]), fork_len }))
}

/// Packs chunks, one after the other.
enum ChunkEncoder {
    Framed(Encoder, Packing),
    Lzvn(Box<LzvnEncoder>),
}

impl ChunkEncoder {
    fn new(packing: Packing) -> Self {
        match packing.method {
            Method::Lzvn => Self::Lzvn(Box::default()),
            Method::Lzfse => Self::Framed(Encoder::new(Codec::Lzfse, packing.level), packing),
            _ => Self::Framed(Encoder::new(Codec::Zlib, packing.level), packing),
        }
    }

    /// One chunk: packed, or as it is behind what says so (§5).
    fn encode(&mut self, plain: &[u8]) -> Result<Vec<u8>> {
        let mut packed = Vec::with_capacity(plain.len() + 16);
        let shorter = match self {
            Self::Framed(encoder, _) => encoder.encode(plain, &mut packed)?,
            Self::Lzvn(encoder) => encoder.encode(plain, &mut packed),
        };
        if !shorter {
            match self {
                Self::Lzvn(_) => packed.push(0x06),
                // A marker of its own is told differently by different readers: a block of the stream that holds plain bytes is not.
                Self::Framed(_, Packing { method: Method::Lzfse, .. }) => {
                    packed.extend(b"bvx-");
                    packed.extend((plain.len() as u32).to_le_bytes());
                    packed.extend_from_slice(plain);
                    packed.extend(b"bvx$");
                    return Ok(packed);
                }
                Self::Framed(..) => packed.push(0xFF),
            }
            packed.extend_from_slice(plain);
        }
        Ok(packed)
    }
}

/// The table of a resource fork as it grows.
struct Table {
    classic: bool,
    count: usize,
    lens: Vec<u32>,
}

impl Table {
    fn new(method: Method, count: usize) -> Self {
        Self { classic: method == Method::Zlib, count, lens: Vec::with_capacity(count) }
    }

    /// Bytes before the chunks.
    fn len(&self) -> u64 {
        let count = self.count as u64;
        match self.classic {
            true => u64::from(RESOURCES) + size_of::<ResourceRaw>() as u64 + count * size_of::<EntryRaw>() as u64,
            false => (count + 1) * 4,
        }
    }

    /// Bytes behind the chunks.
    fn tail_len(&self) -> u64 {
        if self.classic { size_of::<MapRaw>() as u64 } else { 0 }
    }

    fn add(&mut self, len: usize) {
        self.lens.push(len as u32);
    }

    /// What stands before the chunks, which end at `end`.
    fn head(&self, end: u64) -> Vec<u8> {
        let end = end as u32; // checked with each batch
        let mut at = self.len() as u32;
        let mut next = |len: &u32| {
            at += len;
            at - len
        };
        if !self.classic {
            let starts = self.lens.iter().map(&mut next).chain([end]).collect::<Vec<_>>();
            return starts.into_iter().flat_map(u32::to_le_bytes).collect();
        }
        let fork = ResourceForkRaw {
            data: RESOURCES.into(),
            map: end.into(),
            data_len: (end - RESOURCES).into(),
            map_len: (size_of::<MapRaw>() as u32).into(),
        };
        let mut head = fork.as_bytes().to_vec();
        head.resize(RESOURCES as usize, 0);
        let resource = ResourceRaw { len: (end - RESOURCES - 4).into(), chunks: (self.count as u32).into() };
        head.extend(resource.as_bytes());
        for len in &self.lens {
            // Counted from the number of chunks.
            let offset = next(len) - RESOURCES - 4;
            head.extend(EntryRaw { offset: offset.into(), len: (*len).into() }.as_bytes());
        }
        head
    }

    /// What stands behind them: the map of the one resource.
    fn tail(&self) -> Vec<u8> {
        if !self.classic {
            return Vec::new();
        }
        MapRaw {
            types_at: 0x1C.into(),
            names_at: (size_of::<MapRaw>() as u16).into(),
            kind: *b"cmpf",
            references_at: 0x0A.into(),
            id: 1.into(),
            name_at: 0xFFFF.into(),
            ..MapRaw::new_zeroed()
        }
        .as_bytes()
        .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::decmpfs::contents;
    use crate::device::Memory;
    use crate::progress::Silent;

    const ALL: Bounds = Bounds { attribute: MAX_ATTRIBUTE, fork: u64::MAX };
    const METHODS: [Method; 3] = [Method::Zlib, Method::Lzvn, Method::Lzfse];

    fn packed(plain: &[u8], method: Method, bounds: Bounds) -> Option<(Packed, Vec<u8>)> {
        let packing = Packing::new(method, Level::new(5).unwrap()).unwrap();
        let mut fork = Vec::new();
        let mut write = |at: u64, bytes: &[u8]| {
            let end = at as usize + bytes.len();
            fork.resize(fork.len().max(end), 0);
            fork[at as usize..end].copy_from_slice(bytes);
            Ok(())
        };
        let packed = pack(&Memory::read_only(plain), packing, bounds, &Silent, &mut write).unwrap()?;
        assert!(packed.fork_len == 0 || packed.fork_len == fork.len() as u64);
        Some((packed, fork))
    }

    fn unpacked(packed: &Packed, fork: Vec<u8>) -> Vec<u8> {
        let fork: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(fork));
        let device = contents(&packed.attribute, || Ok(fork)).unwrap();
        device.read_vec(0, device.info().len as usize).unwrap()
    }

    /// Text and noise in turn, `step` bytes each.
    fn mixed(len: usize, step: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let byte = |at: usize| if (at / step).is_multiple_of(2) { b"so it goes, "[at % 12] } else { noise() };
        (0..len).map(byte).collect()
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        for method in METHODS {
            for len in [1, 100, 3786, 3787, 65_535, 65_536, 65_537, 131_072, 700_001] {
                for step in [1 << 30, 1000, 90_000] {
                    let plain = mixed(len, step);
                    let (packed, fork) = packed(&plain, method, ALL).unwrap();
                    assert!(unpacked(&packed, fork) == plain, "{method}, {len} bytes, {step} of a kind");
                    assert!(packed.attribute.len() <= MAX_ATTRIBUTE);
                    assert!(len <= 65_536 || packed.fork_len > 0);
                }
            }
        }
    }

    #[test]
    fn what_is_not_worth_it_is_told() {
        let noise: Vec<u8> = mixed(400_000, 200_000)[200_000..].to_vec();
        for method in METHODS {
            assert_eq!(packed(&noise, method, Bounds { fork: 200_000, ..ALL }), None);
            let text = mixed(5000, 1 << 30);
            let (short, _) = packed(&text, method, ALL).unwrap();
            assert_eq!(short.fork_len, 0);
            let (long, _) = packed(&text, method, Bounds { attribute: 20, ..ALL }).unwrap();
            assert!(long.fork_len > 0 && long.attribute.len() == 16);
        }
        let packing = Packing::new(Method::Zlib, Level::default()).unwrap();
        let empty = pack(&Memory::zeros(0), packing, ALL, &Silent, &mut |_, _| Ok(()));
        assert_eq!(empty.unwrap_err().kind(), Kind::Limit);
        assert_eq!(Packing::new(Method::Lzbitmap, Level::default()).unwrap_err().kind(), Kind::Unsupported);
    }

    #[test]
    fn the_classic_fork_is_as_specified() {
        let plain = mixed(70_000, 1 << 30);
        let (packed, fork) = packed(&plain, Method::Zlib, ALL).unwrap();
        let end = fork.len() - 50;
        let word = |at: usize| u32::from_be_bytes(fork[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!([word(0), word(4), word(8), word(12)], [0x100, end, end - 0x100, 50]);
        assert_eq!(word(0x100), end - 0x104);
        assert_eq!(fork[0x104..0x10C], [2, 0, 0, 0, 20, 0, 0, 0]);
        assert_eq!(fork[end + 24..end + 38], [0, 0x1C, 0, 50, 0, 0, b'c', b'm', b'p', b'f', 0, 0, 0, 0x0A]);
        assert_eq!(fork[end + 38..], [0, 1, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(packed.attribute[..5], *b"fpmc\x04");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_length_around_the_limits(near in prop::sample::select(vec![1_usize, 3786, 65_536, 131_072]), by in -40_i32..40, step in 1_usize..9000) {
            let plain = mixed(near.saturating_add_signed(by as isize).max(1), step);
            for method in METHODS {
                let (packed, fork) = packed(&plain, method, ALL).unwrap();
                prop_assert!(unpacked(&packed, fork) == plain);
            }
        }
    }
}
