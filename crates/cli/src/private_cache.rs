//! The user's cache folder.

use std::env;
use std::path::PathBuf;

use bandsaw_states::PrivateCache;

/// Opens the cache folder of this command, which is made if it is missing. `None` if there is none that belongs
/// to the user alone.
pub(crate) fn open() -> Option<PrivateCache> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    PrivateCache::open(caches.join("bandsaw"))
}
