//! Options for images on other machines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bandsaw::device::Access;
use bandsaw::open::{LocalCache, NetworkOptions, bucket_folder};
use bandsaw::store::{FlushTo, Remote};
use bandsaw::{Error, size};
use clap::{Args, ValueEnum, ValueHint};

use crate::headings::BUCKETS;

/// The options for remote images, for every verb that opens or makes an image.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NetworkArgs {
    /// Fail a request after this many seconds of silence
    ///
    /// The default is 60.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400), help_heading = BUCKETS, display_order = 849)]
    timeout: Option<u32>,
    /// Limit throughput to and from a bucket, in bytes per second
    ///
    /// Sizes are written as 10m or 500k.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = BUCKETS, display_order = 850)]
    bandwidth: Option<u64>,
    /// Take over a bundle that another writer still holds
    ///
    /// The other writer's lease ends; everything that it writes from then on is discarded.
    #[arg(long, help_heading = BUCKETS, display_order = 851)]
    steal_lease: bool,
    /// Cache the data of a bundle in this local folder
    ///
    /// The cache is kept for later runs. New images are written to the store directly.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = BUCKETS, display_order = 852)]
    cache: Option<PathBuf>,
    /// Limit the size of the cache of each image
    ///
    /// The default is 10g.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "cache", help_heading = BUCKETS, display_order = 853)]
    cache_size: Option<u64>,
    /// Set the durability of a flush
    ///
    /// `store` waits for the store. `local` waits only for the folder of --cache, from which data
    /// is uploaded seconds later; this data is lost if the folder is lost or another writer takes
    /// over the bundle before that.
    #[arg(long, value_name = "WHERE", requires = "cache", help_heading = BUCKETS, display_order = 854)]
    flush: Option<Flush>,
}

/// The place in which a flush makes data durable.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Flush {
    /// Wait until the store has the data
    Store,
    /// Wait until the folder of --cache has the data
    Local,
}

impl NetworkArgs {
    /// Opens the folder of a bundle in a bucket, or a snapshot of the bundle.
    pub(crate) fn bucket(
        &self,
        path: &Path,
        access: Access,
        snapshot: Option<&str>,
    ) -> bandsaw::Result<Arc<Remote>> {
        let opened = bucket_folder(path, access, snapshot, self.options())?;
        opened.ok_or_else(|| Error::invalid("bucket", "expected an address s3://BUCKET/FOLDER"))
    }

    /// Returns the options for the library.
    pub(crate) fn options(&self) -> NetworkOptions<'_> {
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
            redirects: None,
        }
    }
}
