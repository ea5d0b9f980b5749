//! How images are reached that are not on this machine.

use bandsaw::open::Reach;
use bandsaw::size;
use clap::Args;

/// For every verb that opens or makes an image.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Reaching {
    /// Bytes a second that a bucket is read and written with at most: 10m, 500k
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Images in buckets (s3://)", display_order = 850)]
    bandwidth: Option<u64>,
    /// Take a bundle over from a writer that seems to be alive; what that one writes from then on does not count
    #[arg(long, help_heading = "Images in buckets (s3://)", display_order = 851)]
    steal_lease: bool,
}

impl Reaching {
    /// For the options of the library.
    pub(crate) fn reach(self) -> Reach {
        Reach { variables: |name| std::env::var(name).ok(), bytes_per_second: self.bandwidth, steal_lease: self.steal_lease }
    }
}
