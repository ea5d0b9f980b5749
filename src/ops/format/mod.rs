//! Creation of volumes: the formats, and formatting of an existing disk.

mod attribute_files;
mod existing;
mod kind;

pub use existing::{FormatOptions, Formatted, format};
pub use kind::{NewFormat, VolumeOptions};

const LAYER: &str = "format";
