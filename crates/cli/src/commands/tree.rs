//! `bandsaw tree`: a folder of a volume as a tree.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::fs::{Ancestors, Attributes, Entry, FileKind, FileSystem};
use bandsaw::size;
use clap::{Args, ValueHint};

use crate::failure::Outcome;
use crate::node::{self, Node};
use crate::output::{Output, SCHEMA, Style};
use crate::source::{self, ImageLocation, OpenArgs};
use crate::text::counted;

/// Show a folder of a volume as a tree
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tree Docs.sparsebundle               the first readable volume
  bandsaw tree -L 2 Docs.sparsebundle:/Work    two levels of a folder
  bandsaw tree -s Docs.sparsebundle            with sizes in bytes")]
pub(crate) struct Tree {
    /// The folder to show: IMAGE[:VOLUME][:/PATH]
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Limit the depth of the tree
    #[arg(long, short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Show the size of every file in bytes
    #[arg(long, short)]
    sizes: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The totals below the root: folders, files (everything else), and bytes of regular files.
#[derive(Default)]
struct Totals {
    folders: u64,
    files: u64,
    bytes: u64,
}

impl Totals {
    fn add(&mut self, of: &Attributes) {
        if of.kind == FileKind::Folder {
            self.folders += 1;
        } else {
            self.files += 1;
        }
        if of.kind == FileKind::File {
            self.bytes = self.bytes.saturating_add(of.size);
        }
    }
}

impl Tree {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        let place = ImageLocation::open(&address, &self.opening, output)?;
        let volume = place.fs.volume().name;
        let name = if place.path.is_empty() {
            &volume
        } else {
            place.name()
        };
        if output.json() {
            return self.json(&address.image.to_string(), &place, name, output);
        }
        let mut out = output.stdout();
        writeln!(out, "{}", node::shown(output, name, place.attributes.kind))?;
        let mut totals = Totals::default();
        let (mut rails, mut lengths) = (String::new(), Vec::new());
        self.walk(&place, &mut totals, &mut |step| {
            match step {
                Step::Entry {
                    name,
                    attributes,
                    is_last,
                    depth,
                    ..
                } => {
                    let branch = output.paint(
                        Style::Dim,
                        &format!("{rails}{}", if is_last { "└── " } else { "├── " }),
                    );
                    writeln!(
                        out,
                        "{branch}{}",
                        self.line(&*place.fs, name, attributes, output)?
                    )?;
                    if self.goes_below(attributes, depth) {
                        lengths.push(rails.len());
                        rails.push_str(if is_last { "    " } else { "│   " });
                    }
                }
                Step::Up => rails.truncate(lengths.pop().unwrap_or_default()),
            }
            Ok(())
        })?;
        let Totals {
            folders,
            files,
            bytes,
        } = totals;
        let counts = format!(
            "{}, {}",
            counted(folders, "folder", "folders"),
            counted(files, "file", "files")
        );
        writeln!(out, "\n{counts}, {:#}", size::display(bytes))?;
        Ok(out.flush()?)
    }

    fn goes_below(&self, of: &Attributes, depth: u32) -> bool {
        of.kind == FileKind::Folder && self.depth.is_none_or(|deepest| depth < deepest)
    }

    /// Calls `each` for everything below the first folder, depth first. A loop instead of
    /// recursion: folders may be nested to any depth.
    fn walk(
        &self,
        place: &ImageLocation,
        totals: &mut Totals,
        each: &mut dyn FnMut(Step<'_>) -> Outcome,
    ) -> Outcome {
        if !self.goes_below(&place.attributes, 0) {
            return Ok(());
        }
        let mut ancestors = Ancestors::default();
        let mut open = |id, depth, path: String| -> Outcome<VisitedFolder> {
            let entered = ancestors.enter(id, depth);
            entered.map_err(|error| error.named(&*path))?;
            Ok(VisitedFolder {
                entries: node::entries(&*place.fs, id)?.into_iter(),
                path,
            })
        };
        let mut levels = vec![open(place.attributes.id, 0, place.path.clone())?];
        while let Some(level) = levels.last_mut() {
            let Some(Entry { name, attributes }) = level.entries.next() else {
                levels.pop();
                if !levels.is_empty() {
                    each(Step::Up)?;
                }
                continue;
            };
            let (path, is_last) = (format!("{}/{name}", level.path), level.entries.len() == 0);
            let depth = u32::try_from(levels.len()).unwrap_or(u32::MAX);
            totals.add(&attributes);
            each(Step::Entry {
                name: &name,
                path: &path,
                attributes: &attributes,
                is_last,
                depth,
            })?;
            if self.goes_below(&attributes, depth) {
                levels.push(open(attributes.id, levels.len(), path)?);
            }
        }
        Ok(())
    }

    fn line(
        &self,
        fs: &dyn FileSystem,
        name: &str,
        of: &Attributes,
        output: &Output,
    ) -> Outcome<String> {
        let mut line = node::shown(output, name, of.kind);
        if self.sizes && of.kind == FileKind::File {
            line = format!("[{:>12}]  {line}", of.size);
        }
        if let Some(target) = node::target(fs, of)? {
            line = format!("{line} -> {}", output.name(&target));
        }
        Ok(line)
    }

    /// Returns the tree as one object, with children inside their folders.
    fn json(&self, image: &str, place: &ImageLocation, name: &str, output: &Output) -> Outcome {
        let path = place.shown_path();
        let (mut text, mut totals) = (
            format!(
                "{{\n  \"schema\": {SCHEMA},\n  \"path\": {},\n  \"root\": ",
                serde_json::to_string(image).map_err(io::Error::from)?
            ),
            Totals::default(),
        );
        let begin = |text: &mut String, node: &Node, is_folder: bool| -> Outcome {
            let one = serde_json::to_string(node).map_err(io::Error::from)?;
            match one.strip_suffix('}').filter(|_| is_folder) {
                Some(open) => text.extend([open, ",\"children\":["]),
                None => text.push_str(&one),
            }
            Ok(())
        };
        let is_folder = self.goes_below(&place.attributes, 0);
        begin(
            &mut text,
            &Node::new(&*place.fs, name, path, &place.attributes)?,
            is_folder,
        )?;
        // True if a comma comes before the next child.
        let mut first = vec![true];
        self.walk(place, &mut totals, &mut |step| {
            let Step::Entry {
                name,
                path,
                attributes,
                depth,
                ..
            } = step
            else {
                first.pop();
                text.push_str("]}");
                return Ok(());
            };
            let is_first = first
                .last_mut()
                .map(|first| std::mem::replace(first, false));
            text.push_str(if is_first == Some(true) { "\n" } else { ",\n" });
            let is_folder = self.goes_below(attributes, depth);
            begin(
                &mut text,
                &Node::new(&*place.fs, name, path, attributes)?,
                is_folder,
            )?;
            if is_folder {
                first.push(true);
            }
            Ok(())
        })?;
        if is_folder {
            text.push_str("]}");
        }
        let Totals {
            folders,
            files,
            bytes,
        } = totals;
        let mut out = output.stdout();
        writeln!(
            out,
            "{text},\n  \"folders\": {folders},\n  \"files\": {files},\n  \"size\": {bytes}\n}}"
        )?;
        Ok(out.flush()?)
    }
}

/// A folder whose entries are being visited.
struct VisitedFolder {
    entries: std::vec::IntoIter<Entry>,
    path: String,
}

/// A step of the walk.
enum Step<'a> {
    /// An object; its contents follow, if it is a folder within the depth.
    Entry {
        name: &'a str,
        path: &'a str,
        attributes: &'a Attributes,
        is_last: bool,
        depth: u32,
    },
    /// The end of a folder other than the first.
    Up,
}
