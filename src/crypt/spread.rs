//! Large requests over the cores.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// What is encrypted or decrypted at a time: as much as the second-level cache holds beside what
/// comes of it.
pub(crate) const PIECE: usize = 256 << 10;
/// From this many bytes a request is spread over the cores: handing a piece over costs a small part
/// of its encryption.
const SPREAD: usize = 2 * PIECE;

/// The cores, for pieces of large requests alone. Who works here waits for nobody that waits for a
/// piece.
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    ThreadPoolBuilder::new()
        .thread_name(|n| format!("crypt {n}"))
        .build()
        .ok()
});
/// Large requests under way.
static LARGE: AtomicUsize = AtomicUsize::new(0);

/// Gives each [`PIECE`] of `data`, with its number, to `work`: on all cores if there is much of it.
pub(crate) fn each<E: Send>(
    data: &[u8],
    work: impl Fn(usize, &[u8]) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = |(number, piece): (usize, &[u8])| work(number, piece);
    match Large::begin(data.len()).pool {
        Some(pool) => pool.install(|| data.par_chunks(PIECE).enumerate().try_for_each(work)),
        None => data.chunks(PIECE).enumerate().try_for_each(work),
    }
}

/// The same with pieces that are changed.
pub(crate) fn each_mut<E: Send>(
    data: &mut [u8],
    work: impl Fn(usize, &mut [u8]) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = |(number, piece): (usize, &mut [u8])| work(number, piece);
    match Large::begin(data.len()).pool {
        Some(pool) => pool.install(|| data.par_chunks_mut(PIECE).enumerate().try_for_each(work)),
        None => data.chunks_mut(PIECE).enumerate().try_for_each(work),
    }
}

/// A large request under way. It has all cores for itself, unless others keep them busy: two
/// requests on two cores are fastest where they are. Nor has a caller from a pool, whose other work
/// must not begin in the middle of a request.
struct Large {
    counted: bool,
    pool: Option<&'static ThreadPool>,
}

impl Large {
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

impl Drop for Large {
    fn drop(&mut self) {
        if self.counted {
            LARGE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
