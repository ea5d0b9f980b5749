//! `hdiutil makehybrid`.

use super::*;

#[test]
fn a_hybrid_of_hfs_alone() {
    let scratch = sample();
    ok(
        &scratch,
        "makehybrid -hfs -o hybrid -default-volume-name Hybrid src",
    );
    assert_eq!(scratch.ok(&["cat", "hybrid.dmg:/folder/other"]), "other");
    ok(
        &scratch,
        "makehybrid -hfs -hfs-openfolder src -o opens -quiet src",
    );
    assert_eq!(scratch.ok(&["cat", "opens.dmg:/letter"]), "dear diary");
    scratch.ok(&["check", "opens.dmg"]);
    // finderInfo[2] of both volume headers (TN1150): the root folder.
    for (image, folder) in [("opens.dmg", 2), ("hybrid.dmg", 0)] {
        let bytes = fs::read(scratch.path(image)).unwrap();
        for header in [1024, bytes.len() - 1024] {
            let opened = &bytes[header + 80 + 2 * 4..][..4];
            assert_eq!(opened, u32::to_be_bytes(folder), "{image}");
        }
    }
    assert!(
        fails(
            &scratch,
            "makehybrid -hfs -hfs-openfolder src/folder -o x src"
        )
        .contains("only the folder that becomes the volume")
    );
    assert!(fails(&scratch, "makehybrid -udf -o x src").contains("UDF is"));
}

#[test]
fn hybrids_with_iso_9660() {
    let scratch = sample();
    if std::process::Command::new("xorriso")
        .arg("-version")
        .output()
        .is_err()
    {
        return skip("hybrids_with_iso_9660", "no xorriso");
    }
    for (line, joliet) in [
        ("makehybrid -iso -o plain src", false),
        (
            "makehybrid -iso -joliet -publisher Us -o names.iso src",
            true,
        ),
        ("makehybrid -default-volume-name Every -o every src", true),
    ] {
        let made = ok(&scratch, line);
        let path = made.trim().strip_prefix("created: ").unwrap();
        let bytes = fs::read(path).unwrap();
        let descriptor = |number: usize| &bytes[0x8000 + number * 2048..][..2048];
        assert_eq!(&descriptor(0)[..6], b"\x01CD001", "{line}");
        let kinds: Vec<u8> = (0..4).map(|number| descriptor(number)[0]).collect();
        assert_eq!(kinds.contains(&2), joliet, "{line}");
        let letter = scratch.run(&["cat", &format!("{path}:/letter")]);
        assert_eq!(letter.stdout, b"dear diary", "{line}");
        let listed = std::process::Command::new("7zz").args(["l", path]).output();
        if let Ok(listed) = listed {
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            assert!(
                listed.contains("letter") || listed.contains("LETTER"),
                "{line}: {listed}"
            );
        }
    }
}
