//! Systems whose kernels are not given volumes by this program: macOS attaches images itself.

use std::ffi::OsString;

use bandsaw::Error;

use super::{Attached, Detached};
use crate::failure::{Failure, Outcome};

pub(crate) fn launch(_args: &[OsString]) -> Outcome<Attached> {
    Err(refused())
}

pub(crate) fn detach(_what: &str, _force: bool) -> Outcome<Detached> {
    Err(refused())
}

fn refused() -> Failure {
    Failure::from(Error::unsupported(
        "attach",
        "volumes are shown as folders on Linux alone",
    ))
    .hint("use the system's own hdiutil here")
}
