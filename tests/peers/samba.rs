//! Images on network storage: Samba serves a folder of this machine, a Linux guest mounts it twice
//! with its own SMB client, as two machines would, and works on images there.

use std::collections::BTreeMap;
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
const FRUIT_MODULE: Program = Program::SambaModule("fruit");

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
    suite
        .heavy_peer(
            "samba_time_machine",
            "writes backups for ten minutes",
            &[&needs[..], &[FRUIT_MODULE]].concat(),
        )
        .test("backups_survive_kills", backups_survive_kills);
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
        Self::with("")
    }

    /// Serves the share with more parameters.
    fn with(parameters: &str) -> Self {
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
             [share]\npath = {own}/share\nread only = no\n{parameters}"
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

/// What a share for Time Machine has.
const FRUIT: &str = "vfs objects = catia fruit streams_xattr\nfruit:time machine = yes\n";

/// Seconds of the load below, unless the environment names others.
const LOAD: (&str, u64) = ("BANDSAW_LOAD_SECONDS", 600);

/// Backups as Time Machine makes them: a folder for each date in a volume in a bundle on the share, made
/// under another name and renamed when all is durable, with hard links for what has not changed. The
/// server and the client are killed meanwhile. `again` and `load` are set before.
const BACKUPS: &str = r#"
store=/tmp/volume/Backups.backupdb/Mac
bundle=/share/Mac.sparsebundle
mkdir /tmp/src /tmp/sums
for i in $(seq 1 25); do head -c $((i * 2000)) /dev/urandom >/tmp/src/file$i; done
bandsaw tm create /share --machine Mac --uuid EB3EA526-064B-58FA-807A-5F5144738118 --size 512m --band-size 1m --fs hfs+ --quiet
up() {
    for try in $(seq 1 60); do
        bandsaw mount $bundle /tmp/volume && return
        sleep 1
    done
    return 1
}
down() { bandsaw detach --force /tmp/volume || umount -l /tmp/volume || :; sleep 1; }
backup() {
    mkdir -p $store || return
    rm -rf $store/*.inProgress
    mkdir -p "$store/$1.inProgress/Data" || return
    for file in /tmp/src/*; do
        name=${file##*/}
        old="$store/$last/Data/$name"
        if [ -n "$last" ] && cmp -s $file "$old"; then
            ln "$old" "$store/$1.inProgress/Data/$name" || return
        else
            put $file "$store/$1.inProgress/Data/$name" || return
        fi
    done
    mv "$store/$1.inProgress" "$store/$1" || return
    put /tmp/src/file1 $store/.done
}
up
section check
# Written as a Mac would, without a lock of ours, while the server checks the bundle.
backup 2025-12-31-120000
last=2025-12-31-120000
(cd /tmp/src; sha256sum *) >/tmp/sums/$last
down
echo >/share/check || :
until test -e /share/checking; do sleep 0.1; done
band=$(ls $bundle/bands | tail -n 1)
dd if=$bundle/bands/$band of=/tmp/band bs=4k count=1 2>/dev/null
dd if=/tmp/band of=$bundle/bands/$band bs=4k count=1 conv=notrunc,fsync 2>/dev/null
until test -e /share/checked; do sleep 0.1; done
rm /share/checked
up
section load
n=0
start=$(date +%s)
while [ $(($(date +%s) - start)) -lt $load ]; do
    n=$((n + 1))
    date=$(printf '2026-%02d-%02d-%02d0000' $((n / 672 + 1)) $((n / 24 % 28 + 1)) $((n % 24)))
    for i in 1 2 3; do head -c $((i * 30000)) /dev/urandom >/tmp/src/file$(((n * i) % 25 + 1)); done
    killer=
    case $((n % 9)) in
        4) (sleep 1; again) & killer=$! ;;
        8) (sleep 1; kill -9 "$(bandsaw list --json | grep '"process"' | tr -dc 0-9)") & killer=$! ;;
    esac
    if backup $date; then
        last=$date
        (cd /tmp/src; sha256sum *) >/tmp/sums/$date
        [ -z "$killer" ] || wait $killer || :
    else
        [ -z "$killer" ] || wait $killer || :
        echo "interrupted $date"
        down
        up
        last=$(ls $store | grep -v inProgress | tail -n 1)
    fi
done
down
section sums
cd /tmp/sums
for date in *; do sed "s/^/$date /" $date; done
"#;

/// Answers what the guest asks for through files in the share; returns the verdict on the bundle that
/// another program wrote during its check.
fn answer(samba: &mut Samba, done: &AtomicBool) -> Option<String> {
    let mut verdict = None;
    while !done.load(Ordering::Acquire) {
        let (check, order) = (samba.path("share/check"), samba.path("share/order"));
        if check.exists() {
            fs::remove_file(&check).expect("taking the request");
            let share = samba.path("share");
            let check = thread::spawn(move || health(&share, &["--full", "--limit-rate", "30k"]));
            thread::sleep(Duration::from_millis(1500));
            assert!(!check.is_finished(), "the check ended too soon");
            fs::write(samba.path("share/checking"), "").expect("answering");
            verdict = Some(check.join().expect("a check"));
            fs::remove_file(samba.path("share/checking")).expect("cleaning up");
            fs::write(samba.path("share/checked"), "").expect("answering");
        }
        if order.exists() {
            samba.kill();
            thread::sleep(Duration::from_millis(500));
            fs::remove_file(&order).expect("taking the order");
            fs::write(samba.path("share/obeyed"), "").expect("answering");
            samba.server = serve(&samba.path("smb.conf"), samba.port);
        }
        thread::sleep(Duration::from_millis(20));
    }
    verdict
}

/// Returns the verdict on the only bundle in a folder, and the reasons.
fn health(folder: &Path, options: &[&str]) -> String {
    let output = Program::Bandsaw
        .command()
        .args(["health", "--json"])
        .arg(folder)
        .args(options)
        .output()
        .expect("starting it");
    let said = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let bundle = &report["bundles"][0];
    format!(
        "{} {}",
        bundle["verdict"].as_str().unwrap_or_default(),
        bundle["reasons"]
    )
}

/// A share with vfs_fruit, kills of the server and of the client for ten minutes, and then every file of
/// every complete backup.
fn backups_survive_kills() {
    if std::env::var_os("BANDSAW_LARGE").is_none() {
        eprintln!("skipped: only by scripts/test --release");
        return;
    }
    let mut samba = Samba::with(FRUIT);
    let load = std::env::var(LOAD.0).ok().and_then(|set| set.parse().ok());
    let load = load.unwrap_or(LOAD.1);
    let mount = format!(
        "mount -t cifs //{HOST}/share /share -o {}\n",
        samba.options()
    );
    let what = format!("load={load}\n");
    let guest = Guest::new([PRELUDE, JOIN_NETWORK, &mount, &what, BACKUPS].concat()).network();
    let guest = guest.modules(&CIPHERS).modules(&["cifs", "fuse"]);
    let guest = guest.program_as(
        &Program::Bandsaw.find().expect("it is there"),
        "/bin/bandsaw",
    );
    let guest = guest.timeout(Duration::from_secs(400 + load * 2));
    let done = AtomicBool::new(false);
    let (report, verdict) = thread::scope(|scope| {
        let server = scope.spawn(|| answer(&mut samba, &done));
        let report = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guest.boot()));
        done.store(true, Ordering::Release);
        let verdict = server.join();
        let report = report.unwrap_or_else(|why| std::panic::resume_unwind(why));
        (report, verdict.expect("the server"))
    });
    let report = report.succeeded();
    let verdict = verdict.expect("a check during the load");
    assert!(verdict.starts_with("in_use"), "{verdict}");
    let share = samba.path("share");
    let verdict = health(&share, &["--full"]);
    assert!(verdict.starts_with("sound"), "{verdict}");
    let bundle = share.join("Mac.sparsebundle");
    let mut sums: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in report.section("sums") {
        let (date, sum) = line.split_once(' ').expect("a date and a sum");
        sums.entry(date).or_default().push(sum);
    }
    let interrupted = report.section("load").iter();
    let interrupted = interrupted.filter(|line| line.starts_with("interrupted "));
    let (complete, interrupted) = (sums.len(), interrupted.count());
    assert!(
        complete > 3 && (interrupted > 0 || load < 60),
        "{complete} {interrupted}"
    );
    for (date, sums) in sums {
        let out = samba.path("out");
        let mut restore = Program::Bandsaw.command();
        run(restore
            .args(["tm", "restore", "--quiet"])
            .arg(&bundle)
            .arg(date)
            .arg(&out));
        let mut check = Command::new("sha256sum");
        let files = fs::read_dir(out.join("Data")).expect("the volume").count();
        assert_eq!(files, sums.len(), "{date}");
        fs::write(out.join("sums"), sums.join("\n") + "\n").expect("writing the sums");
        run(check
            .args(["--check", "--quiet", "../sums"])
            .current_dir(out.join("Data")));
        fs::remove_dir_all(&out).expect("cleaning up");
    }
    eprintln!("{complete} backups are whole, {interrupted} were interrupted");
}
