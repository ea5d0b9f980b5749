//! PNG pictures, decoded to pages of a TIFF with 8 bits for each color.
//!
//! Source: W3C, Portable Network Graphics (third edition).

use std::io::Read;

use bandsaw::{Error, Kind, Result};
use flate2::read::ZlibDecoder;

use super::tiff::Page;
use super::{LAYER, MAX_BYTES};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const SAMPLES: u16 = 277;
const ROWS: u16 = 278;
const EXTRA_SAMPLES: u16 = 338;
const PROFILE: u16 = 34675;
const UNDEFINED: u16 = 7;

pub(super) fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// The contents of the chunks.
#[derive(Default)]
struct Png {
    width: u32,
    height: u32,
    depth: u8,
    color: u8,
    is_interlaced: bool,
    palette: Vec<u8>,
    /// Opacities of a palette, or the color that is transparent.
    transparency: Vec<u8>,
    profile: Vec<u8>,
    data: Vec<u8>,
}

/// Returns width and height in pixels.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32)> {
    let png = Png::parse(bytes)?;
    Ok((png.width, png.height))
}

/// Decodes a picture.
pub(super) fn page(bytes: &[u8]) -> Result<Page> {
    let png = Png::parse(bytes)?;
    if png.is_interlaced {
        let message = "interlaced, which is not supported: save it without interlacing";
        return Err(Error::unsupported(LAYER, message));
    }
    let channels = match png.color {
        0 | 3 => 1,
        2 => 3,
        4 => 2,
        6 => 4,
        _ => return Err(corrupt("an unknown kind of colors")),
    };
    if ![1, 2, 4, 8, 16].contains(&png.depth) || png.depth < 8 && channels > 1 {
        return Err(corrupt("an unknown depth"));
    }
    let (width, height) = (png.width as usize, png.height as usize);
    let bits = channels * usize::from(png.depth);
    let row = (width * bits).div_ceil(8);
    let rows = png.rows(row, height, bits.div_ceil(8))?;

    let has_alpha = png.color >= 4 || !png.transparency.is_empty();
    let samples = if has_alpha { 4 } else { 3 };
    let mut pixels = Vec::with_capacity(width * height * samples);
    for line in rows.chunks(row) {
        for column in 0..width {
            let pixel = png.pixel(line, column, channels)?;
            pixels.extend(&pixel[..samples]);
        }
    }
    let mut page = Page::new(png.width, png.height, pixels);
    page.set_shorts(BITS, &[8, 8, 8, 8][..samples]);
    page.set_shorts(COMPRESSION, &[1]);
    page.set_shorts(PHOTOMETRIC, &[2]);
    page.set_shorts(SAMPLES, &[samples as u16]);
    page.set_longs(ROWS, &[png.height]);
    if has_alpha {
        // Colors are not multiplied by the opacity.
        page.set_shorts(EXTRA_SAMPLES, &[2]);
    }
    // A profile of gray does not fit the colors.
    if !png.profile.is_empty() && png.color & 2 != 0 {
        page.set(PROFILE, UNDEFINED, png.profile);
    }
    page.set_resolution(72);
    Ok(page)
}

impl Png {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut png = Self::default();
        let mut rest = bytes.strip_prefix(SIGNATURE).unwrap_or_default();
        loop {
            let ends = || corrupt("the file ends too early");
            let (head, behind) = rest.split_first_chunk::<8>().ok_or_else(ends)?;
            let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let data = behind.get(..len).ok_or_else(ends)?;
            // After the data, a checksum.
            rest = behind.get(len + 4..).ok_or_else(ends)?;
            match &head[4..] {
                b"IHDR" => png.header(data)?,
                b"PLTE" => png.palette = data.to_vec(),
                b"tRNS" => png.transparency = data.to_vec(),
                b"iCCP" => png.profile = profile(data)?,
                b"IDAT" => png.data.extend(data),
                b"IEND" => return Ok(png),
                // Other chunks whose name begins with a small letter can be left out.
                [first, ..] if first.is_ascii_lowercase() => {}
                _ => return Err(corrupt("an unknown chunk")),
            }
        }
    }

    fn header(&mut self, data: &[u8]) -> Result<()> {
        let &[a, b, c, d, e, f, g, h, depth, color, 0, 0, interlace] = data else {
            return Err(corrupt("the header is unknown"));
        };
        self.is_interlaced = interlace != 0;
        self.width = u32::from_be_bytes([a, b, c, d]);
        self.height = u32::from_be_bytes([e, f, g, h]);
        (self.depth, self.color) = (depth, color);
        // At most eight bytes for each pixel, and a byte for each row.
        let len = u64::from(self.width.max(1)) * u64::from(self.height) * 8;
        if len > MAX_BYTES || self.width == 0 || self.height == 0 {
            return Err(Error::limit(
                LAYER,
                "the number of pixels is 0 or too large",
            ));
        }
        Ok(())
    }

    /// Returns all rows of `row` bytes without their filters. `before`: the distance to the same
    /// byte of the pixel before.
    fn rows(&self, row: usize, height: usize, before: usize) -> Result<Vec<u8>> {
        if row == 0 {
            return Err(corrupt("there is no header"));
        }
        let stored = inflate(&self.data, (row + 1) * height)?;
        if stored.len() < (row + 1) * height {
            return Err(corrupt("pixels are missing"));
        }
        let mut rows: Vec<u8> = Vec::with_capacity(row * height);
        for line in stored.chunks(row + 1) {
            let (filter, line) = (line[0], &line[1..]);
            let start = rows.len();
            for (at, byte) in line.iter().enumerate() {
                let left = if at < before {
                    0
                } else {
                    rows[start + at - before]
                };
                let up = if start == 0 {
                    0
                } else {
                    rows[start - row + at]
                };
                let corner = match start == 0 || at < before {
                    true => 0,
                    false => rows[start - row + at - before],
                };
                let guess = match filter {
                    0 => 0,
                    1 => left,
                    2 => up,
                    3 => left.midpoint(up),
                    4 => paeth(left, up, corner),
                    _ => return Err(corrupt("an unknown filter")),
                };
                rows.push(byte.wrapping_add(guess));
            }
        }
        Ok(rows)
    }

    /// Returns red, green, blue and opacity of a pixel.
    fn pixel(&self, line: &[u8], column: usize, channels: usize) -> Result<[u8; 4]> {
        let depth = usize::from(self.depth);
        if depth < 8 {
            let bit = column * depth;
            let value = line[bit / 8] >> (8 - depth - bit % 8) & ((1 << depth) - 1);
            return match self.color {
                3 => self.of_palette(value),
                _ => {
                    let gray = value * (255 / ((1 << depth) - 1));
                    let is_clear = self.transparency.get(1) == Some(&value);
                    Ok([gray, gray, gray, if is_clear { 0 } else { 255 }])
                }
            };
        }
        let bytes = depth / 8;
        let pixel = &line[column * channels * bytes..][..channels * bytes];
        let value = |channel: usize| pixel[channel * bytes];
        if self.color == 3 {
            return self.of_palette(value(0));
        }
        // The transparent color has two bytes for each channel.
        let is_clear = self.transparency.len() == 2 * channels
            && (0..channels).all(|channel| {
                let clear = &self.transparency[2 * channel..2 * channel + 2];
                pixel[channel * bytes..][..bytes] == clear[2 - bytes..]
            });
        let opacity = if is_clear { 0 } else { 255 };
        Ok(match channels {
            1 => [value(0), value(0), value(0), opacity],
            2 => [value(0), value(0), value(0), value(1)],
            3 => [value(0), value(1), value(2), opacity],
            _ => [value(0), value(1), value(2), value(3)],
        })
    }

    fn of_palette(&self, value: u8) -> Result<[u8; 4]> {
        let at = usize::from(value);
        let color = self.palette.get(3 * at..3 * at + 3);
        let color = color.ok_or_else(|| corrupt("a color is not in the palette"))?;
        let opacity = self.transparency.get(at).copied().unwrap_or(255);
        Ok([color[0], color[1], color[2], opacity])
    }
}

fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, up, corner].map(i16::from);
    let guess = a + b - c;
    let [to_a, to_b, to_c] = [a, b, c].map(|value| (guess - value).abs());
    if to_a <= to_b && to_a <= to_c {
        left
    } else if to_b <= to_c {
        up
    } else {
        corner
    }
}

/// Returns the color profile: a name with a zero, the number of the compression, and the profile.
fn profile(data: &[u8]) -> Result<Vec<u8>> {
    let name = data.iter().position(|byte| *byte == 0);
    let name = name.ok_or_else(|| corrupt("a color profile without a name"))?;
    inflate(data.get(name + 2..).unwrap_or_default(), 16 << 20)
}

/// Returns at most `most` bytes of compressed data.
fn inflate(data: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(data)
        .take(most as u64)
        .read_to_end(&mut plain);
    read.map_err(|error| corrupt("compressed data are damaged").caused_by(error))?;
    Ok(plain)
}

fn corrupt(message: &'static str) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn chunk(kind: &[u8], data: &[u8]) -> Vec<u8> {
        let len = (data.len() as u32).to_be_bytes();
        [&len[..], kind, data, &[0; 4]].concat()
    }

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns a picture of 2 x 2 pixels, the second row filtered.
    fn png(depth: u8, color: u8, row: &[u8], more: &[u8]) -> Vec<u8> {
        let header = [0, 0, 0, 2, 0, 0, 0, 2, depth, color, 0, 0, 0];
        let rows = [&[0][..], row, &[4], &vec![0; row.len()]].concat();
        let profile = [&b"name\0\0"[..], &packed(b"profile")].concat();
        let chunks = [
            chunk(b"IHDR", &header),
            chunk(b"iCCP", &profile),
            more.to_vec(),
            chunk(b"IDAT", &packed(&rows)),
            chunk(b"IEND", b""),
        ];
        [SIGNATURE, &chunks.concat()].concat()
    }

    #[test]
    fn every_kind_of_colors_is_decoded() {
        let palette = chunk(b"PLTE", &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let clear = [palette.clone(), chunk(b"tRNS", &[255, 9])].concat();
        let gray = chunk(b"tRNS", &[0, 1]);
        for (depth, color, row, more, first) in [
            (
                1,
                0,
                &[0b0100_0000][..],
                &b""[..],
                &[0, 0, 0, 255, 255, 255][..],
            ),
            (
                1,
                0,
                &[0b0100_0000],
                &gray,
                &[0, 0, 0, 255, 255, 255, 255, 0],
            ),
            (4, 0, &[0x1F], b"", &[17, 17, 17, 255, 255, 255]),
            (8, 0, &[5, 6], b"", &[5, 5, 5, 6, 6, 6]),
            (8, 2, &[1, 2, 3, 4, 5, 6], b"", &[1, 2, 3, 4, 5, 6]),
            (8, 4, &[1, 2, 3, 4], b"", &[1, 1, 1, 2, 3, 3, 3, 4]),
            (
                8,
                6,
                &[1, 2, 3, 4, 5, 6, 7, 8],
                b"",
                &[1, 2, 3, 4, 5, 6, 7, 8],
            ),
            (
                16,
                2,
                &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0],
                b"",
                &[1, 2, 3, 4, 5, 6],
            ),
            (2, 3, &[0b0110_0000], &palette, &[4, 5, 6, 7, 8, 9]),
            (8, 3, &[1, 2], &clear, &[4, 5, 6, 9, 7, 8, 9, 255]),
        ] {
            let bytes = png(depth, color, row, more);
            assert_eq!(size(&bytes).unwrap(), (2, 2));
            let mut page = page(&bytes).unwrap();
            // Both rows are the same: the second one is stored as its difference to the first.
            let expected = [first, first].concat();
            let file = super::super::tiff::file(std::slice::from_mut(&mut page)).unwrap();
            assert_eq!(file[8..][..expected.len()], expected, "{depth} {color}");
            for cut in 0..bytes.len() {
                assert!(super::page(&bytes[..cut]).is_err());
            }
            // Damaged bytes are an error or another picture.
            for at in 0..bytes.len() {
                for value in [0, 1, 3, 16, 255] {
                    let mut damaged = bytes.clone();
                    damaged[at] = value;
                    let _ = super::page(&damaged);
                }
            }
        }
    }

    #[test]
    fn unsupported_pictures_are_refused() {
        let mut interlaced = png(8, 0, &[5, 6], b"");
        interlaced[28] = 1;
        let error = page(&interlaced).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(size(&interlaced).is_ok());
        let mut large = png(8, 0, &[5, 6], b"");
        large[16..20].fill(0xFF);
        assert_eq!(page(&large).unwrap_err().kind(), Kind::Limit);
        let unknown = png(8, 0, &[5, 6], &chunk(b"NEWS", b""));
        assert_eq!(page(&unknown).unwrap_err().kind(), Kind::Corrupt);
    }
}
