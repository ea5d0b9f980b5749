//! Images on network storage: Samba serves a folder of this machine, a Linux guest mounts it twice
//! with its own SMB client, as two machines would, and works on images there.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::programs::{Program, run, run_text};
use crate::qemu::{self, Guest, HOST, JOIN_NETWORK};
use crate::suite::Suite;

const SMBD: Program = Program::Command(&["smbd"]);
const SMBPASSWD: Program = Program::Command(&["smbpasswd"]);

/// Modules that the client requests from the kernel by name, so that they are in no list of
/// dependencies.
const CIPHERS: [&str; 10] = [
    "aes_generic",
    "ccm",
    "cmac",
    "ctr",
    "ecb",
    "gcm",
    "ghash_generic",
    "hmac",
    "md5",
    "sha512_generic",
];

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[Program::Bandsaw, SMBD, SMBPASSWD]].concat();
    suite
        .heavy_peer("samba", "boots Linux in an emulator, beside Samba", &needs)
        .test("bundle_on_a_share", bundle_on_a_share)
        .test("file_on_a_share", file_on_a_share);
}

/// A share that exists until this is dropped. All of the server's files are in a scratch folder,
/// and it is reachable from this machine only.
struct Samba {
    scratch: TempDir,
    port: u16,
    user: String,
    server: Child,
}

impl Samba {
    fn new() -> Self {
        let scratch = crate::scratch();
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its number").port();
        drop(free);
        let path = |name: &str| scratch.path().join(name);
        for folder in [
            "share", "private", "state", "cache", "lock", "pid", "ncalrpc",
        ] {
            fs::create_dir(path(folder)).expect("a folder");
        }
        let own = scratch.path().display();
        let settings = format!(
            "[global]\n\
             smb ports = {port}\ninterfaces = lo\nbind interfaces only = yes\ndisable netbios = yes\n\
             private dir = {own}/private\nstate directory = {own}/state\ncache directory = {own}/cache\n\
             lock directory = {own}/lock\npid directory = {own}/pid\nncalrpc dir = {own}/ncalrpc\n\
             passdb backend = smbpasswd:{own}/private/smbpasswd\nlog file = {own}/log\n\
             load printers = no\ndisable spoolss = yes\n\
             [share]\npath = {own}/share\nread only = no\n"
        );
        fs::write(path("smb.conf"), settings)
            .expect("on macOS, give the terminal access to the folder in the privacy settings");
        let user = run_text(Command::new("id").arg("-un")).trim().to_owned();
        let said = path("passphrase");
        fs::write(&said, "secret\nsecret\n")
            .expect("the private key is encrypted; decrypt it with `openssl pkey`");
        let mut add = Command::new("sh");
        add.args(["-c", "exec \"$0\" -c \"$1\" -s -a \"$2\" <\"$3\""]);
        run(add
            .arg(SMBPASSWD.find().expect("it is there"))
            .arg(path("smb.conf"))
            .arg(&user)
            .arg(&said));
        let server = serve(&path("smb.conf"), port);
        Self {
            scratch,
            port,
            user,
            server,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Returns the mount options for the guest.
    fn options(&self) -> String {
        format!(
            "ip={HOST},port={},username={},password=secret,vers=3.1.1",
            self.port, self.user
        )
    }

    /// Kills all of the server's processes immediately, as a power failure would.
    fn kill(&mut self) {
        let group = format!("-{}", self.server.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.server.wait();
    }

    /// Restarts the server whenever the guest requests it through a file in the share, until
    /// `done`.
    fn obey(&mut self, done: &AtomicBool) {
        let order = self.path("share/order");
        while !done.load(Ordering::Acquire) {
            if order.exists() {
                self.kill();
                // Operations in progress fail on the missing server.
                thread::sleep(Duration::from_millis(500));
                fs::remove_file(&order).expect("taking the order");
                fs::write(self.path("share/obeyed"), "").expect("answering");
                self.server = serve(&self.path("smb.conf"), self.port);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the server, in a process group of its own, and waits until it accepts connections.
fn serve(settings: &Path, port: u16) -> Child {
    let mut smbd = SMBD.command();
    smbd.arg("-s")
        .arg(settings)
        .args(["--foreground", "--no-process-group"])
        .process_group(0);
    let server = smbd
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starting it");
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "smbd does not answer"
        );
        thread::sleep(Duration::from_millis(20));
    }
    server
}

/// Shell functions of the script. `again` restarts the server, killed during its work.
const PRELUDE: &str = r#"
mkdir -m 700 /tmp/run
mkdir /share /other /tmp/volume /tmp/second
export XDG_RUNTIME_DIR=/tmp/run RUST_BACKTRACE=1
fails() { if "$@"; then echo "succeeded: $*"; exit 1; fi; }
put() { dd if="$1" of="$2" bs=64k conv=fsync 2>/dev/null; }
again() { echo >/share/order || :; until test -e /share/obeyed; do sleep 0.1; done; rm /share/obeyed; }
"#;

/// Creates an image named `image`, writes to it, tests that a second client is refused, the loss of
/// the SMB server and of our process, and empties it.
const WORK: &str = r#"
head -c 12000000 /dev/urandom >/tmp/large
head -c 300000 /dev/urandom >/tmp/small
cd /share
bandsaw create $image --size 64m --fs hfs+ --volname Vol --quiet $options
section locks
bandsaw mount $image /tmp/volume
put /tmp/large /tmp/volume/large
fails bandsaw mount /other/$image /tmp/second
fails bandsaw put /other/$image:/no --from /tmp/small
section restart
flushed="before kept new"
put /tmp/small /tmp/volume/before
again
# What the server had not made durable when it was killed nobody knows: a refusal is right, a lie is not.
if put /tmp/small /tmp/volume/after; then
    flushed="$flushed after"
    fails bandsaw mount /other/$image /tmp/second
fi
bandsaw detach --force /tmp/volume || :
bandsaw check $image || test $? = 8
section killed
bandsaw mount $image /tmp/volume
put /tmp/small /tmp/volume/kept
cp /tmp/small /tmp/volume/perhaps
kill -9 "$(bandsaw list --json | grep '"process"' | tr -dc 0-9)"
while bandsaw list | grep -q disk1; do sleep 0.1; done
section "second client"
bandsaw mount /other/$image /tmp/second
for file in $flushed; do test $file = new || cmp /tmp/small /tmp/second/$file; done
cmp /tmp/large /tmp/second/large
rm /tmp/second/large
put /tmp/small /tmp/second/new
# Where bands went they come again.
put /tmp/large /tmp/second/again
cmp /tmp/large /tmp/second/again
rm /tmp/second/again
bandsaw detach /tmp/second
section compact
bandsaw compact --battery-allowed $image
bandsaw check $image
for file in $flushed; do bandsaw cat $image:/$file | cmp /tmp/small -; done
"#;

/// The lock is on a file beside the bands.
fn bundle_on_a_share() {
    on_a_share("x.sparsebundle", "--band-size 1m", true);
}

/// The image itself is locked, and the server enforces that.
fn file_on_a_share() {
    on_a_share("x.asif", "", false);
}

fn on_a_share(image: &str, options: &str, is_bundle: bool) {
    let mut samba = Samba::new();
    let mounts = samba.options();
    let mount = |folder: &str, more: &str| {
        format!("mount -t cifs //{HOST}/share {folder} -o {mounts}{more}\n")
    };
    let mounts = [mount("/share", ""), mount("/other", ",nosharesock")].concat();
    let what = format!("image={image} options='{options}'\n");
    let guest = Guest::new([PRELUDE, JOIN_NETWORK, &mounts, &what, WORK].concat()).network();
    let guest = guest.modules(&CIPHERS).modules(&["cifs", "fuse"]);
    let guest = guest.program_as(
        &Program::Bandsaw.find().expect("it is there"),
        "/bin/bandsaw",
    );
    let done = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        scope.spawn(|| samba.obey(&done));
        let report = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guest.boot()));
        done.store(true, Ordering::Release);
        report.unwrap_or_else(|why| std::panic::resume_unwind(why))
    });
    let report = report.succeeded();
    let locks = report.section("locks").join("\n");
    assert_eq!(locks.matches("in use").count(), 2, "{locks}");
    let restart = report.section("restart").join("\n");
    // The client may resume its handles too late; a volume that lost one says so.
    let resumed = restart.contains("in use");
    let refused = restart.contains("an earlier change of the tables failed");
    assert!(resumed || refused || !is_bundle, "{restart}");
    let left = stored(&samba.path("share").join(image));
    assert!(
        left < 6 << 20,
        "{left} bytes of storage stay\n{}",
        report.section("compact").join("\n")
    );
}

/// Returns the size on disk in bytes of a file, or a folder with its contents.
fn stored(path: &Path) -> u64 {
    let meta = fs::symlink_metadata(path).expect("it is there");
    let below = |entry: std::io::Result<fs::DirEntry>| stored(&entry.expect("an entry").path());
    meta.blocks() * 512
        + if meta.is_dir() {
            fs::read_dir(path).expect("a folder").map(below).sum()
        } else {
            0
        }
}
