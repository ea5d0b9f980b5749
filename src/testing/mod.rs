//! The conformance suite and the adversaries that every layer is put through.
//!
//! * [`conformance`]: what every device and every store must do, as one call.
//! * [`contents`]: every file of an image, for comparing two states of it.
//! * [`damage`]: volumes in which one structure is damaged.
//! * [`fields`]: `repair` against a change of each field of each structure.
//! * [`fuzz`]: a function for each parser, and inputs to begin with.
//! * [`mutate`]: copies of good bytes with a few things wrong.
//! * [`torture`]: lives of volumes, with power cuts.
//! * [`udif`]: compressed images.
//! * [`walk`]: everything of a volume that can be asked.
//! * [`model`]: random operations on a device beside a plain vector.
//! * [`faults`]: devices and stores whose n-th call fails.
//! * [`object_faults`]: stores of objects whose n-th request fails, or whose answer is lost.
//! * [`power_cut`]: a store that yields every state a crash could leave.
//!
//! These are for tests: where a promise is broken they panic, and say which one.

pub mod conformance;
pub mod contents;
pub mod corruptions;
pub mod faults;
pub mod fields;
pub mod fuzz;
pub mod model;
pub mod mutate;
pub mod object_faults;
mod pages;
pub mod power_cut;
mod random;
pub mod torture;
pub mod udif;
pub mod walk;

pub use power_cut::PowerCut;
pub use random::Random;
