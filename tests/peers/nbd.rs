//! NBD clients on images that we serve: libnbd's programs and its Python module, QEMU's, fio.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bandsaw::Result;
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt, ExtentKind};
use bandsaw::open::{self, CreateOptions, OpenOptions};
use bandsaw::ops::create::{Layout, Source};
use bandsaw_nbd::{Export, Listener, Options, Server, Tls};
use serde_json::Value;

use crate::noise::noise;
use crate::programs::{Program, output, run, run_text};
use crate::suite::Suite;
use crate::volume;

const NBDINFO: Program = Program::Command(&["nbdinfo"]);
const NBDCOPY: Program = Program::Command(&["nbdcopy"]);
const QEMU_IMG: Program = Program::Command(&["qemu-img"]);
const QEMU_IO: Program = Program::Command(&["qemu-io"]);
const FIO: Program = Program::Command(&["fio"]);
const OPENSSL: Program = Program::Command(&["openssl"]);
const PYTHON_NBD: Program = Program::PythonModule("nbd");

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("libnbd", &[NBDINFO, NBDCOPY, OPENSSL])
        .test("copies", copies)
        .test("tls", tls);
    suite
        .peer("libnbd-list", &[NBDINFO, Program::Bandsaw])
        .test("exports", exports);
    suite
        .peer("libnbd-python", &[PYTHON_NBD])
        .test("python", python);
    suite
        .peer("qemu-nbd-clients", &[QEMU_IMG, QEMU_IO])
        .test("qemu", qemu);
    suite
        .heavy_peer("fio", "fio takes 16 MB", &[FIO])
        .test("fio_verifies", fio_verifies);
}

const LEN: u64 = 64 << 20;

/// A disk that is served until this is dropped.
pub(crate) struct Served {
    server: Server,
    listening: Option<JoinHandle<Result<()>>>,
    /// URI of the disk for clients.
    pub(crate) uri: String,
}

impl Served {
    /// Serves the disk on a Unix socket.
    pub(crate) fn unix(disk: Arc<dyn BlockDevice>, socket: &Path) -> Self {
        Self::begin(disk, Listener::unix(socket).expect("listening"), None)
    }

    fn tcp(disk: Arc<dyn BlockDevice>, tls: Option<Tls>) -> Self {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        Self::begin(disk, Listener::tcp(any).expect("listening"), tls)
    }

    fn begin(disk: Arc<dyn BlockDevice>, listener: Listener, tls: Option<Tls>) -> Self {
        let uri = listener.uri("", tls.is_some());
        let exports = vec![Export::new("", "the disk", disk)];
        let server = Server::new(
            exports,
            Options {
                tls,
                ..Options::default()
            },
        )
        .expect("one export");
        let listening = std::thread::spawn({
            let server = server.clone();
            move || server.listen(&listener)
        });
        Self {
            server,
            listening: Some(listening),
            uri,
        }
    }

    /// Flushes and stops the server.
    pub(crate) fn stop(mut self) {
        self.server.stop().expect("flushing");
        self.listening
            .take()
            .expect("it listens")
            .join()
            .expect("no panic")
            .expect("listening");
    }
}

/// Creates an empty image.
fn blank(folder: &Path, name: &str, format: Format) -> PathBuf {
    let path = folder.join(name);
    drop(
        open::create(
            &path,
            &CreateOptions {
                format,
                len: LEN,
                ..CreateOptions::default()
            },
        )
        .expect("making an image"),
    );
    path
}

fn open_disk(path: &Path, format: Format) -> Arc<dyn BlockDevice> {
    let options = OpenOptions {
        access: Access::ReadWrite,
        image_format: Some(format),
        ..OpenOptions::default()
    };
    open::open(path, &options)
        .expect("opening the image")
        .disk()
        .clone()
}

/// Writes data with holes around and inside it.
fn some(disk: &dyn BlockDevice) {
    for (at, len) in [
        (1 << 20, 3 << 20),
        (20 << 20, 4096),
        (40 << 20, 9 << 20),
        (LEN - 4096, 4096),
    ] {
        disk.write_at(at, &noise(len)).expect("writing");
    }
    disk.flush().expect("flushing");
}

const FORMATS: [(&str, Format); 4] = [
    ("x.img", Format::Udrw),
    ("x.sparsebundle", Format::Udsb),
    ("x.sparseimage", Format::Udsp),
    ("x.asif", Format::Asif),
];

/// Returns the data extents according to our reader, with adjacent ones merged.
fn data(disk: &dyn BlockDevice) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (range, kind) in disk
        .extents(0..LEN)
        .map(|extent| extent.expect("an extent"))
    {
        match runs.last_mut() {
            _ if kind != ExtentKind::Data => {}
            Some((_, end)) if *end == range.start => *end = range.end,
            _ => runs.push((range.start, range.end)),
        }
    }
    runs
}

/// Copies from an image of each format into another one, with holes.
fn copies() {
    let scratch = crate::scratch();
    for (name, format) in FORMATS {
        let disk = open_disk(&blank(scratch.path(), name, format), format);
        some(&*disk);
        let served = Served::unix(disk.clone(), &scratch.path().join("socket"));
        let map = run(NBDINFO.command().args(["--map", "--json", &served.uri]));
        let map: Value = serde_json::from_slice(&map).expect("JSON");
        let report = map
            .as_array()
            .expect("runs")
            .iter()
            .filter(|run| run["type"] == 0);
        let report: Vec<_> = report
            .map(|run| (run["offset"].as_u64(), run["length"].as_u64()))
            .collect();
        let ours: Vec<_> = data(&*disk)
            .into_iter()
            .map(|(start, end)| (Some(start), Some(end - start)))
            .collect();
        assert_eq!(report, ours, "{name}");
        let (out, back) = (scratch.path().join("out"), format!("{name} back"));
        run(NBDCOPY.command().arg(&served.uri).arg(&out));
        let bytes = std::fs::read(&out).expect("reading the copy");
        assert!(
            bytes == disk.read_vec(0, LEN as usize).expect("reading"),
            "{name}"
        );
        served.stop();

        let copy = open_disk(&blank(scratch.path(), &back, format), format);
        copy.write_at(30 << 20, &noise(1 << 20)).expect("writing");
        let served = Served::tcp(copy.clone(), None);
        run(NBDCOPY
            .command()
            .args(["--flush", "--connections=4"])
            .arg(&out)
            .arg(&served.uri));
        served.stop();
        assert!(
            bytes == copy.read_vec(0, LEN as usize).expect("reading"),
            "{name}"
        );
        assert_eq!(
            data(&*copy),
            data(&*disk),
            "{name}: what was overwritten by zeros takes no room"
        );
    }
}

/// All exports of an image by one process, by name; a partition as an export is a volume without a
/// map.
fn exports() {
    let scratch = crate::scratch();
    let path = scratch.path().join("x.sparsebundle");
    volume::create_of(
        Some(LEN),
        Source::Empty,
        &path,
        Format::Udsb,
        false,
        Layout::Gptspud,
    );
    let socket = scratch.path().join("socket");
    let mut serve = Program::Bandsaw.command();
    serve
        .arg("serve")
        .arg(&path)
        .arg("--socket")
        .arg(&socket)
        .env("XDG_RUNTIME_DIR", scratch.path());
    let mut server = Running(serve.stdout(Stdio::null()).spawn().expect("starting it"));
    let began = Instant::now();
    while !socket.exists() {
        assert!(
            began.elapsed() < Duration::from_secs(20)
                && server.0.try_wait().expect("asking").is_none(),
            "no server"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let uri = |export: &str| format!("nbd+unix:///{export}?socket={}", socket.display());
    let info = |args: &[&str]| {
        let said = run(NBDINFO.command().args(args).arg("--json"));
        serde_json::from_slice::<Value>(&said).expect("JSON")["exports"]
            .as_array()
            .expect("exports")
            .clone()
    };
    let report = info(&["--list", &uri("")]);
    let names: Vec<_> = report
        .iter()
        .map(|export| export["export-name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["", "1", &crate::tree::decomposed(volume::NAME)]);
    assert_eq!(report[0]["export-size"], LEN);
    assert!(
        report[1]["export-size"] == report[2]["export-size"]
            && report[1]["export-size"].as_u64() < Some(LEN),
        "{report:#?}"
    );
    let part = &info(&["--content", &uri("1")])[0];
    assert!(
        part["content"]
            .as_str()
            .is_some_and(|content| content.contains("HFS")),
        "{part:#?}"
    );
    run(Command::new("kill").arg(server.0.id().to_string()));
    assert!(server.0.wait().expect("waiting").success());
}

/// A server process that is killed at the end of its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Only clients with a certificate are served.
fn tls() {
    let scratch = crate::scratch();
    let (good, bad) = (scratch.path().join("good"), scratch.path().join("bad"));
    certificates(&good, "client-cert.pem");
    certificates(&bad, "client-cert.pem");
    std::fs::copy(good.join("ca-cert.pem"), bad.join("ca-cert.pem"))
        .expect("copying the authority");
    let disk = open_disk(
        &blank(scratch.path(), "x.sparsebundle", Format::Udsb),
        Format::Udsb,
    );
    some(&*disk);
    let served = Served::tcp(
        disk.clone(),
        Some(Tls::from_folder(&good).expect("certificates")),
    );
    // The certificate is for this name.
    let at = served.uri.replace("127.0.0.1", "localhost");
    let with = |folder: &Path| format!("{at}?tls-certificates={}", folder.display());
    let out = scratch.path().join("out");
    run(NBDCOPY.command().arg(with(&good)).arg(&out));
    assert!(
        std::fs::read(&out).expect("reading") == disk.read_vec(0, LEN as usize).expect("reading")
    );
    let changed = noise(LEN as usize);
    std::fs::write(&out, &changed).expect("writing");
    run(NBDCOPY.command().arg(&out).arg(with(&good)));
    assert!(disk.read_vec(0, LEN as usize).expect("reading") == changed);
    for uri in [with(&bad), at.replace("nbds:", "nbd:")] {
        assert!(
            !output(NBDINFO.command().arg(&uri)).status.success(),
            "{uri}"
        );
    }
    served.stop();
}

/// Creates an authority, and a server and a client certificate signed by it.
fn certificates(folder: &Path, client: &str) {
    std::fs::create_dir(folder).expect("making a folder");
    let openssl = |args: &str| run(OPENSSL.command().args(args.split(' ')).current_dir(folder));
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca-key.pem -out ca-cert.pem",
    );
    for (name, certificate) in [("server", "server-cert.pem"), ("client", client)] {
        openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {name}-key.pem -out request"
        ));
        openssl(&format!(
            "x509 -req -days 2 -in request -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -copy_extensions copy -out {certificate}"
        ));
    }
}

/// Tests every request of libnbd, and the expected errors.
const SCRIPT: &str = r#"
import sys, nbd
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.connect_uri(sys.argv[1])
assert h.get_size() == 64 << 20
for can in ["can_multi_conn", "can_trim", "can_zero", "can_fast_zero", "can_fua", "can_flush", "can_df", "can_cache"]:
    assert getattr(h, can)(), can
data = bytes(i * 7 % 251 for i in range(70001))
h.pwrite(data, 1234567, nbd.CMD_FLAG_FUA)
assert h.pread(len(data), 1234567) == data
chunks = []
h.pread_structured(len(data), 1234567, lambda data, offset, status, error: chunks.append((offset, status)), nbd.CMD_FLAG_DF)
assert chunks == [(1234567, nbd.READ_DATA)], chunks
h.zero(65536, 40 << 20, nbd.CMD_FLAG_FAST_ZERO)
h.zero(65536, 41 << 20, nbd.CMD_FLAG_NO_HOLE)
seen = []
h.block_status(65536, 41 << 20, lambda context, offset, runs, error: seen.append((context, runs)))
# Zeros over nothing are nothing in a sparse image, however they are written.
assert seen[0][0] == "base:allocation" and sum(seen[0][1][0::2]) == 65536, seen
h.trim(1 << 20, 41 << 20)
h.cache(1 << 20, 0)
h.flush()
h.set_strict_mode(0)
big = 32 << 20
assert len(h.pread(big, 5)) == big
for number, call in [
    ("EINVAL", lambda: h.pread(512, 1 << 40)),
    ("ENOSPC", lambda: h.pwrite(data, 1 << 40)),
    ("EINVAL", lambda: h.pread(512, 0, 0x40)),
    ("ENOTSUP", lambda: h.zero(512, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)),
]:
    try:
        call()
    except nbd.Error as error:
        assert error.errno == number, (number, error.errno)
    else:
        raise AssertionError(number)
# Many in flight on two connections; what one wrote the other reads.
o = nbd.NBD()
o.connect_uri(sys.argv[1])
cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i] * 4096)), i * 8192) for i in range(64)]
while any(not h.aio_command_completed(c) for c in cookies[-1:]):
    h.poll(-1)
h.flush()
for i in range(64):
    assert o.pread(4096, i * 8192) == bytes([i] * 4096), i
h.shutdown()
o.shutdown()
"#;

fn python() {
    let scratch = crate::scratch();
    for (name, format) in FORMATS {
        let disk = open_disk(&blank(scratch.path(), name, format), format);
        let served = Served::unix(disk, &scratch.path().join("socket"));
        run(PYTHON_NBD.command().args(["-c", SCRIPT, &served.uri]));
        served.stop();
    }
}

fn qemu() {
    let scratch = crate::scratch();
    let disk = open_disk(&blank(scratch.path(), "x.asif", Format::Asif), Format::Asif);
    some(&*disk);
    let served = Served::unix(disk.clone(), &scratch.path().join("socket"));
    let out = scratch.path().join("out.qcow2");
    run(QEMU_IMG
        .command()
        .args(["convert", "-f", "raw", "-O", "qcow2", &served.uri])
        .arg(&out));
    run(QEMU_IMG
        .command()
        .args(["compare", "-f", "raw", "-F", "qcow2", &served.uri])
        .arg(&out));
    let map = run(QEMU_IMG
        .command()
        .args(["map", "--output=json", "-f", "raw", &served.uri]));
    let map: Value = serde_json::from_slice(&map).expect("JSON");
    let report = map
        .as_array()
        .expect("runs")
        .iter()
        .filter(|run| run["data"] == true);
    let report: Vec<_> = report
        .map(|run| (run["start"].as_u64(), run["length"].as_u64()))
        .collect();
    let ours: Vec<_> = data(&*disk)
        .into_iter()
        .map(|(start, end)| (Some(start), Some(end - start)))
        .collect();
    assert_eq!(report, ours);
    let commands = [
        "write -P 7 5m 2m",
        "write -z -u 6m 64k",
        "discard 1m 1m",
        "write -f -P 9 63m 512",
        "read -P 9 63m 512",
        "flush",
    ];
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let said = run_text(
        QEMU_IO
            .command()
            .args(["-f", "raw", "-d", "unmap"])
            .args(commands)
            .arg(&served.uri),
    );
    assert!(!said.contains("fail"), "{said}");
    served.stop();
    assert_eq!(
        disk.read_vec(5 << 20, 1 << 20).expect("reading"),
        vec![7; 1 << 20]
    );
    assert_eq!(
        disk.read_vec(6 << 20, 65536).expect("reading"),
        vec![0; 65536]
    );
    assert_eq!(disk.read_vec(63 << 20, 512).expect("reading"), [9; 512]);
    let trimmed = disk.extent_at(1 << 20..2 << 20).expect("an extent");
    assert!(trimmed.kind != ExtentKind::Data, "{trimmed:?}");
}

fn fio_verifies() {
    let scratch = crate::scratch();
    for (name, format) in FORMATS {
        let disk = open_disk(&blank(scratch.path(), name, format), format);
        let served = Served::unix(disk, &scratch.path().join("socket"));
        let mut fio = FIO.command();
        fio.args([
            "--name=x",
            "--ioengine=nbd",
            "--thread",
            "--rw=randrw",
            "--bsrange=512-128k",
            "--iodepth=16",
            "--size=32m",
        ]);
        fio.args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--fsync=64",
            "--numjobs=2",
            "--offset_increment=32m",
        ]);
        run(fio
            .arg(format!("--uri={}", served.uri))
            .current_dir(scratch.path()));
        served.stop();
    }
}
