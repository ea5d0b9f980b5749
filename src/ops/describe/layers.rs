//! Description of the layers of an image, one sentence each.

use crate::container::sparsebundle::Bundle;
use crate::device::BlockDevice;
use crate::fs::apfs::{Locking, Summary};
use crate::open::{ArchiveLayer, Layer, Volume};
use crate::size::counted;
use crate::{Result, size};

/// Returns the name of a layer and a sentence about it; for volumes, those of each, which are opened.
pub fn layer_facts(layer: &Layer) -> Vec<(String, String)> {
    let one = |name: &str, what: String| vec![(name.to_owned(), what)];
    let exact = |bytes: u64| format!("{:#}", size::display(bytes));
    match layer {
        Layer::Remote(file) => one("file elsewhere", exact(file.info().len)),
        Layer::Bucket(status) => match status.lagging {
            0 => one("bucket", "a folder of plain objects".to_owned()),
            n => one(
                "bucket",
                format!(
                    "a folder of objects, {n} of them older than the last commit (`bandsaw \
                     checkpoint`)"
                ),
            ),
        },
        Layer::File(file) => one("file", exact(file.info().len)),
        Layer::Archive(archive) => one("archive", archive_facts(archive)),
        Layer::Crypt(crypt) => {
            let ways = match crypt.key_slots.len() {
                1 => "1 way".to_owned(),
                n => format!("{n} key entries"),
            };
            one(
                "encryption",
                format!("AES-{}, version {}, {ways}", crypt.key_bits, crypt.version),
            )
        }
        Layer::Raw(raw) => one("raw image", format!("a disk of {}", exact(raw.info().len))),
        Layer::Bundle(bundle) => one("sparse bundle", bundle_facts(bundle)),
        Layer::SparseImage(image) => {
            let usage = image.usage();
            one(
                "sparse image",
                format!(
                    "a disk of {} in {}",
                    exact(image.info().len),
                    counted(usage.bands, "band", "bands")
                ),
            )
        }
        Layer::Asif(image) => one(
            "ASIF",
            format!(
                "a disk of {} in {}",
                exact(image.info().len),
                counted(image.usage().data, "chunk", "chunks")
            ),
        ),
        Layer::Udif(udif) => {
            let format = udif.format();
            let what = format!(
                "{} ({format}), a disk of {} in {}",
                format.description(),
                exact(udif.info().len),
                counted(udif.usage().chunks, "chunk", "chunks")
            );
            one("UDIF", what)
        }
        Layer::Mapped(disk) => {
            let format = disk.format();
            let mut what = format!(
                "{} ({format}), a disk of {}",
                format.description(),
                exact(disk.info().len)
            );
            for (name, value) in disk.facts() {
                what += &format!("; {name}: {value}");
            }
            one(format.code(), what)
        }
        Layer::Overlay(file) => {
            let name = file.path.display();
            one(
                "layer",
                format!(
                    "{name}, a disk of {} in {}",
                    exact(file.image.info().len),
                    counted(file.image.usage().data, "chunk", "chunks")
                ),
            )
        }
        Layer::Stack(stack) => one("stack", format!("a disk of {}", exact(stack.info().len))),
        Layer::Partitions(map) => {
            let mut what = counted(map.partitions.len() as u64, "partition", "partitions");
            if let [problem, more @ ..] = &map.problems[..] {
                what += &format!("; {}", problem.message());
                what += &if more.is_empty() {
                    String::new()
                } else {
                    format!(", and {} more like this", more.len())
                };
            }
            one(&map.scheme.to_string(), what)
        }
        Layer::Volumes(volumes) => volumes.iter().map(describe_volume).collect(),
    }
}

fn archive_facts(archive: &ArchiveLayer) -> String {
    let description = &archive.description;
    let mut facts = format!(
        "profile {}, {}",
        description.profile.number(),
        description.profile.description()
    );
    if let Some(root) = &description.root {
        facts += &format!(
            ", {:#} of contents in {}",
            size::display(root.size),
            counted(root.segments(), "segment", "segments")
        );
    }
    facts
}

fn bundle_facts(bundle: &Bundle) -> String {
    let (len, band) = (
        size::display(bundle.info().len),
        size::display(bundle.band_size()),
    );
    format!("a disk of {len:#} in bands of {band:#}")
}

fn describe_volume(volume: &Volume) -> (String, String) {
    let opened = if volume.format.is_container() {
        volume
            .container()
            .map(|container| describe_container(volume, container.volumes()))
    } else {
        volume.open().map(|opened| {
            format!(
                "on {}, called {}, opens",
                volume.place(),
                opened.volume().name
            )
        })
    };
    let what = match opened {
        Ok(what) => what,
        Err(error) => format!("on {}, does not open: {}", volume.place(), error.message()),
    };
    (volume.format.to_string(), what)
}

/// Describes the volumes of an APFS container.
fn describe_container(volume: &Volume, volumes: Vec<Result<Summary>>) -> String {
    let each = volumes.into_iter().map(|volume| match volume {
        Ok(Summary {
            label,
            locking: Locking::Plain,
            ..
        }) => label.name,
        Ok(Summary { label, .. }) => format!("{} (encrypted)", label.name),
        Err(error) => format!("one that does not open: {}", error.message()),
    });
    let each: Vec<_> = each.collect();
    match &each[..] {
        [] => format!("on {}, opens and holds no volume", volume.place()),
        names => format!(
            "on {}, opens and holds {}",
            volume.place(),
            names.join(", ")
        ),
    }
}
