//! The conformance suite and the adversaries that every layer is put through.
