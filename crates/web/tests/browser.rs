//! A visit in a real browser: keyboard, dark, narrow, no console error, nothing of others.

use std::path::Path;
use std::process::Command;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;

use bandsaw_web::{Limits, Permissions};

use crate::common::{Images, Site};
use crate::skip;

/// Script that drives a browser, to be followed by what is done with a page.
const BROWSER: &str = include_str!("../../cli/tests/common/browser.js");
/// Script that looks at pages, and prints `sound` if everything worked.
const VISIT: &str = include_str!("browser/visit.js");

#[test]
fn a_browser_shows_the_pages() {
    let names = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let browser = names.into_iter().find(|path| Path::new(path).exists());
    let node = Command::new("node").arg("--version").output();
    let (Some(browser), true) = (browser, node.is_ok_and(|output| output.status.success())) else {
        skip::without_program("pages in a browser", "no chromium, or no node");
        return;
    };
    let images = Images::plain();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let permissions = Permissions {
        changes: true,
        upload_folders: vec![images.root()],
        temporary: images.path(""),
        ..Permissions::default()
    };
    let site = Site::start(&images.root(), Limits::default(), permissions);
    if std::env::var_os("BANDSAW_AXE").is_none() {
        skip::skip("rules of axe-core", "BANDSAW_AXE does not name its script");
    }
    let script = images.path("visit.mjs");
    std::fs::write(&script, [BROWSER, VISIT].concat()).unwrap();
    let visit = Command::new("node")
        .arg(script)
        .arg(browser)
        .arg(site.running.url())
        .arg(images.path("profile"))
        .env("BANDSAW_BROWSER_SECONDS", "600")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&visit.stdout);
    let failed = String::from_utf8_lossy(&visit.stderr);
    assert!(
        visit.status.success() && said.trim() == "sound",
        "{said}\n{failed}"
    );
    let dropped = std::fs::read(images.root().join("dropped.txt")).unwrap();
    assert_eq!(dropped, b"dropped contents");
}
