//! Partition maps: where the volumes of a disk are.
