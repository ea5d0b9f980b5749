//! ASIF images with small chunks.

use bandsaw::Result;
use bandsaw::container::asif::Asif;
use bandsaw::device::AfterDiscard;
use bandsaw::store::{Open, Store};
pub(crate) use bandsaw::testing::fuzz::{SMALL_CHUNK as SMALL, small_asif as with_small_chunks};

pub(crate) fn small_image(store: &dyn Store, len: u64) -> Result<Asif> {
    let file = store
        .open("disk.asif", Open::CreateNew)?
        .expect("a new file");
    file.set_len(SMALL, AfterDiscard::Zeros)?;
    file.write_at(0, &with_small_chunks(len))?;
    file.flush()?;
    store.sync()?;
    Asif::open(file)
}
