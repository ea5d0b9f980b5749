//! Layer names: programs decide by the part of an image to which the layer of an error belongs.

use bandsaw::error::ImagePart;

use super::{Fault, Text};

/// Folders of formats, the first that fits first, each with the part of an image to which its layers belong.
const FOLDERS: &[(&str, ImagePart)] = &[
    ("crates/fs/src/apfs/", ImagePart::Apfs),
    ("crates/fs/src/", ImagePart::Volume),
    ("src/container/asif/", ImagePart::Asif),
    ("src/container/sparsebundle/", ImagePart::SparseBundle),
    ("src/container/sparseimage/", ImagePart::SparseImage),
    ("src/container/udif/", ImagePart::Udif),
    ("src/container/disk_copy/", ImagePart::DiskCopy),
    ("src/container/dart/", ImagePart::Dart),
    ("src/container/ndif/", ImagePart::Ndif),
    ("src/container/qcow2/", ImagePart::Qcow2),
    ("src/container/vhd/", ImagePart::Vhd),
    ("src/container/vhdx/", ImagePart::Vhdx),
    ("src/container/vmdk/", ImagePart::Vmdk),
    ("src/container/ewf/", ImagePart::Ewf),
    // The stream of its entries is a volume.
    ("src/container/apple_archive/", ImagePart::Volume),
    ("src/partition/", ImagePart::PartitionMap),
];

/// Layers of those folders that belong to another part.
const OTHERS: &[(&str, ImagePart)] = &[
    ("code signature", ImagePart::Other),
    ("volume encryption", ImagePart::Volume),
];

/// Returns the faults of a file: names of layers that `ImagePart::of_layer` takes for those of another
/// part.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    let Some((_, part)) = FOLDERS.iter().find(|(at, _)| file.path.starts_with(at)) else {
        return Vec::new();
    };
    let text = file.production();
    let lines = (1..).zip(text.lines());
    let layers = lines.filter_map(|(line, text)| Some((line, layer(text)?)));
    layers
        .filter(|(_, layer)| {
            let other = OTHERS.iter().find(|(name, _)| name == layer);
            ImagePart::of_layer(layer) != other.map_or(*part, |(_, part)| *part)
        })
        .map(|(line, layer)| {
            let found = ImagePart::of_layer(layer);
            file.fault(line, format!("the layer `{layer}` is taken for {found:?}"))
        })
        .collect()
}

/// Returns the layer that a line names: `const LAYER: &str = "gpt";`.
fn layer(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(": &str = \"")?;
    (name.contains("const ") && name.ends_with("LAYER")).then_some(())?;
    value.strip_suffix("\";")
}

#[cfg(test)]
mod tests {
    use super::super::{shown, text};
    use super::*;

    #[test]
    fn layers_belong_to_the_part_of_their_folder() {
        for (path, line, fault) in [
            ("src/partition/a.rs", "const LAYER: &str = \"gpt\";", None),
            ("src/partition/a.rs", "const NAME: &str = \"disk\";", None),
            (
                "crates/fs/src/apfs/keys.rs",
                "    pub(super) const LOCKED_LAYER: &str = \"volume encryption\";",
                None,
            ),
            (
                "src/partition/a.rs",
                "const LAYER: &str = \"guid table\";",
                Some("src/partition/a.rs:1: the layer `guid table` is taken for Other"),
            ),
            (
                "src/container/asif/a.rs",
                "pub const LAYER: &str = \"udif\";",
                Some("src/container/asif/a.rs:1: the layer `udif` is taken for Udif"),
            ),
            (
                "crates/fs/src/new/mod.rs",
                "pub(super) const LAYER: &str = \"new fs\";",
                Some("crates/fs/src/new/mod.rs:1: the layer `new fs` is taken for Other"),
            ),
            ("src/open/a.rs", "const LAYER: &str = \"open\";", None),
        ] {
            let faults = shown(check(&text(path, line)));
            assert_eq!(faults.first().map(String::as_str), fault, "{path}: {line}");
        }
    }
}
