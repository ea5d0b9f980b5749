//! Two hundred broken copies of an image of each kind: opened, listed, read, or refused, without a
//! panic, in bounded time, and in 256 MiB of memory. Where sums are stored, what is read is the
//! disk that was stored, or the sums say that it is not.
//!
//! The images are read by child processes, so that their memory can be limited and a hang be ended.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::corpus;
use bandsaw::address::VolumeSelector;
use bandsaw::codec::Codec;
use bandsaw::container::Format;
use bandsaw::container::udif::{Cut, image_list, read_list};
use bandsaw::crypt::{self, KeyWrap, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::open::{self, CreateOptions, Image, Keys, OpenOptions};
use bandsaw::ops::segment::{SegmentOptions, segment};
use bandsaw::ops::verify::verify;
use bandsaw::partition::gpt::{Guids, MapGeometry};
use bandsaw::partition::{APPLE_HFS, gpt};
use bandsaw::progress::Silent;
use bandsaw::testing::{Random, fuzz, mutate, udif, walk};

/// Broken copies of each image.
const COPIES: u64 = 200;
/// Copies that one child reads, and how long it may take for one and for all.
const BATCH: u64 = 50;
const ONE: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(120);
/// KiB of address space of a child, and of memory that it may write to, stacks and the heap's own
/// room among it.
const ADDRESS_SPACE: u32 = 1 << 20;
const MEMORY: u32 = 256 << 10;
/// Tells the child what to read: the folder with the good image, and the first copy.
const JOB: &str = "BANDSAW_MUTATIONS";
/// In the folder of the good image: what is on its disk, where its sums tell of damage; its
/// passphrase.
const DISK: &str = "disk";
const PASSPHRASE: &str = "passphrase";

/// Breaks copies of the image that `make` leaves in the folder it is given, under the name it
/// returns. `None`: skipped.
fn break_copies(make: impl FnOnce(&Path) -> Option<&'static str>) {
    let scratch = tempfile::tempdir().unwrap();
    let Some(name) = make(scratch.path()) else {
        return;
    };
    let outcomes: String = (0..COPIES)
        .step_by(BATCH as usize)
        .map(|first| read_in_child(scratch.path(), name, first))
        .collect();
    let count = |outcome: Outcome| outcomes.matches(&format!("{outcome:?}")).count();
    let counts = [Outcome::Whole, Outcome::Damaged, Outcome::Refused].map(count);
    assert_eq!(counts.iter().sum::<usize>(), COPIES as usize);
    // Some copies are only scratched, some are beyond reading: where all are alike, nothing was
    // tested.
    assert!(
        counts[1] + counts[2] >= 20 && counts.iter().all(|&count| count <= 195),
        "{name}: {counts:?}"
    );
}

#[test]
fn raw() {
    break_copies(|folder| create(folder, "good.dmg", Format::Udrw));
}

#[test]
fn sparse_bundle() {
    break_copies(|folder| create(folder, "good.sparsebundle", Format::Udsb));
}

#[test]
fn sparse_image() {
    break_copies(|folder| create(folder, "good.sparseimage", Format::Udsp));
}

#[test]
fn asif() {
    break_copies(|folder| create(folder, "good.asif", Format::Asif));
}

#[test]
fn apfs() {
    break_copies(|folder| write(folder, "good.apfs", &fuzz::apfs_sample()));
}

#[test]
fn volume() {
    break_copies(|folder| write(folder, "good.hfs", &fuzz::sample(false, 4096)));
}

#[test]
fn apple_partition_map() {
    break_copies(|folder| {
        write(
            folder,
            "good.apm",
            &with_apple_map(&fuzz::sample(false, 4096)),
        )
    });
}

#[test]
fn udro() {
    break_copies(|folder| compress(folder, None));
}

#[test]
fn udco() {
    break_copies(|folder| compress(folder, Some(Codec::Adc)));
}

#[test]
fn udzo() {
    break_copies(|folder| compress(folder, Some(Codec::Zlib)));
}

#[test]
fn udbz() {
    break_copies(|folder| compress(folder, Some(Codec::Bzip2)));
}

#[test]
fn ulfo() {
    break_copies(|folder| compress(folder, Some(Codec::Lzfse)));
}

#[test]
fn ulmo() {
    break_copies(|folder| compress(folder, Some(Codec::Lzma)));
}

#[test]
fn set_of_parts() {
    break_copies(|folder| {
        let whole = folder.join(compress(folder, Some(Codec::Zlib))?);
        fs::create_dir(folder.join("set")).unwrap();
        let options = SegmentOptions {
            cut: Cut::Count {
                first: None,
                parts: 4,
            },
            overwrite: false,
            remove_signature: false,
        };
        let image = open::open(&whole, &OpenOptions::default()).unwrap();
        segment(&image, &folder.join("set/a.dmg"), &options, &Silent).unwrap();
        Some("set")
    });
}

#[test]
fn encrypted() {
    break_copies(|folder| {
        let plain = disk();
        let protection = Protection {
            key_bits: 128,
            block: 512,
            iterations: 1000,
            key_wrap: KeyWrap::TripleDes,
            passphrase: Some(Secret::new(b"good".to_vec())),
            certificates: Vec::new(),
        };
        let file = Arc::new(Memory::zeros(0));
        let device = crypt::Device::create(file.clone(), &protection).unwrap();
        device
            .set_len(plain.len() as u64, AfterDiscard::Any)
            .unwrap();
        device.write_at(0, &plain).unwrap();
        device.flush().unwrap();
        write(folder, PASSPHRASE, b"good");
        write(folder, "good.dmg", &file.to_vec())
    });
}

#[test]
fn encrypted_as_at_first() {
    break_copies(|folder| {
        let image = corpus::image("encrypted_as_at_first", "encrypted/john-v1-aes128.dmg")?;
        write(
            folder,
            PASSPHRASE,
            image.entry()["encrypted"]["password"].as_str()?.as_bytes(),
        );
        write(folder, "good.dmg", &image.bytes()?)
    });
}

/// What became of a broken copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It opened, and every question about it was answered.
    Whole,
    /// It opened, and some answers were errors.
    Damaged,
    /// It did not open.
    Refused,
}

fn write(folder: &Path, name: &'static str, bytes: &[u8]) -> Option<&'static str> {
    fs::write(folder.join(name), bytes).unwrap();
    Some(name)
}

/// An image with a map and a volume on it that has one of everything.
fn create(folder: &Path, name: &'static str, format: Format) -> Option<&'static str> {
    let volume = fuzz::sample(false, 4096);
    let len = MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    let band_size = (format == Format::Udsb).then_some(1 << 20);
    let options = CreateOptions {
        format,
        len,
        band_size,
        ..CreateOptions::default()
    };
    fill(
        &**open::create(&folder.join(name), &options).unwrap().disk(),
        &volume,
    );
    Some(name)
}

fn fill(disk: &dyn BlockDevice, volume: &[u8]) {
    let range = gpt::create_single(disk, 512, APPLE_HFS, Guids::derived("good")).unwrap();
    disk.write_at(range.start, volume).unwrap();
    disk.flush().unwrap();
}

/// The disk of such an image.
fn disk() -> Vec<u8> {
    let volume = fuzz::sample(false, 4096);
    let disk = Memory::zeros(
        MapGeometry::holding(volume.len() as u64, 512)
            .unwrap()
            .disk_len() as usize,
    );
    fill(&disk, &volume);
    disk.to_vec()
}

/// A compressed image of it, and the disk itself beside, for comparison.
fn compress(folder: &Path, codec: Option<Codec>) -> Option<&'static str> {
    write(folder, DISK, &disk());
    write(folder, "good.dmg", &udif::image(&disk(), codec))
}

/// A disk with an Apple partition map: the driver descriptor, the map itself, the volume.
fn with_apple_map(volume: &[u8]) -> Vec<u8> {
    let blocks = (volume.len() / 512) as u32;
    let mut disk = vec![0; 64 * 512];
    disk[..4].copy_from_slice(b"ER\x02\0");
    disk[4..8].copy_from_slice(&(64 + blocks).to_be_bytes());
    for (number, (start, len, kind)) in
        [(1u32, 63, "Apple_partition_map"), (64, blocks, "Apple_HFS")]
            .iter()
            .enumerate()
    {
        let entry = &mut disk[512 * (number + 1)..][..512];
        entry[..4].copy_from_slice(b"PM\0\0");
        for (at, word) in [(4, 2), (8, *start), (12, *len), (84, *len), (88, 0x33)] {
            entry[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        entry[48..48 + kind.len()].copy_from_slice(kind.as_bytes());
    }
    [disk, volume.to_vec()].concat()
}

/// What a child reports of the copies from `first` on.
fn read_in_child(folder: &Path, name: &str, first: u64) -> String {
    let report = folder.join("report");
    fs::write(&report, "").unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE} 2>/dev/null; ulimit -d {MEMORY} 2>/dev/null; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "mutations::child", "--nocapture"])
        .stdout(Stdio::null())
        .env(JOB, format!("{first} {name} {}", folder.display()))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > ALL {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!(
                "{name}: still busy after {ALL:?}; {}",
                fs::read_to_string(&report).unwrap()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let report = fs::read_to_string(&report).unwrap();
    assert!(status.success(), "{name}: {status}; {report}");
    report
}

/// Does nothing unless [`read_in_child`] calls it.
#[test]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let [first, name, folder] = job.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let first: u64 = first.parse().unwrap();
    let (good, folder) = (Path::new(folder).join(name), Path::new(folder));
    let mut report = fs::OpenOptions::new()
        .append(true)
        .open(folder.join("report"))
        .unwrap();
    for copy in first..first + BATCH {
        let broken = folder.join(format!("broken-{name}"));
        write!(report, "\ncopy {copy}").unwrap();
        break_copy(&good, &broken, &mut Random::new(copy));
        let begun = Instant::now();
        let outcome = read(&broken, folder);
        assert!(
            begun.elapsed() < ONE,
            "copy {copy} took {:?}",
            begun.elapsed()
        );
        write!(report, " {outcome:?}").unwrap();
        if broken.is_dir() {
            fs::remove_dir_all(&broken).unwrap()
        } else {
            fs::remove_file(&broken).unwrap()
        }
    }
}

/// Copies an image, and breaks the copy or, of a folder, one of its files: a band or part as a
/// rule, and now and then by leaving it out.
fn break_copy(good: &Path, broken: &Path, random: &mut Random) {
    if good.is_file() {
        return fs::write(broken, break_bytes(&fs::read(good).unwrap(), random)).unwrap();
    }
    fs::create_dir(broken).unwrap();
    let (mut bands, others) = (Vec::new(), files(good));
    if good.join("bands").is_dir() {
        fs::create_dir(broken.join("bands")).unwrap();
        bands = files(&good.join("bands"));
    }
    let pool = if bands.is_empty() || random.one_in(3) {
        &others
    } else {
        &bands
    };
    let victim = &pool[random.within(0..pool.len() as u64) as usize];
    for file in bands.iter().chain(&others) {
        let to = broken.join(file.strip_prefix(good).unwrap());
        let bytes = fs::read(file).unwrap();
        if file != victim {
            fs::write(to, bytes).unwrap();
        } else if !random.one_in(8) {
            fs::write(to, break_bytes(&bytes, random)).unwrap();
        }
    }
}

/// Breaks any bytes of a file; of a compressed image as often its tail, where its structure is, or
/// one of its block tables, which are text in the file and would mostly be broken as such.
fn break_bytes(good: &[u8], random: &mut Random) -> Vec<u8> {
    const TAIL: usize = 12 << 10;
    let list = if random.one_in(2) {
        read_list(&Memory::read_only(good)).ok()
    } else {
        None
    };
    let Some((mut resources, _)) = list else {
        return mutate::mutated(good, random);
    };
    let trailer = &good[good.len() - 512..];
    let list_at = u64::from_be_bytes(trailer[0xd8..0xe0].try_into().unwrap()) as usize;
    if random.one_in(2) || resources.is_empty() {
        let tail = good
            .len()
            .saturating_sub(TAIL)
            .max(list_at.min(good.len() - 512));
        return [&good[..tail], &mutate::mutated(&good[tail..], random)].concat();
    }
    let table = random.within(0..resources.len() as u64) as usize;
    resources[table].data = mutate::mutated(&resources[table].data, random);
    let list = image_list(&resources).unwrap();
    let mut trailer = trailer.to_vec();
    trailer[0xe0..0xe8].copy_from_slice(&(list.len() as u64).to_be_bytes());
    [&good[..list_at], &list, &trailer].concat()
}

/// The files of a folder in the same order each time.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Opens an image and reads what is on it.
fn read(path: &Path, folder: &Path) -> Outcome {
    let path = if path.join("a.dmg").exists() {
        path.join("a.dmg")
    } else {
        path.to_owned()
    };
    let secret = fs::read(folder.join(PASSPHRASE)).ok().map(Secret::new);
    let keys = secret.as_ref().map(|secret| secret as &dyn Keys);
    let options = OpenOptions {
        keys,
        ..OpenOptions::default()
    };
    let (layers, stopped) = open::trace(&path, &options);
    let Ok(image) = open::open(&path, &options) else {
        assert!(stopped.is_some(), "{layers:?}");
        return Outcome::Refused;
    };
    let mut errors = image.warnings().len() as u64;
    match fs::read(folder.join(DISK)) {
        Ok(disk) => errors += u64::from(!is_disk(&image, &disk)),
        Err(_) => {
            errors += u64::from(!read_disk(&image));
            for volume in image.volumes() {
                let selector = volume.partition.map(|partition| VolumeSelector::Number {
                    partition,
                    volume: None,
                });
                errors += image
                    .file_system(selector.as_ref())
                    .map_or(1, |volume| walk::walk(&*volume, 2000).errors);
            }
        }
    }
    if errors == 0 && !image.volumes().is_empty() {
        Outcome::Whole
    } else {
        Outcome::Damaged
    }
}

/// Whether the image decodes to `disk`. If it decodes to anything else its sums must say so.
fn is_disk(image: &Image, disk: &[u8]) -> bool {
    let sums = verify(image, &Silent);
    let intact = sums.is_ok_and(|sums| sums.iter().all(|sum| sum.agrees() != Some(false)));
    let len = image.disk().info().len;
    if len != disk.len() as u64 {
        assert!(
            !intact,
            "a disk of {len} bytes instead of {}, and its sums agree",
            disk.len()
        );
        return false;
    }
    match image.disk().read_vec(0, disk.len()) {
        Ok(read) if read == disk => intact,
        Ok(_) => {
            assert!(!intact, "another disk than was stored, and its sums agree");
            false
        }
        Err(_) => {
            assert!(!intact, "a disk that cannot be read, and its sums agree");
            false
        }
    }
}

/// Whether all extents can be read, of long ones the beginning.
fn read_disk(image: &Image) -> bool {
    let disk = image.disk();
    let mut extents = disk.extents(0..disk.info().len).take(1000);
    extents.all(|extent| {
        let piece = extent.and_then(|(range, _)| {
            disk.read_vec(range.start, (range.end - range.start).min(1 << 20) as usize)
        });
        piece.is_ok()
    })
}
