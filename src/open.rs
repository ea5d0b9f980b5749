//! The only file that knows all layers: probe, wrap, probe again.
