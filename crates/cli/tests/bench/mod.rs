//! `bench` as its users call it: what is measured, kept, shown and compared, and what is left when
//! something goes wrong.

mod articles;
mod files;
mod images;

use std::fs;

use crate::common::Scratch;

/// Script that uses the page in a browser, and prints `sound` if everything worked.
const VISIT: &str = include_str!("visit.js");

/// Looks at any page of results.
fn look_at(scratch: &Scratch, page: &str, name: &str) {
    let steps = format!("visit(\"true\", () => layout(\"{name}\"));");
    crate::common::browse(scratch, page, &steps);
}

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("work")).unwrap();
    scratch
}

fn is_empty(scratch: &Scratch, folder: &str) -> bool {
    fs::read_dir(scratch.path(folder)).unwrap().next().is_none()
}
