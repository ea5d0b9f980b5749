//! A pool of background threads: they prefetch data, and store written data.

use std::sync::Arc;
use std::thread;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// A limited number of threads, each of which runs one task and ends.
#[derive(Debug)]
pub(super) struct TaskPool {
    name: &'static str,
    state: Arc<(Mutex<PoolState>, Condvar)>,
}

#[derive(Debug, Default)]
struct PoolState {
    running: usize,
    /// Total number of finished tasks.
    done: u64,
    closed: bool,
}

/// Counts a task as running until it is dropped.
struct Running(Arc<(Mutex<PoolState>, Condvar)>);

fn locked(state: &Mutex<PoolState>) -> MutexGuard<'_, PoolState> {
    state.lock()
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = locked(&self.0.0);
        state.running -= 1;
        state.done += 1;
        drop(state);
        self.0.1.notify_all();
    }
}

impl TaskPool {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            state: Arc::default(),
        }
    }

    /// Runs `work` in a thread, unless `most` tasks are running already. `false`: it was not
    /// started.
    pub(super) fn begin(&self, most: usize, work: impl FnOnce() + Send + 'static) -> bool {
        {
            let mut state = locked(&self.state.0);
            if state.closed || state.running >= most {
                return false;
            }
            state.running += 1;
        }
        let running = Running(self.state.clone());
        let run = move || {
            // `work` drops its captures before the task counts as finished.
            let _running = running;
            work();
        };
        thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(run)
            .is_ok()
    }

    /// Waits until one more task has finished. `false`: none is running.
    pub(super) fn wait_for_one(&self) -> bool {
        let state = locked(&self.state.0);
        let done = state.done;
        if state.running == 0 {
            return false;
        }
        drop(self.state.1.wait_while(state, |state| state.done == done));
        true
    }

    /// Waits until no task is running.
    pub(super) fn wait_for_all(&self) {
        while self.wait_for_one() {}
    }

    /// Waits until no task is running, and refuses new ones.
    pub(super) fn close(&self) {
        locked(&self.state.0).closed = true;
        self.wait_for_all();
    }
}
