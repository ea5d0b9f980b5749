//! Tests of devices and stores: a suite for their contract, a model, failing calls, power cuts.
//!
//! * [`conformance`]: the contract of every device and every store, checked by one call.
//! * [`mutate`]: corrupted copies of valid bytes.
//! * [`model`]: random operations on a device, compared with a plain vector.
//! * [`faults`]: devices and stores whose n-th call fails.
//! * [`power_cut`]: a store that yields every state a crash could leave.
//!
//! These are for tests: they panic on the first violation, and name it.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod faults;
pub mod model;
pub mod mutate;
mod pages;
pub mod power_cut;
mod random;

pub use power_cut::PowerCut;
pub use random::Random;
