//! `sw_vers`: the version of macOS that scripts are told.

use std::io::Write as _;

use super::unknown;
use crate::failure::Outcome;

/// The name, the version and the build; scripts decide by the first number of the version.
const FACTS: [(&str, &str); 3] = [
    ("ProductName", "macOS"),
    ("ProductVersion", "14.0"),
    ("BuildVersion", "23A344"),
];

pub(super) fn run(words: &[String], out: &mut Vec<u8>) -> Outcome {
    if words.is_empty() {
        for (name, value) in FACTS {
            writeln!(out, "{name}:\t\t{value}")?;
        }
    }
    for word in words {
        let (_, value) = FACTS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word.trim_start_matches('-')))
            .filter(|_| word.starts_with('-'))
            .ok_or_else(|| unknown(word))?;
        writeln!(out, "{value}")?;
    }
    Ok(())
}
