//! Lists of byte ranges.

use std::ops::Range;

/// Returns the parts of ascending `ranges` outside of `holes`.
pub(super) fn without(
    ranges: impl IntoIterator<Item = Range<u64>>,
    holes: &[Range<u64>],
) -> Vec<Range<u64>> {
    let mut holes: Vec<_> = holes.iter().filter(|hole| !hole.is_empty()).collect();
    holes.sort_by_key(|hole| hole.start);
    let (mut rest, mut next) = (Vec::new(), 0);
    for range in ranges {
        let mut at = range.start;
        while let Some(hole) = holes.get(next).filter(|_| at < range.end) {
            if hole.start >= range.end {
                break;
            }
            if at < hole.start {
                rest.push(at..hole.start);
            }
            at = at.max(hole.end);
            if hole.end > range.end {
                break;
            }
            next += 1;
        }
        if at < range.end {
            rest.push(at..range.end);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_left_out() {
        assert_eq!(without(Some(5..9), &[]).first(), Some(&(5..9)));
        assert_eq!(
            without(Some(5..9), &[7..8, 0..6, 9..20, 3..3]),
            [6..7, 8..9]
        );
        assert_eq!(without(Some(5..9), &[0..20, 6..7]), []);
        let ranges = [0..4, 4..4, 5..9, 9..12, 20..30];
        assert_eq!(
            without(ranges.clone(), &[3..10, 11..12, 12..19, 22..23]),
            [0..3, 10..11, 20..22, 23..30]
        );
        assert_eq!(
            without(ranges, &[0..25, 3..4, 29..40]),
            Vec::from_iter(Some(25..29))
        );
    }
}
