//! Images that `hdiutil` attaches and detaches.

use super::*;

#[test]
fn attached_until_it_is_detached() {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        return skip(
            "attached_until_it_is_detached",
            "/dev/fuse cannot be opened here",
        );
    }
    let scratch = sample();
    ok(&scratch, "create -size 10m -fs HFS+ -volname Disk a");
    let home = scratch.path("");
    symlink(env!("CARGO_BIN_EXE_bandsaw"), scratch.path("bin/diskutil")).unwrap();
    let call = |line: &str| {
        let (program, line) = line
            .strip_prefix("diskutil ")
            .map_or(("hdiutil", line), |line| ("diskutil", line));
        let mut command = assert_cmd::Command::new(scratch.path("bin").join(program));
        command
            .args(line.split(' '))
            .current_dir(&home)
            .env("XDG_RUNTIME_DIR", &home)
            .env("HOME", &home);
        command.output().unwrap()
    };
    let output = call("attach a.dmg -nobrowse -noautoopen -readwrite -mountpoint at -plist");
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = plist::Value::from_reader_xml(output.stdout.as_slice()).unwrap();
    let entities = at(&printed, &["system-entities"]).as_array().unwrap();
    let volume = entities
        .iter()
        .find(|entity| entity.as_dictionary().unwrap().contains_key("mount-point"))
        .unwrap();
    let folder = fs::canonicalize(scratch.path("at")).unwrap();
    assert_eq!(at(volume, &["mount-point"]).as_string(), folder.to_str());
    fs::write(scratch.path("at/letter"), "dear diary").unwrap();

    // Attached already.
    let again = call("attach a.dmg -plist");
    assert_eq!(
        (again.status.code(), &again.stdout),
        (Some(0), &output.stdout),
        "{}",
        stderr(&again)
    );
    let missing = call("attach a.dmg -shadow -mountrandom none");
    let printed = stderr(&missing);
    assert!(
        printed.contains("attach failed - No such file or directory"),
        "{printed}"
    );
    assert!(printed.contains("none"), "{printed}");
    // By the names of macOS, with Linux's prefix and without.
    #[cfg(target_os = "linux")]
    for name in ["com.apple.FinderInfo", "user.com.apple.FinderInfo"] {
        let (path, mut value) = (scratch.path("at/letter"), [0; 32]);
        value[..16].fill(name.len() as u8); // the rest belongs to the system
        rustix::fs::setxattr(&path, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
        for name in ["com.apple.FinderInfo", "user.com.apple.FinderInfo"] {
            let mut read = [0; 32];
            assert_eq!(
                rustix::fs::getxattr(&path, name, &mut read),
                Ok(32),
                "{name}"
            );
            assert_eq!(read, value, "{name}");
        }
    }

    let open = fs::File::open(scratch.path("at/letter")).unwrap();
    let device = at(volume, &["dev-entry"]).as_string().unwrap();
    assert!(
        String::from_utf8(call(&format!("mountvol {device}")).stdout)
            .unwrap()
            .contains(folder.to_str().unwrap())
    );
    let busy = call(&format!("detach {device}"));
    assert_eq!(busy.status.code(), Some(16), "{}", stderr(&busy));
    assert!(stderr(&busy).contains("detach failed - Resource busy"));
    drop(open);
    let output = call(&format!("detach {device}"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(scratch.ok(&["cat", "a.dmg:/letter"]), "dear diary");

    // Made and attached in one, and as diskutil says it.
    let said = |line: &str| {
        let output = call(line);
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = said("create -size 10m -fs HFS+ -volname New -attach b");
    assert!(
        printed.starts_with("/dev/disk1") && printed.contains("Volumes/New"),
        "{printed}"
    );
    assert!(said("diskutil list").contains("b.dmg"));
    assert!(said("diskutil unmount force disk1s1").contains("disk1"));
    let printed = said(
        "diskutil image attach --mountPoint at --mountOptions umask=077 --shadow --nobrowse a.dmg",
    );
    assert!(printed.contains("/at\n"), "{printed}");
    fs::write(scratch.path("at/letter"), "to nobody").unwrap();
    let ejected = said("diskutil eject -plist /dev/disk1");
    let ejected = plist::Value::from_reader_xml(ejected.as_bytes()).unwrap();
    assert_eq!(
        at(&ejected, &["DeviceIdentifier"]).as_string(),
        Some("disk1")
    );
    assert_eq!(scratch.ok(&["cat", "a.dmg:/letter"]), "dear diary");
    assert_eq!(
        scratch.ok(&["cat", "a.dmg:/letter", "--shadow", "a.dmg_shadow"]),
        "to nobody"
    );

    // A volume without a partition map is on the disk itself. A partition can be taken for such a
    // disk.
    said("create -size 5m -fs HFS+ -layout NONE -volname Whole c");
    let printed = said("attach c.dmg -mountpoint at -plist");
    let printed = plist::Value::from_reader_xml(printed.as_bytes()).unwrap();
    let [whole] = at(&printed, &["system-entities"])
        .as_array()
        .unwrap()
        .as_slice()
    else {
        panic!("{printed:?}")
    };
    assert_eq!(at(whole, &["mount-point"]).as_string(), folder.to_str());
    said("detach /dev/disk1");
    let facts = scratch.json(&["info", "a.dmg"]);
    let [first, count] = ["offset", "size"].map(|key| {
        facts["partition_map"]["partitions"][0][key]
            .as_u64()
            .unwrap()
            / 512
    });
    for section in [
        format!("{first},{count}"),
        format!("{first}-{}", first + count - 1),
        first.to_string(),
    ] {
        let printed = said(&format!("attach -section {section} -mountpoint at a.dmg"));
        assert!(printed.contains("/at\n"), "{section}: {printed}");
        fs::write(scratch.path("at/letter"), &section).unwrap();
        said("detach disk1");
        assert_eq!(scratch.ok(&["cat", "a.dmg:/letter"]), section);
    }
    assert!(
        stderr(&call("attach a.dmg -section 20480,1"))
            .contains("the section exceeds the 20480 sectors")
    );
    assert!(stderr(&call("attach a.dmg -section 2-1")).contains("invalid section 2-1"));

    // Compared with its checksums first.
    said("convert a.dmg -format UDRO -o sums");
    let mut bytes = fs::read(scratch.path("sums.dmg")).unwrap();
    let letter = scratch.ok(&["cat", "sums.dmg:/letter"]).into_bytes();
    let at = bytes
        .windows(letter.len())
        .position(|bytes| bytes == letter);
    bytes[at.unwrap()] ^= 0x20;
    scratch.write("sums.dmg", bytes);
    for line in [
        "attach sums.dmg",
        "attach -verify sums.dmg",
        "mount sums.dmg",
    ] {
        let failed = call(line);
        assert_eq!(failed.status.code(), Some(1), "{line}");
        assert!(
            stderr(&failed).contains("failed - image data corrupted"),
            "{line}: {}",
            stderr(&failed)
        );
    }
    for (option, warns) in [
        ("-noverify", false),
        ("-ignorebadchecksums", true),
        ("-verify -ignorebadchecksums", true),
        ("-noverify -ignorebadchecksums", false),
        ("-quiet -ignorebadchecksums", false),
    ] {
        let attached = call(&format!("attach sums.dmg {option}"));
        let printed = stderr(&attached);
        assert!(attached.status.success(), "{option}: {printed}");
        let warned = printed.contains("warning: ") && printed.contains("checksum mismatch of");
        assert_eq!(warned, warns, "{option}: {printed}");
        said("detach disk1");
    }

    // An image whose file was removed keeps its number.
    said("create -size 10m -fs HFS+ -volname Gone gone");
    said("attach gone.dmg -mountpoint at");
    fs::remove_file(scratch.path("gone.dmg")).unwrap();
    assert!(said("attach a.dmg").starts_with("/dev/disk2"));
    assert_eq!(said("detach disk2"), "\"disk2\" ejected.\n");
    assert_eq!(said("detach disk1"), "\"disk1\" ejected.\n");

    // Nothing to be mounted on it.
    scratch.ok(&["create", "blank.img", "--size", "1m", "--fs", "none"]);
    for line in ["attach blank.img", "diskutil image attach blank.img"] {
        let failed = call(line);
        assert_eq!(failed.status.code(), Some(1), "{line}");
        let printed = stderr(&failed);
        assert!(
            printed.contains("attach failed - no mountable file systems"),
            "{line}: {printed}"
        );
        // Reported once, in the words of the program that was called.
        assert!(
            !printed.contains("error: ") && !printed.contains("--nomount"),
            "{line}: {printed}"
        );
    }
    for line in [
        "attach -mount optional blank.img",
        "diskutil image attach --mountPolicy autoMount blank.img",
    ] {
        said(line);
        said("detach disk1");
    }
    let failed = call("attach missing.dmg");
    assert!(
        stderr(&failed).contains("attach failed - No such file or directory"),
        "{}",
        stderr(&failed)
    );
}
