//! The contract of every device, every store and all [`Objects`](crate::store::Objects), as a test
//! suite.

mod objects;

pub use bandsaw_testing::conformance::*;
pub use objects::objects;
