//! Jobs that several threads share. The first error stops all, and a panic reaches the caller.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use crate::sync::{Condvar, Mutex};
use crate::{Error, Kind, Result};

/// Returns the number of cores: at least 1 and at most `max`.
pub fn cores(max: usize) -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().min(max).max(1))
}

/// Starts the threads of large requests, which else start when they are first used. Then a failure is a
/// panic, here an error: for processes whose memory is limited.
pub fn start_threads() -> Result<()> {
    let started = rayon::ThreadPoolBuilder::new().build_global();
    started.map_err(|error| Error::io("memory", "start threads", std::io::Error::other(error)))
}

/// Calls `work` for each job, on the thread of the caller and up to `threads - 1` others, which take
/// the jobs in order. Every thread passes a state of its own, made by `begin`, to all its calls;
/// returns the states of those that had a job.
///
/// After a job failed, none begins any more; returns the error that came first. Long jobs should
/// [check](StopFlag::check) whether they are to stop.
pub fn each<T, S: Send>(
    threads: usize,
    jobs: impl Iterator<Item = T> + Send,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T, &StopFlag) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    each_while(threads, jobs, || Ok(()), begin, work)
}

/// As [`each`]; the thread of the caller runs `meanwhile` before it takes jobs.
pub fn each_while<T, S: Send>(
    threads: usize,
    jobs: impl Iterator<Item = T> + Send,
    meanwhile: impl FnOnce() -> Result<()>,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T, &StopFlag) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    let (jobs, stop) = (Mutex::new(jobs), StopFlag::default());
    let run = || {
        let _stop = StopAtPanic(&stop);
        let mut state = None;
        while !stop.is_set() {
            let Some(job) = jobs.lock().next() else { break };
            stop.record(work(state.get_or_insert_with(&begin), job, &stop));
        }
        state
    };
    let states = on_threads(threads, run, || {
        let _stop = StopAtPanic(&stop);
        stop.record(meanwhile());
    });
    stop.take_result().map(|()| states)
}

/// Jobs that threads add while others do them.
#[derive(Debug)]
pub struct Queue<T> {
    jobs: Mutex<Jobs<T>>,
    changed: Condvar,
    stop: StopFlag,
}

#[derive(Debug)]
struct Jobs<T> {
    waiting: VecDeque<T>,
    /// Number of threads that may add jobs.
    busy: usize,
}

#[allow(
    clippy::new_without_default,
    reason = "a queue is made in one place, by name"
)]
impl<T: Send> Queue<T> {
    /// Creates a queue without jobs.
    pub fn new() -> Self {
        Self {
            jobs: Mutex::new(Jobs {
                waiting: VecDeque::new(),
                busy: 0,
            }),
            changed: Condvar::new(),
            stop: StopFlag::default(),
        }
    }

    /// Adds a job that is done after all others. If more than `max` wait, returns the first of them:
    /// the caller should do it before it adds another.
    pub fn push(&self, job: T, max: usize) -> Option<T> {
        let mut jobs = self.jobs.lock();
        jobs.waiting.push_back(job);
        let own = if jobs.waiting.len() > max {
            jobs.waiting.pop_front()
        } else {
            None
        };
        drop(jobs);
        self.changed.notify_one();
        own
    }

    /// Adds a job that is done before all others.
    pub fn push_first(&self, job: T) {
        self.jobs.lock().waiting.push_front(job);
        self.changed.notify_one();
    }

    /// Fails if a job failed, so that the caller should stop.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }

    /// Runs `first` on the thread of the caller, then jobs on it and on up to `threads - 1` others,
    /// until none is left and no thread can add one. Errors and panics are those of [`each`].
    pub fn run<S: Send>(
        &self,
        threads: usize,
        first: impl FnOnce() -> Result<()>,
        begin: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, T) -> Result<()> + Sync,
    ) -> Result<()> {
        self.jobs.lock().busy = 1;
        let caller = Busy(self);
        let run = || {
            let mut state = None;
            while let Some((job, _busy)) = self.next_job() {
                self.stop
                    .record(work(state.get_or_insert_with(&begin), job));
            }
            state
        };
        on_threads(threads, run, || {
            let _busy = caller;
            self.stop.record(first());
        });
        self.stop.take_result()
    }

    /// Waits for a job. `None`: there will be no more.
    fn next_job(&self) -> Option<(T, Busy<'_, T>)> {
        let mut jobs = self.jobs.lock();
        loop {
            if self.stop.is_set() {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                jobs.busy += 1;
                return Some((job, Busy(self)));
            }
            if jobs.busy == 0 {
                return None;
            }
            jobs = self.changed.wait(jobs);
        }
    }
}

/// Counts a thread among those that may add jobs.
struct Busy<'a, T>(&'a Queue<T>);

impl<T> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        drop(StopAtPanic(&self.0.stop));
        self.0.jobs.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

/// Runs `first` on the thread of the caller, and `run` on it afterwards and on `threads - 1` others
/// from the beginning; on fewer if no more can be started.
fn on_threads<S: Send>(
    threads: usize,
    run: impl Fn() -> Option<S> + Sync,
    first: impl FnOnce(),
) -> Vec<S> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map_while(|_| Builder::new().spawn_scoped(scope, &run).ok())
            .collect();
        first();
        let mut states = Vec::from_iter(run());
        for other in others {
            states.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        states
    })
}

/// The first error of any thread, after which all of them stop.
#[derive(Debug, Default)]
pub struct StopFlag {
    is_set: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl StopFlag {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Fails with [`Kind::Cancelled`] if another thread has failed, whose error is the one that
    /// counts.
    pub fn check(&self) -> Result<()> {
        if self.is_set() {
            let message = "stopped because another thread failed";
            return Err(Error::new(Kind::Cancelled, "threads", message));
        }
        Ok(())
    }

    fn record(&self, done: Result<()>) {
        if let Err(error) = done {
            self.failure.lock().get_or_insert(error);
            self.is_set.store(true, Ordering::Relaxed);
        }
    }

    fn take_result(&self) -> Result<()> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }
}

/// Stops the other threads if this one panics.
struct StopAtPanic<'a>(&'a StopFlag);

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_set.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    use super::*;

    fn error(message: &'static str) -> Error {
        Error::new(Kind::Io, "test", message)
    }

    #[test]
    fn each_job_is_done_once() {
        for threads in [0, 1, 3] {
            let done = each(threads, 0..100u64, Vec::new, |done, job, _| {
                done.push(job);
                Ok(())
            });
            let done = done.unwrap();
            assert!(done.len() <= threads.max(1));
            assert!(done.iter().all(|done| done.is_sorted()), "taken in order");
            let mut all = done.concat();
            all.sort_unstable();
            assert_eq!(all, Vec::from_iter(0..100));
        }
        assert!(
            each(2, 0..0, || (), |(), _: u64, _| Ok(()))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn the_first_error_stops_all() {
        let begun = AtomicUsize::new(0);
        let failed = each(
            2,
            0..,
            || (),
            |(), job, stop| {
                begun.fetch_add(1, Ordering::Relaxed);
                if job == 3 {
                    return Err(error("the fourth"));
                }
                // The others do not end before they are told to.
                if job > 3 {
                    loop {
                        stop.check()?;
                    }
                }
                Ok(())
            },
        );
        assert_eq!(failed.unwrap_err().message(), "the fourth");
        assert!(begun.into_inner() <= 5);
    }

    #[test]
    fn a_failure_meanwhile_stops_all_threads() {
        let jobs = AtomicU64::new(0);
        let count = |(): &mut (), _, _: &StopFlag| {
            jobs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let failed = each_while(1, 0..5, || Err(error("meanwhile")), || (), count);
        assert_eq!(failed.unwrap_err().message(), "meanwhile");
        assert_eq!(jobs.load(Ordering::Relaxed), 0);
        each_while(2, 0..5, || Ok(()), || (), count).unwrap();
        assert_eq!(jobs.into_inner(), 5);
    }

    #[test]
    fn jobs_may_add_others() {
        for threads in [1, 3] {
            let (queue, done) = (Queue::new(), AtomicU64::new(0));
            let mut own = None;
            let first = || {
                (0..10).for_each(|n| assert_eq!(queue.push(n, 10), None));
                own = queue.push(10, 5);
                Ok(())
            };
            let work = |(): &mut (), job: u64| {
                done.fetch_add(1, Ordering::Relaxed);
                (0..job).for_each(|_| queue.push_first(0));
                Ok(())
            };
            queue.run(threads, first, || (), work).unwrap();
            // Other threads may have taken jobs before.
            assert!(threads > 1 || own == Some(0), "too many wait");
            let left = own.map_or(0, |job| job + 1);
            assert_eq!(done.into_inner(), 11 + 55 - left);
        }
    }

    #[test]
    fn a_queue_ends_at_an_error_or_panic() {
        let queue = Queue::new();
        let first = || {
            (0..10).for_each(|n| queue.push_first(n));
            while queue.check().is_ok() {}
            queue.check()
        };
        let failed = queue.run(
            3,
            first,
            || (),
            |(), job: u64| match job {
                9 => Err(error("the newest")),
                _ => Ok(()),
            },
        );
        assert_eq!(failed.unwrap_err().message(), "the newest");
        let queue = Queue::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let first = || queue.push(1, 1).map_or(Ok(()), |_| Err(error("two wait")));
            queue.run(
                2,
                first,
                || (),
                |(), job: u64| {
                    assert_ne!(job, 1, "on purpose");
                    Ok(())
                },
            )
        }));
        assert!(caught.is_err());
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        for threads in [1, 2] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                each(
                    threads,
                    0..,
                    || (),
                    |(), job: u64, stop| {
                        assert_ne!(job, 2, "on purpose");
                        if job > 2 {
                            loop {
                                stop.check()?;
                            }
                        }
                        Ok(())
                    },
                )
            }));
            let panic = caught.unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains("on purpose"), "{text}");
        }
    }
}
