//! A small command that reads images with the library: on any system, Windows too.
//!
//! ```text
//! reader info|ls|cat|check|checksum IMAGE[:VOLUME][:/PATH]
//! reader extract IMAGE[:VOLUME][:/PATH] FOLDER
//! reader convert IMAGE NEW FORMAT
//! ```
//!
//! The passphrase of an encrypted image is the value of `READER_PASSPHRASE`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bandsaw::address::Address;
use bandsaw::crypt::Secret;
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt, Fork};
use bandsaw::open::{self, Image, Keys, OpenOptions};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::export::{FolderOptions, to_folder};
use bandsaw::progress::Silent;
use bandsaw::{Error, Result};

const PIECE: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("reader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[OsString]) -> Result<ExitCode> {
    let usage = || {
        Error::invalid(
            "reader",
            "expected a verb, an image, and what the verb needs",
        )
    };
    let [verb, address, rest @ ..] = words else {
        return Err(usage());
    };
    let address = Address::parse_os(address, &|path| path.exists())?;
    let secret = std::env::var("READER_PASSPHRASE").map(|text| Secret::new(text.into_bytes()));
    let options = OpenOptions {
        keys: secret.as_ref().ok().map(|secret| secret as &dyn Keys),
        ..OpenOptions::default()
    };
    let path = address.image.as_path();
    match (verb.to_str(), rest) {
        (Some("check"), []) => return check(path, &options),
        (Some("info"), []) => info(&open::open(path, &options)?),
        (Some("checksum"), []) => {
            let image = open::open(path, &options)?;
            println!("{}", checksum(&**image.disk(), Algorithm::Sha256, &Silent)?);
            Ok(())
        }
        (Some("ls"), []) => list(&open::open(path, &options)?, &address),
        (Some("cat"), []) => print(&open::open(path, &options)?, &address),
        (Some("extract"), [folder]) => extract(&open::open(path, &options)?, &address, folder),
        (Some("convert"), [new, format]) => {
            let chosen = ConvertOptions {
                format: format.to_str().ok_or_else(usage)?.parse()?,
                ..ConvertOptions::default()
            };
            let image = open::open(path, &options)?;
            convert(&image, Path::new(new), &chosen, &Silent).map(drop)
        }
        _ => Err(usage()),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn info(image: &Image) -> Result<()> {
    println!("{} {} bytes", image.format(), image.disk().info().len);
    for number in 0..image.volumes().len() {
        let volume = image.volumes()[number].open()?.volume();
        println!("{} {}", volume.format, volume.name);
    }
    Ok(())
}

fn check(path: &Path, options: &OpenOptions<'_>) -> Result<ExitCode> {
    let found = open::examine(path, options, &Silent)?;
    for problem in found.problems.listed() {
        println!("{}: {}", problem.severity, problem.error);
    }
    println!("{}", found.conclusion().name());
    Ok(match found.conclusion() {
        open::Conclusion::Damaged | open::Conclusion::Unknown(_) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn volume(image: &Image, address: &Address) -> Result<Arc<dyn FileSystem>> {
    image.file_system(address.volume.as_ref())
}

fn list(image: &Image, address: &Address) -> Result<()> {
    let volume = volume(image, address)?;
    let folder = volume.resolve(address.path.as_deref().unwrap_or_default())?;
    for entry in volume.entries(folder.id)? {
        let mark = match entry.attributes.kind {
            FileKind::Folder => "/",
            FileKind::Symlink => "@",
            _ => "",
        };
        println!("{:>12} {}{mark}", entry.attributes.size, entry.name);
    }
    Ok(())
}

fn print(image: &Image, address: &Address) -> Result<()> {
    let volume = volume(image, address)?;
    let file = volume.resolve(address.path.as_deref().unwrap_or_default())?;
    let contents = volume.open(file.id, Fork::Data)?;
    let (len, mut at, mut buffer) = (contents.info().len, 0, vec![0; PIECE]);
    let mut out = io::stdout().lock();
    while at < len {
        let piece = &mut buffer[..(len - at).min(PIECE as u64) as usize];
        contents.read_at(at, piece)?;
        let failed = |source| Error::io("reader", "write", source);
        out.write_all(piece).map_err(failed)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn extract(image: &Image, address: &Address, folder: &OsStr) -> Result<()> {
    let volume = volume(image, address)?;
    let path = address.path.as_deref().unwrap_or_default();
    let options = FolderOptions::default();
    let done = to_folder(&*volume, path, Path::new(folder), &options, &Silent)?;
    for error in done.notes.iter().chain(&done.problems) {
        eprintln!("reader: {error}");
    }
    println!("{} files, {} folders", done.files, done.folders);
    Ok(())
}
