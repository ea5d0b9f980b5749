//! A periodic task.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::LAYER;
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result};

/// A thread that runs a task periodically. Dropping it waits for a running call and ends the
/// thread.
#[derive(Debug)]
pub(super) struct PeriodicTask {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicTask {
    /// Calls `work` after each interval `every`, until it returns `false`.
    pub(super) fn start(
        name: &str,
        every: Duration,
        mut work: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = stop.clone();
        let periodic = move || {
            let (stop, changed) = &*stopped;
            loop {
                let stop = stop.lock();
                let stop = changed.wait_timeout_while(stop, every, |stop| !*stop);
                if *stop {
                    return;
                }
                drop(stop);
                if !work() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(periodic);
        let thread = thread.map_err(|error| Error::io(LAYER, "start a thread", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for PeriodicTask {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
