//! Options of verbs that read much, beside programs that need the disk.

use bandsaw::{rate, size};
use clap::Args;

use crate::signals::signal_seen;

/// The lowest priority of a process.
const LOWEST: i32 = 19;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct ThrottleArgs {
    /// Limit the rate of reading, in bytes per second
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    limit_rate: Option<u64>,
    /// Yield the processor and the disk to other programs
    ///
    /// The process gets the lowest priority, 19 as of `nice`. The kernel derives that of its reading
    /// from it, where a scheduler of the disk has priorities (BFQ).
    #[arg(long)]
    low_priority: bool,
}

impl ThrottleArgs {
    /// Applies the options to this process and the threads that it starts.
    pub(crate) fn apply(&self) {
        if let Some(rate) = self.limit_rate {
            rate::limit_reading(rate, || signal_seen().is_some());
        }
        if self.low_priority {
            // Every process may lower its priority.
            let _ = rustix::process::nice(LOWEST);
        }
    }
}
