//! ISO 9660: a volume is read by every reading verb, and changed by none.

use std::fs;

use bandsaw::fs::iso9660::fixture::{IsoOptions, volume};

use crate::common::{Scratch, stderr};

/// Returns a volume with a partition of FAT at byte 4096, of that number of sectors.
fn with_partition(mut bytes: Vec<u8>, sectors: u32) -> Vec<u8> {
    let entry = [
        &[0, 0, 0, 0, 0xEF, 0, 0, 0][..],
        &12_u32.to_le_bytes(),
        &sectors.to_le_bytes(),
    ];
    bytes[446..462].copy_from_slice(&entry.concat());
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    let boot = &mut bytes[6144..6656];
    boot[..3].copy_from_slice(&[0xEB, 0x3C, 0x90]);
    boot[11..22].copy_from_slice(&[0x00, 0x02, 4, 1, 0, 2, 0, 2, 0, 8, 0xF8]);
    boot[510..].copy_from_slice(&[0x55, 0xAA]);
    bytes
}

#[test]
fn a_volume_is_read_by_every_reading_verb() {
    let scratch = Scratch::new();
    let bytes = volume(&IsoOptions::default());
    scratch.write("disc.iso", &bytes);
    assert!(scratch.ok(&["ls", "disc.iso"]).contains("a.txt"));
    assert!(scratch.ok(&["tree", "disc.iso"]).contains("inner.txt"));
    assert_eq!(
        scratch.ok(&["cat", "disc.iso:/folder/here/inner.txt"]),
        "moved"
    );
    assert_eq!(scratch.ok(&["cat", "disc.iso:SAMPLE:/a.txt"]), "hello");
    scratch.ok(&["check", "disc.iso"]);
    scratch.ok(&["extract", "disc.iso", "out"]);
    let extracted = fs::read(scratch.path("out/folder/deep.txt")).unwrap();
    assert_eq!(extracted, b"deep down");
    let info = scratch.json(&["info", "disc.iso"]);
    let found = &info["volumes"][0];
    assert_eq!(
        (&found["file_system"], &found["name"]),
        (&"ISO 9660".into(), &"SAMPLE".into())
    );
    assert!(
        found.get("files").is_none() && found.get("details").is_none(),
        "{info}"
    );
    let refused = scratch.run(&["mkdir", "disc.iso:/new"]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("ISO 9660"),
        "{}",
        stderr(&refused)
    );
    assert!(fs::read(scratch.path("disc.iso")).unwrap() == bytes);
}

#[test]
fn damage_is_reported_by_a_check() {
    let scratch = Scratch::new();
    let bytes = volume(&IsoOptions::default());
    scratch.write("short.iso", &bytes[..bytes.len() / 2]);
    assert!(!scratch.run(&["check", "short.iso"]).status.success());
}

#[test]
fn partitions_within_a_volume_do_not_hide_it() {
    let scratch = Scratch::new();
    let bytes = volume(&IsoOptions::default());
    scratch.write("start.iso", with_partition(bytes.clone(), 32));
    assert_eq!(scratch.ok(&["cat", "start.iso:SAMPLE:/a.txt"]), "hello");
    // The disk was partitioned later, and the volume only remains.
    let longer = [bytes, vec![0; 1 << 20]].concat();
    let sectors = (longer.len() as u32 - 6144) / 512;
    scratch.write("stick.img", with_partition(longer, sectors));
    let refused = scratch.run(&["ls", "stick.img"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("invalid layout"),
        "{}",
        stderr(&refused)
    );
}
