//! Changes of APFS volumes made by macOS: existing contents and snapshots are preserved.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::changing::{World, operate, read_into};
use crate::common::corpus;
use bandsaw::Kind;
use bandsaw::crypt::Secret;
use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::apfs::{ApfsMut, Container, WriteOptions};
use bandsaw::fs::{
    FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, LockedVolume, VolumeKey,
};
use bandsaw::testing::Random;

/// Number of a volume's snapshots that are compared.
const SNAPSHOTS: usize = 8;

/// A callback that unlocks the volume, if it is encrypted.
type Ask<'a> = &'a dyn Fn(&LockedVolume) -> bandsaw::Result<VolumeKey>;

fn world(container: &Arc<Container>, snapshot: Option<&str>, key: Ask<'_>) -> World {
    let fs = container.open_volume(1, snapshot, key).unwrap();
    let mut world = World::new();
    read_into(&fs, fs.root(), "", &mut world);
    world
}

/// Returns the contents of some snapshots of a volume.
fn snapshots(container: &Arc<Container>, key: Ask<'_>) -> Vec<(String, World)> {
    let volumes = container.volumes();
    let all = &volumes[0].as_ref().unwrap().snapshots;
    let some = all
        .iter()
        .rev()
        .step_by(all.len().div_ceil(SNAPSHOTS).max(1));
    some.map(|snapshot| {
        (
            snapshot.name.clone(),
            world(container, Some(&snapshot.name), key),
        )
    })
    .collect()
}

#[test]
fn data_written_by_a_mac_stay() {
    let test = "data_written_by_a_mac_stay";
    let Some(images) = corpus::images(test) else {
        return;
    };
    let (mut changed, mut with_snapshots) = (0_u32, 0_u32);
    for image in images {
        for found in image
            .file_systems()
            .iter()
            .filter(|found| found.kind == "APFS")
        {
            let Some(medium) = image.medium() else {
                continue;
            };
            let (start, end) = (
                found.offset as usize,
                image
                    .partition_len(found.offset)
                    .map(|len| (found.offset + len) as usize),
            );
            let device: Arc<dyn BlockDevice> = Arc::new(Memory::from(
                medium[start..end.unwrap_or(medium.len())].to_vec(),
            ));
            let container = Arc::new(Container::open(device.clone(), None).unwrap());
            let passphrase = image.text("volume_password").unwrap_or_default();
            let key = |_: &LockedVolume| Ok(VolumeKey::Passphrase(Secret::new(passphrase.into())));
            let fs = match ApfsMut::open(&container, 1, WriteOptions::default(), &key) {
                Ok(fs) => fs,
                Err(error) => {
                    assert!(
                        matches!(
                            error.kind(),
                            Kind::Unsupported | Kind::Conflict | Kind::Corrupt
                        ),
                        "{error}"
                    );
                    eprintln!("{}: only read: {error}", image.path());
                    continue;
                }
            };
            eprintln!("{}", image.path());
            let (before, kept) = (world(&container, None, &key), snapshots(&container, &key));
            let mut random = Random::new(changed.into());
            let mut touched = BTreeSet::new();
            for _ in 0..100 {
                operate(&fs, &mut random);
                if random.one_in(20) {
                    fs.sync().unwrap();
                }
            }
            // Existing files are changed and removed, too: of those with one name, every third
            // each.
            let single = before
                .iter()
                .filter(|(_, what)| what.0 == FileKind::File && what.1 == 1);
            for (at, (path, _)) in single.enumerate().filter(|(at, _)| at % 3 < 2) {
                let (dir, name) = path.rsplit_once('/').unwrap();
                let (dir, file) = (fs.resolve(dir).unwrap().id, fs.resolve(path).unwrap().id);
                // Compressed files are removed, not written.
                let _ = if at % 3 == 0 {
                    fs.remove(dir, name)
                } else {
                    fs.write_all(file, b"other contents")
                };
                touched.insert(path.clone());
            }
            let mut after = World::new();
            read_into(&fs, fs.root(), "", &mut after);
            fs.unmount().unwrap();
            drop(fs);
            for (path, what) in before.iter().filter(|(path, _)| !touched.contains(*path)) {
                assert!(
                    after.get(path).is_some_and(|now| now.2 == what.2),
                    "{}: {path}",
                    image.path()
                );
            }
            let container = Arc::new(Container::open(device, None).unwrap());
            assert!(container.problems().is_empty());
            container.trusted_free_map().unwrap();
            assert!(world(&container, None, &key) == after, "{}", image.path());
            assert!(snapshots(&container, &key) == kept, "{}", image.path());
            (changed, with_snapshots) = (changed + 1, with_snapshots + u32::from(!kept.is_empty()));
        }
    }
    eprintln!("{test}: {changed} changed, {with_snapshots} of them with snapshots");
}
