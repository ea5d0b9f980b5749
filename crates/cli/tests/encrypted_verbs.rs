//! Every verb on an encrypted image: as on a plain one with the passphrase, and in clear words
//! without it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Scratch, stderr};
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::crypt::{Device, KeyWrap, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice, Memory};
use bandsaw::store::Local;

const ADDED: &str = "added with the passphrase";

/// A line for each verb, with subverbs, in an order in which all of them work: `S.img` holds a
/// volume, `Z.dmg` a compressed one.
const LINES: &[&str] = &[
    "info S.img",
    "ls S.img",
    "tree S.img",
    "cat S.img:/letter",
    "stat S.img:/letter",
    "extract S.img out",
    "cp S.img:/letter letter",
    "put --from plain.txt S.img:/put",
    "mkdir S.img:/folder",
    "mv S.img:/put S.img:/folder/moved",
    "ln S.img:/folder/moved S.img:/link",
    "xattr --set a=b S.img:/link",
    "chmod 600 S.img:/link",
    "touch S.img:/touched",
    "rm S.img:/touched",
    "compress S.img:/letter",
    "decompress S.img:/letter",
    "trim S.img",
    "compact --battery-allowed S.img",
    "reband --band-size 2m B.sparsebundle",
    "advise S.img",
    "report S.img -o report.html",
    "resize S.img --size 40m",
    "enable-journal S.img",
    "disable-journal S.img",
    "format --erase Third.img",
    "convert --decrypt S.img converted.sparsebundle",
    "segment Z.dmg -o parts.dmg --count 2 --decrypt",
    "join Z.dmg -o joined.dmg --decrypt",
    "resources list Z.dmg",
    "resources add Z.dmg --license plain.txt",
    "resources extract Z.dmg -o resources.xml",
    "resources remove Z.dmg --license",
    "verify Z.dmg",
    "checksum S.img",
    "check S.img",
    "diagnose S.img",
    "diff S.img S.img",
    "evidence manifest S.img -o manifest.jsonl",
    "evidence verify manifest.jsonl S.img",
    "recover S.img --list",
    "repair S.img",
    "stack create S.img layer.asif",
    "stack info S.img layer.asif",
    "stack flatten --decrypt S.img layer.asif flat.img",
    "stack commit S.img layer.asif",
    "passwd --new-passfile new --iterations 150000 Other.img",
    "passwd add --new-passfile new --iterations 150000 Twice.img",
    "passwd remove Twice.img 2",
];

/// Verbs that open no image, or none of its data, or tell without it what they can; and those that
/// do not end by themselves. Those that read backups are in `backups.rs`.
const WITHOUT: &[&str] = &[
    "create",
    "dmg",
    "hdiutil",
    "diskutil",
    "shims install",
    "shims list",
    "shims help",
    "stack help",
    "resources help",
    "evidence timeline",
    "evidence help",
    "snapshot create",
    "snapshot list",
    "snapshot restore",
    "snapshot delete",
    "snapshot help",
    "timemachine list",
    "timemachine ls",
    "timemachine cat",
    "timemachine find",
    "timemachine versions",
    "timemachine diff",
    "timemachine restore",
    "timemachine mount",
    "timemachine convert",
    "timemachine create",
    "timemachine keep",
    "timemachine states",
    "timemachine status",
    "timemachine forget",
    "timemachine roll-back",
    "timemachine reset-verification",
    "timemachine help",
    "health",
    "scrub",
    "send",
    "receive",
    "watch",
    "checkpoint",
    "passwd list",
    "passwd help",
    "isencrypted",
    "erase-keys",
    "bench help",
    "bench files",
    "bench articles",
    "bench images",
    "bench compare",
    "bench gate",
    "completions",
    "help",
    "du",
    "list",
    "serve",
    "web",
    "mount",
    "attach",
    "detach",
];

#[test]
fn no_verb_is_forgotten() {
    let scratch = Scratch::new();
    let verbs = |of: &[&str]| -> Vec<String> {
        let help = scratch.ok(&[of, &["--help"]].concat());
        let lines = help
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty());
        lines
            .filter_map(|line| {
                line.strip_prefix("  ")?
                    .split(' ')
                    .next()
                    .filter(|verb| !verb.is_empty())
                    .map(str::to_owned)
            })
            .collect()
    };
    let mut all = BTreeSet::new();
    for verb in verbs(&[]) {
        let below = if verb == "help" {
            Vec::new()
        } else {
            verbs(&[&verb])
        };
        if below.is_empty() || verb == "passwd" {
            all.insert(verb.clone());
        }
        all.extend(below.into_iter().map(|subverb| format!("{verb} {subverb}")));
    }
    for verb in all {
        let tried = LINES.iter().any(|line| {
            line.strip_prefix(verb.as_str())
                .is_some_and(|rest| rest.starts_with(' '))
        });
        assert!(
            tried ^ WITHOUT.contains(&verb.as_str()),
            "`{verb}` opens encrypted images, or it does not: say so in this test"
        );
    }
}

#[test]
fn every_verb_works_on_encrypted_images_and_says_what_it_lacks() {
    let scratch = Scratch::new();
    scratch.write("tree/letter", "dear diary");
    scratch.write("plain.txt", ADDED);
    scratch.write("key", "secret\n");
    scratch.write("new", "another\n");
    scratch.ok(&["create", "plain.img", "--fs", "hfs+", "--from", "tree"]);
    scratch.ok(&["convert", "plain.img", "plain.dmg", "--format", "udzo"]);
    for (plain, name) in [
        ("plain.img", "S.img"),
        ("plain.dmg", "Z.dmg"),
        ("plain.img", "Other.img"),
        ("plain.img", "Twice.img"),
        ("plain.img", "Third.img"),
    ] {
        encrypt(&scratch.path(plain), &scratch.path(name));
    }
    let options = BundleOptions {
        len: 8 << 20,
        band_size: Some(1 << 20),
    };
    Bundle::create_encrypted(
        Arc::new(Local::new(scratch.path("B.sparsebundle"))),
        &options,
        &protection(),
    )
    .unwrap();
    let state = || {
        (
            scratch.names(),
            ["S.img", "Z.dmg", "Other.img", "Twice.img", "Third.img"]
                .map(|name| fs::read(scratch.path(name)).unwrap()),
        )
    };
    let refused = scratch.fails(7, &["serve", "S.img", "--socket", "socket"]);
    assert!(
        refused.contains("is encrypted: a passphrase is required"),
        "{refused}"
    );
    for line in LINES {
        let mut args: Vec<_> = line.split(' ').collect();
        let before = state();
        let output = scratch.run(&args);
        let said = format!(
            "{}{}",
            stderr(&output),
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(output.status.code(), Some(7), "{line}: {said}");
        let words = [
            "is encrypted: a passphrase is required",
            "is encrypted, and no passphrase was given",
        ];
        assert!(
            words.iter().any(|words| said.contains(words)) && said.contains("--passfile"),
            "{line}: {said}"
        );
        assert!(
            state() == before,
            "{line}: changes something without the passphrase"
        );

        args.extend(["--passfile", "key"]);
        let output = scratch.run(&args);
        // There is nothing to repair.
        let is_idle = line.starts_with("repair ") && output.status.code() == Some(10);
        assert!(
            output.status.success() || is_idle,
            "{line}: {}",
            stderr(&output)
        );
    }
    assert_eq!(
        scratch.ok(&["cat", "--passfile", "key", "S.img:/folder/moved"]),
        ADDED
    );
    assert_eq!(fs::read(scratch.path("letter")).unwrap(), b"dear diary");
    for plain in [
        "converted.sparsebundle",
        "parts.dmg",
        "joined.dmg",
        "flat.img",
    ] {
        assert_eq!(
            scratch.ok(&["cat", &format!("{plain}:/letter")]),
            "dear diary",
            "{plain}"
        );
    }
}

fn protection() -> Protection {
    let passphrase = Some(Secret::new(b"secret".to_vec()));
    Protection {
        key_bits: 256,
        block: 512,
        iterations: 1000,
        key_wrap: KeyWrap::TripleDes,
        passphrase,
        certificates: Vec::new(),
    }
}

/// As the library makes it, with fewer iterations than the command would allow: the verbs are many.
fn encrypt(plain: &Path, to: &Path) {
    let bytes = fs::read(plain).unwrap();
    let file = Arc::new(Memory::zeros(0));
    let device = Device::create(file.clone(), &protection()).unwrap();
    device
        .set_len(bytes.len() as u64, AfterDiscard::Zeros)
        .unwrap();
    device.write_at(0, &bytes).unwrap();
    device.flush().unwrap();
    fs::write(to, file.to_vec()).unwrap();
}
