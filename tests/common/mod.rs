//! What several suites share.
#![allow(dead_code, reason = "each suite uses a part")]

pub(crate) mod changing;
pub(crate) mod converting;
pub(crate) mod corpus;
pub(crate) mod opened;
pub(crate) mod small_asif;
