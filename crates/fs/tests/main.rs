//! Comparisons with volumes that other programs made.

mod iso9660;
#[path = "../../../tests/common/skip.rs"]
mod skip;
