//! What the project does to itself: `cargo xtask <command>`.
#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;

const USAGE: &str = "\
cargo xtask tidy    what the compiler does not check: direction of imports, words on top of files, unsafe code";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root()),
        [] | ["help" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => anyhow::bail!("no such command; there are:\n{USAGE}"),
    }
}

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
