//! Deleted files, and files of damaged volumes: searched in all volumes of an image, and written to a folder.

mod batch;
mod extract;
mod lost_volumes;
mod record;
mod report;
mod scan;
mod selection;

pub use extract::{Extractor, Recovered};
pub use record::{FileEntry, LossEntry, RunEntry, VolumeEntry};
pub use report::{ReportFormat, ReportWriter};
pub use scan::{RecoverySink, recover};
pub use selection::Selection;
