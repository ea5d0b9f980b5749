//! The files of an image that was split into parts, found beside the first.

use std::path::Path;
use std::sync::Arc;

use super::Layer;
use super::opening::Opening;
use crate::container::udif::{self, Segment, SegmentPart, Udif};
use crate::device::BlockDevice;
use crate::store::{LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

const LAYER: &str = "udif set";

impl Opening<'_> {
    /// Opens the UDIF image in `file`, and the other files of the set.
    pub(super) fn udif_set(&mut self, file: Arc<dyn BlockDevice>) -> Result<Udif> {
        match <[SegmentPart; 1]>::try_from(self.parts(file)?) {
            Ok([only]) => Udif::open(only.file),
            Err(parts) => Udif::open_parts(parts),
        }
    }

    /// Returns `file` and the other parts of the image that begins in it.
    pub(super) fn parts(&mut self, file: Arc<dyn BlockDevice>) -> Result<Vec<SegmentPart>> {
        let segment = udif::segment(&*file)?;
        let mut parts = vec![SegmentPart {
            name: self.path.to_owned(),
            file,
        }];
        if segment.count < 2 {
            return Ok(parts);
        }
        check_first(self.path, segment)?;
        for number in 2..=segment.count {
            let path = udif::part_path(self.path, number);
            let file = self
                .part(&path, segment, number)
                .map_err(|error| error.in_file(&path))?;
            parts.push(SegmentPart { name: path, file });
        }
        Ok(parts)
    }

    fn part(
        &mut self,
        path: &Path,
        Segment { count, .. }: Segment,
        number: u32,
    ) -> Result<Arc<dyn BlockDevice>> {
        let Some(file) = LocalFile::open_locked(path, Open::Read, Lock::Shared)? else {
            let message = format!("missing part {number} of {count}: expected beside the first");
            return Err(Error::new(Kind::NotFound, LAYER, message));
        };
        let file = Arc::new(file);
        self.layers.push(Layer::File(file.clone()));
        // The encryption layer is reported for the first part only.
        Opening::new(path, &self.options).unlock(file)
    }
}

fn check_first(path: &Path, Segment { number, count, .. }: Segment) -> Result<()> {
    if number > udif::MAX_PARTS || number > count {
        let message = format!(
            "invalid part number in the trailer: {number} of {count}, at most {} are possible",
            udif::MAX_PARTS
        );
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    if number != 1 {
        let first =
            udif::first_path(path).and_then(|first| Some(first.file_name()?.display().to_string()));
        let first = first.map_or_else(String::new, |first| format!(", {first}"));
        let message =
            format!("part {number} of an image in {count} files; open the first part{first}");
        return Err(Error::invalid(LAYER, message));
    }
    if count > udif::MAX_PARTS {
        let message = format!(
            "the image has {count} parts: at most {} are supported",
            udif::MAX_PARTS
        );
        return Err(Error::limit(LAYER, message));
    }
    Ok(())
}
