//! `bandsaw put`: standard input or a host file, written to a file of a volume.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::device::AfterDiscard;
use bandsaw::fs::{
    ExistingTarget, FileKind, FileSystemMut, Fork, NewKind, NewNode, NodeId, UnlinkedFile,
};
use bandsaw::ops::compress::compress_one;
use bandsaw::progress::Progress;
use bandsaw::{Error, Reason};
use clap::{Args, ValueHint};

use crate::change::{self, Action, ChangeArgs, ChangeItem};
use crate::compression_args::LevelCompressionArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;

/// The size of a read and write.
const PIECE: usize = 1 << 20;

/// Write a file of a volume from standard input or a file
///
/// This is the counterpart of `bandsaw cat`. A file that is replaced keeps its old contents until
/// the new contents are complete. `bandsaw cp` also copies permissions, dates and attributes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo hello | bandsaw put Docs.sparsebundle:/hello.txt
  bandsaw put --from new.conf --overwrite disk.img:/etc/some.conf")]
pub(crate) struct Put {
    /// The file to write: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    from: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    /// Set the permissions of the file, in octal
    #[arg(long, short, value_name = "MODE", value_parser = crate::text::mode, default_value = "644")]
    mode: u16,
    #[command(flatten)]
    compressing: LevelCompressionArgs,
    #[command(flatten)]
    opening: ChangeArgs,
}

impl Put {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses([self.address.as_os_str()])?;
        let mut input = self.input()?;
        let bar = Bar::new(output);
        change::report(&address, &self.opening, output, |fs| {
            self.put(fs, &paths[0], &mut input, &bar)
                .map(|done| vec![done])
        })
    }

    fn input(&self) -> Outcome<Box<dyn Read>> {
        let failed = |path: &Path, error| Error::io("put", "open", error).in_file(path);
        match &self.from {
            Some(path) if path.is_dir() => Err(Failure::from(
                Error::invalid("--from", "is a folder, expected a file").in_file(path),
            )
            .hint("use `bandsaw cp -R` to copy folders")),
            Some(path) => Ok(Box::new(
                File::open(path).map_err(|error| failed(path, error))?,
            )),
            None if io::stdin().is_terminal() => {
                Err(Failure::usage("--from", "standard input is a terminal")
                    .hint("pipe data to it, or name a file"))
            }
            None => Ok(Box::new(io::stdin())),
        }
    }

    fn put(
        &self,
        fs: &Arc<dyn FileSystemMut>,
        path: &str,
        input: &mut dyn Read,
        bar: &Bar,
    ) -> Outcome<ChangeItem> {
        let (folder, name) = change::parent(fs, path)?;
        let there = fs.lookup(folder, &name)?;
        let action = if there.is_some() {
            Action::Replaced
        } else {
            Action::Created
        };
        if there.is_some() && !self.overwrite {
            let exists = Error::conflict("put", "already exists").because(Reason::Exists);
            return Err(Failure::from(exists.named(path)).hint_if_exists(false));
        }
        if there.is_some_and(|there| there.kind == FileKind::Folder) {
            return Err(Error::conflict("put", "is a folder and cannot be replaced")
                .named(path)
                .into());
        }
        let (nameless, id) = UnlinkedFile::new(
            &**fs,
            &NewNode {
                mode: self.mode,
                ..NewNode::new(NewKind::File)
            },
        )?;
        let size = fill(fs, id, input, bar)?;
        self.compress(fs, id, path, bar)?;
        let existing = if self.overwrite {
            ExistingTarget::Replace
        } else {
            ExistingTarget::Error
        };
        nameless
            .link_unlinked(folder, &name, existing)
            .map_err(|error| error.named(path))?;
        Ok(ChangeItem {
            size: Some(size),
            ..ChangeItem::new(action, path)
        })
    }

    /// Compresses the new file, if requested.
    fn compress(&self, fs: &Arc<dyn FileSystemMut>, id: NodeId, path: &str, bar: &Bar) -> Outcome {
        if let Some(options) = self.compressing.options()? {
            let file = fs.attributes(id)?;
            bar.stage("compress", file.size);
            compress_one(&**fs, path.to_owned(), &file, &options, bar)?;
        }
        Ok(())
    }
}

/// Writes the contents and returns their size.
fn fill(fs: &Arc<dyn FileSystemMut>, id: NodeId, input: &mut dyn Read, bar: &Bar) -> Outcome<u64> {
    let file = fs.open_mut(id, Fork::Data)?;
    let progress: &dyn Progress = bar;
    bar.stage("write", 0);
    let (mut at, mut piece) = (0, vec![0; PIECE]);
    loop {
        progress.check()?;
        let mut filled = 0;
        while filled < piece.len() {
            match input.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("put", "read", error).into()),
            }
        }
        if filled == 0 {
            return Ok(at);
        }
        file.set_len(at + filled as u64, AfterDiscard::Any)?;
        file.write_at(at, &piece[..filled])?;
        at += filled as u64;
        bar.advance(filled as u64);
    }
}
