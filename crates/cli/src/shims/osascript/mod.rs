//! `osascript`: the scripts with which create-dmg, tauri and others lay out the window of a volume.
//!
//! There is no Finder: [`run`](script) interprets the Finder's words for windows, views, icons and
//! their positions, and writes the `.DS_Store` that the Finder would write. Every other statement is
//! an error that names it.
//!
//! Source: the Finder's scripting dictionary, as the published scripts of callers use it.

mod expressions;
mod finder;
mod script;
mod tokens;
mod value;

use std::io::Read;

use bandsaw::Error;

use self::script::Script;
use super::{refused, unknown, value};
use crate::failure::Outcome;

/// The limit for scripts, which are short, in bytes.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn run(words: &[String], _: &mut Vec<u8>) -> Outcome {
    let mut words = words.iter().map(String::as_str).peekable();
    let mut lines: Vec<&str> = Vec::new();
    while let Some(word) = words.next_if(|word| word.starts_with('-') && *word != "-") {
        match word {
            "-e" => lines.push(value(word, &mut words)?),
            "-l" if value(word, &mut words)? == "AppleScript" => {}
            "-l" => return Err(refused("-l: only AppleScript is supported")),
            _ => return Err(unknown(word)),
        }
    }
    let text = if lines.is_empty() {
        match words.next() {
            None | Some("-") => read("-", std::io::stdin())?,
            Some(path) => {
                let file = std::fs::File::open(path)
                    .map_err(|error| Error::io("script", "open", error).in_file(path))?;
                read(path, file)?
            }
        }
    } else {
        lines.join("\n")
    };
    let arguments = words.map(str::to_owned).collect();
    Script::parse(&text)?.run(arguments)
}

fn read(path: &str, from: impl Read) -> Outcome<String> {
    let mut text = String::new();
    from.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| Error::io("script", "read", error).in_file(path))?;
    Ok(text)
}
