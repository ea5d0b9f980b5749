//! HFS+ and HFSX volumes.

pub(crate) mod layout;
#[allow(dead_code, reason = "reader and builder are about to use it")]
pub(crate) mod unicode;
