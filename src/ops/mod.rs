//! What people ask for, each in one file.
