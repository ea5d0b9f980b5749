//! Comparisons with volumes that other programs made.

mod fat;
mod fat_changes;
mod iso9660;
#[path = "../../../tests/common/skip.rs"]
mod skip;
mod udf;
