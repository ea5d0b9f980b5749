//! A Linux guest in QEMU, for tests that need a kernel: it boots in two or three seconds without
//! KVM, runs a shell script of the test and powers off.
//!
//! The kernel, its modules and busybox were unpacked by `scripts/install-test-tools`. The guest has
//! no disk of its own: all of it is an initial RAM file system made here. Kernel messages go to the
//! first serial line, the script's output to the second, so that they do not mix.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::newc::Archive;
use super::programs::{Program, qemu_value, run, run_text};

pub(crate) const QEMU: Program = Program::Command(&["qemu-system-x86_64"]);
/// Programs that [`Guest::boot`] requires.
pub(crate) const NEEDS: [Program; 3] = [QEMU, Program::Command(&["modprobe"]), Program::GuestLinux];

/// Address of this machine, for a guest with a network.
pub(crate) const HOST: &str = "10.0.2.2";
/// Start of a script that uses the network.
pub(crate) const JOIN_NETWORK: &str = "ip link set eth0 up\nip addr add 10.0.2.15/24 dev eth0\n";

/// Modules that every guest loads for its disks.
const DISK_MODULES: [&str; 2] = ["virtio_pci", "virtio_blk"];

/// The init process: prepares the guest, runs the test's script, prints its status, powers off.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /mnt /tmp
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/sbin:/usr/sbin HOME=/tmp TZ=UTC
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1
sh -e /script
status=$?
echo "@@ kernel"
dmesg
echo "@@ exit $status"
poweroff -f
"#;

/// Prefix of every script.
const PRELUDE: &str = "section() { echo \"@@ $1\"; }\n";

/// A guest to be booted.
pub(crate) struct Guest {
    script: String,
    modules: Vec<String>,
    files: Vec<(String, u32, Vec<u8>)>,
    /// The back end and the device of each disk.
    drives: Vec<[String; 2]>,
    network: bool,
    timeout: Duration,
}

/// Output of a guest.
#[derive(Debug)]
pub(crate) struct Report {
    /// Lines of each section that the script opened with `section NAME`; those before the first are
    /// under "".
    sections: Vec<(String, Vec<String>)>,
    /// Exit status of the script.
    pub(crate) status: i32,
}

impl Guest {
    /// Creates a guest that runs `script`, a shell script that ends at the first failing command.
    /// Disks are `/dev/vda`, `/dev/vdb` and so on; `/mnt` exists as a mount point; `section NAME`
    /// begins a new section of the [`Report`].
    pub(crate) fn new(script: impl Into<String>) -> Self {
        Self {
            script: script.into(),
            modules: DISK_MODULES.map(String::from).into(),
            files: Vec::new(),
            drives: Vec::new(),
            network: false,
            timeout: Duration::from_secs(400),
        }
    }

    /// Sets the time after which the guest is ended, and the test fails.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Loads kernel modules and their dependencies before the script.
    pub(crate) fn modules(mut self, names: &[&str]) -> Self {
        self.modules
            .extend(names.iter().map(|name| name.to_string()));
        self
    }

    /// Adds a file to the guest.
    pub(crate) fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.into(), 0o644, contents.into()));
        self
    }

    /// Adds a program of this machine to the guest, under the same path, with its libraries.
    pub(crate) fn program(self, program: Program) -> Self {
        let path = program.find().unwrap_or_else(|why| panic!("{why}"));
        let within = path.to_str().expect("system paths are UTF-8").to_owned();
        self.program_as(&path, &within)
    }

    /// Adds a program to the guest under another path, without debug information.
    pub(crate) fn program_as(mut self, path: &Path, within: &str) -> Self {
        let listed = run_text(Command::new("ldd").arg(path));
        for library in listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self.files
                .push((library.into(), 0o755, read(library.as_ref())));
        }
        let scratch = super::scratch();
        let bare = scratch.path().join("bare");
        let stripped = Command::new("strip")
            .arg("-o")
            .arg(&bare)
            .arg(path)
            .status();
        let bare = if stripped.is_ok_and(|status| status.success()) {
            &*bare
        } else {
            path
        };
        self.files.push((within.into(), 0o755, read(bare)));
        self
    }

    /// Adds a raw image as a writable disk with 512-byte sectors.
    pub(crate) fn disk(self, image: &Path) -> Self {
        self.disk_of_sectors(image, 512)
    }

    /// Adds a disk with sectors of 512 or 4096 bytes.
    pub(crate) fn disk_of_sectors(self, image: &Path, sector: u32) -> Self {
        let file = qemu_value(image.as_os_str());
        self.drive(
            &format!("file={file},format=raw,cache=unsafe,discard=unmap"),
            sector,
        )
    }

    /// Adds a disk by a drive option of QEMU (`file=nbd:unix:/path,format=raw`).
    pub(crate) fn drive(mut self, description: &str, sector: u32) -> Self {
        let id = format!("disk{}", self.drives.len());
        let device = format!(
            "virtio-blk-pci,drive={id},logical_block_size={sector},physical_block_size=4096"
        );
        self.drives
            .push([format!("{description},if=none,id={id}"), device]);
        self
    }

    /// Gives the guest access to this machine: ports on 127.0.0.1 are those of [`HOST`] there,
    /// after [`JOIN_NETWORK`].
    pub(crate) fn network(mut self) -> Self {
        self.network = true;
        self.modules(&["virtio_net"])
    }

    /// Boots, waits for the end and returns the script's output. A guest that does not end within
    /// two minutes, or ends without a status, fails the test with all of its output.
    pub(crate) fn boot(self) -> Report {
        let linux = Program::GuestLinux
            .find()
            .unwrap_or_else(|why| panic!("{why}"));
        let scratch = super::scratch();
        let initrd = scratch.path().join("initrd");
        std::fs::write(&initrd, self.ram_disk(&linux)).expect("writing the initial RAM disk");
        let results = scratch.path().join("results");

        let mut command = QEMU.command();
        command.args([
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            "512",
            "-no-reboot",
            "-nodefaults",
            "-display",
            "none",
        ]);
        command
            .arg("-kernel")
            .arg(kernel(&linux))
            .arg("-initrd")
            .arg(&initrd);
        command.args([
            "-append",
            "console=ttyS0 quiet panic=-1 random.trust_cpu=on",
        ]);
        command
            .args(["-serial", "stdio", "-serial"])
            .arg(format!("file:{}", results.display()));
        for [drive, device] in &self.drives {
            command.args(["-drive", drive, "-device", device]);
        }
        if self.network {
            command.args(["-nic", "user,model=virtio-net-pci"]);
        }

        let console = run_to_the_end(command, self.timeout);
        let printed = std::fs::read(&results).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed).replace('\r', "");
        Report::parse(&printed).unwrap_or_else(|why| {
            panic!("the guest {why}\n--- console\n{console}\n--- script\n{printed}")
        })
    }

    /// Returns the guest's initial RAM file system.
    fn ram_disk(&self, linux: &Path) -> Vec<u8> {
        let mut archive = Archive::default();
        archive.file("bin/busybox", 0o755, &read(&linux.join("busybox")));
        archive.file("init", 0o755, INIT.as_bytes());
        archive.file(
            "script",
            0o644,
            format!("{PRELUDE}{}", self.script).as_bytes(),
        );
        let mut order = String::new();
        for module in self.module_files(linux) {
            let name = module
                .file_name()
                .expect("a module has a name")
                .to_string_lossy();
            let (bytes, name) = match name.rsplit_once('.') {
                Some((plain, "xz")) => (run(Command::new("xz").arg("-dc").arg(&module)), plain),
                Some((plain, "zst")) => (run(Command::new("zstd").arg("-dcq").arg(&module)), plain),
                _ => (read(&module), &*name),
            };
            archive.file(&format!("modules/{name}"), 0o644, &bytes);
            writeln!(order, "{name}").expect("strings grow");
        }
        archive.file("modules/order", 0o644, order.as_bytes());
        for (path, mode, contents) in &self.files {
            archive.file(path.trim_start_matches('/'), *mode, contents);
        }
        archive.finish()
    }

    /// Returns the requested modules and their dependencies, in load order.
    fn module_files(&self, linux: &Path) -> Vec<PathBuf> {
        let release = String::from_utf8(read(&linux.join("release"))).expect("a release is UTF-8");
        let mut files = Vec::new();
        for module in &self.modules {
            let mut modprobe = Program::Command(&["modprobe"]).command();
            modprobe
                .arg("-d")
                .arg(linux)
                .args(["-S", release.trim(), "--show-depends", module]);
            // Lines are `insmod PATH [PARAMETERS]`, or `builtin NAME` for built-in modules.
            for file in run_text(&mut modprobe)
                .lines()
                .filter_map(|line| line.strip_prefix("insmod "))
            {
                let file = PathBuf::from(file.split(' ').next().unwrap_or_default());
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        files
    }
}

impl Report {
    fn parse(printed: &str) -> Result<Self, String> {
        let mut sections = vec![(String::new(), Vec::new())];
        for line in printed.lines() {
            if let Some(status) = line.strip_prefix("@@ exit ") {
                let status = status
                    .trim()
                    .parse()
                    .map_err(|_| format!("ended with {line:?}"))?;
                return Ok(Self { sections, status });
            }
            if let Some(name) = line.strip_prefix("@@ ") {
                sections.push((name.into(), Vec::new()));
            } else if let Some((_, lines)) = sections.last_mut() {
                lines.push(line.into());
            }
        }
        Err("did not come to the end of its script".into())
    }

    /// Returns the lines of a section; none if the script never opened it.
    pub(crate) fn section(&self, name: &str) -> &[String] {
        self.sections
            .iter()
            .find(|(known, _)| known == name)
            .map_or(&[], |(_, lines)| lines)
    }

    /// Returns the kernel messages about `subject`.
    pub(crate) fn kernel_about(&self, subject: &str) -> Vec<&str> {
        self.section("kernel")
            .iter()
            .map(String::as_str)
            .filter(|line| line.contains(subject))
            .collect()
    }

    /// Fails the test unless every command of the script succeeded.
    pub(crate) fn succeeded(self) -> Self {
        let end = |lines: &[String]| lines[lines.len().saturating_sub(20)..].join("\n");
        // The last section is the kernel's.
        if let (false, [.., (name, lines), (_, kernel)]) = (self.status == 0, &self.sections[..]) {
            panic!(
                "the script failed in the guest: {}\n--- {name}\n{}\n--- kernel\n{}",
                self.status,
                end(lines),
                end(kernel)
            );
        }
        self
    }
}

/// Returns the kernel, decompressed if the install script could do that.
fn kernel(linux: &Path) -> PathBuf {
    let unpacked = linux.join("vmlinux");
    if unpacked.is_file() {
        unpacked
    } else {
        linux.join("vmlinuz")
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command for at most `timeout`; returns its output.
fn run_to_the_end(mut command: Command, timeout: Duration) -> String {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let console = drain(child.stdout.take());
    let complaints = drain(child.stderr.take());
    let ended = wait(&mut child, timeout);
    let printed = [console, complaints]
        .map(|thread| thread.join().expect("reading does not panic"))
        .concat();
    assert!(ended, "the guest did not end within {timeout:?}\n{printed}");
    printed
}

/// Reads a pipe to its end in a thread, so that its writer never blocks.
fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the child, and kills it at the timeout; returns true if it ended by itself.
fn wait(child: &mut Child, timeout: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < timeout {
        if child.try_wait().expect("waiting for a child").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
