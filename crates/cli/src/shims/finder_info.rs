//! Reading and writing of the [`FinderInfo`] of host files.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use bandsaw::ops::finder::FinderInfo;
use bandsaw::platform::nodes;
use bandsaw::{Error, Kind};

use crate::failure::Outcome;

const LAYER: &str = "Finder info";

/// Returns the Finder info of a file, all zero if it has none.
pub(super) fn read(path: &Path) -> Outcome<FinderInfo> {
    let failed = |error| Error::io(LAYER, "read", error).in_file(path);
    let file = File::open(path).map_err(failed)?;
    let all = nodes::xattrs(file.as_fd()).map_err(failed)?;
    let Some((_, value)) = all.into_iter().find(|(name, _)| name == FinderInfo::NAME) else {
        return Ok(FinderInfo::new([0; FinderInfo::LEN]));
    };
    let bytes = value.try_into().map_err(|_| {
        let message = format!("expected {} bytes", FinderInfo::LEN);
        Error::new(Kind::Invalid, LAYER, message).in_file(path)
    })?;
    Ok(FinderInfo::new(bytes))
}

/// Sets the Finder info of a file.
pub(super) fn write(info: &FinderInfo, path: &Path) -> Outcome {
    let failed = |error| Error::io(LAYER, "write", error).in_file(path);
    let file = File::open(path).map_err(failed)?;
    nodes::set_xattr(file.as_fd(), FinderInfo::NAME, info.as_bytes()).map_err(failed)?;
    Ok(())
}
