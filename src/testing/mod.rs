//! The conformance suite, fault injection and fuzz targets for every layer.
//!
//! * [`conformance`]: the contract of every device and every store, checked by one call.
//! * [`contents`]: every file of an image, for comparing two states of it.
//! * [`corruptions`]: volumes in which one structure is damaged.
//! * [`fields`]: `repair` against a change of each field of each structure.
//! * [`fuzz`]: a function for each parser, with seeds.
//! * [`mutate`]: corrupted copies of valid bytes.
//! * [`torture`]: long random histories of volumes, with power failures.
//! * [`udif`]: compressed images.
//! * [`walk`]: queries of everything in a volume.
//! * [`model`]: random operations on a device, compared with a plain vector.
//! * [`faults`]: devices and stores whose n-th call fails.
//! * [`object_faults`]: stores of objects whose n-th request fails, or whose response is lost.
//! * [`power_cut`]: a store that yields every state a crash could leave.
//!
//! These are for tests: they panic on the first violation, and name it.

pub mod conformance;
pub mod contents;
pub mod corruptions;
pub mod fields;
pub mod fuzz;
pub mod object_faults;
pub mod torture;
pub mod udif;
pub mod walk;

pub use bandsaw_testing::{PowerCut, Random, faults, model, mutate, power_cut};
