//! Development tasks of the project: `cargo xtask <command>`.
#![forbid(unsafe_code)]

mod articles;
mod bench;
mod compression;
mod dist;
mod fields;
mod judge_hfs;
mod space;
mod tidy;
mod torture;

use std::path::Path;

use clap::Parser;

/// Tasks of development.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    /// Check what the compiler does not: direction of imports, words on top of files, unsafe code.
    Tidy,
    /// Repeat the experiments of the articles and write docs/articles.md.
    Articles(articles::ArticlesArgs),
    /// Measure the speed goals and write docs/benchmarks.md.
    Bench(bench::BenchArgs),
    /// Measure what compression saves and costs on an article's five files; writes
    /// docs/compression.md.
    Compression(compression::CompressionArgs),
    /// Build the archives and packages of a release.
    Dist(dist::DistArgs),
    /// Repair, or a verb that writes, against a change of each field of each structure.
    Fields(fields::FieldsArgs),
    /// Measure the space of images that are filled, emptied and compacted.
    Space(space::SpaceArgs),
    /// Damaged HFS+ volumes, repaired by the command and by another checker, every file compared.
    JudgeHfs(judge_hfs::JudgeArgs),
    /// Random operations on volumes beside a model, with power cuts and checks.
    Torture(torture::TortureArgs),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Tidy => tidy::run(root()),
        Command::Articles(args) => articles::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Compression(args) => compression::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Fields(args) => fields::run(&args),
        Command::Space(args) => space::run(&args),
        Command::JudgeHfs(args) => judge_hfs::run(&args),
        Command::Torture(args) => torture::run(&args),
    }
}

/// Returns the folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}
