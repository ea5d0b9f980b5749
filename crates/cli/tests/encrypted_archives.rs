//! Encrypted archives (AEA): every reading verb opens the image in one, none changes it, and nothing is
//! returned that is not authentic. Archives of all sorts are made by python-aea.

use std::fs;
use std::process::Command;

use bandsaw::crypt::aea::Profile;
use bandsaw::crypt::aea::fixture::{ArchiveFixture, KEY, PASSPHRASE};

use crate::common::skip::skip;
use crate::common::{Scratch, peer_python, stderr};

const OPENED: [&str; 2] = ["--aea-key", "key"];

fn archive(profile: Profile) -> ArchiveFixture {
    ArchiveFixture {
        profile,
        segment_size: 256 << 10,
        ..ArchiveFixture::default()
    }
}

/// A folder with a raw and a compressed image, and both in archives.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "plain.img", "--fs", "hfs+", "--from", "src"]);
    scratch.ok(&["convert", "plain.img", "plain.dmg", "--format", "udzo"]);
    scratch.write("key", KEY.map(|byte| format!("{byte:02x}")).concat() + "\n");
    scratch.write("wrong", [7; 32]);
    scratch.write("pass", PASSPHRASE);
    for (plain, name) in [("plain.img", "S.img.aea"), ("plain.dmg", "Z.dmg.aea")] {
        let bytes = fs::read(scratch.path(plain)).unwrap();
        scratch.write(name, archive(Profile::Symmetric).of(&bytes));
    }
    scratch
}

fn with<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    line.split(' ').chain(more.iter().copied()).collect()
}

/// A line for each verb that reads.
const READING: &[&str] = &[
    "info S.img.aea",
    "ls S.img.aea",
    "tree Z.dmg.aea",
    "cat S.img.aea:/hello.txt",
    "stat Z.dmg.aea:/hello.txt",
    "extract Z.dmg.aea out",
    "cp Z.dmg.aea:/hello.txt hello.txt",
    "advise S.img.aea",
    "report S.img.aea -o report.html",
    "convert --decrypt S.img.aea converted.sparsebundle",
    "segment Z.dmg.aea -o parts.dmg --count 2 --decrypt",
    "resources list Z.dmg.aea",
    "resources extract Z.dmg.aea -o resources.xml",
    "verify S.img.aea",
    "verify Z.dmg.aea",
    "checksum Z.dmg.aea",
    "check S.img.aea",
    "check Z.dmg.aea",
    "diagnose S.img.aea",
    "stack create S.img.aea layer.asif",
    "stack flatten --decrypt S.img.aea layer.asif flat.img",
];

/// A line for each verb that changes an image.
const CHANGING: &[&str] = &[
    "put --from key S.img.aea:/put",
    "mkdir S.img.aea:/folder",
    "rm S.img.aea:/hello.txt",
    "trim S.img.aea",
    "compact --battery-allowed S.img.aea",
    "resize S.img.aea --size 40m",
    "format --erase S.img.aea",
    "repair S.img.aea",
    "resources add Z.dmg.aea --license key",
    "passwd --new-passfile pass S.img.aea",
    "erase-keys --yes --yes S.img.aea",
];

#[test]
fn every_reading_verb_opens_an_archive_with_its_key_only() {
    let scratch = scratch();
    let names = || scratch.names();
    for line in READING {
        let before = names();
        let output = scratch.run(&with(line, &[]));
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(7), "{line}: {said}");
        assert!(
            said.contains("key") && said.contains("--aea-key"),
            "{line}: {said}"
        );
        let wrong = scratch.run(&with(line, &["--aea-key", "wrong"]));
        let said = stderr(&wrong) + &String::from_utf8_lossy(&wrong.stdout);
        assert_eq!(wrong.status.code(), Some(7), "{line}: {said}");
        assert!(said.contains("wrong"), "{line}: {said}");
        assert_eq!(names(), before, "{line}: makes something without the key");
        scratch.ok(&with(line, &OPENED));
    }
    assert_eq!(
        scratch.ok(&with("cat S.img.aea:/hello.txt", &OPENED)),
        "hello, world\n"
    );
    let big = fs::read(scratch.path("src/big.bin")).unwrap();
    assert!(fs::read(scratch.path("out/big.bin")).unwrap() == big);
    let image = fs::read(scratch.path("plain.img")).unwrap();
    scratch.ok(&with("convert --decrypt S.img.aea again.img", &OPENED));
    assert!(fs::read(scratch.path("again.img")).unwrap() == image);
    let flat = scratch.ok(&["cat", "flat.img:/hello.txt"]);
    assert_eq!(flat, "hello, world\n");
}

#[test]
fn no_verb_changes_an_archive() {
    let scratch = scratch();
    let bytes = || ["S.img.aea", "Z.dmg.aea"].map(|name| fs::read(scratch.path(name)).unwrap());
    let before = bytes();
    for line in CHANGING {
        let opens = !line.starts_with("erase-keys");
        let output = scratch.run(&with(line, if opens { &OPENED } else { &[] }));
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{line}: {said}");
        assert!(
            ["archive", "--aea-key", "there is nothing to repair"]
                .iter()
                .any(|words| said.contains(words)),
            "{line}: {said}"
        );
        assert!(bytes() == before, "{line}: changes the archive");
    }
}

#[test]
fn a_plain_copy_has_to_be_asked_for() {
    let scratch = scratch();
    for target in ["out.img", "out.dmg", "-"] {
        let line = format!("convert Z.dmg.aea {target} --format udrw");
        let output = scratch.run(&with(&line, &OPENED));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("--decrypt"), "{}", stderr(&output));
        assert!(output.stdout.is_empty() && !scratch.path(target).exists());
    }
    let raw = scratch.run(&with(
        "convert --decrypt Z.dmg.aea - --format udrw",
        &OPENED,
    ));
    assert!(raw.stdout == fs::read(scratch.path("plain.img")).unwrap());
    scratch.write("new", "another");
    let line = "convert --re-encrypt Z.dmg.aea new.img --iterations 150000 --new-passfile new";
    scratch.ok(&with(line, &OPENED));
    assert_eq!(
        scratch.ok(&["cat", "new.img:/hello.txt", "--passfile", "new"]),
        "hello, world\n"
    );
}

#[test]
fn info_without_a_key_shows_what_is_readable() {
    let scratch = scratch();
    let output = scratch.run(&["info", "Z.dmg.aea", "--json"]);
    assert_eq!(output.status.code(), Some(7));
    let locked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let archive = &locked["archive"];
    assert_eq!(
        (
            &archive["profile"],
            &archive["locked"],
            &archive["metadata"][0]
        ),
        (&1.into(), &true.into(), &"key".into())
    );
    let open = scratch.json(&with("info Z.dmg.aea", &OPENED));
    let archive = &open["archive"];
    assert_eq!(
        (
            &archive["compression"],
            &archive["segment_size"],
            &archive["signature"]
        ),
        (&"zlib".into(), &(256 << 10).into(), &"none".into()),
        "{open}"
    );
    assert_eq!(open["format"], "UDZO");
    let text = scratch.ok(&with("info Z.dmg.aea", &OPENED));
    assert!(
        text.contains("AEA profile 1") && text.contains("metadata key"),
        "{text}"
    );
    let told = scratch.json(&["isencrypted", "Z.dmg.aea"]);
    assert_eq!(told["encrypted"], true);
}

#[test]
fn a_passphrase_opens_an_archive() {
    let scratch = scratch();
    let image = fs::read(scratch.path("plain.img")).unwrap();
    scratch.write("P.aea", archive(Profile::Passphrase).of(&image));
    let error = scratch.fails(7, &["ls", "P.aea"]);
    assert!(error.contains("a passphrase is required"), "{error}");
    let error = scratch.fails(7, &["ls", "P.aea", "--passfile", "key"]);
    assert!(error.contains("wrong passphrase"), "{error}");
    let cat = scratch.ok(&["cat", "P.aea:/hello.txt", "--passfile", "pass"]);
    assert_eq!(cat, "hello, world\n");
}

#[test]
fn an_unverified_signature_is_reported() {
    let scratch = scratch();
    let image = fs::read(scratch.path("plain.img")).unwrap();
    scratch.write("signed.aea", archive(Profile::Signed).of(&image));
    let output = scratch.run(&["cat", "signed.aea:/hello.txt"]);
    assert_eq!(output.stdout, b"hello, world\n");
    assert!(stderr(&output).contains("the signature was not verified"));
    let info = scratch.json(&["info", "signed.aea"]);
    assert_eq!(info["archive"]["signature"], "unverified");
    assert!(
        info["warnings"].to_string().contains("not verified"),
        "{info}"
    );
    let check = scratch.run(&["check", "signed.aea", "--json"]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("not verified"), "{said}");
    let verified = scratch.json(&["verify", "signed.aea"]);
    assert_eq!(verified["archive"]["signature"], "unverified");
    // Not encrypted: a copy needs no consent.
    scratch.ok(&["convert", "signed.aea", "copy.img"]);
    let bytes = archive(Profile::SymmetricSigned).of(&image);
    scratch.write("both.aea", bytes);
    let error = scratch.fails(7, &with("ls both.aea", &OPENED));
    assert!(
        error.contains("public key") && error.contains("--aea-signer"),
        "{error}"
    );
}

#[test]
fn damage_is_found_and_the_rest_is_read() {
    let scratch = scratch();
    let image = fs::read(scratch.path("plain.img")).unwrap();
    let mut bytes = ArchiveFixture::default().of(&image);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    scratch.write("bad.aea", &bytes);
    for verb in ["verify", "check"] {
        let output = scratch.run(&with(&format!("{verb} bad.aea"), &OPENED));
        assert_eq!(output.status.code(), Some(5), "{verb}: {}", stderr(&output));
    }
    let report = scratch.run(&with("verify bad.aea --json", &OPENED));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["archive"]["damaged_segments"], 1, "{report}");
    let output = scratch.run(&with("cat bad.aea:/hello.txt", &OPENED));
    assert!(output.stdout == b"hello, world\n" || output.stdout.is_empty());
    // Cut short.
    scratch.write("cut.aea", &bytes[..middle]);
    let error = scratch.fails(5, &with("ls cut.aea", &OPENED));
    assert!(error.contains("truncated"), "{error}");
    assert!(!scratch.path("out.img").exists());
    scratch.fails(5, &with("convert --decrypt cut.aea out.img", &OPENED));
    assert!(!scratch.path("out.img").exists());
}

#[test]
fn keys_are_files_and_a_path_is_never_a_key() {
    let scratch = scratch();
    let as_path = "0".repeat(32);
    let error = scratch.fails(3, &["ls", "S.img.aea", "--aea-key", &as_path]);
    assert!(error.contains(&as_path), "{error}");
    scratch.write("short", "abcd");
    let error = scratch.run(&["ls", "S.img.aea", "--aea-key", "short"]);
    assert!(
        stderr(&error).contains("64 hexadecimal digits"),
        "{}",
        stderr(&error)
    );
    scratch.write("raw", KEY);
    scratch.ok(&["ls", "S.img.aea", "--aea-key", "raw"]);
}

#[test]
fn archives_of_other_contents_are_named() {
    let scratch = scratch();
    for (contents, what) in [
        (&b"xar!\0\x1c"[..], "a xar archive"),
        (b"just text", "unknown format"),
    ] {
        let contents = [contents, &[b'x'; 2000]].concat();
        scratch.write("other.aea", archive(Profile::Symmetric).of(&contents));
        let error = scratch.run(&with("ls other.aea", &OPENED));
        assert_eq!(error.status.code(), Some(6));
        assert!(stderr(&error).contains(what), "{}", stderr(&error));
    }
}

/// Makes archives of the file in its second argument: each kind of key, compression and checksum that
/// python-aea can write. Judges one of ours first.
const JUDGE: &str = r#"
import sys, aea
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec

folder, plain, ours = sys.argv[1:4]
data = open(plain, "rb").read()
key = bytes([0x4B]) * 32
assert aea.decode(open(ours, "rb").read(), symmetric_key=key) == data, "ours"
signer = ec.generate_private_key(ec.SECP256R1())
private = signer.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
public = signer.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
open(folder + "/signer.pem", "wb").write(public)
owner = ec.generate_private_key(ec.SECP256R1())
recipient = owner.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
for name, form in [("owner.pem", s.PrivateFormat.PKCS8), ("owner-sec1.pem", s.PrivateFormat.TraditionalOpenSSL)]:
    open(f"{folder}/{name}", "wb").write(owner.private_bytes(s.Encoding.PEM, form, s.NoEncryption()))
C, H = aea.CompressionAlgorithm, aea.ChecksumAlgorithm

def make(name, **options):
    options.setdefault("segment_size", 0x4000)
    options.setdefault("segments_per_cluster", 32)
    open(f"{folder}/{name}.aea", "wb").write(aea.encode(data, **options))

make("key-lzfse", symmetric_key=key, auth_data=b"\x0d\0\0\0key\0value")
make("key-none", symmetric_key=key, compression_algorithm=C.NONE, checksum_algorithm=H.NONE)
make("key-lz4", symmetric_key=key, compression_algorithm=C.LZ4)
make("key-lzma", symmetric_key=key, compression_algorithm=C.LZMA, segment_size=0x40000)
make("key-zlib", symmetric_key=key, compression_algorithm=C.ZLIB, checksum_algorithm=H.MURMUR)
make("signed", signature_priv=private)
make("both", symmetric_key=key, signature_priv=private)
make("passphrase", password="correct horse")
make("stronger", password="correct horse", scrypt_strength=1)
make("recipient", recipient_pub=recipient)
make("recipient-sec1", recipient_pub=recipient, compression_algorithm=C.ZLIB)
make("recipient-signed", recipient_pub=recipient, signature_priv=private)
"#;

#[test]
fn archives_of_python_aea_are_read() {
    let test = "archives_of_python_aea_are_read";
    let Some(python) = peer_python("aea.murmur") else {
        return skip(
            test,
            "python-aea is not installed: scripts/install-test-tools",
        );
    };
    let scratch = Scratch::new();
    scratch.write(
        "src/text",
        "some text that compresses well\n".repeat(20_000),
    );
    scratch.write("src/hello.txt", "hello, world\n");
    scratch.ok(&["create", "plain.img", "--fs", "hfs+", "--from", "src"]);
    let image = fs::read(scratch.path("plain.img")).unwrap();
    scratch.write("key", KEY);
    scratch.write("pass", PASSPHRASE);
    scratch.write("ours.aea", ArchiveFixture::default().of(&image));
    let folder = scratch.path("");
    let made = Command::new(python)
        .args(["-c", JUDGE])
        .args([
            &folder,
            &scratch.path("plain.img"),
            &scratch.path("ours.aea"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let signer = ["--aea-signer", "signer.pem"];
    let mut cases = vec![
        ("key-lzfse", &["--aea-key", "key"][..]),
        ("key-none", &["--aea-key", "key"]),
        ("key-lz4", &["--aea-key", "key"]),
        ("key-lzma", &["--aea-key", "key"]),
        ("key-zlib", &["--aea-key", "key"]),
        ("signed", &signer),
        ("both", &["--aea-key", "key", "--aea-signer", "signer.pem"]),
        ("passphrase", &["--passfile", "pass"]),
        ("stronger", &["--passfile", "pass"]),
    ];
    if cfg!(feature = "recipients") {
        cases.extend([
            ("recipient", &["--aea-private-key", "owner.pem"][..]),
            ("recipient-sec1", &["--aea-private-key", "owner-sec1.pem"]),
            (
                "recipient-signed",
                &[
                    "--aea-private-key",
                    "owner.pem",
                    "--aea-signer",
                    "signer.pem",
                ],
            ),
        ]);
    }
    for (name, keys) in cases {
        let file = format!("{name}.aea");
        let out = format!("{name}.img");
        let output = scratch.run(
            &[
                &["convert", &file, &out][..],
                keys,
                if name == "signed" {
                    &[]
                } else {
                    &["--decrypt"]
                },
            ]
            .concat(),
        );
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        assert!(fs::read(scratch.path(&out)).unwrap() == image, "{name}");
        let verified = scratch.json(&[&["verify", &file][..], keys].concat());
        let signature = match name {
            "recipient-signed" => "verified",
            "signed" | "both" if cfg!(feature = "signatures") => "verified",
            "signed" | "both" => "unverified",
            _ => "none",
        };
        assert_eq!(
            verified["archive"]["signature"], signature,
            "{name}: {verified}"
        );
        assert_eq!(verified["intact"], true, "{name}");
        let is_clean = stderr(&output).is_empty();
        assert!(
            is_clean || signature == "unverified",
            "{name}: {}",
            stderr(&output)
        );
    }
    // A changed signature is damage.
    let mut signed = fs::read(scratch.path("signed.aea")).unwrap();
    signed[20] ^= 1;
    scratch.write("changed.aea", signed);
    if cfg!(feature = "signatures") {
        let error = scratch.fails(5, &with("ls changed.aea", &signer));
        assert!(error.contains("signature does not match"), "{error}");
    }
    let error = scratch.fails(7, &["ls", "recipient.aea"]);
    assert!(error.contains("--aea-private-key"), "{error}");
    let other = ["--aea-private-key", "key"];
    let error = scratch.run(&with("ls recipient.aea", &other));
    let wrong = match cfg!(feature = "recipients") {
        true => "wrong private key",
        false => "feature `recipients`",
    };
    assert!(stderr(&error).contains(wrong), "{}", stderr(&error));
}

/// An `.ipsw` with an archive and a plain image as they are, and a compressed one.
fn firmware(scratch: &Scratch) -> Vec<u8> {
    use zip::CompressionMethod::{Deflated, Stored};
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, file, method) in [
        ("Firmware/big.bin", "src/big.bin", Stored),
        ("Z.dmg.aea", "Z.dmg.aea", Stored),
        ("Firmware/plain.img", "plain.img", Stored),
        ("small.dmg", "plain.img", Deflated),
    ] {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(name, options).unwrap();
        let bytes = fs::read(scratch.path(file)).unwrap();
        std::io::Write::write_all(&mut zip, &bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn an_image_in_a_firmware_file_is_read_in_place() {
    let scratch = scratch();
    let bytes = firmware(&scratch);
    scratch.write("x.ipsw", &bytes);
    fs::create_dir(scratch.path("folder.ipsw")).unwrap();
    fs::copy(scratch.path("plain.img"), scratch.path("folder.ipsw/a.img")).unwrap();
    let big = fs::read(scratch.path("src/big.bin")).unwrap();
    for (number, (image, key)) in [
        ("x.ipsw/Firmware/plain.img", &[][..]),
        ("x.ipsw/Z.dmg.aea", &OPENED[..]),
        ("folder.ipsw/a.img", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let hello = scratch.ok(&with(&format!("cat {image}:/hello.txt"), key));
        assert_eq!(hello, "hello, world\n", "{image}");
        for line in [
            "ls", "tree", "info", "check", "checksum", "diagnose", "advise",
        ] {
            scratch.ok(&with(&format!("{line} {image}"), key));
        }
        let out = format!("out{number}");
        scratch.ok(&with(&format!("extract {image} {out}"), key));
        assert!(fs::read(scratch.path(&format!("{out}/big.bin"))).unwrap() == big);
        let copy = format!("copy{number}.sparsebundle");
        let decrypt = if key.is_empty() { "" } else { "--decrypt " };
        scratch.ok(&with(&format!("convert {decrypt}{image} {copy}"), key));
        assert_eq!(scratch.ok(&["cat", &format!("{copy}:/hello.txt")]), hello);
    }
    let error = scratch.fails(3, &["ls", "x.ipsw/plain.img"]);
    assert!(error.contains("Firmware/plain.img, Z.dmg.aea"), "{error}");
    let error = scratch.fails(6, &["ls", "x.ipsw/small.dmg"]);
    assert!(error.contains("compressed in the archive"), "{error}");
    for line in CHANGING.iter().filter(|line| line.contains("S.img.aea")) {
        let line = line.replace("S.img.aea", "x.ipsw/Firmware/plain.img");
        let output = scratch.run(&with(&line, &[]));
        assert!(!output.status.success(), "{line}");
        assert!(fs::read(scratch.path("x.ipsw")).unwrap() == bytes, "{line}");
    }
}

#[cfg(feature = "s3")]
#[test]
fn an_image_in_a_firmware_file_elsewhere_is_read_in_place() {
    use crate::common::server::{Conduct, Server};

    let scratch = scratch();
    let server = Server::start(firmware(&scratch), Conduct::Ranges);
    let image = server.url("x.ipsw/Z.dmg.aea");
    let cat = format!("cat {image}:/hello.txt");
    assert_eq!(scratch.ok(&with(&cat, &OPENED)), "hello, world\n");
    let image = server.url("x.ipsw/Firmware/plain.img");
    assert_eq!(
        scratch.ok(&["cat", &format!("{image}:/hello.txt")]),
        "hello, world\n"
    );
    let error = scratch.fails(3, &["ls", &server.url("x.ipsw/other.dmg")]);
    assert!(error.contains("Z.dmg.aea"), "{error}");
}

#[cfg(feature = "s3")]
#[test]
fn an_archive_elsewhere_is_read_in_place() {
    use crate::common::server::{Conduct, Server};

    let scratch = scratch();
    let bytes = fs::read(scratch.path("Z.dmg.aea")).unwrap();
    let server = Server::start(bytes, Conduct::Ranges);
    let image = server.url("Z.dmg.aea");
    let cat = format!("cat {image}:/hello.txt");
    assert_eq!(scratch.ok(&with(&cat, &OPENED)), "hello, world\n");
    let error = scratch.fails(7, &with(&cat, &[]));
    assert!(error.contains("--aea-key"), "{error}");
}
