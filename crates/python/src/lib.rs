//! The native part of the Python package `bandsaw`. The Python part, `python/bandsaw`, has the classes that users see.
//!
//! Everything that reads or writes runs detached from the interpreter. Objects are frozen; what changes in them is behind
//! a lock that is never held while the interpreter is waited for.

mod buffer;
mod changes;
mod create;
mod detached;
mod device;
mod dmg;
mod entries;
mod failure;
mod file_object;
mod image;
mod operations;
mod options;
mod progress;
mod value;
mod volume;
mod walk;

use pyo3::prelude::*;

/// The module `bandsaw._bandsaw`.
#[pymodule(gil_used = false)]
mod _bandsaw {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::changes::NewFile;
    #[pymodule_export]
    use crate::create::create;
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::dmg::build_dmg;
    #[pymodule_export]
    use crate::entries::{DirEntry, Entries, Stat};
    #[pymodule_export]
    use crate::image::NativeImage;
    #[pymodule_export]
    use crate::volume::NativeVolume;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
