//! The state that all requests share.

use std::sync::Arc;
use std::time::Instant;

use bandsaw::{Error, Kind, Result};
use tokio::sync::Semaphore;

use crate::change_log::ChangeLog;
use crate::health::HealthTable;
use crate::job::Jobs;
use crate::memory::Memory;
use crate::open_images::{OpenImage, OpenImages, VolumeId};
use crate::options::{Bind, Limits, Options, Permissions};
use crate::password::{Attempts, Password};
use crate::query::Fields;
use crate::roots::{ImageId, Located, Roots, URL_ROOT};
use crate::session::{Session, Sessions};
use crate::token::Token;
use crate::visitor_folders::VisitorFolders;

/// Hexadecimal digits of the folder below which all pages are, unless visitors come from elsewhere.
const FOLDER: usize = 16;

/// Uploads at a time.
const UPLOADS: usize = 4;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) limits: Limits,
    pub(crate) sessions: Sessions,
    pub(crate) roots: Roots,
    pub(crate) images: OpenImages,
    pub(crate) memory: Memory,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) jobs: Jobs,
    pub(crate) health: HealthTable,
    /// Passphrases are tried two at a time.
    pub(crate) unlock_turn: Semaphore,
    pub(crate) site: Site,
    pub(crate) login: Option<Login>,
    pub(crate) permissions: Permissions,
    pub(crate) uploads: VisitorFolders,
    pub(crate) restores: VisitorFolders,
    pub(crate) upload_turns: Arc<Semaphore>,
    pub(crate) log: ChangeLog,
}

/// The password of visitors from elsewhere.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) password: Password,
    pub(crate) attempts: Attempts,
    /// Passwords are compared one at a time: each takes much memory.
    pub(crate) turn: Semaphore,
}

/// The address of the server, as visitors may name it.
#[derive(Debug)]
pub(crate) struct Site {
    /// The path of the first page, with a slash at both ends. Cookies are sent for it alone, not to
    /// other servers of this host.
    pub(crate) base: String,
    pub(crate) hosts: Hosts,
    pub(crate) is_encrypted: bool,
}

/// Values of the field `Host` that name this server.
#[derive(Debug)]
pub(crate) enum Hosts {
    /// These, with their ports.
    Exactly(Vec<String>),
    /// Names of this host with any port or without one: a socket has none, and a tunnel to it has
    /// one that only the visitor knows.
    AnyPort,
}

impl Hosts {
    /// Returns true if a field `Host` names this server.
    pub(crate) fn contains(&self, host: &str) -> bool {
        match self {
            Self::Exactly(known) => known.iter().any(|known| known.eq_ignore_ascii_case(host)),
            Self::AnyPort => {
                let name = match host.rsplit_once(':') {
                    Some((name, port))
                        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
                    {
                        name
                    }
                    _ => host,
                };
                ["localhost", "127.0.0.1", "[::1]"]
                    .iter()
                    .any(|own| own.eq_ignore_ascii_case(name))
            }
        }
    }
}

impl App {
    /// Returns the state of a server, and the one-time token.
    pub(crate) fn new(options: &Options, roots: Roots, hosts: Hosts) -> Result<(Self, String)> {
        let limits = options.limits.clone();
        let (sessions, invitation) = Sessions::new(&limits, Instant::now())?;
        let login = match &options.bind {
            Bind::Public(public) => Some(Login {
                password: public.password.clone(),
                attempts: Attempts::default(),
                turn: Semaphore::new(1),
            }),
            _ => None,
        };
        let base = match &options.bind {
            Bind::Public(_) => "/".to_owned(),
            _ => {
                let token = Token::new()?;
                let folder: String = token.reveal().chars().take(FOLDER).collect();
                format!("/{folder}/")
            }
        };
        let app = Self {
            sessions,
            roots,
            images: OpenImages::new(limits.images),
            memory: Memory::new(limits.memory, limits.wait_time),
            requests: Arc::new(Semaphore::new(limits.requests.max(1))),
            jobs: Jobs::default(),
            health: HealthTable::default(),
            unlock_turn: Semaphore::new(2),
            site: Site {
                base,
                hosts,
                is_encrypted: login.is_some(),
            },
            login,
            limits,
            permissions: options.permissions.clone(),
            uploads: VisitorFolders::open(&options.permissions.upload_folders)?,
            restores: VisitorFolders::open(&options.permissions.restore_folders)?,
            upload_turns: Arc::new(Semaphore::new(UPLOADS)),
            log: ChangeLog::new(options.permissions.log.clone()),
        };
        Ok((app, invitation))
    }

    /// Returns the image that a query names, opened with the keys of the session.
    pub(crate) fn open(&self, session: &Session, target: &Target) -> Result<Arc<OpenImage>> {
        let located = self.locate(&target.image)?;
        self.open_located(session, target, located)
    }

    fn open_located(
        &self,
        session: &Session,
        target: &Target,
        located: Located,
    ) -> Result<Arc<OpenImage>> {
        let id = &target.image;
        let keys = session.keys().of(id, Instant::now());
        let had_keys = keys.is_some();
        let image = self.images.get(id, located, session.number(), keys)?;
        // It may have been locked while it was opened.
        if had_keys && !session.keys().knows(id) {
            self.images.revoke(session.number(), Some(id));
        }
        image.check()?;
        Ok(image)
    }

    /// Finds an image.
    pub(crate) fn locate(&self, id: &ImageId) -> Result<Located> {
        self.roots.locate(id)
    }

    /// Forgets the passphrases of a session for an image or for all, and closes what they opened.
    pub(crate) fn lock(&self, session: &Session, id: Option<&ImageId>) {
        match id {
            Some(id) => session.keys().remove(id),
            None => session.keys().clear(),
        }
        self.images.revoke(session.number(), id);
        self.jobs.cancel(session.number(), id);
    }

    /// Ends what has been unused for too long.
    pub(crate) fn tidy(&self, now: Instant) {
        // A job is use of its session and of the passphrases of its image.
        let open = self.sessions.all();
        for (number, image) in self.jobs.unfinished() {
            if let Some(session) = open.iter().find(|session| session.number() == number) {
                session.touch(now);
                drop(session.keys().of(&image, now));
            }
        }
        for number in self.sessions.expire(now) {
            self.images.revoke(number, None);
            self.jobs.remove(number);
        }
        for session in self.sessions.all() {
            for id in session.keys().expire(self.limits.key_time, now) {
                self.images.revoke(session.number(), Some(&id));
                self.jobs.cancel(session.number(), Some(&id));
            }
        }
        self.images.close_idle(now);
    }
}

/// The target of a query: an image, and perhaps a volume and a path in it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) image: ImageId,
    pub(crate) volume: Option<VolumeId>,
    /// The path in the volume, with a slash first.
    pub(crate) path: String,
}

impl Target {
    /// Reads a query: `r` is the number of a root or `url`, `i` the path below it or the URL, `b` a
    /// snapshot of a bundle, `v` the volume as `PARTITION` or `PARTITION.NUMBER`, `s` a snapshot of
    /// the volume, `p` the path.
    pub(crate) fn parse(query: &Fields) -> Result<Self> {
        let invalid = || Error::new(Kind::Invalid, "address", "expected the address of an image");
        let root = match query.text("r") {
            Some(URL_ROOT) => None,
            Some(number) => Some(number.parse().map_err(|_| invalid())?),
            None => return Err(invalid()),
        };
        let image = ImageId {
            root,
            path: query.bytes("i").unwrap_or_default().to_vec(),
            snapshot: query.text("b").map(str::to_owned),
        };
        let volume = match query.text("v") {
            None => None,
            Some(text) => {
                let (partition, number) = match text.split_once('.') {
                    Some((partition, number)) => {
                        (partition, Some(number.parse().map_err(|_| invalid())?))
                    }
                    None => (text, None),
                };
                Some(VolumeId {
                    partition: partition.parse().map_err(|_| invalid())?,
                    number,
                    snapshot: query.text("s").map(str::to_owned),
                })
            }
        };
        let path = query.text("p").unwrap_or("/");
        Ok(Self {
            image,
            volume,
            path: format!("/{}", path.trim_matches('/')),
        })
    }

    /// Returns the volume, without which most pages are of no use.
    pub(crate) fn volume(&self) -> Result<&VolumeId> {
        let missing = || Error::new(Kind::Invalid, "address", "expected the number of a volume");
        self.volume.as_ref().ok_or_else(missing)
    }

    /// Returns the address of a page about the same thing, with further fields.
    pub(crate) fn address(&self, page: &str, more: &[(&str, &[u8])]) -> String {
        let root = self.image.root_text();
        let mut fields = vec![("r", root.as_bytes()), ("i", &*self.image.path)];
        if let Some(snapshot) = &self.image.snapshot {
            fields.push(("b", snapshot.as_bytes()));
        }
        let volume = self.volume.as_ref().map(VolumeId::text);
        if let (Some(text), Some(volume)) = (&volume, &self.volume) {
            fields.push(("v", text.as_bytes()));
            if let Some(snapshot) = &volume.snapshot {
                fields.push(("s", snapshot.as_bytes()));
            }
            fields.push(("p", self.path.as_bytes()));
        }
        fields.extend_from_slice(more);
        crate::query::address(page, &fields)
    }

    /// Returns the image as a whole.
    pub(crate) fn of_image(image: ImageId) -> Self {
        Self {
            image,
            volume: None,
            path: "/".to_owned(),
        }
    }

    /// Returns the entry of this name in the folder.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            path: format!("{}/{name}", self.path.trim_end_matches('/')),
            ..self.clone()
        }
    }

    /// Returns the same volume at another path.
    pub(crate) fn at(&self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the name of the entry; empty for the root.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl VolumeId {
    /// Returns the text for queries.
    pub(crate) fn text(&self) -> String {
        match self.number {
            None => self.partition.to_string(),
            Some(number) => format!("{}.{number}", self.partition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_exactly_and_sockets_by_any_port() {
        let hosts = Hosts::Exactly(vec!["127.0.0.1:80".to_owned(), "localhost:80".to_owned()]);
        assert!(hosts.contains("127.0.0.1:80") && hosts.contains("LOCALHOST:80"));
        for host in [
            "127.0.0.1",
            "127.0.0.1:81",
            "evil.example:80",
            "",
            "localhost:80.evil.example",
        ] {
            assert!(!hosts.contains(host), "{host}");
        }
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:5",
        ] {
            assert!(Hosts::AnyPort.contains(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost:",
            "localhost:x",
            "localhost.evil.example",
            "",
        ] {
            assert!(!Hosts::AnyPort.contains(host), "{host}");
        }
    }

    #[test]
    fn addresses_are_read_again() {
        let query = Fields::parse(b"r=1&i=a%FF.dmg&v=2.3&s=before&p=/x/y%20z/");
        let target = Target::parse(&query).unwrap();
        assert_eq!(
            (target.image.root, &*target.image.path),
            (Some(1), &b"a\xFF.dmg"[..])
        );
        assert_eq!((&*target.path, target.name()), ("/x/y z", "y z"));
        let address = target.child("ü&?").address("file", &[]);
        let query = Fields::parse(address.split_once('?').unwrap().1.as_bytes());
        let again = Target::parse(&query).unwrap();
        assert_eq!(again.path, "/x/y z/ü&?");
        assert_eq!(again.volume, target.volume);
        let query = Fields::parse(b"r=url&i=https%3A%2F%2Fhost%2Fa%20b&b=monday&v=1&p=/");
        let target = Target::parse(&query).unwrap();
        assert_eq!(
            (target.image.root, &*target.image.path),
            (None, &b"https://host/a b"[..])
        );
        assert_eq!(target.image.snapshot.as_deref(), Some("monday"));
        let address = target.address("folder", &[]);
        let query = Fields::parse(address.split_once('?').unwrap().1.as_bytes());
        assert_eq!(Target::parse(&query).unwrap().image, target.image);
        for bad in [&b"i=a"[..], b"r=x", b"r=1&v=x", b"r=1&v=1.x", b"r=1&v=-1"] {
            assert!(Target::parse(&Fields::parse(bad)).is_err());
        }
    }
}
