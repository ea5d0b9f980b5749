//! Locks within this process, for stores whose contents are limited to it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Guard, Lock};
use crate::sync::Mutex;
use crate::{Error, Result};

/// The holders by name. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Locks(Arc<Mutex<HashMap<String, Holders>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    Shared(usize),
    Exclusive,
}

impl Locks {
    /// Takes a lock, as [`Store::lock`](super::Store::lock) does.
    pub fn acquire(&self, name: &str, mode: Lock) -> Result<Guard> {
        let mut locks = self.0.lock();
        let held = match (locks.get(name), mode) {
            (None, Lock::Exclusive) => Holders::Exclusive,
            (None, Lock::Shared) => Holders::Shared(1),
            (Some(Holders::Shared(n)), Lock::Shared) => Holders::Shared(n + 1),
            (Some(_), _) => {
                return Err(Error::conflict("lock", "in use by this process").named(name));
            }
        };
        locks.insert(name.to_owned(), held);
        Ok(Guard::new(Release {
            locks: self.clone(),
            name: name.to_owned(),
        }))
    }
}

struct Release {
    locks: Locks,
    name: String,
}

impl Drop for Release {
    fn drop(&mut self) {
        let mut locks = self.locks.0.lock();
        match locks.get_mut(&self.name) {
            Some(Holders::Shared(n)) if *n > 1 => *n -= 1,
            _ => drop(locks.remove(&self.name)),
        }
    }
}
