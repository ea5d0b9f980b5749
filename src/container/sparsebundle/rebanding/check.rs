//! Consistency check of a bundle whose bands are of two sizes.

use super::super::band_rules::{BandRules, check_name};
use super::super::{BandIndex, plist};
use super::{BANDS, LAYER, NEW_BANDS, Rebanding};
use crate::problem::{Findings, Severity};
use crate::store::{Entry, Store};
use crate::{Error, Kind, Result};

/// Checks every band file against the band size that its name implies.
pub(in super::super) fn check(
    store: &dyn Store,
    grain: u64,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let state = Rebanding::read(store)?;
    findings.report(
        Severity::Warning,
        Error::new(Kind::Corrupt, LAYER, state.warning()).named(plist::INFO),
    )?;
    let (old, new) = (
        BandRules {
            info: state.before(),
            grain,
        },
        BandRules {
            info: state.after(),
            grain,
        },
    );
    store.list(BANDS, &mut |entry| {
        findings.advance(1)?;
        let fresh = BandIndex::from_name(NEW_BANDS, entry.name);
        let rules = if fresh.is_some() || state.naming {
            &new
        } else {
            &old
        };
        match fresh.or_else(|| BandIndex::from_name(BANDS, entry.name)) {
            Some(index) => check_len(&entry, index, rules, findings),
            None => match check_name(entry.name) {
                Some((severity, what)) => findings.report(
                    severity,
                    Error::new(Kind::Corrupt, LAYER, what).named(entry.name),
                ),
                None => Ok(()),
            },
        }
    })
}

fn check_len(
    entry: &Entry<'_>,
    index: BandIndex,
    rules: &BandRules,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let Some(meta) = findings.value_or_damage(entry.meta())?.flatten() else {
        return Ok(());
    };
    match rules.check_len(index, meta.len) {
        Some((severity, what)) => findings.report(
            severity,
            Error::new(Kind::Corrupt, LAYER, what).named(entry.name),
        ),
        None => Ok(()),
    }
}
