//! Workloads that measure disk images, and folders, as their users load them, and what the
//! measurements say.
//!
//! | you look for | it is in |
//! | --- | --- |
//! | which files are written, in which order | [`plan`] |
//! | how each of them is timed | [`files`]; in a folder, from announcement to report, [`folder`] |
//! | the published protocols on images of any kind | [`images`] |
//! | where they are written: a folder, a volume in an image | [`place`] |
//! | what samples say | [`stats`] |
//! | what is kept, drawn and printed of them | [`report`] |
//! | two runs beside each other | [`compare`] |
//! | what others have published | [`mod@reference`], data in `data/references.json` |
//! | how much storage an image takes that is filled, emptied and filled again | [`images::space`] |
//!
//! Nothing here prints: the command is `bandsaw bench`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod compare;
pub mod contents;
pub mod files;
pub mod folder;
pub mod images;
pub mod machine;
pub mod noise;
pub mod place;
pub mod plan;
pub mod reference;
pub mod report;
pub mod sample;
pub mod stats;
pub mod units;
