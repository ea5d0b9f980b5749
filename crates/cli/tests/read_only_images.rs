//! Images of other formats: read by every reading verb, and changed by none.

use std::fs;

use bandsaw::container::{dart, disk_copy, ewf, fork_file, ndif, qcow2, udif, vhd, vhdx, vmdk};
use bandsaw::testing::fuzz;

use crate::common::{Scratch, stderr};

/// Returns a diskette of 800 KB with an HFS volume.
fn diskette() -> Vec<u8> {
    let mut disk = fuzz::hfs_sample();
    disk.resize(800 << 10, 0);
    disk
}

/// Returns an NDIF image in a MacBinary file.
fn ndif_in_mac_binary(disk: &[u8]) -> Vec<u8> {
    let image = ndif::fixture::NdifFixture::of(disk);
    let table = udif::Resource {
        kind: ndif::RESOURCE.0.into(),
        id: ndif::RESOURCE.1.into(),
        data: image.table,
        ..udif::Resource::default()
    };
    fork_file::mac_binary_of(&image.data, &udif::to_fork(&[table]).unwrap())
}

#[test]
fn an_image_is_read_by_every_reading_verb() {
    let disk = diskette();
    let images = [
        ("DC42", "disk.img", disk_copy::fixture::image(&disk, &[])),
        (
            "DART",
            "disk.dart",
            dart::fixture::image(&disk, &[], dart::fixture::Packing::Best),
        ),
        ("NDIF", "disk.bin", ndif_in_mac_binary(&disk)),
        (
            "QCOW2",
            "disk.qcow2",
            qcow2::fixture::image(&disk, 16, true),
        ),
        ("VHD", "disk.vhd", vhd::fixture::image(&disk, Some(1 << 20))),
        ("VHDX", "disk.vhdx", vhdx::fixture::image(&disk)),
        ("VMDK", "disk.vmdk", vmdk::fixture::file(&disk, true)),
        (
            "EWF",
            "disk.E01",
            ewf::fixture::set(&disk, 1 << 20).remove(0),
        ),
    ];
    let scratch = Scratch::new();
    scratch.write("raw.img", &disk);
    let listed = scratch.ok(&["ls", "-R", "raw.img"]);
    for (format, name, bytes) in images {
        scratch.write(name, &bytes);
        let info = scratch.json(&["info", name]);
        assert_eq!(info["format"], format);
        assert_eq!(info["size"], disk.len());
        assert_eq!(info["storage"]["kind"], "read_only_image");
        assert_eq!(scratch.ok(&["ls", "-R", name]), listed);
        scratch.ok(&["check", name]);
        scratch.ok(&["diagnose", name]);
        let out = format!("out-{format}");
        scratch.ok(&["extract", name, &out]);
        assert!(fs::read_dir(scratch.path(&out)).unwrap().next().is_some());
        let copy = format!("{format}.raw");
        scratch.ok(&["convert", name, &copy]);
        assert!(fs::read(scratch.path(&copy)).unwrap() == disk);
        for refused in [
            &["mkdir", &format!("{name}:/new")][..],
            &[
                "convert",
                "raw.img",
                "new.img",
                "--format",
                &format.to_lowercase(),
            ],
        ] {
            let refused = scratch.run(refused);
            assert!(!refused.status.success());
            let message = stderr(&refused);
            assert!(message.contains("read"), "{message}");
        }
        assert!(fs::read(scratch.path(name)).unwrap() == bytes);
    }
}

#[test]
fn a_changed_diskette_is_found_out() {
    let scratch = Scratch::new();
    let mut bytes = disk_copy::fixture::image(&diskette(), &[]);
    scratch.write("disk.img", &bytes);
    assert!(scratch.ok(&["verify", "disk.img"]).contains("right"));
    let length = bytes.len();
    bytes[length - 1] ^= 1;
    scratch.write("disk.img", &bytes);
    for verb in ["verify", "check"] {
        let found = scratch.run(&[verb, "disk.img"]);
        assert_eq!(found.status.code(), Some(5), "{verb}: {}", stderr(&found));
    }
}
