//! Consistency check of a bundle. Source: docs/formats/sparsebundle.md §9, sanity check list.
//!
//! Memory is limited to one bit per band: a bundle may have millions.

use std::ops::Range;

use super::band_rules::{BandRules, check_name, spelled_otherwise};
use super::plist::{self, BACKUP, INFO, InfoError, Version};
use super::{
    BANDS, BandIndex, LAYER, LOCK, MANY_BANDS, MAPPED, RecordedGeometry, TOKEN, bands::band_bitmap,
    read_lists, read_plist, rebanding, token,
};
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Progress;
use crate::store::{Entry, Open, Store};
use crate::{Error, Kind, Result, crypt};

/// Number of bands whose presence is tracked (512 KiB of bits), to detect a folder or link in place
/// of a band file.
const REMEMBERED: u64 = 1 << 22;

/// Maximum number of missing bands that are looked for, all of a bundle with the default band size. A
/// size that is damaged may mean millions.
const MAX_MISSING: u64 = 1 << 16;

/// Reports every problem of the bundle in `store`, read-only: its property lists, its token, and
/// each file of a band or a map. Fails if the bundle is damaged so much that nothing else can be
/// checked, or if it cannot be read.
pub fn check(store: &dyn Store, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
    progress.stage("check", 0);
    let token = check_token(store, problems);
    let mut findings = Findings::Check(problems, progress);
    let cipher_block = findings.value_or_damage(token)?.flatten();
    if let Err(error) = store.open(LOCK, Open::Read)
        && error.kind() != Kind::Io
    {
        let what = format!(
            "no program can lock the bundle to change it: {}",
            error.message()
        );
        findings.report(Severity::Warning, at(LOCK, what))?;
    }
    let grain = cipher_block.map_or(1, u64::from);
    if matches!(read_lists(store), Ok((RecordedGeometry::Between(_), _))) {
        return rebanding::check(store, grain, &mut findings);
    }
    let info = check_plists(store, &mut findings)?;
    let rules = BandRules { info, grain };
    if rules.count() > MANY_BANDS {
        let many = format!(
            "a full bundle has {} bands; that many files are slow to copy",
            rules.count()
        );
        findings.report(Severity::Note, at(INFO, many))?;
    }
    let mut walk = BundleWalk {
        store,
        rules,
        findings,
        met: Vec::new(),
    };
    store.list(BANDS, &mut |entry| walk.band(&entry))?;
    walk.missing_bands()?;
    store.list(MAPPED, &mut |entry| walk.map(&entry))
}

fn at(name: &str, what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, LAYER, what).named(name)
}

/// Checks `token`. Returns the cipher block size in bytes if the bundle is encrypted.
fn check_token(store: &dyn Store, problems: &mut Problems) -> Result<Option<u32>> {
    let Some(token) = store.open(TOKEN, Open::Read)? else {
        problems.add(
            Severity::Note,
            at(TOKEN, "missing; older systems lock the bundle by it"),
        );
        return Ok(None);
    };
    let mut found = Problems::default();
    let block = crypt::check(&*token, &mut found).map_err(|error| error.in_file(TOKEN));
    found
        .into_iter()
        .for_each(|problem| problems.add(problem.severity, problem.error.in_file(TOKEN)));
    let block = block?;
    let len = token.info().len;
    if block.is_none() && len > 0 {
        problems.add(Severity::Warning, at(TOKEN, token::describe_stray(len)));
    }
    Ok(block)
}

/// Checks both property lists and returns the contents of the effective one.
fn check_plists(store: &dyn Store, findings: &mut Findings<'_>) -> Result<plist::Info> {
    let backup = read_plist(store, BACKUP);
    let info = match read_plist(store, INFO) {
        Ok(info) => info,
        Err(InfoError::Refused(error) | InfoError::Rebanding(error)) => return Err(error),
        Err(InfoError::Unreadable(error)) => {
            let backup = match backup {
                Ok(backup) => backup,
                Err(unread) => {
                    findings.report(Severity::Damage, unread.into())?;
                    return Err(error);
                }
            };
            let message = format!("{}; {BACKUP} is used instead", error.message());
            findings.report(
                Severity::Damage,
                Error::new(error.kind(), LAYER, message).named(INFO),
            )?;
            return Ok(backup);
        }
    };
    match backup.map_err(Error::from) {
        Ok(backup) if backup == info => {}
        Ok(backup) => {
            let geometry = |info: &plist::Info| {
                format!(
                    "size {}, band-size {}, version {}",
                    info.size,
                    info.band_size,
                    info.version.number()
                )
            };
            let differs = format!(
                "{INFO} records {}, but this list {}",
                geometry(&info),
                geometry(&backup)
            );
            // A resize writes the copy first, so only the size may differ.
            let resized = plist::Info {
                size: info.size,
                ..backup
            } == info;
            findings.report(
                if resized {
                    Severity::Warning
                } else {
                    Severity::Damage
                },
                at(BACKUP, differs),
            )?;
        }
        // Bundles of other makers have no copy; they read the same.
        Err(error) if error.kind() == Kind::NotFound => findings.report(Severity::Note, error)?,
        Err(error) => findings.report(Severity::Warning, error)?,
    }
    Ok(info)
}

struct BundleWalk<'a> {
    store: &'a dyn Store,
    rules: BandRules,
    findings: Findings<'a>,
    /// One bit for each band that has a file.
    met: Vec<u64>,
}

impl BundleWalk<'_> {
    fn report(&mut self, name: &str, found: Option<(Severity, String)>) -> Result<()> {
        found.map_or(Ok(()), |(severity, what)| {
            self.findings.report(severity, at(name, what))
        })
    }

    fn band(&mut self, entry: &Entry<'_>) -> Result<()> {
        self.findings.advance(1)?;
        let Some(index) = BandIndex::from_name(BANDS, entry.name) else {
            return self.stray(entry.name);
        };
        self.meet(index);
        let Some(meta) = self.findings.value_or_damage(entry.meta())?.flatten() else {
            return Ok(());
        };
        let found = self.rules.check_len(index, meta.len);
        self.report(entry.name, found)?;
        self.findings
            .value_or_damage(self.store.open(entry.name, Open::Read))
            .map(drop)
    }

    /// Reports a name that is not a valid band name. A misspelled one is damage only if the band of
    /// that number is missing, otherwise a warning.
    fn stray(&mut self, name: &str) -> Result<()> {
        let mut found = check_name(name);
        if let Some((severity, _)) = &mut found
            && let Some(index) = spelled_otherwise(name)
            && (index.0 >= self.rules.count() || self.store.stat(&index.name())?.is_some())
        {
            *severity = Severity::Warning;
        }
        self.report(name, found)
    }

    fn meet(&mut self, index: BandIndex) {
        if index.0 >= self.rules.count().min(REMEMBERED) {
            return;
        }
        let word = (index.0 / 64) as usize;
        if word >= self.met.len() {
            self.met.resize(word + 1, 0);
        }
        self.met[word] |= 1 << (index.0 % 64);
    }

    /// Opens the first bands that were not listed: a folder or a link in the place of one is not
    /// listed, but fails to open.
    fn missing_bands(&mut self) -> Result<()> {
        let asked: Range<u64> = 0..self.rules.count().min(REMEMBERED);
        let mut missing = 0;
        for index in asked {
            let met = self
                .met
                .get((index / 64) as usize)
                .is_some_and(|word| word >> (index % 64) & 1 == 1);
            if !met {
                missing += 1;
                if missing > MAX_MISSING {
                    break;
                }
                self.findings.advance(0)?;
                self.findings
                    .value_or_damage(self.store.open(&BandIndex(index).name(), Open::Read))?;
            }
        }
        Ok(())
    }

    fn map(&mut self, entry: &Entry<'_>) -> Result<()> {
        self.findings.advance(1)?;
        let warn = |what: &str| Some((Severity::Warning, what.to_owned()));
        let Some(index) = BandIndex::from_name(MAPPED, entry.name) else {
            let found = check_name(entry.name)
                .and_then(|_| warn("expected the number of a band in lower-case hexadecimal"));
            return self.report(entry.name, found);
        };
        let Some(meta) = self.findings.value_or_damage(entry.meta())?.flatten() else {
            return Ok(());
        };
        let found = if self.rules.info.version == Version::One {
            warn("unexpected map of written blocks: a bundle of version 1 has none")
        } else if index.0 >= self.rules.count() {
            warn("the map belongs to a band past the end of the disk")
        } else if self.store.stat(&index.name())?.is_none() {
            warn("the map belongs to a band that has no file")
        } else if !band_bitmap::is_len(meta.len, self.rules.info.band_size) {
            warn("wrong length for bands of this size; the whole band is treated as allocated")
        } else {
            None
        };
        self.report(entry.name, found)
    }
}
