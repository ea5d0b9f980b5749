//! The records of the attributes tree, in key order: by object, then by name.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::catalog::Sink;
use super::forks::{self, ForkPart, NodeBlocks, is_large};
use super::objects::Objects;
use crate::build::tree::body;
use crate::hfsplus::layout::{
    AttributeKey, ForkAttributeRaw, InlineAttributeHeadRaw, attribute_type,
};
use crate::hfsplus::unicode::encode_attribute_name;
use crate::source::{Stream, Tree};
use bandsaw_core::Result;
use bandsaw_core::size::{narrow, to_usize};

/// Passes every record to `sink`. Values that are not in memory are read.
pub(super) fn emit(
    tree: &Tree,
    objects: &Objects,
    blocks: &NodeBlocks,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let (mut name, mut key, mut record) = (Vec::<U16>::new(), Vec::new(), Vec::new());
    for node in 0..narrow::<u32>(tree.nodes.len()) {
        let Some(source) = body(tree, node) else {
            continue;
        };
        for (place, text, value) in forks::attributes(source) {
            name.clear();
            encode_attribute_name(text, &mut name)?;
            key.clear();
            AttributeKey {
                file: objects.cnid(node),
                name: &name,
                start_block: 0,
            }
            .put(&mut key);
            record.clear();
            if is_large(value) {
                let fork = blocks.fork(source, blocks.first(node), ForkPart::Attribute(place));
                let raw = ForkAttributeRaw {
                    record_type: attribute_type::FORK.into(),
                    reserved: 0.into(),
                    fork,
                };
                record.extend_from_slice(raw.as_bytes());
            } else {
                put_inline(tree, value, &mut record)?;
            }
            sink(&key, &record)?;
        }
    }
    Ok(())
}

fn put_inline(tree: &Tree, value: &Stream, record: &mut Vec<u8>) -> Result<()> {
    let size = narrow::<u32>(value.len()); // an inline value is shorter than a node
    let head = InlineAttributeHeadRaw {
        record_type: attribute_type::INLINE.into(),
        reserved: Default::default(),
        size: size.into(),
    };
    record.extend_from_slice(head.as_bytes());
    match value {
        Stream::Bytes(bytes) => record.extend_from_slice(bytes),
        Stream::Extern { len, .. } => {
            let start = record.len();
            record.resize(start + to_usize(*len), 0);
            tree.contents
                .open(value)?
                .read_at(0, &mut record[start..])?;
        }
    }
    Ok(())
}
