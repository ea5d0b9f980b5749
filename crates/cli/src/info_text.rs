//! The facts about an image, for people: a sheet of names and values.
//!
//! One file, as the order of the parts of a sheet, and the words for what they share, are one choice.

use std::io::{self, Write};

use bandsaw::ops::describe::{
    ApfsInfo, ArchiveInfo, AsifInfo, BucketInfo, EncryptionInfo, ImageInfo, KeySlotInfo,
    KeySlotKind, LayerInfo, PartitionMapInfo, SignatureContents, SparseImageInfo, StorageInfo,
    UdifInfo, VolumeContents, VolumeDetails, VolumeInfo,
};

use crate::info_writer::{InfoWriter, NAME, exact, held};
use crate::output::Output;
use crate::text::{Table, counted, grouped};

/// Writes the sheet of an image.
pub(crate) fn write(report: &ImageInfo, output: &Output, out: &mut dyn Write) -> io::Result<()> {
    let mut sheet = InfoWriter::new(output, out);
    sheet.heading(&output.name(&report.path))?;
    if let (Some(format), Some(description)) = (report.format, report.description) {
        sheet.fact("format", &format!("{format}, {description}"))?;
    }
    if let Some(size) = report.size {
        sheet.fact("size", &exact(size))?;
    }
    if let Some(size) = report.allocated {
        sheet.fact("on disk", &exact(size))?;
    }
    if let Some(archive) = &report.archive {
        sheet.archive(archive)?;
    }
    if let Some(encryption) = &report.encryption {
        sheet.encryption(encryption)?;
    }
    match &report.storage {
        Some(StorageInfo::Udif(udif)) => sheet.chunks(udif)?,
        Some(StorageInfo::SparseImage(image)) => sheet.sparse_image(image)?,
        Some(StorageInfo::Asif(image)) => sheet.asif(image)?,
        Some(StorageInfo::ReadOnlyImage(image)) => {
            for (name, value) in &image.facts {
                sheet.fact(name, &output.name(value))?;
            }
        }
        Some(StorageInfo::Raw | StorageInfo::SparseBundle(_)) | None => {}
    }
    if let Some(bucket) = &report.bucket {
        sheet.bucket(bucket)?;
    }
    if let Some(StorageInfo::SparseBundle(bundle)) = &report.storage {
        let (used, all, size) = (
            grouped(bundle.allocated_bands),
            grouped(bundle.bands),
            exact(bundle.band_size),
        );
        let bands = match bundle.rebanding {
            false => format!("{used} of {all} in use, {size} each"),
            true => format!("{used} in use, of {size} each or their future size"),
        };
        sheet.fact("bands", &bands)?;
    }
    report
        .layers
        .iter()
        .try_for_each(|layer| sheet.layer(layer))?;
    if let Some(map) = &report.partition_map {
        sheet.partitions(map)?;
    }
    if let (true, Some(contents)) = (report.volumes.is_empty(), report.contents) {
        sheet.fact("contents", contents)?;
    }
    report
        .volumes
        .iter()
        .try_for_each(|volume| sheet.volume(volume))
}

/// Writes the facts of one layer.
pub(crate) fn layer(report: &LayerInfo, output: &Output, out: &mut dyn Write) -> io::Result<()> {
    InfoWriter::new(output, out).layer(report)
}

impl InfoWriter<'_> {
    fn archive(&mut self, archive: &ArchiveInfo) -> io::Result<()> {
        let ArchiveInfo {
            profile,
            description,
            ..
        } = archive;
        self.fact("archive", &format!("AEA profile {profile}, {description}"))?;
        match &archive.metadata {
            Some(names) => names.iter().try_for_each(|name| {
                let name = self.output.name(name);
                self.fact("", &format!("metadata {name}"))
            })?,
            None => {
                let size = archive.metadata_size.into();
                self.fact("", &format!("metadata of an unknown form, {}", exact(size)))?;
            }
        }
        if let Some(contents) = &archive.contents {
            let (size, segments) = (
                exact(contents.segment_size.into()),
                counted(contents.segments, "segment", "segments"),
            );
            let stored = format!(
                "{segments} of {size}, {} in each cluster, compression {}, checksums {}",
                grouped(contents.segments_per_cluster.into()),
                contents.compression,
                contents.checksum
            );
            self.fact("", &stored)?;
        }
        match archive.signature {
            "none" => {}
            "verified" => self.fact("", "the signature is verified")?,
            _ => self.fact("", "the signature is not verified")?,
        }
        if archive.locked {
            self.fact("locked", "a key is required to show more")?;
        }
        Ok(())
    }

    fn encryption(&mut self, encryption: &EncryptionInfo) -> io::Result<()> {
        let EncryptionInfo {
            version,
            key_bits,
            block_size,
            ..
        } = encryption;
        self.fact(
            "encrypted",
            &format!("AES-{key_bits}, blocks of {block_size} bytes, version {version}"),
        )?;
        self.fact("", &format!("uuid {}", encryption.uuid))?;
        for way in &encryption.key_slots {
            self.fact("", &format!("opens with {}", key_slot(way)))?;
        }
        if encryption.locked {
            self.fact("locked", "a key is required to show more")?;
        }
        Ok(())
    }

    fn bucket(&mut self, bucket: &BucketInfo) -> io::Result<()> {
        let plain = match bucket.lagging {
            0 => "plain objects are up to date".to_owned(),
            lagging => format!(
                "plain objects are outdated in {}",
                counted(lagging, "file", "files")
            ),
        };
        self.fact("bucket", &plain)?;
        if let Some(writer) = &bucket.writer {
            self.fact(
                "",
                &format!("probably written by {}", self.output.name(writer)),
            )?;
        }
        if bucket.snapshots > 0 {
            self.fact("", &counted(bucket.snapshots, "snapshot", "snapshots"))?;
        }
        Ok(())
    }

    fn chunks(&mut self, udif: &UdifInfo) -> io::Result<()> {
        let count = counted(udif.chunks, "chunk", "chunks");
        self.fact(
            "chunks",
            &format!("{count} of up to {}", exact(udif.max_chunk_size)),
        )?;
        self.fact(
            "stored",
            &format!(
                "{} for {} of the disk",
                exact(udif.stored_size),
                exact(udif.decoded_size)
            ),
        )?;
        if udif.segments > 1 {
            self.fact("parts", &counted(udif.segments.into(), "file", "files"))?;
        }
        let signed = match &udif.signature {
            None => "no".to_owned(),
            Some(signature) => match &signature.contents {
                None => "yes, in an unknown form".to_owned(),
                Some(contents) => format!("yes, {}", signed_by(contents, self.output)),
            },
        };
        self.fact("signed", &signed)
    }

    fn sparse_image(&mut self, image: &SparseImageInfo) -> io::Result<()> {
        let (used, all) = (grouped(image.allocated_bands), grouped(image.bands));
        self.fact(
            "bands",
            &format!("{used} of {all} in use, {} each", exact(image.band_size)),
        )?;
        match image.unused_slots {
            0 => Ok(()),
            unused => self.fact(
                "",
                &counted(
                    unused,
                    "place in the file is free",
                    "places in the file are free",
                ),
            ),
        }
    }

    fn asif(&mut self, image: &AsifInfo) -> io::Result<()> {
        let count = |number: u64, what: &str| format!("{} {what}", grouped(number));
        let (data, tables) = (
            count(image.data_chunks, "with data"),
            count(image.table_chunks, "with tables"),
        );
        let bitmaps = count(image.bitmap_chunks, "with bitmaps");
        self.fact(
            "chunks",
            &format!(
                "{data}, {tables}, {bitmaps}, {} each",
                exact(image.chunk_size)
            ),
        )?;
        self.fact("sectors", &exact(image.sector_size.into()))?;
        self.fact("uuid", &image.uuid)?;
        if let Some(uuid) = &image.stable_uuid {
            self.fact("stable id", uuid)?;
        }
        if let Some(parent) = &image.parent {
            self.fact(
                "layer",
                &format!("{} above the image {parent}", image.layer_role),
            )?;
        }
        if let Some(why) = &image.changes_refused {
            self.fact("read-only", &why.message)?;
        }
        if let Some(why) = &image.metadata_changes_refused {
            self.fact("metadata", &format!("read-only: {}", why.message))?;
        }
        if !image.user_metadata.is_empty() {
            self.fact(
                "metadata",
                &self.output.name(&image.user_metadata.join(", ")),
            )?;
        }
        Ok(())
    }

    fn layer(&mut self, layer: &LayerInfo) -> io::Result<()> {
        let AsifInfo {
            layer_role,
            uuid,
            sector_size,
            ..
        } = &layer.asif;
        self.fact(layer_role, &self.output.name(&layer.path))?;
        let size = format!(
            "{}, blocks of {sector_size} bytes, {} on disk",
            exact(layer.size),
            exact(layer.allocated)
        );
        self.fact("", &size)?;
        match &layer.asif.parent {
            Some(parent) => self.fact("", &format!("uuid {uuid}, over {parent}")),
            None => self.fact("", &format!("uuid {uuid}, over an image without a UUID")),
        }
    }

    fn partitions(&mut self, map: &PartitionMapInfo) -> io::Result<()> {
        let count = counted(map.partitions.len() as u64, "partition", "partitions");
        self.fact(
            "map",
            &format!(
                "{}, {count}, blocks of {} bytes",
                map.scheme.to_uppercase(),
                map.block_size
            ),
        )?;
        let mut table = Table::new([false, false, true, false, false]);
        for partition in &map.partitions {
            table.row([
                format!("#{}", partition.number),
                self.output.name(&partition.partition_type),
                partition.offset.to_string(),
                exact(partition.size),
                self.output.name(&partition.name),
            ]);
        }
        self.lines(&table.lines(&" ".repeat(2 + NAME)))
    }

    fn volume(&mut self, volume: &VolumeInfo) -> io::Result<()> {
        self.lines("\n")?;
        let place = match (volume.partition, volume.apfs().map(|apfs| apfs.number)) {
            (Some(partition), Some(number)) => format!("#{partition}.{number}"),
            (Some(partition), None) => format!("#{partition}"),
            (None, Some(number)) => format!("#1.{number}"),
            (None, None) => "whole disk".to_owned(),
        };
        match &volume.content {
            Some(content) => {
                self.heading(&format!(
                    "{place}  {}  {}",
                    volume.file_system,
                    self.output.name(&content.name)
                ))?;
                self.content(volume, content)
            }
            None => {
                self.heading(&format!("{place}  {}", volume.file_system))?;
                self.fact("size", &exact(volume.size))?;
                let problem = volume.problem.as_ref();
                let problem = problem.map_or("cannot be read", |problem| &problem.message);
                self.fact("problem", &self.output.text(problem))
            }
        }
    }

    fn content(&mut self, volume: &VolumeInfo, content: &VolumeContents) -> io::Result<()> {
        self.fact("size", &exact(volume.size))?;
        self.fact("used", &exact(content.used))?;
        self.fact("free", &exact(content.free))?;
        if content.pending > 0 {
            self.fact("", &held(content.pending))?;
        }
        if let (Some(files), Some(folders)) = (content.files, content.folders) {
            let (files, folders) = (
                counted(files, "file", "files"),
                counted(folders, "folder", "folders"),
            );
            self.fact("holds", &format!("{files}, {folders}"))?;
        }
        self.fact(
            "names",
            if content.case_sensitive {
                "case-sensitive"
            } else {
                "case-insensitive"
            },
        )?;
        match &volume.details {
            Some(VolumeDetails::Apfs(apfs)) => self.apfs(apfs)?,
            Some(VolumeDetails::HfsPlus { journaled, clean }) => {
                self.fact("journal", if *journaled { "yes" } else { "no" })?;
                self.fact(
                    "state",
                    if *clean {
                        "clean"
                    } else {
                        "not cleanly unmounted"
                    },
                )?;
            }
            None => {}
        }
        for (name, value) in [
            ("uuid", &content.uuid),
            ("created", &content.created),
            ("modified", &content.modified),
        ] {
            if let Some(value) = value {
                self.fact(name, value)?;
            }
        }
        Ok(())
    }
}

/// Facts that only APFS volumes have.
impl InfoWriter<'_> {
    fn apfs(&mut self, apfs: &ApfsInfo) -> io::Result<()> {
        if let Some(role) = apfs.role {
            self.fact("role", role)?;
        }
        self.fact(
            "encrypted",
            match (apfs.encrypted, apfs.hardware_key) {
                (false, _) => "no",
                (true, false) => "yes, opens with a passphrase",
                (true, true) => "yes, opens only on its own Mac",
            },
        )?;
        if apfs.sealed {
            self.fact("sealed", "yes")?;
        }
        if let Some(quota) = apfs.quota {
            self.fact("quota", &exact(quota))?;
        }
        if apfs.reserve > 0 {
            self.fact("reserve", &exact(apfs.reserve))?;
        }
        let newest = apfs.snapshots.iter().rev().take(SNAPSHOTS_SHOWN);
        let names: Vec<_> = newest
            .map(|snapshot| self.output.name(&snapshot.name))
            .collect();
        let more = apfs.snapshots.len() - names.len();
        match (names.is_empty(), more) {
            (true, _) => {}
            (false, 0) => self.fact("snapshots", &names.join(", "))?,
            (false, more) => self.fact(
                "snapshots",
                &format!("{}, and {more} older (--json lists all)", names.join(", ")),
            )?,
        }
        self.fact("container", &apfs.container.uuid)?;
        self.fact(
            "",
            &format!("{} used by its contents", exact(apfs.container.used)),
        )?;
        let found = apfs
            .container
            .checkpoints
            .iter()
            .filter(|&&xid| xid < apfs.container.checkpoint);
        let mut older: Vec<_> = found.map(u64::to_string).collect();
        let more = older.len().saturating_sub(CHECKPOINTS_SHOWN);
        older.truncate(CHECKPOINTS_SHOWN);
        let older = match (older.is_empty(), more) {
            (true, _) => "no older checkpoint found".to_owned(),
            (false, 0) => format!("older: {}", older.join(", ")),
            (false, more) => format!(
                "older: {}, and {more} more (--json lists all)",
                older.join(", ")
            ),
        };
        self.fact(
            "checkpoint",
            &format!("{}; {older}", apfs.container.checkpoint),
        )
    }
}

/// Describes what a key slot opens with.
pub(crate) fn key_slot(slot: &KeySlotInfo) -> String {
    match &slot.kind {
        KeySlotKind::Passphrase {
            iterations,
            key_wrap,
        } => {
            let iterations = grouped(u64::from(*iterations));
            match key_wrap.as_str() {
                "3des" => format!("a passphrase, {iterations} iterations"),
                wrap => format!(
                    "a passphrase, {iterations} iterations, wrapped with {}",
                    wrap.to_uppercase()
                ),
            }
        }
        KeySlotKind::PublicKey { id, bits } => {
            format!("the private key of {id}, RSA of {bits} bits")
        }
        KeySlotKind::Unknown { message, .. } => format!("an unknown entry: {message}"),
    }
}

/// Describes a code signature in a line.
pub(crate) fn signed_by(contents: &SignatureContents, output: &Output) -> String {
    let mut parts = vec![output.name(&contents.identifier)];
    let team = contents.team.as_ref();
    parts.extend(team.map(|team| format!("team {}", output.name(team))));
    parts.push(contents.algorithms.join(" and "));
    parts.push(match contents.certified {
        true => "certificates not verified".to_owned(),
        false => "ad hoc".to_owned(),
    });
    parts.extend(contents.ticket.then(|| "with a ticket".to_owned()));
    parts.join(", ")
}

/// The number of older checkpoints shown; `--json` has all.
const CHECKPOINTS_SHOWN: usize = 8;

/// The number of snapshots shown; `--json` has all.
const SNAPSHOTS_SHOWN: usize = 8;
