//! Mount options, and their parser for `-o` and fstab.

use bandsaw::fs::Timestamp;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;

/// Mount options of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Mounts the volume read-only.
    pub read_only: bool,
    /// Lets other users access it, subject to permissions.
    pub allow_other: bool,
    /// Respects recorded owners; otherwise, everything belongs to the mounting user. `None`: only
    /// if root mounts.
    pub owners: Option<bool>,
    /// Overrides the owner of everything.
    pub uid: Option<u32>,
    /// Overrides the group of everything.
    pub gid: Option<u32>,
    /// Permission bits that are cleared in every mode.
    pub umask: u16,
    /// Permits execution of programs.
    pub exec: bool,
    /// Respects setuid and setgid bits.
    pub suid: bool,
    /// Interprets device nodes.
    pub dev: bool,
    /// Enables the kernel's write-back cache for small writes. Programs then learn only from fsync
    /// and close that a volume is full.
    pub gather: bool,
    /// Lists names of HFS+ decomposed (NFD), as on disk and on macOS; otherwise composed (NFC), as
    /// programs on Linux write them.
    pub decomposed: bool,
    /// Latest date that is recorded, for mounts whose result must not depend on the time: these are synced
    /// only when a program asks for it and at the end. `None`: dates are not limited.
    pub epoch: Option<Timestamp>,
    /// Number of threads that serve the kernel; `None`: one with an epoch, otherwise depending on the
    /// number of processors.
    pub threads: Option<usize>,
    /// Source shown by `mount` and `df`.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            owners: None,
            uid: None,
            gid: None,
            umask: 0,
            exec: true,
            suid: false,
            dev: false,
            gather: false,
            decomposed: false,
            epoch: None,
            threads: None,
            source: SOURCE.to_owned(),
        }
    }
}

/// Default source.
const SOURCE: &str = "bandsaw";

/// Options of fstab that are addressed to other programs.
const NOT_OURS: [&str; 21] = [
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "async",
    "sync",
    "dirsync",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nodiratime",
    "default_permissions",
    "big_writes",
];

impl MountOptions {
    /// Parses a list of options such as `ro,uid=1000`. Options addressed to other programs are
    /// ignored; unrecognized ones are returned as name and value.
    pub fn apply<'a>(&mut self, list: &'a str) -> Result<Vec<(&'a str, Option<&'a str>)>> {
        let mut rest = Vec::new();
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option
                .split_once('=')
                .map_or((option, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("ro", None) => self.read_only = true,
                ("allow_other", None) => self.allow_other = true,
                ("owners", None) => self.owners = Some(true),
                ("noowners", None) => self.owners = Some(false),
                ("exec", None) => self.exec = true,
                ("noexec", None) => self.exec = false,
                ("suid", None) => self.suid = true,
                ("nosuid", None) => self.suid = false,
                ("dev", None) => self.dev = true,
                ("nodev", None) => self.dev = false,
                ("writeback", None) => self.gather = true,
                ("nfd", None) => self.decomposed = true,
                ("epoch", Some(value)) => {
                    let seconds = number(option, value, 10)?;
                    self.epoch = Some(Timestamp::from_seconds(seconds.into()));
                }
                ("uid", Some(value)) => self.uid = Some(number(option, value, 10)?),
                ("gid", Some(value)) => self.gid = Some(number(option, value, 10)?),
                ("umask", Some(value)) => self.umask = (number(option, value, 8)? & 0o777) as u16,
                ("threads", Some(value)) => {
                    self.threads = Some(threads(value)?);
                }
                ("fsname", Some(value)) => self.source = value.to_owned(),
                (name, None) if NOT_OURS.contains(&name) => {}
                (name, _) if name.starts_with("x-") || name == "comment" => {}
                other => rest.push(other),
            }
        }
        Ok(rest)
    }
}

fn number(option: &str, value: &str, radix: u32) -> Result<u32> {
    u32::from_str_radix(value, radix)
        .map_err(|_| Error::new(Kind::Invalid, LAYER, "expected a number").named(option))
}

/// Most threads of a mount. Each holds a buffer of 16 MiB for the largest request.
const MAX_THREADS: u32 = 64;

fn threads(value: &str) -> Result<usize> {
    match number("threads", value, 10)? {
        count @ 1..=MAX_THREADS => Ok(count as usize),
        _ => Err(Error::new(
            Kind::Invalid,
            LAYER,
            format!("must be between 1 and {MAX_THREADS}"),
        )
        .named("threads")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_apart() {
        let mut options = MountOptions::default();
        let rest = options.apply("ro,uid=1000,gid=100,umask=022,noauto,x-systemd.automount,nofail,passfile=/k,as_disk").unwrap();
        assert_eq!(rest, [("passfile", Some("/k")), ("as_disk", None)]);
        assert!(
            options.read_only
                && options.uid == Some(1000)
                && options.gid == Some(100)
                && options.umask == 0o22
        );
        assert!(
            options
                .apply("uid=me")
                .unwrap_err()
                .to_string()
                .contains("uid=me")
        );
        assert_eq!(options.apply("rw,,suid,nfd").unwrap(), []);
        assert!(options.suid && options.decomposed);
        for (count, is_valid) in [("0", false), ("1", true), ("64", true), ("65", false)] {
            let list = format!("threads={count}");
            assert_eq!(options.apply(&list).is_ok(), is_valid, "{count}");
        }
        assert_eq!(options.threads, Some(64));
        options.apply("epoch=1700000000").unwrap();
        assert_eq!(options.epoch, Some(Timestamp::from_seconds(1_700_000_000)));
        assert_eq!(options.apply("compress").unwrap(), [("compress", None)]);
    }
}
