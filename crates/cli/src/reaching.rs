//! How images are reached that are not on this machine.

use std::path::PathBuf;
use std::time::Duration;

use bandsaw::open::{LocalCache, NetworkOptions};
use bandsaw::size;
use bandsaw::store::FlushTo;
use clap::{Args, ValueEnum, ValueHint};

/// What their options stand under.
const HEADING: &str = "Images in buckets (s3://)";

/// The heading of options for images behind https, too.
const ANY_HEADING: &str = "Images in buckets (s3://) and behind https";

/// For every verb that opens or makes an image.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Reaching {
    /// Seconds that a server may stay silent before a request fails; 60 without it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400), help_heading = ANY_HEADING, display_order = 849)]
    timeout: Option<u32>,
    /// Bytes a second that a bucket is read and written with at most: 10m, 500k
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = HEADING, display_order = 850)]
    bandwidth: Option<u64>,
    /// Take a bundle over from a writer that seems to be alive; what that one writes from then on
    /// does not count
    #[arg(long, help_heading = HEADING, display_order = 851)]
    steal_lease: bool,
    /// Keep what is read and written of a bundle in this folder of a local disk, for later uses
    /// too. What is made anew does not go through it
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = HEADING, display_order = 852)]
    cache: Option<PathBuf>,
    /// Bytes of each image that --cache keeps at most; 10g without it
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "cache", help_heading = HEADING, display_order = 853)]
    cache_size: Option<u64>,
    /// What a flush waits for: the store, or the folder of --cache alone, from which the store gets
    /// it seconds later. Should the folder be lost before that, or somebody else take the bundle
    /// over, it is lost
    #[arg(long, value_name = "WHERE", requires = "cache", help_heading = HEADING, display_order = 854)]
    flush: Option<Flush>,
}

/// Where a flush makes things durable.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Flush {
    /// In the store
    Store,
    /// In the folder of --cache
    Local,
}

impl Reaching {
    /// For the options of the library.
    pub(crate) fn reach(&self) -> NetworkOptions<'_> {
        let flush = match self.flush {
            None | Some(Flush::Store) => FlushTo::Store,
            Some(Flush::Local) => FlushTo::Local,
        };
        let cache = self.cache.as_deref().map(|folder| LocalCache {
            folder,
            size: self.cache_size.unwrap_or(10 << 30),
            flush,
        });
        NetworkOptions {
            variables: |name| std::env::var(name).ok(),
            bytes_per_second: self.bandwidth,
            timeout: self
                .timeout
                .map(|seconds| Duration::from_secs(seconds.into())),
            steal_lease: self.steal_lease,
            cache,
        }
    }
}
