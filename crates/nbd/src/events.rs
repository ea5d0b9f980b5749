//! Events of a running server for its owner.

use std::fmt;
use std::time::{Duration, Instant};

use bandsaw::sync::Mutex;

/// A receiver of events, called from any thread. It must not block for long.
pub trait EventReceiver: fmt::Debug + Send + Sync {
    /// Receives an event about a client or a failure.
    fn on_event(&self, event: &Event);
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client has chosen an export.
    Connected {
        /// Description of the client.
        client: String,
        /// Name of the export.
        export: String,
    },
    /// A client has disconnected.
    Disconnected {
        /// Description of the client.
        client: String,
        /// Reason, unless it disconnected properly.
        error: Option<String>,
    },
    /// A client was refused.
    Refused {
        /// Description of the client.
        client: String,
        /// Reason for the refusal.
        reason: String,
    },
    /// A request failed; the client got an error.
    Failed {
        /// Kind of request: `read`, `write`, ...
        doing: &'static str,
        /// Name of the export.
        export: String,
        /// Error message.
        error: String,
        /// Number of failures since the last event that were not reported.
        unreported: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { client, export } => {
                write!(f, "{client} connected to export {export:?}")
            }
            Self::Disconnected {
                client,
                error: None,
            } => write!(f, "{client} disconnected"),
            Self::Disconnected {
                client,
                error: Some(error),
            } => write!(f, "connection of {client} lost: {error}"),
            Self::Refused { client, reason } => write!(f, "{client} was refused: {reason}"),
            Self::Failed {
                doing,
                export,
                error,
                unreported: 0,
            } => write!(f, "export {export:?}: {doing} failed: {error}"),
            Self::Failed {
                doing,
                export,
                error,
                unreported,
            } => {
                write!(
                    f,
                    "export {export:?}: {doing} failed: {error} ({unreported} more failed before)"
                )
            }
        }
    }
}

/// A receiver that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct IgnoreEvents;

impl EventReceiver for IgnoreEvents {
    fn on_event(&self, _event: &Event) {}
}

/// Rate limit of events: a client can cause a million failures per minute.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<(Instant, u32, u64)>);

/// Interval of the rate limit.
const SPAN: Duration = Duration::from_secs(10);
/// Maximum events per interval.
const MAX_EVENTS: u32 = 10;

impl Default for Throttle {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0, 0)))
    }
}

impl Throttle {
    /// Returns the number of events suppressed since the last one if another is permitted, else
    /// `None`.
    pub(crate) fn admit(&self) -> Option<u64> {
        let (since, given, held) = &mut *self.0.lock();
        if since.elapsed() > SPAN {
            (*since, *given) = (Instant::now(), 0);
        }
        if *given == MAX_EVENTS {
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
        throttle.0.lock().0 = Instant::now().checked_sub(SPAN * 2).unwrap();
        assert_eq!(throttle.admit(), Some(990));
        assert_eq!(throttle.admit(), Some(0));
    }
}
