//! `bandsaw tree`: a volume, or a folder of it, as a tree.

use std::ffi::OsString;
use std::io::Write;

use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem};
use bandsaw::size;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::node::{self, Ancestors, Node};
use crate::output::{Output, Style};
use crate::source::{self, Opening, Place};
use crate::text::counted;

/// Show a volume, or a folder of it, as a tree
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tree Docs.sparsebundle               the whole of its first readable volume
  bandsaw tree -L 2 Docs.sparsebundle:/Work    two levels of one folder
  bandsaw tree -s Docs.sparsebundle            sizes in bytes in front of the names")]
pub(crate) struct Tree {
    /// Where to begin: IMAGE[:VOLUME][:/PATH]
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Go down no more than this many levels
    #[arg(long, short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Show the size of every file in bytes
    #[arg(long, short)]
    sizes: bool,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints: an object with its children in it.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    root: Node,
    folders: u64,
    files: u64,
    bytes: u64,
}

/// What is below the root: folders, files (whatever is no folder), and bytes in the files proper.
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
        let place = Place::open(&source::address(&self.address)?, &self.opening, output)?;
        let volume = place.fs.volume().name;
        let name = if place.path.is_empty() { &volume } else { place.name() };
        if output.json() {
            let mut walk = Walk { tree: self, fs: &*place.fs, ancestors: Ancestors::default(), totals: Totals::default() };
            let root = walk.node(name, &place.path, &place.attributes, 0)?;
            let Totals { folders, files, bytes } = walk.totals;
            return output.facts(&Facts { schema: 1, root, folders, files, bytes }, |_| Ok(()));
        }
        let mut out = output.stdout();
        writeln!(out, "{}", node::shown(output, name, place.attributes.kind))?;
        let mut walk = Walk { tree: self, fs: &*place.fs, ancestors: Ancestors::default(), totals: Totals::default() };
        if place.attributes.kind == FileKind::Folder {
            walk.print(&place.path, &place.attributes, &mut String::new(), output, &mut out)?;
        }
        let Totals { folders, files, bytes } = walk.totals;
        let counts = format!("{}, {}", counted(folders, "folder", "folders"), counted(files, "file", "files"));
        writeln!(out, "\n{counts}, {:#}", size::display(bytes))?;
        Ok(out.flush()?)
    }
}

/// A walk from the root down.
struct Walk<'a> {
    tree: &'a Tree,
    fs: &'a dyn FileSystem,
    ancestors: Ancestors,
    totals: Totals,
}

impl Walk<'_> {
    fn goes_below(&self, depth: u32) -> bool {
        self.tree.depth.is_none_or(|deepest| depth < deepest)
    }

    /// The object with everything below it.
    fn node(&mut self, name: &str, path: &str, of: &Attributes, depth: u32) -> Outcome<Node> {
        let mut node = Node::new(self.fs, name, if path.is_empty() { "/" } else { path }, of)?;
        if of.kind == FileKind::Folder && self.goes_below(depth) {
            self.ancestors.enter(of.id, path)?;
            let mut children = Vec::new();
            for Entry { name, attributes } in node::entries(self.fs, of.id)? {
                self.totals.add(&attributes);
                children.push(self.node(&name, &format!("{path}/{name}"), &attributes, depth + 1)?);
            }
            node.children = Some(children);
            self.ancestors.leave();
        }
        Ok(node)
    }

    /// The lines below a folder. `rails` is drawn in front of each: what continues from the levels above.
    fn print(&mut self, path: &str, folder: &Attributes, rails: &mut String, output: &Output, out: &mut impl Write) -> Outcome {
        self.ancestors.enter(folder.id, path)?;
        let entries = node::entries(self.fs, folder.id)?;
        let depth = u32::try_from(rails.chars().count() / RAIL).unwrap_or(u32::MAX);
        for (i, Entry { name, attributes }) in entries.iter().enumerate() {
            let is_last = i + 1 == entries.len();
            self.totals.add(attributes);
            let branch = output.paint(Style::Dim, &format!("{rails}{}", if is_last { "└── " } else { "├── " }));
            writeln!(out, "{branch}{}", self.line(name, attributes, output)?)?;
            if attributes.kind == FileKind::Folder && self.goes_below(depth + 1) {
                let above = rails.len();
                rails.push_str(if is_last { "    " } else { "│   " });
                self.print(&format!("{path}/{name}"), attributes, rails, output, out)?;
                rails.truncate(above);
            }
        }
        self.ancestors.leave();
        Ok(())
    }

    fn line(&self, name: &str, of: &Attributes, output: &Output) -> Outcome<String> {
        let mut line = node::shown(output, name, of.kind);
        if self.tree.sizes && of.kind == FileKind::File {
            line = format!("[{:>12}]  {line}", of.size);
        }
        if let Some(target) = node::target(self.fs, of)? {
            line = format!("{line} -> {}", output.name(&target));
        }
        Ok(line)
    }
}

/// Characters that one level takes.
const RAIL: usize = 4;
