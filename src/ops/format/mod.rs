//! Making volumes.

mod kind;

pub use kind::{NewFormat, VolumeOptions};

const LAYER: &str = "format";
