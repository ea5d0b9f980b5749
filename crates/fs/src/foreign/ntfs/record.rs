//! Records of the master file table: fixups, attributes, and the cluster runs of their values.

use zerocopy::FromBytes;

use super::super::layout::ntfs::{
    AttributeRaw, IN_USE, NonResidentRaw, RecordRaw, ResidentRaw, STRIDE, attribute,
};
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "ntfs record";

/// A record after its fixups were applied.
#[derive(Debug)]
pub(super) struct MftRecord {
    bytes: Vec<u8>,
    number: u64,
}

/// A run of clusters of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterRun {
    /// First cluster on the volume; `None` for a sparse run.
    pub(super) start: Option<u64>,
    pub(super) count: u64,
}

/// The value of an attribute.
#[derive(Debug)]
pub(super) enum AttributeValue<'a> {
    Resident(&'a [u8]),
    /// Position of the first run among the value's clusters, the runs, the length of the value in
    /// bytes, and its initialized length.
    Clusters {
        first: u64,
        runs: Vec<ClusterRun>,
        len: u64,
        initialised: u64,
    },
}

/// An attribute.
#[derive(Debug)]
pub(super) struct Attribute<'a> {
    pub(super) kind: u32,
    pub(super) is_named: bool,
    /// Flags: compressed, encrypted, sparse.
    pub(super) flags: u16,
    pub(super) value: AttributeValue<'a>,
}

fn wrong(number: u64, message: impl std::fmt::Display) -> Error {
    Error::new(
        Kind::Corrupt,
        LAYER,
        format!("record {number}: {message}; run `chkdsk`"),
    )
}

/// Applies the fixups at the ends of sectors; `None` if the record was partially written.
pub(super) fn restore(bytes: &mut [u8], at: usize, count: usize) -> Option<()> {
    if count == 0 || count - 1 != bytes.len() / STRIDE {
        return None;
    }
    let array = bytes.get(at..at.checked_add(2 * count)?)?.to_vec();
    let (mark, originals) = array.split_at(2);
    for (sector, original) in bytes
        .chunks_exact_mut(STRIDE)
        .zip(originals.chunks_exact(2))
    {
        let end = sector.get_mut(STRIDE - 2..)?;
        if end != mark {
            return None;
        }
        end.copy_from_slice(original);
    }
    Some(())
}

impl MftRecord {
    /// Parses record `number`; `None` if it is not in use.
    pub(super) fn parse(number: u64, mut bytes: Vec<u8>) -> Result<Option<Self>> {
        let (head, _) =
            RecordRaw::read_from_prefix(&bytes).map_err(|_| wrong(number, "is truncated"))?;
        match &head.magic {
            b"FILE" => {}
            b"BAAD" => return Err(wrong(number, "marked as damaged by Windows")),
            // Records that were never used.
            _ => return Ok(None),
        }
        if head.flags.get() & IN_USE == 0 {
            return Ok(None);
        }
        let restored = restore(
            &mut bytes,
            head.fixups.get().into(),
            head.fixup_count.get().into(),
        );
        restored.ok_or_else(|| wrong(number, "incompletely written"))?;
        let (used, first) = (head.used.get() as usize, usize::from(head.attributes.get()));
        if used > bytes.len() || first < size_of::<RecordRaw>() || first > used {
            return Err(wrong(
                number,
                format!("invalid sizes: {used} bytes are used, attributes begin at {first}"),
            ));
        }
        bytes.truncate(used);
        bytes.drain(..first);
        Ok(Some(Self { bytes, number }))
    }

    /// Calls `each` for every attribute. Runs must be within a volume of `clusters` clusters.
    pub(super) fn attributes<'a>(
        &'a self,
        clusters: u64,
        each: &mut dyn FnMut(Attribute<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut rest = &self.bytes[..];
        loop {
            let cut = || wrong(self.number, "truncated attribute");
            let kind = rest
                .first_chunk()
                .map(|kind| u32::from_le_bytes(*kind))
                .ok_or_else(cut)?;
            if kind == attribute::END {
                return Ok(());
            }
            let (head, _) = AttributeRaw::read_from_prefix(rest).map_err(|_| cut())?;
            let (bytes, after) = rest
                .split_at_checked(head.len.get() as usize)
                .ok_or_else(cut)?;
            let tail = bytes.get(size_of::<AttributeRaw>()..).ok_or_else(cut)?;
            let value = if head.non_resident == 0 {
                let (raw, _) = ResidentRaw::read_from_prefix(tail).map_err(|_| cut())?;
                let value = bytes
                    .get(usize::from(raw.at.get())..)
                    .and_then(|bytes| bytes.get(..raw.len.get() as usize));
                AttributeValue::Resident(value.ok_or_else(cut)?)
            } else {
                let (raw, _) = NonResidentRaw::read_from_prefix(tail).map_err(|_| cut())?;
                let pairs = bytes.get(usize::from(raw.runs.get())..).ok_or_else(cut)?;
                let runs = runs(pairs, clusters)
                    .ok_or_else(|| wrong(self.number, "malformed runs of clusters"))?;
                let count = runs
                    .iter()
                    .fold(0_u64, |sum, run| sum.saturating_add(run.count));
                if raw.last.get().wrapping_add(1).wrapping_sub(raw.first.get()) != count {
                    let message = format!(
                        "clusters {} to {} do not match runs of {count}",
                        raw.first.get(),
                        raw.last.get()
                    );
                    return Err(wrong(self.number, message));
                }
                AttributeValue::Clusters {
                    first: raw.first.get(),
                    runs,
                    len: raw.len.get(),
                    initialised: raw.initialised.get(),
                }
            };
            each(Attribute {
                kind,
                is_named: head.name_len > 0,
                flags: head.flags.get(),
                value,
            })?;
            rest = after;
        }
    }
}

/// Parses a list of runs. Each one begins with a byte that has the lengths of two numbers: the
/// number of clusters, and the distance from the start of the previous run. Returns `None` if the
/// list has no end or exceeds the volume.
fn runs(mut bytes: &[u8], clusters: u64) -> Option<Vec<ClusterRun>> {
    let (mut found, mut place) = (Vec::new(), 0_i64);
    loop {
        let (&head, rest) = bytes.split_first()?;
        if head == 0 {
            return Some(found);
        }
        let (count_len, place_len) = (usize::from(head & 0xF), usize::from(head >> 4));
        let count = u64::try_from(signed(rest.get(..count_len)?)?)
            .ok()
            .filter(|count| *count > 0)?;
        let rest = &rest[count_len..];
        let start = if place_len == 0 {
            None
        } else {
            place = place.checked_add(signed(rest.get(..place_len)?)?)?;
            let start = u64::try_from(place).ok()?;
            start.checked_add(count).filter(|end| *end <= clusters)?;
            Some(start)
        };
        found.push(ClusterRun { start, count });
        bytes = &rest[place_len..];
    }
}

/// Parses a signed little-endian number of up to 8 bytes.
fn signed(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last()? & 0x80 != 0;
    let mut all = if negative { [0xFF; 8] } else { [0; 8] };
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_list() {
        let run = |start, count| ClusterRun { start, count };
        // 0x18 clusters at 0x5634, 0x10 sparse ones, 0x30 before the start of the first.
        let list = [
            0x21, 0x18, 0x34, 0x56, 0x01, 0x10, 0x11, 0x30, 0xE0, 0x00, 0xFF,
        ];
        let expected = vec![
            run(Some(0x5634), 0x18),
            run(None, 0x10),
            run(Some(0x5614), 0x30),
        ];
        assert_eq!(runs(&list, 0x10000), Some(expected));
        assert_eq!(runs(&[0], 0), Some(vec![]));
        for (bad, clusters) in [
            (&list[..], 0x5643),
            (&[0x11, 1][..], 100),
            (&[0x11, 0, 1, 0], 100),
            (&[0x11, 0xFF, 1, 0], 100),
            (&[0x11, 1, 0xFF, 0], 100),
            (&[0x19, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0], u64::MAX),
            (&[0x10, 1, 0], 100),
            (&[0x11, 1, 2], 100),
            (&[], 100),
        ] {
            assert_eq!(runs(bad, clusters), None, "{bad:x?}");
        }
    }

    #[test]
    fn sectors_that_were_not_written_together_are_met() {
        let mut page = vec![7; 1024];
        page[48..54].copy_from_slice(&[1, 0, 2, 3, 4, 5]);
        for end in [510, 1022] {
            page[end..end + 2].copy_from_slice(&[1, 0]);
        }
        let mut restored = page.clone();
        restore(&mut restored, 48, 3).unwrap();
        assert_eq!(
            (&restored[510..512], &restored[1022..]),
            (&[2, 3][..], &[4, 5][..])
        );
        assert!(restore(&mut page.clone(), 48, 2).is_none());
        assert!(restore(&mut page.clone(), 1020, 3).is_none());
        assert!(restore(&mut page.clone(), usize::MAX, 3).is_none());
        page[1022] = 9;
        assert!(restore(&mut page, 48, 3).is_none());
    }
}
