//! How a volume is mounted, and what `-o` and fstab say of that.

use bandsaw::{Error, Kind, Result};

use crate::LAYER;

/// How a volume is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users may look at it, too, as far as permissions let them.
    pub allow_other: bool,
    /// Whether recorded owners count. Where they do not, everything is the mounter's. `None`: they
    /// do if root mounts.
    pub owners: Option<bool>,
    /// The owner of everything, whatever is recorded.
    pub uid: Option<u32>,
    /// The group of everything, whatever is recorded.
    pub gid: Option<u32>,
    /// Bits that no mode has.
    pub umask: u16,
    /// Programs on it can be started.
    pub exec: bool,
    /// Programs on it can be set to run as their owner.
    pub suid: bool,
    /// Device nodes on it are devices.
    pub dev: bool,
    /// The kernel gathers small writes. Programs then learn only from fsync and close that a volume
    /// is full.
    pub gather: bool,
    /// Names of HFS+ are listed decomposed (NFD), as on disk and on macOS. Else composed (NFC), as
    /// programs on Linux write them.
    pub decomposed: bool,
    /// Threads that answer the kernel; `None`: as many as fit the machine.
    pub threads: Option<usize>,
    /// What `mount` and `df` show as the source.
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
            threads: None,
            source: SOURCE.to_owned(),
        }
    }
}

/// Where nothing better is known.
const SOURCE: &str = "bandsaw";

/// What fstab says to others than the file system.
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
    /// Takes a list of options apart, as in `ro,uid=1000`. What is meant for others than mounts is
    /// passed over; what is not known here is returned for the caller to know: name and value.
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
                ("uid", Some(value)) => self.uid = Some(number(option, value, 10)?),
                ("gid", Some(value)) => self.gid = Some(number(option, value, 10)?),
                ("umask", Some(value)) => self.umask = (number(option, value, 8)? & 0o777) as u16,
                ("threads", Some(value)) => {
                    self.threads = Some(number(option, value, 10)?.clamp(1, 256) as usize)
                }
                ("fsname", Some(value)) => self.source = value.to_owned(),
                (name, None) if NOT_OURS.contains(&name) => {}
                (name, _) if name.starts_with("x-") || name == "comment" => {}
                other => rest.push(other),
            }
        }
        Ok(rest)
    }

    /// The same for a caller that knows no other options.
    pub fn apply_all(&mut self, list: &str) -> Result<()> {
        match self.apply(list)?.first() {
            Some((name, _)) => {
                Err(Error::new(Kind::Invalid, LAYER, "is no option of a mount").named(*name))
            }
            None => Ok(()),
        }
    }
}

fn number(option: &str, value: &str, radix: u32) -> Result<u32> {
    u32::from_str_radix(value, radix)
        .map_err(|_| Error::new(Kind::Invalid, LAYER, "a number expected").named(option))
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
        assert!(options.apply_all("rw,,suid,nfd").is_ok() && options.suid && options.decomposed);
        assert!(
            options
                .apply_all("compress")
                .unwrap_err()
                .to_string()
                .contains("compress")
        );
    }
}
