//! Images over HTTP, read by range requests from a local server.
#![cfg(feature = "s3")]

use std::path::Path;

use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, Image, OpenOptions};

use crate::common::server::{Conduct, Server};

/// Returns a blank raw disk of 12 MiB with data in its middle.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 12 << 20];
    disk[6 << 20..][..11].copy_from_slice(b"half way in");
    disk
}

fn open(url: &str) -> bandsaw::Result<Image> {
    open::open(
        Path::new(url),
        &OpenOptions {
            image_format: Some(Format::Udrw),
            ..OpenOptions::default()
        },
    )
}

#[test]
fn an_image_is_read_by_ranges() {
    let server = Server::start(disk(), Conduct::Ranges);
    let image = open(&server.url("disk.img")).unwrap();
    assert_eq!(image.disk().info().len, 12 << 20);
    assert_eq!(image.disk().read_vec(6 << 20, 11).unwrap(), b"half way in");
    assert!(server.requests() <= 4, "{} requests", server.requests());
    assert!(image.disk().write_at(0, b"x").is_err());
    assert_eq!(image.disk().read_vec(0, 12 << 20).unwrap(), disk());
}

#[test]
fn answers_that_break_off_are_asked_for_again() {
    let server = Server::start(disk(), Conduct::BreaksOff);
    let image = open(&server.url("disk.img")).unwrap();
    assert_eq!(image.disk().read_vec(0, 12 << 20).unwrap(), disk());
}

#[test]
fn a_file_that_changes_is_an_error() {
    let server = Server::start(disk(), Conduct::Ranges);
    let image = open(&server.url("disk.img")).unwrap();
    let mut other = disk();
    other[9 << 20] = 1;
    server.replace(other);
    let error = image.disk().read_vec(9 << 20, 512).unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains("changed on the server"),
        "{error}"
    );
    server.replace(vec![0; 512]);
    assert_eq!(
        image.disk().read_vec(11 << 20, 512).unwrap_err().kind(),
        Kind::Conflict
    );
}

#[test]
fn servers_that_will_not_do_are_refused_by_name() {
    let without = Server::start(disk(), Conduct::Whole);
    let error = open(&without.url("disk.img")).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(
        error
            .to_string()
            .contains("127.0.0.1 does not support range requests"),
        "{error}"
    );
    assert_eq!(
        open(&without.url("missing.img")).unwrap_err().kind(),
        Kind::NotFound
    );
    let error = open("http://me:secret@127.0.0.1/disk.img").unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(
        open("gopher://127.0.0.1/disk.img").unwrap_err().kind(),
        Kind::Unsupported
    );
}
