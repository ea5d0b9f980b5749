//! Small volumes of every kind, in which each file has distinct contents.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::hfsplus::{HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::{
    FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, NewKind, NewNode,
    NodeId,
};
use bandsaw::testing::Random;

/// A consistent volume and its contents.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) bytes: Vec<u8>,
    pub(super) about: String,
    pub(super) holds: Contents,
}

/// Hashes of a volume's contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Hashes of both forks of each file.
    pub(super) files: HashSet<u64>,
    /// Hashes of each path with the contents of its file.
    pub(super) paths: HashSet<u64>,
    /// Hashes of each extended attribute's value with its name.
    pub(super) values: HashSet<u64>,
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
                    ahead.push((entry.attributes.id, path));
                }
            }
        }
        found
    }

    fn add(&mut self, volume: &HfsPlus, id: NodeId, kind: FileKind, path: &str) {
        let all =
            |device: Arc<dyn BlockDevice>| device.read_vec(0, device.info().len as usize).ok();
        let contents = match kind {
            FileKind::File => [Fork::Data, Fork::Resource]
                .into_iter()
                .map(|fork| volume.open(id, fork).ok().and_then(all))
                .collect::<Option<Vec<_>>>(),
            FileKind::Symlink => volume
                .read_link(id)
                .ok()
                .map(|target| vec![target.into_bytes()]),
            _ => None,
        };
        if let Some(contents) = contents {
            self.files.insert(hash(&contents));
            self.paths.insert(hash(&(path, &contents)));
        }
        for name in volume.xattrs(id).unwrap_or_default() {
            if let Some(value) = volume.xattr(id, &name).ok().flatten().and_then(all) {
                self.values.insert(hash(&(name, value)));
            }
        }
    }

    /// Returns the number of files, paths and values of `self` that are also in `other`.
    pub(super) fn kept(&self, other: &Self) -> [usize; 3] {
        let both = |a: &HashSet<u64>, b: &HashSet<u64>| a.intersection(b).count();
        [
            both(&self.files, &other.files),
            both(&self.paths, &other.paths),
            both(&self.values, &other.values),
        ]
    }
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
    fill(&device, &mut random, files).context("cannot fill a volume")?;
    let bytes = device.to_vec();
    let about = format!(
        "{} MiB, blocks {block}, nodes {catalog}/{extents}/{attributes}{}{}, {files} files",
        size >> 20,
        if journaled { ", journaled" } else { "" },
        if sensitive { ", HFSX" } else { "" },
    );
    let holds = Contents::of(&bytes);
    Ok(Sample {
        bytes,
        about,
        holds,
    })
}

fn fill(device: &Arc<Memory>, random: &mut Random, files: usize) -> Result<()> {
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default())?;
    let mut folders = vec![volume.root()];
    let mut made = Vec::new();
    for number in 0..files {
        if random.one_in(6) {
            let parent = pick(random, &folders);
            folders.push(volume.create(
                parent,
                &format!("folder {number}"),
                &NewNode::new(NewKind::Folder),
            )?);
        }
        let parent = pick(random, &folders);
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
        made.push((id, parent));
        decorate(&volume, random, id, number, &folders)?;
    }
    fragment(&volume, random)?;
    volume.unmount()?;
    Ok(())
}

/// Gives a file a resource fork, attributes or further names, or makes it a compressed one.
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
        // A file compressed into its attribute.
        let contents = random.bytes(100);
        let mut value = b"fpmc\x03\0\0\0".to_vec();
        value.extend((contents.len() as u64).to_le_bytes());
        value.push(0xFF);
        value.extend(contents);
        volume.write_all(id, &[])?;
        volume.set_xattr_bytes(id, "com.apple.decmpfs", &value)?;
        let change = bandsaw::fs::Change {
            flags: Some(bandsaw::fs::UF_COMPRESSED),
            ..Default::default()
        };
        volume.set_attributes(id, &change)?;
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
