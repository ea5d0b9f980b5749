//! The bytes of memory that answers may hold together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a unit of reservation.
const UNIT: usize = 64 << 10;
/// Time between two attempts to reserve bytes.
const PAUSE: Duration = Duration::from_millis(10);

/// A number of bytes that requests share.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    free: Arc<Semaphore>,
    units: usize,
    wait: Duration,
}

/// Bytes that a request may hold, until the last copy of this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Reservation(
    #[expect(dead_code, reason = "holds the bytes")] Arc<OwnedSemaphorePermit>,
);

impl Memory {
    /// Creates a budget of `bytes`; a reservation waits for at most `wait`.
    pub(crate) fn new(bytes: usize, wait: Duration) -> Self {
        let units = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(units)),
            units,
            wait,
        }
    }

    /// Waits until `bytes` are free; of more than there are, for all of them. `None` after the time
    /// limit.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let units = bytes.div_ceil(UNIT).clamp(1, self.units);
        let units = u32::try_from(units).ok()?;
        let end = Instant::now() + self.wait;
        loop {
            // Not in a queue: whoever waits for many bytes would keep them from all others.
            if let Ok(reserved) = self.free.clone().try_acquire_many_owned(units) {
                return Some(Reservation(Arc::new(reserved)));
            }
            if Instant::now() >= end {
                return None;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_and_come_back() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let memory = Memory::new(4 * UNIT, Duration::ZERO);
            let three = memory.reserve(3 * UNIT).await.unwrap();
            assert!(memory.reserve(2 * UNIT).await.is_none());
            let copy = three.clone();
            drop(three);
            assert!(memory.reserve(2 * UNIT).await.is_none());
            drop(copy);
            assert!(memory.reserve(usize::MAX).await.is_some());
        });
    }
}
