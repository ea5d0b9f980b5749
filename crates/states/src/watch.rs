//! A round of a file server's watch over one bundle: a check, a state, a scrub, and changes of a sound bundle.

use std::cell::Cell;
use std::fmt;
use std::path::Path;

use bandsaw::container::sparsebundle::Bundle;
use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::open::{self, Keys, OpenOptions};
use bandsaw::ops::{compact, reband};
use bandsaw::progress::Progress;
use bandsaw::size::counted;
use bandsaw::{Error, Kind, Result};

use crate::bundle::BundleFolder;
use crate::forget::{Policy, forget};
use crate::health::{BundleVerdict, Depth, Health, HealthOptions, OpenFiles, use_by_others};
use crate::keep::{KeepOptions, keep};
use crate::manifest::Soundness;
use crate::private_cache::PrivateCache;
use crate::scrub::{ScrubOptions, scrub};
use crate::shelf::Shelf;
use crate::status::{Status, status};

const LAYER: &str = "watch";

/// The files that clients of the server have open.
#[derive(Debug)]
pub enum ClientUse {
    /// The server was not asked: only locks tell.
    NotAsked,
    /// The server's answer.
    Known(OpenFiles),
    /// The server was asked and did not answer: no bundle is compacted or gets other bands.
    Unknown,
}

impl ClientUse {
    fn open_files(&self) -> Option<&OpenFiles> {
        match self {
            Self::Known(files) => Some(files),
            Self::NotAsked | Self::Unknown => None,
        }
    }
}

/// The states that a watch keeps.
#[derive(Debug, Clone, Copy)]
pub struct KeepPolicy {
    /// True to permit that the first state is a whole copy.
    pub whole_copy: bool,
    /// The states that are not removed. The default removes none.
    pub retained: Policy,
}

/// A hook that is called with the path of a sound bundle.
pub type OnSound<'a> = &'a dyn Fn(&Path) -> Result<()>;

/// Options of [`watch_bundle`].
pub struct WatchOptions<'a> {
    /// Returns the options of opening bundles.
    pub opening: &'a dyn Fn(Access) -> OpenOptions<'a>,
    /// The keys of encrypted volumes, for a compaction.
    pub keys: Option<&'a dyn Keys>,
    /// The folder in which sound bundles are remembered. `None`: they are not.
    pub cache: Option<PrivateCache>,
    /// The use of bundles by clients of the server.
    pub clients: &'a ClientUse,
    /// The folder of kept states, instead of the bundle.
    pub states: Option<&'a Path>,
    /// Keep a state of a sound bundle that has changed.
    pub keep: Option<KeepPolicy>,
    /// Called for a sound bundle.
    pub on_sound: Option<OnSound<'a>>,
    /// Compare bands with their hashes.
    pub scrub: bool,
    /// Compact a sound bundle if that reclaims at least this many bytes.
    pub compact_from: Option<u64>,
    /// The band size that sound bundles get, in bytes.
    pub band_size: Option<u64>,
}

impl fmt::Debug for WatchOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("clients", &self.clients)
            .field("states", &self.states)
            .field("keep", &self.keep)
            .field("scrub", &self.scrub)
            .field("compact_from", &self.compact_from)
            .field("band_size", &self.band_size)
            .finish_non_exhaustive()
    }
}

/// The result of [`watch_bundle`].
#[derive(Debug, Default)]
pub struct WatchedBundle {
    /// The verdict.
    pub verdict: BundleVerdict,
    /// The reason of the verdict, if it is in the bundle.
    pub message: Option<String>,
    /// The next step for the bundle and its states, if it is the reason that they need attention.
    pub status: Option<Status>,
    /// The state that was kept.
    pub state: Option<String>,
    /// The states that were removed.
    pub removed_states: Vec<String>,
    /// Bytes that a compaction reclaimed.
    pub reclaimed: Option<u64>,
    /// The band size, if it was changed.
    pub band_size: Option<u64>,
    /// The time of the check that read the bands, if nothing has changed since.
    pub unchanged_since: Option<Timestamp>,
}

impl WatchedBundle {
    /// Creates the result for a bundle that could not be watched.
    pub fn of_error(error: &Error) -> Self {
        Self {
            verdict: BundleVerdict::of_error(error),
            message: Some(error.to_string()),
            ..Self::default()
        }
    }
}

/// Checks a bundle and, if it is sound and not in use, does what the options say.
///
/// # Errors
///
/// Those of opening and reading the bundle. A bundle that is not sound is not an error.
pub fn watch_bundle(
    path: &Path,
    options: &WatchOptions<'_>,
    progress: &dyn Progress,
) -> Result<WatchedBundle> {
    let bundle = BundleFolder::open(path)?;
    let watch = Watch {
        path,
        shelf: Shelf::of(&bundle, options.states)?,
        bundle,
        options,
        progress,
    };
    watch.run()
}

/// One round over one bundle.
struct Watch<'a, 'b> {
    path: &'a Path,
    bundle: BundleFolder,
    shelf: Shelf,
    options: &'a WatchOptions<'b>,
    progress: &'a dyn Progress,
}

impl Watch<'_, '_> {
    fn run(&self) -> Result<WatchedBundle> {
        let options = self.options;
        let mut found = WatchedBundle {
            verdict: BundleVerdict::Sound,
            ..WatchedBundle::default()
        };
        let may_change = !matches!(options.clients, ClientUse::Unknown);
        // An interrupted change of the band size began with a sound bundle. It is resumed first, because a bundle
        // with two band sizes cannot be checked.
        let may_resume = self.bundle.is_rebanding()? && may_change;
        if let Some(size) = options.band_size.filter(|_| may_resume)
            && self.used_by(RebandingState::Unfinished)?.is_none()
        {
            found.band_size = self.reband(size)?;
        }
        if let Some(reason) = self.used_by(RebandingState::Finished)? {
            found.verdict = BundleVerdict::InUse;
            found.message = Some(reason);
            return Ok(found);
        }
        let next = status(&self.bundle, &self.shelf)?;
        if next.needs_attention() {
            found.verdict = BundleVerdict::NeedsAttention;
            found.status = Some(next);
            return Ok(found);
        }
        match options.keep {
            Some(keep) if !matches!(next, Status::Kept(_)) => self.keep_state(keep, &mut found)?,
            _ => self.check(&mut found)?,
        }
        if found.verdict == BundleVerdict::Sound {
            self.use_sound(&mut found)?;
        }
        if found.verdict == BundleVerdict::Sound {
            self.change_sound(&mut found, may_change)?;
        }
        Ok(found)
    }

    /// Calls the hook for sound bundles, and compares the bands with their hashes.
    fn use_sound(&self, found: &mut WatchedBundle) -> Result<()> {
        if let Some(on_sound) = self.options.on_sound {
            match on_sound(self.path) {
                Err(error) if error.kind() != Kind::Cancelled => {
                    found.verdict = match BundleVerdict::of_error(&error) {
                        BundleVerdict::InUse => BundleVerdict::InUse,
                        _ => BundleVerdict::NeedsAttention,
                    };
                    found.message = Some(error.to_string());
                    return Ok(());
                }
                done => done?,
            }
        }
        if !self.options.scrub {
            return Ok(());
        }
        let done = scrub(&self.bundle, &ScrubOptions::default(), self.progress)?;
        if let Some((name, finding)) = done.findings.first() {
            found.verdict = match done.findings.iter().any(|(_, found)| found.is_damage()) {
                true => BundleVerdict::Damaged,
                false => BundleVerdict::NeedsAttention,
            };
            let bands = counted(done.findings.len() as u64, "band", "bands");
            found.message = Some(format!("{bands}, {name} first: {}", finding.name()));
        }
        Ok(())
    }

    /// Removes old states, and changes the bundle if that is safe.
    fn change_sound(&self, found: &mut WatchedBundle, may_change: bool) -> Result<()> {
        if let Some(KeepPolicy { retained, .. }) = self.options.keep
            && retained != Policy::default()
        {
            found.removed_states = forget(&self.shelf, retained, false, self.progress)?.removed;
        }
        // A check takes long: a client may have opened the bundle meanwhile.
        if !may_change || self.used_by(RebandingState::Finished)?.is_some() {
            return Ok(());
        }
        // Nothing was freed in a bundle that has not changed since the last round.
        let is_new = found.unchanged_since.is_none();
        if let Some(least) = self.options.compact_from.filter(|_| is_new) {
            found.reclaimed = self.compact(least)?;
        }
        if let Some(size) = self.options.band_size
            && self.band_size()? != Some(size)
        {
            found.band_size = self.reband(size)?;
        }
        Ok(())
    }

    /// Returns the reason if somebody else uses the bundle.
    fn used_by(&self, state: RebandingState) -> Result<Option<String>> {
        let open_files = self.options.clients.open_files();
        let (_, reason) = use_by_others(self.path, open_files, |inodes| match state {
            RebandingState::Finished => self.bundle.summarize(inodes),
            RebandingState::Unfinished => self.bundle.summarize_unfinished(inodes),
        })?;
        Ok(reason)
    }

    /// Keeps a state of the bundle if it is sound.
    fn keep_state(&self, policy: KeepPolicy, found: &mut WatchedBundle) -> Result<()> {
        let options = (self.options.opening)(Access::ReadOnly);
        let refused = Cell::new(None);
        let sound_only = |folder: &Path| {
            let soundness = Soundness::of(open::examine(folder, &options, self.progress))?;
            if soundness == Soundness::Sound {
                return Ok(soundness);
            }
            refused.set(Some(soundness));
            // Stops `keep` before it writes; the caller sees the verdict instead.
            Err(Error::new(Kind::Cancelled, LAYER, "no state is kept"))
        };
        let keeping = KeepOptions {
            whole_copy: policy.whole_copy,
            check: Some(&sound_only),
        };
        let kept = keep(&self.bundle, &self.shelf, &keeping, self.progress);
        if let Some(other) = refused.get() {
            found.verdict = BundleVerdict::of(other);
            return Ok(());
        }
        found.state = Some(kept?.id);
        Ok(())
    }

    /// Checks the bundle, unless it has not changed since it was found sound.
    fn check(&self, found: &mut WatchedBundle) -> Result<()> {
        let options = HealthOptions {
            opening: (self.options.opening)(Access::ReadOnly),
            depth: Depth::Full,
            cache: self.options.cache.clone(),
            reads_unchanged: false,
            max_age: None,
            now: Timestamp::now_in_seconds(),
            samba: None,
            open_files: self.options.clients.open_files(),
        };
        let health = Health::check(self.path, &options, self.progress)?;
        found.verdict = health.verdict;
        found.message = health.reasons.into_iter().next();
        found.unchanged_since = health.unchanged_since;
        Ok(())
    }

    fn open(&self, access: Access) -> Result<open::Image> {
        open::open(self.path, &(self.options.opening)(access))
    }

    fn band_size(&self) -> Result<Option<u64>> {
        let image = self.open(Access::ReadOnly)?;
        Ok(image.bundle().map(Bundle::band_size))
    }

    /// Gives a sound bundle bands of this size, or resumes that; returns the size if it changed.
    fn reband(&self, size: u64) -> Result<Option<u64>> {
        let options = (self.options.opening)(Access::ReadWrite);
        let done = reband::reband_to(self.path, Some(size), true, &options, self.progress)?;
        Ok((done.resumed || done.from != done.to).then_some(done.to))
    }

    /// Compacts a sound bundle if that reclaims at least this many bytes; returns their number.
    fn compact(&self, least: u64) -> Result<Option<u64>> {
        let options = compact::Options {
            zeros: Some(false),
            battery_allowed: true,
        };
        let keys = self.options.keys;
        let image = self.open(Access::ReadOnly)?;
        let plan = compact::plan(&image, &options, keys, self.progress)?;
        drop(image);
        if plan.returns() < least.max(1) {
            return Ok(None);
        }
        let image = self.open(Access::ReadWrite)?;
        let done = compact::compact(&image, &options, keys, self.progress)?;
        Ok(Some(done.before.saturating_sub(done.after)))
    }
}

/// The state of a change of the band size, which decides the files by which use is recognized.
#[derive(Debug, Clone, Copy)]
enum RebandingState {
    Unfinished,
    Finished,
}
