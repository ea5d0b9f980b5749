//! The Linux kernel's driver for UDF, in a guest: it reads our test volumes of every form, and fills
//! volumes of `mkudffs`, which we read.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::udf::fixture::{UdfForm, UdfOptions, volume};
use bandsaw::fs::udf::{self, UdfVolume};
use bandsaw::fs::{FileKind, FileSystem, Fork, NodeId};
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::disk;
use crate::guest_listing;
use crate::programs::{Program, run};
use crate::qemu::{self, Guest};
use crate::suite::Suite;
use crate::tree::{Item, Kind, Listing, assert_same, sha256};

const MKUDFFS: Program = Program::Command(&["mkudffs"]);

/// `list NAME` prints all of the current folder but device nodes, for [`guest_listing::parse`].
const LIST: &str = r#"
each() { find . -mindepth 1 ! -type c "$@" 2>/dev/null || :; }
list() {
    section "$1"
    each -exec stat -c '%f %s %Y %h %n' {} +
    section "$1 sums"
    each -type f -exec sha256sum {} +
    section "$1 targets"
    each -type l -exec sh -c 'for link; do echo "$link"; readlink "$link"; done' sh {} +
}
show() {
    mount -t udf -o "ro,$2" "/dev/$1" /mnt
    cd /mnt
    list "$1"
    cd /
    umount /mnt
}
fill() {
    mount -t udf "/dev/$1" /mnt
    cd /mnt
    mkdir -p folder/inner many
    echo short >short.txt
    dd if=/dev/urandom of=folder/inner/large bs=1000 count=300 2>/dev/null
    dd if=/dev/urandom of=sparse bs=4096 count=2 seek=40 2>/dev/null
    dd if=/dev/urandom of=sparse bs=4096 count=1 conv=notrunc 2>/dev/null
    ln short.txt folder/again.txt
    ln -s folder/../short.txt link
    ln -s /absolute/target elsewhere
    mkfifo fifo
    for number in $(seq 100 299); do echo $number >many/a-name-of-some-length-$number; done
    rm many/a-name-of-some-length-1*
    echo umlaut >"$(printf 'f\303\274r')"
    echo euro >"$(printf '\342\202\254')"
    chmod 4751 short.txt
    chmod 1777 folder
    # Each of these is written while the other is: their extents are apart.
    for number in $(seq 1 300); do
        dd if=/dev/urandom bs=4096 count=1 2>/dev/null >>one
        dd if=/dev/urandom bs=4096 count=1 2>/dev/null >>two
        sync one two 2>/dev/null || sync
    done
    list "$1"
    cd /
    umount /mnt
}
"#;

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[MKUDFFS]].concat();
    suite
        .heavy_peer("linux with UDF", "boots Linux in an emulator", &needs)
        .test("reads_and_writes", reads_and_writes);
}

fn reads_and_writes() {
    let scratch = crate::scratch();
    let form = |revision, block_size, form, chains| UdfOptions {
        revision,
        block_size,
        form,
        chains,
    };
    let ours = [
        form(0x0201, 2048, UdfForm::Plain, false),
        form(0x0102, 512, UdfForm::Plain, false),
        form(0x0201, 4096, UdfForm::Plain, true),
        form(0x0150, 2048, UdfForm::Sparable, false),
        form(0x0150, 2048, UdfForm::Virtual, false),
        form(0x0201, 2048, UdfForm::Virtual, false),
        form(0x0250, 2048, UdfForm::Metadata, false),
    ];
    let theirs: [(&[&str], u32); 4] = [
        (
            &["--media-type=hd", "--udfrev=2.01", "--blocksize=512"],
            30_000,
        ),
        (
            &[
                "--media-type=hd",
                "--udfrev=1.02",
                "--blocksize=4096",
                "--ad=long",
            ],
            4000,
        ),
        (
            &[
                "--media-type=hd",
                "--udfrev=2.01",
                "--blocksize=2048",
                "--strategy=4096",
            ],
            8000,
        ),
        (&["--media-type=cdrw", "--udfrev=1.50", "--ad=short"], 9000),
    ];
    let mut names = ('a'..='z').map(|letter| format!("vd{letter}"));
    let mut script = ". /list\n".to_owned();
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for options in &ours {
        let name = names.next().expect("a letter");
        std::fs::write(scratch.path().join(&name), volume(options)).expect("writing a volume");
        script += &format!("show {name} bs={}\n", options.block_size);
        read.push((name, format!("{options:?}")));
    }
    for (options, blocks) in theirs {
        let name = names.next().expect("a letter");
        let image = scratch.path().join(&name);
        let mut command: Command = MKUDFFS.command();
        command.arg("--new-file").args(options);
        run(command.arg(&image).arg(blocks.to_string()));
        script += &format!("fill {name}\n");
        written.push((name, format!("{options:?}")));
    }
    let mut guest = Guest::new(script)
        .file("/list", LIST)
        .modules(&["nls_utf8", "udf"]);
    for (name, _) in read.iter().chain(&written) {
        guest = guest.disk(&scratch.path().join(name));
    }
    let report = guest.boot().succeeded();
    for (name, what) in read.iter().chain(&written) {
        let image = scratch.path().join(name);
        let volume =
            UdfVolume::open(device(&image)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let shown = guest_listing::parse(&report, name);
        assert!(shown.len() > 70, "{what}: {:?}", shown.keys());
        eprintln!("udf: {what}: {} objects", shown.len());
        assert_same(&shown, &list(&volume));
        let problems = udf::check(device(&image), &Silent).expect("a check");
        assert!(problems.is_empty(), "{what}: {problems:?}");
    }
}

fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(disk::open(image, Open::Read))
}

/// Lists all of a volume but device nodes, and without attributes.
fn list(volume: &UdfVolume) -> Listing {
    let mut listing = Listing::new();
    let mut ahead = vec![(String::new(), volume.root())];
    while let Some((folder, node)) = ahead.pop() {
        let mut add = |entry: bandsaw::fs::Entry| {
            let path = format!("{folder}{}", entry.name);
            let found = entry.attributes;
            let kind = match found.kind {
                FileKind::Folder => {
                    ahead.push((format!("{path}/"), found.id));
                    Kind::Folder
                }
                FileKind::File => Kind::File {
                    len: found.size,
                    sha256: sha256(&contents(volume, found.id)),
                },
                FileKind::Symlink => Kind::Symlink(volume.read_link(found.id)?),
                FileKind::Fifo => Kind::Fifo,
                _ => return Ok(ControlFlow::Continue(())),
            };
            let item = Item {
                // Linux gives all links these permissions.
                mode: match found.kind {
                    FileKind::Symlink => 0o777,
                    _ => found.mode.into(),
                },
                modified: found.modified.expect("a time").seconds,
                links: found.links.into(),
                ..Item::of(kind)
            };
            listing.insert(path, item);
            Ok(ControlFlow::Continue(()))
        };
        volume.list(node, &mut add).expect("listing a folder");
    }
    listing
}

fn contents(volume: &UdfVolume, node: NodeId) -> Vec<u8> {
    let file = volume.open(node, Fork::Data).expect("opening a file");
    let len = usize::try_from(file.info().len).expect("a small file");
    file.read_vec(0, len).expect("reading a file")
}
