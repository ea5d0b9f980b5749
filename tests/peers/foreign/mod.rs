//! Linux and Windows volumes created, filled and checked by their own programs: our free extents
//! are those of these programs, can be overwritten, and are returned to the host without damage to
//! any file.

mod exfat;
mod ext;
mod fat;
mod ntfs;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, CreateOptions, Image, OpenOptions, VolumeFormat};
use bandsaw::ops::space::FreeSpace;
use bandsaw::ops::trim::{Trimmed, trim};
use bandsaw::progress::Silent;
use tempfile::TempDir;

use crate::noise::noise;
use crate::suite::Suite;

const MIB: u64 = 1 << 20;

pub(crate) fn add(suite: &mut Suite) {
    ext::add(suite);
    fat::add(suite);
    exfat::add(suite);
    ntfs::add(suite);
}

/// A disk image with a foreign file system on all of it.
struct Disk {
    scratch: TempDir,
    path: PathBuf,
}

/// A function that checks a volume with other programs and returns its contents.
type Judge<'a> = &'a dyn Fn(&Path) -> Vec<Vec<u8>>;

impl Disk {
    fn blank(len: u64) -> Self {
        let scratch = crate::scratch();
        let path = scratch.path().join("disk.img");
        File::create(&path)
            .and_then(|file| file.set_len(len))
            .expect("making a disk");
        Self { scratch, path }
    }

    /// Writes a file beside the image, to be copied into the volume.
    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, contents).expect("writing a file");
        path
    }

    /// Returns the free extents of the disk, according to our readers.
    fn free(&self) -> Vec<Range<u64>> {
        free(&open(&self.path, Access::ReadOnly))
    }

    /// Checks that the volume needs nothing in our free extents, by overwriting them; then that
    /// they are reclaimed from a sparse bundle, and with `mapped` also from partitions of both
    /// kinds of maps.
    fn judge(&self, format: VolumeFormat, mapped: bool, judge: Judge<'_>) {
        let runs = self.free();
        let before = judge(&self.path);
        let file = File::options()
            .write(true)
            .open(&self.path)
            .expect("opening the disk");
        let bytes = noise(MIB as usize);
        for run in &runs {
            for at in run.clone().step_by(MIB as usize) {
                let len = (run.end - at).min(MIB) as usize;
                file.write_all_at(&bytes[..len], at)
                    .expect("overwriting what is free");
            }
        }
        assert_eq!(judge(&self.path), before, "what is free was needed");
        assert_eq!(self.free(), runs);

        let disk = std::fs::read(&self.path).expect("reading the disk");
        let schemes = [None, Some("dos"), Some("gpt")];
        for scheme in schemes.into_iter().take(if mapped { 3 } else { 1 }) {
            let start = if scheme.is_some() { MIB } else { 0 };
            let bundle = self.bundle(scheme, start, &disk);
            let image = open(&bundle, Access::ReadWrite);
            let volume = &image.volumes()[0];
            assert_eq!(
                (volume.format, volume.range.start),
                (format, start),
                "{scheme:?}"
            );
            assert_eq!(free(&image), shifted(&runs, start), "{scheme:?}");
            let trimmed = trim(&image, None, &Silent).expect("trimming");
            let report = &trimmed.volumes[0];
            assert!(report.refused.is_none(), "{:?}", report.refused);
            assert_eq!(
                (report.free, report.runs),
                (
                    runs.iter().map(|run| run.end - run.start).sum(),
                    runs.len() as u64
                )
            );
            assert_returned(&trimmed, &runs);
            let after = self.scratch.path().join("after.img");
            let bytes = image
                .disk()
                .read_vec(start, disk.len())
                .expect("reading it back");
            std::fs::write(&after, bytes).expect("writing it");
            assert_eq!(
                judge(&after),
                before,
                "{scheme:?}: what was trimmed was needed"
            );
        }
    }

    /// Creates a sparse bundle with the volume at `start`.
    fn bundle(&self, scheme: Option<&str>, start: u64, disk: &[u8]) -> PathBuf {
        let len = start + disk.len() as u64 + MIB;
        let path = self
            .scratch
            .path()
            .join(format!("{}.sparsebundle", scheme.unwrap_or("plain")));
        let options = CreateOptions {
            format: Format::Udsb,
            len,
            band_size: Some(MIB),
            overwrite: true,
            ..CreateOptions::default()
        };
        let image = open::create(&path, &options).expect("making a bundle");
        if let Some(scheme) = scheme {
            image
                .disk()
                .write_at(0, &self.partitioned(scheme, len, disk.len() as u64))
                .expect("writing the map");
        }
        for at in (0..disk.len()).step_by(MIB as usize) {
            let piece = &disk[at..disk.len().min(at + MIB as usize)];
            image
                .disk()
                .write_at(start + at as u64, piece)
                .expect("writing the disk");
        }
        image.disk().flush().expect("flushing");
        path
    }

    /// Returns the first bytes of a disk with one partition, at 1 MiB.
    fn partitioned(&self, scheme: &str, len: u64, partition: u64) -> Vec<u8> {
        use std::io::Write;
        use std::process::{Command, Stdio};

        let path = self.scratch.path().join("map.img");
        File::create(&path)
            .and_then(|file| file.set_len(len))
            .expect("making a disk");
        let mut sfdisk = Command::new("sfdisk");
        sfdisk
            .env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
            .arg("--quiet")
            .arg(&path);
        let mut child = sfdisk
            .stdin(Stdio::piped())
            .spawn()
            .expect("running sfdisk");
        let script = format!("label: {scheme}\nstart=2048, size={}\n", partition / 512);
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(script.as_bytes())
            .expect("telling sfdisk");
        assert!(child.wait().expect("waiting for sfdisk").success());
        let mut bytes = std::fs::read(&path).expect("reading the map");
        bytes.truncate(MIB as usize);
        bytes
    }

    /// Checks that a dirty volume is not trimmed.
    fn assert_refused(&self) {
        let image = open(&self.path, Access::ReadWrite);
        let trimmed = trim(&image, None, &Silent).expect("trimming");
        let error = trimmed.volumes[0].refused.as_ref().expect("it is refused");
        assert_eq!(
            (error.kind(), trimmed.volumes[0].free),
            (Kind::Conflict, 0),
            "{error}"
        );
    }
}

/// Opens an image, with retries: a child process of another test holds our locks, too, until its
/// exec.
fn open(path: &Path, access: Access) -> Image {
    let options = OpenOptions {
        access,
        ..OpenOptions::default()
    };
    for _ in 0..100 {
        match open::open(path, &options) {
            Err(error) if error.kind() == Kind::Conflict => {
                std::thread::sleep(Duration::from_millis(20))
            }
            opened => return opened.expect("opening the image"),
        }
    }
    panic!("{} stays in use", path.display());
}

fn free(image: &Image) -> Vec<Range<u64>> {
    let space = FreeSpace::of(image);
    let refused = space
        .volumes
        .iter()
        .find_map(|found| found.map.as_ref().err());
    assert!(
        refused.is_none() && !space.volumes.is_empty(),
        "{refused:?}"
    );
    space
        .runs()
        .map(|run| run.expect("reading the map"))
        .collect()
}

fn shifted(runs: &[Range<u64>], by: u64) -> Vec<Range<u64>> {
    runs.iter()
        .map(|run| run.start + by..run.end + by)
        .collect()
}

/// Checks that the host got back all whole blocks.
fn assert_returned(trimmed: &Trimmed, runs: &[Range<u64>]) {
    let whole: u64 = runs
        .iter()
        .map(|run| (run.end / 4096 * 4096).saturating_sub(run.start.next_multiple_of(4096)))
        .sum();
    let returned = trimmed.before - trimmed.after;
    assert!(
        !trimmed.can_punch || returned >= whole - whole / 50,
        "{returned} of {whole} bytes came back"
    );
}
