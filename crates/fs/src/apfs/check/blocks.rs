//! Block ownership: overlaps, and the runs that the bitmaps must mark as used.

use std::fmt;
use std::ops::Range;

use super::report::{Report, wrong};

const LAYER: &str = "apfs blocks";

/// The structure or file that uses blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    /// Number of the volume, 0 for the container itself.
    pub(super) volume: u32,
    pub(super) what: &'static str,
    /// Number of the object or the transaction, 0 for none.
    pub(super) id: u64,
}

impl User {
    pub(super) fn container(what: &'static str) -> Self {
        Self {
            volume: 0,
            what,
            id: 0,
        }
    }

    pub(super) fn volume(volume: u32, what: &'static str) -> Self {
        Self {
            volume,
            what,
            id: 0,
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if self.id != 0 {
            write!(f, " {:#x}", self.id)?;
        }
        match self.volume {
            0 => f.write_str(" of the container"),
            number => write!(f, " of volume {number}"),
        }
    }
}

/// All blocks in use.
#[derive(Debug, Default)]
pub(super) struct BlockUsers {
    claims: Vec<(Range<u64>, User)>,
    /// True if a structure could not be read, so that blocks may be used without a claim.
    pub(super) incomplete: bool,
}

impl BlockUsers {
    /// Records that a run of blocks is used.
    pub(super) fn claim(&mut self, run: Range<u64>, user: User) {
        if run.is_empty() {
            return;
        }
        // Metadata blocks are often adjacent, so they are merged.
        if let Some((last, before)) = self.claims.last_mut()
            && last.end == run.start
            && *before == user
        {
            last.end = run.end;
            return;
        }
        self.claims.push((run, user));
    }

    /// Adds the claims of another.
    pub(super) fn append(&mut self, mut other: Self) {
        self.claims.append(&mut other.claims);
        self.incomplete |= other.incomplete;
    }

    /// Reports blocks with two users. Returns the used runs, ascending and disjoint, each with its
    /// first user.
    pub(super) fn finish(mut self, report: &mut Report<'_>) -> Vec<(Range<u64>, User)> {
        self.claims
            .sort_unstable_by_key(|(run, _)| (run.start, run.end));
        let mut runs: Vec<(Range<u64>, User)> = Vec::with_capacity(self.claims.len());
        for (run, user) in self.claims {
            let (mut start, end) = (run.start, run.end);
            if let Some((before, other)) = runs.last()
                && before.end > start
            {
                let last = before.end.min(end) - 1;
                report.damage(wrong(
                    LAYER,
                    format!("blocks {start} to {last} are used by {other} and by {user}"),
                ));
                start = before.end;
            }
            if start < end {
                runs.push((start..end, user));
            }
        }
        runs
    }
}
