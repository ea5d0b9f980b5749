//! The page that `report` writes, opened in a real browser: hover, zoom, dark, narrow, no console
//! error, nothing fetched.

use std::os::unix::fs::PermissionsExt;

use crate::common::Scratch;

/// Script that uses the page in a browser, and prints `sound` if everything worked.
const VISIT: &str = include_str!("report/visit.js");

fn image(scratch: &Scratch) {
    scratch.write("src/keep", vec![1; 300_000]);
    scratch.write("src/big", vec![2; 4_000_000]);
    let size = [
        "--size",
        "64m",
        "--band-size",
        "1m",
        "--volname",
        "<script>alert(1)<b>Docs",
    ];
    let create: Vec<_> = ["create", "Docs.sparsebundle", "--from", "src", "--quiet"]
        .into_iter()
        .chain(size)
        .collect();
    scratch.ok(&create);
    scratch.write("Docs.sparsebundle/bands/ffff", "stray");
}

#[test]
fn a_page_is_one_file_and_safe_from_names() {
    let scratch = Scratch::new();
    image(&scratch);
    scratch.ok(&["report", "Docs.sparsebundle", "-o", "report.html"]);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(!page.contains("<b>Docs") && page.contains("&lt;script&gt;alert(1)&lt;b&gt;Docs"));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    assert!(page.contains("bands/ffff") && page.contains("default-src 'none'"));
    assert!(
        scratch
            .fails(4, &["report", "Docs.sparsebundle", "-o", "report.html"])
            .contains("already exists")
    );
    assert_eq!(
        scratch.ok(&["report", "Docs.sparsebundle", "-o", "-"]),
        page
    );
    // A stray band is damage to `info`, which tells the rest all the same.
    let sheet =
        String::from_utf8(scratch.run(&["info", "--map", "Docs.sparsebundle"]).stdout).unwrap();
    assert!(
        sheet.contains("in use") && sheet.contains("bands/ffff") && sheet.contains('█'),
        "{sheet}"
    );
    std::fs::remove_file(scratch.path("Docs.sparsebundle/bands/ffff")).unwrap();
    let facts = scratch.json(&["info", "--map", "Docs.sparsebundle"]);
    assert_eq!(facts["map"]["units"], 64);
    let advice = scratch.json(&["advise", "Docs.sparsebundle", "--on", "smb"]);
    let on_nas = scratch.json(&["advise", "Docs.sparsebundle", "--on", "nas"]);
    assert_eq!(on_nas, advice);
    assert_eq!(
        (
            advice["band_size"].as_u64(),
            advice["current_band_size"].as_u64()
        ),
        (Some(32 << 20), Some(1 << 20))
    );
}

/// A report lists names in the image, so it is no more open than the image.
#[test]
fn a_page_is_as_private_as_the_image() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "Docs.img", "--size", "2m", "--volname", "Docs"]);
    let mode = |name: &str| scratch.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for bits in [0o600, 0o640] {
        let private = std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(scratch.path("Docs.img"), private).unwrap();
        let name = format!("{bits:o}.html");
        scratch.ok(&["report", "Docs.img", "-o", &name]);
        assert_eq!(mode(&name), bits);
    }
    let mut names = scratch.names();
    names.retain(|name| !name.ends_with(".html") && name != "Docs.img");
    assert_eq!(names, [""; 0], "nothing else is left");
}

#[test]
fn a_browser_shows_it() {
    let scratch = Scratch::new();
    image(&scratch);
    scratch.ok(&["report", "Docs.sparsebundle", "-o", "report.html"]);
    crate::common::browse(&scratch, "report.html", VISIT);
}
