//! A folder of the host.
