//! `diagnose`.

use std::fs;

use super::{facts, images};
use serde_json::Value;

/// Every cause that people meet, by its name, and something of what is printed.
#[test]
fn diagnose_names_the_cause() {
    let scratch = images();
    let zlib = |bytes: &[u8]| {
        // One stored block in a zlib stream.
        let len = bytes.len() as u16;
        let (mut a, mut b) = (1_u32, 0_u32);
        bytes.iter().for_each(|byte| {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        });
        let head = [
            &[0x78, 0x01, 0x01][..],
            &len.to_le_bytes(),
            &(!len).to_le_bytes(),
        ]
        .concat();
        [&head[..], bytes, &(b << 16 | a).to_be_bytes()].concat()
    };
    let disk = fs::read(scratch.path("x.img")).unwrap();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12345\n";
    let with = |at: usize, magic: &[u8]| {
        let mut bytes = vec![0x81; 70_000];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        bytes
    };
    let files: [(&str, Vec<u8>, &str, &str); 33] = [
        ("xar.dmg", with(0, b"xar!"), "archive", "7zz x"),
        ("sit.img", with(10, b"rLau"), "archive", "unar"),
        ("sitx.img", with(0, b"StuffIt!"), "archive", "unar"),
        (
            "hqx.img",
            b"(This file must be converted with BinHex 4.0)\n\n:$f*TEQKPH#".to_vec(),
            "archive",
            "BinHex",
        ),
        (
            "super.img",
            with(0, b"\x3a\xff\x26\xed"),
            "other-system",
            "simg2img",
        ),
        ("disk.wim", with(0, b"MSWIM\0\0\0"), "archive", "wimapply"),
        ("setup.img", with(0, b"MZ"), "no-image", "Windows"),
        (
            "case.Ex01",
            with(0, b"EVF2\x0d\x0a\x81\0"),
            "other-system",
            "ewfexport",
        ),
        ("locked.img", with(3, b"-FVE-FS-"), "other-system", "bitlk"),
        (
            "lvm.img",
            with(512, b"LABELONE"),
            "file-system-not-read",
            "vgchange",
        ),
        ("empty.dmg", vec![], "empty", "no bytes"),
        (
            "page.dmg",
            b"\n<!DOCTYPE html><html><body>Please log in</body></html>".to_vec(),
            "web-page",
            "curl -fL",
        ),
        (
            "page2.dmg",
            b"<?xml version='1.0'?>\n<html xmlns='x'></html>".to_vec(),
            "web-page",
            "browser",
        ),
        ("pointer.dmg", lfs.into(), "lfs-pointer", "12345 bytes"),
        (
            "error.dmg",
            b"{\"message\": \"Not Found\"}".to_vec(),
            "text",
            "Not Found",
        ),
        (
            "a.dmg",
            [b"PK\x03\x04", &[0x81; 2000][..]].concat(),
            "archive",
            "unzip",
        ),
        (
            "b.dmg",
            [b"\x1f\x8b\x08\0", &[0x81; 2000][..]].concat(),
            "archive",
            "gzip -dc",
        ),
        (
            "c.dmg",
            [b"7z\xbc\xaf\x27\x1c", &[0x81; 2000][..]].concat(),
            "archive",
            "7zz x",
        ),
        (
            "d.dmg",
            [b"xar!", &[0x81; 2000][..]].concat(),
            "archive",
            ".pkg",
        ),
        (
            "e.dmg",
            [b"AEA1", &[0x81; 2000][..]].concat(),
            "archive",
            "aea",
        ),
        (
            "f.img",
            [b"QED\0", &[0x81; 2000][..]].concat(),
            "other-system",
            "qemu-img",
        ),
        (
            "g.img",
            [b"LUKS\xba\xbe", &[0x81; 2000][..]].concat(),
            "other-system",
            "cryptsetup",
        ),
        (
            "h.dmg",
            [b"\x89PNG\r\n\x1a\n", &[0x81; 2000][..]].concat(),
            "no-image",
            "picture",
        ),
        (
            "random.dmg",
            (0..65536_u32)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect(),
            "unknown",
            "udrw",
        ),
        (
            "half.dmg",
            [zlib(&disk[..512]), vec![0x81; 5000]].concat(),
            "cut-short",
            "koly",
        ),
        (
            "begun.dmg.crdownload",
            vec![0x81; 5000],
            "unfinished-download",
            "finish",
        ),
        (
            "room.dmg",
            [vec![0x81; 5000], vec![0; 2 << 20]].concat(),
            "cut-short",
            "zeros",
        ),
        (
            "half.img",
            disk[..20480].to_vec(),
            "cut-short",
            "past the end",
        ),
        ("blank.dmg", vec![0; 1 << 20], "blank", "not formatted"),
        (
            "apfs.img",
            [&[0; 32][..], b"NXSB", &[0; 70000][..]].concat(),
            "volume-damaged",
            "APFS",
        ),
        (
            "iso.iso",
            [&[0; 0x8001][..], b"CD001", &[0; 70000][..]].concat(),
            "volume-damaged",
            "ISO 9660",
        ),
        (
            "map.img",
            disk.iter()
                .enumerate()
                .map(|(n, byte)| {
                    if n == 520 || n + 500 == disk.len() {
                        !byte
                    } else {
                        *byte
                    }
                })
                .collect(),
            "partition-map-damaged",
            "repair",
        ),
        ("x.sparseimage", disk.clone(), "wrong-extension", "rename"),
    ];
    for (name, bytes, code, hint) in files {
        let path = scratch.write(name, bytes);
        let before = fs::read(&path).unwrap();
        let output = scratch.run(&["diagnose", "--json", name]);
        let found: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {output:?}"));
        assert_eq!(
            found["cause"]["code"],
            code.replace('-', "_"),
            "{name}: {found}"
        );
        assert!(
            found["cause"].to_string().contains(hint),
            "{name}: no {hint} in {found}"
        );
        assert!(
            !found["cause"]["advice"].as_array().unwrap().is_empty(),
            "{name}"
        );
        let opens = ["wrong-extension", "blank", "file-system-not-read"].contains(&code)
            || ["g.img", "locked.img"].contains(&name);
        assert_eq!(output.status.success(), opens, "{name}");
        assert!(fs::read(&path).unwrap() == before);
        let text = scratch.run(&["diagnose", name]);
        assert!(
            String::from_utf8_lossy(&text.stdout).contains("  * "),
            "{name}: {text:?}"
        );
    }
    for image in ["x.img", "x.sparsebundle"] {
        assert!(
            scratch
                .ok(&["diagnose", image])
                .contains("no problem was found"),
            "{image}"
        );
    }
    assert_eq!(
        facts(&scratch, 3, &["diagnose", "missing.dmg"])["cause"]["code"],
        "missing"
    );
    assert_eq!(
        facts(&scratch, 6, &["diagnose", "src"])["cause"]["code"],
        "no_image"
    );
    fs::write(scratch.path("x.sparsebundle/Info.plist"), "x").unwrap();
    fs::write(scratch.path("x.sparsebundle/Info.bckup"), "x").unwrap();
    assert_eq!(
        facts(&scratch, 5, &["diagnose", "x.sparsebundle"])["cause"]["code"],
        "bundle_damaged"
    );
}
