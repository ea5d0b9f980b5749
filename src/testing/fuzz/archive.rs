//! Encrypted archives.

use std::sync::Arc;

use crate::crypt::aea::fixture::ArchiveFixture;
use crate::crypt::aea::{Archive, ArchiveKeys, LockedArchive, Profile, check};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::problem::Problems;
use crate::progress::Silent;

/// Maximum length of contents that are read as a whole.
const MAX_READ: u64 = 1 << 20;
/// Maximum size of segments that are read.
const MAX_SEGMENT: u32 = 1 << 20;

/// Takes an archive. It opens or is refused, and its contents can be read, or are damaged, which a
/// check finds, too. The headers of archives that are only signed are read without their MACs.
pub fn encrypted_archive(input: &[u8]) {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(input.to_vec()));
    let Ok(Some(locked)) = LockedArchive::read(&*file) else {
        return;
    };
    let description = locked.describe();
    assert!(description.metadata_len as usize <= input.len());
    let profile = description.profile;
    let fixture = ArchiveFixture {
        profile,
        ..ArchiveFixture::default()
    };
    let keys = match profile {
        // Slow by design.
        Profile::Passphrase => return,
        Profile::Signed => ArchiveKeys::default(),
        _ => fixture.keys(),
    };
    let Ok(unlocked) = locked.unlock(&keys) else {
        return;
    };
    let archive = Archive::new(file, unlocked);
    let root = archive.description().root;
    let Some(root) = root.filter(|root| root.segment_size <= MAX_SEGMENT) else {
        return;
    };
    let len = archive.info().len;
    assert_eq!(len, root.size);
    assert!(archive.read_vec(len, 1).is_err());
    for offset in [len.saturating_sub(512), len / 2, 0] {
        let _ = archive.read_vec(offset, (len - offset).min(512) as usize);
    }
    if len > MAX_READ {
        return;
    }
    let read = archive.read_vec(0, len as usize);
    let checked = check(&archive, &mut Problems::default(), &Silent);
    let is_whole = checked.is_ok_and(|checked| checked.damaged == 0);
    assert_eq!(is_whole, read.is_ok(), "a check and a read disagree");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| (n / 7).to_be_bytes())
        .take(40_000)
        .collect();
    let made = |profile, compression, checksum| {
        let fixture = ArchiveFixture {
            profile,
            compression,
            checksum,
            segments_per_cluster: 2,
            ..ArchiveFixture::default()
        };
        fixture.of(&plain)
    };
    vec![
        made(Profile::Signed, b'z', 2),
        made(Profile::Signed, b'e', 1),
        made(Profile::Signed, b'x', 0),
        made(Profile::Signed, b'-', 0),
        made(Profile::Symmetric, b'z', 2),
        made(Profile::SymmetricSigned, b'-', 0),
    ]
}
