//! States of bundles and hashes of bands, against what other programs, kills and rot do to them.

mod bucket;
mod common;
mod forget;
mod keep;
mod power_cut;
mod roll_back;
mod send;
mod status;
mod verification;
