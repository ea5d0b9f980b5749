//! `tiffutil` and `sips`: the background of a window. Pictures of two resolutions become one TIFF, and
//! the size of a picture is told.
//!
//! Source: Apple's manual pages tiffutil(1) and sips(1), and what published scripts expect.

mod png;
mod tiff;

use std::io::Write;
use std::path::{Path, PathBuf};

use bandsaw::Error;

use super::{refused, unknown, value};
use crate::failure::Outcome;
use crate::new_file::NewFile;

const LAYER: &str = "picture";
/// Limit for the length of a picture's file, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Pixels per inch of a picture whose pixels are points.
const POINTS: u32 = 72;

pub(super) fn tiffutil(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let (mut check, mut cat) = (false, false);
    let mut out = PathBuf::from("out.tiff");
    let mut sources = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-cathidpicheck" => check = true,
            "-cat" => cat = true,
            "-out" => out = value(word, &mut words)?.into(),
            word if word.starts_with('-') => return Err(unknown(word)),
            source => sources.push(Path::new(source)),
        }
    }
    if check == cat || sources.is_empty() {
        return Err(refused("expected -cat or -cathidpicheck, and pictures"));
    }
    let mut pages = Vec::new();
    for source in &sources {
        let bytes = read(source)?;
        let found = match png::is_png(&bytes) {
            true => png::page(&bytes).map(|page| vec![page]),
            false => tiff::pages(&bytes),
        };
        pages.extend(found.map_err(|error| error.in_file(source))?);
    }
    if check {
        let [one, two] = &mut pages[..] else {
            return Err(refused("-cathidpicheck: expected two pictures"));
        };
        let (small, large) = (one.size(), two.size());
        if (small.0.checked_mul(2), small.1.checked_mul(2)) != (Some(large.0), Some(large.1)) {
            let message = format!(
                "{} x {} pixels: expected twice those of the first picture, {} x {}",
                large.0, large.1, small.0, small.1
            );
            let error = Error::invalid(LAYER, message);
            return Err(error.in_file(sources[sources.len() - 1]).into());
        }
        one.set_resolution(POINTS);
        two.set_resolution(2 * POINTS);
    }
    let bytes = tiff::file(&mut pages).map_err(|error| error.in_file(&out))?;
    let mut file = NewFile::create(&out, true)?;
    file.write_all(&bytes)
        .map_err(|error| Error::io(LAYER, "write", error).in_file(&out))?;
    Ok(file.finish()?)
}

/// Prints properties of pictures.
pub(super) fn sips(words: &[String], out: &mut Vec<u8>) -> Outcome {
    let (mut wanted, mut files) = (Vec::new(), Vec::new());
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-g" | "--getProperty" => match value(word, &mut words)? {
                property @ ("pixelWidth" | "pixelHeight") => wanted.push(property),
                other => return Err(refused(format!("{word}: {other} is not supported"))),
            },
            word if word.starts_with('-') => return Err(unknown(word)),
            file => files.push(Path::new(file)),
        }
    }
    if wanted.is_empty() || files.is_empty() {
        return Err(refused(
            "expected -g pixelWidth or -g pixelHeight, and a picture",
        ));
    }
    for file in files {
        let bytes = read(file)?;
        let size = match png::is_png(&bytes) {
            true => png::size(&bytes),
            false => tiff::pages(&bytes).and_then(|pages| {
                let first = pages.first();
                Ok(first
                    .ok_or_else(|| Error::unsupported(LAYER, "no pages"))?
                    .size())
            }),
        };
        let (width, height) = size.map_err(|error| error.in_file(file))?;
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        writeln!(out, "{}", path.display())?;
        for property in &wanted {
            let number = if *property == "pixelWidth" {
                width
            } else {
                height
            };
            writeln!(out, "  {property}: {number}")?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let failed = |error| Error::io(LAYER, "read", error).in_file(path);
    if path.metadata().map_err(failed)?.len() > MAX_BYTES {
        let error = Error::limit(LAYER, format!("longer than {MAX_BYTES} bytes"));
        return Err(error.in_file(path).into());
    }
    Ok(std::fs::read(path).map_err(failed)?)
}
