//! The reader on volumes that no real image shows: sketches, sound and broken.

mod broken;
mod fixture;
mod journal;
mod sound;
