//! `bandsaw xattr`: extended attributes.

use std::ffi::OsString;
use std::io::{self, Read};

use bandsaw::fs::FileSystemMutExt;
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::ImageLocation;

/// The longest value taken from standard input.
const MAX_VALUE_LEN: u64 = 1 << 30;

/// List, set and remove extended attributes
///
/// The Finder's information and the resource fork are the attributes com.apple.FinderInfo and
/// com.apple.ResourceFork. `bandsaw cat --xattr NAME` prints the value of an attribute.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw xattr Docs.sparsebundle:/a.txt                                    list names and sizes
  bandsaw xattr --set com.example.color=blue Docs.sparsebundle:/a.txt
  bandsaw xattr --set com.apple.ResourceFork disk.img:/Icon < icon.rsrc     from a file
  bandsaw xattr --remove com.apple.quarantine disk.img:/App")]
pub(crate) struct Xattr {
    /// The file or folder: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Set an attribute; without =VALUE from standard input
    #[arg(long, value_name = "NAME[=VALUE]")]
    set: Option<String>,
    /// Remove an attribute
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    remove: Option<String>,
    #[command(flatten)]
    opening: ChangeArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct XattrReport {
    /// The image.
    path: String,
    volume_path: String,
    xattrs: Vec<Fact>,
}

#[derive(Serialize)]
struct Fact {
    name: String,
    size: u64,
}

impl Xattr {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses([self.address.as_os_str()])?;
        if let Some(name) = &self.remove {
            return change::report(&address, &self.opening, output, |fs| {
                let id = change::resolve(fs, &paths[0])?.id;
                let path = if paths[0].is_empty() { "/" } else { &paths[0] };
                fs.remove_xattr(id, name)
                    .map_err(|error| match error.kind() {
                        Kind::NotFound => {
                            let message = format!("has no attribute {name}");
                            Error::new(Kind::NotFound, "xattr", message)
                                .because(Reason::NoSuchAttribute)
                                .named(path)
                        }
                        _ => error.named(format!("{path}: {name}")),
                    })?;
                Ok(vec![ChangeItem {
                    name: Some(name.clone()),
                    ..ChangeItem::new(Action::XattrRemoved, &paths[0])
                }])
            });
        }
        if let Some(set) = &self.set {
            let (name, value) = match set.split_once('=') {
                Some((name, value)) => (name, value.as_bytes().to_vec()),
                None => (&**set, input()?),
            };
            return change::report(&address, &self.opening, output, |fs| {
                fs.set_xattr_bytes(change::resolve(fs, &paths[0])?.id, name, &value)?;
                Ok(vec![ChangeItem {
                    name: Some(name.to_owned()),
                    size: Some(value.len() as u64),
                    ..ChangeItem::new(Action::XattrSet, &paths[0])
                }])
            });
        }
        self.list(output)
    }

    fn list(&self, output: &Output) -> Outcome {
        let address = change::address(&self.address)?;
        let place = ImageLocation::open(&address, &self.opening, output)?;
        let id = place.attributes.id;
        let mut xattrs = Vec::new();
        for name in place.fs.xattrs(id)? {
            let size = place
                .fs
                .xattr(id, &name)?
                .map_or(0, |value| value.info().len);
            xattrs.push(Fact { name, size });
        }
        let facts = XattrReport {
            path: address.image.to_string(),
            volume_path: place.shown_path().to_owned(),
            xattrs,
        };
        output.result(&facts, |out| {
            facts
                .xattrs
                .iter()
                .try_for_each(|fact| writeln!(out, "{:>10} {}", fact.size, output.name(&fact.name)))
        })
    }
}

fn input() -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    let read = io::stdin().take(MAX_VALUE_LEN + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::from(Error::io("xattr", "read standard input", error)))?;
    match value.len() as u64 > MAX_VALUE_LEN {
        true => Err(Error::limit(
            "xattr",
            format!("standard input has more than {MAX_VALUE_LEN} bytes"),
        )
        .into()),
        false => Ok(value),
    }
}
