//! A test for each line of the threat model in `docs/web.md`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw_web::{Bind, Limits, Options};

use crate::common::{Door, HOSTILE, Images, Site, Visitor, folder_of, link, links};

/// Pages that show something of images.
const PAGES: [&str; 16] = [
    "",
    "image?r=0&i=docs.dmg",
    "space?r=0&i=docs.dmg",
    "folder?r=0&i=docs.dmg&v=1",
    "file?r=0&i=docs.dmg&v=1&p=/hello.txt",
    "raw?r=0&i=docs.dmg&v=1&p=/hello.txt",
    "hex?r=0&i=docs.dmg&v=1&p=/hello.txt",
    "find?r=0&i=docs.dmg&v=1&q=a",
    "sizes?r=0&i=docs.dmg&v=1",
    "time?r=0&i=docs.dmg&v=1",
    "compare?r=0&i=docs.dmg&v=1&old=backup%200&new=backup%201",
    "changes?r=0&i=docs.dmg",
    "log",
    "archive.tar?r=0&i=docs.dmg&v=1",
    "archive.zip?r=0&i=docs.dmg&v=1",
    "job?id=1",
];

#[test]
fn every_line_of_the_threat_model_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/web.md")).unwrap();
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .collect();
    assert!(rows.len() > 15, "{} lines", rows.len());
    let mut sources = String::new();
    for folder in [
        "crates/web/src",
        "crates/web/src/pages",
        "crates/web/src/roots",
        "crates/web/tests",
        "crates/web/tests/memory",
        "crates/cli/tests",
        "src/container",
        "src/address",
        "tests",
    ] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    for row in rows {
        let last = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap();
        let tests: Vec<_> = last.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{row}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "{test}: {row}");
        }
    }
}

#[test]
fn other_hosts_are_refused() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1",
        "127.0.0.1:1",
        "",
    ] {
        let reply = visitor.get_with("", &[&format!("Host: {host}")]);
        assert!([400, 421].contains(&reply.status), "{host}: {}", reply.head);
        assert!(!reply.text().contains("docs.dmg"));
    }
    let own = &visitor.host;
    assert_eq!(
        visitor
            .get_with("", &[&format!("Host: {own}"), "Host: evil.example"])
            .status,
        400
    );
    let port = own.rsplit(':').next().unwrap();
    assert_eq!(
        visitor
            .get_with("", &[&format!("Host: localhost:{port}")])
            .status,
        200
    );
    let cookie = visitor.cookie.as_ref().unwrap();
    let base = &visitor.base;
    let elsewhere = format!(
        "GET http://evil.example{base} HTTP/1.1\r\nHost: {own}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(visitor.send(&elsewhere).status, 400);
    let without = format!("GET {base} HTTP/1.0\r\nCookie: {cookie}\r\n\r\n");
    assert_eq!(visitor.send(&without).status, 400);
}

#[test]
fn only_the_address_with_the_token_is_opened_from_elsewhere() {
    let images = Images::plain();
    let site = Site::without_session(&images.root(), Limits::default());
    let mut visitor = site.visitor.clone();
    let elsewhere = ["Sec-Fetch-Site: cross-site"];
    let url = site.running.url();
    let page = url.split(&*visitor.base).nth(1).unwrap();
    assert_eq!(visitor.get_with("open?token=00", &elsewhere).status, 403);
    assert_eq!(visitor.get_with("style.css", &elsewhere).status, 403);
    let origin = [elsewhere[0], "Origin: http://evil.example"];
    assert_eq!(visitor.get_with(page, &origin).status, 403);
    let entered = visitor.get_with(page, &elsewhere);
    assert_eq!(entered.status, 200);
    // A redirection would not bring the cookie, and the address does not stay.
    let text = entered.text();
    assert!(text.contains(&format!("content=\"0; url={}\"", visitor.base)));
    assert!(!text.contains("token"), "{text}");
    let cookie = entered.field("set-cookie").unwrap();
    assert!(cookie.contains("SameSite=Strict") && cookie.contains("HttpOnly"));
    visitor.cookie = Some(cookie.split(';').next().unwrap().to_owned());
    assert_eq!(visitor.get_with("", &elsewhere).status, 403);
    assert_eq!(visitor.get("").status, 200);
}

#[test]
fn other_origins_are_refused() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let (visitor, own) = (
        &site.visitor,
        format!("Origin: http://{}", site.visitor.host),
    );
    assert_eq!(visitor.get_with("", &[&own]).status, 200);
    for field in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: https://127.0.0.1",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        assert_eq!(visitor.get_with("", &[field]).status, 403, "{field}");
    }
    assert_eq!(visitor.get_with("", &["Sec-Fetch-Site: none"]).status, 200);
    assert_eq!(
        visitor
            .get_with("", &[&own, "Origin: http://evil.example"])
            .status,
        403
    );
    let form = format!("csrf={}", visitor.csrf());
    assert_eq!(
        visitor.post_bare("lock", &form, &[]).status,
        403,
        "without an origin"
    );
    assert_eq!(
        visitor
            .post_bare("lock", &form, &["Origin: http://evil.example"])
            .status,
        403
    );
    assert_eq!(visitor.post_bare("lock", &form, &[&own]).status, 303);
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(
            visitor.send(&visitor.request(method, "", &[], "")).status,
            405,
            "{method}"
        );
    }
}

#[test]
fn the_address_is_valid_once_and_disappears() {
    let images = Images::plain();
    let site = Site::without_session(&images.root(), Limits::default());
    let mut visitor = site.visitor.clone();
    let url = site.running.url();
    let page = url.split(&*visitor.base).nth(1).unwrap().to_owned();
    // A browser that fetches it in advance does not use it up.
    assert_eq!(
        visitor.get_with(&page, &["Sec-Purpose: prefetch"]).status,
        503
    );
    assert_eq!(visitor.get("open?token=0000").status, 403);
    assert_eq!(visitor.get("open").status, 403);
    let reply = visitor.get(&page);
    assert_eq!(reply.status, 303);
    assert_eq!(reply.field("location").unwrap(), visitor.base);
    let cookie = reply.field("set-cookie").unwrap();
    for part in [
        "HttpOnly",
        "SameSite=Strict",
        &format!("Path={}", visitor.base),
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let token = page.split('=').nth(1).unwrap();
    assert!(!cookie.contains(token) && !reply.text().contains(token));
    assert_eq!(visitor.get(&page).status, 403);
    visitor.cookie = Some(cookie.split(';').next().unwrap().to_owned());
    assert!(!visitor.page("").contains(token));
}

#[test]
fn without_a_session_nothing_is_shown() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let mut stranger = site.visitor.clone();
    for cookie in [
        None,
        Some("bandsaw="),
        Some("bandsaw=0000"),
        Some("other=1; bandsaw="),
    ] {
        stranger.cookie = cookie.map(str::to_owned);
        for page in PAGES {
            let reply = stranger.get(page);
            assert_eq!(reply.status, 401, "{page}");
            assert!(!reply.text().contains("hello"));
        }
        assert_eq!(stranger.get("style.css").status, 200);
        assert_eq!(stranger.get("login").status, 404, "there is no password");
    }
    // Nothing is outside of the folder that only visitors know.
    let mut outside = site.visitor.clone();
    outside.base = "/".to_owned();
    for page in ["", "image?r=0&i=docs.dmg", "style.css"] {
        assert_ne!(outside.get(page).status, 200, "{page}");
    }
}

#[test]
fn changes_need_the_token_of_the_session() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let (visitor, own) = (
        &site.visitor,
        format!("Origin: http://{}", site.visitor.host),
    );
    let right = visitor.csrf();
    for wrong in [
        "",
        "csrf=",
        "csrf=0000",
        &format!("csrf={}", "0".repeat(64)),
        &format!("other={right}"),
    ] {
        for page in [
            "lock",
            "end",
            "check?r=0&i=docs.dmg",
            "unlock?r=0&i=docs.dmg",
        ] {
            let reply = visitor.post_bare(page, wrong, &[&own]);
            assert_eq!(reply.status, 403, "{page} {wrong}");
        }
    }
    assert_eq!(visitor.get("lock").status, 405, "a link changes nothing");
    let json = visitor.request(
        "POST",
        "lock",
        &["Content-Type: text/plain", &own],
        &format!("csrf={right}"),
    );
    assert_eq!(visitor.send(&json).status, 415);
    assert_eq!(visitor.post("lock", "").status, 303);
}

#[test]
fn pages_load_nothing_of_others() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let mut pages = PAGES.to_vec();
    pages.extend(["nothing", "image?r=9", "open?token=x"]);
    for page in pages {
        let reply = visitor.get(page);
        let policy = reply.field("content-security-policy").unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.field(name).as_deref(), Some(value), "{page}");
        }
        let is_page = reply
            .field("content-type")
            .is_some_and(|kind| kind.starts_with("text/html"));
        if is_page {
            let text = reply.text().to_lowercase();
            for word in [
                " style=",
                "<style",
                " onload=",
                " onclick=",
                " onerror=",
                "javascript:",
            ] {
                assert!(!text.contains(word), "{page}: {word}");
            }
            let scripts = text.matches("<script").count();
            assert_eq!(
                scripts,
                text.matches("<script src=\"progress.js\"").count(),
                "{page}"
            );
            for link in links(&reply.text()) {
                assert!(
                    !link.contains("://") && !link.starts_with('/'),
                    "{page}: {link}"
                );
            }
        }
    }
}

#[test]
fn nothing_outside_of_the_roots_is_opened() {
    let images = Images::plain();
    fs::write(images.path("secret.img"), vec![7; 1 << 20]).unwrap();
    fs::create_dir(images.path("outside")).unwrap();
    fs::write(images.path("outside/secret.img"), vec![7; 1 << 20]).unwrap();
    symlink(images.path("secret.img"), images.root().join("link.img")).unwrap();
    symlink("../secret.img", images.root().join("up.img")).unwrap();
    symlink("../outside", images.root().join("folder")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"o\xFFdd.dmg");
    fs::copy(images.root().join("docs.dmg"), images.root().join(odd)).unwrap();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    for image in [
        "../secret.img",
        "%2e%2e/secret.img",
        "..%2Fsecret.img",
        "link.img",
        "up.img",
        "folder/secret.img",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "docs.dmg/../../secret.img",
        "a%00b",
        "..",
        "%FF",
    ] {
        for page in ["image", "space", "folder"] {
            let reply = visitor.get(&format!("{page}?r=0&i={image}&v=1"));
            assert_ne!(reply.status, 200, "{page} {image}: {}", reply.text());
        }
    }
    let list = visitor.page("");
    assert!(!list.contains("secret.img") && !list.contains("link.img") && !list.contains("up.img"));
    // A name that is not text works by its bytes.
    assert!(list.contains("o\\xFFdd.dmg"));
    let folder = visitor.page(&folder_of(visitor, "o%FFdd.dmg"));
    assert!(folder.contains("hello.txt"));
    // Paths in a volume stay in it, whatever they say.
    for path in ["/../../etc/passwd", "/hello.txt/../..", "/nothing"] {
        let reply = visitor.get(&format!("file?r=0&i=docs.dmg&v=1&p={path}"));
        assert_eq!(reply.status, 404, "{path}");
    }
}

#[test]
fn hostile_names_and_contents_do_nothing() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let folder = visitor.page(&folder_of(visitor, "docs.dmg"));
    assert!(!folder.contains("<b>") && folder.contains("&lt;script&gt;alert(1)&lt;b&gt;.html"));
    assert!(
        folder.contains("<bdi>שלום.txt</bdi>"),
        "directions of text are isolated"
    );
    let details = visitor.page(&link(&folder, "file?", "script"));
    assert!(!details.contains("<b>") && details.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for fields in ["", "&show=1"] {
        let page = format!("{}{fields}", link(&details, "raw?", "script"));
        let reply = visitor.get(&page);
        assert_eq!(reply.body, b"<script>alert(1)</script>");
        assert_eq!(
            reply.field("content-type").unwrap(),
            "application/octet-stream",
            "{HOSTILE}"
        );
        let name = reply.field("content-disposition").unwrap();
        assert!(
            name.starts_with("attachment; filename=\"_script_alert(1)_b_.html\""),
            "{name}"
        );
        let policy = reply.field("content-security-policy").unwrap();
        assert!(policy.starts_with("sandbox;") && policy.contains("default-src 'none'"));
    }
    let picture = visitor.get("raw?r=0&i=docs.dmg&v=1&p=/picture.png&show=1");
    assert_eq!(picture.field("content-type").unwrap(), "image/png");
    assert!(
        picture
            .field("content-security-policy")
            .unwrap()
            .starts_with("sandbox;")
    );
}

#[test]
fn passphrases_are_in_memory_only_and_forgotten() {
    let images = Images::new();
    images.create(
        "secret.dmg",
        Format::Udrw,
        NewFormat::HfsPlus,
        Some("the passphrase"),
    );
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let (image, folder) = ("image?r=0&i=secret.dmg", "folder?r=0&i=secret.dmg&v=1");
    let asks = |page: &str| {
        let reply = visitor.get(page);
        assert_eq!(reply.status, 403, "{page}");
        assert!(reply.text().contains("type=\"password\"") && !reply.text().contains("hello.txt"));
    };
    asks(image);
    asks(folder);
    let wrong = visitor.post("unlock?r=0&i=secret.dmg", "passphrase=wrong");
    assert_eq!(wrong.status, 403);
    assert!(!wrong.text().contains("wrong\""), "it is not sent back");
    asks(folder);
    let right = visitor.post("unlock?r=0&i=secret.dmg", "passphrase=the+passphrase");
    assert_eq!(right.status, 303);
    assert!(
        !right.head.contains("passphrase=") && !right.field("location").unwrap().contains("the")
    );
    for page in [image, folder] {
        let text = visitor.page(page);
        assert!(!text.contains("the passphrase"));
    }
    assert!(visitor.page(folder).contains("hello.txt"));
    // An address does not ask for it: it would be in the history.
    assert_eq!(
        visitor
            .get("unlock?r=0&i=secret.dmg&passphrase=the+passphrase")
            .status,
        405
    );
    assert_eq!(visitor.post("lock", "").status, 303);
    asks(image);
    asks(folder);
    // Nor does ending the session leave anything.
    assert_eq!(
        visitor
            .post("unlock?r=0&i=secret.dmg", "passphrase=the+passphrase")
            .status,
        303
    );
    assert_eq!(visitor.post("end", "").status, 200);
    assert_eq!(visitor.get(folder).status, 401);
}

#[test]
fn other_sessions_do_not_see_an_unlocked_image() {
    let images = Images::new();
    images.create("secret.dmg", Format::Udrw, NewFormat::HfsPlus, Some("key"));
    let Some(public) = crate::public::site(&images) else {
        return;
    };
    let (one, other) = (public.sign_in(), public.sign_in());
    let csrf = public.csrf(&one);
    let form = format!("csrf={csrf}&passphrase=key");
    let folder = "folder?r=0&i=secret.dmg&v=1";
    assert_eq!(
        public
            .send("POST", "unlock?r=0&i=secret.dmg", &[&one], &form)
            .status,
        303
    );
    assert_eq!(public.send("GET", folder, &[&one], "").status, 200);
    assert_eq!(public.send("GET", folder, &[&other], "").status, 403);
    let list = public.send("GET", "", &[&other], "").text();
    assert!(list.contains("encrypted image"));
    // The token of one session is nothing to another.
    assert_eq!(public.send("POST", "lock", &[&other], &form).status, 403);
    assert_eq!(public.send("GET", folder, &[&one], "").status, 200);
}

#[test]
fn a_locked_image_ends_the_streams_that_read_it() {
    let images = Images::new();
    // More than the system keeps for a connection.
    fs::write(images.path("tree/big.bin"), crate::common::noise(32 << 20)).unwrap();
    images.create("secret.dmg", Format::Udrw, NewFormat::HfsPlus, Some("key"));
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let unlocked = visitor.post("unlock?r=0&i=secret.dmg", "passphrase=key");
    assert_eq!(unlocked.status, 303);
    let request = visitor.request("GET", "raw?r=0&i=secret.dmg&v=1&p=/big.bin", &[], "");
    let mut stream = visitor.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(visitor.post("lock", "").status, 303);
    let rest = crate::common::read_reply(&mut *stream);
    assert!(
        !rest.is_whole && rest.body.len() < 32 << 20,
        "{}",
        rest.head
    );
    let reply = visitor.get("raw?r=0&i=secret.dmg&v=1&p=/big.bin");
    assert_eq!(reply.status, 403);
}

#[test]
fn a_socket_is_private_and_has_no_port() {
    let images = Images::plain();
    let socket = images.path("web.sock");
    let options = Options {
        roots: vec![images.root()],
        bind: Bind::Socket(socket.clone()),
        limits: Limits::default(),
        permissions: Default::default(),
        urls: Default::default(),
    };
    let running = bandsaw_web::start(&options).unwrap();
    assert_eq!(
        fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(
        bandsaw_web::start(&options).is_err(),
        "another server is there"
    );
    let mut visitor = Visitor::of(&running.address());
    visitor.door = Door::Unix(socket.clone());
    assert_eq!(visitor.host, "localhost");
    visitor.enter(&running.url());
    assert!(visitor.page("").contains("docs.dmg"));
    // A tunnel has a port of its own, which the forms name as their origin.
    visitor.host = "localhost:8080".to_owned();
    assert_eq!(visitor.post("lock", "").status, 303);
    visitor.host = "evil.example".to_owned();
    assert_eq!(visitor.get("").status, 421);
    visitor.host = "localhost.evil.example:80".to_owned();
    assert_eq!(visitor.get("").status, 421);
    drop(running);
    assert!(!socket.exists());
    // One that a killed server left is replaced.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    drop(bandsaw_web::start(&options).unwrap());
    fs::write(&socket, "mine").unwrap();
    assert!(bandsaw_web::start(&options).is_err());
    assert_eq!(fs::read(&socket).unwrap(), b"mine");
}

#[test]
fn odd_requests_do_no_harm() {
    let images = Images::plain();
    fs::write(
        images.root().join("noise.dmg"),
        crate::common::noise(100_000),
    )
    .unwrap();
    fs::write(images.root().join("empty.dmg"), "").unwrap();
    fs::create_dir(images.root().join("not.sparsebundle")).unwrap();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let values = [
        "",
        "0",
        "-1",
        "99999999999999999999",
        "%FF%00",
        "1.1.1",
        "%",
        "a&b=c",
        "../..",
        "1e9",
    ];
    for page in [
        "image",
        "space",
        "folder",
        "file",
        "raw",
        "hex",
        "find",
        "archive.zip",
        "job",
        "events",
    ] {
        for value in values {
            for name in [
                "r", "i", "v", "s", "p", "at", "n", "after", "from", "count", "sort", "id", "page",
            ] {
                let all = ["r=0", "i=docs.dmg", "v=1", "p=/hello.txt"];
                let kept: Vec<_> = all
                    .into_iter()
                    .filter(|field| !field.starts_with(&format!("{name}=")))
                    .collect();
                let reply = visitor.get(&format!("{page}?{}&{name}={value}", kept.join("&")));
                assert!(
                    reply.status >= 200 && reply.status < 500,
                    "{page} {name} {value}: {}",
                    reply.head
                );
            }
        }
    }
    for image in ["noise.dmg", "empty.dmg", "not.sparsebundle"] {
        let reply = visitor.get(&format!("image?r=0&i={image}"));
        assert!(
            [200, 422].contains(&reply.status),
            "{image}: {}",
            reply.head
        );
    }
    for bytes in [
        "\r\n\r\n",
        "GET",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        &format!(
            "GET {} HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            visitor.base
        ),
        &format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000)),
        &format!("GET / HTTP/1.1\r\n{}\r\n", "X-Y: z\r\n".repeat(1000)),
    ] {
        let mut stream = visitor.connect();
        let _ = stream.write_all(bytes.as_bytes());
        drop(stream);
    }
    assert!(visitor.page("").contains("docs.dmg"));
}
