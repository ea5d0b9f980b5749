//! Creation of volumes: the formats, and formatting of an existing disk.

mod attribute_files;
mod default;
mod existing;
mod kind;

pub use default::{DefaultFormat, FormatRequirements};
pub use existing::{FormatOptions, Formatted, format};
pub use kind::{NewFormat, VolumeOptions};

const LAYER: &str = "format";
