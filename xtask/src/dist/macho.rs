//! Mach-O files: what can be said of a command for macOS without a Mac, and universal files of several.
//!
//! Source: `<mach-o/loader.h>`, `<mach-o/fat.h>` and `<kern/cs_blobs.h>` of macOS.

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

const MAGIC_64: u32 = 0xfeed_facf;
const MAGIC_FAT: u32 = 0xcafe_babe;
const EXECUTE: u32 = 2;
const PLATFORM_MACOS: u32 = 1;

const LOAD_DYLIB: u32 = 0xc;
const LOAD_DYLINKER: u32 = 0xe;
const SEGMENT_64: u32 = 0x19;
const UUID: u32 = 0x1b;
const CODE_SIGNATURE: u32 = 0x1d;
const BUILD_VERSION: u32 = 0x32;
const MAIN: u32 = 0x8000_0028;

const SUPER_BLOB: u32 = 0xfade_0cc0;
const CODE_DIRECTORY: u32 = 0xfade_0c02;
/// Flag of a code directory: signed without a certificate.
const AD_HOC: u32 = 2;
const HASH_SHA256: u8 = 2;

/// Alignment of the parts of a universal file, as a power of two: a page of ARM64.
const ALIGNMENT: u32 = 14;

/// A command that was checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Executable {
    /// CPU type and subtype.
    pub(super) cpu: (u32, u32),
    /// The libraries that it loads.
    pub(super) libraries: Vec<String>,
    /// The lowest version of macOS: major and minor number.
    pub(super) oldest_system: (u32, u32),
}

/// Checks the load commands and the ad-hoc signature of a command for one processor.
pub(super) fn check(file: &[u8]) -> Result<Executable> {
    ensure!(le32(file, 0)? == MAGIC_64, "no 64-bit Mach-O file");
    ensure!(le32(file, 12)? == EXECUTE, "not a program");
    let (count, size) = (le32(file, 16)?, le32(file, 20)?);
    let commands = part(file, 32, size as usize)?;
    let mut found = Executable {
        cpu: (le32(file, 4)?, le32(file, 8)?),
        libraries: Vec::new(),
        oldest_system: (0, 0),
    };
    let (mut at, mut once, mut segments) = (0, Vec::new(), Vec::new());
    for _ in 0..count {
        let (kind, size) = (le32(commands, at)?, le32(commands, at + 4)? as usize);
        ensure!(
            size >= 8 && size.is_multiple_of(8),
            "a load command of {size} bytes"
        );
        let command = part(commands, at, size)?;
        at += size;
        match kind {
            SEGMENT_64 => segments.push(segment(command, file)?),
            LOAD_DYLIB => found.libraries.push(text(command, 8)?),
            LOAD_DYLINKER => ensure!(text(command, 8)? == "/usr/lib/dyld", "another dyld"),
            BUILD_VERSION => {
                ensure!(le32(command, 8)? == PLATFORM_MACOS, "not for macOS");
                let version = le32(command, 12)?;
                found.oldest_system = (version >> 16, version >> 8 & 0xff);
            }
            CODE_SIGNATURE => {
                check_signature(
                    file,
                    le32(command, 8)? as usize,
                    le32(command, 12)? as usize,
                )?;
            }
            _ => {}
        }
        once.push((kind, command));
    }
    ensure!(
        at == commands.len(),
        "the load commands are {at} bytes long"
    );
    for (kind, name) in [
        (MAIN, "LC_MAIN"),
        (LOAD_DYLINKER, "LC_LOAD_DYLINKER"),
        (UUID, "LC_UUID"),
        (BUILD_VERSION, "LC_BUILD_VERSION"),
        (CODE_SIGNATURE, "LC_CODE_SIGNATURE"),
    ] {
        let times = once.iter().filter(|(found, _)| *found == kind).count();
        ensure!(times == 1, "{name} is there {times} times");
    }
    let entry = once.iter().find(|(kind, _)| *kind == MAIN);
    let entry = le64(entry.context("LC_MAIN")?.1, 8)?;
    let within = |name: &str| segments.iter().find(|segment| segment.0 == name);
    let code = within("__TEXT").context("no __TEXT")?;
    ensure!(
        code.1 == 0 && entry < code.2,
        "the program begins outside of __TEXT"
    );
    let last = within("__LINKEDIT").context("no __LINKEDIT")?;
    ensure!(
        last.1 + last.2 == file.len() as u64,
        "__LINKEDIT does not end with the file"
    );
    Ok(found)
}

/// Returns the name, offset and length of a segment, which lies in the file with its sections.
fn segment(command: &[u8], file: &[u8]) -> Result<(String, u64, u64)> {
    let name = part(command, 8, 16)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8(name.to_vec())?;
    let (offset, len) = (le64(command, 40)?, le64(command, 48)?);
    let end = offset.checked_add(len).context("an overflow")?;
    ensure!(end <= file.len() as u64, "{name} ends after the file");
    let sections = le32(command, 64)? as usize;
    ensure!(
        command.len() == 72 + sections * 80,
        "{name} has a wrong number of sections"
    );
    Ok((name, offset, len))
}

/// Compares every page of a file with the hash in its signature, which ends the file.
fn check_signature(file: &[u8], offset: usize, len: usize) -> Result<()> {
    let blobs = part(file, offset, len)?;
    ensure!(
        offset + len == file.len(),
        "the signature does not end the file"
    );
    ensure!(be32(blobs, 0)? == SUPER_BLOB, "no signature");
    let count = be32(blobs, 8)? as usize;
    for number in 0..count.min(16) {
        // Slot 0 is the code directory.
        if be32(blobs, 12 + 8 * number)? == 0 {
            let at = be32(blobs, 16 + 8 * number)? as usize;
            let directory = part(blobs, at, be32(blobs, at + 4)? as usize)?;
            return check_pages(&file[..offset], directory);
        }
    }
    bail!("the signature has no code directory");
}

fn check_pages(signed: &[u8], directory: &[u8]) -> Result<()> {
    ensure!(be32(directory, 0)? == CODE_DIRECTORY, "no code directory");
    ensure!(be32(directory, 12)? & AD_HOC != 0, "not signed ad hoc");
    let (hashes, count) = (be32(directory, 16)? as usize, be32(directory, 28)? as usize);
    ensure!(
        be32(directory, 32)? as usize == signed.len(),
        "not the whole file is signed"
    );
    let kinds = part(directory, 36, 4)?;
    ensure!(
        kinds[0] == 32 && kinds[1] == HASH_SHA256 && (12..=16).contains(&kinds[3]),
        "hashes of an unknown kind"
    );
    let pages = signed.chunks(1 << kinds[3]);
    ensure!(pages.len() == count, "{count} pages are signed");
    for (number, page) in pages.enumerate() {
        let hash = part(directory, hashes + 32 * number, 32)?;
        ensure!(
            Sha256::digest(page)[..] == *hash,
            "page {number} is not what was signed"
        );
    }
    Ok(())
}

/// Returns a universal file of commands for different processors.
pub(super) fn universal(commands: &[&[u8]]) -> Result<Vec<u8>> {
    let mut header = [MAGIC_FAT, u32::try_from(commands.len())?]
        .map(u32::to_be_bytes)
        .concat();
    let mut body = Vec::new();
    let align = |len: usize| len.next_multiple_of(1 << ALIGNMENT);
    let first = align(header.len() + 20 * commands.len());
    for command in commands {
        body.resize(align(body.len()), 0);
        let offset = first + body.len();
        let fields = [
            le32(command, 4)?,
            le32(command, 8)?,
            u32::try_from(offset)?,
            u32::try_from(command.len())?,
            ALIGNMENT,
        ];
        header.extend(fields.map(u32::to_be_bytes).concat());
        body.extend_from_slice(command);
    }
    header.resize(first, 0);
    header.extend(body);
    Ok(header)
}

/// Returns the parts of a universal file.
pub(super) fn parts(file: &[u8]) -> Result<Vec<&[u8]>> {
    ensure!(be32(file, 0)? == MAGIC_FAT, "no universal file");
    let count = be32(file, 4)? as usize;
    (0..count)
        .map(|number| {
            let entry = part(file, 8 + 20 * number, 20)?;
            let offset = be32(entry, 8)? as usize;
            ensure!(
                offset.is_multiple_of(1 << ALIGNMENT),
                "part {number} is not aligned"
            );
            let command = part(file, offset, be32(entry, 12)? as usize)?;
            ensure!(
                entry[..8]
                    == *[le32(command, 4)?, le32(command, 8)?]
                        .map(u32::to_be_bytes)
                        .concat(),
                "part {number} is for another processor"
            );
            Ok(command)
        })
        .collect()
}

fn part(bytes: &[u8], at: usize, len: usize) -> Result<&[u8]> {
    at.checked_add(len)
        .and_then(|end| bytes.get(at..end))
        .with_context(|| format!("{len} bytes at {at} are not there"))
}

fn le32(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(part(bytes, at, 4)?.try_into()?))
}

fn le64(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(part(bytes, at, 8)?.try_into()?))
}

fn be32(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_be_bytes(part(bytes, at, 4)?.try_into()?))
}

/// Returns the text to which the number at `at` of a load command points.
fn text(command: &[u8], at: usize) -> Result<String> {
    let from = le32(command, at)? as usize;
    let rest = command
        .get(from..)
        .context("a text outside of its command")?;
    let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8(text.to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: usize = 9000;

    fn command(kind: u32, fields: &[u8]) -> Vec<u8> {
        let size = (8 + fields.len()).next_multiple_of(8);
        let mut command = [kind, size as u32].map(u32::to_le_bytes).concat();
        command.extend_from_slice(fields);
        command.resize(size, 0);
        command
    }

    fn segment_of(name: &str, offset: u64, len: u64) -> Vec<u8> {
        let mut fields = name.as_bytes().to_vec();
        fields.resize(16, 0);
        fields.extend([0, 0, offset, len].map(u64::to_le_bytes).concat());
        fields.extend([5, 5, 0, 0].map(u32::to_le_bytes).concat());
        command(SEGMENT_64, &fields)
    }

    fn string(kind: u32, from: u32, text: &str) -> Vec<u8> {
        let mut fields = from.to_le_bytes().to_vec();
        fields.resize(from as usize - 8, 0);
        fields.extend_from_slice(text.as_bytes());
        fields.push(0);
        command(kind, &fields)
    }

    /// Makes the smallest command that is right.
    fn sample() -> Vec<u8> {
        let pages = SIGNED.div_ceil(4096);
        let directory_len = 44 + 32 * pages;
        let signature_len = 20 + directory_len;
        let commands = [
            segment_of("__TEXT", 0, 8192),
            segment_of("__LINKEDIT", 8192, (SIGNED - 8192 + signature_len) as u64),
            string(LOAD_DYLINKER, 12, "/usr/lib/dyld"),
            string(LOAD_DYLIB, 24, "/usr/lib/libSystem.B.dylib"),
            command(UUID, &[7; 16]),
            command(
                BUILD_VERSION,
                &[1, 11 << 16, 11 << 16, 0].map(u32::to_le_bytes).concat(),
            ),
            command(MAIN, &[4096_u64, 0].map(u64::to_le_bytes).concat()),
            command(
                CODE_SIGNATURE,
                &[SIGNED as u32, signature_len as u32]
                    .map(u32::to_le_bytes)
                    .concat(),
            ),
        ];
        let size: usize = commands.iter().map(Vec::len).sum();
        let header = [MAGIC_64, 0x0100_000c, 0, EXECUTE, 8, size as u32, 0, 0];
        let mut file = header.map(u32::to_le_bytes).concat();
        file.extend(commands.concat());
        file.resize(SIGNED, 3);
        let mut directory = [
            CODE_DIRECTORY,
            directory_len as u32,
            0x2_0400,
            AD_HOC,
            44,
            0,
            0,
            pages as u32,
            SIGNED as u32,
        ]
        .map(u32::to_be_bytes)
        .concat();
        directory.extend([32, HASH_SHA256, 0, 12, 0, 0, 0, 0]);
        for page in file.chunks(4096) {
            directory.extend_from_slice(&Sha256::digest(page));
        }
        let blobs = [SUPER_BLOB, signature_len as u32, 1, 0, 20];
        file.extend(blobs.map(u32::to_be_bytes).concat());
        file.extend(directory);
        file
    }

    #[test]
    fn a_command_that_is_right_is_described() {
        let found = check(&sample()).unwrap();
        let expected = Executable {
            cpu: (0x0100_000c, 0),
            libraries: vec!["/usr/lib/libSystem.B.dylib".to_owned()],
            oldest_system: (11, 0),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn every_byte_that_is_signed_counts() {
        let file = sample();
        for at in (32..SIGNED).step_by(97).chain([SIGNED - 1]) {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(check(&changed).is_err(), "byte {at}");
        }
        for len in (0..file.len()).step_by(501) {
            assert!(check(&file[..len]).is_err(), "{len} bytes");
        }
        let mut unsigned = file.clone();
        unsigned.truncate(SIGNED);
        assert!(check(&unsigned).is_err());
    }

    #[test]
    fn a_universal_file_has_its_parts() {
        let one = sample();
        let mut other = one.clone();
        other[4] = 7;
        let file = universal(&[&one, &other]).unwrap();
        assert_eq!(parts(&file).unwrap(), [&one[..], &other[..]]);
        assert!(parts(&one).is_err() && parts(&file[..file.len() - 1]).is_err());
    }
}
