//! Notifications for the owner of a mounted image.

use std::fmt;
use std::time::{Duration, Instant};

use bandsaw::Error;
use bandsaw::sync::Mutex;
use fuser::Errno;

use crate::errno;

/// A callback that receives notifications, a line at a time.
pub type Note = Box<dyn Fn(&str) + Send + Sync>;

/// Minimum interval between two lines: a failing disk fails thousands of requests.
const PAUSE: Duration = Duration::from_secs(1);

/// Notifies the owner of errors in the image or the host.
pub(crate) struct Notes {
    note: Note,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Notes {
    pub(crate) fn new(note: Note) -> Self {
        Self {
            note,
            last: Mutex::default(),
        }
    }

    /// Returns the error number for `error`, and notifies the owner if appropriate.
    pub(crate) fn errno(&self, error: &Error) -> Errno {
        if errno::is_worth_a_note(error) {
            self.report(&error.to_string());
        }
        errno::of(error)
    }

    /// Sends a line, unless the last one was sent less than [`PAUSE`] ago: then it is only counted.
    pub(crate) fn report(&self, line: &str) {
        let mut last = self.last.lock();
        match &mut *last {
            Some((at, omitted)) if at.elapsed() < PAUSE => *omitted += 1,
            other => {
                let omitted = other.map_or(0, |(_, omitted)| omitted);
                let more = if omitted > 0 {
                    format!(" ({omitted} more before this)")
                } else {
                    String::new()
                };
                (self.note)(&format!("{line}{more}"));
                *other = Some((Instant::now(), 0));
            }
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}
