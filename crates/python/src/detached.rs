//! Parts of images that Python objects hold. They are dropped detached from the interpreter.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use pyo3::prelude::*;

/// A part of an image that the methods of an object share. See [`Detached`].
pub(crate) type Shared<T> = Arc<Detached<T>>;

/// A part of an image. It is dropped detached from the interpreter: an image waits for its read-ahead, which waits for the
/// interpreter if a file object is below.
pub(crate) struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(part: T) -> Self {
        Self(Some(part))
    }

    /// Returns the part to a thread that is not attached to the interpreter.
    pub(crate) fn into_part(mut self) -> T {
        self.0.take().expect("only taken when dropped")
    }

    pub(crate) fn shared(part: T) -> Shared<T> {
        Arc::new(Self::new(part))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only taken when dropped")
    }
}

impl<T: Send> DerefMut for Detached<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only taken when dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(part) = self.0.take() {
            detached(|| drop(part));
        }
    }
}

impl<T: Send + fmt::Debug> fmt::Debug for Detached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Runs `work` detached from the interpreter, whether the thread is attached or not.
pub(crate) fn detached(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let _ = Python::try_attach(|py| {
        let work = work.take();
        py.detach(|| work.map(|work| work()));
    });
    // The interpreter is gone, or collects garbage.
    if let Some(work) = work {
        work();
    }
}
