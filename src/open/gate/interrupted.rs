//! Detection of interrupted repairs, by the undo data beside an image.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::device::{Access, BlockDeviceExt};
use crate::open::{LAYER, remote};
use crate::size::to_usize;
use crate::store::{Local, Open, Store};
use crate::{Error, Kind, Reason, Result};

/// The suffix of the folder of an image's undo data.
pub(crate) const UNDO_SUFFIX: &str = ".undo";

/// Files of the undo data of one repair, in a folder of its number: the log of changes, the state
/// of the repaired image, and the mark of a complete repair.
pub(crate) const LOG: &str = "log";
pub(crate) const STATE: &str = "state";
pub(crate) const APPLIED: &str = "applied";

/// Message about an image whose repair was interrupted.
const MESSAGE: &str = "a repair of this image was interrupted";
/// First line of a file of the undo data.
const HEAD: &str = "bandsaw undo 4";
/// First word of the line in a state that holds device and inode of the image.
pub(crate) const IMAGE: &str = "image";
/// Maximum length of a file that is read into memory, in bytes.
pub(crate) const MAX_LEN: u64 = 1 << 30;

/// The state of a repair. Without one, its undo data is incomplete and nothing has been changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The undo data is complete; the image is being changed, or restored.
    Prepared,
    /// The repair is complete.
    Applied,
}

/// Returns the path of the image itself if `path` is a symbolic link or has no file name.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    // Without a slash at its end, which would follow a link.
    let path = path.components().as_path();
    let is_real = path.file_name().is_some() && fs::read_link(path).is_err();
    if is_real {
        return path.to_owned();
    }
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the folder that holds the file at `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Returns the folder of the undo data of the image at `path`, beside the image itself.
pub(crate) fn undo_folder(path: &Path) -> PathBuf {
    let path = real_path(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(UNDO_SUFFIX);
    let folder = path.with_file_name(name);
    match fs::symlink_metadata(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            undo_folder_of_link(&path).unwrap_or(folder)
        }
        _ => folder,
    }
}

/// Returns true if there is undo data beside the image at `path`.
pub(crate) fn has_undo_data(path: &Path) -> bool {
    remote::url(path).is_none() && undo_folder(path).is_dir()
}

/// Returns device and inode of a file or folder.
#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "only hosts of Unix have these numbers")
)]
pub(crate) fn identity(meta: &fs::Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((meta.dev(), meta.ino()))
    }
    #[cfg(not(unix))]
    {
        None
    }
}

/// Returns the folder of the undo data of the image at `path` if it is named after another hard
/// link to the image in the same folder.
fn undo_folder_of_link(path: &Path) -> Option<PathBuf> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || !has_links(&meta) {
        return None;
    }
    let wanted = identity(&meta)?;
    for entry in fs::read_dir(folder_of(path)).ok()?.flatten() {
        let name = entry.file_name();
        let Some(image) = name
            .to_str()
            .and_then(|name| name.strip_suffix(UNDO_SUFFIX))
        else {
            continue;
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let folder = path.with_file_name(&name);
        let image = fs::symlink_metadata(path.with_file_name(image)).ok();
        let is_linked = match image.filter(fs::Metadata::is_file) {
            Some(image) => identity(&image) == Some(wanted),
            None => identity_in(&Local::new(&folder)) == Some(wanted),
        };
        if is_linked {
            return Some(folder);
        }
    }
    None
}

/// Returns true if a file has several names.
#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "only hosts of Unix have these numbers")
)]
fn has_links(meta: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::fs::MetadataExt::nlink(meta) > 1
    }
    #[cfg(not(unix))]
    {
        false
    }
}

/// Returns device and inode of the image in the last state of a folder of undo data.
fn identity_in(undo: &dyn Store) -> Option<(u64, u64)> {
    let number = repairs(undo).ok()?.pop()?;
    let start = start(undo, &format!("{number}/{STATE}")).ok()??;
    let line = start.lines().nth(1)?.strip_prefix(IMAGE)?;
    let (device, inode) = line.trim_start().split_once(' ')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// Refuses changes of an image with an interrupted repair; for a read-only open, returns a warning.
/// Undo data in a folder of the user's choice is not found.
pub(crate) fn refuse_or_warn(path: &Path, access: Access) -> Result<Option<String>> {
    if !has_undo_data(path) {
        return Ok(None);
    }
    let folder = undo_folder(path);
    let found = check_links(&folder).and_then(|()| is_unfinished(&Local::new(&folder)));
    match (found, access) {
        (Ok(false), _) => Ok(None),
        (Ok(true), Access::ReadWrite) => Err(error().in_file(path)),
        (Ok(true), Access::ReadOnly) => Ok(Some(format!(
            "{MESSAGE}: run `bandsaw repair --undo` to restore it"
        ))),
        (Err(error), Access::ReadWrite) => Err(error.in_file(&folder)),
        (Err(error), Access::ReadOnly) => Ok(Some(error.message().to_owned())),
    }
}

/// Fails if the folder of a repair, in a folder of undo data, is a symbolic link: it may lead into
/// other data.
pub(crate) fn check_links(folder: &Path) -> Result<()> {
    let failed = |source| Error::io(LAYER, "read the undo data", source).in_file(folder);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_repair = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.parse::<u64>().is_ok());
        if is_repair && entry.file_type().map_err(failed)?.is_symlink() {
            let message = "the undo data is a symbolic link, which is not followed";
            return Err(Error::conflict(LAYER, message).in_file(entry.path()));
        }
    }
    Ok(())
}

/// Returns the error about an interrupted repair.
pub(crate) fn error() -> Error {
    Error::conflict(LAYER, MESSAGE).because(Reason::RepairInterrupted)
}

/// Returns true if one of the repairs in a folder of undo data, or its undo, was interrupted.
pub(crate) fn is_unfinished(undo: &dyn Store) -> Result<bool> {
    for number in repairs(undo)? {
        if state(undo, number)?.is_some_and(|state| state != State::Applied) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the numbers of the repairs that have undo data, in order.
pub(crate) fn repairs(undo: &dyn Store) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    undo.list("", &mut |entry| {
        let number = entry
            .name
            .split_once('/')
            .and_then(|(number, _)| number.parse::<u64>().ok());
        if let Some(number) = number
            && !numbers.contains(&number)
        {
            numbers.push(number);
        }
        Ok(())
    })?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the state of a repair. `None`: it has not changed the image.
pub(crate) fn state(undo: &dyn Store, number: u64) -> Result<Option<State>> {
    // The beginning suffices: the rest can be long, and every image that is opened needs this.
    let name = format!("{number}/{STATE}");
    let Some(start) = start(undo, &name)? else {
        // Undo data of another version may have no state, but it has a log.
        let name = format!("{number}/{LOG}");
        start(undo, &name)?.map_or(Ok(()), |start| check_version(&start, &name))?;
        return Ok(None);
    };
    check_version(&start, &name)?;
    if start.lines().next() != Some(HEAD) {
        return Err(corrupt(&name));
    }
    let is_applied = undo.stat(&format!("{number}/{APPLIED}"))?.is_some();
    Ok(Some(if is_applied {
        State::Applied
    } else {
        State::Prepared
    }))
}

/// Returns the first bytes of a text file of the undo data.
fn start(undo: &dyn Store, name: &str) -> Result<Option<String>> {
    let Some(file) = undo.open(name, Open::Read)? else {
        return Ok(None);
    };
    let bytes = file.read_vec(0, to_usize(file.info().len.min(128)))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn check_version(text: &str, name: &str) -> Result<()> {
    let head = text.lines().next().unwrap_or_default();
    if head != HEAD && head.starts_with("bandsaw undo ") {
        let message = "the undo data is of a version that is not supported: use the version of \
                       Bandsaw that made it";
        return Err(Error::unsupported(LAYER, message).named(name));
    }
    Ok(())
}

fn corrupt(name: &str) -> Error {
    Error::new(
        Kind::Corrupt,
        LAYER,
        "the undo data is damaged: checksum mismatch",
    )
    .named(name)
}

/// Reads a text file of the undo data, and checks its version and checksum.
pub(crate) fn read(undo: &dyn Store, name: &str) -> Result<String> {
    let missing = || Error::not_found(LAYER, name);
    let file = undo.open(name, Open::Read)?.ok_or_else(missing)?;
    let len = file.info().len;
    if len > MAX_LEN {
        return Err(corrupt(name));
    }
    let text = String::from_utf8(file.read_vec(0, to_usize(len))?).map_err(|_| corrupt(name))?;
    check_version(&text, name)?;
    let body = text
        .strip_prefix(HEAD)
        .and_then(|rest| {
            rest.strip_prefix('\n')?
                .strip_suffix('\n')?
                .rsplit_once('\n')
        })
        .and_then(|(body, sum)| (sum == end(body)).then_some(body));
    body.map(str::to_owned).ok_or_else(|| corrupt(name))
}

/// Returns the contents of a text file of the undo data with these lines.
pub(crate) fn file_of(body: &str) -> Vec<u8> {
    let body = body.trim_end_matches('\n');
    format!("{HEAD}\n{body}\n{}\n", end(body)).into_bytes()
}

fn end(body: &str) -> String {
    format!("end {:08x}", crc32fast::hash(body.as_bytes()))
}
