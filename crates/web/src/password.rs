//! The password of visitors from other hosts, and limits on attempts to guess it.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use scrypt::Params;
use subtle::ConstantTimeEq;

/// Parameters of scrypt for new hashes: 16 MiB of memory, and a tenth of a second or two.
const LOG_N: u8 = 14;
const BLOCK_SIZE: u32 = 8;
const PARALLELISM: u32 = 5;
/// Largest parameters that a hash in a file may ask for: 64 MiB, and a few times the time.
const MAX_LOG_N: u8 = 16;
const MAX_PARALLELISM: u32 = 16;
/// Length of a salt in bytes, and of a hash.
const SALT_LEN: usize = 16;
const HASH_LEN: usize = 32;
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

/// The hash of a password (scrypt).
#[derive(Clone)]
pub struct Password {
    params: Params,
    salt: [u8; SALT_LEN],
    hash: [u8; HASH_LEN],
}

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
        let mut salt = [0; SALT_LEN];
        bandsaw::crypt::random(&mut salt)?;
        let failed = |_| Error::invalid("password", "cannot be hashed");
        let params = Params::new(LOG_N, BLOCK_SIZE, PARALLELISM).map_err(failed)?;
        let hash = derive(password, &salt, &params);
        Ok(Self { params, salt, hash })
    }

    /// Reads the hash in a file. [`Kind::Invalid`] if others may read the file, or if it does not
    /// hold a hash of scrypt within the limits of memory and time.
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
            refused("expected a hash of scrypt, as `bandsaw web --set-password` writes it")
        })
    }

    /// Returns the text for a file, in the PHC format.
    pub fn to_text(&self) -> String {
        let (log_n, r, p) = (self.params.log_n(), self.params.r(), self.params.p());
        let [salt, hash] = [&self.salt[..], &self.hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
        format!("$scrypt$ln={log_n},r={r},p={p}${salt}${hash}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix("$scrypt$ln=")?.split('$');
        let (log_n, others) = fields.next()?.split_once(",r=")?;
        let (r, p) = others.split_once(",p=")?;
        let (log_n, r, p) = (log_n.parse().ok()?, r.parse().ok()?, p.parse().ok()?);
        let is_bounded = log_n <= MAX_LOG_N && r == BLOCK_SIZE && p <= MAX_PARALLELISM;
        let [salt, hash] =
            [fields.next()?, fields.next()?].map(|text| STANDARD_NO_PAD.decode(text));
        if !is_bounded || fields.next().is_some() {
            return None;
        }
        Some(Self {
            params: Params::new(log_n, r, p).ok()?,
            salt: salt.ok()?.try_into().ok()?,
            hash: hash.ok()?.try_into().ok()?,
        })
    }

    /// Compares a password with the hash. Takes what the hash asks for: 16 MiB and a tenth of a
    /// second or two.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let hash = derive(given, &self.salt, &self.params);
        hash.ct_eq(&self.hash).into()
    }
}

fn derive(password: &[u8], salt: &[u8], params: &Params) -> [u8; HASH_LEN] {
    let mut hash = [0; HASH_LEN];
    scrypt::scrypt(password, salt, params, &mut hash).expect("32 bytes are a valid length");
    hash
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
        let text = password.to_text();
        let text = text.trim();
        assert!(Password::parse(text).unwrap().is(b"correct horse"));
        assert_eq!(Password::hash(b"short").unwrap_err().kind(), Kind::Invalid);
        let (salt, _) = text.rsplit_once('$').unwrap();
        let refused = [
            text.replace("ln=14", "ln=17"),
            text.replace("r=8", "r=8000"),
            text.replace("p=5", "p=500"),
            text.replace("scrypt", "argon2id"),
            text[..text.len() - 1].to_owned(),
            format!("{text}$"),
            format!("{salt}$"),
            salt.to_owned(),
            "secret".to_owned(),
            String::new(),
        ];
        for other in refused {
            assert!(
                other != text && Password::parse(&other).is_none(),
                "{other}"
            );
        }
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
