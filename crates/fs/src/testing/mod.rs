//! Volumes that tests damage, and the layouts whose fields they change.

pub(crate) mod corruption;
pub mod layouts;
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub(crate) mod sample;
