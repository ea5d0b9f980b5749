//! `bandsaw touch`: file times and empty files.

use std::ffi::OsString;

use bandsaw::fs::{Change, NewKind, NewNode, Timestamp};
use bandsaw::{Error, Reason};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::failure::Outcome;
use crate::output::Output;

/// Change file times, and create missing files
///
/// The times of modification and of last access are set.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw touch Docs.sparsebundle:/new.txt                 set the current time
  bandsaw touch --date 1000000000 disk.img:/old.txt        2001-09-09 01:46:40 UTC")]
pub(crate) struct Touch {
    /// The files and folders, in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Set this time, in seconds since 1970-01-01 UTC
    ///
    /// The default is the current time.
    #[arg(long, short, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    date: Option<i64>,
    /// Do not create missing files
    #[arg(long, short = 'c')]
    no_create: bool,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Touch {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let date = Timestamp::from_seconds(self.date.unwrap_or_else(|| Timestamp::now().seconds));
        change::report(&address, &self.opening, output, |fs| {
            let mut touched = Vec::with_capacity(paths.len());
            for path in &paths {
                let mut action = Action::Touched;
                let id = match change::try_resolve(fs, path)? {
                    Some(found) => found.id,
                    None if self.no_create => {
                        return Err(Error::not_found("path", path)
                            .because(Reason::NoSuchPath)
                            .into());
                    }
                    None => {
                        let (folder, name) = change::parent(fs, path)?;
                        action = Action::Created;
                        fs.create(
                            folder,
                            &name,
                            &NewNode {
                                created: Some(date),
                                ..NewNode::new(NewKind::File)
                            },
                        )?
                    }
                };
                let change = Change {
                    modified: Some(date),
                    accessed: Some(date),
                    ..Change::default()
                };
                fs.set_attributes(id, &change)?;
                touched.push(ChangeItem::new(action, path));
            }
            Ok(touched)
        })
    }
}

fn seconds(text: &str) -> Result<i64, &'static str> {
    text.parse()
        .map_err(|_| "expected whole seconds since 1970-01-01 UTC, such as 1000000000 (`date +%s` prints them)")
}
