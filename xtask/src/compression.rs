//! `cargo xtask compression`: what compressing files in a volume saves and costs, on files like those that an article about it on
//! macOS measured, in a table beside its figures (`docs/compression.md`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::decmpfs::{Method, Packing};
use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{FileSystem, FileSystemExt, Fork};
use bandsaw::open::{OpenOptions, open};
use bandsaw::ops::compress::{CompressOptions, FileReport};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;

use crate::bench::decmpfs::text;

/// Measure the article's five files and write `docs/compression.md`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to work in, with 1.5 GB free.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Readings of each file, of which the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Where to write the table; `-` prints it only.
    #[arg(long, default_value = "docs/compression.md")]
    report: String,
}

/// Bytes read in one go.
const REQUEST: u64 = 1 << 20;

/// A file of the article: its name here, its length, what the article says of its saving and of reading it compressed.
const FILES: [(&str, usize, &str, &str); 5] = [
    ("text of 80 bytes", 80, "in the attribute", "faster"),
    ("program of 8 KB", 8_192, "in the attribute", "faster"),
    ("text of 45 KB", 45_000, "in the fork", "0.74 of the speed"),
    ("PDF of 5.2 MB", 5_168_509, "27.7 %", "6.4 times the speed"),
    ("PDF of 404 MB", 404_000_000, "Apple's tool refused it", "faster"),
];

/// What a file is made of.
fn contents(name: &str, len: usize) -> Vec<u8> {
    match name.split(' ').next() {
        Some("text") => text(len),
        Some("program") => program(len),
        _ => pdf(len),
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Instructions: opcodes that are often the same, small operands, and a table of strings.
fn program(len: usize) -> Vec<u8> {
    const OPCODES: [&[u8]; 6] =
        [&[0x48, 0x89, 0xE5], &[0x48, 0x8B, 0x45], &[0xE8], &[0x0F, 0x84], &[0x48, 0x83, 0xEC], &[0x89, 0x45, 0xFC]];
    let mut state = 0x9E37_79B9_7F4A_7C15;
    let mut code = Vec::with_capacity(len + 8);
    while code.len() < len * 3 / 4 {
        let draw = random(&mut state);
        code.extend(OPCODES[(draw % 6) as usize]);
        code.extend(&(draw >> 32).to_le_bytes()[..(draw >> 8) as usize % 3]);
    }
    code.extend(text(len));
    code.truncate(len);
    code
}

/// Streams that are compressed already, objects and a table of references between them: three quarters of the one, a quarter of the
/// others, as in the article's file.
fn pdf(len: usize) -> Vec<u8> {
    let mut state = 0xD1B5_4A32_D192_ED03;
    let mut pdf = b"%PDF-1.4\n".to_vec();
    pdf.reserve(len + 70_000);
    let mut number = 0;
    while pdf.len() < len {
        let stream = 20_000 + random(&mut state) as usize % 40_000;
        let _ = write_object(&mut pdf, number, stream);
        pdf.extend((0..stream / 8).flat_map(|_| random(&mut state).to_le_bytes()));
        let described = pdf.len() + stream * 2 / 5;
        while pdf.len() < described {
            number += 1;
            let _ = write_object(&mut pdf, number, random(&mut state) as usize % 1000);
        }
    }
    pdf.truncate(len);
    pdf
}

fn write_object(pdf: &mut Vec<u8>, number: usize, len: usize) -> std::io::Result<()> {
    use std::io::Write;
    write!(pdf, "{number} 0 obj\n<< /Type /XObject /Subtype /Image /Length {len} /Filter /FlateDecode >>\nstream\n")
}

/// An image with all files, compressed or not, and what was said of them.
fn image(dir: &Path, name: &str, method: Option<Method>) -> Result<(PathBuf, Vec<FileReport>)> {
    let path = dir.join(name);
    let volume = NewVolume {
        layout: Layout::None,
        name: "Article".to_owned(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: Source::Folder(dir.join("files")),
    };
    let compress = match method {
        Some(method) => Some(CompressOptions::new(Packing::new(method, Level::new(5)?)?)),
        None => None,
    };
    let options =
        CreateOptions { format: Format::Udrw, volume: Some(volume), compress, overwrite: true, ..CreateOptions::default() };
    let made = create(&path, options, &Silent)?;
    Ok((path, made.compressed))
}

/// Seconds that it takes to open a file and read it to the end, in the middle of some readings.
fn read(fs: &dyn FileSystem, name: &str, rounds: usize) -> Result<f64> {
    let mut seconds = Vec::new();
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        let file = fs.open(fs.resolve(&format!("/{name}"))?.id, Fork::Data)?;
        let len = file.info().len;
        for at in (0..len).step_by(REQUEST as usize) {
            std::hint::black_box(file.read_vec(at, REQUEST.min(len - at) as usize)?);
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("bandsaw-compression").tempdir_in(&args.dir).context("scratch folder")?;
    let dir = scratch.path();
    std::fs::create_dir(dir.join("files"))?;
    for (name, len, ..) in FILES {
        std::fs::write(dir.join("files").join(name), contents(name, len))?;
    }
    let (plain, _) = image(dir, "plain.img", None)?;
    let plain = open(&plain, &OpenOptions::default())?.file_system(None)?;
    let mut out = String::from(HEAD);
    for method in [Method::Zlib, Method::Lzvn, Method::Lzfse] {
        let (packed, reports) = image(dir, "packed.img", Some(method))?;
        let packed = open(&packed, &OpenOptions::default())?.file_system(None)?;
        writeln!(out, "\n## {method}{}\n", if method == Method::Zlib { ", level 5" } else { "" })?;
        writeln!(
            out,
            "| file | bytes | type | on the volume, plain | compressed | saved | read plain | read compressed | speed | the article: saved | read |"
        )?;
        writeln!(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |")?;
        for (name, len, saved, speed) in FILES {
            let report = reports.iter().find(|report| report.path == format!("/{name}")).context("a report")?;
            ensure!(report.size == len as u64, "{name} has {} bytes", report.size);
            let kind = report.number.map_or_else(|| "plain".to_owned(), |number| number.to_string());
            let (before, after) = (report.before as f64, report.after as f64);
            let (slow, fast) = (read(&*plain, name, args.rounds)?, read(&*packed, name, args.rounds)?);
            writeln!(
                out,
                "| {name} | {len} | {kind} | {} | {} | {:.1} % | {} | {} | {:.2} | {saved} | {speed} |",
                report.before,
                report.after,
                100.0 * (1.0 - after / before),
                milliseconds(slow),
                milliseconds(fast),
                slow / fast
            )?;
        }
        drop(packed);
        std::fs::remove_file(dir.join("packed.img"))?;
    }
    out.push_str(TAIL);
    match args.report.as_str() {
        "-" => print!("{out}"),
        path => std::fs::write(path, out)?,
    }
    Ok(())
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}

const HEAD: &str = "\
# Compressed files: what it saves, what it costs

Written by `cargo xtask compression`. An article about transparent compression on macOS measured five files on an HFS+ volume of a
5,400 rpm disk, the cache emptied before each reading. Here are five files like these, generated: words, instructions, and PDFs three
quarters of which is compressed already. They lie in a volume that `bandsaw create --from FOLDER --compress TYPE` built on a file system
in memory. \"On the volume\" is whole blocks of 4096 bytes and what is in the attribute. Times are those of finding, opening and
reading a file once through the library, warm.
";

const TAIL: &str = "
What to take from it: a disk that had to seek was slower than the decoder, so that compressed files were *faster* to read in the
article. Memory is faster than any decoder, so that here they are slower: this shows what the processor pays, the article what
the disk saves. On a disk that reads more slowly than the decoder decodes, the article's order holds. The article's tool
refused the file of 404 MB; the limit of ours is 4 GiB, above which macOS fails.
";
