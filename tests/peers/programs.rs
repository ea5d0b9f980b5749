//! Other programs: their paths, and running them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program that a test requires on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    /// A command with one of these names.
    Command(&'static [&'static str]),
    /// A module of the distribution's own Python, whose bindings no other Python can load.
    PythonModule(&'static str),
    /// A module of the separate Python with the other readers.
    PeerModule(&'static str),
    /// FUSE, and the program with which unprivileged users mount.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "volumes are mounted on Linux alone")
    )]
    Fuse,
    /// The Linux kernel, its modules and a static busybox, unpacked for the emulator.
    GuestLinux,
    /// A module that was built for that kernel.
    GuestModule(&'static str),
    /// A module of Samba for file systems, of which distributions make packages of their own.
    SambaModule(&'static str),
    /// The command of this project, if it is built with the tests.
    Bandsaw,
}

/// The distribution's own Python, regardless of the path.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
pub(crate) const SEVEN_ZIP: Program = Program::Command(&["7zz", "7z"]);

impl Program {
    /// Returns its path, or the reason why it cannot be used.
    pub(crate) fn find(self) -> Result<PathBuf, String> {
        match self {
            Self::Command(names) => names
                .iter()
                .find_map(|name| in_path(name))
                .ok_or(format!("no {}", names.join(" or "))),
            Self::PythonModule(name) => {
                let import = Command::new(PYTHON)
                    .args(["-c", &format!("import {name}")])
                    .stderr(Stdio::null())
                    .status();
                if import.is_ok_and(|status| status.success()) {
                    Ok(PYTHON.into())
                } else {
                    Err(format!("{PYTHON} has no module {name}"))
                }
            }
            Self::PeerModule(name) => {
                let python = peer_python();
                let import = Command::new(&python)
                    .args(["-c", &format!("import {name}")])
                    .stderr(Stdio::null())
                    .status();
                if import.is_ok_and(|status| status.success()) {
                    Ok(python)
                } else {
                    Err(format!("{} has no module {name}", python.display()))
                }
            }
            Self::Fuse => {
                let device = "/dev/fuse";
                let opened = std::fs::File::options().read(true).write(true).open(device);
                opened.map_err(|error| format!("{device}: {error}"))?;
                in_path("fusermount3").ok_or("no fusermount3".to_owned())
            }
            Self::GuestLinux => {
                let folder = cache().join("guest");
                if folder.join("release").is_file() {
                    Ok(folder)
                } else {
                    Err("no Linux kernel for the emulator".into())
                }
            }
            Self::GuestModule(name) => {
                let folder = Self::GuestLinux.find()?;
                let release = std::fs::read_to_string(folder.join("release")).unwrap_or_default();
                let module = folder
                    .join("lib/modules")
                    .join(release.trim())
                    .join("extra")
                    .join(format!("{name}.ko"));
                if module.is_file() {
                    Ok(module)
                } else {
                    Err(format!("no module {name} for the emulator's kernel"))
                }
            }
            Self::SambaModule(name) => {
                let libraries = ["/usr/lib", "/usr/lib64"].map(Path::new);
                let nested = std::fs::read_dir(libraries[0])
                    .into_iter()
                    .flatten()
                    .flatten();
                let nested = nested.map(|entry| entry.path());
                let folders = libraries.into_iter().map(PathBuf::from).chain(nested);
                let mut modules = folders.map(|folder| folder.join(format!("samba/vfs/{name}.so")));
                modules
                    .find(|module| module.is_file())
                    .ok_or(format!("no module {name} of Samba"))
            }
            Self::Bandsaw => {
                let tests = std::env::current_exe().map_err(|error| error.to_string())?;
                let command = tests
                    .ancestors()
                    .nth(2)
                    .map(|folder| folder.join("bandsaw"));
                command
                    .filter(|path| path.is_file())
                    .ok_or("bandsaw is not built: `cargo build -p bandsaw-cli`".into())
            }
        }
    }

    /// Returns a command that runs it.
    pub(crate) fn command(self) -> Command {
        Command::new(self.find().unwrap_or_else(|why| panic!("{why}")))
    }
}

/// Returns the Python with the other readers: `BANDSAW_PEER_PYTHON`, or the one that is installed
/// for the tests.
pub(crate) fn peer_python() -> PathBuf {
    let set = std::env::var_os("BANDSAW_PEER_PYTHON").filter(|value| !value.is_empty());
    set.map_or_else(|| cache().join("peer-python/bin/python"), PathBuf::from)
}

/// Returns the folder that `scripts/install-test-tools` fills; it must match `scripts/test-cache`.
fn cache() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("BANDSAW_TEST_CACHE")
        .or_else(|| {
            Some(
                set("XDG_CACHE_HOME")
                    .or_else(|| Some(set("HOME")?.join(".cache")))?
                    .join("bandsaw-tests"),
            )
        })
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bandsaw-tests"))
}

/// Returns the path of the command `name`, searching the path, the system folders, and the programs
/// compiled for the tests.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let compiled = cache().join("cargo/bin");
    std::env::split_paths(&path)
        .chain(system)
        .chain([compiled])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        everything(&output)
    );
    output.stdout
}

/// Runs a command as [`run`] does; returns its output as text.
pub(crate) fn run_text(command: &mut Command) -> String {
    let bytes = run(command);
    String::from_utf8(bytes).unwrap_or_else(|error| panic!("{command:?} printed no UTF-8: {error}"))
}

/// Runs a command, which may fail, with a fixed language and time zone.
pub(crate) fn output(command: &mut Command) -> Output {
    command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Formats all output of a command for a message.
pub(crate) fn everything(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Quotes a path for a comma-separated option of QEMU, by doubling commas.
pub(crate) fn qemu_value(path: &OsStr) -> String {
    path.to_str()
        .expect("scratch paths are UTF-8")
        .replace(',', ",,")
}
