//! Repair of the layers of an image from the outside in, each on the staged view before the next is
//! opened.

use std::sync::Arc;

use super::target::Target;
use super::{Options, Repaired};
use crate::container::raw::Raw;
use crate::container::{
    ContainerKind, Format, Orphans, asif, fork_file, sparsebundle, sparseimage,
};
use crate::crypt;
use crate::decision::{Alternative, CopyChoice, OrphanChoice, Undecided};
use crate::device::{AfterDiscard, BlockDevice, ExtentKind};
use crate::fs::RepairStep;
use crate::open::compare_lists::{ListDecision, ListEvidence};
use crate::open::geometry::{self, Depth};
use crate::open::staged_image::StagedImage;
use crate::open::{self, OpenOptions, PlainFile, StoredImage};
use crate::ops::space::UnitKind;
use crate::partition::{self, gpt, gpt::Search};
use crate::problem::{Problem, Problems};
use crate::progress::Progress;
use crate::store::{Open, Staged};
use crate::{Error, Kind, Result};

/// Layer name for steps of the partition map.
const GPT: &str = "GPT";

/// A repair in progress.
pub(super) struct LayerRepair<'a> {
    pub(super) target: &'a Target,
    pub(super) staged: &'a Staged,
    pub(super) options: &'a OpenOptions<'a>,
    pub(super) chosen: &'a Options<'a>,
    pub(super) progress: &'a dyn Progress,
    pub(super) done: Repaired,
    /// Problems of volumes before the repair.
    pub(super) found: Problems,
    /// Problems of volumes after the repair.
    pub(super) remaining: Vec<Problem>,
    /// The reasons why volumes, or parts of them, could not be checked.
    pub(super) unchecked: Vec<Error>,
    /// True if the volumes were found, checked and repaired as far as possible.
    pub(super) reached_volumes: bool,
    /// True if anything outside of volumes was changed.
    pub(super) changed_outside: bool,
    /// True if a copy of the partition map was written again.
    restored_map: bool,
    /// Disk offsets of the volumes that were repaired, whose losses are known.
    pub(super) rebuilt: Vec<u64>,
    /// The reason why nothing of the image can be repaired, if its format cannot be changed in place.
    pub(super) write_once: Option<Error>,
}

impl<'a> LayerRepair<'a> {
    pub(super) fn new(
        target: &'a Target,
        staged: &'a Staged,
        options: &'a OpenOptions<'a>,
        chosen: &'a Options<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        let (done, found, remaining) = (Repaired::default(), Problems::default(), Vec::new());
        Self {
            target,
            staged,
            options,
            chosen,
            progress,
            done,
            found,
            remaining,
            unchecked: Vec::new(),
            reached_volumes: false,
            changed_outside: false,
            restored_map: false,
            rebuilt: Vec::new(),
            write_once: None,
        }
    }

    /// Performs all steps on the staged view. [`Kind::Undecided`] if they must not be written.
    pub(super) fn run(&mut self) -> Result<()> {
        if self.target.file.is_none() {
            return self.bundle();
        }
        let staged = StagedImage::of(self.staged, self.target.file)?;
        match staged.bytes() {
            StoredImage::File(file) if self.options.shadows.is_empty() => self.file(file),
            _ => self.map(&open::staged_disk(
                &self.target.path,
                &staged,
                self.options,
            )?),
        }
    }

    pub(super) fn outside(&mut self, layer: &'static str, steps: Vec<String>) {
        self.changed_outside |= !steps.is_empty();
        self.done.add(layer, steps);
    }

    fn bundle(&mut self) -> Result<()> {
        const BUNDLE: &str = "sparse bundle";
        let question = ListEvidence {
            path: &self.target.path,
            store: self.staged,
            options: self.options,
            assume: &self.chosen.assume,
            temporary: &self.chosen.temporary,
            depth: Depth::Full,
            progress: self.progress,
        };
        let (geometry, is_whole) = match question.resolve()? {
            ListDecision::Geometry { geometry, is_whole } => (geometry, is_whole),
            ListDecision::Refused(error) => {
                self.done.refused.push(error);
                return Ok(());
            }
        };
        let steps = sparsebundle::put_lists(self.staged, geometry)?;
        self.outside(BUNDLE, steps);
        if is_whole {
            self.check_leftovers(geometry, BUNDLE)?;
        }
        let repaired = sparsebundle::repair(self.staged, geometry, is_whole, self.progress)?;
        self.outside(BUNDLE, repaired.steps);
        self.done.refused.extend(repaired.refused);
        let staged = StagedImage::of(self.staged, None)?;
        match open::staged_disk(&self.target.path, &staged, self.options) {
            Ok(disk) => self.map(&disk),
            // Reported with the refused repairs.
            Err(error) if error.kind() == Kind::Corrupt => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn file(&mut self, file: Arc<dyn BlockDevice>) -> Result<()> {
        if open::is_archive(&*file)? {
            let fixed = "an encrypted archive has no redundancy; get the file again";
            let refused = Error::unsupported("encrypted archive", fixed);
            self.write_once = Some(refused);
            return Ok(());
        }
        let PlainFile {
            device: plain,
            decrypted,
        } = open::unlocked(file.clone(), self.options)?;
        if fork_file::find(&*plain)?.is_some_and(|found| found.data.is_some()) {
            let fixed = "MacBinary and AppleSingle files are only read; convert the image, and repair \
                         the copy";
            self.write_once = Some(Error::unsupported("image", fixed));
            return Ok(());
        }
        let format = self
            .options
            .image_format
            .map_or_else(|| open::detect_container(&*plain), Ok)?;
        let disk: Arc<dyn BlockDevice> = match format.container() {
            ContainerKind::SparseImage => {
                let repair = |orphans| sparseimage::repair(&plain, orphans);
                let steps = self.with_orphans(format, "sparse image", &repair);
                if !self.take_outside("sparse image", steps)? {
                    return Ok(());
                }
                Arc::new(sparseimage::SparseImage::open(plain)?)
            }
            ContainerKind::Asif => {
                let steps = self.decide_directory(&plain)?;
                self.take_outside("ASIF", Ok(steps))?;
                let progress = self.progress;
                let repair = |orphans| asif::repair(&plain, orphans, progress);
                let steps = self
                    .with_orphans(format, "ASIF", &repair)
                    .and_then(|mut steps| {
                        steps.extend(self.decide_unwritten()?);
                        Ok(steps)
                    });
                if !self.take_outside("ASIF", steps)? {
                    return Ok(());
                }
                let image = asif::Asif::open(plain)?;
                open::stands_alone(&image)?;
                Arc::new(image)
            }
            ContainerKind::Raw => {
                let steps = match decrypted {
                    Some(device) => self.encrypted_len(&file, &device),
                    None => Ok(Vec::new()),
                };
                self.take_outside("encrypted image", steps)?;
                let steps = raw_tail(&plain);
                if !self.take_outside("raw image", steps)? {
                    return Ok(());
                }
                Arc::new(Raw::new(plain))
            }
            ContainerKind::Udif | ContainerKind::Bundle => {
                let fixed = "a compressed image has no redundancy; get the file again";
                self.write_once = Some(Error::unsupported("udif", fixed));
                return Ok(());
            }
            ContainerKind::ReadOnly => {
                let fixed = "images of this format are only read; convert it, and repair the copy";
                self.write_once = Some(Error::unsupported("image", fixed));
                return Ok(());
            }
        };
        let lacks_start = !format.is_plain() && starts_with_hole(&*disk)?;
        self.map(&disk)?;
        if lacks_start && !starts_with_hole(&*disk)? {
            self.check_start(format)?;
        }
        Ok(())
    }

    /// Refuses to write a new band or chunk 0 of an image that stores others, unless the user assumes a
    /// copy: one of them is the first if the index is wrong.
    fn check_start(&self, format: Format) -> Result<()> {
        let assume = &self.chosen.assume;
        let (key, chosen, copy) = if self.restored_map {
            (
                "map",
                assume.map,
                "the partition map at the end of the disk",
            )
        } else {
            ("header", assume.header, "the alternate volume header")
        };
        // A choice about bands past the end of the disk concerns the first one as well.
        let removes = assume.orphans == Some(OrphanChoice::Remove);
        if chosen.is_some() || removes || assume.size.is_some() {
            return Ok(());
        }
        let unit = unit_kind(format).words().0;
        let evidence = format!("{copy} is restored; the other contents of the {unit} stay lost");
        let alternatives = vec![Alternative {
            assume: format!("{key}={}", CopyChoice::Alternate.name()),
            evidence,
        }];
        let what = format!(
            "{unit} 0, the start of the disk, is not stored, and the index may record another number \
             for it"
        );
        let layer = match format.has_bands() {
            true => "sparse image",
            false => "ASIF",
        };
        Err(Undecided { what, alternatives }.into_error(layer))
    }

    /// Corrects the length in the header of an encrypted raw image whose file stores more, if the contents
    /// agree with the stored length and not with the recorded one, or as the user assumes. Data past an
    /// assumed length is removed.
    fn encrypted_len(
        &self,
        file: &Arc<dyn BlockDevice>,
        device: &crypt::Device,
    ) -> Result<Vec<String>> {
        let recorded = device.info().len;
        let Some(stored) = device.stored_end() else {
            return Ok(Vec::new());
        };
        let assumed = self.chosen.assume.size;
        let len = match assumed {
            Some(len) if (recorded..=stored).contains(&len) => len,
            None if self.fits_stored_len(stored)? => stored,
            _ => return Ok(Vec::new()),
        };
        let mut steps = Vec::new();
        if len != recorded {
            device.set_len(len, AfterDiscard::Any)?;
            device.flush()?;
            steps.push(format!(
                "the header records {len} bytes of data, which the file stores"
            ));
        }
        let end = device.data_end();
        if assumed.is_some() && end < file.info().len {
            file.set_len(end, AfterDiscard::Any)?;
            file.flush()?;
            steps.push(format!(
                "the file is truncated to {end} bytes, the end of its data"
            ));
        }
        Ok(steps)
    }

    /// Returns true if the contents of an encrypted raw image contradict its length, and agree with
    /// `stored` bytes.
    fn fits_stored_len(&self, stored: u64) -> Result<bool> {
        let evidence = |store: &Staged, mode, len: Option<u64>| {
            let reading = self.options.reading();
            let options = if len.is_none() {
                &reading
            } else {
                self.options
            };
            let (plain, _) = self.plain(store, mode, options)?;
            len.map_or(Ok(()), |len| plain.set_len(len, AfterDiscard::Any))?;
            let disk: Arc<dyn BlockDevice> = Arc::new(Raw::new(plain));
            geometry::of_disk(&disk, self.options, Depth::Full, self.progress)
        };
        if !evidence(self.staged, Open::Read, None)?.is_contradicted() {
            return Ok(false);
        }
        let tried = Staged::new(Arc::new(self.staged.clone()), self.chosen.temporary.clone());
        Ok(evidence(&tried, Open::Write, Some(stored))?.is_consistent())
    }

    /// Performs the repairs of a file that keep its orphans, then decides about these. Returns the
    /// steps.
    fn with_orphans(
        &mut self,
        format: Format,
        layer: &'static str,
        repair: &dyn Fn(Orphans) -> Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        let mut steps = repair(Orphans::Keep)?;
        if self.decide_orphans(format, layer, &mut steps)? == Orphans::Remove {
            steps.extend(repair(Orphans::Remove)?);
        }
        self.check_ends(&steps, layer, format)?;
        Ok(steps)
    }

    pub(super) fn take_outside(
        &mut self,
        layer: &'static str,
        steps: Result<Vec<String>>,
    ) -> Result<bool> {
        self.changed_outside |= steps.as_ref().is_ok_and(|steps| !steps.is_empty());
        self.done.record_layer(layer, steps)
    }

    /// Refuses to change the end of a file if only its header supports that.
    fn check_ends(&self, steps: &[String], layer: &'static str, format: Format) -> Result<()> {
        if steps.is_empty() || self.chosen.assume.orphans.is_some() {
            return Ok(());
        }
        let (disk, _) = self.opened(self.staged, format)?;
        let len = disk.info().len;
        let found = geometry::of_disk(&disk, self.options, Depth::Full, self.progress)?;
        if found.is_consistent()
            || found.is_consistent_but_for_growth()
            || self.chosen.assume.size == Some(len)
        {
            return Ok(());
        }
        let what = format!(
            "the header records a disk of {len} bytes, but the file stores more, and nothing \
             decides which is right"
        );
        let alternatives = vec![Alternative {
            assume: format!("size={len}"),
            evidence: found.description(),
        }];
        Err(Undecided { what, alternatives }.into_error(layer))
    }

    fn map(&mut self, disk: &Arc<dyn BlockDevice>) -> Result<()> {
        let mut search = Search::Announced;
        let found = open::find_contents_with(disk, |next| {
            search = next;
            partition::probe_with(&**disk, next)
        });
        if let Err(error) = found
            && error.kind() == Kind::Io
        {
            return Err(error);
        }
        let repaired = match gpt::repair_with(&**disk, search, self.chosen.assume.map) {
            Err(error) if error.kind() == Kind::Undecided => {
                let which = geometry::decide_map(disk, error, self.options, self.progress)?;
                gpt::repair_with(&**disk, search, Some(which))
            }
            repaired => repaired,
        };
        let (parts, refused) = match repaired {
            Ok(repaired) => repaired,
            // A disk without a GPT has none to repair.
            Err(error) if error.kind() == Kind::NotFound => return self.volumes(disk),
            Err(error) => {
                return self
                    .done
                    .record_layer(GPT, Err::<Vec<RepairStep>, _>(error))
                    .map(drop);
            }
        };
        let parts = [
            (parts.protective_mbr, "protective MBR"),
            (parts.primary, "copy at the beginning"),
            (parts.backup, "copy at the end"),
        ];
        let written = parts.into_iter().filter(|(written, _)| *written);
        let steps: Vec<_> = written.map(|(_, part)| part.to_owned()).collect();
        self.restored_map |= !steps.is_empty();
        self.outside(GPT, steps);
        self.done.refused.extend(refused);
        self.volumes(disk)
    }
}

/// Returns true if nothing is stored of the first byte of a disk.
pub(super) fn starts_with_hole(disk: &dyn BlockDevice) -> Result<bool> {
    let first = 0..disk.info().len.min(1);
    Ok(!first.is_empty() && disk.extent_at(first)?.kind == ExtentKind::Hole)
}

/// Extends a raw image that lacks its last sectors, those of the backup GPT, to the length in the
/// primary GPT. Fails if a partition is truncated.
fn raw_tail(file: &Arc<dyn BlockDevice>) -> Result<Vec<String>> {
    let len = file.info().len;
    let disk = Raw::new(file.clone());
    let Some(whole) = gpt::recorded_len(&disk)?.filter(|whole| *whole > len) else {
        return Ok(Vec::new());
    };
    let Some(map) = partition::probe(&disk)? else {
        return Ok(Vec::new());
    };
    if let Some(cut) = map
        .problems
        .iter()
        .find(|problem| problem.kind() == Kind::OutOfRange)
    {
        let lost = format!(
            "truncated, and the image has no copy of the lost data: {}",
            cut.message()
        );
        return Err(Error::corrupt("raw image", len, lost));
    }
    file.set_len(whole, AfterDiscard::Zeros)?;
    file.flush()?;
    Ok(vec![format!(
        "the file is extended by {} bytes to {whole}, the space after the last partition",
        whole - len
    )])
}

pub(super) const fn unit_kind(format: Format) -> UnitKind {
    if format.has_bands() {
        UnitKind::Band
    } else {
        UnitKind::Chunk
    }
}
