//! A gate that ends a mount while programs still use it: it refuses new changes, and waits for
//! those in progress.

use bandsaw::sync::{RwLock, RwLockReadGuard};

use fuser::Errno;

/// A gate, open until it is closed permanently.
#[derive(Debug, Default)]
pub(crate) struct ShutdownGate {
    closed: RwLock<bool>,
}

impl ShutdownGate {
    /// Enters a change, which is in progress until the guard is dropped. Fails with ENOTCONN if the
    /// gate is closed.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, Errno> {
        let inside = self.closed.read();
        if *inside {
            Err(Errno::ENOTCONN)
        } else {
            Ok(inside)
        }
    }

    /// Waits for all changes in progress, then closes the gate.
    pub(crate) fn close(&self) {
        *self.closed.write() = true;
    }
}
