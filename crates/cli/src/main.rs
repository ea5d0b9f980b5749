//! `bandsaw`: Apple's disk images from the command line.
//!
//! A verb is a file in [`commands`]: its arguments, one call into the library, its output. Errors
//! become text and an exit code only in [`failure`]; formats are left to the library: a verb names
//! one only if it is about that format; [`shims`] know those of the programs that they stand for.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod band_map;
mod change;
mod checksum_args;
mod commands;
mod compression_args;
mod container_args;
mod encryption_args;
mod exports;
mod failure;
mod global_args;
mod hdiutil;
mod headings;
#[cfg(feature = "health")]
mod health;
mod help;
mod image_report;
mod in_use;
mod info_text;
mod info_writer;
mod memory_limit;
mod missing_contents;
mod mount_helper;
mod network_args;
mod new_archive_args;
mod new_file;
mod node;
mod output;
mod passphrase;
mod private_cache;
mod progress;
mod recipe;
mod shims;
mod signals;
mod source;
mod text;
mod throttle_args;
#[cfg(target_os = "linux")]
mod verified_images;
mod volume_encryption_args;

use std::process::ExitCode;

use output::Output;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::survive_limits();
    let words: Vec<_> = std::env::args_os().collect();
    let is_limited = memory_limit::prepare(&words);
    passphrase::hide(&words);
    // Without a limit they start when they are needed, which costs a short command nothing.
    let started = is_limited.then(bandsaw::start_threads).transpose();
    // Apple's programs and their stand-ins report errors in a form of their own.
    let run_as = |name: &str, run: &dyn Fn() -> u8| {
        ExitCode::from(match &started {
            Ok(_) => run(),
            Err(error) => {
                eprintln!("{name}: {error}");
                1
            }
        })
    };
    commands::set_other_program(hdiutil::complete::candidates);
    let completes = words.get(1).is_some_and(|word| word == "__complete");
    let shim = shims::of(words.first().map(|word| &**word));
    if let Some(shim) = shim.filter(|_| !completes) {
        return run_as(shim.name, &|| shims::run(shim, &words[1..]));
    }
    let cli = args::parse(words);
    if let Some((tool, words)) = cli.command.apple_cli() {
        return run_as(tool.name(), &|| hdiutil::run(tool, words));
    }
    let output = Output::new(&cli.global);
    let done = match started {
        Ok(_) => cli.command.run(&output),
        Err(error) => Err(error.into()),
    };
    for left in bandsaw::platform::take_removed() {
        output.warn(&format!(
            "removed {}, a leftover of an interrupted run",
            left.display()
        ));
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&output),
    }
}
