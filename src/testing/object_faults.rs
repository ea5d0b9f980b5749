//! Object stores with network faults: requests fail, responses are lost or late, requests are
//! executed twice.
//!
//! ```
//! use std::sync::Arc;
//! use bandsaw::store::{MemoryObjects, ObjectsExt, Put};
//! use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};
//!
//! let objects = FaultyObjects::new(Arc::new(MemoryObjects::default()));
//! objects.plan(Request::Put, 1, Slip::AnswerLost);
//! assert!(objects.put("key", b"bytes", Put::IfAbsent).is_err());
//! assert!(!objects.put("key", b"bytes", Put::IfAbsent).unwrap(), "it was done all the same");
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::store::{FillBuffer, ObjectMeta, Objects, ObjectsExt, Put, SharedBytes};
use crate::sync::Mutex;
use crate::{Error, Result};

const LAYER: &str = "fault injection";

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Request {
    Read,
    Put,
    Copy,
    Remove,
    Stat,
    List,
}

impl Request {
    /// The requests that change something.
    pub const CHANGES: [Request; 3] = [Request::Put, Request::Copy, Request::Remove];
}

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    /// It never arrives: it has no effect, and the caller gets an error.
    Lost,
    /// It is executed, but the caller gets an error.
    AnswerLost,
    /// It is executed after this delay.
    Late(Duration),
    /// It is executed twice; the caller gets the second response.
    Twice,
}

/// An object store whose requests fail according to a plan. Requests are counted over all threads.
#[derive(Debug)]
pub struct FaultyObjects {
    inner: Arc<dyn Objects>,
    plan: Mutex<FaultPlan>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    counts: HashMap<Request, u64>,
    planned: Vec<(Request, u64, Slip)>,
    always: HashMap<Request, Slip>,
    happened: u64,
}

impl FaultyObjects {
    /// Wraps `inner`, without faults.
    pub fn new(inner: Arc<dyn Objects>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plan: Mutex::default(),
        })
    }

    /// Makes the `n`-th request of this kind from now on fail (1 is the next one); later ones
    /// succeed.
    pub fn plan(&self, request: Request, n: u64, slip: Slip) {
        assert!(n > 0, "the next request is number 1");
        let mut plan = self.plan.lock();
        let now = plan.counts.get(&request).copied().unwrap_or(0);
        plan.planned.push((request, now + n, slip));
    }

    /// Makes every request of this kind fail from now on, until [`clear`](Self::clear).
    pub fn always(&self, request: Request, slip: Slip) {
        self.plan.lock().always.insert(request, slip);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        let mut plan = self.plan.lock();
        plan.planned.clear();
        plan.always.clear();
    }

    /// Returns the number of requests of this kind so far.
    pub fn count(&self, request: Request) -> u64 {
        self.plan.lock().counts.get(&request).copied().unwrap_or(0)
    }

    /// Returns the number of requests that failed by plan.
    pub fn happened(&self) -> u64 {
        self.plan.lock().happened
    }

    fn meet(&self, request: Request) -> Option<Slip> {
        let mut plan = self.plan.lock();
        let count = plan.counts.entry(request).or_default();
        *count += 1;
        let count = *count;
        let planned = plan
            .planned
            .iter()
            .find(|(planned, n, _)| *planned == request && *n == count)
            .map(|(.., slip)| *slip);
        let slip = planned.or_else(|| plan.always.get(&request).copied())?;
        plan.happened += 1;
        Some(slip)
    }

    fn run<T>(&self, request: Request, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        let lost = || {
            Error::io(
                LAYER,
                format!("{request:?}"),
                io::Error::from(io::ErrorKind::TimedOut),
            )
        };
        match self.meet(request) {
            None => run(),
            Some(Slip::Lost) => Err(lost()),
            Some(Slip::AnswerLost) => {
                run()?;
                Err(lost())
            }
            Some(Slip::Late(time)) => {
                thread::sleep(time);
                run()
            }
            Some(Slip::Twice) => {
                run()?;
                run()
            }
        }
    }
}

impl Objects for FaultyObjects {
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>> {
        self.run(Request::Read, || {
            self.inner.read_scattered(key, offset, into)
        })
    }

    fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool> {
        self.run(Request::Put, || {
            self.inner.put_gathered(key, pieces.clone(), cond)
        })
    }

    fn put_large(
        &self,
        key: &str,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.put_buffered(key, len, fill, confirm)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.run(Request::Copy, || self.inner.copy(from, to))
    }

    fn remove(&self, key: &str) -> Result<bool> {
        self.run(Request::Remove, || self.inner.remove(key))
    }

    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.run(Request::Stat, || self.inner.stat(key))
    }

    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        self.run(Request::List, || self.inner.list(prefix, each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::store::MemoryObjects;

    #[test]
    fn requests_go_wrong_by_plan_only() {
        let objects = FaultyObjects::new(Arc::new(MemoryObjects::default()));
        objects.plan(Request::Put, 2, Slip::Lost);
        objects.put("a", b"1", Put::Replace).unwrap();
        assert_eq!(
            objects.put("a", b"2", Put::Replace).unwrap_err().kind(),
            Kind::Io
        );
        let mut byte = [0];
        assert_eq!(objects.read_at("a", 0, &mut byte).unwrap(), Some(1));
        assert_eq!(byte, *b"1");
        objects.plan(Request::Put, 1, Slip::Twice);
        assert!(
            !objects.put("b", b"3", Put::IfAbsent).unwrap(),
            "the second answer is what is seen"
        );
        objects.always(Request::Remove, Slip::AnswerLost);
        assert!(objects.remove("a").is_err() && objects.stat("a").unwrap().is_none());
        objects.clear();
        assert!(objects.remove("b").unwrap());
        assert_eq!((objects.count(Request::Put), objects.happened()), (3, 3));
    }
}
