//! The contract of every [`BlockDevice`] and every [`Store`](bandsaw_core::store::Store), as a test
//! suite.
//!
//! ```
//! use std::sync::Arc;
//! use bandsaw_core::device::Memory;
//! use bandsaw_testing::conformance;
//!
//! conformance::device(|| Arc::new(Memory::zeros(1 << 20)));
//! ```
//!
//! The suite panics at the first violation. The message begins with the check that failed.

mod device;
mod host;
mod promise;
mod seams;
mod store;
mod threads;

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{Access, BlockDevice, BlockDeviceExt, ExtentKind, Info};

pub use device::{Devices, device, read_only};
pub use host::host_store;
pub use promise::Promise;
pub use store::{Stores, store};

/// Minimum length in bytes of a device under test.
pub const MIN_LEN: u64 = 64 << 10;

/// One check of the suite on one fresh device.
struct Case {
    /// The checked property, for messages.
    promise: &'static str,
    device: Arc<dyn BlockDevice>,
    /// The allocation unit of the device in bytes: a band, a chunk, a host block.
    unit: u64,
}

impl Promise for Case {
    fn promise(&self) -> &'static str {
        self.promise
    }
}

impl Case {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn len(&self) -> u64 {
        self.info().len
    }

    #[track_caller]
    fn read(&self, range: Range<u64>) -> Vec<u8> {
        // Filled beforehand, to detect a device that does not write zeros into the buffer.
        let mut buf = vec![0xee; (range.end - range.start) as usize];
        self.must(
            format_args!("read {range:?}"),
            self.device.read_at(range.start, &mut buf),
        );
        buf
    }

    #[track_caller]
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.must(
            format_args!("write {} bytes at {offset}", bytes.len()),
            self.device.write_at(offset, bytes),
        );
    }

    #[track_caller]
    fn expect(&self, offset: u64, expected: &[u8], why: &str) {
        let found = self.read(offset..offset + expected.len() as u64);
        self.compare(offset, &found, expected, why);
    }

    #[track_caller]
    fn compare(&self, offset: u64, found: &[u8], expected: &[u8], why: &str) {
        assert_eq!(
            found.len(),
            expected.len(),
            "{}: {why}: lengths differ",
            self.promise
        );
        if found == expected {
            return; // told apart by the C library, not byte by byte in a debug build
        }
        if let Some(index) = (0..found.len()).find(|index| found[*index] != expected[*index]) {
            let differing = (0..found.len())
                .filter(|index| found[*index] != expected[*index])
                .count();
            panic!(
                "{}: {why}: byte {} is {:#04x}, expected {:#04x} ({differing} of {} bytes from {offset} on differ)",
                self.promise,
                offset + index as u64,
                found[index],
                expected[index],
                found.len()
            );
        }
    }

    /// Iterates over the extents of `range`: they must cover it, and those without data must read
    /// as zeros.
    #[track_caller]
    fn check_extents(&self, range: Range<u64>) -> Vec<(Range<u64>, ExtentKind)> {
        let mut found = Vec::new();
        for extent in self.device.extents(range.clone()) {
            let (at, kind) = self.must(format_args!("extents of {range:?}"), extent);
            if kind != ExtentKind::Data {
                let ends = [
                    at.start..at.end.min(at.start + MIN_LEN),
                    at.end.saturating_sub(MIN_LEN).max(at.start)..at.end,
                ];
                for end in ends {
                    let zeros = vec![0; (end.end - end.start) as usize];
                    self.expect(
                        end.start,
                        &zeros,
                        &format!("extents say {kind:?} at {at:?}"),
                    );
                }
            }
            let middle = at.start + (at.end - at.start) / 2;
            let again = self.must(
                format_args!("extent at {middle}"),
                self.device.extent_at(middle..at.end),
            );
            self.claim(
                again.kind == kind,
                format_args!(
                    "extent {at:?} is {kind:?} from its start, {:?} from its middle",
                    again.kind
                ),
            );
            found.push((at, kind));
        }
        let end = found.last().map_or(range.start, |(at, _)| at.end);
        self.claim(
            end == range.end,
            format_args!("extents of {range:?} end at {end}"),
        );
        found
    }

    fn is_writable(&self) -> bool {
        self.info().access == Access::ReadWrite
    }
}
