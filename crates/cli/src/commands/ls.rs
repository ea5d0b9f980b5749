//! `bandsaw ls`: the contents of a folder of a volume.

use std::ffi::OsString;
use std::io::Write;

use bandsaw::fs::{Ancestors, Entry, FileKind, FileSystem, Timestamp, UF_COMPRESSED};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::node::{self, Node};
use crate::output::Output;
use crate::source::{self, ImageLocation, OpenArgs};
use crate::text::Table;

/// List files and folders of a volume
///
/// VOLUME@SNAPSHOT names a snapshot of an APFS volume; `bandsaw info` lists the snapshots. With
/// --long, `@` after the mode marks extended attributes, and `z` compressed files, of which
/// `bandsaw stat` shows more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw ls Docs.sparsebundle                 the root of its first readable volume
  bandsaw ls -l Docs.sparsebundle:/Letters     modes, owners, sizes and dates (UTC)
  bandsaw ls -R disk.img:#2                    everything on partition 2
  bandsaw ls disk.img:Data@before-update:/     a snapshot of an APFS volume
  bandsaw ls --json Docs.sparsebundle:Docs:/   for programs")]
pub(crate) struct Ls {
    /// Folder or file to list: IMAGE[:VOLUME[@SNAPSHOT]][:/PATH]
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Show modes, owners, sizes, dates (UTC) and link targets
    #[arg(long, short)]
    long: bool,
    /// List subfolders recursively
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Accept `ls -la`: hidden names are always shown
    #[arg(long, short, hide = true)]
    all: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`. The contents of subfolders follow their folder.
#[derive(Serialize)]
struct Listing {
    /// The image.
    path: String,
    volume_path: String,
    entries: Vec<Node>,
}

impl Ls {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        let place = ImageLocation::open(&address, &self.opening, output)?;
        if output.json() {
            let mut entries = Vec::new();
            self.visit(&place, &mut |path, folder| {
                for Entry { name, attributes } in folder {
                    entries.push(Node::new(
                        &*place.fs,
                        name,
                        &format!("{path}/{name}"),
                        attributes,
                    )?);
                }
                Ok(())
            })?;
            return output.result(
                &Listing {
                    path: address.image.to_string(),
                    volume_path: place.shown_path().to_owned(),
                    entries,
                },
                |_| Ok(()),
            );
        }
        let mut out = output.stdout();
        let mut first = true;
        self.visit(&place, &mut |path, folder| {
            if self.recursive {
                let path = if path.is_empty() { "/" } else { path };
                writeln!(
                    out,
                    "{}{}:",
                    if first { "" } else { "\n" },
                    output.name(path)
                )?;
            }
            first = false;
            print(&*place.fs, folder, self.long, output, &mut out)
        })?;
        Ok(out.flush()?)
    }

    /// Calls `each` for the folder, or for a single object, and under `-R` for all subfolders.
    fn visit(
        &self,
        place: &ImageLocation,
        each: &mut dyn FnMut(&str, &[Entry]) -> Outcome,
    ) -> Outcome {
        if place.attributes.kind != FileKind::Folder {
            let parent = place.path.len() - place.name().len();
            let entry = Entry {
                name: place.name().to_owned(),
                attributes: place.attributes.clone(),
            };
            return each(place.path[..parent].trim_end_matches('/'), &[entry]);
        }
        // A loop instead of recursion: folders may be nested to any depth.
        let (mut ancestors, mut ahead) = (
            Ancestors::default(),
            vec![(place.path.clone(), place.attributes.id, 0)],
        );
        while let Some((path, id, depth)) = ahead.pop() {
            let entered = ancestors.enter(id, depth);
            entered.map_err(|error| error.named(&*path))?;
            let entries = node::entries(&*place.fs, id)?;
            each(&path, &entries)?;
            let folders = entries
                .iter()
                .rev()
                .filter(|entry| self.recursive && entry.attributes.kind == FileKind::Folder);
            ahead.extend(folders.map(|Entry { name, attributes }| {
                (format!("{path}/{name}"), attributes.id, depth + 1)
            }));
        }
        Ok(())
    }
}

/// Prints entries, with their attributes if `long` is true.
pub(super) fn print(
    fs: &dyn FileSystem,
    entries: &[Entry],
    long: bool,
    output: &Output,
    out: &mut impl Write,
) -> Outcome {
    if !long {
        for Entry { name, attributes } in entries {
            writeln!(out, "{}", node::shown(output, name, attributes.kind))?;
        }
        return Ok(());
    }
    let mut table = Table::new([false, true, true, true, true, false, false]);
    for Entry { name, attributes } in entries {
        let mut name = node::shown(output, name, attributes.kind);
        if let Some(target) = node::target(fs, attributes)? {
            name = format!("{name} -> {}", output.name(&target));
        }
        let mut mode = node::mode(attributes);
        if attributes.flags & UF_COMPRESSED != 0 {
            mode.push('z');
        }
        table.row([
            mode,
            attributes.links.to_string(),
            attributes.uid.to_string(),
            attributes.gid.to_string(),
            attributes.size.to_string(),
            attributes
                .modified
                .map_or_else(|| "-".to_owned(), Timestamp::to_minute),
            name,
        ]);
    }
    Ok(out.write_all(table.lines("").as_bytes())?)
}
