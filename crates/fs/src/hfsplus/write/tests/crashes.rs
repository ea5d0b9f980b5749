//! Power failures at every point of a few operations: the volume opens afterwards in the state
//! after some operation.

use std::collections::BTreeMap;

use super::*;
use crate::{Attributes, FileKind};
use bandsaw_core::device::AfterDiscard;

const LEN: u64 = 1 << 20;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

/// The visible state of a volume: paths with length, links and names of attributes.
type Listing = BTreeMap<String, (FileKind, u64, u32, Vec<String>)>;

fn state(fs: &dyn FileSystem) -> Listing {
    fn walk(fs: &dyn FileSystem, dir: &Attributes, path: &str, state: &mut Listing) {
        for entry in fs.entries(dir.id).unwrap() {
            let path = format!("{path}/{}", entry.name);
            let found = &entry.attributes;
            state.insert(
                path.clone(),
                (
                    found.kind,
                    found.size,
                    found.links,
                    fs.xattrs(found.id).unwrap(),
                ),
            );
            if found.kind == FileKind::Folder {
                walk(fs, found, &path, state);
            }
        }
    }
    let mut found = Listing::new();
    walk(fs, &fs.attributes(fs.root()).unwrap(), "", &mut found);
    found
}

/// The states after each operation, and the positions in the record from which each is durable.
struct Story {
    store: PowerCut,
    fs: HfsPlusMut,
    states: Vec<Listing>,
    /// Position in the record, and the minimum state after a crash from there on.
    durable: Vec<(usize, usize)>,
}

impl Story {
    fn step(&mut self, step: impl FnOnce(&HfsPlusMut)) {
        step(&self.fs);
        self.states.push(state(&self.fs));
    }

    fn durable(&mut self, step: impl FnOnce(&HfsPlusMut)) {
        step(&self.fs);
        self.durable
            .push((self.store.position(), self.states.len() - 1));
    }

    fn run(&mut self) {
        let root = self.fs.root();
        self.step(|fs| assert!(fs.create(root, "new folder", &folder()).is_ok()));
        let dir = self.fs.resolve("/new folder").unwrap().id;
        for number in 0..8 {
            self.step(|fs| {
                assert!(
                    fs.create(dir, &format!("a name of some length {number}"), &file())
                        .is_ok()
                )
            });
        }
        self.durable(|fs| fs.sync().unwrap());
        let id = self.fs.resolve("/old/file 3").unwrap().id;
        self.step(|fs| fs.link(id, dir, "linked").unwrap());
        self.step(|fs| {
            fs.set_xattr_bytes(id, "user.large", &bytes(9000, 1))
                .unwrap()
        });
        self.step(|fs| {
            fs.rename((dir, "linked"), (root, "moved"), ExistingTarget::Error)
                .unwrap()
        });
        self.durable(|fs| fs.sync().unwrap());
        let old = self.fs.resolve("/old").unwrap().id;
        for number in 10..30 {
            self.step(|fs| fs.remove(old, &format!("file {number}")).unwrap());
        }
        self.durable(|fs| fs.unmount().unwrap());
        let id = self.fs.create(root, "grown", &file()).unwrap();
        self.states.push(state(&self.fs));
        self.step(|fs| {
            fs.open_mut(id, Fork::Data)
                .unwrap()
                .set_len(50_000, AfterDiscard::Any)
                .unwrap()
        });
        self.step(|fs| {
            fs.rename((root, "grown"), (old, "file 4"), ExistingTarget::Replace)
                .unwrap()
        });
        self.durable(|fs| fs.unmount().unwrap());
    }

    /// Checks that the volume after a crash opens, is recovered by opening it for changes, and is
    /// in one of the possible states.
    fn judge(&self, position: usize, store: &PowerCut, what: &str) {
        let least = self
            .durable
            .iter()
            .take_while(|(from, _)| *from <= position)
            .last()
            .map_or(0, |(_, state)| *state);
        let seen = HfsPlus::open(disk(store)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = state(&seen);
        assert!(
            self.states[least..].contains(&found),
            "{what}: {:?}",
            found.keys()
        );
        let fs = HfsPlusMut::open(disk(store), options())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(state(&fs), found, "{what}");
        for number in 0..3 {
            assert!(
                contents(&fs, &format!("/old/file {number}")) == bytes(3000, number),
                "{what}: old file {number}"
            );
        }
        fs.create(fs.root(), "after", &file()).unwrap();
        fs.unmount().unwrap();
        sound(disk(store));
    }
}

fn story(journaled: bool) -> Story {
    let store = PowerCut::default();
    disk(&store).set_len(LEN, AfterDiscard::Zeros).unwrap();
    format(&*disk(&store), layout(false, None));
    store.sync().unwrap();
    let fs = HfsPlusMut::open(disk(&store), options()).unwrap();
    let old = fs.create(fs.root(), "old", &folder()).unwrap();
    for number in 0..30 {
        let id = fs.create(old, &format!("file {number}"), &file()).unwrap();
        fs.write_all(id, &bytes(3000, number)).unwrap();
    }
    fs.unmount().unwrap();
    if journaled {
        fs.enable_journal(None).unwrap();
    }
    let states = vec![state(&fs)];
    let durable = vec![(store.position(), 0)];
    Story {
        store,
        fs,
        states,
        durable,
    }
}

fn cut(journaled: bool) {
    let mut story = story(journaled);
    let first = story.store.position();
    story.run();
    for crash in story.store.crashes_from(first, 11, 2) {
        let what = format!("{crash:?}");
        story.judge(crash.position, &crash.store, &what);
    }
}

#[test]
fn a_cut_leaves_what_some_operation_left() {
    cut(false);
}

#[test]
fn a_cut_leaves_what_some_operation_left_on_a_volume_with_a_journal() {
    cut(true);
}

/// If adding or removing a journal is interrupted at any point, the volume is consistent, with or
/// without it.
#[test]
fn a_cut_leaves_a_journal_or_none() {
    let story = story(false);
    let first = story.store.position();
    story.fs.enable_journal(None).unwrap();
    let between = story.store.position();
    story.fs.disable_journal().unwrap();
    let mut seen = [[false; 2]; 2];
    for crash in story.store.crashes_from(first, 5, 3) {
        let what = format!("{crash:?}");
        let fs = HfsPlusMut::open(disk(&crash.store), options())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let journaled = fs.volume().journaled;
        seen[usize::from(crash.position > between)][usize::from(journaled)] = true;
        for number in 0..30 {
            assert!(
                contents(&fs, &format!("/old/file {number}")) == bytes(3000, number),
                "{what}: old file {number}"
            );
        }
        fs.create(fs.root(), "after", &file()).unwrap();
        fs.unmount().unwrap();
        sound(disk(&crash.store));
    }
    assert_eq!(
        seen, [[true; 2]; 2],
        "with and without, on the way in and on the way out"
    );
}

/// Programs that ignore the journal find the old files at any point of a commit, as long as writes
/// become durable in order.
#[test]
fn old_files_are_found_without_the_journal_too() {
    let mut story = story(false);
    let first = story.store.position();
    story.run();
    for position in first..=story.store.position() {
        let store = story.store.crash_at(position, Keep::Everything);
        let plain = Arc::new(Memory::from(
            disk(&store).read_vec(0, LEN as usize).unwrap(),
        ));
        let [high] = plain.read_array::<1>(1024 + 6).unwrap();
        plain.write_at(1024 + 6, &[high & !0x20]).unwrap();
        let fs = HfsPlus::open(plain).unwrap();
        for number in 0..3 {
            assert!(
                contents(&fs, &format!("/old/file {number}")) == bytes(3000, number),
                "at {position}: old file {number}"
            );
        }
    }
}
