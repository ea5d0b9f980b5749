//! Threads that help a connection while its device makes requests wait. They are begun when there
//! is work for them and end when there is none for a while; each connection has its own, so that a
//! client can only hold up itself.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::buffers::Buffer;
use crate::layout::Request;
use crate::link::Link;
use crate::write::Pending;
use crate::{perform, read, write};

/// Requests that wait for the device at once.
const MOST_THREADS: usize = 16;
/// Requests that wait for a thread; then the client waits too.
const MOST_JOBS: usize = 256;
/// A thread without work ends after this.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nothing here recurses.
const STACK: usize = 512 << 10;

/// Something to be done for a connection. Its memory is part of it: a crew never waits for any.
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

/// The threads of one connection.
#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    state: Mutex<State>,
    /// A job came, or the end.
    work: Condvar,
    /// A job was taken, or a thread ended.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// By the thread that receives, for room or for the end.
    is_waited_for: bool,
    closing: bool,
}

impl WorkerPool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the crew to come on.
    fn wait_while<'s>(
        &self,
        mut state: MutexGuard<'s, State>,
        so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'s, State> {
        if so(&state) {
            state.is_waited_for = true;
            state = self
                .taken
                .wait_while(state, |state| so(state))
                .unwrap_or_else(PoisonError::into_inner);
            state.is_waited_for = false;
        }
        state
    }

    /// Hands a job over. Waits while too many wait already.
    pub(crate) fn post(link: &Arc<Link>, job: Job) {
        let worker_pool = &link.worker_pool;
        let mut state =
            worker_pool.wait_while(worker_pool.state(), |state| state.jobs.len() >= MOST_JOBS);
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == MOST_THREADS {
            if state.idle > 0 {
                worker_pool.work.notify_one();
            }
            return;
        }
        state.threads += 1;
        drop(state);
        let helper = Arc::clone(link);
        let begun = thread::Builder::new()
            .name("nbd-crew".into())
            .stack_size(STACK)
            .spawn(move || helper.worker_pool.help(&helper));
        if begun.is_err() {
            // The host has no thread to give: this one does it.
            let mut state = worker_pool.state();
            state.threads -= 1;
            let job = if state.threads == 0 {
                state.jobs.pop_front()
            } else {
                None
            };
            drop(state);
            job.into_iter().for_each(|job| job.run(link));
        }
    }

    fn help(&self, link: &Link) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.tell(&state);
                drop(state);
                job.run(link);
                state = self.state();
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (back, waited) = self
                .work
                .wait_timeout(state, PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.tell(&state);
    }

    /// To wake nobody is a system call, too.
    fn tell(&self, state: &State) {
        if state.is_waited_for {
            self.taken.notify_all();
        }
    }

    /// Waits until all is done. Nothing may be posted afterwards.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.closing = true;
        self.work.notify_all();
        drop(self.wait_while(state, |state| state.threads > 0));
    }
}

impl Job {
    fn run(self, link: &Link) {
        match self {
            Self::Read(request, buffer) => read::patiently(link, &request, buffer),
            Self::Write {
                pending,
                offset,
                bytes,
            } => write::patiently(link, &pending, offset, &bytes),
            Self::Other(request) => perform::patiently(link, &request),
        }
    }
}
