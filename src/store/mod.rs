//! Folders of devices ([`Store`]): local ones, and those in buckets of object stores and behind https.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

#[cfg(feature = "s3")]
mod bucket;
pub mod objects;
#[cfg(feature = "s3")]
mod ranges;
mod remote;
#[cfg(feature = "s3")]
pub(crate) mod web;

pub use bandsaw_core::store::*;

#[cfg(feature = "s3")]
pub use bucket::{Bucket, BucketOptions, BucketPlace, Credentials};
pub use objects::{FillBuffer, MemoryObjects, ObjectMeta, Objects, ObjectsExt, SharedBytes};
pub use remote::{
    CacheOptions, Checkpointed, FlushTo, LeaseHolder, Remote, RemoteOptions, Snapshot, Status,
};
