//! What the owner of a server is told while it runs.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Told what happens, from any thread. It must not wait for long.
pub trait Watch: fmt::Debug + Send + Sync {
    /// One line about a client or a failure.
    fn note(&self, note: &Note);
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A client has chosen an export.
    Connected {
        /// Who.
        client: String,
        /// The export's name.
        export: String,
    },
    /// It is gone.
    Disconnected {
        /// Who.
        client: String,
        /// Why, unless it said good-bye.
        error: Option<String>,
    },
    /// A client was not let in.
    Refused {
        /// Who.
        client: String,
        /// Why.
        reason: String,
    },
    /// A request failed, and the client was told so.
    Failed {
        /// What was asked: `read`, `write`, ...
        doing: &'static str,
        /// The export's name.
        export: String,
        /// Why.
        error: String,
        /// How many more failed since the last note, of which none was given.
        unreported: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { client, export } => {
                write!(f, "{client} connected to export {export:?}")
            }
            Self::Disconnected {
                client,
                error: None,
            } => write!(f, "{client} left"),
            Self::Disconnected {
                client,
                error: Some(error),
            } => write!(f, "{client} is gone: {error}"),
            Self::Refused { client, reason } => write!(f, "{client} was refused: {reason}"),
            Self::Failed {
                doing,
                export,
                error,
                unreported: 0,
            } => write!(f, "export {export:?}: {doing}: {error}"),
            Self::Failed {
                doing,
                export,
                error,
                unreported,
            } => {
                write!(
                    f,
                    "export {export:?}: {doing}: {error} ({unreported} more failed before)"
                )
            }
        }
    }
}

/// A watch that does not look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn note(&self, _note: &Note) {}
}

/// Lets a few notes through in each span of time: a client can fail a million times a minute.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<(Instant, u32, u64)>);

/// The span.
const SPAN: Duration = Duration::from_secs(10);
/// The notes in it.
const NOTES: u32 = 10;

impl Default for Throttle {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0, 0)))
    }
}

impl Throttle {
    /// Returns whether a note may be given, and how many were not since the last.
    pub(crate) fn admit(&self) -> Option<u64> {
        let (since, given, held) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.elapsed() > SPAN {
            (*since, *given) = (Instant::now(), 0);
        }
        if *given == NOTES {
            *held += 1;
            return None;
        }
        *given += 1;
        Some(std::mem::take(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_held_back() {
        let throttle = Throttle::default();
        assert_eq!(
            (0..1000)
                .filter_map(|_| throttle.admit())
                .collect::<Vec<_>>(),
            [0; 10]
        );
        throttle.0.lock().unwrap().0 = Instant::now().checked_sub(SPAN * 2).unwrap();
        assert_eq!(throttle.admit(), Some(990));
        assert_eq!(throttle.admit(), Some(0));
    }
}
