//! An independent copy of a file: by reference, else inside the kernel, else through a buffer.
//! Holes are preserved.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};

use rustix::fs::{Mode, OFlags};

use crate::device::is_zero;
use crate::platform::{self, Next};
use crate::size::to_usize;

/// Bytes copied at a time if the kernel does not do it.
const PIECE: usize = 1 << 20;

/// Creates `name`, which must not exist, as a copy of `from`. Its contents are durable, its name is
/// not.
pub(super) fn copy(from: &File, folder: &File, name: &str) -> io::Result<()> {
    if let Some(clone) = platform::clone_file(from, folder.as_fd(), name)? {
        keep_mode_of(from, &clone)?;
        return platform::make_durable(&clone);
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::from_raw_mode(0o600),
    )?);
    keep_mode_of(from, &to)?;
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let start = match platform::next_data(from, at)? {
            Next::At(start) => start.min(len),
            Next::Nowhere => break,
            Next::Unknown => at,
        };
        at = match platform::next_hole(from, start)? {
            Next::At(hole) if hole > start => hole.min(len),
            _ => len,
        };
        copy_bytes(from, &to, start, at)?;
    }
    platform::make_durable(&to)
}

/// Makes a copy accessible to the same users as its original.
pub(super) fn keep_mode_of(from: &File, to: &File) -> io::Result<()> {
    let mode = from.metadata()?.permissions().mode() & 0o777;
    to.set_permissions(Permissions::from_mode(mode))
}

/// Copies a range to a file that reads as zeros there.
fn copy_bytes(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    while at < end {
        match platform::copy_range(from, to, at, end - at) {
            Ok(copied) if copied > 0 => at += copied,
            _ => break, // whatever the reason, reading and writing meets it too or is free of it
        }
    }
    copy_by_buffer(from, to, at, end)
}

fn copy_by_buffer(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let mut buf = vec![0; PIECE.min(to_usize(end - at))];
    while at < end {
        let piece = buf.len().min(to_usize(end - at));
        from.read_exact_at(&mut buf[..piece], at)?;
        // Holes that the host does not report are kept as well.
        if !is_zero(&buf[..piece]) {
            to.write_all_at(&buf[..piece], at)?;
        }
        at += piece as u64;
    }
    Ok(())
}

// APFS makes holes only in files of more than 16 MiB.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn unreported_holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let file = File::create_new(folder.path().join(name)).unwrap();
            file.set_len((4 << 20) + 3).unwrap();
            File::options()
                .read(true)
                .write(true)
                .open(folder.path().join(name))
                .unwrap()
        };
        let (from, to) = (make("from"), make("to"));
        from.write_all_at(b"island", 2 << 20).unwrap();
        from.write_all_at(b"end", 4 << 20).unwrap();
        copy_by_buffer(&from, &to, 0, (4 << 20) + 3).unwrap();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert!(read("from") == read("to"));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&to.metadata().unwrap());
        assert!(blocks * 512 <= (PIECE + 4096) as u64, "{blocks} blocks");
    }
}
