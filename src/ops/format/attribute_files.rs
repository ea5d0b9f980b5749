//! Files `._NAME` beside files with extended attributes, as macOS makes them on volumes that cannot store
//! any.

use super::LAYER;
use crate::decmpfs;
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::ops::import::apple_double;
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Maximum number of bytes of all attributes together, which are in memory.
const MAX_BYTES: u64 = 256 << 20;

/// Moves all extended attributes to AppleDouble files, which are added to the tree.
///
/// [`Kind::Unsupported`](crate::Kind) for compressed files and for attributes of the root folder,
/// [`Kind::Limit`](crate::Kind) if the attributes exceed 256 MiB.
pub(super) fn add(tree: &mut Tree) -> Result<()> {
    let mut added = Vec::new();
    let mut left = MAX_BYTES;
    for number in 0..tree.nodes.len() {
        let Some(node) = tree.nodes.get_mut(number) else {
            break;
        };
        if node.xattrs.is_empty() {
            continue;
        }
        let xattrs = std::mem::take(&mut node.xattrs);
        let node = node.clone();
        let made = attribute_file(tree, number, &node, &xattrs, &mut left);
        added.push(made.map_err(|error| error.named(tree.path(narrow(number))))?);
    }
    tree.nodes.extend(added);
    Ok(())
}

fn attribute_file(
    tree: &Tree,
    number: usize,
    node: &SourceNode,
    xattrs: &[(Box<str>, Stream)],
    left: &mut u64,
) -> Result<SourceNode> {
    if xattrs.iter().any(|(name, _)| &**name == decmpfs::ATTRIBUTE) {
        let message = "FAT and exFAT cannot hold compressed files";
        return Err(Error::unsupported(LAYER, message));
    }
    if number == 0 {
        let message = format!(
            "FAT and exFAT cannot hold extended attributes of the root folder, such as {}",
            xattrs.first().map_or("", |(name, _)| name)
        );
        return Err(Error::unsupported(LAYER, message));
    }
    let mut values = Vec::new();
    for (name, stream) in xattrs {
        *left = left.checked_sub(stream.len()).ok_or_else(|| {
            let message = format!("the extended attributes exceed {MAX_BYTES} bytes");
            Error::limit(LAYER, message)
        })?;
        values.push((name.to_string(), read(tree, stream)?));
    }
    let bytes = apple_double::encode(&values)?;
    Ok(SourceNode {
        name: format!("._{}", node.name).into(),
        kind: SourceKind::File(Stream::Bytes(bytes.into())),
        xattrs: Vec::new(),
        ..node.clone()
    })
}

fn read(tree: &Tree, stream: &Stream) -> Result<Vec<u8>> {
    match stream {
        Stream::Bytes(bytes) => Ok(bytes.to_vec()),
        Stream::Extern { len, .. } => {
            // At most `MAX_BYTES`.
            let mut bytes = vec![0; to_usize(*len)];
            tree.contents.open(stream)?.read_at(0, &mut bytes)?;
            Ok(bytes)
        }
    }
}
