//! codesign: signatures of images.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::{LICENSE, fails, links, ok, run};
use crate::common::skip::{skip, without_program};
use crate::common::stderr;
use crate::dmg_makers::test_cache;
use crate::readers;

#[test]
fn signatures_of_images() {
    let scratch = links();
    scratch.write("src/file", "file");
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    let fails = |line: &str| fails(&scratch, &line.split(' ').collect::<Vec<_>>());
    ok("hdiutil create -srcfolder src -fs HFS+ a");
    assert!(fails("codesign --verify --deep --strict --verbose=2 a.dmg").contains("not signed"));
    let plain = fs::read(scratch.path("a.dmg")).unwrap();
    let mut signed = bandsaw::testing::udif::with_signature(&plain, 12);
    scratch.write("a.dmg", &signed);
    ok("codesign --verify --deep --strict --verbose=2 a.dmg");
    let shown = run(&scratch, &["codesign", "-d", "a.dmg"]);
    assert!(shown.status.success());
    let shown = stderr(&shown);
    for line in [
        "Identifier=org.example.disk",
        "TeamIdentifier=TEAM",
        "Signature=adhoc",
    ] {
        assert!(shown.lines().any(|found| found == line), "{line}: {shown}");
    }
    let printed = scratch.ok(&["verify", "a.dmg"]);
    assert!(
        printed.contains("right    org.example.disk, team TEAM, sha256, ad hoc"),
        "{printed}"
    );
    let report = scratch.json(&["verify", "a.dmg"]);
    assert_eq!(report["signature"]["intact"], true, "{report}");
    let facts = scratch.json(&["info", "a.dmg"]);
    let signature = &facts["storage"]["signature"];
    assert_eq!(signature["identifier"], "org.example.disk", "{facts}");
    assert_eq!(signature["team"], "TEAM", "{facts}");
    assert_eq!(signature["ticket"], false, "{facts}");
    let text = scratch.ok(&["info", "a.dmg"]);
    assert!(
        text.contains("yes, org.example.disk, team TEAM, sha256, ad hoc"),
        "{text}"
    );

    // A name in the list of resources, which no other checksum covers.
    let at = plain.len() - 700;
    let name = signed[..at]
        .windows(9)
        .rposition(|part| part == b"Apple_HFS")
        .unwrap();
    signed[name] = b'B';
    scratch.write("b.dmg", &signed);
    assert!(fails("codesign --verify b.dmg").contains("have been modified"));
    let output = scratch.run(&["verify", "b.dmg"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("WRONG"));

    // No change invalidates it unasked.
    scratch.write("list.xml", ok("hdiutil udifderez -xml a.dmg"));
    scratch.write("license.r", LICENSE);
    let signed = fs::read(scratch.path("a.dmg")).unwrap();
    for line in [
        "hdiutil udifrez -xml list.xml a.dmg",
        "Rez -a license.r -o a.dmg",
    ] {
        assert!(fails(line).contains("the image is signed"), "{line}");
        assert_eq!(fs::read(scratch.path("a.dmg")).unwrap(), signed, "{line}");
    }
    ok("codesign --remove-signature a.dmg");
    ok("hdiutil udifrez -xml list.xml a.dmg");
    assert!(fails("codesign --display a.dmg").contains("not signed"));
    assert_eq!(scratch.ok(&["cat", "a.dmg:/file"]), "file");
    assert_eq!(ok("sw_vers -productVersion"), "14.0\n");
    assert_eq!(ok("sw_vers").lines().count(), 3);
}

/// Recomputes the hashes of a code signature; changes bytes of images, and says of each whether the
/// hashes still agree; adds certificates.
///
/// Source of the structures: Apple xnu, `osfmk/kern/cs_blobs.h`.
const SIGNATURES: &str = "import hashlib, struct, subprocess, sys
def parts(data):
    at, size = struct.unpack('>QQ', data[-512:][0x128:0x138])
    blob = data[at:at + size]
    magic, _, count = struct.unpack('>III', blob[:12])
    assert magic == 0xfade0cc0
    places = [struct.unpack('>II', blob[12 + 8 * n:20 + 8 * n]) for n in range(count)]
    lengths = [struct.unpack('>I', blob[place + 4:place + 8])[0] for _, place in places]
    return at, {kind: blob[place:place + length] for (kind, place), length in zip(places, lengths)}
def agrees(data):
    at, blobs = parts(data)
    directory = blobs[0]
    magic, _, version, _, start, _, _, count, limit, size, kind, _, log = struct.unpack('>9I4B', directory[:40])
    assert (magic, size, kind) == (0xfade0c02, 32, 2)
    if version >= 0x20300:
        limit = struct.unpack('>Q', directory[56:64])[0] or limit
    page = 1 << log if log else limit
    assert limit <= at and count == -(-limit // page)
    stored = [directory[start + size * n:start + size * (n + 1)] for n in range(-6, count)]
    pieces = [data[n * page:min((n + 1) * page, limit)] for n in range(count)]
    trailer = data[-512:][:0x130] + bytes(8) + data[-512:][0x138:]
    if 2 in blobs: # requirements
        assert stored[4] == hashlib.sha256(blobs[2]).digest()
    return stored[:1] + stored[6:] == [hashlib.sha256(piece).digest() for piece in [trailer] + pieces]
def openssl(line):
    subprocess.run(['openssl'] + line.split(), check=True, capture_output=True)
def openssl_agrees(blobs):
    open('directory', 'wb').write(blobs[0])
    open('cms', 'wb').write(blobs[0x10000][8:])
    openssl('cms -verify -binary -inform DER -in cms -content directory -noverify -out verified')
image = open(sys.argv[2], 'rb').read()
if sys.argv[1] == 'verify':
    openssl_agrees(parts(image)[1])
    print(agrees(image))
elif sys.argv[1] == 'change':
    for number in range(60):
        at = len(image) * number // 60 + number
        changed = bytearray(image)
        if number:
            changed[at] ^= 1 << number % 8
        open(f'changed-{number}.dmg', 'wb').write(changed)
        try:
            print(agrees(bytes(changed)))
        except Exception:
            print(False)
else:
    at, blobs = parts(image)
    open('directory', 'wb').write(blobs[0])
    openssl('req -x509 -newkey rsa:2048 -nodes -keyout key -out certificate -subj /CN=Signer -days 2')
    openssl('cms -sign -binary -in directory -signer certificate -inkey key -outform DER -out cms')
    cms = open('cms', 'rb').read()
    blobs[0x10000] = struct.pack('>II', 0xfade0b01, 8 + len(cms)) + cms
    # A ticket of our own, in the slot of one.
    blobs[0x10002] = struct.pack('>II', 0xfade0b01, 8 + 6) + b'ticket'
    index, body = b'', b''
    for kind, blob in sorted(blobs.items()):
        index += struct.pack('>II', kind, 12 + 8 * len(blobs) + len(body))
        body += blob
    blob = struct.pack('>III', 0xfade0cc0, 12 + len(index) + len(body), len(blobs)) + index + body
    trailer = image[-512:][:0x130] + struct.pack('>Q', len(blob)) + image[-512:][0x138:]
    signed = image[:at] + blob + trailer
    assert agrees(signed)
    open(sys.argv[3], 'wb').write(signed)
    openssl_agrees(parts(signed)[1])
";

#[test]
fn hashes_of_signatures_agree_with_a_script() {
    const TEST: &str = "hashes_of_signatures_agree_with_a_script";
    let scratch = links();
    let python = |args: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", SIGNATURES]).args(args);
        command.current_dir(scratch.path("")).output()
    };
    scratch.write("src/file", "file".repeat(10_000));
    ok(
        &scratch,
        &["hdiutil", "create", "-srcfolder", "src", "-fs", "HFS+", "a"],
    );
    let plain = fs::read(scratch.path("a.dmg")).unwrap();
    for log in [0, 9, 12] {
        let signed = bandsaw::testing::udif::with_signature(&plain, log);
        scratch.write("signed.dmg", signed);
        let Ok(output) = python(&["change", "signed.dmg"]) else {
            return without_program(TEST, "no python3");
        };
        assert!(output.status.success(), "{}", stderr(&output));
        let verdicts = String::from_utf8(output.stdout).unwrap();
        assert!(verdicts.starts_with("True\nFalse\n"), "{verdicts}");
        for (number, verdict) in verdicts.lines().enumerate() {
            let image = format!("changed-{number}.dmg");
            let verified = run(&scratch, &["codesign", "--verify", &image]);
            let agrees = if verified.status.success() {
                "True"
            } else {
                "False"
            };
            assert_eq!(agrees, verdict, "log {log}, {image}: {}", stderr(&verified));
        }
    }

    // With certificates, that OpenSSL accepts, and a ticket.
    if Command::new("openssl").arg("version").output().is_err() {
        return without_program(TEST, "no openssl");
    }
    let output = python(&["certify", "signed.dmg", "certified.dmg"]).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    ok(&scratch, &["codesign", "--verify", "certified.dmg"]);
    let shown = run(&scratch, &["codesign", "-d", "certified.dmg"]);
    let shown = stderr(&shown);
    assert!(shown.contains("Notarization Ticket=stapled"), "{shown}");
    assert!(!shown.contains("adhoc"), "{shown}");
    let facts = scratch.json(&["info", "certified.dmg"]);
    let signature = &facts["storage"]["signature"];
    assert_eq!(signature["certified"], true, "{facts}");
    assert_eq!(signature["ticket"], true, "{facts}");
    let printed = scratch.ok(&["verify", "certified.dmg"]);
    assert!(
        printed.contains("certificates not verified, with a ticket"),
        "{printed}"
    );
}

/// The program that signs images without a Mac, with a certificate of its own.
#[test]
fn rcodesign_signs_an_image() {
    const TEST: &str = "rcodesign_signs_an_image";
    let scratch = links();
    let own = test_cache().map(|cache| cache.join("cargo/bin/rcodesign"));
    let program = own
        .filter(|path| path.is_file())
        .unwrap_or_else(|| "rcodesign".into());
    let rcodesign = |line: &str| {
        let mut command = Command::new(&program);
        command
            .args(line.split(' '))
            .current_dir(scratch.path(""))
            .output()
    };
    let Ok(pem) = rcodesign("generate-self-signed-certificate --person-name Somebody") else {
        return skip(TEST, "no rcodesign");
    };
    scratch.write("signer.pem", pem.stdout);
    scratch.write("src/file", "file".repeat(10_000));
    symlink("file", scratch.path("src/link")).unwrap();
    for (fs, format) in [("HFS+", "UDZO"), ("HFS+", "UDBZ"), ("APFS", "ULMO")] {
        let line = format!("create -srcfolder src -fs {fs} -format {format} -volname My -ov a");
        let words: Vec<_> = line.split(' ').collect();
        ok(&scratch, &[&["hdiutil"], &words[..]].concat());
        let before = readers::tree_by_all(&scratch, TEST, "a.dmg", "My");
        let sign = rcodesign("sign --timestamp-url none --pem-source signer.pem a.dmg").unwrap();
        assert!(sign.status.success(), "{format}: {}", stderr(&sign));
        let shown = rcodesign("print-signature-info a.dmg").unwrap();
        assert!(shown.status.success(), "{format}: {}", stderr(&shown));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("Somebody"));

        ok(&scratch, &["codesign", "--verify", "a.dmg"]);
        assert_eq!(
            scratch.json(&["verify", "a.dmg"])["signature"]["intact"],
            true
        );
        let facts = scratch.json(&["info", "a.dmg"]);
        assert_eq!(facts["storage"]["signature"]["certified"], true, "{facts}");
        assert_eq!(
            readers::tree_by_all(&scratch, TEST, "a.dmg", "My"),
            before,
            "{format}"
        );
        let mut python = Command::new("python3");
        python.args(["-c", SIGNATURES, "verify", "a.dmg"]);
        let agrees = python.current_dir(scratch.path("")).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&agrees.stdout),
            "True\n",
            "{format}: {}",
            stderr(&agrees)
        );
        // It finds a change as well.
        let mut bytes = fs::read(scratch.path("a.dmg")).unwrap();
        bytes[100] ^= 1;
        scratch.write("changed.dmg", bytes);
        let changed = fails(&scratch, &["codesign", "--verify", "changed.dmg"]);
        assert!(changed.contains("have been modified"), "{changed}");
        ok(&scratch, &["codesign", "--remove-signature", "a.dmg"]);
        scratch.ok(&["verify", "a.dmg"]);
    }
}
