//! Images over HTTP, read by range requests from a local server.
#![cfg(feature = "s3")]

use std::path::Path;

use bandsaw::Kind;
use bandsaw::address::UrlPrefix;
use bandsaw::container::Format;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, Image, NetworkOptions, OpenOptions};

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

#[test]
fn redirects_lead_to_allowed_places_only() {
    let (server, other) = (
        Server::start(disk(), Conduct::Ranges),
        Server::start(disk(), Conduct::Ranges),
    );
    let open = |url: &str, redirects: Option<&[UrlPrefix]>| {
        let options = OpenOptions {
            image_format: Some(Format::Udrw),
            network: NetworkOptions {
                redirects,
                ..NetworkOptions::default()
            },
            ..OpenOptions::default()
        };
        open::open(Path::new(url), &options)
    };
    let own = [UrlPrefix::parse(&server.url("")).unwrap()];
    let away = server.url(&format!("to?{}", other.url("disk.img")));
    let error = open(&away, Some(&own)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("redirects to an address that is not allowed"),
        "{error}"
    );
    assert_eq!(other.requests(), 0);
    // Two steps, of which the second leads away.
    let twice = server.url(&format!("to?{away}"));
    assert!(open(&twice, Some(&own)).is_err());
    assert_eq!(other.requests(), 0);
    let within = server.url(&format!("to?{}", server.url("disk.img")));
    assert!(open(&within, Some(&own)).is_ok());
    assert!(open(&within, Some(&[])).is_err());
    assert!(open(&server.url("disk.img"), Some(&[])).is_ok());
    let both = [own[0].clone(), UrlPrefix::parse(&other.url("")).unwrap()];
    assert!(open(&away, Some(&both)).is_ok() && open(&away, None).is_ok());
    // A redirection in a circle ends.
    let circle = Server::start(disk(), Conduct::Ranges);
    let own = [UrlPrefix::parse(&circle.url("")).unwrap()];
    assert!(open(&circle.url("circle"), Some(&own)).is_err());
}
