//! The five files of the article about compressed files, generated with a similar structure: words,
//! instructions, and PDFs that are mostly compressed already.

use std::io::Write as _;

use crate::noise::SplitMix64;

/// Smallest size in bytes that is scaled; shorter files keep their size because they test limits of
/// the format.
const SCALED_FROM: u64 = 1_000_000;

/// A file of the article.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleFile {
    /// Its name in the report and in the published figures.
    pub name: &'static str,
    /// Size in bytes.
    pub len: u64,
}

/// Returns the five files, with the long ones multiplied by `scale`.
pub fn files(scale: f64) -> [ArticleFile; 5] {
    let of = |(name, len): (&'static str, u64)| {
        let scaled = if len > SCALED_FROM {
            ((len as f64 * scale) as u64).max(1)
        } else {
            len
        };
        ArticleFile { name, len: scaled }
    };
    [
        ("text of 80 bytes", 80),
        ("program of 8 KB", 8_192),
        ("text of 45 KB", 45_000),
        ("PDF of 5.2 MB", 5_168_509),
        ("PDF of 404 MB", 404_000_000),
    ]
    .map(of)
}

impl ArticleFile {
    /// Generates the contents, always the same.
    pub fn contents(&self) -> Vec<u8> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        match self.name.split(' ').next() {
            Some("text") => text(len),
            Some("program") => program(len),
            _ => pdf(len),
        }
    }
}

/// Generates text: a few words frequent, many rare.
pub fn text(len: usize) -> Vec<u8> {
    const LETTERS: &[u8; 22] = b"etaoinshrdlucmfwypvbgk";
    let mut noise = SplitMix64::new(0x2545_F491_4F6C_DD1D);
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        // Small numbers are drawn often, and make short words.
        let mut number = noise.between(1, 60_000);
        let start = text.len();
        while number > 0 || text.len() < start + 2 {
            text.push(LETTERS[(number % 22) as usize]);
            number /= 22;
        }
        text.push(if noise.below(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

/// Generates a program: a quarter instructions, with frequent opcodes and small operands; then half
/// zeros; the rest text.
fn program(len: usize) -> Vec<u8> {
    const OPCODES: [&[u8]; 6] = [
        &[0x48, 0x89, 0xE5],
        &[0x48, 0x8B, 0x45],
        &[0xE8],
        &[0x0F, 0x84],
        &[0x48, 0x83, 0xEC],
        &[0x89, 0x45, 0xFC],
    ];
    let mut noise = SplitMix64::new(0x9E37_79B9_7F4A_7C15);
    let mut code = Vec::with_capacity(len + 8);
    while code.len() < len / 4 {
        code.extend(OPCODES[noise.below(OPCODES.len())]);
        let operand = noise.number().to_le_bytes();
        code.extend(&operand[..noise.below(3)]);
    }
    code.resize(len * 3 / 4, 0);
    code.extend(text(len - code.len().min(len)));
    code.truncate(len);
    code
}

/// Generates a PDF: compressed streams, between objects of up to 1000 bytes, similar to the
/// article's file.
fn pdf(len: usize) -> Vec<u8> {
    let mut noise = SplitMix64::new(0xD1B5_4A32_D192_ED03);
    let mut pdf = b"%PDF-1.4\n".to_vec();
    pdf.reserve(len + 70_000);
    let mut number = 0;
    while pdf.len() < len {
        let stream = 20_000 + noise.below(40_000);
        object(&mut pdf, number, stream);
        let start = pdf.len();
        pdf.resize(start + stream, 0);
        noise.fill(&mut pdf[start..]);
        let described = pdf.len() + stream * 2 / 5;
        while pdf.len() < described {
            number += 1;
            object(&mut pdf, number, noise.below(1000));
        }
    }
    pdf.truncate(len);
    pdf
}

fn object(pdf: &mut Vec<u8>, number: usize, len: usize) {
    // Writing to memory does not fail.
    let _ = write!(
        pdf,
        "{number} 0 obj\n<< /Type /XObject /Subtype /Image /Length {len} /Filter /FlateDecode >>\nstream\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::references;

    #[test]
    fn they_are_those_that_were_published() {
        for file in files(1.0) {
            let published = references()
                .compression
                .iter()
                .find(|published| published.file == file.name);
            assert_eq!(
                published.map(|published| published.bytes),
                Some(file.len),
                "{}",
                file.name
            );
        }
        let small = files(0.001);
        assert_eq!((small[2].len, small[4].len), (45_000, 404_000));
        for file in small {
            let contents = file.contents();
            assert_eq!(contents.len() as u64, file.len);
            assert_eq!(contents, file.contents());
        }
    }
}
