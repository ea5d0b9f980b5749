//! The password of visitors from other hosts, and limits on attempts to guess it.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};

/// Largest memory in KiB that a hash in a file may ask for.
const MAX_MEMORY: u32 = 64 << 10;
/// Largest number of passes that a hash in a file may ask for.
const MAX_PASSES: u32 = 16;
/// Maximum length of a password file in bytes.
const MAX_FILE: u64 = 4096;
/// Shortest password in bytes.
const SHORTEST: usize = 8;

/// Time in which failures count.
const WINDOW: Duration = Duration::from_secs(5 * 60);
/// Failures within [`WINDOW`] after which an address, or everybody, is refused.
const PER_ADDRESS: usize = 5;
const IN_ALL: usize = 50;
/// Addresses that are remembered.
const ADDRESSES: usize = 4096;

/// The hash of a password (argon2id), as text in the PHC format.
#[derive(Clone)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Password {
    /// Computes the hash of a new password. [`Kind::Invalid`] if it is shorter than 8 bytes.
    pub fn hash(password: &[u8]) -> Result<Self> {
        if password.len() < SHORTEST {
            let message = format!("too short: at least {SHORTEST} bytes are required");
            return Err(Error::invalid("password", message));
        }
        let mut salt = [0; 16];
        bandsaw::crypt::random(&mut salt)?;
        let failed = |_| Error::invalid("password", "cannot be hashed");
        let salt = SaltString::encode_b64(&salt).map_err(failed)?;
        let hash = Argon2::default()
            .hash_password(password, &salt)
            .map_err(failed)?;
        Ok(Self(hash.to_string()))
    }

    /// Reads the hash in a file. [`Kind::Invalid`] if others may read the file, or if it does not
    /// hold a hash of argon2id within the limits of memory and time.
    pub fn from_file(path: &Path) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |source| Error::io("password", "read", source).in_file(path);
        let refused = |why: &'static str| Error::new(Kind::Invalid, "password", why).in_file(path);
        let meta = fs::metadata(path).map_err(failed)?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(refused("others may read the file: run `chmod 600` on it"));
        }
        if meta.len() > MAX_FILE {
            return Err(refused("longer than a hash of a password"));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        Self::parse(text.trim()).ok_or_else(|| {
            refused("expected a hash of argon2id, as `bandsaw web --set-password` writes it")
        })
    }

    /// Returns the text for a file.
    pub fn to_text(&self) -> String {
        format!("{}\n", self.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let hash = PasswordHash::new(text).ok()?;
        let is_argon2id = hash.algorithm.as_str() == "argon2id";
        let params = Params::try_from(&hash).ok()?;
        let is_bounded = params.m_cost() <= MAX_MEMORY && params.t_cost() <= MAX_PASSES;
        (is_argon2id && is_bounded && hash.hash.is_some()).then(|| Self(text.to_owned()))
    }

    /// Compares a password with the hash. Takes a tenth of a second and 19 MiB or what the hash asks
    /// for.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        PasswordHash::new(&self.0)
            .is_ok_and(|hash| Argon2::default().verify_password(given, &hash).is_ok())
    }
}

/// The recent failures of visitors.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failures: Mutex<HashMap<Option<IpAddr>, Vec<Instant>>>,
}

impl Attempts {
    /// Counts an attempt as a failure, unless there were too many. The caller calls
    /// [`succeeded`](Self::succeeded) if it was none: attempts under way count too, so that many at
    /// the same time are no way around the limit.
    pub(crate) fn begin(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let mut failures = self.failures.lock();
        failures.retain(|_, times| {
            times.retain(|time| now.saturating_duration_since(*time) < WINDOW);
            !times.is_empty()
        });
        let all: usize = failures.values().map(Vec::len).sum();
        if all >= IN_ALL || failures.len() >= ADDRESSES {
            return false;
        }
        let own = failures.entry(address.map(network)).or_default();
        let allowed = own.len() < PER_ADDRESS;
        if allowed {
            own.push(now);
        }
        allowed
    }

    /// Forgets the failures of an address.
    pub(crate) fn succeeded(&self, address: Option<IpAddr>) {
        self.failures.lock().remove(&address.map(network));
    }
}

/// Returns the network of one subscriber: of IPv6 the first 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_verified_and_bounded() {
        let password = Password::hash(b"correct horse").unwrap();
        assert!(password.is(b"correct horse") && !password.is(b"correct hors"));
        assert!(Password::parse(password.to_text().trim()).is_some());
        assert_eq!(Password::hash(b"short").unwrap_err().kind(), Kind::Invalid);
        let huge = password.0.replace("m=19456", "m=4194304");
        assert!(huge != password.0 && Password::parse(&huge).is_none());
        let other = password.0.replace("argon2id", "argon2i");
        assert!(Password::parse(&other).is_none());
        assert!(Password::parse("secret").is_none() && Password::parse("").is_none());
    }

    #[test]
    fn files_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, Password::hash(b"correct horse").unwrap().to_text()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Password::from_file(&path).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Password::from_file(&path).unwrap().is(b"correct horse"));
    }

    #[test]
    fn attempts_are_limited_by_address_and_in_all() {
        let (attempts, begin) = (Attempts::default(), Instant::now());
        let address = |last: u16| Some(IpAddr::from([0x2001, 0xdb8, 0, last, 0, 0, 0, last]));
        assert!((0..PER_ADDRESS).all(|_| attempts.begin(address(1), begin)));
        assert!(!attempts.begin(address(1), begin));
        assert!(attempts.begin(address(2), begin));
        attempts.succeeded(address(2));
        assert!(attempts.begin(address(1), begin + WINDOW));
        let begin = begin + 3 * WINDOW;
        let allowed = (0..1000).filter(|last| attempts.begin(address(*last), begin));
        assert_eq!(allowed.count(), IN_ALL);
    }
}
