//! The property lists of `hdiutil` and `diskutil`, key by key as macOS 27 printed them.
//!
//! The facts below were written down from recordings of macOS 27 that the project go-apfs-v3
//! publishes (`acceptance/testdata`: `encrypted-dmg/macos-27/*-imageinfo.plist`,
//! `*-diskutil.plist`, `commands.json`). A line is a key with its place, the type, and the value;
//! `*` is any value.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::{Scratch, stderr};

/// An encrypted raw image of 8 MiB with an HFS+ volume.
const RAW: &str = "
Backing Store Information/Backing Store Information/Class Name = string CBSDBackingStore
Backing Store Information/Backing Store Information/Name = string raw.dmg
Backing Store Information/Backing Store Information/URL = string file://*
Backing Store Information/Class Name = string CEncryptedEncoding
Backing Store Information/Encryption = string AES-256
Backing Store Information/Name = string raw.dmg
Backing Store Information/URL = string file://*
Checksum Type = string none
Checksum Value = string
Class Name = string CRawDiskImage
Format = string UDRW
Format Description = string raw read/write
Properties/Checksummed = bool false
Properties/Compressed = string no
Properties/Encrypted = bool true
Properties/Kernel Compatible = bool false
Properties/Partitioned = bool false
Properties/Software License Agreement = bool false
Segments/0 = string /*
Size Information/Compressed Bytes = integer 8388608
Size Information/Compressed Ratio = real 1
Size Information/Sector Count = integer 16384
Size Information/Total Bytes = integer 8388608
Size Information/Total Empty Bytes = integer 0
Size Information/Total Non-Empty Bytes = integer 8388608
partitions/block-size = integer 512
partitions/burnable = bool false
partitions/partition-scheme = string GUID
partitions/partitions/0/partition-hint = string MBR
partitions/partitions/0/partition-length = integer 1
partitions/partitions/0/partition-name = string Protective Master Boot Record
partitions/partitions/0/partition-start = integer 0
partitions/partitions/0/partition-synthesized = bool true
partitions/partitions/1/partition-hint = string Primary GPT Header
partitions/partitions/1/partition-length = integer 1
partitions/partitions/1/partition-name = string GPT Header
partitions/partitions/1/partition-start = integer 1
partitions/partitions/1/partition-synthesized = bool true
partitions/partitions/2/partition-hint = string Primary GPT Table
partitions/partitions/2/partition-length = integer 32
partitions/partitions/2/partition-name = string GPT Partition Data
partitions/partitions/2/partition-start = integer 2
partitions/partitions/2/partition-synthesized = bool true
partitions/partitions/3/partition-hint = string Apple_Free
partitions/partitions/3/partition-length = integer 6
partitions/partitions/3/partition-name = string
partitions/partitions/3/partition-start = integer 34
partitions/partitions/3/partition-synthesized = bool true
partitions/partitions/4/partition-UUID = string *
partitions/partitions/4/partition-filesystems/HFS+ = string
partitions/partitions/4/partition-hint = string Apple_HFS
partitions/partitions/4/partition-hint-UUID = string 48465300-0000-11AA-AA11-00306543ECAC
partitions/partitions/4/partition-length = integer 16304
partitions/partitions/4/partition-name = string disk image
partitions/partitions/4/partition-number = integer 1
partitions/partitions/4/partition-start = integer 40
partitions/partitions/5/partition-hint = string Apple_Free
partitions/partitions/5/partition-length = integer 7
partitions/partitions/5/partition-name = string
partitions/partitions/5/partition-start = integer 16344
partitions/partitions/5/partition-synthesized = bool true
partitions/partitions/6/partition-hint = string Backup GPT Table
partitions/partitions/6/partition-length = integer 32
partitions/partitions/6/partition-name = string GPT Partition Data
partitions/partitions/6/partition-start = integer 16351
partitions/partitions/6/partition-synthesized = bool true
partitions/partitions/7/partition-hint = string Backup GPT Header
partitions/partitions/7/partition-length = integer 1
partitions/partitions/7/partition-name = string GPT Header
partitions/partitions/7/partition-start = integer 16383
partitions/partitions/7/partition-synthesized = bool true
";

/// An encrypted UDZO image of 64 MiB with an APFS volume: the keys beside `partitions`.
const PACKED: &str = "
Backing Store Information/Backing Store Information/Backing Store Information/Class Name = string CBSDBackingStore
Backing Store Information/Backing Store Information/Backing Store Information/Name = string packed.dmg
Backing Store Information/Backing Store Information/Backing Store Information/URL = string file://*
Backing Store Information/Backing Store Information/Class Name = string CEncryptedEncoding
Backing Store Information/Backing Store Information/Encryption = string AES-128
Backing Store Information/Backing Store Information/Name = string packed.dmg
Backing Store Information/Backing Store Information/URL = string file://*
Backing Store Information/Class Name = string CUDIFEncoding
Backing Store Information/Name = string packed.dmg
Backing Store Information/URL = string file://*
Checksum Type = string CRC32
Checksum Value = string $*
Class Name = string CUDIFDiskImage
Format = string UDZO
Format Description = string UDIF read-only compressed (zlib)
Partition Information/-1/Checksum Type = string CRC32
Partition Information/-1/Checksum Value = string $4620B9E2
Partition Information/-1/Name = string Protective Master Boot Record (MBR : 0)
Partition Information/-1/Partition Number = integer -1
Partition Information/0/Checksum Type = string CRC32
Partition Information/0/Checksum Value = string $*
Partition Information/0/Name = string GPT Header (Primary GPT Header : 1)
Partition Information/0/Partition Number = integer 0
Partition Information/1/Checksum Type = string CRC32
Partition Information/1/Checksum Value = string $*
Partition Information/1/Name = string GPT Partition Data (Primary GPT Table : 2)
Partition Information/1/Partition Number = integer 1
Partition Information/2/Checksum Type = string CRC32
Partition Information/2/Checksum Value = string $00000000
Partition Information/2/Name = string  (Apple_Free : 3)
Partition Information/2/Partition Number = integer 2
Partition Information/3/Checksum Type = string CRC32
Partition Information/3/Checksum Value = string $*
Partition Information/3/Name = string disk image (Apple_APFS : 4)
Partition Information/3/Partition Number = integer 3
Partition Information/4/Checksum Type = string CRC32
Partition Information/4/Checksum Value = string $00000000
Partition Information/4/Name = string  (Apple_Free : 5)
Partition Information/4/Partition Number = integer 4
Partition Information/5/Checksum Type = string CRC32
Partition Information/5/Checksum Value = string $*
Partition Information/5/Name = string GPT Partition Data (Backup GPT Table : 6)
Partition Information/5/Partition Number = integer 5
Partition Information/6/Checksum Type = string CRC32
Partition Information/6/Checksum Value = string $*
Partition Information/6/Name = string GPT Header (Backup GPT Header : 7)
Partition Information/6/Partition Number = integer 6
Properties/Checksummed = bool true
Properties/Compressed = bool true
Properties/Encrypted = bool true
Properties/Kernel Compatible = bool true
Properties/Partitioned = bool false
Properties/Software License Agreement = bool false
Segments/0 = string /*
Size Information/CUDIFEncoding-bytes-in-use = integer *
Size Information/CUDIFEncoding-bytes-total = integer *
Size Information/CUDIFEncoding-bytes-wasted = integer 0
Size Information/Compressed Bytes = integer *
Size Information/Compressed Ratio = real 0.*
Size Information/Sector Count = integer 131072
Size Information/Total Bytes = integer 67108864
Size Information/Total Empty Bytes = integer *
Size Information/Total Non-Empty Bytes = integer *
udif-ordered-chunks = bool true
";

/// Differences of an encrypted UDZO image of 64 MiB with an HFSX volume and AES-256.
const HFSX: [&str; 6] = [
    "Backing Store Information/Backing Store Information/Encryption = string AES-256",
    "Partition Information/3/Name = string disk image (Apple_HFSX : 4)",
    "Properties/Kernel Compatible = bool false",
    "partitions/partitions/4/partition-filesystems/HFSX = string",
    "partitions/partitions/4/partition-hint = string Apple_HFSX",
    "partitions/partitions/4/partition-hint-UUID = string 48465300-0000-11AA-AA11-00306543ECAC",
];

/// Recordings of macOS 27: the end of the command, standard input, the exit code, standard output, and
/// the line on standard error after the warning that the verb is deprecated.
const WORDS: [(&str, &[u8], i32, &str, &str); 5] = [
    (
        "imageinfo -plist -stdinpass sealed.dmg",
        b"wrong\0",
        1,
        "",
        "hdiutil: imageinfo failed - Authentication error",
    ),
    (
        "imageinfo -plist -stdinpass sealed.dmg",
        b"\0",
        1,
        "",
        "hdiutil: imageinfo failed - Authentication error",
    ),
    (
        "chpass sealed.dmg -oldstdinpass -newstdinpass",
        b"key\0new\0",
        0,
        "",
        "",
    ),
    (
        "imageinfo -plist -stdinpass sealed.dmg",
        b"key\0",
        1,
        "",
        "hdiutil: imageinfo failed - Authentication error",
    ),
    (
        "create -size 8m -layout GPTSPUD -fs HFS+ -volname v -type UDIF FOLDER/made.dmg",
        b"",
        0,
        "created: FOLDER/made.dmg\n",
        "",
    ),
];

/// The devices of an attached APFS image; the numbers of the disks were 4 and 5.
const ATTACHED: &str = "
system-entities/0/content-hint = string GUID_partition_scheme
system-entities/0/dev-entry = string /dev/disk1
system-entities/0/potentially-mountable = bool false
system-entities/0/unmapped-content-hint = string GUID_partition_scheme
system-entities/1/content-hint = string Apple_APFS
system-entities/1/dev-entry = string /dev/disk1s1
system-entities/1/potentially-mountable = bool false
system-entities/1/unmapped-content-hint = string 7C3457EF-0000-11AA-AA11-00306543ECAC
system-entities/2/content-hint = string 41504653-0000-11AA-AA11-00306543ECAC
system-entities/2/dev-entry = string /dev/disk2s1
system-entities/2/mount-point = string /*
system-entities/2/potentially-mountable = bool true
system-entities/2/unmapped-content-hint = string 41504653-0000-11AA-AA11-00306543ECAC
system-entities/2/volume-kind = string apfs
system-entities/3/content-hint = string EF57347C-0000-11AA-AA11-00306543ECAC
system-entities/3/dev-entry = string /dev/disk2
system-entities/3/potentially-mountable = bool false
system-entities/3/unmapped-content-hint = string EF57347C-0000-11AA-AA11-00306543ECAC
";

/// `diskutil info` on a mounted volume of a read-only image: what HFS+ and APFS have in common.
const VOLUME: &str = "
BusProtocol = string Disk Image
CanBeMadeBootable = bool false
CanBeMadeBootableRequiresDestroy = bool false
DeviceTreePath = string IODeviceTree:/
DiskUUID = string *
Ejectable = bool true
EjectableMediaAutomaticUnderSoftwareControl = bool true
EjectableOnly = bool true
IOKitSize = integer 67067904
Internal = bool false
MediaName = string
MediaType = string Generic
MountPoint = string /*
OSInternalMedia = bool false
RAIDMaster = bool false
RAIDSlice = bool false
Removable = bool true
RemovableMedia = bool true
RemovableMediaOrExternalDevice = bool true
SMARTDeviceSpecificKeysMayVaryNotGuaranteed = dict
SMARTStatus = string Not Supported
Size = integer 67067904
SupportsGlobalPermissionsDisable = bool true
SystemImage = bool false
TotalSize = integer 67067904
VolumeAllocationBlockSize = integer 4096
VolumeName = string Disk
VolumeUUID = string *
WholeDisk = bool false
Writable = bool false
WritableMedia = bool false
WritableVolume = bool false
";

const HFS_VOLUME: &str = "
Bootable = bool false
Content = string Apple_HFS
DeviceBlockSize = integer 512
DeviceIdentifier = string disk1s1
DeviceNode = string /dev/disk1s1
FilesystemName = string HFS+
FilesystemType = string hfs
FilesystemUserVisibleName = string Mac OS Extended
FreeSpace = integer *
GlobalPermissionsEnabled = bool false
IORegistryEntryName = string disk image
ParentWholeDisk = string disk1
PartitionMapPartition = bool true
PartitionMapPartitionOffset = integer 20480
VolumeSize = integer 67067904
";

const APFS_VOLUME: &str = "
APFSContainerFree = integer *
APFSContainerReference = string disk2
APFSContainerSize = integer 67067904
APFSPhysicalStores/0/APFSPhysicalStore = string disk1s1
APFSSnapshot = bool false
Bootable = bool true
CapacityInUse = integer *
Content = string 41504653-0000-11AA-AA11-00306543ECAC
DeviceBlockSize = integer 4096
DeviceIdentifier = string disk2s1
DeviceNode = string /dev/disk2s1
Encryption = bool false
EncryptionThisVolumeProper = bool false
FileVault = bool false
FilesystemName = string APFS
FilesystemType = string apfs
FilesystemUserVisibleName = string APFS
FreeSpace = integer 0
GlobalPermissionsEnabled = bool true
IORegistryEntryName = string Disk
Locked = bool false
ParentWholeDisk = string disk2
PartitionMapPartition = bool false
Sealed = string No
VolumeSize = integer 0
";

/// `diskutil info` on a disk, its partition and its container, attached for writing: what all have.
const DEVICE: &str = "
BusProtocol = string Disk Image
CanBeMadeBootable = bool false
CanBeMadeBootableRequiresDestroy = bool false
DeviceTreePath = string IODeviceTree:/
Ejectable = bool true
EjectableMediaAutomaticUnderSoftwareControl = bool true
EjectableOnly = bool true
FreeSpace = integer 0
GlobalPermissionsEnabled = bool false
Internal = bool false
MediaType = string Generic
MountPoint = string
OSInternalMedia = bool false
RAIDMaster = bool false
RAIDSlice = bool false
Removable = bool true
RemovableMedia = bool true
RemovableMediaOrExternalDevice = bool true
SMARTDeviceSpecificKeysMayVaryNotGuaranteed = dict
SMARTStatus = string Not Supported
SupportsGlobalPermissionsDisable = bool false
SystemImage = bool false
VolumeName = string
VolumeSize = integer 0
Writable = bool true
WritableMedia = bool true
WritableVolume = bool false
";

const DISK: &str = "
Bootable = bool false
Content = string GUID_partition_scheme
DeviceBlockSize = integer 512
DeviceIdentifier = string disk1
DeviceNode = string /dev/disk1
IOKitSize = integer 67108864
IORegistryEntryName = string Apple read/write Media
LowLevelFormatSupported = bool false
MediaName = string Disk Image
OS9DriversInstalled = bool false
ParentWholeDisk = string disk1
PartitionMapPartition = bool false
Size = integer 67108864
TotalSize = integer 67108864
VirtualOrPhysical = string Virtual
WholeDisk = bool true
";

const PARTITION: &str = "
APFSContainerReference = string disk2
Bootable = bool true
Content = string Apple_APFS
DeviceBlockSize = integer 512
DeviceIdentifier = string disk1s1
DeviceNode = string /dev/disk1s1
DiskUUID = string *
IOKitSize = integer 67067904
IORegistryEntryName = string disk image
MediaName = string
ParentWholeDisk = string disk1
PartitionMapPartition = bool true
PartitionMapPartitionOffset = integer 20480
Size = integer 67067904
TotalSize = integer 67067904
WholeDisk = bool false
";

/// Without `DiskUUID`, which is not known here.
const CONTAINER: &str = "
APFSContainerReference = string disk2
APFSPhysicalStores/0/APFSPhysicalStore = string disk1s1
Bootable = bool false
Content = string EF57347C-0000-11AA-AA11-00306543ECAC
DeviceBlockSize = integer 4096
DeviceIdentifier = string disk2
DeviceNode = string /dev/disk2
IOKitSize = integer 67067904
IORegistryEntryName = string AppleAPFSMedia
LowLevelFormatSupported = bool false
MediaName = string Disk Image
OS9DriversInstalled = bool false
ParentWholeDisk = string disk2
PartitionMapPartition = bool false
Size = integer 67067904
TotalSize = integer 67067904
VirtualOrPhysical = string Virtual
WholeDisk = bool true
";

/// Returns a property list as lines, in its own order.
fn lines(value: &plist::Value, place: &str, out: &mut Vec<String>) {
    let below = |key: &str| match place {
        "" => key.to_owned(),
        _ => format!("{place}/{key}"),
    };
    let said = match value {
        plist::Value::Dictionary(all) if !all.is_empty() => {
            all.iter()
                .for_each(|(key, value)| lines(value, &below(key), out));
            return;
        }
        plist::Value::Array(all) if !all.is_empty() => {
            all.iter()
                .enumerate()
                .for_each(|(at, value)| lines(value, &below(&at.to_string()), out));
            return;
        }
        plist::Value::Dictionary(_) => "dict".to_owned(),
        plist::Value::Array(_) => "array".to_owned(),
        plist::Value::Boolean(value) => format!("bool {value}"),
        plist::Value::Integer(value) => format!("integer {value}"),
        plist::Value::Real(value) => format!("real {value}"),
        plist::Value::String(value) => format!("string {value}"),
        other => panic!("{place}: {other:?}"),
    };
    out.push(format!("{place} = {said}").trim_end().to_owned());
}

/// Compares a property list with the facts: every key, its type, its value and the order.
fn assert_facts(xml: &[u8], facts: &[&str], but: impl Fn(&str) -> bool) {
    let value = plist::Value::from_reader_xml(xml).unwrap();
    let mut has = Vec::new();
    lines(&value, "", &mut has);
    has.retain(|line| !but(line));
    let mut expected: Vec<_> = facts
        .iter()
        .flat_map(|facts| facts.lines().filter(|line| !line.is_empty()))
        .collect();
    if facts.len() > 1 {
        expected.sort_unstable();
    }
    let fits = |has: &str, fact: &str| match fact.strip_suffix('*') {
        Some(start) => has.starts_with(start),
        None => has == fact,
    };
    for (has, fact) in has.iter().zip(&expected) {
        assert!(fits(has, fact), "{has:?} instead of {fact:?}");
    }
    assert_eq!(has.len(), expected.len(), "{has:#?}");
}

fn call(scratch: &Scratch, line: &str, input: &[u8]) -> Vec<u8> {
    let (program, line) = line.split_once(' ').unwrap();
    let home = scratch.path("");
    let output = assert_cmd::Command::new(scratch.path("bin").join(program))
        .args(line.split(' '))
        .current_dir(&home)
        .env("XDG_RUNTIME_DIR", &home)
        .env("HOME", &home)
        .write_stdin(input)
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {}", stderr(&output));
    output.stdout
}

fn programs() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("bin")).unwrap();
    for program in ["hdiutil", "diskutil"] {
        let link = scratch.path("bin").join(program);
        symlink(env!("CARGO_BIN_EXE_bandsaw"), link).unwrap();
    }
    scratch
}

#[test]
fn imageinfo_has_the_keys_of_macos_27() {
    let scratch = programs();
    call(
        &scratch,
        "hdiutil create -size 8m -fs HFS+ -volname Disk -layout GPTSPUD -encryption AES-256 -stdinpass raw",
        b"key\0",
    );
    let raw = call(
        &scratch,
        "hdiutil imageinfo -plist -stdinpass raw.dmg",
        b"key\0",
    );
    assert_facts(&raw, &[RAW], |_| false);
    let map = call(&scratch, "hdiutil pmap -plist -stdinpass raw.dmg", b"key\0");
    let facts: String = RAW
        .lines()
        .filter_map(|line| line.strip_prefix("partitions/"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_facts(&map, &[&facts], |_| false);

    call(
        &scratch,
        "hdiutil create -size 64m -fs APFS -volname Disk -layout GPTSPUD a",
        b"",
    );
    call(
        &scratch,
        "hdiutil convert a.dmg -format UDZO -encryption AES-128 -stdinpass -o packed",
        b"key\0",
    );
    let packed = call(
        &scratch,
        "hdiutil imageinfo -plist -stdinpass packed.dmg",
        b"key\0",
    );
    assert_facts(&packed, &[PACKED], |line| line.starts_with("partitions/"));
    let value = plist::Value::from_reader_xml(packed.as_slice()).unwrap();
    let mut all = Vec::new();
    lines(&value, "", &mut all);
    assert!(
        all.iter()
            .any(|line| line.ends_with("partition-filesystems/APFS = string Untitled"))
    );

    // Volumes that tell upper from lower case, and the longer key.
    call(
        &scratch,
        "hdiutil create -size 64m -fs HFSX -volname Disk -layout GPTSPUD x",
        b"",
    );
    call(
        &scratch,
        "hdiutil convert x.dmg -format UDZO -encryption AES-256 -stdinpass -o longer",
        b"key\0",
    );
    let longer = call(
        &scratch,
        "hdiutil imageinfo -plist -stdinpass longer.dmg",
        b"key\0",
    );
    let value = plist::Value::from_reader_xml(longer.as_slice()).unwrap();
    let mut all = Vec::new();
    lines(&value, "", &mut all);
    for fact in HFSX {
        assert!(all.iter().any(|line| line == fact), "{fact}: {all:#?}");
    }

    // The size under the name that callers of `diskutil image info` read.
    let info = call(&scratch, "diskutil image info --plist a.dmg", b"");
    let value = plist::Value::from_reader_xml(info.as_slice()).unwrap();
    let size = value.as_dictionary().unwrap()["Size Info"]
        .as_dictionary()
        .unwrap();
    assert_eq!(size["Total Bytes"].as_unsigned_integer(), Some(64 << 20));
}

#[test]
fn words_and_exit_codes_are_those_of_macos_27() {
    let scratch = programs();
    let folder = scratch.path("").canonicalize().unwrap();
    let folder = folder.to_str().unwrap();
    call(
        &scratch,
        "hdiutil create -size 4m -fs HFS+ -layout GPTSPUD a",
        b"",
    );
    call(
        &scratch,
        "hdiutil convert a.dmg -format UDZO -encryption AES-128 -stdinpass -o sealed",
        b"key\0",
    );
    let run = |line: &str, input: &[u8]| {
        assert_cmd::Command::new(scratch.path("bin/hdiutil"))
            .args(line.split(' '))
            .current_dir(folder)
            .write_stdin(input)
            .output()
            .unwrap()
    };
    for (line, input, code, out, err) in WORDS {
        let output = run(&line.replace("FOLDER", folder), input);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            stderr(&output)
        );
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed, out.replace("FOLDER", folder), "{line}");
        assert_eq!(
            stderr(&output).lines().next().unwrap_or_default(),
            err,
            "{line}"
        );
    }
    let output = run("verify -stdinpass sealed.dmg", b"new\0");
    assert!(output.status.success());
    assert_eq!(
        stderr(&output),
        "hdiutil: verify: checksum of \"sealed.dmg\" is VALID\n"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<_> = printed.lines().collect();
    assert_eq!(printed.len(), 2 * 8 + 1, "{printed:#?}");
    assert_eq!(
        printed[0],
        "Checksumming Protective Master Boot Record (MBR : 0)…"
    );
    assert!(printed[1].starts_with("Protective Master Boot Record (MBR :: verified CRC32 $"));
    assert_eq!(printed[6], "Checksumming  (Apple_Free : 3)…");
    assert_eq!(
        printed[7],
        "                    (Apple_Free : 3): verified CRC32 $00000000"
    );
    assert!(printed[9].starts_with("          disk image (Apple_HFS : 4): verified CRC32 $"));
    assert!(printed[16].starts_with("verified CRC32 $"));
}

#[test]
fn an_attached_image_has_the_devices_of_macos_27() {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() {
        crate::common::skip::skip(
            "an_attached_image_has_the_devices_of_macos_27",
            "/dev/fuse cannot be opened here",
        );
        return;
    }
    let scratch = programs();
    call(
        &scratch,
        "hdiutil create -size 64m -fs APFS -volname Disk a",
        b"",
    );
    call(
        &scratch,
        "hdiutil create -size 64m -fs HFS+ -volname Disk h",
        b"",
    );

    let attached = call(
        &scratch,
        "hdiutil attach -readonly -mountpoint at -plist a.dmg",
        b"",
    );
    assert_facts(&attached, &[ATTACHED], |_| false);
    let place = scratch.path("at").canonicalize().unwrap();
    for what in ["/dev/disk2s1", "disk2s1", "Disk", place.to_str().unwrap()] {
        let info = call(&scratch, &format!("diskutil info -plist {what}"), b"");
        assert_facts(&info, &[VOLUME, APFS_VOLUME], |_| false);
    }
    let list = call(&scratch, "diskutil list -plist", b"");
    let value = plist::Value::from_reader_xml(list.as_slice()).unwrap();
    let list = value.as_dictionary().unwrap();
    let names = |key: &str| -> Vec<_> {
        let all = list[key].as_array().unwrap();
        all.iter().map(|name| name.as_string().unwrap()).collect()
    };
    assert_eq!(names("AllDisks"), ["disk1", "disk1s1", "disk2", "disk2s1"]);
    assert_eq!(names("WholeDisks"), ["disk1", "disk2"]);
    assert_eq!(names("VolumesFromDisks"), ["Disk"]);
    let container = list["AllDisksAndPartitions"].as_array().unwrap()[1]
        .as_dictionary()
        .unwrap();
    let volume = container["APFSVolumes"].as_array().unwrap()[0]
        .as_dictionary()
        .unwrap();
    assert_eq!(volume["MountPoint"].as_string(), place.to_str());

    // A second image takes the next number; the container's name ends the first.
    let report = call(
        &scratch,
        "hdiutil attach -readonly -mountpoint second h.dmg",
        b"",
    );
    assert!(
        String::from_utf8(report)
            .unwrap()
            .starts_with("/dev/disk3 ")
    );
    assert_eq!(
        call(&scratch, "hdiutil detach disk2", b""),
        b"\"disk1\" ejected.\n"
    );
    call(&scratch, "hdiutil detach /dev/disk3s1", b"");

    call(
        &scratch,
        "hdiutil attach -readonly -mountpoint at h.dmg",
        b"",
    );
    let info = call(&scratch, "diskutil info -plist disk1s1", b"");
    assert_facts(&info, &[VOLUME, HFS_VOLUME], |_| false);
    call(&scratch, "hdiutil detach disk1", b"");

    call(&scratch, "hdiutil attach -mountpoint at a.dmg", b"");
    for (device, facts) in [
        ("disk1", DISK),
        ("disk1s1", PARTITION),
        ("disk2", CONTAINER),
    ] {
        let info = call(&scratch, &format!("diskutil info -plist {device}"), b"");
        assert_facts(&info, &[DEVICE, facts], |_| false);
    }
    call(&scratch, "hdiutil detach disk1", b"");

    let made = "hdiutil create -size 64m -fs HFSX -volname Disk x";
    call(&scratch, made, b"");
    let line = "hdiutil attach -readonly -mountpoint at x.dmg";
    call(&scratch, line, b"");
    let info = call(&scratch, "diskutil info -plist disk1s1", b"");
    let facts = HFS_VOLUME
        .replace("= string HFS+", "= string Case-sensitive HFS+")
        .replace("Mac OS Extended", "Mac OS Extended (Case-sensitive)");
    assert_facts(&info, &[VOLUME, &facts], |_| false);
    call(&scratch, "hdiutil detach disk1", b"");
}
