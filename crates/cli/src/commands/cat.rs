//! `bandsaw cat`: contents of files in a volume.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use bandsaw::device::BlockDevice;
use bandsaw::fs::{FileKind, Fork};
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};

use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::source::{self, ImageLocation, OpenArgs};

/// The size of a read: large enough to make its overhead small, small enough for every machine.
const PIECE: usize = 1 << 20;

/// Print files of a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw cat Docs.sparsebundle:/Letters/a.txt
  bandsaw cat Docs.sparsebundle:/a Docs.sparsebundle:/b > both
  bandsaw cat --resource-fork old.img:/Icon > icon.rsrc
  bandsaw cat --xattr com.apple.FinderInfo disk.img:/a.txt | xxd")]
pub(crate) struct Cat {
    /// The files to print: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Print the resource fork instead of the data
    #[arg(long)]
    resource_fork: bool,
    /// Print this extended attribute instead of the data
    #[arg(long, value_name = "NAME", conflicts_with = "resource_fork")]
    xattr: Option<String>,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Cat {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("cat")?;
        let mut out = output.stdout();
        for address in &self.addresses {
            let address = source::address(address)?;
            if address.path.is_none() {
                let error = Error::invalid("address", "expected a file in the image");
                let hint =
                    format!("name it as {address}:/PATH; `bandsaw ls {address}` lists the files");
                return Err(Failure::from(error.in_file(address.to_string())).hint(hint));
            }
            let place = ImageLocation::open(&address, &self.opening, output)?;
            let contents = self.contents(&place);
            let contents = contents.map_err(|failure| failure.in_file(&address.image));
            let contents = contents.advise(Kind::NotFound, || {
                format!("run `bandsaw xattr {address}` to list extended attributes")
            })?;
            copy(&*contents, &mut out)?;
        }
        Ok(out.flush()?)
    }

    fn contents(&self, place: &ImageLocation) -> Outcome<Arc<dyn BlockDevice>> {
        let ImageLocation { fs, attributes, .. } = place;
        if let Some(name) = &self.xattr {
            return Ok(fs.xattr(attributes.id, name)?.ok_or_else(|| {
                let missing = Error::not_found("extended attribute", name);
                missing.because(Reason::NoSuchAttribute)
            })?);
        }
        if attributes.kind != FileKind::File {
            let what = match attributes.kind {
                FileKind::Folder => "is a folder, not a file",
                _ => "is not a file",
            };
            let error = Error::invalid("cat", what).named(place.shown_path());
            return Err(match attributes.kind {
                FileKind::Folder => Failure::from(error).hint("run `bandsaw ls` to list a folder"),
                _ => error.into(),
            });
        }
        Ok(fs.open(
            attributes.id,
            if self.resource_fork {
                Fork::Resource
            } else {
                Fork::Data
            },
        )?)
    }
}

/// Writes all of a device.
pub(super) fn copy(from: &dyn BlockDevice, to: &mut impl Write) -> Outcome {
    let len = from.info().len;
    let mut buf = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
    let mut at = 0;
    while at < len {
        let n = buf.len().min(usize::try_from(len - at).unwrap_or(PIECE));
        from.read_at(at, &mut buf[..n])?;
        to.write_all(&buf[..n])?;
        at += n as u64;
    }
    Ok(())
}
