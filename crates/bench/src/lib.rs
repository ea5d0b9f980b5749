//! Workloads that measure disk images as their users load them.
//!
//! * [`space`]: how much storage an image takes that is filled, emptied and filled again, and what compaction gets back.

pub mod space;
