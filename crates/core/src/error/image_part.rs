//! The parts of an image, by which errors are grouped.

/// The part of an image that an error concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImagePart {
    /// The lists and bands of a sparse bundle.
    SparseBundle,
    /// A sparse image.
    SparseImage,
    /// An ASIF image.
    Asif,
    /// A UDIF image, or its parts.
    Udif,
    /// A Disk Copy 4.2 image.
    DiskCopy,
    /// A DART image.
    Dart,
    /// An NDIF image.
    Ndif,
    /// A QCOW2 image.
    Qcow2,
    /// A VHD image.
    Vhd,
    /// A VHDX image.
    Vhdx,
    /// A VMDK image.
    Vmdk,
    /// An EnCase image (EWF), or its files.
    Ewf,
    /// The header and the key entries of an encrypted image.
    Encryption,
    /// GPT, MBR or Apple Partition Map.
    PartitionMap,
    /// An APFS container, or a volume in it.
    Apfs,
    /// A volume of another file system, or a file in it.
    Volume,
    /// Another format, the host, or the operation.
    Other,
}

/// Layer names that begin with the first text belong to the part.
const PREFIXES: &[(&str, ImagePart)] = &[
    ("asif", ImagePart::Asif),
    ("udif", ImagePart::Udif),
    ("gpt", ImagePart::PartitionMap),
    ("apfs", ImagePart::Apfs),
    ("hfs", ImagePart::Volume),
    ("fat ", ImagePart::Volume),
    ("exfat", ImagePart::Volume),
    ("iso 9660", ImagePart::Volume),
    ("udf", ImagePart::Volume),
    ("apple archive", ImagePart::Volume),
    ("core storage", ImagePart::Volume),
    ("ext ", ImagePart::Volume),
    ("ntfs", ImagePart::Volume),
    ("volume", ImagePart::Volume),
    ("compressed", ImagePart::Volume),
    ("recovered", ImagePart::Volume),
];

impl ImagePart {
    /// Returns the part to which a layer belongs. `cargo xtask tidy` compares the result for each layer that
    /// a format names with the folder of the format.
    pub fn of_layer(layer: &str) -> Self {
        match layer {
            "sparse bundle" => Self::SparseBundle,
            "sparse image" => Self::SparseImage,
            "disk copy 4.2" => Self::DiskCopy,
            "dart" => Self::Dart,
            "ndif" => Self::Ndif,
            "qcow2" => Self::Qcow2,
            "vhd" => Self::Vhd,
            "vhdx" => Self::Vhdx,
            "vmdk" => Self::Vmdk,
            "ewf" | "ewf set" => Self::Ewf,
            "encrypted image"
            | "encryption header"
            | "encryption key entry"
            | "encryption trailer"
            | "key entry" => Self::Encryption,
            "protective mbr" | "partition map" | "apple partition map" | "mbr" => {
                Self::PartitionMap
            }
            _ => PREFIXES
                .iter()
                .find(|(prefix, _)| layer.starts_with(prefix))
                .map_or(Self::Other, |(_, part)| *part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_belong_to_parts() {
        for (layer, part) in [
            ("sparse bundle", ImagePart::SparseBundle),
            ("sparse image", ImagePart::SparseImage),
            ("asif", ImagePart::Asif),
            ("asif metadata", ImagePart::Asif),
            ("udif chunk map", ImagePart::Udif),
            ("encryption header", ImagePart::Encryption),
            ("key entry", ImagePart::Encryption),
            ("encrypted archive", ImagePart::Other),
            ("gpt table", ImagePart::PartitionMap),
            ("mbr", ImagePart::PartitionMap),
            ("apfs object map", ImagePart::Apfs),
            ("hfs+ catalog", ImagePart::Volume),
            ("hfs", ImagePart::Volume),
            ("fat table", ImagePart::Volume),
            ("exfat bitmap", ImagePart::Volume),
            ("iso 9660", ImagePart::Volume),
            ("core storage", ImagePart::Volume),
            ("compressed file", ImagePart::Volume),
            ("image", ImagePart::Other),
            ("folder", ImagePart::Other),
            ("", ImagePart::Other),
        ] {
            assert_eq!(ImagePart::of_layer(layer), part, "{layer}");
        }
    }
}
