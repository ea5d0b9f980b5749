//! The causes of errors that programs can act on: each has a case through the command.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use bandsaw::Reason;
use bandsaw::crypt::aea::Profile;
use bandsaw::crypt::aea::fixture::{ArchiveFixture, KEY};
use serde_json::Value;

use crate::common::Scratch;

/// Sixteen bytes that no format begins with.
const NONSENSE: &[u8] = b"no image at all ";

/// A command that fails: the cause and kind of its error, and parts of its message and hint.
struct Case {
    reason: Reason,
    kind: &'static str,
    args: &'static [&'static str],
    message: &'static str,
    hint: &'static str,
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case {
        reason: Reason::UnknownFormat, kind: "unsupported", args: &["info", "nonsense.bin"],
        message: "nonsense.bin", hint: "bandsaw diagnose nonsense.bin",
    },
    Case {
        reason: Reason::UnknownContents, kind: "unsupported",
        args: &["check", "unknown.img", "--image-format", "udrw"],
        message: "unknown contents", hint: "bandsaw diagnose unknown.img",
    },
    Case {
        reason: Reason::NotABundle, kind: "unsupported", args: &["info", "folder"],
        message: "not a sparse bundle", hint: "bandsaw create NEW.dmg --from folder",
    },
    Case {
        reason: Reason::Truncated, kind: "corrupt", args: &["ls", "cut.dmg"],
        message: "koly", hint: "bandsaw diagnose cut.dmg",
    },
    Case {
        reason: Reason::PassphraseNeeded, kind: "wrong_key", args: &["ls", "secret.img"],
        message: "a passphrase is required", hint: "--passfile FILE",
    },
    Case {
        reason: Reason::PrivateKeyNeeded, kind: "wrong_key", args: &["ls", "owned.img"],
        message: "a private key is required", hint: "--private-key FILE",
    },
    Case {
        reason: Reason::ArchiveKeyNeeded, kind: "wrong_key", args: &["ls", "locked.aea"],
        message: "its key is required", hint: "--aea-key FILE",
    },
    Case {
        reason: Reason::ArchivePrivateKeyNeeded, kind: "wrong_key", args: &["ls", "wrapped.aea"],
        message: "the private key for which the metadata wraps it", hint: "--aea-private-key FILE",
    },
    Case {
        reason: Reason::SignerKeyNeeded, kind: "wrong_key", args: &["ls", "signed.aea", "--aea-key", "archive-key"],
        message: "the public key of its signer is required", hint: "--aea-signer FILE",
    },
    Case {
        reason: Reason::WrongArchiveKey, kind: "wrong_key", args: &["ls", "locked.aea", "--aea-key", "other-key"],
        message: "wrong key", hint: "--aea-key FILE",
    },
    Case {
        reason: Reason::VolumeLocked, kind: "wrong_key", args: &["ls", "locked.img"],
        message: "locked.img", hint: "--volume-passfile FILE",
    },
    Case {
        reason: Reason::WrongVolumeKey, kind: "wrong_key",
        args: &["ls", "locked.img", "--volume-passfile", "new"],
        message: "wrong passphrase", hint: "--volume-passfile FILE",
    },
    Case {
        reason: Reason::Signed, kind: "read_only", args: &["convert", "signed.dmg", "new.dmg", "--format", "udzo"],
        message: "the image is signed", hint: "--remove-signature",
    },
    Case {
        reason: Reason::InUse, kind: "conflict", args: &["mkdir", "used.img:/x"],
        message: "in use by", hint: "end the program",
    },
    Case {
        reason: Reason::DamagedVolume, kind: "corrupt", args: &["mkdir", "bad.img:/x"],
        message: "damage", hint: "bandsaw check bad.img",
    },
    Case {
        reason: Reason::RepairInterrupted, kind: "conflict", args: &["mkdir", "repaired.img:/x"],
        message: "a repair of this image was interrupted", hint: "bandsaw repair --undo repaired.img",
    },
    Case {
        reason: Reason::BandSize, kind: "invalid",
        args: &["create", "b.sparsebundle", "--size", "40m", "--band-size", "1000001"],
        message: "the nearest is 1048576", hint: "--round",
    },
    Case {
        reason: Reason::PartialExists, kind: "conflict", args: &["convert", "--resume", "blank.img", "half.img"],
        message: ".half.img.partial is an unfinished image", hint: "or remove it",
    },
    Case {
        reason: Reason::KeysChanged, kind: "io",
        args: &["passwd", "changed.img", "--passfile", "key", "--new-passfile", "new"],
        message: "the new ones are in force", hint: "bandsaw passwd list changed.img",
    },
    Case {
        reason: Reason::NoVolumes, kind: "not_found", args: &["resize", "blank.img", "--size", "8m"],
        message: "the image has no volume", hint: "--image-only",
    },
    Case {
        reason: Reason::CaseIgnored, kind: "conflict",
        args: &["create", "case.img", "--from", "case", "--fs", "hfs+"],
        message: "README", hint: "--fs hfsx",
    },
    Case {
        reason: Reason::SameName, kind: "conflict",
        args: &["create", "same.img", "--from", "same", "--fs", "hfsx"],
        message: "composition", hint: "rename one of the two",
    },
    Case {
        reason: Reason::Exists, kind: "conflict", args: &["create", "blank.img", "--size", "4m"],
        message: "already exists", hint: "--overwrite",
    },
    Case {
        reason: Reason::NoSuchImage, kind: "not_found", args: &["ls", "absent.img"],
        message: "does not exist", hint: "",
    },
    Case {
        reason: Reason::LayerAlone, kind: "not_found", args: &["ls", "layer.asif"],
        message: "a layer over", hint: "blank.img",
    },
    Case {
        reason: Reason::NoSuchVolume, kind: "not_found", args: &["ls", "blank.img:9:/"],
        message: "no such volume", hint: "bandsaw info blank.img",
    },
    Case {
        reason: Reason::NoSuchPath, kind: "not_found", args: &["stat", "plain.img:/absent"],
        message: "absent", hint: "",
    },
    Case {
        reason: Reason::NoSuchSnapshot, kind: "not_found", args: &["ls", "plain.sparsebundle@none"],
        message: "has no snapshot", hint: "bandsaw snapshot list plain.sparsebundle",
    },
    Case {
        reason: Reason::NoSuchState, kind: "not_found", args: &["timemachine", "roll-back", "plain.sparsebundle"],
        message: "no states", hint: "bandsaw timemachine keep plain.sparsebundle",
    },
    Case {
        reason: Reason::NoSuchAttribute, kind: "not_found", args: &["xattr", "--remove", "none", "plain.img:/"],
        message: "has no attribute none", hint: "",
    },
    Case {
        reason: Reason::NameTooLong, kind: "limit", args: &["mkdir", LONG_NAME],
        message: "the maximum is 255", hint: "rename it",
    },
    Case {
        reason: Reason::LayersChanged, kind: "conflict", args: &["stack", "info", "other.asif", "upper.asif"],
        message: "it is another image", hint: "name the layers from the bottom",
    },
    Case {
        reason: Reason::NotAnArchive, kind: "corrupt", args: &["create", "new.img", "--from", "nonsense.bin", "--fs", "hfs+"],
        message: "not a tar archive", hint: "use a folder or a tar archive",
    },
    Case {
        reason: Reason::VolumeFull, kind: "limit", args: &["put", "--from", "locked.img", "plain.img:/large"],
        message: "not enough room", hint: "",
    },
];

/// The reasons that no test can cause: a test of the library shows what sets them.
const OF_THE_HOST: [Reason; 1] = [Reason::OnBattery];

/// A folder of `plain.img` with a name of 256 letters.
const LONG_NAME: &str = concat!(
    "plain.img:/",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
);

/// The images of [`CASES`]. The lock of `used.img` is held by the returned file.
fn images() -> (Scratch, File) {
    let scratch = Scratch::new();
    scratch.write("nonsense.bin", NONSENSE.repeat(64));
    scratch.write("unknown.img", NONSENSE.repeat(1 << 18));
    scratch.write("folder/file", "");
    scratch.write("key", "key");
    scratch.write("new", "new");
    scratch.write("case/README", "");
    scratch.write("case/readme", "");
    scratch.write("same/caf\u{e9}", "");
    scratch.write("same/cafe\u{301}", "");
    let create = |name: &str, args: &[&str]| {
        scratch.ok(&[&["create", name][..], args].concat());
    };
    for name in ["used.img", "repaired.img", "bad.img", "plain.img"] {
        create(name, &["--size", "8m", "--fs", "hfs+"]);
    }
    create("blank.img", &["--size", "4m"]);
    create("plain.sparsebundle", &["--size", "4m"]);
    scratch.ok(&["stack", "create", "blank.img", "layer.asif"]);
    for name in ["base.asif", "other.asif"] {
        create(name, &["--size", "4m"]);
    }
    scratch.ok(&["stack", "create", "base.asif", "upper.asif"]);
    edit(&scratch, "bad.img", |bytes| {
        let middle = bytes.len() / 2;
        bytes[1 << 19..middle].fill(0);
    });
    let volume = ["--encrypt-volume", "--volume-passfile", "key"];
    create(
        "locked.img",
        &[&["--size", "24m", "--fs", "apfs"], &volume[..]].concat(),
    );
    let encrypt = ["--size", "4m", "--encrypt", "aes-256", "--passfile", "key"];
    for name in ["secret.img", "owned.img", "changed.img"] {
        create(name, &encrypt);
    }

    for (name, profile) in [
        ("locked.aea", Profile::Symmetric),
        ("signed.aea", Profile::SymmetricSigned),
    ] {
        let archive = ArchiveFixture {
            profile,
            ..ArchiveFixture::default()
        };
        scratch.write(name, archive.of(b"contents"));
    }
    let wrapped = ArchiveFixture {
        metadata: b"\x22\0\0\0com.apple.wkms.fcs-response\0{}".to_vec(),
        ..ArchiveFixture::default()
    };
    scratch.write("wrapped.aea", wrapped.of(b"contents"));
    scratch.write("archive-key", KEY);
    scratch.write("other-key", [1; 32]);

    // Only a certificate opens it.
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/keys");
    let [certificate, owner] = ["owner-certificate.der", "owner.pem"].map(|name| keys.join(name));
    let [certificate, owner] = [&certificate, &owner].map(|path| path.to_str().unwrap());
    scratch.ok(&[
        "passwd",
        "add",
        "owned.img",
        "--passfile",
        "key",
        "--certificate",
        certificate,
    ]);
    scratch.ok(&["passwd", "remove", "owned.img", "2", "--private-key", owner]);

    // The header is wiped after its new entries are in force: where the limit on the size of files
    // forbids it.
    edit(&scratch, "changed.img", |bytes| bytes[0x1D000] = 1);

    // Both from a compressed image: one without its end, one with a signature before its trailer.
    scratch.sample();
    scratch.ok(&["create", "app.dmg", "--from", "src", "--format", "udzo"]);
    let app = fs::read(scratch.path("app.dmg")).unwrap();
    scratch.write("cut.dmg", &app[..app.len() / 2]);
    let (body, trailer) = app.split_at(app.len() - 512);
    let signature = [0xFA, 0xDE, 0x0C, 0xC0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut trailer = trailer.to_vec();
    trailer[0x128..0x130].copy_from_slice(&(body.len() as u64).to_be_bytes());
    trailer[0x130..0x138].copy_from_slice(&(signature.len() as u64).to_be_bytes());
    scratch.write("signed.dmg", [body, &signature, &trailer].concat());

    scratch.write("repaired.img.undo/1/state", "bandsaw undo 4\n");
    scratch.write(".half.img.partial", "half");
    scratch.write(
        ".half.img.partial-note",
        "bandsaw unfinished image 1\nof another source\n0\n",
    );

    let used = File::open(scratch.path("used.img")).unwrap();
    used.lock().unwrap();
    (scratch, used)
}

fn edit(scratch: &Scratch, name: &str, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(scratch.path(name)).unwrap();
    change(&mut bytes);
    scratch.write(name, bytes);
}

#[test]
fn every_reason_has_a_case_with_message_and_hint() {
    let (scratch, _used) = images();
    for case in CASES {
        // The unit is 512 or 1024 bytes, as the shell pleases: both are before 0x1D000.
        let limit = match case.reason {
            Reason::KeysChanged => "ulimit -f 100; exec \"$@\"",
            _ => "exec \"$@\"",
        };
        let mut command = Command::new("sh");
        command.args(["-c", limit, "sh", env!("CARGO_BIN_EXE_bandsaw")]);
        command.args(case.args).arg("--json");
        let output = command.current_dir(scratch.path("")).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        let error: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{:?}: {printed}", case.args));
        let error = &error["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default();
        assert_eq!(
            (text("kind"), text("reason")),
            (case.kind, &*code(case.reason)),
            "{:?}: {error}",
            case.args
        );
        assert!(
            text("message").contains(case.message),
            "{:?}: {error}",
            case.args
        );
        assert!(text("hint").contains(case.hint), "{:?}: {error}", case.args);
        let advice = ["run `", "use --", "; run "];
        assert!(
            !advice.iter().any(|advice| text("message").contains(advice)),
            "advice is for the hint: {error}"
        );
    }
}

/// A reason that nothing can cause would be noise, and one that no document names, unknown.
#[test]
fn every_reason_is_tested_and_documented() {
    let cases = CASES.iter().map(|case| case.reason);
    let tested: BTreeSet<_> = cases.chain(OF_THE_HOST).map(code).collect();
    let all: BTreeSet<_> = Reason::ALL.iter().map(|reason| code(*reason)).collect();
    assert_eq!(tested, all);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    for reason in all {
        assert!(page.contains(&format!("| `{reason}` |")), "{reason}");
    }
}

/// Returns the code of a reason in documents.
fn code(reason: Reason) -> String {
    reason.name().replace('-', "_")
}
