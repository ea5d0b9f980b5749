//! System calls of macOS for which no safe binding exists: punching holes, the length of a disk,
//! BSD flags. Empty on other systems. Compiled, never run on a Mac.
//!
//! The decisions about these calls are in the library (`crates/core/src/platform/macos_rules.rs`), where they are
//! tested on every system.
#![cfg(target_os = "macos")]
#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `DKIOCGETBLOCKSIZE` of `<sys/disk.h>`: the size of a sector, as `u32`.
const GET_BLOCK_SIZE: libc::c_ulong = 0x4004_6418;
/// `DKIOCGETBLOCKCOUNT` of `<sys/disk.h>`: the number of sectors, as `u64`.
const GET_BLOCK_COUNT: libc::c_ulong = 0x4008_6419;

/// Frees the storage behind a range of bytes, which then reads as zeros. The length of the file stays
/// the same. Both numbers must be multiples of the file system's block size.
pub fn punch_hole(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let number = |value: u64| {
        libc::off_t::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let hole = libc::fpunchhole_t {
        fp_flags: 0,
        reserved: 0,
        fp_offset: number(offset)?,
        fp_length: number(len)?,
    };
    // SAFETY: the kernel reads one `fpunchhole_t`, which lives until the call returns.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PUNCHHOLE, &raw const hole) })
}

/// Returns the length of a disk, a block or character device, in bytes. Fails on other files.
pub fn disk_len(disk: BorrowedFd<'_>) -> io::Result<u64> {
    let (mut size, mut count) = (0_u32, 0_u64);
    // SAFETY: the kernel writes a `u32`, which lives until the call returns.
    checked(unsafe { libc::ioctl(disk.as_raw_fd(), GET_BLOCK_SIZE, &raw mut size) })?;
    // SAFETY: the kernel writes a `u64`, which lives until the call returns.
    checked(unsafe { libc::ioctl(disk.as_raw_fd(), GET_BLOCK_COUNT, &raw mut count) })?;
    count
        .checked_mul(u64::from(size))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sets the BSD flags of an open node, as `chflags(2)`.
pub fn set_flags(node: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    checked(unsafe { libc::fchflags(node.as_raw_fd(), flags) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
