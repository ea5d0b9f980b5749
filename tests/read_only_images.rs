//! Images that are only read: Disk Copy 4.2, NDIF and DART, alone, in files with two forks, and with the
//! resource fork beside them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::dart::fixture::Packing;
use bandsaw::container::dart::{Dart, DartSums};
use bandsaw::container::disk_copy::DiskCopy;
use bandsaw::container::mapped::MappedDisk;
use bandsaw::container::ndif::Ndif;
use bandsaw::container::ndif::fixture::NdifFixture;
use bandsaw::container::udif::{Resource, to_fork};
use bandsaw::container::vmdk::{self, Vmdk, VmdkPart};
use bandsaw::container::{Format, dart, disk_copy, fork_file};
use bandsaw::device::{Access, BlockDeviceExt, Memory};
use bandsaw::open::{self, CreateOptions, OpenOptions};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::verify::verify;
use bandsaw::progress::Silent;
use bandsaw::testing::{Random, conformance, fuzz};

/// Returns a diskette of 800 KB with an HFS volume.
fn diskette() -> Vec<u8> {
    let mut disk = fuzz::hfs_sample();
    disk.truncate(600 << 10);
    disk.extend(Random::new(9).bytes(100 << 10));
    disk.resize(800 << 10, 0);
    disk
}

fn resource(kind: &str, id: i16, data: &[u8]) -> Resource {
    Resource {
        kind: kind.into(),
        id: id.to_string(),
        attributes: "0x0000".into(),
        data: data.to_vec(),
        ..Resource::default()
    }
}

fn ndif_fork(fixture: &NdifFixture) -> Vec<u8> {
    to_fork(&[resource("bcem", 128, &fixture.table)]).unwrap()
}

#[test]
fn devices_conform() {
    let disk = diskette();
    let memory = |bytes: Vec<u8>| Arc::new(Memory::read_only(bytes));
    let tags = vec![5; 1600 * 12];
    let image = DiskCopy::open(memory(disk_copy::fixture::image(&disk, &tags))).unwrap();
    conformance::read_only(Arc::new(MappedDisk::new(image)));
    for packing in [Packing::Fast, Packing::Best, Packing::Plain] {
        let file = memory(dart::fixture::image(&disk, &tags, packing));
        let image = Dart::open(file, DartSums::default()).unwrap();
        conformance::read_only(Arc::new(MappedDisk::new(image)));
    }
    let fixture = NdifFixture::of(&disk);
    let image = Ndif::open(memory(fixture.data), &fixture.table).unwrap();
    conformance::read_only(Arc::new(MappedDisk::new(image)));
}

#[test]
fn disks_of_other_programs_conform() {
    use bandsaw::container::apple_archive::AppleArchiveFile;
    use bandsaw::container::ewf::{Ewf, EwfPart};
    use bandsaw::container::qcow2::Qcow2;
    use bandsaw::container::vhd::Vhd;
    use bandsaw::container::vhdx::Vhdx;
    use bandsaw::container::{apple_archive, ewf, qcow2, vhd, vhdx};
    let disk = diskette();
    let memory = |bytes: Vec<u8>| Arc::new(Memory::read_only(bytes));
    let conform = |disk: MappedDisk| conformance::read_only(Arc::new(disk));
    for bits in [9, 12, 16] {
        for compressed in [false, true] {
            let file = memory(qcow2::fixture::image(&disk, bits, compressed));
            conform(MappedDisk::new(Qcow2::open(file).unwrap()));
        }
    }
    for block in [None, Some(64 << 10)] {
        let file = memory(vhd::fixture::image(&disk, block));
        conform(MappedDisk::new(Vhd::open(file).unwrap()));
    }
    conform(MappedDisk::new(
        Vhdx::open(memory(vhdx::fixture::image(&disk))).unwrap(),
    ));
    for compressed in [false, true] {
        let file = memory(vmdk::fixture::file(&disk, compressed));
        conform(MappedDisk::new(Vmdk::open(file).unwrap()));
    }
    conform(MappedDisk::new(described(&disk)));
    // Its stream is no disk of whole sectors.
    let archive = bandsaw::fs::apple_archive::fixture::archive();
    for file in [
        apple_archive::fixture::packed(b'e', 1000, &archive),
        archive,
    ] {
        let file = AppleArchiveFile::open(memory(file)).unwrap();
        conform(MappedDisk::new(file));
    }
    let parts = ewf::fixture::set(&disk, 7)
        .into_iter()
        .map(|bytes| EwfPart {
            file: memory(bytes),
            name: "part".into(),
        });
    conform(MappedDisk::new(Ewf::open(parts.collect()).unwrap()));
}

/// Returns a disk in a sparse, a compressed and a flat file, with an extent between them that is not
/// stored.
fn described(disk: &[u8]) -> Vmdk {
    let (one, two, three) = (
        200_000 / 512 * 512,
        300_000 / 512 * 512,
        500_000 / 512 * 512,
    );
    let files = [
        vmdk::fixture::file(&disk[..one], false),
        vmdk::fixture::file(&disk[one..two], true),
        [&[7; 1024], &disk[two..three]].concat(),
    ];
    let text = format!(
        "# Disk DescriptorFile\nparentCID=ffffffff\ncreateType=\"custom\"\n\
         RW {} SPARSE \"a.vmdk\"\nRW {} SPARSE \"b.vmdk\"\nRW {} FLAT \"c.vmdk\" 2\nRW 7 ZERO\n",
        one / 512,
        (two - one) / 512,
        (three - two) / 512,
    );
    let description = vmdk::Description::parse(&text).unwrap();
    let parts = files.map(|bytes| VmdkPart {
        file: Arc::new(Memory::read_only(bytes)),
        path: "part.vmdk".into(),
    });
    let opened = Vmdk::open_parts(&description, &parts).unwrap();
    let image = MappedDisk::new(Vmdk::open_parts(&description, &parts).unwrap());
    assert!(image.read_vec(0, three).unwrap() == disk[..three]);
    assert_eq!(image.read_vec(three as u64, 7 * 512).unwrap(), [0; 7 * 512]);
    opened
}

#[test]
fn extents_of_the_wrong_length_are_refused() {
    let sparse = vmdk::fixture::file(&[1; 64 << 10], false);
    for (line, bytes, words) in [
        (
            "RW 129 SPARSE \"a.vmdk\"",
            sparse.clone(),
            "66048 by the description",
        ),
        ("RW 2 FLAT \"a.vmdk\" 1", vec![0; 1535], "truncated"),
        ("RW 2 SPARSE \"a.vmdk\"", vec![0; 2048], "signature"),
        ("RW 2 SPARSE \"a.vmdk\"", vec![0; 100], "shorter"),
    ] {
        let text = format!("parentCID=ffffffff\ncreateType=\"custom\"\n{line}\n");
        let description = vmdk::Description::parse(&text).unwrap();
        let part = VmdkPart {
            file: Arc::new(Memory::read_only(bytes)),
            path: "a.vmdk".into(),
        };
        let error = Vmdk::open_parts(&description, &[part]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("a.vmdk"), "{error}");
    }
}

/// Opens the image, and compares its disk.
fn opens_as(path: &Path, format: Format, disk: &[u8]) {
    let image = open::open(path, &OpenOptions::default()).unwrap();
    assert_eq!(image.format(), format, "{}", path.display());
    assert!(image.warnings().is_empty(), "{:?}", image.warnings());
    assert!(image.disk().read_vec(0, disk.len()).unwrap() == disk);
    assert_eq!(image.disk().info().len, disk.len() as u64);
}

#[test]
fn images_are_found_by_their_contents() {
    let scratch = tempfile::tempdir().unwrap();
    let (disk, at) = (diskette(), |name: &str| scratch.path().join(name));
    let copy = disk_copy::fixture::image(&disk, &[]);
    fs::write(at("copy.img"), &copy).unwrap();
    opens_as(&at("copy.img"), Format::Dc42, &disk);
    fs::write(at("copy.bin"), fork_file::mac_binary_of(&copy, &[])).unwrap();
    opens_as(&at("copy.bin"), Format::Dc42, &disk);
    let fork = to_fork(&[resource("STR ", 128, b"Disk")]).unwrap();
    fs::write(at("raw.as"), fork_file::apple_file_of(Some(&disk), &fork)).unwrap();
    opens_as(&at("raw.as"), Format::Udrw, &disk);
    let packed = dart::fixture::image(&disk, &[], Packing::Best);
    fs::write(at("packed.image"), &packed).unwrap();
    opens_as(&at("packed.image"), Format::Dart, &disk);
}

#[test]
fn disks_of_other_programs_are_found_by_their_contents() {
    use bandsaw::container::{ewf, qcow2, vhd, vhdx};
    let scratch = tempfile::tempdir().unwrap();
    let (disk, at) = (diskette(), |name: &str| scratch.path().join(name));
    for (name, format, bytes) in [
        (
            "a.qcow2",
            Format::Qcow2,
            qcow2::fixture::image(&disk, 16, true),
        ),
        (
            "a.vhd",
            Format::Vhd,
            vhd::fixture::image(&disk, Some(1 << 20)),
        ),
        ("b.vhd", Format::Vhd, vhd::fixture::image(&disk, None)),
        ("a.vhdx", Format::Vhdx, vhdx::fixture::image(&disk)),
        ("a.vmdk", Format::Vmdk, vmdk::fixture::file(&disk, false)),
        ("b.vmdk", Format::Vmdk, vmdk::fixture::file(&disk, true)),
    ] {
        fs::write(at(name), bytes).unwrap();
        opens_as(&at(name), format, &disk);
        let checked = open::examine(&at(name), &OpenOptions::default(), &Silent).unwrap();
        assert!(checked.problems.worst().is_none(), "{:?}", checked.problems);
    }
    let set = ewf::fixture::set(&disk, 7);
    assert!(set.len() > 3);
    for (number, bytes) in (1..).zip(&set) {
        fs::write(at(&format!("a.E{number:02}")), bytes).unwrap();
    }
    opens_as(&at("a.E01"), Format::Ewf, &disk);
    let image = open::open(&at("a.E01"), &OpenOptions::default()).unwrap();
    let sums = verify(&image, &Silent).unwrap();
    let agree: Vec<_> = sums
        .iter()
        .map(|sum| (sum.algorithm, sum.agrees()))
        .collect();
    assert_eq!(agree, [("md5", Some(true)), ("sha1", Some(true))]);
    drop(image);
    let refusal = |name: &str| open::open(&at(name), &OpenOptions::default()).unwrap_err();
    assert!(refusal("a.E02").to_string().contains("first one"));
    // A byte of a chunk: the chunk is refused, and the others are read.
    let mut changed = set[1].clone();
    changed[300] ^= 1;
    fs::write(at("a.E02"), &changed).unwrap();
    let image = open::open(&at("a.E01"), &OpenOptions::default()).unwrap();
    assert_eq!(verify(&image, &Silent).unwrap_err().kind(), Kind::Corrupt);
    let whole = 7 * (32 << 10);
    assert!(image.disk().read_vec(0, whole).unwrap() == disk[..whole]);
    drop(image);
    fs::remove_file(at("a.E03")).unwrap();
    let error = refusal("a.E01");
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("a.E03"), "{error}");
}

/// NDIF needs the resource fork, which programs keep in different places.
#[test]
fn resource_forks_are_found_beside_the_image() {
    let disk = diskette();
    let fixture = NdifFixture::of(&disk);
    let fork = ndif_fork(&fixture);
    let double = fork_file::apple_file_of(None, &fork);
    for (place, bytes) in [
        ("._Disk.img", &double),
        ("__MACOSX/._Disk.img", &double),
        (".AppleDouble/Disk.img", &double),
        (".rsrc/Disk.img", &fork),
        ("Disk.img.rsrc", &fork),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("Disk.img");
        fs::write(&path, &fixture.data).unwrap();
        let error = open::open(&path, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        let beside = scratch.path().join(place);
        fs::create_dir_all(beside.parent().unwrap()).unwrap();
        fs::write(&beside, bytes).unwrap();
        opens_as(&path, Format::Ndif, &disk);
        let checked = open::examine(&path, &OpenOptions::default(), &Silent).unwrap();
        assert!(checked.problems.worst().is_none(), "{:?}", checked.problems);
        // A fork of another file is none of an image.
        fs::write(&beside, &bytes[..bytes.len() / 2]).unwrap();
        assert!(open::open(&path, &OpenOptions::default()).is_err());
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("Disk.bin");
    fs::write(&path, fork_file::mac_binary_of(&fixture.data, &fork)).unwrap();
    opens_as(&path, Format::Ndif, &disk);
    let image = open::open(&path, &OpenOptions::default()).unwrap();
    let error = verify(&image, &Silent).unwrap_err();
    assert_eq!(
        error.kind(),
        Kind::Unsupported,
        "CRC28 is not known: {error}"
    );
}

/// Without its block table, an NDIF image may look like a raw disk.
#[test]
fn unreadable_resource_forks_are_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let (disk, path) = (diskette(), scratch.path().join("Disk.img"));
    let warns = |path: &Path| {
        let image = open::open(path, &OpenOptions::default()).unwrap();
        assert_eq!(image.format(), Format::Udrw);
        let [warning] = image.warnings() else {
            panic!("{:?}", image.warnings());
        };
        assert!(
            warning.contains("cannot read the resource fork"),
            "{warning}"
        );
        let checked = open::examine(path, &OpenOptions::default(), &Silent).unwrap();
        let found = checked.problems.listed();
        assert!(
            found
                .iter()
                .any(|problem| problem.error.to_string().contains("resource fork")),
            "{found:?}"
        );
    };
    fs::write(&path, fork_file::apple_file_of(Some(&disk), &[1])).unwrap();
    warns(&path);
    // A damaged fork beside a disk is often that of another file.
    fs::write(&path, &disk).unwrap();
    let beside = scratch.path().join("._Disk.img");
    fs::write(&beside, [1]).unwrap();
    opens_as(&path, Format::Udrw, &disk);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o000)).unwrap();
        // Root reads it nevertheless.
        if fs::read(&beside).is_err() {
            warns(&path);
        }
        // A folder is no fork.
        fs::remove_file(&beside).unwrap();
        fs::create_dir(&beside).unwrap();
        opens_as(&path, Format::Udrw, &disk);
    }
}

#[test]
fn checksums_are_compared() {
    let scratch = tempfile::tempdir().unwrap();
    let (disk, path) = (diskette(), scratch.path().join("disk.image"));
    let mut bytes = disk_copy::fixture::image(&disk, &[1; 19_200]);
    fs::write(&path, &bytes).unwrap();
    let open = || open::open(&path, &OpenOptions::default()).unwrap();
    let agree = || -> Vec<_> {
        let sums = verify(&open(), &Silent).unwrap();
        sums.iter()
            .map(|sum| (sum.of.clone(), sum.agrees()))
            .collect()
    };
    let sums = |data, tags| vec![("data".into(), Some(data)), ("tags".into(), Some(tags))];
    assert_eq!(agree(), sums(true, true));
    bytes[700_000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(agree(), sums(false, true));
    let checked = open::examine(&path, &OpenOptions::default(), &Silent).unwrap();
    let found = checked.problems.listed();
    assert!(
        found.iter().any(|problem| problem
            .error
            .to_string()
            .contains("checksum mismatch of the data")),
        "{found:?}"
    );
    let target = scratch.path().join("copy.img");
    let error = convert(&open(), &target, &ConvertOptions::default(), &Silent).unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
    let options = ConvertOptions {
        no_verify: true,
        ..ConvertOptions::default()
    };
    convert(&open(), &target, &options, &Silent).unwrap();
    assert!(fs::read(&target).unwrap() == bytes[84..84 + disk.len()]);

    // Those of DART are in its resource fork.
    let packed = dart::fixture::image(&disk, &[1; 19_200], Packing::Fast);
    fs::write(&path, &packed).unwrap();
    let error = verify(&open(), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    // The sums in the header of the same disk.
    let good = disk_copy::fixture::image(&disk, &[1; 19_200]);
    let fork = to_fork(&[
        resource("CKSM", 1, &good[0x4C..0x50]),
        resource("CKSM", 2, &good[0x48..0x4C]),
    ]);
    let beside = fork_file::apple_file_of(None, &fork.unwrap());
    fs::write(scratch.path().join("._disk.image"), beside).unwrap();
    assert_eq!(agree(), sums(true, true));
}

#[test]
fn nothing_is_created_or_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    fs::write(&path, disk_copy::fixture::image(&diskette(), &[])).unwrap();
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let error = open::open(&path, &options).unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly, "{error}");
    for format in Format::ALL
        .into_iter()
        .filter(|format| !format.can_create())
    {
        let options = CreateOptions {
            format,
            len: 1 << 20,
            ..CreateOptions::default()
        };
        let new = scratch.path().join("new");
        let error = open::create(&new, &options).unwrap_err();
        assert!(error.to_string().contains("only read"), "{error}");
        assert!(!new.exists());
    }
}

#[test]
fn a_truncated_vhdx_disk_is_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.vhdx");
    for len in [512, 70_000, (1 << 20) - 1] {
        let mut bytes = b"vhdxfile".to_vec();
        bytes.resize(len, 0);
        fs::write(&path, bytes).unwrap();
        let error = open::open(&path, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{len}: {error}");
        assert_eq!(error.reason(), Some(bandsaw::Reason::Truncated));
    }
}
