//! `bless`: the folder that opens when a volume is mounted.

use std::path::Path;

use bandsaw::Error;

use super::{refused, unknown, value};
use crate::failure::Outcome;

pub(super) fn run(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut words = words.iter().map(String::as_str);
    let mut folders = Vec::new();
    while let Some(word) = words.next() {
        match word.trim_start_matches('-') {
            "folder" | "openfolder" if word.starts_with('-') => {
                folders.push(value(word, &mut words)?);
            }
            _ => return Err(unknown(word)),
        }
    }
    if folders.is_empty() {
        return Err(refused("--folder or --openfolder is required"));
    }
    for folder in folders {
        if !Path::new(folder).is_dir() {
            return Err(Error::not_found("folder", folder).into());
        }
    }
    // The header of a mounted volume cannot be changed, and no Mac with an Apple processor reads it.
    eprintln!("bless: without effect: a volume is not made to open when it is mounted");
    Ok(())
}
