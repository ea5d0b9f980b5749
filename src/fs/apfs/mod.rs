//! APFS containers and the volumes in them.
#![allow(dead_code, reason = "the reader that uses these parts is on its way")]

pub(crate) mod layout;
mod names;
