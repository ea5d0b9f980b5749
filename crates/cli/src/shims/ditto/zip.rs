//! Zip archives of files and folders.
//!
//! Extended attributes are members of their own in AppleDouble: beside their file as `._NAME`, or
//! under its path in the folder `__MACOSX`.

use std::collections::HashMap;
use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use bandsaw::fs::{DateTime, Timestamp};
use bandsaw::ops::import::apple_double;
use bandsaw::platform::nodes;
use bandsaw::{Error, Kind};
use zip::extra_fields::ExtraField;
use zip::write::FullFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::copy::is_inside;
use super::{ArchiveOptions, FileOptions, compress, failed, make_parents, print_copied};
use crate::commands::create::epoch;
use crate::failure::Outcome;
use crate::new_file::{self, NewFile};

const LAYER: &str = "archive";
const SEQUESTERED: &str = "__MACOSX";
/// Longest AppleDouble member and longest target of a symbolic link that are read, in bytes.
const MAX_ATTRIBUTES: u64 = 256 << 20;
const MAX_TARGET: u64 = 4096;
/// Files from this length on have fields of 64 bits, in bytes.
const LARGE: u64 = 0xFFFF_0000;

/// Writes a file, or a folder, to the archive `to`, which it replaces when it is complete.
pub(super) fn archive(from: &Path, to: &Path, options: &ArchiveOptions) -> Outcome {
    // A link that is named is followed.
    let root = from
        .canonicalize()
        .map_err(|error| failed("find", error, from))?;
    let is_folder = root.is_dir();
    let name = match (is_folder && !options.keep_parent, named(from, &root)) {
        (true, _) => String::new(),
        (false, Some(name)) => name,
        (false, None) => return Err(Error::invalid(LAYER, "no name").in_file(from).into()),
    };
    if is_folder && is_inside(to, &root).map_err(|error| failed("find", error, to))? {
        let message = "is inside the folder to be archived";
        return Err(Error::conflict(LAYER, message).in_file(to).into());
    }
    make_parents(to)?;
    let mut writer = Writer {
        zip: ZipWriter::new(NewFile::create(to, true)?),
        options,
        epoch: epoch()?,
    };
    writer.node(&root, &name)?;
    let file = writer.zip.finish().map_err(|error| wrong(error, to))?;
    Ok(file.finish()?)
}

/// Returns the name by which a source is called, which may be `.`.
fn named(from: &Path, root: &Path) -> Option<String> {
    let name = from.file_name().or(root.file_name())?;
    Some(name.to_str()?.to_owned())
}

struct Writer<'a> {
    zip: ZipWriter<NewFile>,
    options: &'a ArchiveOptions,
    epoch: Option<Timestamp>,
}

impl Writer<'_> {
    /// Writes a node under a name, which is empty for the root of the archive.
    fn node(&mut self, path: &Path, name: &str) -> Outcome {
        let meta = fs::symlink_metadata(path).map_err(|error| failed("find", error, path))?;
        let described = |mode: u32| {
            self.described(&meta, mode)
                .map_err(|error| wrong(error, path))
        };
        let wrong = |error| wrong(error, path);
        if self.options.named && !meta.is_dir() {
            print_copied(path);
        }
        if meta.is_symlink() {
            let target = fs::read_link(path).map_err(|error| failed("read", error, path))?;
            let target = utf8(&target)?;
            let options = described(0o777)?;
            self.zip.add_symlink(name, target, options).map_err(wrong)?;
            return Ok(());
        }
        if meta.is_dir() {
            if !name.is_empty() {
                let options = described(meta.mode() & 0o7777)?;
                self.zip.add_directory(name, options).map_err(wrong)?;
                self.attributes(path, name, &meta)?;
            }
            return self.entries(path, name);
        }
        if !meta.is_file() {
            let message = "a special file, which is not archived";
            return Err(Error::new(Kind::Unsupported, LAYER, message)
                .in_file(path)
                .into());
        }
        let options = described(meta.mode() & 0o7777)?.large_file(meta.len() >= LARGE);
        self.zip.start_file(name, options).map_err(wrong)?;
        let mut file = File::open(path).map_err(|error| failed("open", error, path))?;
        io::copy(&mut file, &mut self.zip).map_err(|error| failed("copy", error, path))?;
        self.attributes(path, name, &meta)
    }

    fn entries(&mut self, path: &Path, name: &str) -> Outcome {
        let entries = fs::read_dir(path)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| failed("list", error, path))?;
        let mut names: Vec<_> = entries.iter().map(fs::DirEntry::file_name).collect();
        names.sort();
        for entry in names {
            let text = utf8(Path::new(&entry))?;
            let inside = match name {
                "" => text.to_owned(),
                _ => format!("{name}/{text}"),
            };
            self.node(&path.join(&entry), &inside)?;
        }
        Ok(())
    }

    /// Writes the extended attributes of a node, if it has some.
    fn attributes(&mut self, path: &Path, name: &str, meta: &fs::Metadata) -> Outcome {
        if !self.options.attributes {
            return Ok(());
        }
        let file = File::open(path).map_err(|error| failed("open", error, path))?;
        let all =
            nodes::xattrs(file.as_fd()).map_err(|error| failed("read attributes", error, path))?;
        if all.is_empty() {
            return Ok(());
        }
        let double = apple_double::encode(&all).map_err(|error| error.in_file(path))?;
        let (folder, last) = name.rsplit_once('/').map_or(("", name), |parts| parts);
        let place = match (self.options.sequester, folder) {
            (false, "") => format!("._{last}"),
            (false, _) => format!("{folder}/._{last}"),
            (true, "") => format!("{SEQUESTERED}/._{last}"),
            (true, _) => format!("{SEQUESTERED}/{folder}/._{last}"),
        };
        let options = self.described(meta, 0o644);
        options
            .and_then(|options| self.zip.start_file(place, options))
            .map_err(|error| wrong(error, path))?;
        let written = self.zip.write_all(&double);
        written.map_err(|error| failed("write attributes", error, path))?;
        Ok(())
    }

    fn described(
        &self,
        meta: &fs::Metadata,
        mode: u32,
    ) -> zip::result::ZipResult<FullFileOptions<'static, 'static>> {
        let epoch = self.epoch.map_or(i64::MAX, |epoch| epoch.seconds);
        let modified = meta.mtime().min(epoch);
        let options = FullFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(self.options.level)
            .unix_permissions(mode)
            .last_modified_time(dos(modified));
        match u32::try_from(modified) {
            Ok(modified) => options.with_extended_timestamp(Some(modified), None, None),
            Err(_) => Ok(options),
        }
    }
}

/// Returns a date in the archive's own form, which begins in 1980 and has no zone: UTC.
fn dos(seconds: i64) -> zip::DateTime {
    let at = Timestamp::from_seconds(seconds).date_time();
    let date = |year| {
        let [month, day, hour, minute, second] = [at.month, at.day, at.hour, at.minute, at.second];
        zip::DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
    };
    u16::try_from(at.year)
        .ok()
        .and_then(date)
        .unwrap_or_default()
}

/// Returns the seconds since 1970 of such a date.
fn unix(date: zip::DateTime) -> i64 {
    let date = DateTime {
        year: date.year().into(),
        month: date.month(),
        day: date.day(),
        hour: date.hour(),
        minute: date.minute(),
        second: date.second(),
    };
    date.timestamp().seconds
}

/// A member to be extracted.
struct Item {
    index: usize,
    path: PathBuf,
    is_folder: bool,
    is_link: bool,
    mode: Option<u32>,
    modified: i64,
}

/// Extracts an archive into a folder. Nothing is written outside of it, not through symbolic links
/// either.
pub(super) fn extract(from: &Path, to: &Path, files: FileOptions) -> Outcome {
    let file = File::open(from).map_err(|error| failed("open", error, from))?;
    let mut archive = ZipArchive::new(file).map_err(|error| wrong(error, from))?;
    let items = items(&mut archive, from)?;
    let places: HashMap<&Path, usize> = (0..)
        .zip(&items)
        .map(|(at, item)| (&*item.path, at))
        .collect();
    // Members with attributes, by the member that has them.
    let mut doubles = HashMap::new();
    let mut is_double: Vec<bool> = items
        .iter()
        .map(|item| item.path.starts_with(SEQUESTERED))
        .collect();
    for (at, item) in items.iter().enumerate() {
        let partner = partner(&item.path);
        let partner = partner.and_then(|path| places.get(&*path).copied());
        if let Some(partner) = partner.filter(|_| !item.is_folder && !item.is_link)
            && is_apple_double(&mut archive, item.index, from)?
        {
            is_double[at] = true;
            doubles.insert(partner, item.index);
        }
    }
    if !files.attributes {
        doubles.clear();
    }
    fs::create_dir_all(to).map_err(|error| failed("create", error, to))?;
    let mut extractor = Extractor {
        archive,
        from,
        to,
        files,
        is_root: rustix::process::geteuid().is_root(),
    };
    // Links last: nothing is written through one.
    for kind in [false, true] {
        for (at, item) in items.iter().enumerate() {
            if item.is_link == kind && !is_double[at] {
                extractor.item(item, doubles.get(&at).copied())?;
            }
        }
    }
    for (item, is_double) in items.iter().zip(is_double).rev() {
        if item.is_folder && !is_double {
            extractor.close_folder(item)?;
        }
    }
    Ok(())
}

/// Returns the members with their places, all of which must be inside the folder.
fn items(archive: &mut ZipArchive<File>, from: &Path) -> Outcome<Vec<Item>> {
    let mut items = Vec::new();
    for index in 0..archive.len() {
        let member = archive
            .by_index_raw(index)
            .map_err(|error| wrong(error, from))?;
        let name = member.name().map_err(|error| wrong(error, from))?;
        let path: PathBuf = Path::new(&*name)
            .components()
            .filter(|part| *part != Component::CurDir)
            .collect();
        let is_inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || name.contains('\0') {
            let message = "a member would be outside of the folder";
            let error = Error::invalid(LAYER, message).named(name.to_string());
            return Err(error.in_file(from).into());
        }
        let stamp = member.extra_data_fields().find_map(|field| match field {
            ExtraField::ExtendedTimestamp(stamp) => stamp.mod_time(),
            _ => None,
        });
        let dos = member.last_modified().map_or(0, unix);
        if !path.as_os_str().is_empty() {
            items.push(Item {
                index,
                path,
                is_folder: member.is_dir(),
                is_link: member.is_symlink(),
                mode: member.unix_mode(),
                modified: stamp.map_or(dos, i64::from),
            });
        }
    }
    Ok(items)
}

fn is_apple_double(archive: &mut ZipArchive<File>, index: usize, from: &Path) -> Outcome<bool> {
    let member = archive
        .by_index(index)
        .map_err(|error| wrong(error, from))?;
    let mut begin = Vec::new();
    let read = member.take(4).read_to_end(&mut begin);
    read.map_err(|error| failed("read", error, from))?;
    Ok(begin == apple_double::MAGIC.to_be_bytes())
}

/// Returns the path of the file whose attributes a member of this path has.
fn partner(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix("._")?;
    let path = path.with_file_name(name);
    Some(
        path.strip_prefix(SEQUESTERED)
            .map(Path::to_owned)
            .unwrap_or(path),
    )
}

struct Extractor<'a> {
    archive: ZipArchive<File>,
    from: &'a Path,
    to: &'a Path,
    files: FileOptions,
    is_root: bool,
}

impl Extractor<'_> {
    /// Extracts a member. `double`: the member with its attributes.
    fn item(&mut self, item: &Item, double: Option<usize>) -> Outcome {
        let path = self.to.join(&item.path);
        let folder = if item.is_folder {
            &*item.path
        } else {
            item.path.parent().unwrap_or(Path::new(""))
        };
        self.make_folders(folder)?;
        if item.is_folder {
            let attributes = self.attributes(double)?;
            let file = File::open(&path).map_err(|error| failed("open", error, &path))?;
            return set(&file, &attributes, &path);
        }
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            let message = "is a folder, expected a file";
            return Err(Error::conflict(LAYER, message).in_file(&path).into());
        }
        // The old file is kept until the new one is complete.
        let aside = new_file::aside(&path);
        let done = self.leaf(item, double, &aside).and_then(|()| {
            fs::rename(&aside, &path).map_err(|error| failed("replace", error, &path))?;
            Ok(())
        });
        let _ = fs::remove_file(&aside);
        done
    }

    fn leaf(&mut self, item: &Item, double: Option<usize>, to: &Path) -> Outcome {
        if self.files.named {
            print_copied(&item.path);
        }
        let attributes = self.attributes(double)?;
        let from = self.from;
        let member = self.archive.by_index(item.index);
        let mut member = member.map_err(|error| wrong(error, from))?;
        if item.is_link {
            let mut target = String::new();
            member
                .take(MAX_TARGET)
                .read_to_string(&mut target)
                .map_err(|error| failed("read", error, from))?;
            symlink(target, to).map_err(|error| failed("make the link", error, to))?;
            return Ok(());
        }
        let mut file = File::create_new(to).map_err(|error| failed("create", error, to))?;
        io::copy(&mut member, &mut file).map_err(|error| failed("extract", error, to))?;
        drop(member);
        set(&file, &attributes, to)?;
        self.finish(&file, item, to)?;
        drop(file); // an open file is not compressed
        if self.files.compressed {
            compress::compress(to)?;
        }
        Ok(())
    }

    /// Returns the attributes in a member.
    fn attributes(&mut self, double: Option<usize>) -> Outcome<Vec<(Box<str>, Vec<u8>)>> {
        let Some(index) = double else {
            return Ok(Vec::new());
        };
        let from = self.from;
        let member = self
            .archive
            .by_index(index)
            .map_err(|error| wrong(error, from))?;
        let mut bytes = Vec::new();
        member
            .take(MAX_ATTRIBUTES)
            .read_to_end(&mut bytes)
            .map_err(|error| failed("read", error, from))?;
        let found = apple_double::decode(&bytes).ok_or_else(|| {
            let message = "attributes in a damaged AppleDouble member, or of more than 256 MiB";
            Error::new(Kind::Corrupt, LAYER, message).in_file(from)
        })?;
        Ok(found
            .into_iter()
            .map(|(name, value)| (name, value.to_vec()))
            .collect())
    }

    /// Makes the folders of a path below the target, never through a symbolic link.
    fn make_folders(&self, inside: &Path) -> Outcome {
        let mut path = self.to.to_owned();
        for part in inside {
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => {
                    let message = "is a file or a link, expected a folder";
                    return Err(Error::conflict(LAYER, message).in_file(&path).into());
                }
                Err(_) => fs::create_dir(&path).map_err(|error| failed("create", error, &path))?,
            }
        }
        Ok(())
    }

    /// Sets the mode and the date of a folder, once nothing more is written into it.
    fn close_folder(&self, item: &Item) -> Outcome {
        let path = self.to.join(&item.path);
        let file = File::open(&path).map_err(|error| failed("open", error, &path))?;
        self.finish(&file, item, &path)
    }

    fn finish(&self, file: &File, item: &Item, path: &Path) -> Outcome {
        if let Some(mode) = item.mode {
            // As the program, it lets only root make a program that runs as another user.
            let mask = if self.is_root { 0o7777 } else { 0o777 };
            file.set_permissions(fs::Permissions::from_mode(mode & mask))
                .map_err(|error| failed("set the mode", error, path))?;
        }
        let modified = u64::try_from(item.modified).unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
        let times = FileTimes::new().set_modified(modified);
        Ok(file
            .set_times(times)
            .map_err(|error| failed("set the date", error, path))?)
    }
}

fn set(file: &File, attributes: &[(Box<str>, Vec<u8>)], path: &Path) -> Outcome {
    for (name, value) in attributes {
        nodes::set_xattr(file.as_fd(), name, value)
            .map_err(|error| failed("set attributes", error, path))?;
    }
    Ok(())
}

fn utf8(path: &Path) -> Outcome<&str> {
    let text = path.to_str();
    Ok(text.ok_or_else(|| Error::invalid(LAYER, "the name is not UTF-8").in_file(path))?)
}

fn wrong(error: zip::result::ZipError, path: &Path) -> Error {
    match error {
        zip::result::ZipError::Io(error) => failed("read or write", error, path),
        error => Error::new(Kind::Corrupt, LAYER, error.to_string()).in_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_kept_to_two_seconds() {
        for seconds in [315_532_800, 951_782_400, 1_700_000_001, 4_102_444_799] {
            assert_eq!(unix(dos(seconds)), seconds / 2 * 2);
        }
        assert_eq!(unix(dos(0)), 315_532_800, "1980 is the first year");
    }
}
