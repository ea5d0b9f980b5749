//! Programs of macOS beside `hdiutil` that release scripts call.
//!
//! Called by a link of its name, `bandsaw` behaves as the program does, on files of the host and of
//! mounted volumes alike. Options that a program does not have here are refused: a script that
//! relies on one must not go on. Without the feature `shims`, only those that are verbs of `bandsaw` are here.

#[cfg(feature = "shims")]
mod bless;
#[cfg(feature = "shims")]
mod codesign;
#[cfg(feature = "shims")]
mod ditto;
#[cfg(feature = "shims")]
mod finder_info;
#[cfg(feature = "shims")]
mod osascript;
#[cfg(feature = "shims")]
mod pictures;
#[cfg(feature = "shims")]
mod rez;
#[cfg(feature = "shims")]
mod set_file;
#[cfg(feature = "shims")]
mod sw_vers;
#[cfg(feature = "shims")]
mod xattr;

use std::ffi::{OsStr, OsString};
#[cfg(feature = "shims")]
use std::io::Write;
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind};

#[cfg(feature = "shims")]
use crate::failure::Failure;
use crate::failure::Outcome;
use crate::hdiutil::{self, AppleCli};

/// A program.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) name: &'static str,
    /// The supported part, in a line.
    pub(crate) says: &'static str,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    /// A program of the hdiutil emulation, with these words before its own.
    Apple(AppleCli, &'static [&'static str]),
    /// Reads its words and writes its output.
    #[cfg(feature = "shims")]
    Own(fn(&[String], &mut Vec<u8>) -> Outcome),
}

/// Every program, by name.
pub(crate) const SHIMS: &[Shim] = &[
    #[cfg(feature = "shims")]
    Shim {
        name: "DeRez",
        says: "resources of a file or of an image as text",
        run: Run::Own(rez::derez),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "GetFileInfo",
        says: "type, creator, attributes and dates of a file",
        run: Run::Own(set_file::get),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "Rez",
        says: "adds licenses to an image, icons to a file",
        run: Run::Own(rez::rez),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "SetFile",
        says: "-a, -c and -t: attributes, creator and type",
        run: Run::Own(set_file::set),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "bless",
        says: "--folder and --openfolder, without effect",
        run: Run::Own(bless::run),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "codesign",
        says: "--verify (hashes), --display and --remove-signature of images",
        run: Run::Own(codesign::run),
    },
    Shim {
        name: "diskutil",
        says: "image, list, info, eject, unmount, mount",
        run: Run::Apple(AppleCli::Diskutil, &[]),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "ditto",
        says: "copies files and folders with their attributes; zip archives (-c -k, -x -k)",
        run: Run::Own(ditto::run),
    },
    Shim {
        name: "hdid",
        says: "hdiutil attach",
        run: Run::Apple(AppleCli::Hdiutil, &["attach"]),
    },
    Shim {
        name: "hdiutil",
        says: "disk images; see `hdiutil help`",
        run: Run::Apple(AppleCli::Hdiutil, &[]),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "osascript",
        says: "AppleScripts that lay out the window of a volume",
        run: Run::Own(osascript::run),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "sips",
        says: "-g pixelWidth and pixelHeight of PNG and TIFF",
        run: Run::Own(pictures::sips),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "sw_vers",
        says: "a version of macOS",
        run: Run::Own(sw_vers::run),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "tiffutil",
        says: "-cathidpicheck and -cat: pictures in one TIFF",
        run: Run::Own(pictures::tiffutil),
    },
    #[cfg(feature = "shims")]
    Shim {
        name: "xattr",
        says: "extended attributes: -l, -p, -w, -d, -c, -r, -s, -v, -x",
        run: Run::Own(xattr::run),
    },
];

/// Returns the program of this name.
pub(crate) fn of(program: Option<&OsStr>) -> Option<&'static Shim> {
    let name = Path::new(program?).file_name()?;
    SHIMS.iter().find(|shim| name == shim.name)
}

/// Runs a program with these arguments, and returns its exit code.
pub(crate) fn run(shim: &Shim, words: &[OsString]) -> u8 {
    match shim.run {
        Run::Apple(tool, first) => {
            let first = first.iter().map(OsString::from);
            hdiutil::run(
                tool,
                &first.chain(words.iter().cloned()).collect::<Vec<_>>(),
            )
        }
        #[cfg(feature = "shims")]
        Run::Own(own) => {
            let mut out = Vec::new();
            let done = texts(words).and_then(|words| own(&words, &mut out));
            // Output before a failure is kept, as by programs that print while they run.
            let printed = std::io::stdout().lock().write_all(&out);
            match done.and_then(|()| Ok(printed?)) {
                Ok(()) => 0,
                Err(failure) => {
                    eprintln!("{}: {}", shim.name, failure.message());
                    1
                }
            }
        }
    }
}

/// Makes a link for each program in `folder`, which is made if it is missing. Returns the links that
/// are new. Links to this program are left; any other file of such a name is an error.
pub(crate) fn install(folder: &Path, program: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |path: &Path, error| Error::io("shims", "make a link", error).in_file(path);
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut missing = Vec::new();
    for shim in SHIMS {
        let link = folder.join(shim.name);
        match std::fs::read_link(&link) {
            Ok(target) if target == program => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push(link),
            _ => {
                let message = "already exists, and is not a link to this program";
                return Err(Error::new(Kind::Conflict, "shims", message)
                    .in_file(&link)
                    .into());
            }
        }
    }
    for link in &missing {
        std::os::unix::fs::symlink(program, link).map_err(|error| failed(link, error))?;
    }
    Ok(missing)
}

#[cfg(feature = "shims")]
fn texts(words: &[OsString]) -> Outcome<Vec<String>> {
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let all: Option<Vec<_>> = words.iter().map(text).collect();
    all.ok_or_else(|| refused("the arguments are not UTF-8"))
}

/// Returns an error about the arguments.
#[cfg(feature = "shims")]
fn refused(message: impl Into<String>) -> Failure {
    Failure::usage("arguments", message.into())
}

/// Returns the error about an option that is not known, or has no effect here.
#[cfg(feature = "shims")]
fn unknown(option: &str) -> Failure {
    refused(format!("{option} is not supported"))
}

/// Returns the value of `option`, which is the next word.
#[cfg(feature = "shims")]
fn value<'a>(option: &str, words: &mut impl Iterator<Item = &'a str>) -> Outcome<&'a str> {
    words
        .next()
        .ok_or_else(|| refused(format!("{option} requires a value")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        assert!(SHIMS.is_sorted_by_key(|shim| shim.name));
        for shim in SHIMS {
            let path = format!("/usr/bin/{}", shim.name);
            assert_eq!(
                of(Some(path.as_ref())).map(|shim| shim.name),
                Some(shim.name)
            );
        }
        assert!(of(Some("bandsaw".as_ref())).is_none());
    }
}
