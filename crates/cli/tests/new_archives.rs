//! New encrypted archives (AEA): each key, compression and format of the image in them, judged by
//! python-aea; and keys of system software.

use std::fs;
use std::process::Command;

use bandsaw::crypt::aea::fixture::{KEY, PASSPHRASE};

use crate::common::skip::skip;
use crate::common::{Scratch, peer_python, stderr};

/// A pair of keys of RFC 5903, section 8.1, and another private key.
const PRIVATE: &str = "c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433";
const PUBLIC: &str = "04dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c37725811805271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3";
const OTHER: &str = "c6ef9c5d78ae012a011164acb397ce2088685d8f06bf9be0b283ab46476bee53";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "plain.img", "--fs", "hfs+", "--from", "src"]);
    scratch.write("key", KEY);
    scratch.write("pass", PASSPHRASE);
    scratch.write("private", PRIVATE);
    scratch.write("public", PUBLIC);
    scratch.write("other", OTHER);
    scratch
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn archives_are_made_with_each_key() {
    let scratch = scratch();
    let image = fs::read(scratch.path("plain.img")).unwrap();
    let mut cases = vec![
        ("--new-aea-key key", "--aea-key key", 1),
        ("--encrypt --new-passfile pass", "--passfile pass", 5),
        ("--new-passfile pass", "--passfile pass", 5),
    ];
    if cfg!(feature = "recipients") {
        cases.extend([
            ("--aea-recipient public", "--aea-private-key private", 3),
            ("--aea-signing-key private", "--aea-signer public", 0),
            (
                "--new-aea-key key --aea-signing-key private",
                "--aea-key key --aea-signer public",
                2,
            ),
            (
                "--aea-recipient public --aea-signing-key private",
                "--aea-private-key private --aea-signer public",
                4,
            ),
        ]);
    }
    for (make, open, profile) in cases {
        scratch.ok(&words(&format!(
            "convert plain.img new.img.aea --overwrite {make}"
        )));
        let verified = scratch.json(&words(&format!("verify new.img.aea {open}")));
        assert_eq!(verified["intact"], true, "{make}: {verified}");
        let info = scratch.json(&words(&format!("info new.img.aea {open}")));
        assert_eq!(info["archive"]["profile"], profile, "{make}");
        let cat = format!("cat new.img.aea:/hello.txt {open}");
        assert_eq!(scratch.ok(&words(&cat)), "hello, world\n", "{make}");
        let decrypt = if profile == 0 { "" } else { " --decrypt" };
        let line = format!("convert new.img.aea again.img --overwrite {open}{decrypt}");
        scratch.ok(&words(&line));
        assert!(
            fs::read(scratch.path("again.img")).unwrap() == image,
            "{make}"
        );
    }
    let names = scratch.names();
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}

#[test]
fn the_image_in_an_archive_has_a_format_and_a_compression() {
    let scratch = scratch();
    for (options, format, compression) in [
        ("", "UDRW", "lzfse"),
        (" --aea-compression none", "UDRW", "none"),
        (" --aea-compression lz4", "UDRW", "lz4"),
        (" --aea-compression lzma", "UDRW", "lzma"),
        (" --format udzo", "UDZO", "none"),
        (" --format udro", "UDRO", "lzfse"),
        (" --format ulfo --aea-compression zlib", "ULFO", "zlib"),
    ] {
        let line = format!("convert plain.img x.dmg.aea --overwrite --new-aea-key key{options}");
        let made = scratch.json(&words(&line));
        assert_eq!(made["format"], format, "{made}");
        assert_eq!(made["archive"]["compression"], compression, "{made}");
        let size = fs::metadata(scratch.path("x.dmg.aea")).unwrap().len();
        assert_eq!(made["archive_size"], size);
        let info = scratch.json(&words("info x.dmg.aea --aea-key key"));
        assert_eq!(info["format"], format, "{info}");
        let cat = scratch.ok(&words("cat x.dmg.aea:/hello.txt --aea-key key"));
        assert_eq!(cat, "hello, world\n", "{options}");
        scratch.ok(&words("verify x.dmg.aea --aea-key key"));
    }
    let error = scratch.fails(
        6,
        &words("convert plain.img y.dmg.aea --new-aea-key key --format udsb"),
    );
    assert!(error.contains("not written in order"), "{error}");
    assert!(!scratch.path("y.dmg.aea").exists());
}

#[test]
fn an_archive_gets_new_keys_without_plain_text_in_a_file() {
    let scratch = scratch();
    scratch.ok(&words("convert plain.img a.img.aea --new-aea-key key"));
    let before = fs::read(scratch.path("a.img.aea")).unwrap();
    let error = scratch.fails(2, &words("convert a.img.aea b.img.aea --aea-key key"));
    assert!(error.contains("needs a key"), "{error}");
    scratch.ok(&words(
        "convert a.img.aea b.img.aea --aea-key key --re-encrypt --new-passfile pass",
    ));
    let cat = scratch.ok(&words("cat b.img.aea:/hello.txt --passfile pass"));
    assert_eq!(cat, "hello, world\n");
    let error = scratch.fails(
        4,
        &words("convert a.img.aea a.img.aea --aea-key key --new-aea-key key"),
    );
    assert!(error.contains("the same file"), "{error}");
    assert!(fs::read(scratch.path("a.img.aea")).unwrap() == before);
    // Of the passphrase's archive, the old key opens nothing.
    let error = scratch.fails(7, &words("ls b.img.aea --aea-key key"));
    assert!(error.contains("a passphrase is required"), "{error}");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(scratch.path("b.img.aea"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);
    // Only signed, an encrypted source would be readable by everybody.
    if cfg!(feature = "recipients") {
        let line = "convert a.img.aea c.img.aea --aea-key key --aea-signing-key private";
        let error = scratch.fails(2, &words(line));
        assert!(error.contains("--decrypt"), "{error}");
        scratch.ok(&words(&format!("{line} --decrypt")));
    }
}

#[test]
fn options_that_an_archive_cannot_have_are_refused() {
    let scratch = scratch();
    for (line, message) in [
        ("convert plain.img x.aea", "--new-aea-key FILE"),
        ("convert plain.img x.img --new-aea-key key", "ends in .aea"),
        ("convert plain.img - --new-aea-key key", "standard output"),
        (
            "convert plain.img x.aea --encrypt aes-128 --new-passfile pass",
            "AES-256 only",
        ),
        (
            "convert plain.img x.aea --encrypt --cipher-block 4096 --new-passfile pass",
            "no such property",
        ),
        (
            "convert plain.img x.aea --resume --new-aea-key key",
            "cannot be resumed",
        ),
        (
            "convert plain.img x.aea --re-encrypt --new-aea-key key",
            "the source is not encrypted",
        ),
        (
            "convert plain.img x.aea --aea-recipient public --new-aea-key key",
            "cannot be used with",
        ),
    ] {
        let error = scratch.fails(2, &words(line));
        assert!(error.contains(message), "{line}: {error}");
    }
    let error = scratch.run(&words("convert plain.img x.aea --new-aea-key pass"));
    assert!(stderr(&error).contains("not a key"), "{}", stderr(&error));
    if cfg!(feature = "recipients") {
        let error = scratch.run(&words("convert plain.img x.aea --aea-recipient private"));
        assert!(
            stderr(&error).contains("not a public key"),
            "{}",
            stderr(&error)
        );
    }
    assert!(!scratch.path("x.aea").exists() && !scratch.path("x.img").exists());
    // An existing file stays.
    scratch.write("x.aea", "precious");
    let error = scratch.run(&words("convert plain.img x.aea --new-aea-key key"));
    assert!(stderr(&error).contains("--overwrite"), "{}", stderr(&error));
    assert_eq!(fs::read(scratch.path("x.aea")).unwrap(), b"precious");
}

/// Decodes archives: the name of the file, and how it is opened.
const JUDGE: &str = r#"
import sys, aea
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec

folder, plain = sys.argv[1:3]
data = open(plain, "rb").read()
private = ec.derive_private_key(int(open(folder + "/private").read(), 16), ec.SECP256R1())
public = private.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
private = private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
keys = {"key": dict(symmetric_key=bytes([0x4B]) * 32), "pass": dict(password="correct horse"),
        "private": dict(recipient_priv=private), "signer": dict(signature_pub=public)}
for name in sys.argv[3:]:
    options = {}
    for key in name.split("-")[0].split("+"):
        options |= keys[key]
    decoded = aea.decode(open(f"{folder}/{name}.aea", "rb").read(), **options)
    assert decoded == data, name
"#;

#[test]
fn new_archives_are_read_by_python_aea() {
    let test = "new_archives_are_read_by_python_aea";
    let Some(python) = peer_python("aea.murmur") else {
        return skip(
            test,
            "python-aea is not installed: scripts/install-test-tools",
        );
    };
    let scratch = scratch();
    let mut cases = vec![
        ("key-lzfse", "--new-aea-key key"),
        ("key-zlib", "--new-aea-key key --aea-compression zlib"),
        ("key-lz4", "--new-aea-key key --aea-compression lz4"),
        ("key-lzma", "--new-aea-key key --aea-compression lzma"),
        ("key-none", "--new-aea-key key --aea-compression none"),
        ("pass", "--new-passfile pass"),
    ];
    if cfg!(feature = "recipients") {
        cases.extend([
            ("private", "--aea-recipient public"),
            (
                "private+signer",
                "--aea-recipient public --aea-signing-key private",
            ),
            ("signer", "--aea-signing-key private"),
            ("key+signer", "--new-aea-key key --aea-signing-key private"),
        ]);
    }
    for (name, options) in &cases {
        let line = format!("convert plain.img {name}.aea --format udrw {options}");
        scratch.ok(&words(&line));
    }
    let judged = Command::new(python)
        .args(["-c", JUDGE])
        .args([&scratch.path(""), &scratch.path("plain.img")])
        .args(cases.iter().map(|(name, _)| name))
        .output()
        .unwrap();
    assert!(judged.status.success(), "{}", stderr(&judged));
}

/// Makes archives as in system software, and serves the private key over https until it is killed.
#[cfg(all(feature = "recipients", feature = "s3"))]
const APPLE: &str = r#"
import base64, datetime, http.server, ipaddress, json, ssl, struct, sys, aea
from cryptography import x509
from cryptography.hazmat.primitives import hashes, hpke, serialization as s
from cryptography.hazmat.primitives.asymmetric import ec

folder, plain = sys.argv[1:3]
pem = lambda key: key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
private = ec.generate_private_key(ec.SECP256R1())
open(folder + "/apple.pem", "wb").write(pem(private))

def certificate(name, key, issuer, issuer_key, is_ca):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(issuer or name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    made = made.add_extension(x509.BasicConstraints(is_ca, None), True)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return made.add_extension(x509.SubjectAlternativeName(hosts), False).sign(issuer_key, hashes.SHA256())

ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
ca = certificate("tests", ca_key, None, ca_key, True)
own = certificate("host", key, ca.subject, ca_key, False)
open(folder + "/ca.pem", "wb").write(ca.public_bytes(s.Encoding.PEM))
open(folder + "/own.pem", "wb").write(own.public_bytes(s.Encoding.PEM) + pem(key))

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = {"/key.pem": pem(private), "/large": bytes(100_000), "/text": b"no key"}.get(self.path, b"")
        to = {"/away": f"https://localhost:{port}/key.pem", "/near": "/key.pem"}.get(self.path)
        self.send_response(302 if to else 200 if body else 404)
        if to:
            self.send_header("Location", to)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
port = server.server_port
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/own.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)

def entry(name, value):
    pair = name.encode() + b"\0" + value
    return struct.pack("<I", len(pair) + 4) + pair

suite = hpke.Suite(hpke.KEM.P256, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
for name in ["key.pem", "near", "away", "large", "text", "absent", "http"]:
    symmetric = bytes([0x4B]) * 32
    sealed = suite.encrypt(symmetric, private.public_key())
    response = {"enc-request": base64.b64encode(sealed[:65]).decode(), "wrapped-key": base64.b64encode(sealed[65:]).decode()}
    url = f"{'http' if name == 'http' else 'https'}://127.0.0.1:{port}/{name}"
    metadata = entry("com.apple.wkms.fcs-response", json.dumps(response).encode()) + entry("com.apple.wkms.fcs-key-url", url.encode())
    archive = aea.encode(open(plain, "rb").read(), symmetric_key=symmetric, auth_data=metadata)
    open(f"{folder}/{name}.dmg.aea", "wb").write(archive)
print("ready", flush=True)
server.serve_forever()
"#;

#[cfg(all(feature = "recipients", feature = "s3"))]
#[test]
fn keys_of_system_software_are_unwrapped_and_fetched() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let test = "keys_of_system_software_are_unwrapped_and_fetched";
    let has_peers = ["aea.murmur", "cryptography.hazmat.primitives.hpke"].map(peer_python);
    let [Some(python), Some(_)] = has_peers else {
        return skip(
            test,
            "python-aea or HPKE of cryptography is not installed: scripts/install-test-tools",
        );
    };
    let scratch = scratch();
    let mut server = Command::new(python)
        .args(["-c", APPLE])
        .args([&scratch.path(""), &scratch.path("plain.img")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = server.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let run = |line: &str| {
        let mut command = scratch.command(&words(line));
        command.env("SSL_CERT_FILE", scratch.path("ca.pem"));
        command.output().unwrap()
    };
    let judge = || {
        assert_eq!(line, "ready\n");
        for line in [
            "cat key.pem.dmg.aea:/hello.txt --aea-private-key apple.pem",
            "cat key.pem.dmg.aea:/hello.txt --aea-key key",
            "cat key.pem.dmg.aea:/hello.txt --fetch-key",
            "cat near.dmg.aea:/hello.txt --fetch-key",
        ] {
            let output = run(line);
            assert!(
                output.stdout == b"hello, world\n",
                "{line}: {}",
                stderr(&output)
            );
        }
        for (line, message) in [
            ("ls key.pem.dmg.aea", "--aea-private-key FILE"),
            (
                "ls key.pem.dmg.aea --aea-private-key private",
                "wrong private key",
            ),
            ("ls away.dmg.aea --fetch-key", "not allowed"),
            ("ls large.dmg.aea --fetch-key", "more than 65536 bytes"),
            ("ls text.dmg.aea --fetch-key", "not a private key"),
            ("ls absent.dmg.aea --fetch-key", "404"),
            ("ls http.dmg.aea --fetch-key", "not https://"),
        ] {
            let output = run(line);
            assert!(!output.status.success(), "{line}");
            assert!(
                stderr(&output).contains(message),
                "{line}: {}",
                stderr(&output)
            );
        }
        // A server with another certificate is not trusted.
        let output = scratch.run(&words("ls key.pem.dmg.aea --fetch-key"));
        assert!(!output.status.success());
    };
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
    let _ = server.kill();
    let _ = server.wait();
    judged.unwrap();
}
