//! Decisions about macOS's system calls. Separate from the calls, so that they are tested on every
//! host, with fakes of the calls.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::{Errno, retry_on_intr};

use crate::sync::{Condvar, Mutex};

/// Darwin's numbers of ENOTSUP, ENOSYS and EOPNOTSUPP. The standard library takes only the last as
/// [`io::ErrorKind::Unsupported`]; file servers answer the first.
const UNSUPPORTED: [i32; 3] = [45, 78, 102];
/// Darwin's numbers of EINVAL and ENOTTY, by which file systems refuse an unknown `fcntl`.
const UNKNOWN_CALL: [i32; 2] = [22, 25];

/// Returns true if the file system does not support a call.
pub(super) fn is_unsupported(errno: Errno) -> bool {
    UNSUPPORTED.contains(&errno.raw_os_error())
}

/// Returns true if the file system does not support an `fcntl`.
pub(super) fn is_unknown_fcntl(errno: Errno) -> bool {
    is_unsupported(errno) || UNKNOWN_CALL.contains(&errno.raw_os_error())
}

/// Requests to drives to write their caches (`F_FULLFSYNC`), by the device of the file system.
///
/// `fsync` moves data to the drive, and the request covers all that reached the drive before it. So
/// threads that flush files of one file system at the same time share a request.
#[derive(Default)]
pub(super) struct DriveFlushes(Mutex<HashMap<u64, Arc<Drive>>>);

#[derive(Default)]
struct Drive {
    state: Mutex<DriveState>,
    ended: Condvar,
}

#[derive(Default)]
struct DriveState {
    is_running: bool,
    /// The request that has not begun, if somebody waits for it.
    next: Option<Arc<Request>>,
}

/// A request; its result once it has ended.
#[derive(Default)]
struct Request(Mutex<Option<rustix::io::Result<()>>>);

impl DriveFlushes {
    /// Makes durable what reached the drive of `device` before. Waits for a request that begins from
    /// now on, or makes one with `call`.
    pub(super) fn flush(
        &self,
        device: u64,
        call: impl FnOnce() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let drive = self.0.lock().entry(device).or_default().clone();
        let mut state = drive.state.lock();
        let request = state.next.get_or_insert_default().clone();
        loop {
            if let Some(result) = *request.0.lock() {
                return result;
            }
            if !state.is_running {
                break;
            }
            state = drive.ended.wait(state);
        }
        // Nothing runs and the request has not ended: it is the next.
        state.next = None;
        state.is_running = true;
        drop(state);
        let result = call();
        *request.0.lock() = Some(result);
        drive.state.lock().is_running = false;
        drive.ended.notify_all();
        result
    }
}

/// Makes a file on `device` durable. `fsync` moves its contents to the drive, but does not flush the
/// drive's cache; `full_fsync` does, where the file system supports it. A signal ends neither: an error
/// would mark the file as lost.
pub(super) fn make_durable(
    flushes: &DriveFlushes,
    device: u64,
    fsync: impl FnMut() -> rustix::io::Result<()>,
    full_fsync: impl FnMut() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    retry_on_intr(fsync)?;
    match flushes.flush(device, || retry_on_intr(full_fsync)) {
        // Network file systems support only fsync.
        Err(errno) if is_unknown_fcntl(errno) => Ok(()),
        flushed => flushed,
    }
}

/// Frees the storage behind `range`, which then reads as zeros. `punch` takes whole blocks of `grain`
/// bytes only, and answers `false` if the file system cannot free them: nothing is changed then.
/// `zeros` writes zeros over the rest.
pub(super) fn punch(
    range: Range<u64>,
    grain: u64,
    punch: impl FnOnce(Range<u64>) -> io::Result<bool>,
    mut zeros: impl FnMut(Range<u64>) -> io::Result<()>,
) -> io::Result<bool> {
    let start = range.start.next_multiple_of(grain).min(range.end);
    let end = (range.end - range.end % grain).max(start);
    if start < end && !punch(start..end)? {
        return Ok(false);
    }
    for edge in [range.start..start, end..range.end] {
        if !edge.is_empty() {
            zeros(edge)?;
        }
    }
    Ok(true)
}

/// Opens a new clone for writing. It has the permissions of its original: if they refuse, they are
/// changed first. A clone that cannot be opened is removed.
pub(super) fn open_clone<T>(
    open: impl Fn() -> rustix::io::Result<T>,
    make_writable: impl FnOnce() -> rustix::io::Result<()>,
    remove: impl FnOnce(),
) -> rustix::io::Result<T> {
    let opened = match open() {
        Err(Errno::ACCESS | Errno::PERM) => make_writable().and_then(|()| open()),
        opened => opened,
    };
    opened.inspect_err(|_| remove())
}

/// Returns the block device of a disk that is named by its character device (`/dev/rdisk4s1`), which
/// takes requests of whole sectors only.
pub(super) fn block_device(path: &str) -> Option<String> {
    let disk = path.strip_prefix("/dev/r")?;
    let number = disk.strip_prefix("disk")?;
    number
        .starts_with(|first: char| first.is_ascii_digit())
        .then(|| format!("/dev/{disk}"))
}

/// `UF_NODUMP`, `UF_IMMUTABLE`, `UF_APPEND`, `UF_OPAQUE` and `UF_HIDDEN`: the flags that the owner of a
/// file sets. Others tell how the contents are stored, or are root's.
const OWNERS_FLAGS: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x8000;

/// Returns those of a node's BSD flags that a copy of it gets.
pub(super) fn copied_flags(flags: u32) -> u32 {
    flags & OWNERS_FLAGS
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn errors_of_darwin_are_distinguished() {
        let number = Errno::from_raw_os_error;
        assert!([45, 78, 102].map(number).into_iter().all(is_unsupported));
        assert!(!is_unsupported(number(22)) && is_unknown_fcntl(number(22)));
        assert!(
            [5, 28, 35]
                .map(number)
                .into_iter()
                .all(|errno| !is_unknown_fcntl(errno))
        );
    }

    #[test]
    fn threads_share_a_flush_of_the_drive() {
        let flushes = DriveFlushes::default();
        let calls = AtomicUsize::new(0);
        let (first_begins, begun) = mpsc::channel();
        let (proceed, may_proceed) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (flushes, calls) = (&flushes, &calls);
            let first = scope.spawn(move || {
                flushes.flush(1, || {
                    calls.fetch_add(1, Ordering::SeqCst);
                    first_begins.send(()).unwrap();
                    may_proceed.recv().unwrap();
                    Ok(())
                })
            });
            begun.recv().unwrap();
            // Data that reaches the drive from now on is not covered by the first request.
            let further: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(move || {
                        flushes.flush(1, || {
                            calls.fetch_add(1, Ordering::SeqCst);
                            Err(Errno::IO)
                        })
                    })
                })
                .collect();
            let waiting = || {
                let drive = flushes.0.lock()[&1].clone();
                let state = drive.state.lock();
                state.next.as_ref().map_or(0, Arc::strong_count)
            };
            while waiting() < 9 {
                thread::yield_now();
            }
            assert_eq!(flushes.flush(2, || Ok(())), Ok(()), "another drive");
            proceed.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Ok(()));
            for waited in further {
                assert_eq!(waited.join().unwrap(), Err(Errno::IO));
            }
        });
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        assert_eq!(flushes.flush(1, || Ok(())), Ok(()), "an error is not kept");
    }

    #[test]
    fn a_signal_does_not_end_a_flush() {
        let number = Errno::from_raw_os_error;
        // The answers of both calls, the result, and how often each was called.
        for (fsync, full_fsync, expected, calls) in [
            (vec![], vec![], Ok(()), (1, 1)),
            (vec![Errno::INTR; 2], vec![Errno::INTR; 3], Ok(()), (3, 4)),
            (vec![Errno::IO], vec![], Err(Errno::IO), (1, 0)),
            (vec![], vec![Errno::IO], Err(Errno::IO), (1, 1)),
            (vec![], vec![number(45)], Ok(()), (1, 1)),
            (vec![], vec![Errno::INTR, number(25)], Ok(()), (1, 2)),
        ] {
            let done = (AtomicUsize::new(0), AtomicUsize::new(0));
            let call = |done: &AtomicUsize, errors: &[Errno]| {
                let error = errors.get(done.fetch_add(1, Ordering::SeqCst));
                error.map_or(Ok(()), |&errno| Err(errno))
            };
            let flushed = make_durable(
                &DriveFlushes::default(),
                1,
                || call(&done.0, &fsync),
                || call(&done.1, &full_fsync),
            );
            assert_eq!(flushed, expected, "{fsync:?} {full_fsync:?}");
            assert_eq!((done.0.into_inner(), done.1.into_inner()), calls);
        }
    }

    /// Returns what is done for a range, and the answer.
    fn punched(range: Range<u64>, can: bool) -> (Vec<(&'static str, Range<u64>)>, bool) {
        let done = RefCell::new(Vec::new());
        let answer = punch(
            range,
            4096,
            |range| {
                if can {
                    done.borrow_mut().push(("hole", range));
                }
                Ok(can)
            },
            |range| {
                done.borrow_mut().push(("zeros", range));
                Ok(())
            },
        );
        (done.into_inner(), answer.unwrap())
    }

    #[test]
    fn holes_are_whole_blocks_and_edges_are_zeros() {
        assert_eq!(
            punched(4096..12288, true),
            (vec![("hole", 4096..12288)], true)
        );
        assert_eq!(
            punched(1..12290, true),
            (
                vec![
                    ("hole", 4096..12288),
                    ("zeros", 1..4096),
                    ("zeros", 12288..12290)
                ],
                true
            )
        );
        for within in [5..4000, 4000..5000] {
            assert_eq!(
                punched(within.clone(), true)
                    .0
                    .iter()
                    .map(|(_, range)| range.end - range.start)
                    .sum::<u64>(),
                within.end - within.start
            );
            assert!(punched(within, false).1, "no block is punched");
        }
        assert_eq!(punched(1..12290, false), (Vec::new(), false));
    }

    #[test]
    fn a_clone_of_a_read_only_file_is_opened_or_removed() {
        let removed = RefCell::new(0);
        let writable = RefCell::new(false);
        let open = || match *writable.borrow() {
            true => Ok("open"),
            false => Err(Errno::ACCESS),
        };
        let remove = || *removed.borrow_mut() += 1;
        assert_eq!(
            open_clone(open, || Err(Errno::PERM), remove),
            Err(Errno::PERM)
        );
        assert_eq!(*removed.borrow(), 1);
        let make_writable = || {
            writable.replace(true);
            Ok(())
        };
        assert_eq!(open_clone(open, make_writable, remove), Ok("open"));
        assert_eq!(*removed.borrow(), 1);
        let full = || Err::<(), _>(Errno::MFILE);
        assert_eq!(
            open_clone(full, || unreachable!(), remove),
            Err(Errno::MFILE)
        );
        assert_eq!(*removed.borrow(), 2);
    }

    #[test]
    fn raw_disks_are_opened_as_block_devices() {
        assert_eq!(
            block_device("/dev/rdisk4s1").as_deref(),
            Some("/dev/disk4s1")
        );
        for other in [
            "/dev/disk4",
            "/dev/random",
            "/dev/rdisk",
            "rdisk4",
            "/tmp/rdisk4",
        ] {
            assert_eq!(block_device(other), None, "{other}");
        }
    }

    #[test]
    fn flags_that_tell_how_contents_are_stored_are_not_copied() {
        // Hidden, locked, compressed; locked by root.
        assert_eq!(copied_flags(0x8000 | 0x2 | 0x20 | 0x2_0000), 0x8002);
    }
}
