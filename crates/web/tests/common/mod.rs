//! A server with images, and a client that sends exactly what a test says.
#![allow(dead_code, reason = "each program uses a part")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandsaw::address::UrlPrefix;
use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_web::{AllowedUrls, Bind, Limits, Options, Permissions, Running};
use tempfile::TempDir;

/// The time after which a client of a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// A name that is no text of HTML.
pub(crate) const HOSTILE: &str = "<script>alert(1)<b>.html";
/// The smallest picture.
pub(crate) const PICTURE: &[u8] =
    b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1F\x15\xC4\x89\
    \0\0\0\rIDATx\x9Cc\xF8\xCF\xC0\xF0\x1F\0\x05\0\x01\xFF\x89\x99=\x1D\0\0\0\0IEND\xAEB`\x82";

/// A folder with images.
pub(crate) struct Images(TempDir);

impl Images {
    pub(crate) fn new() -> Self {
        let images = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(images.path("tree/sub/deep")).unwrap();
        fs::create_dir_all(images.path("root")).unwrap();
        fs::create_dir_all(images.path("tree/empty")).unwrap();
        let write =
            |name: &str, bytes: &[u8]| fs::write(images.path("tree").join(name), bytes).unwrap();
        write("hello.txt", b"hello, world\n");
        write(HOSTILE, b"<script>alert(1)</script>");
        write("picture.png", PICTURE);
        write("sub/deep/a b&c.txt", b"deep\n");
        write("שלום.txt", b"shalom\n");
        write("big.bin", &noise(3_000_017));
        write("info.plist", b"<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>Name</key><string>a&lt;b</string></dict></plist>");
        images
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The folder that is served.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Creates an image of the folder `tree` below the root.
    pub(crate) fn create(
        &self,
        name: &str,
        format: Format,
        volume: NewFormat,
        passphrase: Option<&str>,
    ) {
        let options = CreateOptions {
            format,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: "Docs & <more>".to_owned(),
                format: volume,
                block_size: None,
                source: Source::Folder(self.path("tree")),
            }),
            encryption: passphrase.map(|passphrase| Encryption {
                iterations: Some(MIN_ITERATIONS),
                ..Encryption::new(Secret::new(passphrase.as_bytes().to_vec()))
            }),
            ..CreateOptions::default()
        };
        create(&self.root().join(name), options, &Silent).unwrap();
    }

    /// A compressed image with an HFS+ volume.
    pub(crate) fn plain() -> Self {
        let images = Self::new();
        images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
        images
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A server, and a visitor with a session.
pub(crate) struct Site {
    pub(crate) running: Running,
    pub(crate) visitor: Visitor,
}

impl Site {
    /// Serves a folder at a port of this host.
    pub(crate) fn new(root: &Path) -> Self {
        Self::with(root, Limits::default())
    }

    pub(crate) fn with(root: &Path, limits: Limits) -> Self {
        let mut site = Self::without_session(root, limits);
        let url = site.running.url();
        site.visitor.enter(&url);
        site
    }

    /// Serves a folder to visitors who may do more than look.
    pub(crate) fn permitted(root: &Path, limits: Limits, permissions: Permissions) -> Self {
        let mut site = Self::start(root, limits, permissions);
        let url = site.running.url();
        site.visitor.enter(&url);
        site
    }

    /// Serves a folder; the visitor has not opened the address with the token.
    pub(crate) fn without_session(root: &Path, limits: Limits) -> Self {
        Self::start(root, limits, Permissions::default())
    }

    pub(crate) fn start(root: &Path, limits: Limits, permissions: Permissions) -> Self {
        Self::run(&Options {
            roots: vec![root.to_owned()],
            bind: Bind::Loopback(0),
            limits,
            permissions,
            urls: AllowedUrls::default(),
        })
    }

    fn run(options: &Options) -> Self {
        let running = bandsaw_web::start(options).unwrap();
        let visitor = Visitor::of(&running.address());
        Self { running, visitor }
    }

    /// Serves a folder, and URLs below these, to a visitor who may do everything.
    pub(crate) fn with_urls(root: &Path, prefixes: &[&str]) -> Self {
        let prefixes = prefixes
            .iter()
            .map(|prefix| UrlPrefix::parse(prefix).unwrap());
        let mut site = Self::run(&Options {
            roots: vec![root.to_owned()],
            bind: Bind::Loopback(0),
            limits: Limits::default(),
            permissions: Permissions {
                changes: true,
                upload_folders: vec![root.to_owned()],
                ..Permissions::default()
            },
            urls: AllowedUrls {
                prefixes: prefixes.collect(),
                ..AllowedUrls::default()
            },
        });
        let url = site.running.url();
        site.visitor.enter(&url);
        site
    }
}

/// The place to which a client connects.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    Tcp(String),
    Unix(PathBuf),
}

/// A client.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub(crate) door: Door,
    pub(crate) host: String,
    pub(crate) base: String,
    pub(crate) cookie: Option<String>,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// True if all of the body arrived that the head promises.
    pub(crate) is_whole: bool,
}

impl Visitor {
    pub(crate) fn of(address: &str) -> Self {
        let rest = address.strip_prefix("http://").unwrap();
        let (host, base) = rest.split_once('/').unwrap();
        Self {
            door: Door::Tcp(host.to_owned()),
            host: host.to_owned(),
            base: format!("/{base}"),
            cookie: None,
        }
    }

    /// Opens the address with the token.
    pub(crate) fn enter(&mut self, url: &str) {
        let page = url.split(&*self.base).nth(1).unwrap();
        let reply = self.get(page);
        assert_eq!(reply.status, 303, "{}", reply.head);
        let cookie = reply.field("set-cookie").unwrap();
        self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
    }

    /// Gets a page, whose address is relative to the first one.
    pub(crate) fn get(&self, page: &str) -> Reply {
        self.get_with(page, &[])
    }

    pub(crate) fn get_with(&self, page: &str, fields: &[&str]) -> Reply {
        self.send(&self.request("GET", page, fields, ""))
    }

    /// Gets a page that must be there.
    pub(crate) fn page(&self, page: &str) -> String {
        let reply = self.get(page);
        assert_eq!(reply.status, 200, "{page}: {}", reply.text());
        assert!(reply.is_whole);
        reply.text()
    }

    /// Posts a form with the token of the session.
    pub(crate) fn post(&self, page: &str, form: &str) -> Reply {
        let form = format!("csrf={}&{form}", self.csrf());
        self.post_bare(page, &form, &[&format!("Origin: http://{}", self.host)])
    }

    pub(crate) fn post_bare(&self, page: &str, form: &str, fields: &[&str]) -> Reply {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        self.send(&self.request("POST", page, &[&[kind], fields].concat(), form))
    }

    /// The token of the session, as pages have it.
    pub(crate) fn csrf(&self) -> String {
        let page = self.page("");
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    pub(crate) fn request(&self, method: &str, page: &str, fields: &[&str], body: &str) -> String {
        let mut text = format!(
            "{method} {}{page} HTTP/1.1\r\nConnection: close\r\n",
            self.base
        );
        if !fields.iter().any(|field| field.starts_with("Host:")) {
            text.push_str(&format!("Host: {}\r\n", self.host));
        }
        if let Some(cookie) = &self.cookie {
            text.push_str(&format!("Cookie: {cookie}\r\n"));
        }
        for field in fields {
            text.push_str(&format!("{field}\r\n"));
        }
        if method == "POST" {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        format!("{text}\r\n{body}")
    }

    pub(crate) fn connect(&self) -> Box<dyn Stream> {
        match &self.door {
            Door::Tcp(address) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                Box::new(stream)
            }
            Door::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                Box::new(stream)
            }
        }
    }

    /// Sends these bytes, and reads the answer to its end.
    pub(crate) fn send(&self, request: &str) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        read_reply(&mut *stream)
    }
}

/// A connection.
pub(crate) trait Stream: Read + Write {
    /// Sends nothing more.
    fn end(&self);
}

impl Stream for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Stream for UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// Reads an answer until the server closes the connection.
pub(crate) fn read_reply(stream: &mut dyn Read) -> Reply {
    let mut all = Vec::new();
    // A broken connection is an answer, too.
    let _ = stream.read_to_end(&mut all);
    Reply::parse(&all)
}

impl Reply {
    fn parse(all: &[u8]) -> Self {
        let Some(end) = all.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return Self {
                status: 0,
                head: String::from_utf8_lossy(all).into_owned(),
                body: Vec::new(),
                is_whole: false,
            };
        };
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let rest = &all[end + 4..];
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Self {
            status,
            head,
            body: Vec::new(),
            is_whole: false,
        };
        if reply.field("transfer-encoding").is_some() {
            (reply.body, reply.is_whole) = unchunked(rest);
        } else {
            let length = reply
                .field("content-length")
                .map(|length| length.parse().unwrap());
            reply.is_whole = length.is_none_or(|length: usize| rest.len() == length);
            reply.body = rest.to_vec();
        }
        reply
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The contents of chunks, and whether the last one is there.
fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") else {
            return (body, false);
        };
        let Ok(length) = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16)
        else {
            return (body, false);
        };
        rest = &rest[end + 2..];
        if length == 0 {
            return (body, true);
        }
        if rest.len() < length + 2 {
            body.extend_from_slice(rest);
            return (body, false);
        }
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}

/// The addresses that a page links to.
pub(crate) fn links(page: &str) -> Vec<String> {
    let attributes = ["href=\"", "src=\"", "action=\""];
    let found = attributes
        .iter()
        .flat_map(|attribute| page.split(attribute).skip(1));
    found
        .map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"))
        .collect()
}

/// The first link of a page to another page that contains a text.
pub(crate) fn link(page: &str, start: &str, part: &str) -> String {
    let all = links(page);
    let found = all
        .iter()
        .find(|link| link.starts_with(start) && link.contains(part));
    found
        .unwrap_or_else(|| panic!("no link to {start} with {part}: {all:#?}"))
        .clone()
}

/// Goes from the list to the folder of the only volume of an image.
pub(crate) fn folder_of(visitor: &Visitor, image: &str) -> String {
    let list = visitor.page("");
    let image = visitor.page(&link(&list, "image?", image));
    link(&image, "folder?", "v=")
}
