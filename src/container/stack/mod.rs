//! A stack: a base and layers above it as one disk. Source: docs/formats/stack.md.
//!
//! A block is read from the topmost layer that has it, as data or as explicit zeros; a block that
//! no layer has is read from the base. Only the topmost layer is written.
//!
//! * [`chain`]: validation of the order of layers.
//! * [`write`]: partial writes and discards of blocks.
//! * [`cache`]: the layer that stores copies of data from below it.

mod cache;
mod chain;
mod write;

use std::ops::Range;
use std::sync::Arc;

use self::cache::Cache;
use super::overlay::Overlay;
use crate::device::units::UnitLocks;
use crate::device::{Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use crate::size::to_usize;
use crate::sync::RwLock;
use crate::{Error, Reason, Result};

pub use self::chain::{ChainLink, Identity, check_chain};

const LAYER: &str = "stack";
/// Maximum number of layers above a base; each is an open file.
const MAX_LAYERS: usize = 256;

/// Role of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Stores written data.
    Overlay,
    /// Stores copies of data read from below.
    Cache,
}

/// A base and the layers above it as one disk, as long as the topmost layer.
#[derive(Debug)]
pub struct Stack {
    base: Arc<dyn BlockDevice>,
    /// From bottom to top.
    layers: Vec<Arc<dyn Overlay>>,
    /// The last of the layers, the only one that is written.
    top: Arc<dyn Overlay>,
    access: Access,
    cache: Option<Cache>,
    /// Locks of the blocks of the topmost layer, held exclusively to copy up a partly written
    /// block.
    padding: UnitLocks,
    /// Held shared during a copy-up, and exclusively to change the length, which changes the data
    /// visible from below.
    resizing: RwLock<()>,
}

/// The run at the start of a range.
#[derive(Debug, Clone, Copy)]
struct LayerRun {
    /// The level that provides it: 0 the base, 1 the first layer. `None` past the end of a level
    /// below the topmost.
    level: Option<usize>,
    kind: ExtentKind,
    end: u64,
}

impl Stack {
    /// Creates the disk of `base` and `layers`, from bottom to top; at least one layer, and at most
    /// one cache.
    ///
    /// With write access the topmost layer is writable and a cache is filled; nothing else changes.
    /// A stack with the cache on top is read-only, because written data would not be a copy. The
    /// order of the layers is not validated, see [`check_chain`].
    pub fn new(
        base: Arc<dyn BlockDevice>,
        layers: Vec<(Role, Arc<dyn Overlay>)>,
        access: Access,
    ) -> Result<Self> {
        let invalid = |message: String| Err(Error::invalid(LAYER, message));
        let top = layers.last().filter(|_| layers.len() <= MAX_LAYERS);
        let Some((_, top)) = top.cloned() else {
            return invalid(format!(
                "invalid stack of {} layers: expected 1 to {MAX_LAYERS}",
                layers.len()
            ));
        };
        let caches = (1..)
            .zip(&layers)
            .filter(|(_, (role, _))| *role == Role::Cache);
        let levels: Vec<usize> = caches.map(|(level, _)| level).collect();
        if levels.len() > 1 {
            return invalid(format!(
                "{} caches in a stack: at most one is possible",
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
                    "size mismatch: cache of {} bytes over an image of {} bytes",
                    len(*level),
                    len(level - 1)
                );
                return Err(Error::conflict(LAYER, message).because(Reason::LayersChanged));
            }
        }
        let cache = levels.first().map(|level| Cache::new(*level, access));
        let access = if cache
            .as_ref()
            .is_some_and(|cache| cache.level() == layers.len())
        {
            Access::ReadOnly
        } else {
            access
        };
        let layers = layers.into_iter().map(|(_, layer)| layer).collect();
        Ok(Self {
            base,
            layers,
            top,
            access,
            cache,
            padding: UnitLocks::default(),
            resizing: RwLock::default(),
        })
    }

    /// Returns the error that stopped the filling of the cache, if any. Reads continue without it.
    pub fn cache_problem(&self) -> Option<&Error> {
        self.cache.as_ref().and_then(Cache::problem)
    }

    /// Returns the level of the topmost layer; that of the base is 0.
    fn top_level(&self) -> usize {
        self.layers.len()
    }

    fn top(&self) -> &dyn Overlay {
        &*self.top
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

    /// Returns the run at the start of `range`, which must not be empty, as seen from level `from`.
    /// Past the end of a layer below the topmost nothing is visible, because that layer as a disk
    /// of its own had no data there.
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
                    format!(
                        "layer {level} returns an extent of {len} bytes for a range of {}",
                        end - start
                    ),
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

    /// Reads the data visible at `offset` from level `from`; past the end of a level below the
    /// topmost, zeros.
    fn read(&self, from: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let run = self.locate(from, at..at + rest.len() as u64)?;
            let (part, tail) = rest.split_at_mut(to_usize(run.end - at));
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

    /// Flushes the topmost layer. An error of the cache is only recorded: its data can be read
    /// again.
    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadWrite {
            self.top().flush()?;
        }
        if let Some(cache) = &self.cache {
            cache.flush(self.level(cache.level()));
        }
        Ok(())
    }

    /// Sets the length of the topmost layer. Data of lower layers is not visible in new bytes.
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
                // Data for the cache has to be read.
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
        // Read-only users do not flush, and the copies are worth keeping.
        if let Some(cache) = &self.cache {
            cache.flush(self.level(cache.level()));
        }
    }
}
