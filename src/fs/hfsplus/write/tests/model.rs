//! Random operations beside a model, with reopenings.

use std::collections::BTreeMap;

use super::*;
use crate::device::Leave;
use crate::{Error, Kind};

#[derive(Debug, Clone, Default, PartialEq)]
struct Object {
    data: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// What the volume should hold: in each folder, names of objects.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<(usize, String), usize>,
    objects: Vec<Object>,
}

const FOLDERS: [&str; 3] = ["/", "/one", "/one/two ü"];

struct Run {
    fs: HfsPlusMut,
    device: Arc<Memory>,
    random: Random,
    model: Model,
    options: WriteOptions,
}

impl Run {
    fn new(seed: u64, layout: Options, len: usize) -> Self {
        let device = Arc::new(Memory::from(Random::new(seed).bytes(len)));
        format(&*device, layout);
        // A cache of a few nodes, and commits in the middle of everything.
        let options = WriteOptions { cache: 256 << 10, now: Some(NOW) };
        let fs = HfsPlusMut::open(device.clone(), options).unwrap();
        let one = fs.create(fs.root(), "one", &folder()).unwrap();
        fs.create(one, "two ü", &folder()).unwrap();
        Self { fs, device, random: Random::new(seed), model: Model::default(), options }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.within(0..end)
    }

    fn dir(&self, folder: usize) -> NodeId {
        self.fs.resolve(FOLDERS[folder]).unwrap().id
    }

    fn place(&mut self) -> (usize, String) {
        let (folder, number) = (self.below(3) as usize, self.below(24));
        let long = if number % 5 == 0 { "a rather long name that fills nodes ".repeat(5) } else { String::new() };
        (folder, format!("{long}é{number}"))
    }

    fn taken(&mut self) -> Option<(usize, String)> {
        let place = self.place();
        let after = self.model.names.range(place..).next().or_else(|| self.model.names.iter().next());
        after.map(|(place, _)| place.clone())
    }

    fn id(&self, place: &(usize, String)) -> NodeId {
        self.fs.lookup(self.dir(place.0), &place.1).unwrap().unwrap_or_else(|| panic!("{place:?} is lost")).id
    }

    /// Compares what an operation did with what it should; `false` if the volume was full.
    fn done(result: Result<()>, expected: Option<Kind>) -> bool {
        match (result, expected) {
            (Ok(()), None) => true,
            (Err(error), None) if error.kind() == Kind::Limit => false,
            (Err(error), Some(kind)) if error.kind() == kind => false,
            (result, expected) => panic!("{result:?}, {expected:?} expected"),
        }
    }

    fn operation(&mut self) {
        match self.below(16) {
            0..=3 => self.create(),
            4..=6 => self.write(),
            7 => self.resize(),
            8 | 9 => self.remove(),
            10 | 11 => self.rename(),
            12 => self.link(),
            13 | 14 => self.xattr(),
            _ => self.fs.sync().unwrap(),
        }
    }

    fn create(&mut self) {
        let place = self.place();
        let taken = self.model.names.contains_key(&place).then_some(Kind::Conflict);
        let made = self.fs.create(self.dir(place.0), &place.1, &file()).map(drop);
        if Self::done(made, taken) {
            self.model.objects.push(Object::default());
            self.model.names.insert(place, self.model.objects.len() - 1);
        }
    }

    fn write(&mut self) {
        let Some(place) = self.taken() else { return };
        let object = self.model.names[&place];
        let (at, len) = (self.below(60_000) as usize, self.below(30_000) as usize);
        let bytes = self.random.bytes(len);
        let file = self.fs.open_mut(self.id(&place), Fork::Data).unwrap();
        let end = (at + len).max(self.model.objects[object].data.len());
        if !Self::done(file.set_len(end as u64, Leave::Zeros), None) {
            return;
        }
        file.write_at(at as u64, &bytes).unwrap();
        let data = &mut self.model.objects[object].data;
        data.resize(end, 0);
        data[at..at + len].copy_from_slice(&bytes);
    }

    fn resize(&mut self) {
        let Some(place) = self.taken() else { return };
        let object = self.model.names[&place];
        let len = self.below(100_000);
        let file = self.fs.open_mut(self.id(&place), Fork::Data).unwrap();
        if Self::done(file.set_len(len, Leave::Zeros), None) {
            self.model.objects[object].data.resize(len as usize, 0);
        }
    }

    fn remove(&mut self) {
        let Some(place) = self.taken() else { return };
        let held = self.random.one_in(4).then(|| self.fs.open(self.id(&place), Fork::Data).unwrap());
        if Self::done(self.fs.remove(self.dir(place.0), &place.1), None) {
            let object = self.model.names.remove(&place).unwrap();
            if let Some(held) = held {
                let data = &self.model.objects[object].data;
                assert_eq!(&held.read_vec(0, data.len()).unwrap(), data);
            }
        }
    }

    fn rename(&mut self) {
        let (Some(from), to) = (self.taken(), self.place()) else { return };
        let existing = if self.random.one_in(2) { Existing::Replace } else { Existing::Keep };
        let (there, object) = (self.model.names.get(&to).copied(), self.model.names[&from]);
        let refused = (there.is_some() && from != to && existing == Existing::Keep).then_some(Kind::Conflict);
        let moved = self.fs.rename((self.dir(from.0), &from.1), (self.dir(to.0), &to.1), existing);
        if Self::done(moved, refused) && there != Some(object) {
            self.model.names.remove(&from);
            self.model.names.insert(to, object);
        }
    }

    fn link(&mut self) {
        let (Some(from), to) = (self.taken(), self.place()) else { return };
        let taken = self.model.names.contains_key(&to).then_some(Kind::Conflict);
        if Self::done(self.fs.link(self.id(&from), self.dir(to.0), &to.1), taken) {
            let object = self.model.names[&from];
            self.model.names.insert(to, object);
        }
    }

    fn xattr(&mut self) {
        let Some(place) = self.taken() else { return };
        let (object, name) = (self.model.names[&place], format!("user.{}", self.below(4)));
        let id = self.id(&place);
        if self.random.one_in(3) {
            let there = self.model.objects[object].xattrs.contains_key(&name);
            if Self::done(self.fs.remove_xattr(id, &name), (!there).then_some(Kind::NotFound)) {
                self.model.objects[object].xattrs.remove(&name);
            }
            return;
        }
        let len = [3, 1000, 3802, 20_000][self.below(4) as usize];
        let value = self.random.bytes(len);
        if Self::done(self.fs.set_xattr_bytes(id, &name, &value), None) {
            self.model.objects[object].xattrs.insert(name, value);
        }
    }

    fn compare(&self, fs: &dyn FileSystem) {
        let mut found = 0;
        for (folder, path) in FOLDERS.iter().enumerate() {
            let dir = fs.resolve(path).unwrap().id;
            for entry in fs.entries(dir).unwrap() {
                let Some(&object) = self.model.names.get(&(folder, entry.name.replace("e\u{301}", "é"))) else {
                    assert_eq!(entry.attributes.kind, crate::fs::FileKind::Folder, "{entry:?}");
                    continue;
                };
                found += 1;
                let object_ = &self.model.objects[object];
                let links = self.model.names.values().filter(|other| **other == object).count();
                assert_eq!((entry.attributes.links as usize, entry.attributes.size as usize), (links, object_.data.len()));
                let read = |device: Arc<dyn BlockDevice>| device.read_vec(0, device.info().len as usize).unwrap();
                assert!(read(fs.open(entry.attributes.id, Fork::Data).unwrap()) == object_.data, "{}", entry.name);
                let names = fs.xattrs(entry.attributes.id).unwrap();
                assert!(names.iter().eq(object_.xattrs.keys()), "{names:?}");
                for (name, value) in &object_.xattrs {
                    assert!(read(fs.xattr(entry.attributes.id, name).unwrap().unwrap()) == *value);
                }
            }
        }
        assert_eq!(found, self.model.names.len());
    }

    fn batch(&mut self, operations: usize) {
        (0..operations).for_each(|_| self.operation());
        self.compare(&self.fs);
        self.fs.unmount().unwrap();
        sound(self.device.clone());
        self.compare(&HfsPlus::open(self.device.clone()).unwrap());
        if self.random.one_in(2) {
            self.fs = HfsPlusMut::open(self.device.clone(), self.options).unwrap();
        }
    }
}

fn run(seed: u64, layout: Options, len: usize, batches: usize) {
    let mut run = Run::new(seed, layout, len);
    for _ in 0..batches {
        run.batch(60);
    }
}

#[test]
fn random_operations_are_the_model() {
    for seed in 0..4 {
        run(seed, layout(seed % 2 == 0, None), 6 << 20, 6);
    }
}

#[test]
fn random_operations_on_a_volume_with_hardly_any_room_are_the_model() {
    for seed in 10..13 {
        run(seed, layout(seed % 2 == 0, Some(512)), 1 << 20, 6);
    }
}

#[test]
#[ignore = "takes minutes; HFSPLUS_BATCHES says how many"]
fn random_operations_for_long() {
    let batches = std::env::var("HFSPLUS_BATCHES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    for seed in 100..104 {
        run(seed, layout(seed % 2 == 0, [None, Some(512), Some(1024), Some(16384)][seed as usize % 4]), 4 << 20, batches);
    }
}

/// Errors of the device in the middle of an operation leave a volume that opens as it was.
#[test]
fn an_operation_that_fails_changes_nothing() {
    let mut run = Run::new(77, layout(false, None), 4 << 20);
    (0..60).for_each(|_| run.operation());
    run.fs.sync().unwrap();
    let volume = &mut *run.fs.shared.write();
    let before = (volume.read.header.raw, volume.buffer.len_if_kept());
    let failed: Result<()> = volume.change(|volume| {
        let id = volume.next_id()?;
        let units = volume.new_name(Cnid::ROOT, "never")?;
        let object = volume.new_record(id, &file());
        volume.enter(Cnid::ROOT, &units, &object)?;
        volume.take(3, 1, None)?;
        Err(Error::new(Kind::Invalid, "test", "on purpose"))
    });
    assert_eq!(failed.unwrap_err().layer(), "test");
    assert!((volume.read.header.raw, volume.buffer.len_if_kept()) == before);
    assert!(volume.try_entry(Cnid::ROOT, "never").unwrap().is_none());
}
