//! Limits of requests, memory and time.

use std::io::{Read, Write};
use std::time::Duration;

use bandsaw_web::Limits;

use crate::common::{Images, Site, Stream, Visitor, read_reply};

const BIG: &str = "raw?r=0&i=docs.dmg&v=1&p=/big.bin";

/// Begins a download, and takes nothing of it but the head.
fn begun(visitor: &Visitor, page: &str) -> Box<dyn Stream> {
    let mut stream = visitor.connect();
    stream
        .write_all(visitor.request("GET", page, &[], "").as_bytes())
        .unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// An image with a file of 64 MiB: more than the system keeps for a connection.
fn large() -> Images {
    let images = Images::new();
    std::fs::write(images.path("tree/big.bin"), crate::common::noise(64 << 20)).unwrap();
    images.create(
        "docs.dmg",
        bandsaw::container::Format::Udrw,
        bandsaw::ops::format::NewFormat::HfsPlus,
        None,
    );
    images
}

#[test]
fn requests_of_a_session_are_limited() {
    let images = large();
    let limits = Limits {
        session_requests: 3,
        wait_time: Duration::from_secs(1),
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let held: Vec<_> = (0..3).map(|_| begun(&site.visitor, BIG)).collect();
    let refused = site.visitor.get("");
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    drop(held);
    // The server notices that the clients have gone as soon as it writes.
    let mut tries = 0..100_000;
    assert!(tries.any(|_| site.visitor.get("").status == 200));
}

#[test]
fn requests_in_all_are_limited() {
    let images = large();
    let limits = Limits {
        requests: 2,
        wait_time: Duration::from_millis(10),
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let _held = [begun(&site.visitor, BIG), begun(&site.visitor, BIG)];
    let mut stranger = site.visitor.clone();
    assert_eq!(stranger.get("").status, 503);
    stranger.cookie = None;
    assert_eq!(stranger.get("style.css").status, 503);
}

#[test]
fn memory_of_answers_is_limited() {
    let images = large();
    let limits = Limits {
        memory: 4 << 20,
        wait_time: Duration::from_millis(10),
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let _held = begun(&site.visitor, "archive.tar?r=0&i=docs.dmg&v=1");
    assert_eq!(
        site.visitor.get("archive.tar?r=0&i=docs.dmg&v=1").status,
        503
    );
    assert_eq!(site.visitor.get("").status, 200);
}

#[test]
fn slow_requests_are_given_up() {
    let images = Images::plain();
    let limits = Limits {
        read_time: Duration::from_millis(500),
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let visitor = &site.visitor;
    let mut head = visitor.connect();
    head.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    let mut rest = Vec::new();
    // The end of the connection, whatever is said before.
    let _ = head.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    let origin = format!("Origin: http://{}", visitor.host);
    let form = "Content-Type: application/x-www-form-urlencoded";
    let whole = visitor.request("POST", "lock", &[&origin, form], &"a".repeat(100));
    let mut body = visitor.connect();
    body.write_all(&whole.as_bytes()[..whole.len() - 50])
        .unwrap();
    let reply = read_reply(&mut *body);
    assert!([0, 400, 408].contains(&reply.status), "{}", reply.head);
    assert_eq!(visitor.get("").status, 200);
}

#[test]
fn slow_clients_are_given_up() {
    let images = large();
    let limits = Limits {
        session_requests: 1,
        write_time: Duration::from_millis(200),
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let mut held = begun(&site.visitor, BIG);
    // Its only permit comes back although the client is still there.
    let mut tries = 0..100_000;
    assert!(tries.any(|_| site.visitor.get("").status == 200));
    let reply = {
        let mut all = Vec::new();
        let _ = held.read_to_end(&mut all);
        all.len()
    };
    assert!(reply < 64 << 20, "the download was broken off");
}

#[test]
fn forms_are_short() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let origin = format!("Origin: http://{}", site.visitor.host);
    let form = "Content-Type: application/x-www-form-urlencoded";
    let request = site
        .visitor
        .request("POST", "lock", &[&origin, form], &"a".repeat(100_000));
    let mut stream = site.visitor.connect();
    let _ = stream.write_all(request.as_bytes());
    let reply = read_reply(&mut *stream);
    assert!([0, 413].contains(&reply.status), "{}", reply.head);
    assert_eq!(site.visitor.get("").status, 200);
}
