//! Documents under `.bandsaw/` in a bucket.

use std::sync::Arc;

use crate::store::{MemoryObjects, Objects, ObjectsExt, Open, Put, Remote, RemoteOptions, Store};

const MANIFEST: &str = ".bandsaw/manifest/0000000000000000";
/// The key of the one object that seeds name, and that of the plain object.
const OBJECT: &str = ".bandsaw/objects/1-0000000000000002-3";
const PLAIN: &str = "bands/0";

/// Takes an input that is a manifest without its checksum, or with one; the store also contains an
/// object that it may name, and a plain one. The bundle is refused, or its files can be read at
/// both ends or return an error, and no object has changed.
pub fn object_log(input: &[u8]) {
    let objects = MemoryObjects::default();
    let summed = [
        input,
        format!("sum {:08x}\n", crc32fast::hash(input)).as_bytes(),
    ]
    .concat();
    for manifest in [input, &summed] {
        for (key, bytes) in [
            (MANIFEST, manifest),
            (OBJECT, &[7; 5000]),
            (PLAIN, &[8; 3000]),
        ] {
            assert!(objects.put(key, bytes, Put::Replace).is_ok());
        }
        if let Ok(remote) = Remote::open(Arc::new(objects.clone()), &RemoteOptions::default()) {
            read_all(&remote);
        }
        let mut count = 0;
        let listed = objects.list("", &mut |_, _| {
            count += 1;
            Ok(())
        });
        assert!(listed.is_ok() && count == 3);
    }
}

fn read_all(remote: &Remote) {
    let mut names = Vec::new();
    let listed = remote.list("", &mut |entry| {
        names.push(entry.name.to_owned());
        Ok(())
    });
    assert!(listed.is_ok());
    assert!(remote.snapshots().len() as u64 == remote.status().snapshots);
    for name in names.iter().take(8) {
        let Ok(Some(file)) = remote.open(name, Open::Read) else {
            continue;
        };
        let len = file.info().len;
        for at in [0, len.saturating_sub(512)] {
            let mut sector = vec![0; len.min(512) as usize];
            let _said_why_not = file.read_at(at, &mut sector);
        }
        if len > 0 {
            assert!(
                file.extent_at(len.saturating_sub(1 << 20)..len)
                    .is_ok_and(|extent| extent.len > 0)
            );
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let objects = MemoryObjects::default();
    let put = objects.put(PLAIN, &[8; 3000], Put::Replace);
    let meta = put.and_then(|_| objects.stat(PLAIN)).ok().flatten();
    let tag = meta.map(|meta| meta.tag).unwrap_or_default();
    let head = "bandsaw manifest 1\nstate 0000000000000000 0000000000000001 0000000000000000 0000000000000001 release\n\
                parts 65536 settled\nholder mac.local 123 1700000000\n";
    let files = format!(
        "file Info.plist 0\nfile bands/0 3000 3000 3000 {tag}\nfile bands/1 140000 100 3000 {tag}\n\
         part 1 1-0000000000000002-3 0 5000\npart 2 - 0 0\ngone bands/2\nsnapshot before%20all 1-0000000000000002-3 1700000000\n"
    );
    vec![
        head.as_bytes().to_vec(),
        format!("{head}{files}").into_bytes(),
    ]
}
