//! QEMU uses our exports as its disks, and the Linux kernel in it mounts the volumes on them and
//! changes them.

use std::path::Path;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice};
use bandsaw::fs::FileSystem;
use bandsaw::fs::hfsplus;
use bandsaw::open::{Image, OpenOptions, open};
use bandsaw::ops::create::{Layout, Source};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;

use crate::nbd::Served;
use crate::programs::qemu_value;
use crate::qemu::{self, Guest};
use crate::suite::Suite;
use crate::tree::{Kind, sha256};
use crate::{ours, tree, volume};

pub(crate) fn add(suite: &mut Suite) {
    suite
        .heavy_peer("linux-over-nbd", "boots Linux in an emulator", &qemu::NEEDS)
        .test("volumes_on_served_disks", volumes_on_served_disks);
}

/// Creates and removes files on each disk.
const WORK: &str = "\
for disk in vda vdb; do
section $disk
mount -t hfsplus -o force /dev/$disk /mnt
cp -a /mnt/Many /mnt/Copied
echo from the guest >/mnt/new
dd if=/dev/urandom of=/mnt/big bs=1M count=8 2>/dev/null
sync
rm /mnt/big
rm -r /mnt/Many
umount /mnt
done
";

fn writable(path: &Path, shadows: &[std::path::PathBuf]) -> Image {
    open(
        path,
        &OpenOptions {
            access: Access::ReadWrite,
            shadows,
            ..OpenOptions::default()
        },
    )
    .expect("opening the image")
}

/// A sparse bundle, and an overlay over ASIF, whose base stays unchanged.
fn volumes_on_served_disks() {
    let scratch = crate::scratch();
    let source = scratch.path().join("source");
    tree::write(&source, false);
    let path = |name: &str| scratch.path().join(name);
    for (name, format) in [
        ("x.sparsebundle", Format::Udsb),
        ("base.asif", Format::Asif),
    ] {
        volume::create_of(
            Some(128 << 20),
            Source::Folder(source.clone()),
            &path(name),
            format,
            false,
            Layout::None,
        );
    }
    let base = || std::fs::read(path("base.asif")).expect("reading the base");
    let before = base();
    let shadows = [vec![], vec![path("overlay.asif")]];
    let images = ["x.sparsebundle", "base.asif"].map(path);

    let mut guest = Guest::new(WORK).modules(&["nls_utf8", "hfsplus"]);
    let mut served = Vec::new();
    for (number, (image, shadows)) in images.iter().zip(&shadows).enumerate() {
        let socket = path(&format!("socket{number}"));
        served.push(Served::unix(
            writable(image, shadows).disk().clone(),
            &socket,
        ));
        let socket = qemu_value(socket.as_os_str());
        guest = guest.drive(
            &format!("file=nbd:unix:{socket},format=raw,discard=unmap,cache=none"),
            512,
        );
    }
    let report = guest.boot();
    served.into_iter().for_each(Served::stop);
    report.succeeded();

    assert!(base() == before, "the base is as it was");
    for (image, shadows) in images.iter().zip(&shadows) {
        let image = open(
            image,
            &OpenOptions {
                shadows,
                ..OpenOptions::default()
            },
        )
        .expect("opening what the guest left");
        let disk: &Arc<dyn BlockDevice> = image.disk();
        let found = hfsplus::check(disk.clone(), &Silent).expect("checking");
        assert!(
            found
                .iter()
                .all(|problem| problem.severity == Severity::Note),
            "{found:?}"
        );
        let volume: Arc<dyn FileSystem> = image.file_system(None).expect("opening the volume");
        let files = ours::list(&*volume);
        assert_eq!(
            files["new"].kind,
            Kind::File {
                len: 15,
                sha256: sha256(b"from the guest\n")
            }
        );
        assert!(
            files.contains_key("Copied/07")
                && !files.contains_key("Many/07")
                && !files.contains_key("big")
        );
    }
}
