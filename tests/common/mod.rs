//! Helpers shared by several suites.
#![allow(dead_code, reason = "each suite uses a part")]

#[cfg(feature = "s3")]
pub(crate) mod ceph;
pub(crate) mod changing;
pub(crate) mod converting;
pub(crate) mod corpus;
pub(crate) mod opened;
#[cfg(feature = "s3")]
pub(crate) mod server;
pub(crate) mod skip;
pub(crate) mod small_asif;
#[cfg(feature = "s3")]
pub(crate) mod versity;
