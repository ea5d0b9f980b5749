//! Images behind URLs, and paths that visitors type.

use std::fs;

use crate::common::{Images, Site, link};
use crate::server::{Conduct, Server};

/// A server with a real image.
fn server(images: &Images) -> Server {
    Server::start(
        fs::read(images.root().join("docs.dmg")).unwrap(),
        Conduct::Ranges,
    )
}

/// The address of the page that opens what a visitor typed.
fn go(text: &str) -> String {
    let bytes = text.bytes().map(|byte| format!("%{byte:02x}"));
    format!("go?a={}", bytes.collect::<String>())
}

#[test]
fn an_image_behind_an_allowed_url_is_shown() {
    let images = Images::plain();
    let server = server(&images);
    let site = Site::with_urls(&images.root(), &[&server.url("images")]);
    let visitor = &site.visitor;
    let reply = visitor.get(&go(&server.url("images/a.dmg?sig=secret")));
    assert_eq!(reply.status, 303, "{}", reply.text());
    let image = visitor.page(&reply.field("location").unwrap());
    assert!(image.contains("images/a.dmg") && image.contains("Docs &amp; &lt;more&gt;"));
    // Addresses of pages name it, and headings hide it.
    let shown = image.split("<h1>").nth(1).unwrap().split("</h1>").next();
    assert!(!shown.unwrap().contains("secret"), "{image}");
    assert!(!image.contains("changes?"), "{image}");
    let folder = visitor.page(&link(&image, "folder?", "v="));
    let file = visitor.page(&link(&folder, "file?", "hello.txt"));
    assert!(file.contains("hello, world"), "{file}");
    let raw = link(&file, "raw?", "hello.txt");
    assert_eq!(visitor.get(&raw).text(), "hello, world\n");
    let part = visitor.get_with(&raw, &["Range: bytes=7-11"]);
    assert_eq!((part.status, &*part.text()), (206, "world"));
    assert!(part.field("etag").is_none(), "its version is unknown");
    let checked = visitor.post(&link(&image, "check?", "url"), "kind=check");
    let number = checked.field("location").unwrap();
    let number = number.split('=').nth(1).unwrap().to_owned();
    assert!(visitor.get(&format!("events?id={number}")).is_whole);
    let found = visitor.page(&format!("job?id={number}"));
    assert!(found.contains("no problem was found"), "{found}");
    assert_eq!(
        visitor
            .page(&link(&image, "space?", "url"))
            .matches("<h1>")
            .count(),
        1
    );
}

#[test]
fn urls_outside_of_the_prefixes_are_refused() {
    let images = Images::plain();
    let (own, other) = (server(&images), server(&images));
    let site = Site::with_urls(&images.root(), &[&own.url("images")]);
    let visitor = &site.visitor;
    for url in [
        other.url("images/a.dmg"),
        own.url("a.dmg"),
        own.url("images-old/a.dmg"),
        own.url("images/../a.dmg"),
        own.url("images/%2e%2e/a.dmg"),
        own.url("images/a.dmg").replace("127.0.0.1", "localhost"),
        own.url("images/a.dmg").replace("http://", "https://"),
        own.url("images/a.dmg").replace("http://", "http://me@"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "s3://bucket/a.sparsebundle".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
    ] {
        let typed = visitor.get(&go(&url));
        assert_eq!(typed.status, 400, "{url}: {}", typed.text());
        // Nor by the address of a page.
        let field = go(&url).replace("go?a=", "image?r=url&i=");
        assert_eq!(visitor.get(&field).status, 400, "{url}");
    }
    assert_eq!(
        (own.requests(), other.requests()),
        (0, 0),
        "no request was sent"
    );
}

#[test]
fn redirects_out_of_the_prefixes_are_not_followed() {
    let images = Images::plain();
    let (own, other) = (server(&images), server(&images));
    let site = Site::with_urls(&images.root(), &[&own.url("")]);
    let visitor = &site.visitor;
    let away = own.url(&format!("to?{}", other.url("a.dmg")));
    let reply = visitor.get(&go(&away));
    let page = visitor.page(&reply.field("location").unwrap());
    assert!(
        page.contains("not allowed") && !page.contains("folder?"),
        "{page}"
    );
    assert_eq!(other.requests(), 0);
    let within = own.url(&format!("to?{}", own.url("a.dmg")));
    let reply = visitor.get(&go(&within));
    let page = visitor.page(&reply.field("location").unwrap());
    assert!(page.contains("folder?"), "{page}");
}

#[test]
fn without_the_option_no_url_is_opened() {
    let images = Images::plain();
    let server = server(&images);
    let site = Site::new(&images.root());
    let reply = site.visitor.get(&go(&server.url("a.dmg")));
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("--allow-urls"), "{}", reply.text());
    assert_eq!(server.requests(), 0);
    assert!(!site.visitor.page("").contains("or an address"));
}

#[test]
fn images_behind_urls_are_not_changed() {
    let images = Images::plain();
    let server = server(&images);
    let site = Site::with_urls(&images.root(), &[&server.url("")]);
    let visitor = &site.visitor;
    let image = go(&server.url("a.dmg")).replace("go?a=", "r=url&i=");
    assert_eq!(visitor.get(&format!("changes?{image}")).status, 409);
    for form in ["kind=compact", "kind=repair"] {
        let reply = visitor.post(&format!("plan?{image}"), form);
        assert_eq!(reply.status, 409, "{}", reply.text());
    }
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_path_below_the_roots_is_opened() {
    let images = Images::plain();
    fs::copy(
        images.root().join("docs.dmg"),
        images.root().join("no extension"),
    )
    .unwrap();
    fs::copy(images.root().join("docs.dmg"), images.path("outside.dmg")).unwrap();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let root = fs::canonicalize(images.root()).unwrap();
    for path in ["no extension", "docs.dmg"] {
        for typed in [root.join(path).to_str().unwrap(), path] {
            let reply = visitor.get(&go(typed));
            assert_eq!(reply.status, 303, "{typed}: {}", reply.text());
            let image = visitor.page(&reply.field("location").unwrap());
            assert!(image.contains("folder?"), "{image}");
        }
    }
    let outside = fs::canonicalize(images.path("outside.dmg")).unwrap();
    for typed in [
        outside.to_str().unwrap(),
        "../outside.dmg",
        "/etc/passwd",
        "missing",
    ] {
        assert_eq!(visitor.get(&go(typed)).status, 404, "{typed}");
    }
    assert_eq!(visitor.get("go").status, 404);
}
