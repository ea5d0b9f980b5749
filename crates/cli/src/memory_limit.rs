//! The start of the command under a limit on memory (`ulimit -v`).

use std::ffi::OsString;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::{os::unix::process::CommandExt, process::Command};

use rustix::process::{Resource, getrlimit};

/// Returns true if the memory of this process is limited. With glibc, the program is then started again
/// with settings for it, once.
#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu")),
    expect(unused_variables, reason = "only glibc has one arena for each thread")
)]
pub(crate) fn prepare(words: &[OsString]) -> bool {
    let is_limited = getrlimit(Resource::As).current.is_some();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if is_limited {
        share_arena(words);
    }
    is_limited
}

/// Starts this program again, with one arena of memory for all threads. Each thread has one of 64 MiB of
/// addresses otherwise, so that a limit on memory is reached by a process that uses little of it; and
/// small allocations that fail end the process. glibc reads the setting only at the start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn share_arena(words: &[OsString]) {
    const ARENAS: &str = "MALLOC_ARENA_MAX";
    if std::env::var_os(ARENAS).is_some() {
        return;
    }
    let (Ok(program), Some((name, words))) = (std::env::current_exe(), words.split_first()) else {
        return;
    };
    let mut command = Command::new(program);
    command.arg0(name).args(words).env(ARENAS, "1");
    // Without it, more memory is needed, and nothing else changes.
    let _error = command.exec();
}
