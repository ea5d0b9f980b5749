//! Tests of random writes, compared with a model.

use super::*;
use bandsaw_core::device::BlockDevice;

/// Contents that must not be found on disk.
const MARK: &[u8] = b"nobody may read this";

/// A model of a file's contents, and the generator of operations.
pub(super) struct Model {
    pub(super) bytes: Vec<u8>,
    random: Random,
    /// Generator of the bytes to write.
    written: fn(&mut Random, usize) -> Vec<u8>,
}

impl Model {
    /// Returns the model of an empty file that is written with random bytes.
    pub(super) fn new(seed: u64) -> Self {
        Self::of(seed, Random::bytes)
    }

    fn of(seed: u64, written: fn(&mut Random, usize) -> Vec<u8>) -> Self {
        Self {
            bytes: Vec::new(),
            random: Random::new(seed),
            written,
        }
    }

    /// Performs a random operation on the file, or commits the volume, and compares the contents.
    pub(super) fn step(&mut self, fs: &ApfsMut, fork: &dyn BlockDevice) {
        let len = self.bytes.len() as u64;
        match self.random.within(0..10) {
            0 => {
                let now = self.random.within(0..400_000);
                fork.set_len(now, AfterDiscard::Zeros).unwrap();
                self.bytes.resize(now as usize, 0);
            }
            1 if len > 0 => {
                let start = self.random.within(0..len);
                let end = self.random.within(start..len) + 1;
                fork.discard(start..end, AfterDiscard::Zeros).unwrap();
                self.bytes[start as usize..end as usize].fill(0);
            }
            2 => fs.sync().unwrap(),
            _ => {
                let start = self.random.within(0..len + 1);
                let count = self.random.within(1..40_000) as usize;
                let bytes = (self.written)(&mut self.random, count);
                let end = start as usize + bytes.len();
                if end > self.bytes.len() {
                    fork.set_len(end as u64, AfterDiscard::Any).unwrap();
                    self.bytes.resize(end, 0);
                }
                fork.write_at(start, &bytes).unwrap();
                self.bytes[start as usize..end].copy_from_slice(&bytes);
            }
        }
        assert_eq!(fork.info().len, self.bytes.len() as u64);
        assert!(fork.read_vec(0, self.bytes.len()).unwrap() == self.bytes);
    }
}

#[test]
fn contents_are_written_anywhere() {
    let device = container(16 << 20, false);
    let mut model = Model::new(2);
    let mut fs = open(&device);
    let id = file(&fs, fs.root(), "file", &[]);
    for step in 0..400 {
        model.step(&fs, &*fs.open_mut(id, Fork::Data).unwrap());
        if step % 50 == 49 {
            drop(fs);
            assert!(
                contents(&read(&device), "/file") == model.bytes,
                "step {step}"
            );
            fs = open(&device);
        }
    }
    fs.remove(fs.root(), "file").unwrap();
    fs.unmount().unwrap();
    assert_eq!(read(&device).raw.allocated_blocks.get(), 5);
}

/// Writes of any length at any offset; nothing is stored unencrypted.
#[test]
fn encrypted_contents_are_written_in_units_of_the_cipher() {
    let device = encrypted(8 << 20);
    let fs = open(&device);
    let id = file(&fs, fs.root(), str::from_utf8(MARK).unwrap(), &[]);
    let fork = fs.open_mut(id, Fork::Data).unwrap();
    let mut model = Model::of(3, |_, count| {
        MARK.iter().copied().cycle().take(count).collect()
    });
    (0..400).for_each(|_| model.step(&fs, &*fork));
    let long = MARK.repeat(1000);
    fs.set_xattr_bytes(id, "user.short", MARK).unwrap();
    fs.set_xattr_bytes(id, "user.long", &long).unwrap();
    fs.take_snapshot("kept", None).unwrap();
    drop(fork);
    file(&fs, fs.root(), "more", &long);
    fs.remove(fs.root(), str::from_utf8(MARK).unwrap()).unwrap();
    fs.unmount().unwrap();
    let container = Arc::new(Container::open(device.clone(), None).unwrap());
    container.trusted_free_map().unwrap();
    let kept = container.open_volume(1, Some("kept"), &key).unwrap();
    assert!(contents(&kept, "/nobody may read this") == model.bytes);
    for (name, value) in [("user.short", MARK), ("user.long", &long[..])] {
        let found = kept.xattr(id, name).unwrap().unwrap();
        assert!(found.read_vec(0, value.len()).unwrap() == value, "{name}");
    }
    assert!(contents(&read(&device), "/more") == long);
    assert!(
        !device
            .to_vec()
            .windows(MARK.len())
            .any(|bytes| bytes == MARK),
        "something is in the clear"
    );
    let wrong = |_: &LockedVolume| Ok(VolumeKey::Passphrase(Secret::new(b"wrong".to_vec())));
    assert_eq!(
        kind(ApfsMut::open(
            &container,
            1,
            WriteOptions::default(),
            &wrong
        )),
        Kind::WrongKey
    );
}
