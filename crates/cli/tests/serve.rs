//! `serve` and `list`: how they begin, what they tell, how they end.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::Scratch;
use serde_json::Value;

/// A server that runs until it is told to end.
struct Served {
    child: Child,
    facts: Value,
    socket: PathBuf,
}

impl Served {
    fn begin(scratch: &Scratch, args: &[&str]) -> Self {
        Self::begin_with(scratch, args, ("XDG_DATA_HOME", ""))
    }

    /// The same with a variable in its environment.
    fn begin_with(scratch: &Scratch, args: &[&str], (name, value): (&str, &str)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command.env(name, value);
        Self::begin_as(command, scratch, args)
    }

    fn begin_as(mut command: Command, scratch: &Scratch, args: &[&str]) -> Self {
        command
            .args(["serve", "--json", "--socket", "socket"])
            .args(args)
            .current_dir(scratch.path(""));
        command
            .env("XDG_RUNTIME_DIR", scratch.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut report = Vec::new();
        let facts = loop {
            let mut byte = [0];
            assert_eq!(
                stdout.read(&mut byte).unwrap(),
                1,
                "it ended: {}",
                String::from_utf8_lossy(&report)
            );
            report.push(byte[0]);
            if let Ok(facts) = serde_json::from_slice(&report) {
                break facts;
            }
        };
        Self {
            child,
            facts,
            socket: scratch.path("socket"),
        }
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([name, &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

/// A client that has chosen the first export, with simple replies.
struct Client(UnixStream);

impl Client {
    fn new(served: &Served) -> Self {
        let mut client = Self(UnixStream::connect(&served.socket).unwrap());
        client.bytes(18);
        client
            .0
            .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .unwrap();
        client.bytes(10);
        client
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn call(&mut self, command: u16, offset: u64, len: u32, payload: &[u8]) {
        assert_eq!(self.ask(command, offset, len, payload), 0);
    }

    /// The error of the answer.
    fn ask(&mut self, command: u16, offset: u64, len: u32, payload: &[u8]) -> u32 {
        let head = [
            &0x2560_9513_u32.to_be_bytes()[..],
            &[0; 2],
            &command.to_be_bytes(),
            &[0; 8],
        ]
        .concat();
        self.0
            .write_all(
                &[
                    &head[..],
                    &offset.to_be_bytes(),
                    &len.to_be_bytes(),
                    payload,
                ]
                .concat(),
            )
            .unwrap();
        u32::from_be_bytes(self.bytes(16)[4..8].try_into().unwrap())
    }
}

fn list(scratch: &Scratch) -> Value {
    let output = scratch
        .command(&["list", "--json"])
        .env("XDG_RUNTIME_DIR", scratch.path(""))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn it_is_listed_and_ends_cleanly() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&[
        "create",
        "x.sparsebundle",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "Vol",
    ]);
    for signal in ["-TERM", "-INT"] {
        let served = Served::begin(&scratch, &["x.sparsebundle"]);
        let names: Vec<_> = served.facts["exports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|export| export["name"].clone())
            .collect();
        assert_eq!(names, ["", "1", "Vol"]);
        let listed = &list(&scratch)["devices"][0];
        assert_eq!(listed["device"], served.facts["device"]);
        assert_eq!(
            (&listed["usage"], &listed["process"]),
            (&"served".into(), &served.child.id().into())
        );
        assert_eq!(
            listed["locations"][0],
            served.facts["exports"][0]["uris"][0]
        );
        assert!(
            scratch
                .fails(4, &["serve", "x.sparsebundle", "--socket", "other"])
                .contains("in use")
        );
        let _client = Client::new(&served);
        assert_eq!(served.end(signal), Some(0), "{signal}");
        assert!(!scratch.path("socket").exists());
        assert_eq!(list(&scratch)["devices"], Value::Array(vec![]));
    }
    scratch.ok(&["check", "x.sparsebundle"]);
}

#[test]
fn volumes_of_a_container_are_names_of_its_partition() {
    let scratch = Scratch::new();
    scratch.ok(&[
        "create",
        "x.asif",
        "--size",
        "1g",
        "--fs",
        "apfs",
        "--volname",
        "System",
        "--volume",
        "Data",
    ]);
    let served = Served::begin(&scratch, &["x.asif"]);
    let exports = served.facts["exports"].as_array().unwrap();
    let of = |field: &str| {
        exports
            .iter()
            .map(|export| export[field].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("name"), ["", "1", "System", "Data"]);
    assert_eq!(
        (&of("size")[1], &of("size")[1]),
        (&of("size")[2], &of("size")[3])
    );
    assert_eq!(served.end("-TERM"), Some(0));
}

#[test]
fn flushed_data_survive_and_leftovers_go() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "8m", "--fs", "none"]);
    let served = Served::begin(&scratch, &["x.sparsebundle", "--image-format", "udsb"]);
    let mut client = Client::new(&served);
    client.call(1, 4096, 512, &[7; 512]);
    client.call(3, 0, 0, &[]);
    assert_eq!(served.end("-KILL"), None);
    assert!(scratch.path("socket").exists());
    assert_eq!(list(&scratch)["devices"], Value::Array(vec![]));
    assert!(!scratch.path("socket").exists());
    scratch.ok(&[
        "convert",
        "x.sparsebundle",
        "x.img",
        "--image-format",
        "udsb",
    ]);
    assert_eq!(
        fs::read(scratch.path("x.img")).unwrap()[4096..4608],
        [7; 512]
    );
}

/// Data that another system left in free space is discarded before the first client comes, unless it
/// is to stay.
#[test]
fn an_image_is_trimmed_first() {
    let scratch = Scratch::new();
    scratch.write("src/keep", "keep");
    scratch.ok(&[
        "create",
        "x.sparsebundle",
        "--from",
        "src",
        "--size",
        "32m",
        "--band-size",
        "1m",
        "--quiet",
    ]);
    let free = scratch.write("x.sparsebundle/bands/10", vec![7; 1 << 20]);
    let served = Served::begin(&scratch, &["x.sparsebundle", "--no-trim"]);
    assert!(free.exists());
    assert_eq!(served.end("-TERM"), Some(0));
    let served = Served::begin(&scratch, &["x.sparsebundle", "--read-only"]);
    assert_eq!((served.end("-TERM"), free.exists()), (Some(0), true));
    let served = Served::begin(&scratch, &["x.sparsebundle"]);
    assert!(!free.exists());
    assert_eq!(served.end("-TERM"), Some(0));
    assert_eq!(scratch.ok(&["cat", "x.sparsebundle:/keep"]), "keep");
}

/// The image stays as it is, and what is written is in the layer.
#[test]
fn layers_and_images_that_cannot_be_changed() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    scratch.ok(&["convert", "x.img", "x.dmg", "--format", "udzo"]);
    let before = fs::read(scratch.path("x.img")).unwrap();
    let served = Served::begin(&scratch, &["x.img", "--shadow", "x.shadow"]);
    let mut client = Client::new(&served);
    client.call(1, 4096, 512, &[7; 512]);
    client.call(0, 4096, 512, &[]);
    assert_eq!(client.bytes(512), [7; 512]);
    assert_eq!(served.end("-TERM"), Some(0));
    assert!(
        fs::read(scratch.path("x.img")).unwrap() == before && scratch.path("x.shadow").exists()
    );
    let served = Served::begin(&scratch, &["x.dmg"]);
    assert_eq!(served.facts["read_only"], true);
    assert_eq!(served.end("-TERM"), Some(0));
}

#[test]
fn the_world_is_not_let_in_by_mistake() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    assert!(
        scratch
            .fails(2, &["serve", "x.img", "--listen", "0.0.0.0:0"])
            .contains("--tls-certificates")
    );
    let error = scratch.fails(
        if cfg!(feature = "tls") { 3 } else { 6 },
        &[
            "serve",
            "x.img",
            "--listen",
            "0.0.0.0:0",
            "--tls-certificates",
            "src",
        ],
    );
    let expected = match cfg!(feature = "tls") {
        true => "ca-cert.pem",
        false => "this build does not support TLS (feature `tls`)",
    };
    assert!(error.contains(expected), "{error}");
    assert!(
        scratch
            .fails(2, &["serve", "x.img", "--listen", "no such host:1"])
            .contains("no such host")
    );
    scratch.write("socket", "mine");
    assert!(
        scratch
            .fails(4, &["serve", "x.img", "--socket", "socket"])
            .contains("is not a socket")
    );
    assert_eq!(fs::read(scratch.path("socket")).unwrap(), b"mine");
}

/// Other users of the machine see the environment of a server for as long as it runs.
#[cfg(target_os = "linux")]
#[test]
fn a_passphrase_of_the_environment_does_not_stay_there() {
    let scratch = Scratch::new();
    scratch.write("key", "correct horse battery");
    let encrypt = [
        "--encrypt",
        "--passfile",
        "key",
        "--iterations",
        "150000",
        "--thin",
    ];
    scratch.ok(&[&["create", "s.img", "--size", "4m"], &encrypt[..]].concat());
    let secret = ("BANDSAW_TEST_KEY", "correct horse battery");
    let served = Served::begin_with(&scratch, &["--passenv", secret.0, "s.img"], secret);
    let environment = fs::read(format!("/proc/{}/environ", served.child.id())).unwrap();
    let holds = |bytes: &[u8], what: &str| {
        bytes
            .windows(what.len())
            .any(|window| window == what.as_bytes())
    };
    assert!(
        !environment.is_empty() && !holds(&environment, secret.1) && !holds(&environment, secret.0)
    );
    assert_eq!(
        served.facts["exports"][0]["size"],
        4 << 20,
        "it was read all the same"
    );
    assert_eq!(served.end("-TERM"), Some(0));
    let mut wrong = scratch.command(&["ls", "--passenv", secret.0, "s.img"]);
    wrong.env(secret.0, "wrong").assert().code(7);
    let mut missing = scratch.command(&["ls", "--passenv", secret.0, "s.img"]);
    missing.env_remove(secret.0).assert().code(2);
}

/// Data that its file may not hold is an error to the client, and the server goes on.
#[test]
fn a_limit_on_the_size_of_files_ends_no_server() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparseimage", "--size", "64m", "--fs", "none"]);
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "ulimit -f 8192; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_bandsaw"),
    ]);
    let served = Served::begin_as(
        limited,
        &scratch,
        &["x.sparseimage", "--image-format", "udsp"],
    );
    let mut client = Client::new(&served);
    client.call(1, 0, 512, &[7; 512]);
    let piece = vec![7; 1 << 20];
    let refused = (1..32).find(|at| client.ask(1, at << 20, 1 << 20, &piece) != 0);
    assert!(refused.is_some(), "the limit holds");
    client.call(0, 0, 512, &[]);
    assert_eq!(client.bytes(512), [7; 512]);
    served.end("-TERM").unwrap();
    // The contents are unknown, and nothing is damaged.
    scratch.fails(
        6,
        &["check", "-q", "x.sparseimage", "--image-format", "udsp"],
    );
}

/// Data that a client wrote to a bundle that was removed meanwhile is not said to be durable, and the
/// end of the server is a failure.
#[test]
fn a_bundle_that_is_removed_while_it_is_served() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.sparsebundle", "--size", "8m", "--fs", "none"]);
    let served = Served::begin(&scratch, &["x.sparsebundle", "--image-format", "udsb"]);
    let mut client = Client::new(&served);
    client.call(1, 0, 512, &[7; 512]);
    client.call(3, 0, 0, &[]);
    fs::remove_dir_all(scratch.path("x.sparsebundle")).unwrap();
    client.ask(1, 0, 512, &[8; 512]);
    assert_ne!(client.ask(3, 0, 0, &[]), 0);
    assert_eq!(served.end("-TERM"), Some(1));
}
