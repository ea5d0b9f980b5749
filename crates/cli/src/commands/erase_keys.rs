//! `bandsaw erase-keys`: makes an encrypted image unreadable.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use bandsaw::address::{ImagePath, shown};
use bandsaw::device::Access;
use bandsaw::open::KeyFile;
use bandsaw::{Error, Kind};
use clap::{ArgAction, Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::source;

/// Erase the keys of an encrypted image, permanently
///
/// The encrypted data stays, but nobody can decrypt it any more. The command asks twice. Copies of
/// the image or of its header still open, and an SSD or a file system with snapshots may keep the
/// overwritten blocks for a while.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw erase-keys Secret.dmg               asks two questions
  bandsaw erase-keys --yes --yes Secret.dmg   asks nothing, for scripts")]
pub(crate) struct EraseKeys {
    /// The encrypted image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: OsString,
    /// Answer one of the two questions with yes
    #[arg(long, action = ArgAction::Count)]
    pub(crate) yes: u8,
}

/// The output of `--json`.
#[derive(Serialize)]
struct EraseKeysReport {
    path: String,
    erased_key_slots: usize,
}

impl EraseKeys {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let Some(file) = KeyFile::open(
            Path::new(&image),
            Access::ReadWrite,
            NetworkArgs::default().options(),
        )?
        else {
            return Err(
                Error::invalid("erase-keys", "the image is not encrypted and has no keys")
                    .in_file(image)
                    .into(),
            );
        };
        file.check_erasable()?;
        let erased = file.description().key_slots.len();
        self.make_sure(&image)?;
        file.erase_keys()?;
        output.warn("copies of the image or its header can still be opened");
        let report = EraseKeysReport {
            path: image.to_string(),
            erased_key_slots: erased,
        };
        output.done(&report, |out| {
            writeln!(out, "the keys of {} are erased", output.name(&report.path))
        })
    }

    /// Asks two questions on the terminal, one less for each `--yes`.
    fn make_sure(&self, image: &ImagePath) -> Outcome {
        let name = Path::new(image)
            .file_name()
            .map_or_else(|| image.to_string(), shown);
        let questions = [
            (
                format!(
                    "Nobody will be able to decrypt {name} again, even with its passphrase. Erase its keys? [yes/no] "
                ),
                "yes",
            ),
            ("Type the name of the image to continue: ".to_owned(), &name),
        ];
        for (question, answer) in questions.iter().skip(usize::from(self.yes)) {
            if !io::stdin().is_terminal() {
                let failure = Failure::usage("erase-keys", "confirmation requires a terminal");
                return Err(failure
                    .in_file(image)
                    .hint("use --yes --yes to answer both questions"));
            }
            if prompt(question)? != *answer {
                let message = format!("nothing was erased: the answer was not {answer:?}");
                let error = Error::new(Kind::Undecided, "erase-keys", message);
                return Err(error.in_file(image).into());
            }
        }
        Ok(())
    }
}

fn prompt(question: &str) -> io::Result<String> {
    let mut answer = String::new();
    write!(io::stderr(), "{question}")?;
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim_end_matches('\n').to_owned())
}
