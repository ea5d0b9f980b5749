//! Formats that hold a disk.
