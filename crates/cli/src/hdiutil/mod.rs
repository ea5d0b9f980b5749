//! The emulation of Apple's `hdiutil`: its verbs, options, sizes, output and exit codes, for
//! programs that call it.
//!
//! Each verb is a file with the table of its options and its translation to operations of bandsaw.
//! [`table`] defines the tables, [`call`] parses arguments by them, [`doc`] prints them. Nothing
//! here knows a format.

mod attach;
mod call;
mod checksum;
mod chpass;
mod compact;
pub(crate) mod complete;
mod convert;
mod create;
mod detach;
mod diskinfo;
mod disks;
mod diskutil;
mod doc;
mod entities;
mod erasekeys;
mod flatten;
mod fsid;
mod help;
mod imageinfo;
mod info;
mod isencrypted;
mod makehybrid;
mod mountvol;
mod plist_values;
mod pmap;
mod refused;
mod resize;
mod segment;
mod size;
mod table;
mod udifderez;
mod udifrez;
mod verify;

use std::ffi::OsString;

use bandsaw::address::redacted;
use bandsaw::{Kind, Reason};

use self::call::{Call, usage};
use self::table::Verb;
use crate::failure::{Failure, Outcome};

/// Every verb, in the order of the manual.
const VERBS: &[&Verb] = &[
    &help::VERB,
    &create::VERB,
    &attach::VERB,
    &detach::VERB,
    &detach::UNMOUNT,
    &mountvol::VERB,
    &convert::VERB,
    &compact::VERB,
    &resize::VERB,
    &info::VERB,
    &imageinfo::VERB,
    &verify::VERB,
    &checksum::VERB,
    &isencrypted::VERB,
    &chpass::VERB,
    &erasekeys::VERB,
    &pmap::VERB,
    &fsid::VERB,
    &segment::VERB,
    &udifrez::VERB,
    &udifderez::VERB,
    &makehybrid::VERB,
    &flatten::FLATTEN,
    &flatten::UNFLATTEN,
    &refused::BURN,
    &refused::INTERNET_ENABLE,
    &refused::PLUGINS,
];

/// A program of Apple's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppleCli {
    Hdiutil,
    Diskutil,
}

impl AppleCli {
    /// Returns the program of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Hdiutil, Self::Diskutil]
            .into_iter()
            .find(|tool| tool.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hdiutil => "hdiutil",
            Self::Diskutil => "diskutil",
        }
    }
}

/// Runs the program with these arguments, and returns the exit code.
pub(crate) fn run(tool: AppleCli, words: &[OsString]) -> u8 {
    let words = match (tool, words) {
        (AppleCli::Hdiutil, words) => words,
        (AppleCli::Diskutil, [image, words @ ..]) if image == "image" => words,
        (AppleCli::Diskutil, words) => return call(tool, disks::VERBS, words),
    };
    call(
        tool,
        if tool == AppleCli::Hdiutil {
            VERBS
        } else {
            diskutil::VERBS
        },
        words,
    )
}

/// Runs one of these verbs.
fn call(tool: AppleCli, verbs: &[&'static Verb], words: &[OsString]) -> u8 {
    let Some((name, rest)) = words.split_first() else {
        eprintln!(
            "{}: a verb is required; run `bandsaw hdiutil help` to list them",
            tool.name()
        );
        return FAILED;
    };
    let name = name.to_string_lossy();
    let is_quiet = rest.iter().any(|word| word == "-quiet")
        && !rest
            .iter()
            .any(|word| word == "-verbose" || word == "-debug");
    match verb(tool, verbs, name.trim_start_matches('-')).and_then(|verb| dispatch(verb, rest)) {
        Ok(()) => 0,
        Err(failure) => {
            if !is_quiet {
                print(tool, &name, &failure);
            }
            let ends_use = ["detach", "eject", "unmount", "unmountDisk"]
                .contains(&name.trim_start_matches('-'));
            if ends_use && failure.kind() == Kind::Conflict {
                BUSY
            } else {
                FAILED
            }
        }
    }
}

/// The exit code of hdiutil for most failures.
const FAILED: u8 = 1;
/// The exit code of `detach` while a program uses a volume.
const BUSY: u8 = 16;

fn verb(tool: AppleCli, verbs: &[&'static Verb], name: &str) -> Outcome<&'static Verb> {
    let found = verbs.iter().find(|verb| {
        verb.names
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    });
    found.copied().ok_or_else(|| {
        Failure::usage(
            tool.name(),
            format!("unknown verb {name}; run `bandsaw hdiutil help` to list all"),
        )
    })
}

fn dispatch(verb: &'static Verb, words: &[OsString]) -> Outcome {
    match verb.run {
        Some(run) => run(&Call::parse(verb, words)?),
        None => Err(usage(verb.says.to_owned())),
    }
}

/// Prints the message of hdiutil, which programs look for, and then the more precise one of
/// bandsaw.
fn print(tool: AppleCli, verb: &str, failure: &Failure) {
    let verb = verb.trim_start_matches('-');
    let words = match failure.kind() {
        Kind::Conflict if ["detach", "eject", "unmount", "unmountDisk"].contains(&verb) => {
            "Resource busy"
        }
        Kind::Conflict if failure.is_reported() => "Resource temporarily unavailable",
        Kind::NotFound if failure.reason() == Some(Reason::NoVolumes) => attach::NOTHING_TO_MOUNT,
        Kind::Conflict => "File exists",
        Kind::NotFound => "No such file or directory",
        Kind::WrongKey => "Authentication error",
        Kind::Corrupt => "image data corrupted",
        Kind::ReadOnly => "Permission denied",
        Kind::Invalid | Kind::OutOfRange => "Invalid argument",
        Kind::Unsupported => "image not recognized",
        Kind::Limit => "File too large",
        Kind::Cancelled => "canceled",
        Kind::Undecided if verb == "erasekeys" => "canceled",
        _ => "Input/output error",
    };
    let words = if failure.reason() == Some(Reason::InUse) {
        "Resource temporarily unavailable"
    } else {
        words
    };
    let program = tool.name();
    eprintln!("{program}: {verb} failed - {words}");
    if !failure.is_reported() {
        let message = failure.message();
        // An error about the arguments has the name of the program already.
        let own = ["hdiutil: ", "diskutil: "]
            .into_iter()
            .find_map(|name| message.strip_prefix(name));
        eprintln!("{program}: {}", redacted(own.unwrap_or(&message)));
        if let Some(way_out) = failure.way_out() {
            eprintln!("{program}: {}", redacted(&way_out));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;
    use crate::args::Cli;
    use crate::commands::compact::Compact;
    use crate::commands::convert::Convert;
    use crate::commands::create::Create;
    use crate::commands::erase_keys::EraseKeys;
    use crate::commands::isencrypted::IsEncrypted;
    use crate::commands::resize::Resize;
    use crate::commands::segment::Segment;

    /// A verb that is made here has the defaults of the command line.
    #[test]
    fn verbs_have_the_defaults_of_the_command_line() {
        let image = || OsString::from("x");
        let (compact, resize) = (Compact::default(), Resize::default());
        let (convert, segment) = (Convert::default(), Segment::default());
        let (create, encrypted) = (Create::default(), IsEncrypted::default());
        let made = [
            format!(
                "{:?}",
                Compact {
                    image: image(),
                    ..compact
                }
            ),
            format!(
                "{:?}",
                Resize {
                    volume: image(),
                    ..resize
                }
            ),
            format!(
                "{:?}",
                Convert {
                    source: image(),
                    target: Some("y".into()),
                    ..convert
                }
            ),
            format!(
                "{:?}",
                Segment {
                    image: image(),
                    output: "y".into(),
                    size: Some(1),
                    ..segment
                }
            ),
            format!(
                "{:?}",
                Create {
                    image: "x".into(),
                    ..create
                }
            ),
            format!(
                "{:?}",
                IsEncrypted {
                    image: image(),
                    ..encrypted
                }
            ),
            format!(
                "{:?}",
                EraseKeys {
                    image: image(),
                    yes: 0
                }
            ),
        ];
        let parsed = [
            "compact x",
            "resize x",
            "convert x y",
            "segment x -o y --size 1",
            "create x",
            "isencrypted x",
            "erase-keys x",
        ];
        for (made, words) in made.into_iter().zip(parsed) {
            let words = ["bandsaw"].into_iter().chain(words.split(' '));
            let parsed = format!("{:?}", Cli::try_parse_from(words).unwrap().command);
            let (_, verb) = parsed.split_once('(').unwrap();
            assert_eq!(verb.strip_suffix(')'), Some(&*made));
        }
    }

    #[test]
    fn every_name_means_one_thing() {
        let mut verbs = BTreeSet::new();
        let tables = [VERBS, diskutil::VERBS, disks::VERBS];
        for (table, verb) in tables
            .iter()
            .enumerate()
            .flat_map(|(at, table)| table.iter().map(move |verb| (at, verb)))
        {
            assert!(
                verb.names
                    .iter()
                    .all(|name| verbs.insert((table, name.to_ascii_lowercase()))),
                "{:?}",
                verb.names
            );
            let rows = verb.options.iter().flat_map(|table| table.lines());
            let rows = rows.filter(|row| !row.is_empty()).count();
            assert_eq!(verb.options().count(), rows, "{}", verb.names[0]);
            let mut options = BTreeSet::new();
            for option in verb.options() {
                assert!(
                    option
                        .names
                        .iter()
                        .all(|name| options.insert(name.to_ascii_lowercase())),
                    "{}: {:?}",
                    verb.names[0],
                    option.names
                );
            }
        }
    }

    #[test]
    fn words_are_read_by_the_table() {
        let parse = |verb: &str, line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Call::parse(super::verb(AppleCli::Hdiutil, VERBS, verb).unwrap(), &words)
        };
        let call =
            parse("create", "-size 10g -ov -encryption AES-256 -fs HFS+ -imagekey a=1 -imagekey b=2 x.dmg -nospotlight").unwrap();
        assert_eq!(
            (call.value("size"), call.image(), call.value("encryption")),
            (Some("10g"), "x.dmg", Some("AES-256"))
        );
        assert_eq!(
            (call.key("imagekey", "a"), call.key("imagekey", "b")),
            (Some("1"), Some("2"))
        );
        let call = parse("CREATE", "-SrcFolder=src -noSpotlight x.dmg").unwrap();
        assert_eq!(
            (call.value("srcfolder"), call.image()),
            (Some("src"), "x.dmg")
        );
        let call = parse("create", "-size=1m -encryption x.dmg").unwrap();
        assert_eq!(
            (
                call.value("size"),
                call.value("encryption"),
                call.has("encryption")
            ),
            (Some("1m"), None, true)
        );
        let call = parse("convert", "x.dmg -form UDZO -o y -shadow z").unwrap();
        assert_eq!(
            (call.value("format"), call.value("shadow"), call.image()),
            (Some("UDZO"), Some("z"), "x.dmg")
        );
        let call = parse("imageinfo", "-shadow x.dmg").unwrap();
        assert_eq!((call.value("shadow"), call.image()), (None, "x.dmg"));
        for (verb, line) in [
            ("create", "-nonsense x"),
            ("create", "-size"),
            ("verify", "a b"),
            ("create", "-se 1 x"),
        ] {
            assert!(parse(verb, line).is_err(), "{verb} {line}");
        }
        let refused = parse("verify", "-agentpass x.dmg").unwrap_err().message();
        assert!(refused.contains("agent"), "{refused}");
    }
}
