//! A stack: a base and layers over it, one disk. Source: docs/formats/stack.md.
//!
//! A byte is that of the topmost layer that has its block, as data or as stated zeros; what no
//! layer has is the base's. Only the topmost layer is written.
//!
//! * [`chain`]: which layers belong over each other.
//! * [`write`]: blocks that are written or discarded in part.
//! * [`cache`]: the layer that keeps what was read from below it.

mod cache;
mod chain;
mod write;

use std::ops::Range;
use std::sync::{Arc, RwLock};

use self::cache::Cache;
use super::overlay::Overlay;
use crate::device::units::Units;
use crate::device::{Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use crate::{Error, Kind, Result};

pub use self::chain::{Identity, Link, check as check_chain};

const LAYER: &str = "stack";
/// Layers over a base, each of them an open file. Nobody stacks so many by hand.
const MAX_LAYERS: usize = 256;

/// What a layer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It holds what was written.
    Overlay,
    /// It keeps copies of what was read from below.
    Cache,
}

/// A base and the layers over it, as one disk as long as the topmost layer.
#[derive(Debug)]
pub struct Stack {
    base: Arc<dyn BlockDevice>,
    /// From the bottom.
    layers: Vec<Arc<dyn Overlay>>,
    access: Access,
    cache: Option<Cache>,
    /// One for each block of the topmost layer: held alone by whoever makes it that layer's own
    /// while a part of it is somebody else's.
    padding: Units,
    /// Held by whoever does so, alone by whoever changes the length: what shows from below is
    /// another afterwards.
    resizing: RwLock<()>,
}

/// What stands at the beginning of a range.
#[derive(Debug, Clone, Copy)]
struct LayerRun {
    /// Which device tells it: 0 the base, 1 the first layer. `None` past the end of one below the
    /// topmost.
    level: Option<usize>,
    kind: ExtentKind,
    end: u64,
}

impl Stack {
    /// The disk of `base` and `layers`, from the bottom; at least one, and at most one cache.
    ///
    /// The topmost layer is changed if `access` allows it; nothing else ever is, but a cache is
    /// filled then. A stack with the cache on top is read-only: what is written is no copy. That
    /// the layers belong over each other is for [`check_chain`] to say.
    pub fn new(
        base: Arc<dyn BlockDevice>,
        layers: Vec<(Role, Arc<dyn Overlay>)>,
        access: Access,
    ) -> Result<Self> {
        let invalid = |message: String| Err(Error::new(Kind::Invalid, LAYER, message));
        if layers.is_empty() || layers.len() > MAX_LAYERS {
            return invalid(format!(
                "{} layers over a base, expected 1 to {MAX_LAYERS}",
                layers.len()
            ));
        }
        let caches = (1..)
            .zip(&layers)
            .filter(|(_, (role, _))| *role == Role::Cache);
        let levels: Vec<usize> = caches.map(|(level, _)| level).collect();
        if levels.len() > 1 {
            return invalid(format!(
                "{} caches, but one is all that a stack may have",
                levels.len()
            ));
        }
        if let Some(level) = levels.first() {
            let len = |level: usize| {
                level
                    .checked_sub(1)
                    .map_or(base.info().len, |index| layers[index].1.info().len)
            };
            if len(*level) != len(level - 1) {
                let message = format!(
                    "a cache of {} bytes over an image of {} bytes",
                    len(*level),
                    len(level - 1)
                );
                return Err(Error::new(Kind::Conflict, LAYER, message));
            }
        }
        let cache = levels.first().map(|level| Cache::new(*level, access));
        let access = if cache
            .as_ref()
            .is_some_and(|cache| cache.level == layers.len())
        {
            Access::ReadOnly
        } else {
            access
        };
        let layers = layers.into_iter().map(|(_, layer)| layer).collect();
        Ok(Self {
            base,
            layers,
            access,
            cache,
            padding: Units::default(),
            resizing: RwLock::default(),
        })
    }

    /// Why the cache is not filled any more, if something went wrong with that. Reading goes on
    /// without it.
    pub fn cache_problem(&self) -> Option<&Error> {
        self.cache.as_ref().and_then(Cache::problem)
    }

    /// The number of the topmost layer; that of the base is 0.
    fn top_level(&self) -> usize {
        self.layers.len()
    }

    fn top(&self) -> &dyn Overlay {
        match self.layers.last() {
            Some(top) => &**top,
            None => unreachable!("a stack has layers"),
        }
    }

    fn level(&self, level: usize) -> &dyn BlockDevice {
        match level
            .checked_sub(1)
            .and_then(|index| self.layers.get(index))
        {
            Some(layer) => &**layer,
            None => &*self.base,
        }
    }

    /// What stands at the start of `range`, which is not empty, as seen from the layer of number
    /// `from`. A layer below the topmost that ends before it lets nothing through: as a disk of its
    /// own, it had nothing there.
    fn locate(&self, from: usize, range: Range<u64>) -> Result<LayerRun> {
        let (start, mut end) = (range.start, range.end);
        for level in (0..=from).rev() {
            let device = self.level(level);
            if level < self.top_level() {
                let len = device.info().len;
                if start >= len {
                    return Ok(LayerRun {
                        level: None,
                        kind: ExtentKind::Hole,
                        end,
                    });
                }
                end = end.min(len);
            }
            let Extent { kind, len } = device.extent_at(start..end)?;
            if len == 0 || len > end - start {
                return Err(Error::corrupt(
                    LAYER,
                    start,
                    format!("layer {level} tells of {len} bytes of {}", end - start),
                ));
            }
            end = start + len;
            if kind != ExtentKind::Hole {
                return Ok(LayerRun {
                    level: Some(level),
                    kind,
                    end,
                });
            }
        }
        Ok(LayerRun {
            level: Some(0),
            kind: ExtentKind::Hole,
            end,
        })
    }

    /// Reads what shows at `offset` as seen from the layer of number `from`; past the end of one
    /// below the topmost, zeros.
    fn read(&self, from: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let run = self.locate(from, at..at + rest.len() as u64)?;
            let (part, tail) = rest.split_at_mut((run.end - at) as usize);
            match (run.kind, run.level) {
                (ExtentKind::Data, Some(level)) => match self
                    .cache
                    .as_ref()
                    .filter(|cache| cache.is_asked(level, from))
                {
                    Some(cache) => self.read_through(cache, at, part)?,
                    None => self.level(level).read_at(at, part)?,
                },
                _ => part.fill(0),
            }
            (at, rest) = (run.end, tail);
        }
        Ok(())
    }

    fn check_changeable(&self) -> Result<()> {
        self.info().check_writable(LAYER)
    }
}

impl BlockDevice for Stack {
    fn info(&self) -> Info {
        let top = self.top().info();
        let write = u32::try_from(self.top().grain())
            .unwrap_or(u32::MAX)
            .max(top.write);
        Info {
            write,
            access: self.access,
            ..top
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.read(self.top_level(), offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        self.check_changeable()?;
        self.write(offset..end, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        self.check_changeable()?;
        match leave {
            AfterDiscard::Any => self.top().discard(range, AfterDiscard::Any),
            AfterDiscard::Zeros => self.zero(range),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let LayerRun { kind, end, .. } = self.locate(self.top_level(), range.clone())?;
        Ok(Extent {
            kind,
            len: end - range.start,
        })
    }

    /// The topmost layer alone has what must not be lost. What a cache could not store it can read
    /// again.
    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadWrite {
            self.top().flush()?;
        }
        if let Some(cache) = &self.cache {
            cache.flush(self.level(cache.level));
        }
        Ok(())
    }

    /// As the topmost layer does it. What is below never shows in new bytes.
    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.resize(len)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let run = self.locate(self.top_level(), range.clone())?;
        match (run.kind, run.level) {
            (ExtentKind::Data, Some(level)) => {
                // What the cache is to keep has to be read.
                let is_asked = self
                    .cache
                    .as_ref()
                    .is_some_and(|cache| cache.is_asked(level, self.top_level()));
                if is_asked {
                    Ok(None)
                } else {
                    self.level(level).file_range(range.start..run.end)
                }
            }
            _ => Ok(None),
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Who only reads flushes nothing, and what was copied is worth keeping.
        if let Some(cache) = &self.cache {
            cache.flush(self.level(cache.level));
        }
    }
}
