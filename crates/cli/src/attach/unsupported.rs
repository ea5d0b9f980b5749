//! Other systems, where this program mounts nothing: macOS attaches images itself.

use std::ffi::OsString;

use bandsaw::Error;

use super::{Attached, Detached};
use crate::failure::{Failure, Outcome};

pub(crate) fn launch(_args: &[OsString]) -> Outcome<Attached> {
    Err(refused())
}

pub(crate) fn detach(_what: &std::ffi::OsStr, _force: bool) -> Outcome<Detached> {
    Err(refused())
}

fn refused() -> Failure {
    Failure::from(Error::unsupported(
        "attach",
        "volumes can be mounted on Linux only",
    ))
    .hint("use the hdiutil of the system")
}
