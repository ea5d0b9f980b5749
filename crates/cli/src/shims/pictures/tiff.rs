//! TIFF files: pages taken apart and put together, their pixels as they are.
//!
//! Source: Adobe, TIFF revision 6.0.

use bandsaw::{Error, Result};

use super::LAYER;

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const STRIP_OFFSETS: u16 = 273;
const STRIP_LENGTHS: u16 = 279;
const X_RESOLUTION: u16 = 282;
const Y_RESOLUTION: u16 = 283;
const RESOLUTION_UNIT: u16 = 296;
const TILE_OFFSETS: u16 = 324;
const TILE_LENGTHS: u16 = 325;
/// Places of other structures in the file, which are not taken over: free space, thumbnails,
/// metadata of cameras.
const PLACES: [u16; 5] = [288, 289, 330, 34665, 34853];
/// JPEG in the form of TIFF 6.0, whose tables are elsewhere in the file.
const OLD_JPEG: u16 = 513;
const SHORT: u16 = 3;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;
/// Pages and fields that are read at most.
const MAX_PAGES: usize = 100;
const MAX_FIELDS: usize = 1000;

/// The byte order of a file, by its first two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn of_u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    fn of_u32(self, number: u32) -> [u8; 4] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }
}

/// A field: its type, and its values in the byte order of the page.
#[derive(Debug, Clone)]
struct Field {
    tag: u16,
    kind: u16,
    values: Vec<u8>,
}

/// Returns the bytes of a value, and of the numbers in it.
fn size(kind: u16) -> Option<(usize, usize)> {
    Some(match kind {
        1 | 2 | 6 | 7 => (1, 1),
        3 | 8 => (2, 2),
        4 | 9 | 11 | 13 => (4, 4),
        5 | 10 => (8, 4),
        12 => (8, 8),
        _ => return None,
    })
}

/// A picture: its fields without the places of its pixels, and these.
#[derive(Debug)]
pub(super) struct Page {
    order: Order,
    fields: Vec<Field>,
    pieces: Vec<Vec<u8>>,
    is_tiled: bool,
}

impl Page {
    /// Returns a page of this size, in one piece of uncompressed pixels.
    pub(super) fn new(width: u32, height: u32, pixels: Vec<u8>) -> Self {
        let mut page = Self {
            order: Order::Little,
            fields: Vec::new(),
            pieces: vec![pixels],
            is_tiled: false,
        };
        page.set_longs(WIDTH, &[width]);
        page.set_longs(HEIGHT, &[height]);
        page
    }

    /// Returns width and height in pixels.
    pub(super) fn size(&self) -> (u32, u32) {
        let number = |tag| self.numbers(tag).first().copied().unwrap_or(0);
        (number(WIDTH), number(HEIGHT))
    }

    /// Sets the resolution in pixels per inch.
    pub(super) fn set_resolution(&mut self, dots: u32) {
        let ratio = [self.order.of_u32(dots), self.order.of_u32(1)].concat();
        self.set(X_RESOLUTION, RATIONAL, ratio.clone());
        self.set(Y_RESOLUTION, RATIONAL, ratio);
        self.set_shorts(RESOLUTION_UNIT, &[2]);
    }

    /// Sets a field of 16-bit numbers.
    pub(super) fn set_shorts(&mut self, tag: u16, numbers: &[u16]) {
        let values = numbers.iter().flat_map(|number| self.order.of_u16(*number));
        self.set(tag, SHORT, values.collect());
    }

    /// Sets a field of 32-bit numbers.
    pub(super) fn set_longs(&mut self, tag: u16, numbers: &[u32]) {
        let values = numbers.iter().flat_map(|number| self.order.of_u32(*number));
        self.set(tag, LONG, values.collect());
    }

    /// Sets a field, whose values are in the byte order of the page.
    pub(super) fn set(&mut self, tag: u16, kind: u16, values: Vec<u8>) {
        self.fields.retain(|field| field.tag != tag);
        self.fields.push(Field { tag, kind, values });
    }

    /// Returns the numbers of a field of type SHORT or LONG.
    fn numbers(&self, tag: u16) -> Vec<u32> {
        let field = self.fields.iter().find(|field| field.tag == tag);
        let Some(Field { kind, values, .. }) = field else {
            return Vec::new();
        };
        match *kind {
            SHORT => {
                let pairs = values.as_chunks::<2>().0.iter();
                pairs.map(|pair| self.order.u16(*pair).into()).collect()
            }
            LONG => {
                let words = values.as_chunks::<4>().0.iter();
                words.map(|word| self.order.u32(*word)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Converts the page to another byte order.
    fn convert(&mut self, order: Order) -> Result<()> {
        if self.order == order {
            return Ok(());
        }
        if self.numbers(BITS).iter().any(|bits| *bits > 8) {
            let message = "pixels of more than 8 bits in another byte order than the first picture";
            return Err(Error::unsupported(LAYER, message));
        }
        for field in &mut self.fields {
            let (_, unit) = size(field.kind).unwrap_or((1, 1));
            for number in field.values.chunks_mut(unit) {
                number.reverse();
            }
        }
        self.order = order;
        Ok(())
    }
}

/// Reads the pages of a file.
pub(super) fn pages(bytes: &[u8]) -> Result<Vec<Page>> {
    let order = match bytes {
        [b'I', b'I', 42, 0, ..] => Order::Little,
        [b'M', b'M', 0, 42, ..] => Order::Big,
        _ => return Err(Error::unsupported(LAYER, "neither TIFF nor PNG")),
    };
    let mut file = Input {
        bytes,
        order,
        held: 0,
    };
    let mut pages = Vec::new();
    let mut at = file.u32(4)?;
    while at != 0 {
        if pages.len() == MAX_PAGES {
            return Err(Error::limit(LAYER, format!("more than {MAX_PAGES} pages")));
        }
        let (page, next) = file.page(at as usize)?;
        pages.push(page);
        at = next;
    }
    Ok(pages)
}

struct Input<'a> {
    bytes: &'a [u8],
    order: Order,
    /// Number of bytes that were copied.
    held: usize,
}

impl Input<'_> {
    fn get(&self, at: usize, len: usize) -> Result<&[u8]> {
        let end = at.checked_add(len);
        let part = end.and_then(|end| self.bytes.get(at..end));
        part.ok_or_else(|| Error::corrupt(LAYER, at as u64, "reaches past the end of the file"))
    }

    fn u16(&self, at: usize) -> Result<u16> {
        let bytes = self.get(at, 2)?;
        Ok(self.order.u16([bytes[0], bytes[1]]))
    }

    fn u32(&self, at: usize) -> Result<u32> {
        let bytes = self.get(at, 4)?;
        Ok(self.order.u32([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Copies bytes. Parts may share some, but the copies need memory each: they are at most as long
    /// as the file.
    fn copy(&mut self, at: usize, len: usize) -> Result<Vec<u8>> {
        self.held = self.held.saturating_add(len);
        if self.held > self.bytes.len() {
            return Err(Error::limit(LAYER, "the parts are longer than the file"));
        }
        Ok(self.get(at, len)?.to_vec())
    }

    /// Reads the page at this offset, and the offset of the next.
    fn page(&mut self, at: usize) -> Result<(Page, u32)> {
        let wrong = |message: &'static str| Error::corrupt(LAYER, at as u64, message);
        let count = usize::from(self.u16(at)?);
        if count > MAX_FIELDS {
            return Err(Error::limit(
                LAYER,
                format!("more than {MAX_FIELDS} fields"),
            ));
        }
        let mut page = Page {
            order: self.order,
            fields: Vec::new(),
            pieces: Vec::new(),
            is_tiled: false,
        };
        for number in 0..count {
            let entry = at + 2 + 12 * number;
            let (tag, kind) = (self.u16(entry)?, self.u16(entry + 2)?);
            let Some((len, _)) = size(kind) else { continue };
            let len = len.saturating_mul(self.u32(entry + 4)? as usize);
            let place = match len > 4 {
                true => self.u32(entry + 8)? as usize,
                false => entry + 8,
            };
            if tag == OLD_JPEG {
                return Err(Error::unsupported(LAYER, "JPEG in an old form"));
            }
            if !PLACES.contains(&tag) {
                page.set(tag, kind, self.copy(place, len)?);
            }
        }
        page.is_tiled = page.fields.iter().any(|field| field.tag == TILE_OFFSETS);
        let (offsets, lengths) = match page.is_tiled {
            true => (TILE_OFFSETS, TILE_LENGTHS),
            false => (STRIP_OFFSETS, STRIP_LENGTHS),
        };
        let (starts, lens) = (page.numbers(offsets), page.numbers(lengths));
        if starts.is_empty() || starts.len() != lens.len() {
            return Err(wrong("a page without places of its pixels"));
        }
        for (start, len) in starts.into_iter().zip(lens) {
            page.pieces.push(self.copy(start as usize, len as usize)?);
        }
        page.fields
            .retain(|field| field.tag != offsets && field.tag != lengths);
        Ok((page, self.u32(at + 2 + 12 * count)?))
    }
}

/// Returns a file with these pages, in the byte order of the first.
pub(super) fn file(pages: &mut [Page]) -> Result<Vec<u8>> {
    let limit = || Error::limit(LAYER, "the file would be longer than 4 GiB");
    let order = pages.first().map_or(Order::Little, |page| page.order);
    let mark: &[u8] = match order {
        Order::Little => b"II\x2A\0\0\0\0\0",
        Order::Big => b"MM\0\x2A\0\0\0\0",
    };
    let mut file = mark.to_vec();
    // Offset of the field that points to the next page.
    let mut link = 4;
    for page in pages {
        page.convert(order)?;
        let position = |file: &Vec<u8>| u32::try_from(file.len()).map_err(|_| limit());
        let (mut starts, mut lens) = (Vec::new(), Vec::new());
        for piece in &page.pieces {
            starts.push(position(&file)?);
            lens.push(u32::try_from(piece.len()).map_err(|_| limit())?);
            append(&mut file, piece);
        }
        let (offsets, lengths) = match page.is_tiled {
            true => (TILE_OFFSETS, TILE_LENGTHS),
            false => (STRIP_OFFSETS, STRIP_LENGTHS),
        };
        page.set_longs(offsets, &starts);
        page.set_longs(lengths, &lens);
        page.fields.sort_by_key(|field| field.tag);
        let mut directory = order.of_u16(page.fields.len() as u16).to_vec();
        for Field { tag, kind, values } in &page.fields {
            let (len, _) = size(*kind).unwrap_or((1, 1));
            let count = u32::try_from(values.len() / len).map_err(|_| limit())?;
            directory.extend(order.of_u16(*tag));
            directory.extend(order.of_u16(*kind));
            directory.extend(order.of_u32(count));
            if values.len() <= 4 {
                let mut inside = values.clone();
                inside.resize(4, 0);
                directory.extend(inside);
            } else {
                directory.extend(order.of_u32(position(&file)?));
                append(&mut file, values);
            }
        }
        directory.extend([0; 4]);
        let at = order.of_u32(position(&file)?);
        file[link..link + 4].copy_from_slice(&at);
        file.extend(directory);
        link = file.len() - 4;
    }
    Ok(file)
}

/// Appends bytes, so that the next begin at a multiple of two.
fn append(file: &mut Vec<u8>, bytes: &[u8]) {
    file.extend(bytes);
    file.resize(file.len().next_multiple_of(2), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: u32, height: u32) -> Page {
        let pixels = (0..width * height * 3).map(|byte| byte as u8).collect();
        let mut page = Page::new(width, height, pixels);
        page.set_shorts(BITS, &[8, 8, 8]);
        page.set(270, 2, b"a title\0".to_vec());
        page
    }

    #[test]
    fn pages_stay_what_they_are_in_both_orders() {
        let mut big = page(3, 5);
        big.convert(Order::Big).unwrap();
        let big = file(&mut [big]).unwrap();
        assert!(big.starts_with(b"MM"));
        let mut two = pages(&big).unwrap();
        two.push(page(6, 10));
        two[1].set_resolution(144);
        let both = file(&mut two).unwrap();
        let found = pages(&both).unwrap();
        assert_eq!(
            found.iter().map(Page::size).collect::<Vec<_>>(),
            [(3, 5), (6, 10)]
        );
        for (found, made) in found.iter().zip([page(3, 5), page(6, 10)]) {
            assert_eq!(found.pieces, made.pieces);
            assert_eq!(found.numbers(BITS), [8, 8, 8]);
            let title = found.fields.iter().find(|field| field.tag == 270);
            assert_eq!(title.unwrap().values, b"a title\0");
        }
        let resolution = found[1]
            .fields
            .iter()
            .find(|field| field.tag == X_RESOLUTION);
        assert_eq!(resolution.unwrap().values, [0, 0, 0, 144, 0, 0, 0, 1]);
        for cut in 0..both.len() {
            let _ = pages(&both[..cut]);
        }
    }

    #[test]
    fn unsupported_pictures_are_refused() {
        let mut deep = page(1, 1);
        deep.set_shorts(BITS, &[16]);
        let mut little = page(1, 1);
        little.convert(Order::Big).unwrap();
        assert!(file(&mut [little, deep]).is_err());
        assert!(pages(b"GIF89a").is_err());
        let mut endless = file(&mut [page(1, 1)]).unwrap();
        let first: [u8; 4] = endless[4..8].try_into().unwrap();
        let end = endless.len() - 4;
        endless[end..].copy_from_slice(&first);
        assert!(pages(&endless).is_err());
    }
}
