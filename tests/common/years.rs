//! Years of backups of a large Mac, for tests at a realistic size: an HFS+ volume with hundreds of dates
//! and millions of names. Contents are computed, and folders that do not change are shared among the
//! dates, so that the truth fits into memory.
#![allow(dead_code, reason = "each suite uses a part")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bandsaw::Result;
use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::source::{ContentReader, Contents, SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp, hfsplus};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;

use super::backupd::{self, GROUP, MACHINE, MARK, OFFSET, PRIVATE, VOLUME, name_of};

/// The size of a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Number of backups.
    pub(crate) dates: usize,
    /// Number of files of the first backup.
    pub(crate) files: usize,
    /// Number of folders in which files change from one date to the next.
    pub(crate) changed_folders: usize,
    /// Mean length of a file in bytes.
    pub(crate) len: u64,
}

/// Files of a folder at the beginning.
const PER_FOLDER: usize = 50;

/// A file, the same in all backups that have it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// Determines the contents.
    pub(crate) number: u64,
    pub(crate) len: u64,
    /// Time of the last change on the Mac's clock.
    pub(crate) modified: i64,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Folder(Arc<Folder>),
    File(Arc<Body>),
}

/// A folder, the same in all backups in which nothing below it changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) children: BTreeMap<String, Node>,
}

/// A backup.
#[derive(Debug, Clone)]
pub(crate) struct Date {
    pub(crate) name: String,
    pub(crate) wall: i64,
    /// Bytes of files that were copied.
    pub(crate) copied: u64,
    pub(crate) root: Arc<Folder>,
}

/// The history of a Mac.
#[derive(Debug)]
pub(crate) struct Years {
    pub(crate) dates: Vec<Date>,
}

/// Fills `buf` with the contents of a file from `offset`.
pub(crate) fn fill(number: u64, offset: u64, buf: &mut [u8]) {
    for (at, byte) in buf.iter_mut().enumerate() {
        let position = offset + at as u64;
        let word = (number ^ (position >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *byte = (word ^ (word >> 29)).to_le_bytes()[(position & 7) as usize];
    }
}

struct Maker {
    random: Random,
    next: u64,
    mean: u64,
    wall: i64,
    copied: u64,
}

impl Maker {
    fn body(&mut self) -> Node {
        self.next += 1;
        let len = self.random.within(1..self.mean * 2);
        self.copied += len;
        Node::File(Arc::new(Body {
            number: self.next,
            len,
            modified: self.wall - 60 - self.random.within(0..1000) as i64,
        }))
    }

    /// Returns the same files as others: what is renamed is copied again.
    fn copy(&mut self, node: &Node) -> Node {
        match node {
            Node::File(body) => {
                self.copied += body.len;
                Node::File(Arc::new(Body { ..**body }))
            }
            Node::Folder(folder) => {
                let children = folder.children.iter();
                let children = children.map(|(name, node)| (name.clone(), self.copy(node)));
                let children = children.collect();
                Node::Folder(Arc::new(Folder { children }))
            }
        }
    }

    /// Changes the files of one folder.
    fn change(&mut self, folder: &mut Folder) {
        let names: Vec<String> = folder.children.keys().cloned().collect();
        for _ in 0..4 {
            if let Some(name) = self.one_of(&names) {
                let new = self.body();
                folder.children.insert(name.clone(), new);
            }
        }
        for _ in 0..self.random.within(0..3) {
            let new = self.body();
            let name = format!("new {}.txt", self.next);
            folder.children.insert(name, new);
        }
        if let Some(name) = self.one_of(&names)
            && let Some(old) = folder.children.remove(name)
            && self.random.one_in(2)
        {
            let node = self.copy(&old);
            let name = format!("renamed {}", self.next);
            folder.children.insert(name, node);
        }
    }

    fn one_of<'a>(&mut self, names: &'a [String]) -> Option<&'a String> {
        let count = names.len() as u64;
        (count > 0).then(|| &names[self.random.within(0..count) as usize])
    }
}

impl Years {
    /// Returns a history of this size.
    pub(crate) fn new(seed: u64, scale: Scale) -> Self {
        let mut maker = Maker {
            random: Random::new(seed),
            next: 0,
            mean: scale.len,
            wall: 1_577_871_000,
            copied: 0,
        };
        let folders = scale.files.div_ceil(PER_FOLDER);
        let mut areas: BTreeMap<String, Node> = BTreeMap::new();
        let mut left = scale.files;
        for first in (0..folders).step_by(PER_FOLDER) {
            let mut area = Folder::default();
            for number in first..folders.min(first + PER_FOLDER) {
                let mut folder = Folder::default();
                for file in 0..PER_FOLDER.min(left) {
                    folder
                        .children
                        .insert(format!("file {file}.jpg"), maker.body());
                }
                left -= folder.children.len();
                let folder = Node::Folder(Arc::new(folder));
                area.children.insert(format!("folder {number}"), folder);
            }
            let area = Node::Folder(Arc::new(area));
            areas.insert(format!("area {}", first / PER_FOLDER), area);
        }
        let anna = Node::Folder(Arc::new(Folder { children: areas }));
        let users = Node::Folder(Arc::new(Folder {
            children: BTreeMap::from([("anna".to_owned(), anna)]),
        }));
        let mut root = Arc::new(Folder {
            children: BTreeMap::from([("Users".to_owned(), users)]),
        });
        let mut dates = Vec::new();
        for number in 0..scale.dates {
            if number > 0 {
                maker.wall += 86_400 + maker.random.within(0..3000) as i64;
                maker.copied = 0;
                for _ in 0..scale.changed_folders {
                    change_one(&mut root, &mut maker);
                }
            }
            dates.push(Date {
                name: name_of(maker.wall),
                wall: maker.wall,
                copied: maker.copied,
                root: root.clone(),
            });
        }
        Self { dates }
    }

    /// Returns the path of a file that has at least this number of versions, below the volume.
    pub(crate) fn file_with_versions(&self, count: usize) -> String {
        let last = self.dates.last().unwrap();
        let mut versions: HashMap<String, HashSet<u64>> = HashMap::new();
        for date in &self.dates {
            let Node::Folder(users) = &date.root.children["Users"] else {
                unreachable!()
            };
            let Node::Folder(anna) = &users.children["anna"] else {
                unreachable!()
            };
            for (area, node) in anna.children.iter().take(2) {
                let Node::Folder(node) = node else { continue };
                for (folder, node) in &node.children {
                    let Node::Folder(node) = node else { continue };
                    for (name, node) in &node.children {
                        if let Node::File(body) = node {
                            let path = format!("/Users/anna/{area}/{folder}/{name}");
                            versions.entry(path).or_default().insert(body.number);
                        }
                    }
                }
            }
        }
        let mut paths: Vec<_> = versions
            .into_iter()
            .filter(|(path, versions)| versions.len() >= count && last.find(path).is_some())
            .map(|(path, _)| path)
            .collect();
        paths.sort();
        paths.remove(0)
    }

    /// Writes an HFS+ volume with all backups to a device, which is blank.
    pub(crate) fn write(&self, device: &dyn BlockDevice) {
        let (tree, marks) = self.tree();
        let options = hfsplus::build::Options {
            name: "Backups".into(),
            case_sensitive: true,
            journaled: false,
            block_size: Some(4096),
            created: Timestamp::from_seconds(self.dates[0].wall - OFFSET),
            latest: None,
            opens: false,
            identifier: 7,
        };
        let plan = hfsplus::build::Plan::new(tree, options).unwrap();
        plan.build(device, &Silent).unwrap();
        // The catalog is one extent.
        let header = device.read_vec(1024, 512).unwrap();
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let block = u64::from(word(40));
        let (start, count) = (u64::from(word(0x120)), u64::from(word(0x124)));
        assert_eq!(word(0x128 + 4), 0, "the catalog has several extents");
        let (start, len) = (start * block, (count * block) as usize);
        let mut catalog = device.read_vec(start, len).unwrap();
        let old = catalog.clone();
        backupd::make_links(&mut catalog, &marks);
        for (at, (new, old)) in catalog.chunks(1 << 20).zip(old.chunks(1 << 20)).enumerate() {
            if new != old {
                device.write_at(start + ((at as u64) << 20), new).unwrap();
            }
        }
        device.flush().unwrap();
    }

    /// Returns the nodes of the volume, and the numbers of folders with several names.
    fn tree(&self) -> (Tree, HashMap<u32, u32>) {
        let mut parents: HashMap<*const Folder, u32> = HashMap::new();
        let mut order: Vec<Arc<Folder>> = Vec::new();
        let mut seen = HashSet::new();
        for date in &self.dates {
            let mut ahead = vec![date.root.clone()];
            while let Some(folder) = ahead.pop() {
                for node in folder.children.values() {
                    let Node::Folder(child) = node else { continue };
                    *parents.entry(Arc::as_ptr(child)).or_default() += 1;
                    if seen.insert(Arc::as_ptr(child)) {
                        ahead.push(child.clone());
                        order.push(child.clone());
                    }
                }
            }
        }
        let shared: HashMap<*const Folder, u32> = order
            .iter()
            .filter(|folder| parents[&Arc::as_ptr(folder)] > 1)
            .zip(0..)
            .map(|(folder, number)| (Arc::as_ptr(folder), number))
            .collect();
        let first = self.dates[0].wall;
        let mut maker = Nodes {
            nodes: vec![folder_node(0, "", first)],
            files: HashMap::new(),
            shared: &shared,
            bodies: Vec::new(),
        };
        let private = maker.push(folder_node(0, &PRIVATE.replace("Data", "Date"), first));
        let mut places = Vec::new();
        for folder in &order {
            if let Some(number) = shared.get(&Arc::as_ptr(folder)) {
                let name = format!("body {number}");
                let place = maker.push(folder_node(private, &name, first));
                maker.fill(place, folder, first);
                places.push((*number, place));
            }
        }
        let store = maker.push(folder_node(0, "Backups.backupdb", first));
        let machine = maker.push(folder_node(store, MACHINE, first));
        for date in &self.dates {
            let mut node = folder_node(machine, &date.name, date.wall);
            let micros = |wall: i64| ((wall - OFFSET) * 1_000_000).to_string();
            for (name, value) in [
                ("SnapshotStartDate", micros(date.wall - 240)),
                ("SnapshotCompletionDate", micros(date.wall)),
                ("SnapshotTotalBytesCopied", date.copied.to_string()),
            ] {
                let value = Stream::Bytes(format!("{value}\0").into_bytes().into());
                let name = format!("com.apple.backupd.{name}");
                node.xattrs.push((name.into(), value));
            }
            let place = maker.push(node);
            let volume = maker.push(folder_node(place, VOLUME, date.wall));
            maker.fill(volume, &date.root, date.wall);
        }
        let latest = SourceKind::Symlink((*self.dates.last().unwrap().name).into());
        let moment = Timestamp::from_seconds(first - OFFSET);
        maker.push(SourceNode::made(machine, "Latest", latest, 0o755, moment));
        let Nodes {
            mut nodes, bodies, ..
        } = maker;
        let numbers = backupd::numbers(&nodes);
        let mut marks = HashMap::new();
        for (mark, place) in places {
            let number = numbers[place as usize];
            nodes[place as usize].name = format!("dir_{number}").into();
            marks.insert(mark, number);
        }
        let contents = Box::new(Computed(bodies));
        (Tree { nodes, contents }, marks)
    }
}

/// Changes the files in a folder, and makes all folders above it others.
fn change_one(root: &mut Arc<Folder>, maker: &mut Maker) {
    let mut folder = Arc::make_mut(root);
    loop {
        let names: Vec<String> = folder
            .children
            .iter()
            .filter(|(_, node)| matches!(node, Node::Folder(_)))
            .map(|(name, _)| name.clone())
            .collect();
        let Some(name) = maker.one_of(&names) else {
            maker.change(folder);
            return;
        };
        // Now and then a whole folder gets another name.
        if folder.children.len() > 1 && maker.random.one_in(200) {
            let old = folder.children.remove(name).unwrap();
            let new = maker.copy(&old);
            maker.next += 1;
            let name = format!("renamed {}", maker.next);
            folder.children.insert(name, new);
            return;
        }
        let Some(Node::Folder(below)) = folder.children.get_mut(name) else {
            return;
        };
        folder = Arc::make_mut(below);
    }
}

impl Date {
    /// Returns the file at a path below the volume.
    pub(crate) fn find(&self, path: &str) -> Option<Arc<Body>> {
        let mut at = self.root.clone();
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            match at.children.get(part)?.clone() {
                Node::Folder(folder) => at = folder,
                Node::File(body) => return parts.peek().is_none().then_some(body),
            }
        }
        None
    }

    /// Returns the number of files.
    pub(crate) fn count(&self) -> u64 {
        fn of(folder: &Folder) -> u64 {
            let counts = folder.children.values().map(|node| match node {
                Node::File(_) => 1,
                Node::Folder(folder) => of(folder),
            });
            counts.sum()
        }
        of(&self.root)
    }

    /// Compares everything below a folder of a volume with this date; returns the number of files.
    /// Every byte of every file is read.
    pub(crate) fn compare(&self, fs: &dyn FileSystem, folder: NodeId) -> u64 {
        let (mut files, mut buf) = (0, Vec::new());
        let mut ahead = vec![(String::new(), folder, self.root.clone())];
        while let Some((path, id, truth)) = ahead.pop() {
            let mut entries = fs.entries(id).unwrap();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let names = entries.iter().map(|entry| &entry.name);
            assert!(names.eq(truth.children.keys()), "{}: {path}", self.name);
            for (entry, node) in entries.iter().zip(truth.children.values()) {
                let place = || format!("{}: {path}/{}", self.name, entry.name);
                let found = &entry.attributes;
                match node {
                    Node::Folder(below) => {
                        assert_eq!(found.kind, FileKind::Folder, "{}", place());
                        let path = format!("{path}/{}", entry.name);
                        ahead.push((path, found.id, below.clone()));
                    }
                    Node::File(body) => {
                        let modified = found.modified.unwrap().seconds + OFFSET;
                        assert_eq!(
                            (found.size, modified),
                            (body.len, body.modified),
                            "{}",
                            place()
                        );
                        let file = fs.open(found.id, Fork::Data).unwrap();
                        let bytes = file.read_vec(0, body.len as usize).unwrap();
                        buf.resize(body.len as usize, 0);
                        fill(body.number, 0, &mut buf);
                        assert!(bytes == buf, "{}", place());
                        files += 1;
                    }
                }
            }
        }
        files
    }
}

fn folder_node(parent: u32, name: &str, wall: i64) -> SourceNode {
    let moment = Timestamp::from_seconds(wall - OFFSET);
    SourceNode::made(parent, name, SourceKind::Folder, 0o755, moment)
}

/// The nodes of a volume.
struct Nodes<'a> {
    nodes: Vec<SourceNode>,
    /// The node of each file that was made.
    files: HashMap<*const Body, u32>,
    shared: &'a HashMap<*const Folder, u32>,
    bodies: Vec<(u32, u64)>,
}

impl Nodes<'_> {
    fn push(&mut self, node: SourceNode) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    fn fill(&mut self, place: u32, folder: &Folder, wall: i64) {
        for (name, node) in &folder.children {
            let moment = Timestamp::from_seconds(wall - OFFSET);
            match node {
                Node::Folder(child) => match self.shared.get(&Arc::as_ptr(child)) {
                    Some(number) => {
                        let empty = SourceKind::File(Stream::empty());
                        let mut link = SourceNode::made(place, name, empty, 0o444, moment);
                        (link.uid, link.gid) = (MARK, GROUP | number);
                        self.push(link);
                    }
                    None => {
                        let inside = self.push(folder_node(place, name, wall));
                        self.fill(inside, child, wall);
                    }
                },
                Node::File(body) => {
                    if let Some(&first) = self.files.get(&Arc::as_ptr(body)) {
                        let link = SourceKind::HardLink(first);
                        self.push(SourceNode::made(place, name, link, 0o644, moment));
                        continue;
                    }
                    let moment = Timestamp::from_seconds(body.modified - OFFSET);
                    let stream = Stream::Extern {
                        node: self.nodes.len() as u32,
                        offset: 0,
                        len: body.len,
                    };
                    let kind = SourceKind::File(stream);
                    let made = self.push(SourceNode::made(place, name, kind, 0o644, moment));
                    self.files.insert(Arc::as_ptr(body), made);
                    self.bodies.push((made, body.number));
                }
            }
        }
    }
}

/// Computed contents: the numbers of the files, by their nodes in ascending order.
#[derive(Debug)]
struct Computed(Vec<(u32, u64)>);

impl Contents for Computed {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        let Stream::Extern { node, len, .. } = stream else {
            unreachable!("all others are in memory")
        };
        let at = self
            .0
            .binary_search_by_key(node, |(node, _)| *node)
            .unwrap();
        Ok(Box::new(OneFile(self.0[at].1, *len)))
    }
}

struct OneFile(u64, u64);

impl ContentReader for OneFile {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        fill(self.0, offset, buf);
        Ok(())
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok((from < self.1).then_some(from..self.1))
    }
}
