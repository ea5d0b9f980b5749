//! The up-case table (§4): for each unit of UTF-16 the one that counts in its place when names are
//! compared.

use bandsaw_core::{Error, Result};

use super::LAYER;

/// Number of units.
const UNITS: usize = 1 << 16;
/// In the stored table: the next unit counts units that map to themselves.
const SKIP: u16 = 0xFFFF;

/// Ranges of units with capitals: first, last, step, and what is added, modulo 2^16.
///
/// Source: Microsoft, exFAT file system specification, 7.2.5.1, the recommended table.
const CAPITALS: [(u16, u16, usize, u16); 119] = [
    (0x0061, 0x007a, 1, 0xffe0),
    (0x00e0, 0x00f6, 1, 0xffe0),
    (0x00f8, 0x00fe, 1, 0xffe0),
    (0x00ff, 0x00ff, 1, 0x0079),
    (0x0101, 0x012f, 2, 0xffff),
    (0x0133, 0x0137, 2, 0xffff),
    (0x013a, 0x0148, 2, 0xffff),
    (0x014b, 0x0177, 2, 0xffff),
    (0x017a, 0x017e, 2, 0xffff),
    (0x0180, 0x0180, 1, 0x00c3),
    (0x0183, 0x0185, 2, 0xffff),
    (0x0188, 0x0188, 1, 0xffff),
    (0x018c, 0x018c, 1, 0xffff),
    (0x0192, 0x0192, 1, 0xffff),
    (0x0195, 0x0195, 1, 0x0061),
    (0x0199, 0x0199, 1, 0xffff),
    (0x019a, 0x019a, 1, 0x00a3),
    (0x019e, 0x019e, 1, 0x0082),
    (0x01a1, 0x01a5, 2, 0xffff),
    (0x01a8, 0x01a8, 1, 0xffff),
    (0x01ad, 0x01ad, 1, 0xffff),
    (0x01b0, 0x01b0, 1, 0xffff),
    (0x01b4, 0x01b6, 2, 0xffff),
    (0x01b9, 0x01b9, 1, 0xffff),
    (0x01bd, 0x01bd, 1, 0xffff),
    (0x01bf, 0x01bf, 1, 0x0038),
    (0x01c6, 0x01c6, 1, 0xfffe),
    (0x01c9, 0x01c9, 1, 0xfffe),
    (0x01cc, 0x01cc, 1, 0xfffe),
    (0x01ce, 0x01dc, 2, 0xffff),
    (0x01dd, 0x01dd, 1, 0xffb1),
    (0x01df, 0x01ef, 2, 0xffff),
    (0x01f3, 0x01f3, 1, 0xfffe),
    (0x01f5, 0x01f5, 1, 0xffff),
    (0x01f9, 0x021f, 2, 0xffff),
    (0x0223, 0x0233, 2, 0xffff),
    (0x023a, 0x023a, 1, 0x2a2b),
    (0x023c, 0x023c, 1, 0xffff),
    (0x023e, 0x023e, 1, 0x2a28),
    (0x0242, 0x0242, 1, 0xffff),
    (0x0247, 0x024f, 2, 0xffff),
    (0x0253, 0x0253, 1, 0xff2e),
    (0x0254, 0x0254, 1, 0xff32),
    (0x0256, 0x0257, 1, 0xff33),
    (0x0259, 0x0259, 1, 0xff36),
    (0x025b, 0x025b, 1, 0xff35),
    (0x0260, 0x0260, 1, 0xff33),
    (0x0263, 0x0263, 1, 0xff31),
    (0x0268, 0x0268, 1, 0xff2f),
    (0x0269, 0x0269, 1, 0xff2d),
    (0x026b, 0x026b, 1, 0x29f7),
    (0x026f, 0x026f, 1, 0xff2d),
    (0x0272, 0x0272, 1, 0xff2b),
    (0x0275, 0x0275, 1, 0xff2a),
    (0x027d, 0x027d, 1, 0x29e7),
    (0x0280, 0x0280, 1, 0xff26),
    (0x0283, 0x0283, 1, 0xff26),
    (0x0288, 0x0288, 1, 0xff26),
    (0x0289, 0x0289, 1, 0xffbb),
    (0x028a, 0x028b, 1, 0xff27),
    (0x028c, 0x028c, 1, 0xffb9),
    (0x0292, 0x0292, 1, 0xff25),
    (0x037b, 0x037d, 1, 0x0082),
    (0x03ac, 0x03ac, 1, 0xffda),
    (0x03ad, 0x03af, 1, 0xffdb),
    (0x03b1, 0x03c1, 1, 0xffe0),
    (0x03c2, 0x03c2, 1, 0xffe1),
    (0x03c3, 0x03cb, 1, 0xffe0),
    (0x03cc, 0x03cc, 1, 0xffc0),
    (0x03cd, 0x03ce, 1, 0xffc1),
    (0x03d9, 0x03ef, 2, 0xffff),
    (0x03f2, 0x03f2, 1, 0x0007),
    (0x03f8, 0x03f8, 1, 0xffff),
    (0x03fb, 0x03fb, 1, 0xffff),
    (0x0430, 0x044f, 1, 0xffe0),
    (0x0450, 0x045f, 1, 0xffb0),
    (0x0461, 0x0481, 2, 0xffff),
    (0x048b, 0x04bf, 2, 0xffff),
    (0x04c2, 0x04ce, 2, 0xffff),
    (0x04cf, 0x04cf, 1, 0xfff1),
    (0x04d1, 0x0513, 2, 0xffff),
    (0x0561, 0x0586, 1, 0xffd0),
    (0x1d7d, 0x1d7d, 1, 0x0ee6),
    (0x1e01, 0x1e95, 2, 0xffff),
    (0x1ea1, 0x1ef9, 2, 0xffff),
    (0x1f00, 0x1f07, 1, 0x0008),
    (0x1f10, 0x1f15, 1, 0x0008),
    (0x1f20, 0x1f27, 1, 0x0008),
    (0x1f30, 0x1f37, 1, 0x0008),
    (0x1f40, 0x1f45, 1, 0x0008),
    (0x1f51, 0x1f57, 2, 0x0008),
    (0x1f60, 0x1f67, 1, 0x0008),
    (0x1f70, 0x1f71, 1, 0x004a),
    (0x1f72, 0x1f75, 1, 0x0056),
    (0x1f76, 0x1f77, 1, 0x0064),
    (0x1f78, 0x1f79, 1, 0x0080),
    (0x1f7a, 0x1f7b, 1, 0x0070),
    (0x1f7c, 0x1f7d, 1, 0x007e),
    (0x1f80, 0x1f87, 1, 0x0008),
    (0x1f90, 0x1f97, 1, 0x0008),
    (0x1fa0, 0x1fa7, 1, 0x0008),
    (0x1fb0, 0x1fb1, 1, 0x0008),
    (0x1fb3, 0x1fb3, 1, 0x0009),
    (0x1fcc, 0x1fcc, 1, 0xfff7),
    (0x1fd0, 0x1fd1, 1, 0x0008),
    (0x1fe0, 0x1fe1, 1, 0x0008),
    (0x1fe5, 0x1fe5, 1, 0x0007),
    (0x1ffc, 0x1ffc, 1, 0xfff7),
    (0x214e, 0x214e, 1, 0xffe4),
    (0x2170, 0x217f, 1, 0xfff0),
    (0x2184, 0x2184, 1, 0xffff),
    (0x24d0, 0x24e9, 1, 0xffe6),
    (0x2c30, 0x2c5e, 1, 0xffd0),
    (0x2c61, 0x2c61, 1, 0xffff),
    (0x2c68, 0x2c6c, 2, 0xffff),
    (0x2c76, 0x2c76, 1, 0xffff),
    (0x2c81, 0x2ce3, 2, 0xffff),
    (0x2d00, 0x2d25, 1, 0xe3a0),
    (0xff41, 0xff5a, 1, 0xffe0),
];
/// The runs of units without capitals that the recommended table stores by their length: first, and count.
const SKIPPED: [(u16, u16); 4] = [
    (0x0587, 6134),
    (0x2185, 843),
    (0x24EA, 1862),
    (0x2D26, 53787),
];

/// A table in memory, 128 KiB.
#[derive(Debug)]
pub(super) struct UpcaseTable(Box<[u16]>);

impl UpcaseTable {
    /// Returns the table that the specification recommends.
    pub(super) fn recommended() -> Self {
        let mut units: Box<[u16]> = (0..=u16::MAX).collect();
        for (first, last, step, added) in CAPITALS {
            for unit in (first..=last).step_by(step) {
                if let Some(place) = units.get_mut(usize::from(unit)) {
                    *place = unit.wrapping_add(added);
                }
            }
        }
        Self(units)
    }

    /// Decodes a stored table. Units that it does not reach map to themselves.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut units: Box<[u16]> = (0..=u16::MAX).collect();
        let mut stored = bytes.chunks_exact(2).map(|pair| {
            pair.iter()
                .rev()
                .fold(0, |unit, &byte| unit << 8 | u16::from(byte))
        });
        let mut at = 0_usize;
        while let Some(unit) = stored.next() {
            // The last unit maps to itself, and is not followed by a count.
            let count = match unit {
                SKIP => stored.next(),
                _ => None,
            };
            match (count, units.get_mut(at)) {
                (Some(count), _) if at + usize::from(count) <= UNITS => at += usize::from(count),
                (None, Some(place)) => {
                    *place = unit;
                    at += 1;
                }
                _ => {
                    let message = "the up-case table has more than 65536 units";
                    return Err(Error::new(bandsaw_core::Kind::Corrupt, LAYER, message));
                }
            }
        }
        Ok(Self(units))
    }

    /// Returns the table as it is stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (mut bytes, mut at) = (Vec::new(), 0);
        while let Some(unit) = self.0.get(at) {
            match SKIPPED.iter().find(|(first, _)| usize::from(*first) == at) {
                Some((_, count)) => {
                    bytes.extend(SKIP.to_le_bytes());
                    bytes.extend(count.to_le_bytes());
                    at += usize::from(*count);
                }
                None => {
                    bytes.extend(unit.to_le_bytes());
                    at += 1;
                }
            }
        }
        bytes
    }

    /// Returns the unit that counts in place of a unit.
    pub(super) fn capital(&self, unit: u16) -> u16 {
        self.0.get(usize::from(unit)).copied().unwrap_or(unit)
    }

    /// Returns the units of a name that count when it is compared.
    pub(super) fn capitals(&self, name: &str) -> Vec<u16> {
        name.encode_utf16().map(|unit| self.capital(unit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::table_sum;
    use super::*;

    /// The checksum is that of volumes made by other programs.
    #[test]
    fn the_recommended_table_has_the_known_checksum() {
        let table = UpcaseTable::recommended();
        let bytes = table.encode();
        assert_eq!((bytes.len(), table_sum(&bytes)), (5836, 0xE619_D30D));
        assert_eq!(UpcaseTable::decode(&bytes).unwrap().0, table.0);
        assert_eq!(
            table.capitals("a\u{e9}\u{ff}\u{1F600}"),
            "A\u{c9}\u{178}\u{1F600}".encode_utf16().collect::<Vec<_>>()
        );
    }

    #[test]
    fn damaged_tables_are_refused() {
        let skip = |count: u16| [SKIP.to_le_bytes(), count.to_le_bytes()].concat();
        assert!(UpcaseTable::decode(&[skip(0xFFFF), skip(2)].concat()).is_err());
        let whole = [skip(0xFFFF), vec![0xFF, 0xFF]].concat();
        assert!(UpcaseTable::decode(&whole).is_ok());
        assert!(UpcaseTable::decode(&[whole, vec![1, 0, 1, 0]].concat()).is_err());
        assert_eq!(UpcaseTable::decode(&[]).unwrap().capital(97), 97);
    }
}
