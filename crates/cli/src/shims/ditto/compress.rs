//! Compression of files on a mounted volume.

use std::path::Path;

use crate::failure::Outcome;

/// Times that a file is tried, as the kernel closes it some time after the program has, and the pause
/// between two.
#[cfg(target_os = "linux")]
const TRIES: u32 = 500;
#[cfg(target_os = "linux")]
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Compresses a file, which must be closed. Does nothing where the volume cannot: on any that is not
/// mounted by this command.
#[cfg(target_os = "linux")]
pub(super) fn compress(path: &Path) -> Outcome {
    use rustix::fs::{XattrFlags, setxattr};
    use rustix::io::Errno;

    let set = || setxattr(path, "system.bandsaw.compress", b"", XattrFlags::empty());
    let mut done = set();
    for _ in 1..TRIES {
        if done != Err(Errno::BUSY) {
            break;
        }
        std::thread::sleep(PAUSE);
        done = set();
    }
    match done {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(super::failed("compress", error.into(), path).into()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn compress(_: &Path) -> Outcome {
    Err(super::refused(
        "--hfsCompression is supported on Linux only",
    ))
}
