//! A visit in a real browser: keyboard, dark, narrow, no console error, nothing of others.

use std::path::Path;
use std::process::Command;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;

use bandsaw_web::{Limits, Permissions};

use crate::common::{Images, Site};
use crate::{previews, skip, states};

/// Script that drives a browser, to be followed by what is done with a page.
const BROWSER: &str = include_str!("../../cli/tests/common/browser.js");
/// Script that looks at pages, and prints `sound` if everything worked.
const VISIT: &str = include_str!("browser/visit.js");
/// Results of a small benchmark.
const RESULTS: &str = include_str!("browser/results.json");

#[test]
fn a_browser_shows_the_pages() {
    let Some(images) = visited("short") else {
        return;
    };
    drop(images);
}

#[test]
#[ignore = "full: a browser goes to every page, at three widths, in the light and in the dark"]
fn a_browser_goes_through_every_flow() {
    if std::env::var_os("BANDSAW_AXE").is_none() {
        skip::skip("rules of axe-core", "BANDSAW_AXE does not name its script");
    }
    let Some(images) = visited("whole") else {
        return;
    };
    let dropped = std::fs::read(images.root().join("dropped.txt")).unwrap();
    assert_eq!(dropped, b"dropped contents");
    let restored = std::fs::read(images.path("restored/hello.txt")).unwrap();
    assert_eq!(restored, b"version 1");
}

/// Has a browser visit the pages. `None`: there is none.
fn visited(length: &str) -> Option<Images> {
    let names = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let browser = names.into_iter().find(|path| Path::new(path).exists());
    let node = Command::new("node").arg("--version").output();
    let (Some(browser), true) = (browser, node.is_ok_and(|output| output.status.success())) else {
        skip::without_program("pages in a browser", "no chromium, or no node");
        return None;
    };
    let images = Images::new();
    previews::write_all(&images);
    images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    states::with_snapshots(&images);
    std::fs::write(images.root().join("results.json"), RESULTS).unwrap();
    std::fs::create_dir(images.path("restored")).unwrap();
    let permissions = Permissions {
        changes: true,
        upload_folders: vec![images.root()],
        restore_folders: vec![images.path("restored")],
        temporary: images.path(""),
        ..Permissions::default()
    };
    let site = Site::start(&images.root(), Limits::default(), permissions);
    let script = images.path("visit.mjs");
    std::fs::write(&script, [BROWSER, VISIT].concat()).unwrap();
    let visit = Command::new("node")
        .arg(script)
        .arg(browser)
        .arg(site.running.url())
        .arg(images.path("profile"))
        .env("BANDSAW_BROWSER_SECONDS", "900")
        .env("BANDSAW_VISIT", length)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&visit.stdout);
    let failed = String::from_utf8_lossy(&visit.stderr);
    assert!(
        visit.status.success() && said.trim() == "sound",
        "{said}\n{failed}"
    );
    Some(images)
}
