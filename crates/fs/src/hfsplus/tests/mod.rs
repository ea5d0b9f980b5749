//! Tests of the reader with volumes built by hand, valid and broken.

mod broken;
mod fixture;
mod journal;
mod sound;
