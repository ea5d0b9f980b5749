//! Causes of failing backups that are not the bundle's, as far as the server can tell.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use bandsaw::{Error, Result, size};
use bandsaw_backups::quota_of_share;

/// Maximum length of a description of Samba, in bytes.
const MAX_LEN: u64 = 16 << 20;
/// Number of folders above a bundle in which a quota is looked for.
const ABOVE: usize = 3;
/// The free space below which a file system is almost full: bytes, and the part of its size.
const LITTLE: (u64, u64) = (1 << 30, 100);
/// Percent of a quota from which it is told.
const NEAR: u64 = 95;

/// Causes of backups that stopped, which a server cannot see. Sources: docs/nas.md.
pub(super) const UNSEEN: [&str; 2] = [
    "perhaps the Mac has macOS 26.4 or 15.7.5, which cannot back up to any share: update to 26.5 or later",
    "perhaps the Mac or a disk of the server sleeps, and takes longer to wake than the Mac waits",
];

/// Returns a reason if the file system of the bundle is almost full.
pub(super) fn full_host(path: &Path) -> Option<String> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let free = stat.f_bavail.checked_mul(stat.f_frsize)?;
    let total = stat.f_blocks.checked_mul(stat.f_frsize)?;
    is_almost_full(free, total).then(|| {
        format!(
            "the file system of the bundle is almost full: {} of {} are free",
            size::display(free),
            size::display(total)
        )
    })
}

fn is_almost_full(free: u64, total: u64) -> bool {
    total > 0 && free < LITTLE.0 && free < total / LITTLE.1
}

/// Returns a cause if a quota of the shared folder is used up. `allocated` is the storage of the
/// bundle.
pub(super) fn quota(path: &Path, allocated: Option<u64>) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let (folder, found) = path.ancestors().skip(1).take(ABOVE).find_map(|folder| {
        let found = quota_of_share(folder).transpose()?;
        Some((folder.display().to_string(), found))
    })?;
    let limit = match found {
        Err(error) => return Some(format!("the quota of the share cannot be read: {error}")),
        Ok(limit) => limit,
    };
    is_near(allocated?, limit).then(|| {
        format!(
            "the quota of {} in {folder} is almost used up, so that macOS removes old backups",
            size::display(limit)
        )
    })
}

fn is_near(used: u64, limit: u64) -> bool {
    limit > 0 && u128::from(used) * 100 >= u128::from(limit) * u128::from(NEAR)
}

/// The configuration of a Samba server.
#[derive(Debug, Default)]
pub struct Samba {
    version: Option<[u32; 3]>,
    shares: Vec<Share>,
}

/// A share, with the parameters that matter here.
#[derive(Debug, Default)]
struct Share {
    name: String,
    path: Option<PathBuf>,
    modules: Option<String>,
    is_for_backups: bool,
    max_size: Option<String>,
}

impl Samba {
    /// Reads the output of `smbd --version; testparm -s` from a file, of which 16 MiB count.
    ///
    /// [`Kind::Invalid`](bandsaw::Kind::Invalid) if it tells neither a version nor a share.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |source| Error::io("samba", "read", source).in_file(path);
        let file = fs::File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_LEN).read_to_end(&mut bytes).map_err(failed)?;
        let samba = Self::parse(&String::from_utf8_lossy(&bytes));
        if samba.version.is_none() && samba.shares.is_empty() {
            let message = "expected the output of `smbd --version; testparm -s`";
            return Err(Error::invalid("samba", message).in_file(path));
        }
        Ok(samba)
    }

    fn parse(text: &str) -> Self {
        let mut samba = Self::default();
        let mut global = Share::default();
        for line in text.lines().map(str::trim) {
            if let Some(version) = line.strip_prefix("Version ") {
                samba.version = parse_version(version);
            } else if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                samba.shares.push(Share {
                    name: name.to_owned(),
                    ..Share::default()
                });
            } else if let Some((key, value)) = line.split_once('=') {
                let share = samba.shares.last_mut().unwrap_or(&mut global);
                share.set(&key.trim().to_lowercase(), value.trim());
            }
        }
        // Shares have the parameters of [global] that they do not set.
        let is_global = |share: &Share| share.name.eq_ignore_ascii_case("global");
        if let Some(at) = samba.shares.iter().position(is_global) {
            let global = samba.shares.remove(at);
            for share in &mut samba.shares {
                share.is_for_backups |= global.is_for_backups;
                share.modules = share.modules.take().or_else(|| global.modules.clone());
                share.max_size = share.max_size.take().or_else(|| global.max_size.clone());
            }
        }
        samba
    }

    /// Returns causes in the configuration of the share with the bundle at `path`.
    pub(super) fn causes(&self, path: &Path, allocated: Option<u64>) -> Vec<String> {
        let mut causes = Vec::new();
        if let Some(version) = self.version.filter(|version| refuses_renames(*version)) {
            let [major, minor, patch] = version;
            causes.push(format!(
                "Samba {major}.{minor}.{patch} refuses renames that macOS makes (bug 15926): update \
                 to 4.22.6, 4.23.3 or later"
            ));
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // The innermost share.
        let of_path = |share: &&Share| share.depth_above(&path).is_some();
        let shares = self.shares.iter().filter(of_path);
        let Some(share) = shares.max_by_key(|share| share.depth_above(&path)) else {
            return causes;
        };
        let name = &share.name;
        let has = |module: &str| {
            let modules = share.modules.as_deref().unwrap_or_default();
            modules.split_whitespace().any(|one| one == module)
        };
        if !has("fruit") {
            causes.push(format!(
                "the share {name} has no `vfs objects` with fruit, which Time Machine requires"
            ));
        }
        if !share.is_for_backups {
            causes.push(format!(
                "the share {name} has no `fruit:time machine = yes`"
            ));
        }
        let limit = share.max_size.as_deref().and_then(samba_size);
        if let (Some(limit), Some(used)) = (limit, allocated)
            && is_near(used, limit)
        {
            causes.push(format!(
                "the share {name} is limited to {} (`fruit:time machine max size`), which are almost \
                 used up",
                size::display(limit)
            ));
        }
        causes
    }
}

impl Share {
    fn set(&mut self, key: &str, value: &str) {
        match key {
            "path" => self.path = Some(fixed_part(value)),
            "vfs objects" => self.modules = Some(value.to_owned()),
            "fruit:time machine" => {
                let value = value.to_lowercase();
                self.is_for_backups = matches!(&*value, "yes" | "true" | "1" | "on");
            }
            "fruit:time machine max size" => self.max_size = Some(value.to_owned()),
            _ => {}
        }
    }

    /// Returns the number of parts of the share's path if `path` is below it.
    fn depth_above(&self, path: &Path) -> Option<usize> {
        let own = self.path.as_ref()?;
        let own = fs::canonicalize(own).unwrap_or_else(|_| own.clone());
        (own.parent().is_some() && path.starts_with(&own)).then(|| own.components().count())
    }
}

/// Returns the path before the first part with a variable, such as `%U`.
fn fixed_part(path: &str) -> PathBuf {
    let parts = Path::new(path).components();
    parts
        .take_while(|part| !part.as_os_str().to_string_lossy().contains('%'))
        .collect()
}

fn parse_version(text: &str) -> Option<[u32; 3]> {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    let mut numbers = digits.map(|part| part.parse().ok());
    Some([
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ])
}

/// Returns true for versions that refuse to rename folders with open files, which macOS does.
fn refuses_renames(version: [u32; 3]) -> bool {
    match version {
        [4, 22, patch] => patch < 6,
        [4, 23, patch] => patch < 3,
        _ => false,
    }
}

/// Parses a size of vfs_fruit: a number with K, M, G, T or P.
fn samba_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().chars().next() {
        None => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some('P') => 50,
        Some(_) => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "Version 4.22.3-Debian
# Global parameters
[global]
\tserver string = a
\tvfs objects = catia fruit streams_xattr

[homes]
\tpath = /home/%U

[tm]
\tfruit:time machine max size = 2T
\tfruit:time machine = yes
\tpath = /nowhere/tm/%U

[plain]
\tpath = /nowhere/plain
\tvfs objects = acl_xattr
";

    #[test]
    fn the_share_of_a_bundle_is_judged() {
        let samba = Samba::parse(CONFIG);
        let bundle = Path::new("/nowhere/tm/anna/Mac.sparsebundle");
        let causes = samba.causes(bundle, Some(1 << 40));
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert!(causes[0].contains("4.22.3") && causes[0].contains("15926"));
        let causes = samba.causes(bundle, Some(2 << 40));
        assert_eq!(causes.len(), 2, "{causes:?}");
        assert!(causes[1].contains("max size"), "{causes:?}");
        let fixed = CONFIG.replace("4.22.3", "4.22.6");
        assert!(Samba::parse(&fixed).causes(bundle, None).is_empty());
        let causes = Samba::parse(&fixed).causes(Path::new("/nowhere/plain/a"), None);
        assert_eq!(causes.len(), 2, "{causes:?}");
        // A share that is not in the file.
        assert!(
            Samba::parse(&fixed)
                .causes(Path::new("/other/a"), None)
                .is_empty()
        );
    }

    #[test]
    fn versions_with_the_fault_are_known() {
        for (text, is_faulty) in [
            ("4.21.9", false),
            ("4.22.0", true),
            ("4.22.5-Debian-4.22.5+dfsg-1", true),
            ("4.22.6", false),
            ("4.23.2", true),
            ("4.23.3", false),
            ("4.24.0rc1", false),
        ] {
            let version = parse_version(text).unwrap();
            assert_eq!(refuses_renames(version), is_faulty, "{text}");
        }
        for text in ["", "4", "x.y.z", "99999999999.1.1"] {
            assert_eq!(parse_version(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_those_of_samba() {
        assert_eq!(samba_size("500G"), Some(500 << 30));
        assert_eq!(samba_size("1 TB"), Some(1 << 40));
        for text in ["", "G", "x", "5X", "99999999P", "é"] {
            assert_eq!(samba_size(text), None, "{text}");
        }
    }

    #[test]
    fn little_space_is_little_in_both_ways() {
        assert!(is_almost_full(100 << 20, 4 << 40));
        assert!(!is_almost_full(100 << 20, 1 << 30));
        assert!(!is_almost_full(2 << 30, 4 << 40));
        assert!(is_near(95, 100) && !is_near(94, 100) && !is_near(5, 0));
        assert!(is_near(u64::MAX, u64::MAX));
    }
}
