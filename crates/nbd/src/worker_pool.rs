//! Worker pool of a connection, used while its device is slow. Threads are started on demand and
//! end after an idle period; each connection has its own pool, so that a client can only delay
//! itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::buffers::Buffer;
use crate::connection::Connection;
use crate::layout::Request;
use crate::write::Pending;
use crate::{read, requests, write};
use bandsaw::sync::{Condvar, Mutex, MutexGuard};

/// Maximum number of threads, and so of concurrent requests to the device.
const MAX_THREADS: usize = 16;
/// Maximum number of queued jobs; at this limit receiving stops.
const MAX_JOBS: usize = 256;
/// Idle time after which a thread ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Stack size in bytes; nothing here recurses.
const STACK: usize = 512 << 10;

/// A unit of work of a connection. It owns its buffer: worker threads never wait for memory.
#[derive(Debug)]
pub(crate) enum Job {
    Read(Request, Buffer),
    Write {
        pending: Arc<Pending>,
        offset: u64,
        bytes: Buffer,
    },
    Other(Request),
}

/// The worker threads of a connection.
#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    state: Mutex<State>,
    /// Signaled when a job is queued, or on closing.
    work: Condvar,
    /// Signaled when a job is taken, or a thread ends.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// True while the receiving thread waits for space in the queue, or for the end.
    is_waited_for: bool,
    closing: bool,
}

impl WorkerPool {
    /// Waits while `so` is true.
    fn wait_while<'s>(
        &self,
        mut state: MutexGuard<'s, State>,
        so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'s, State> {
        if so(&state) {
            state.is_waited_for = true;
            state = self.taken.wait_while(state, |state| so(state));
            state.is_waited_for = false;
        }
        state
    }

    /// Queues a job. Blocks while the queue is full.
    pub(crate) fn submit(self: &Arc<Self>, connection: &Arc<Connection>, job: Job) {
        let mut state = self.wait_while(self.state.lock(), |state| state.jobs.len() >= MAX_JOBS);
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == MAX_THREADS {
            if state.idle > 0 {
                self.work.notify_one();
            }
            return;
        }
        state.threads += 1;
        drop(state);
        let (pool, helper) = (Arc::clone(self), Arc::clone(connection));
        let begun = thread::Builder::new()
            .name("nbd-worker".into())
            .stack_size(STACK)
            .spawn(move || pool.help(&helper));
        if begun.is_err() {
            // No thread could be started and none exists: run the job here.
            let mut state = self.state.lock();
            state.threads -= 1;
            let job = if state.threads == 0 {
                state.jobs.pop_front()
            } else {
                None
            };
            drop(state);
            job.into_iter().for_each(|job| job.run(connection));
        }
    }

    fn help(&self, connection: &Connection) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.notify(&state);
                drop(state);
                job.run(connection);
                state = self.state.lock();
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (back, waited) = self.work.wait_timeout(state, IDLE_TIMEOUT);
            state = back;
            state.idle -= 1;
            if waited && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.notify(&state);
    }

    /// Wakes the receiving thread if it waits; notifying costs a system call even without a waiter.
    fn notify(&self, state: &State) {
        if state.is_waited_for {
            self.taken.notify_all();
        }
    }

    /// Waits until all jobs are done and all threads have ended. Nothing may be posted afterwards.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.work.notify_all();
        drop(self.wait_while(state, |state| state.threads > 0));
    }
}

impl Job {
    fn run(self, connection: &Connection) {
        match self {
            Self::Read(request, buffer) => read::run_on_worker(connection, &request, buffer),
            Self::Write {
                pending,
                offset,
                bytes,
            } => write::run_on_worker(connection, &pending, offset, &bytes),
            Self::Other(request) => requests::run_on_worker(connection, &request),
        }
    }
}
