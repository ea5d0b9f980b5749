//! Description of the machine of a run: enough to compare runs, nothing that identifies the
//! machine.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::units;

/// A machine, without its name or serial numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and its version.
    pub system: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of hardware threads.
    pub cores: usize,
    /// Bytes of memory; 0 if the system does not report it.
    pub memory: u64,
    /// File system type of the folder used.
    pub file_system: String,
}

impl fmt::Display for Machine {
    /// Formats all but the file system.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, ", self.processor, self.cores)?;
        if self.memory > 0 {
            write!(f, "{} of memory, ", units::bytes(self.memory))?;
        }
        f.write_str(&self.system)
    }
}

impl Machine {
    /// Returns a description of this machine, with the file system of `folder`.
    pub fn this(folder: &Path) -> Self {
        if cfg!(target_os = "macos") {
            return Self::of_mac(
                &said("/usr/sbin/sysctl", &SYSCTLS),
                &said("/sbin/mount", &[]),
                folder,
            );
        }
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .split_once(':')
                    .map(|(_, value)| value.trim().to_owned())
            })
        };
        // The rest names a build, and says nothing to anybody else.
        let release = read("/proc/sys/kernel/osrelease");
        let release = release
            .trim()
            .splitn(3, '.')
            .take(2)
            .collect::<Vec<_>>()
            .join(".");
        let memory = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            system: format!("Linux {release}").trim().to_owned(),
            processor: field(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or(0).saturating_mul(1024),
            file_system: file_system(folder, &read("/proc/self/mounts")),
        }
    }

    /// Returns a description of a Mac from the lines that `sysctl` and `mount` print.
    fn of_mac(sysctl: &str, mounts: &str, folder: &Path) -> Self {
        let value = |wanted: &str| {
            sysctl.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                (name == wanted).then(|| value.trim().to_owned())
            })
        };
        // `/dev/disk3s1s1 on / (apfs, sealed, local)` as a line of Linux.
        let mounts = mounts.lines().filter_map(|line| {
            let (source, rest) = line.split_once(" on ")?;
            let (point, options) = rest.rsplit_once(" (")?;
            let kind = options.split([',', ')']).next()?;
            Some(format!("{source} {} {kind}\n", point.replace(' ', "\\040")))
        });
        Self {
            system: format!(
                "macos {}",
                value("kern.osproductversion").unwrap_or_default()
            )
            .trim()
            .to_owned(),
            processor: value("machdep.cpu.brand_string")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: value("hw.memsize")
                .and_then(|bytes| bytes.parse().ok())
                .unwrap_or(0),
            file_system: file_system(folder, &mounts.collect::<String>()),
        }
    }
}

/// Names of the values that `sysctl` of a Mac is asked for.
const SYSCTLS: [&str; 3] = [
    "kern.osproductversion",
    "machdep.cpu.brand_string",
    "hw.memsize",
];

/// Returns what a program prints; nothing if it cannot be run.
fn said(program: &str, words: &[&str]) -> String {
    let output = std::process::Command::new(program).args(words).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Returns the file system type of `folder`: that of the mount with the longest matching path, the
/// last one if there are several.
fn file_system(folder: &Path, mounts: &str) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?.replace("\\040", " "), words.next()?);
        folder
            .starts_with(&point)
            .then(|| (point.len(), kind.to_owned()))
    });
    mounted
        .max_by_key(|(depth, _)| *depth)
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

/// Space in the file system of a folder, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct FileSystemSpace {
    /// Total bytes.
    pub total: u64,
    /// Bytes available to this user.
    pub free: u64,
}

impl FileSystemSpace {
    /// Returns the space of the file system of `folder`, which must exist.
    pub fn of(folder: &Path) -> bandsaw::Result<Self> {
        let failed = |source: rustix::io::Errno| {
            bandsaw::Error::io("benchmark", "read metadata", source).in_file(folder)
        };
        let found = rustix::fs::statvfs(folder).map_err(failed)?;
        Ok(Self {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            free: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    /// Returns the share of a disk's life that writing `bytes` takes: disks are commonly rated for
    /// 600 times their capacity.
    pub fn wear(&self, bytes: u64) -> f64 {
        const RATED: f64 = 600.0;
        bytes as f64 / (RATED * self.total.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_counts_is_the_nearest() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /proc tmpfs rw 0 0\n/dev/b /pro btrfs rw 0 0\n";
        assert_eq!(file_system(Path::new("/proc"), mounts), "tmpfs");
        assert_eq!(file_system(Path::new("/usr"), mounts), "ext4");
    }

    #[test]
    fn a_mac_is_described_by_its_commands() {
        let sysctl = "kern.osproductversion: 15.1\nmachdep.cpu.brand_string: Apple M4\n\
                      hw.memsize: 25769803776\n";
        let mounts = "/dev/disk3s1s1 on / (apfs, sealed, local)\n\
                      /dev/disk5s1 on /usr/My (old) disk (hfs, local)\n";
        let mac = Machine::of_mac(sysctl, mounts, Path::new("/usr"));
        assert_eq!(mac.system, "macos 15.1");
        assert_eq!(mac.processor, "Apple M4");
        assert_eq!(mac.memory, 24 << 30);
        assert_eq!(mac.file_system, "apfs");
        let silent = Machine::of_mac("", "", Path::new("/"));
        assert_eq!((&*silent.system, silent.memory), ("macos", 0));
    }

    #[test]
    fn a_machine_has_no_name() {
        let machine = Machine::this(Path::new("/"));
        assert!(machine.cores > 0 && !machine.system.is_empty());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let text = format!("{machine:?}");
        assert!(
            host.trim().len() < 4 || !text.contains(host.trim()),
            "{text}"
        );
        assert!(
            (FileSystemSpace {
                total: 1_000_000_000_000,
                free: 0
            }
            .wear(53_300_000_000)
                - 8.883e-5)
                .abs()
                < 1e-7
        );
    }
}
