//! Two hundred corrupted copies of an image of each kind: opened, listed, read, or refused, without
//! a panic, in bounded time, and in 256 MiB of memory. If the format has checksums, either the
//! original data is read or a mismatch is reported.
//!
//! Child processes read the images, so that their memory can be limited and a hang can be ended.

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
use bandsaw::container::udif::{SplitMethod, image_list, read_list};
use bandsaw::crypt::{self, KeyWrap, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::open::{self, CreateOptions, Image, Keys, OpenOptions};
use bandsaw::ops::segment::{SegmentOptions, segment};
use bandsaw::ops::verify::verify;
use bandsaw::partition::gpt::{Guids, MapGeometry};
use bandsaw::partition::{APPLE_HFS, gpt};
use bandsaw::progress::Silent;
use bandsaw::testing::{Random, fuzz, mutate, udif, walk};

/// Number of corrupted copies of each image.
const COPIES: u64 = 200;
/// Number of copies per child, and its time limits for one copy and for all.
const BATCH: u64 = 50;
const ONE: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(120);
/// Limits of a child in KiB: address space, and writable memory including stacks and the heap's
/// reserve.
const ADDRESS_SPACE: u32 = 1 << 20;
const MEMORY: u32 = 256 << 10;
/// Environment variable with the job of a child: the folder of the good image, and the number of
/// the first copy.
const JOB: &str = "BANDSAW_MUTATIONS";
/// Files in the folder of the good image: the contents of its disk, if its checksums detect damage;
/// its passphrase.
const DISK: &str = "disk";
const PASSPHRASE: &str = "passphrase";

/// Corrupts copies of the image that `make` creates in the given folder, under the name it returns.
/// `None`: skipped.
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
    // Some copies must be slightly damaged and some unreadable: if all outcomes were equal, the
    // test would be void.
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
fn hfs_volume() {
    break_copies(|folder| write(folder, "good.hfs-standard", &fuzz::hfs_sample()));
}

#[test]
fn disk_copy() {
    break_copies(|folder| {
        let volume = fuzz::hfs_sample();
        write(folder, DISK, &volume);
        write(
            folder,
            "good.dc42",
            &bandsaw::container::disk_copy::fixture::image(&volume, &[]),
        )
    });
}

#[test]
fn dart() {
    use bandsaw::container::dart::fixture::{Packing, image};
    break_copies(|folder| write(folder, "good.dart", &image(&diskette(), &[], Packing::Best)));
}

#[test]
fn ndif() {
    use bandsaw::container::{fork_file, ndif, udif};
    break_copies(|folder| {
        let image = ndif::fixture::NdifFixture::of(&diskette());
        let table = udif::Resource {
            kind: ndif::RESOURCE.0.into(),
            id: ndif::RESOURCE.1.into(),
            attributes: "0x0000".into(),
            data: image.table,
            ..udif::Resource::default()
        };
        let fork = udif::to_fork(&[table]).unwrap();
        write(
            folder,
            "good.bin",
            &fork_file::mac_binary_of(&image.data, &fork),
        )
    });
}

#[test]
fn apple_archive() {
    let archive = bandsaw::fs::apple_archive::fixture::archive();
    break_copies(|folder| write(folder, "good.aar", &archive));
    let packed = bandsaw::container::apple_archive::fixture::packed(b'e', 4096, &archive);
    break_copies(|folder| write(folder, "packed.aar", &packed));
}

#[test]
fn qcow2() {
    use bandsaw::container::qcow2::fixture::image;
    break_copies(|folder| write(folder, "good.qcow2", &image(&diskette(), 12, true)));
}

#[test]
fn vhd() {
    use bandsaw::container::vhd::fixture::image;
    break_copies(|folder| write(folder, "good.vhd", &image(&diskette(), Some(64 << 10))));
}

#[test]
fn vhdx() {
    use bandsaw::container::vhdx::fixture::image;
    break_copies(|folder| write(folder, "good.vhdx", &image(&diskette())));
}

#[test]
fn vmdk() {
    use bandsaw::container::vmdk::fixture::file;
    break_copies(|folder| write(folder, "good.vmdk", &file(&diskette(), true)));
}

#[test]
fn ewf() {
    break_copies(|folder| {
        let set = bandsaw::container::ewf::fixture::set(&diskette(), 1 << 20);
        write(folder, DISK, &diskette());
        write(folder, "good.E01", &set[0])
    });
}

/// Returns a diskette of 800 KB with an HFS volume.
fn diskette() -> Vec<u8> {
    let mut disk = fuzz::hfs_sample();
    disk.resize(800 << 10, 0);
    disk
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
            cut: SplitMethod::Count {
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

/// Outcome of reading a corrupted copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It opened, and every query succeeded.
    Whole,
    /// It opened, and some queries failed.
    Damaged,
    /// It did not open.
    Refused,
}

fn write(folder: &Path, name: &'static str, bytes: &[u8]) -> Option<&'static str> {
    fs::write(folder.join(name), bytes).unwrap();
    Some(name)
}

/// Creates an image with a partition map and a volume with objects of every kind.
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

/// Returns the disk of such an image.
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

/// Creates a compressed image of the disk, and stores the disk beside it for comparison.
fn compress(folder: &Path, codec: Option<Codec>) -> Option<&'static str> {
    write(folder, DISK, &disk());
    write(folder, "good.dmg", &udif::image(&disk(), codec))
}

/// Returns a disk with an Apple partition map: the driver descriptor, the map itself, the volume.
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

/// Runs a child for the copies from `first` on; returns its report.
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

/// Entry point of the child; does nothing unless [`read_in_child`] started it.
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

/// Copies an image, and corrupts the copy or, for a folder, one of its files: usually a band or
/// part; sometimes a file is omitted.
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

/// Corrupts random bytes of a file; for a compressed image, half of the time only its tail, which
/// contains the structure, or the decoded data of one of its block tables, which are text in the
/// file.
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

/// Returns the files of a folder in a deterministic order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Opens an image and reads its contents.
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

/// Returns true if the image decodes to `disk`. If it decodes to anything else, its checksums must
/// not match.
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

/// Returns true if all extents can be read; only the beginning of long ones is read.
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
