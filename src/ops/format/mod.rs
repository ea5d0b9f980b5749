//! Making volumes: what kinds there are, and one on a disk that exists.

mod existing;
mod kind;

pub use existing::{FormatOptions, Formatted, format};
pub use kind::{NewFormat, VolumeOptions};

const LAYER: &str = "format";
