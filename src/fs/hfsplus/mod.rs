//! HFS+ and HFSX volumes.
