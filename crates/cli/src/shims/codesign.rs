//! `codesign`, as far as an image needs no key.

use std::path::Path;
use std::sync::Arc;

use bandsaw::container::udif::Udif;
use bandsaw::open::OpenOptions;
use bandsaw::ops::resources::{EditOptions, edit};
use bandsaw::progress::Silent;
use bandsaw::store::{LocalFile, Open};
use bandsaw::{Error, Kind};

use super::{refused, unknown};
use crate::failure::Outcome;

const LAYER: &str = "code signature";

#[derive(Debug, Clone, Copy)]
enum Verb {
    Verify,
    Display,
    Remove,
}

pub(super) fn run(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut verb = None;
    let mut images = Vec::new();
    for word in words {
        match word.as_str() {
            "--remove-signature" => verb = Some(Verb::Remove),
            "-d" | "--display" => verb = Some(Verb::Display),
            "--verify" => verb = Some(Verb::Verify),
            // Alone it is a verb, too.
            "-v" => verb = verb.or(Some(Verb::Verify)),
            // An image contains no other code that is signed.
            "--deep" | "--strict" => {}
            word if word.starts_with("--verbose") || word.starts_with("-vv") => {}
            "-s" | "--sign" => {
                return Err(refused(
                    "signing is not supported; use `rcodesign sign` (crate apple-codesign)",
                ));
            }
            word if word.starts_with('-') => return Err(unknown(word)),
            image => images.push(Path::new(image)),
        }
    }
    let Some(verb) = verb.filter(|_| !images.is_empty()) else {
        return Err(refused(
            "expected --verify, --display or --remove-signature, and an image",
        ));
    };
    images.into_iter().try_for_each(|image| match verb {
        Verb::Remove => remove(image),
        Verb::Verify => verify(image),
        Verb::Display => display(image),
    })
}

fn remove(image: &Path) -> Outcome {
    let options = EditOptions {
        remove_signature: true,
        ..EditOptions::default()
    };
    let opening = OpenOptions::default();
    Ok(edit(image, &options, &opening, &Silent, |_| Ok(()))?)
}

fn open(image: &Path) -> Outcome<Udif> {
    let file = LocalFile::open(image, Open::Read)?;
    let file = file.ok_or_else(|| Error::not_found(LAYER, image.to_string_lossy()))?;
    Ok(Udif::open(Arc::new(file)).map_err(|error| error.in_file(image))?)
}

fn unsigned(image: &Path) -> Error {
    let message = "code object is not signed at all";
    Error::new(Kind::NotFound, LAYER, message).in_file(image)
}

/// Compares the hashes; certificates are not verified.
fn verify(image: &Path) -> Outcome {
    let udif = open(image)?;
    let signature = udif
        .code_signature()
        .map_err(|error| error.in_file(image))?;
    let signature = signature.ok_or_else(|| unsigned(image))?;
    match udif.verify_signature(&signature, &Silent)? {
        true => Ok(()),
        false => {
            let message = "invalid signature (code or signature have been modified)";
            Err(Error::new(Kind::Corrupt, LAYER, message)
                .in_file(image)
                .into())
        }
    }
}

/// Prints the contents of a signature to standard error, as the program does.
fn display(image: &Path) -> Outcome {
    let udif = open(image)?;
    let signature = udif
        .code_signature()
        .map_err(|error| error.in_file(image))?;
    let signature = signature.ok_or_else(|| unsigned(image))?;
    eprintln!("Executable={}", image.display());
    eprintln!("Identifier={}", signature.identifier);
    eprintln!("Format=disk image");
    eprintln!("Hash choices={}", signature.hashes.join(","));
    if !signature.certified {
        eprintln!("Signature=adhoc");
    }
    if signature.ticket {
        eprintln!("Notarization Ticket=stapled");
    }
    let team = signature.team.as_deref().unwrap_or("not set");
    eprintln!("TeamIdentifier={team}");
    Ok(())
}
