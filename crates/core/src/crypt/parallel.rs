//! Parallel processing of large requests.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Number of bytes encrypted or decrypted at a time: input and output fit the second-level cache.
pub const PIECE: usize = 256 << 10;
/// Minimum size in bytes of a request that is processed in parallel: dispatching a piece costs a
/// small part of its encryption.
const SPREAD: usize = 2 * PIECE;

/// A thread pool only for pieces of large requests. Its threads never wait for a thread that waits
/// for a piece.
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    ThreadPoolBuilder::new()
        .thread_name(|n| format!("crypt {n}"))
        .build()
        .ok()
});
/// Number of large requests in progress.
static LARGE: AtomicUsize = AtomicUsize::new(0);

/// Calls `work` for each [`PIECE`] of `data` with its number, on all cores if `data` is large.
pub(crate) fn each<E: Send>(
    data: &[u8],
    work: impl Fn(usize, &[u8]) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = |(number, piece): (usize, &[u8])| work(number, piece);
    match LargeRequest::begin(data.len()).pool {
        Some(pool) => pool.install(|| data.par_chunks(PIECE).enumerate().try_for_each(work)),
        None => data.chunks(PIECE).enumerate().try_for_each(work),
    }
}

/// Calls `work` for each mutable [`PIECE`] of `data` with its number, on all cores if `data` is
/// large.
pub fn each_mut<E: Send>(
    data: &mut [u8],
    work: impl Fn(usize, &mut [u8]) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = |(number, piece): (usize, &mut [u8])| work(number, piece);
    match LargeRequest::begin(data.len()).pool {
        Some(pool) => pool.install(|| data.par_chunks_mut(PIECE).enumerate().try_for_each(work)),
        None => data.chunks_mut(PIECE).enumerate().try_for_each(work),
    }
}

/// Calls `work` for each job, on all cores if there are several and they are of `length` bytes that are
/// large together. No job may wait for another.
pub(crate) fn each_job<T: Send, E: Send>(
    length: usize,
    jobs: Vec<T>,
    work: impl Fn(T) -> Result<(), E> + Sync + Send,
) -> Result<(), E> {
    let large = (jobs.len() > 1).then(|| LargeRequest::begin(length));
    match large.as_ref().and_then(|large| large.pool) {
        Some(pool) => {
            let jobs = jobs.into_par_iter().with_max_len(1);
            pool.install(|| jobs.try_for_each(work))
        }
        None => jobs.into_iter().try_for_each(work),
    }
}

/// Returns the number of threads that [`spawn`] uses.
pub(crate) fn threads() -> usize {
    POOL.as_ref().map_or(0, ThreadPool::current_num_threads)
}

/// Runs `task` on another thread. It must not wait for a thread that waits for a large request.
pub(crate) fn spawn(task: impl FnOnce() + Send + 'static) {
    if let Some(pool) = POOL.as_ref() {
        pool.spawn(task);
    }
}

/// A large request in progress. It uses the pool if there are at least two threads per large
/// request: otherwise requests are faster on the threads of their callers. Neither does a caller
/// from a pool, whose other tasks must not start in the middle of a request.
struct LargeRequest {
    counted: bool,
    pool: Option<&'static ThreadPool>,
}

impl LargeRequest {
    fn begin(length: usize) -> Self {
        if length < SPREAD || rayon::current_thread_index().is_some() {
            return Self {
                counted: false,
                pool: None,
            };
        }
        let under_way = LARGE.fetch_add(1, Ordering::Relaxed) + 1;
        let pool = POOL
            .as_ref()
            .filter(|pool| 2 * under_way <= pool.current_num_threads());
        Self {
            counted: true,
            pool,
        }
    }
}

impl Drop for LargeRequest {
    fn drop(&mut self) {
        if self.counted {
            LARGE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
