//! Small volumes of every kind, in which each file has distinct contents.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bandsaw::codec::Level;
use bandsaw::decmpfs::{Method, PackOptions};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::hfsplus::{HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::{
    ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork,
    NewKind, NewNode, NodeId, Stored, Timestamp, UnlinkedFile,
};
use bandsaw::ops::compress::{CompressOptions, compress_one};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;

/// A consistent volume and its contents.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) bytes: Vec<u8>,
    /// An older consistent state of it.
    pub(super) older: Vec<u8>,
    pub(super) about: String,
    pub(super) holds: Contents,
    /// The contents of the older state.
    pub(super) older_holds: Contents,
}

/// The contents of a file or symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileContents {
    /// Length of the data fork, decoded; of a symbolic link, of its target.
    len: u64,
    /// Length of the resource fork.
    resource_len: u64,
    /// Hash of the data fork.
    data: u64,
    /// Hash of both forks.
    hash: u64,
}

/// The contents of a volume, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// `None`: a fork cannot be read.
    pub(super) files: BTreeMap<String, Option<FileContents>>,
    /// The paths of all folders but the root.
    pub(super) folders: HashSet<String>,
    /// Hashes of the values of extended attributes, by path and name.
    pub(super) attributes: BTreeMap<(String, String), u64>,
    /// The hashes of all `files`.
    anywhere: HashSet<u64>,
    /// The hashes of all values of `attributes`.
    values: HashSet<u64>,
}

impl Contents {
    /// Reads all readable contents of the volume in `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let Ok(volume) = HfsPlus::open(Arc::new(Memory::read_only(bytes.to_vec()))) else {
            return found;
        };
        let mut met = HashSet::new();
        let mut ahead = vec![(volume.root(), String::new())];
        while let Some((folder, above)) = ahead.pop() {
            if !met.insert(folder) || met.len() > 10_000 {
                continue;
            }
            for entry in volume.entries(folder).unwrap_or_default() {
                let path = format!("{above}/{}", entry.name);
                // The journal is not a user's file.
                if path.starts_with("/.journal") {
                    continue;
                }
                found.add(&volume, entry.attributes.id, entry.attributes.kind, &path);
                if entry.attributes.kind == FileKind::Folder {
                    found.folders.insert(path.clone());
                    ahead.push((entry.attributes.id, path));
                }
            }
        }
        found
    }

    fn add(&mut self, volume: &HfsPlus, id: NodeId, kind: FileKind, path: &str) {
        let all = |device: Arc<dyn BlockDevice>| {
            let len = device.info().len;
            // A damaged number claims more than any file here has.
            (len < 1 << 30).then(|| device.read_vec(0, len as usize).ok())?
        };
        let contents = match kind {
            FileKind::File => [Fork::Data, Fork::Resource]
                .into_iter()
                .map(|fork| volume.open(id, fork).ok().and_then(all))
                .collect::<Option<Vec<_>>>(),
            FileKind::Symlink => volume
                .read_link(id)
                .ok()
                .map(|target| vec![target.into_bytes()]),
            _ => return self.add_attributes(volume, id, path),
        };
        let contents = contents.map(|forks| FileContents {
            len: forks[0].len() as u64,
            resource_len: forks.get(1).map_or(0, Vec::len) as u64,
            data: hash(&forks[0]),
            hash: hash(&forks),
        });
        self.anywhere.extend(contents.iter().map(|file| file.hash));
        self.files.insert(path.to_owned(), contents);
        self.add_attributes(volume, id, path);
    }

    fn add_attributes(&mut self, volume: &HfsPlus, id: NodeId, path: &str) {
        for name in volume.xattrs(id).unwrap_or_default() {
            let value = volume.xattr(id, &name).ok().flatten();
            let Some(value) = value.and_then(|value| {
                let len = value.info().len;
                (len < 1 << 20).then(|| value.read_vec(0, len as usize).ok())?
            }) else {
                continue;
            };
            self.values.insert(hash(&value));
            self.attributes
                .insert((path.to_owned(), name), hash(&value));
        }
    }

    /// Compares the contents of a volume that once held those of `self`.
    pub(super) fn kept(&self, now: &Self) -> Preserved {
        let mut kept = Preserved::default();
        for (path, file) in &self.files {
            let Some(file) = file else { continue };
            kept.at_path += usize::from(now.files.get(path).and_then(Option::as_ref) == Some(file));
            kept.anywhere += usize::from(now.anywhere.contains(&file.hash));
        }
        for ((path, name), value) in &self.attributes {
            let key = (path.clone(), name.clone());
            kept.attributes += usize::from(now.attributes.get(&key) == Some(value));
        }
        kept
    }

    /// Returns what the volume held as `self` and holds nowhere as `now`. Where it has what it had
    /// in an `older` state, if one is given, nothing is gone.
    pub(super) fn gone(&self, now: &Self, older: Option<&Self>) -> Vec<Gone> {
        let is_older =
            |path: &str| older.is_some_and(|older| older.files.get(path) == now.files.get(path));
        let mut gone = Vec::new();
        for (path, file) in &self.files {
            let Some(file) = file else { continue };
            if now.anywhere.contains(&file.hash) || is_older(path) {
                continue;
            }
            let kind = match now.files.get(path) {
                None => LossKind::Vanished,
                Some(None) => LossKind::Unreadable,
                Some(Some(now)) if now.len == 0 && file.len > 0 => LossKind::Emptied,
                Some(Some(now)) if now.len < file.len => LossKind::Cut,
                Some(Some(now))
                    if now.data == file.data && now.resource_len < file.resource_len =>
                {
                    LossKind::Resource
                }
                Some(Some(_)) => LossKind::Other,
            };
            gone.push(Gone {
                path: path.clone(),
                kind,
            });
        }
        for ((path, name), value) in &self.attributes {
            let key = (path.clone(), name.clone());
            let is_older =
                older.is_some_and(|older| older.attributes.get(&key) == now.attributes.get(&key));
            // An attribute goes with its file, and may have got another name.
            if !now.values.contains(value)
                && !is_older
                && now.files.contains_key(path)
                && !gone.iter().any(|gone| gone.path == *path)
            {
                gone.push(Gone {
                    path: path.clone(),
                    kind: match now.attributes.contains_key(&key) {
                        true => LossKind::OtherValue,
                        false => LossKind::Attribute,
                    },
                });
            }
        }
        gone
    }
}

/// Numbers of files and attributes that a volume still holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Preserved {
    /// Files with the right contents at the right path.
    pub(super) at_path: usize,
    /// Files whose contents some file has.
    pub(super) anywhere: usize,
    /// Attributes with the right value, of the file at the right path.
    pub(super) attributes: usize,
}

/// The fate of contents that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LossKind {
    /// There is no file at the path.
    Vanished,
    /// A fork of the file at the path cannot be read, or its contents cannot be decoded.
    Unreadable,
    /// The file at the path has no contents.
    Emptied,
    /// The file at the path is shorter.
    Cut,
    /// The file at the path has its contents, but lost its resource fork or a part of it.
    Resource,
    /// The file at the path has its contents, but lost an attribute.
    Attribute,
    /// The file at the path has other contents.
    Other,
    /// The file at the path has its contents, and an attribute with another value.
    OtherValue,
}

impl LossKind {
    /// Returns true if something is missing. Of contents that differ nothing is known, as no
    /// checksum covers them.
    pub(super) fn is_missing(self) -> bool {
        !matches!(self, Self::Unreadable | Self::Other | Self::OtherValue)
    }
}

/// Contents that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) path: String,
    pub(super) kind: LossKind,
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.within(0..from.len() as u64) as usize]
}

/// Formats a volume with `newfs` and fills it, depending on `seed`.
pub(super) fn make(seed: u64, newfs: &Path, scratch: &Path) -> Result<Sample> {
    let mut random = Random::new(seed);
    let block: u64 = pick(
        &mut random,
        &[512, 1024, 2048, 4096, 4096, 4096, 8192, 16384, 65536],
    );
    let journaled = random.one_in(2);
    let sensitive = random.one_in(3);
    let catalog = pick(&mut random, &[4096, 4096, 8192, 8192, 16384, 32768]);
    let extents = pick(&mut random, &[1024, 4096, 4096, 8192, 16384]);
    let attributes = pick(&mut random, &[4096, 8192, 8192, 16384]);
    let mut size = random.within(3..10) << 20;
    if block == 65536 {
        size += 12 << 20;
    }
    let size = size / block.min(4096) * block.min(4096);
    let path = scratch.join(format!("new-{seed}"));
    std::fs::File::create(&path)?.set_len(size)?;
    // In blocks.
    let tree = (128_u64 << 10).max(block) / block;
    let mut command = Command::new(newfs);
    command
        .arg(&path)
        .args(["-v", "Judged", "-b", &block.to_string()]);
    command.args(["-n", &format!("c={catalog},e={extents},a={attributes}")]);
    command.args([
        "-I",
        &format!("c={tree},e={tree},a={tree}"),
        "-c",
        &format!("c={tree},e={tree},a={tree}"),
    ]);
    if journaled {
        command.arg("-J");
    }
    if sensitive {
        command.arg("-s");
    }
    let made = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run newfs")?;
    if !made.status.success() {
        bail!("newfs: {}", String::from_utf8_lossy(&made.stderr));
    }
    let bytes = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    let device = Arc::new(Memory::from(bytes));
    let files = pick(&mut random, &[12, 40, 120, 300]);
    let older = fill(&device, &mut random, files).context("cannot fill a volume")?;
    let is_full = random.one_in(5);
    if is_full {
        fill_up(&device, &mut random).context("cannot fill a volume up")?;
    }
    let bytes = device.to_vec();
    let about = format!(
        "{} MiB, blocks {block}, nodes {catalog}/{extents}/{attributes}{}{}{}, {files} files",
        size >> 20,
        if journaled { ", journaled" } else { "" },
        if sensitive { ", HFSX" } else { "" },
        if is_full { ", nearly full" } else { "" },
    );
    Ok(Sample {
        holds: Contents::of(&bytes),
        older_holds: Contents::of(&older),
        bytes,
        older,
        about,
    })
}

/// Returns options with a fixed time, so that a seed makes the same volume each time.
fn options() -> WriteOptions {
    WriteOptions {
        now: Some(Timestamp::from_seconds(1_700_000_000)),
        ..WriteOptions::default()
    }
}

/// Creates the files, and returns the volume as it was when three of four existed.
fn fill(device: &Arc<Memory>, random: &mut Random, files: usize) -> Result<Vec<u8>> {
    let volume = HfsPlusMut::open(device.clone(), options())?;
    let mut folders = vec![volume.root()];
    let mut made = Vec::new();
    let most = files * 3 / 4;
    add_files(&volume, random, 0..most, &mut folders, &mut made)?;
    fragment(&volume, random)?;
    volume.unmount()?;
    drop(volume);
    let older = device.to_vec();
    let volume = HfsPlusMut::open(device.clone(), options())?;
    change_some(&volume, random, &mut made)?;
    add_files(&volume, random, most..files, &mut folders, &mut made)?;
    volume.unmount()?;
    Ok(older)
}

/// A file with its folder and name.
type Made = (NodeId, NodeId, String);

fn add_files(
    volume: &HfsPlusMut,
    random: &mut Random,
    numbers: Range<usize>,
    folders: &mut Vec<NodeId>,
    made: &mut Vec<Made>,
) -> Result<()> {
    let block = u64::from(volume.volume().block_size);
    for number in numbers {
        if volume.volume().free < 40 * block + (1 << 17) {
            break;
        }
        if random.one_in(6) {
            let parent = pick(random, folders);
            folders.push(volume.create(
                parent,
                &format!("folder {number}"),
                &NewNode::new(NewKind::Folder),
            )?);
        }
        let parent = pick(random, folders);
        let name = match random.within(0..4) {
            0 => format!("file {number}"),
            1 => format!("Ünïcödé {number}"),
            2 => format!("a rather long name so that keys differ in length, of file {number}"),
            _ => format!("f{number}"),
        };
        if random.one_in(25) {
            volume.create(
                parent,
                &name,
                &NewNode::new(NewKind::Symlink(format!("target {number}"))),
            )?;
            continue;
        }
        let id = volume.create(parent, &name, &NewNode::new(NewKind::File))?;
        let len = pick(random, &[20, 300, 3000, 9000, 20_000]);
        if volume.write_all(id, &random.bytes(len)).is_err() {
            break;
        }
        decorate(volume, random, id, number, folders)?;
        made.push((id, parent, name));
    }
    Ok(())
}

/// Removes, rewrites and renames some of the files.
fn change_some(volume: &HfsPlusMut, random: &mut Random, made: &mut Vec<Made>) -> Result<()> {
    let mut kept = Vec::new();
    for (id, parent, name) in made.drain(..) {
        let flags = volume.attributes(id)?.flags;
        match random.within(0..12) {
            0 => volume.remove(parent, &name)?,
            1 if flags & bandsaw::fs::UF_COMPRESSED == 0 => {
                let len = pick(random, &[20, 3000, 9000]);
                // A full volume keeps what it has.
                let _ = volume.write_all(id, &random.bytes(len));
                kept.push((id, parent, name));
            }
            2 => {
                let new = format!("renamed {name}");
                volume.rename((parent, &name), (parent, &new), ExistingTarget::Error)?;
                kept.push((id, parent, new));
            }
            _ => kept.push((id, parent, name)),
        }
    }
    *made = kept;
    Ok(())
}

/// Uses the free space up to a few blocks, in files whose contents differ.
fn fill_up(device: &Arc<Memory>, random: &mut Random) -> Result<()> {
    let volume = HfsPlusMut::open(device.clone(), options())?;
    let block = u64::from(volume.volume().block_size);
    let left = random.within(0..24) * block;
    for number in 0..8 {
        let len = (volume.volume().free.saturating_sub(left) / 2).max(block);
        if volume.volume().free < left + len {
            break;
        }
        let name = format!("filler {number}");
        let id = volume.create(volume.root(), &name, &NewNode::new(NewKind::File))?;
        if volume.write_all(id, &random.bytes(len as usize)).is_err() {
            volume.remove(volume.root(), &name)?;
            break;
        }
    }
    volume.unmount()?;
    Ok(())
}

/// Gives a file a resource fork, attributes or further names, or compresses it.
fn decorate(
    volume: &HfsPlusMut,
    random: &mut Random,
    id: NodeId,
    number: usize,
    folders: &[NodeId],
) -> Result<()> {
    if random.one_in(8) {
        let fork = volume.open_mut(id, Fork::Resource)?;
        let bytes = random.bytes(700);
        fork.set_len(700, AfterDiscard::Zeros)?;
        fork.write_at(0, &bytes)?;
    }
    if random.one_in(5) {
        volume.set_xattr_bytes(id, "small", &random.bytes(40))?;
    }
    if random.one_in(10) {
        volume.set_xattr_bytes(id, "org.example.large", &random.bytes(9000))?;
    }
    if random.one_in(12) {
        volume.set_xattr_bytes(id, "com.apple.system.Security", &random.bytes(60))?;
    }
    if random.one_in(12) {
        // Compressed into its resource fork or its attribute, by its length.
        let len = pick(random, &[2000, 30_000]);
        let bytes: Vec<_> = random.bytes(len / 10).repeat(10);
        volume.write_all(id, &bytes)?;
        let method = pick(random, &[Method::Zlib, Method::Lzvn, Method::Lzfse]);
        let options = CompressOptions::new(PackOptions::new(method, Level::default())?);
        let file = volume.attributes(id)?;
        compress_one(volume, String::new(), &file, &options, &Silent)?;
    } else if random.one_in(12) && volume.attributes(id)?.resource_size == 0 {
        // Stored in its attribute, as it does not get any shorter.
        let contents = random.bytes(100);
        let mut value = b"fpmc\x03\0\0\0".to_vec();
        value.extend((contents.len() as u64).to_le_bytes());
        value.push(0xFF);
        value.extend(contents);
        volume.write_all(id, &[])?;
        let (_guard, contents) = UnlinkedFile::new(volume, &NewNode::new(NewKind::File))?;
        let attribute = &value;
        volume.store(
            id,
            &Stored::Packed {
                attribute,
                contents,
            },
        )?;
    }
    if random.one_in(8) {
        for name in 0..random.within(1..4) {
            let folder = pick(random, folders);
            volume.link(id, folder, &format!("link {name} of {number}"))?;
        }
    }
    Ok(())
}

/// Creates two fragmented files: they are written alternately, with a sync after each write, so
/// that neither is contiguous.
fn fragment(volume: &HfsPlusMut, random: &mut Random) -> Result<()> {
    let block = u64::from(volume.volume().block_size);
    if volume.volume().free < 80 * block {
        return Ok(());
    }
    let ids = ["fragments a", "fragments b", "fragments c"].map(|name| {
        volume
            .create(volume.root(), name, &NewNode::new(NewKind::File))
            .ok()
    });
    let Some(ids) = ids.into_iter().collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    for turn in 0..random.within(10..22) {
        for &id in &ids {
            let file = volume.open_mut(id, Fork::Data)?;
            let bytes = random.bytes(block as usize);
            file.set_len((turn + 1) * block, AfterDiscard::Zeros)?;
            file.write_at(turn * block, &bytes)?;
            drop(file);
            volume.sync()?;
        }
    }
    volume.remove(volume.root(), "fragments c")?;
    Ok(())
}
