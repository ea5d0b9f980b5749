//! What ends a mount although programs still use it: nothing is let in any more, and what is inside
//! is waited for.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use fuser::Errno;

/// Open until it is closed for good.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: RwLock<bool>,
}

impl Gate {
    /// Lets a change in; it counts as inside for as long as the guard lives.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, Errno> {
        let inside = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        if *inside {
            Err(Errno::ENOTCONN)
        } else {
            Ok(inside)
        }
    }

    /// Closes it once nobody is inside.
    pub(crate) fn close(&self) {
        *self.closed.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}
