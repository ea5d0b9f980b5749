//! A model of macOS's `backupd`: a Mac whose files change for months, and its backups on volumes of
//! both kinds, with the truth kept beside.
#![allow(dead_code, reason = "each suite uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::apfs::{self, ApfsMut, Container, WriteOptions};
use bandsaw::fs::source::{InMemory, SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{
    Change, DateTime, ExistingTarget, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt,
    NewKind, NewNode, NodeId, Timestamp, VolumePlan, hfsplus,
};
use bandsaw::progress::Silent;
use bandsaw::testing::Random;
use uuid::Uuid;

/// The name of the machine.
pub(crate) const MACHINE: &str = "Anna's Mac";
/// The name of the volume that is backed up.
pub(crate) const VOLUME: &str = "Macintosh HD - Data";
/// Seconds by which the Mac's clock is ahead of UTC.
pub(crate) const OFFSET: i64 = 3600;
/// Bytes that mark a link to a folder until it is one: its owner, and the high byte of its group.
pub(crate) const MARK: u32 = 0x7d1e_5eed;
pub(crate) const GROUP: u32 = 0x5a00_0000;
/// The folder of folders with several names.
pub(crate) const PRIVATE: &str = ".HFS+ Private Directory Data\r";

/// An object of the Mac.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Folder,
    /// Contents, and time of the last change.
    File(Vec<u8>, i64),
    Link(String),
}

/// The objects of the volume by path: `/Users/anna/letter.txt`.
pub(crate) type Objects = BTreeMap<String, Item>;

/// A backup.
#[derive(Debug, Clone)]
pub(crate) struct Backup {
    /// The name: `2026-01-05-093000`.
    pub(crate) date: String,
    /// The same in seconds of the Mac's clock.
    pub(crate) wall: i64,
    /// Bytes of files that were copied.
    pub(crate) copied: u64,
    pub(crate) objects: Objects,
}

/// The history of a Mac.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) backups: Vec<Backup>,
}

/// Returns the name of the backup of a time.
pub(crate) fn name_of(wall: i64) -> String {
    let DateTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = Timestamp::from_seconds(wall).date_time();
    format!("{year:04}-{month:02}-{day:02}-{hour:02}{minute:02}{second:02}")
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

impl History {
    /// Returns `count` backups, a day or a few hours apart, of a Mac with some `files` to begin with.
    pub(crate) fn new(seed: u64, count: usize, files: usize) -> Self {
        let mut random = Random::new(seed);
        // 2026-01-05 09:30:00.
        let mut wall = 1_767_605_400;
        let mut objects = Objects::new();
        for folder in ["/Users", "/Users/anna", "/Users/anna/Documents", "/Library"] {
            objects.insert(folder.into(), Item::Folder);
        }
        objects.insert("/Users/me".into(), Item::Link("anna".into()));
        let mut copied = 0;
        for _ in 0..files {
            copied += add(&mut objects, &mut random, wall);
        }
        let mut backups = Vec::new();
        for number in 0..count {
            if number > 0 {
                wall +=
                    if random.one_in(3) { 3700 } else { 86_400 } + random.within(0..3000) as i64;
                copied = change(&mut objects, &mut random, wall);
            }
            backups.push(Backup {
                date: name_of(wall),
                wall,
                copied,
                objects: objects.clone(),
            });
        }
        Self { backups }
    }

    /// Returns the property list that macOS keeps in a bundle with the dates of all backups.
    pub(crate) fn list(&self) -> String {
        let entries = self.backups.iter().map(|backup| {
            let date = Timestamp::from_seconds(backup.wall - OFFSET);
            format!(
                "<dict><key>com.apple.backupd.SnapshotCompletionDate</key><date>{date}</date>\
                 <key>com.apple.backupd.SnapshotName</key><string>{}.backup</string></dict>",
                backup.date
            )
        });
        let entries: String = entries.collect();
        plist(&format!(
            "<dict><key>Snapshots</key><array>{entries}</array></dict>"
        ))
    }

    fn manifest(&self, until: usize) -> String {
        let entries = self.backups[..=until].iter().map(|backup| {
            let date = Timestamp::from_seconds(backup.wall - OFFSET);
            format!(
                "<date>{date}</date><dict><key>stats</key><dict><key>changed</key><dict>\
                 <key>physicalSize</key><integer>{}</integer></dict></dict></dict>",
                backup.copied
            )
        });
        plist(&format!("<array>{}</array>", entries.collect::<String>()))
    }

    /// Returns the paths of all backups.
    pub(crate) fn paths(&self) -> Vec<String> {
        let all = self.backups.iter().flat_map(|backup| backup.objects.keys());
        let all: std::collections::BTreeSet<_> = all.cloned().collect();
        all.into_iter().collect()
    }

    /// Returns the versions of an object: the first and the last backup with each.
    pub(crate) fn versions(&self, path: &str) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (number, backup) in self.backups.iter().enumerate() {
            let Some(item) = backup.objects.get(path) else {
                continue;
            };
            let before = number.checked_sub(1).map(|before| &self.backups[before]);
            let is_same = before.and_then(|before| before.objects.get(path)) == Some(item);
            match runs.last_mut().filter(|_| is_same) {
                Some(run) => run.1 = number,
                None => runs.push((number, number)),
            }
        }
        runs
    }
}

pub(crate) fn plist(body: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\">{body}</plist>\n")
}

/// Adds a file, and sometimes a folder for it; returns its length.
fn add(objects: &mut Objects, random: &mut Random, wall: i64) -> u64 {
    let folders: Vec<String> = objects
        .iter()
        .filter(|(_, item)| **item == Item::Folder)
        .map(|(path, _)| path.clone())
        .collect();
    let mut folder = folders[random.within(0..folders.len() as u64) as usize].clone();
    if random.one_in(4) {
        folder = format!("{folder}/folder {}", random.within(0..1000));
        objects.entry(folder.clone()).or_insert(Item::Folder);
    }
    if objects.get(&folder) != Some(&Item::Folder) {
        return 0;
    }
    let suffix = ["txt", "pages", "jpg"][random.within(0..3) as usize];
    let path = format!("{folder}/file {}.{suffix}", random.within(0..100_000));
    let len = random.within(1..3000) as usize;
    let file = Item::File(random.bytes(len), wall - 60 - random.within(0..1000) as i64);
    objects.insert(path, file);
    len as u64
}

/// Changes some objects, as a person does in a day; returns the bytes of the files that are new.
fn change(objects: &mut Objects, random: &mut Random, wall: i64) -> u64 {
    let mut copied = 0;
    for _ in 0..random.within(0..5) {
        let paths: Vec<String> = objects.keys().skip(5).cloned().collect();
        let Some(path) = paths.get(random.within(0..paths.len().max(1) as u64) as usize) else {
            continue;
        };
        match random.within(0..4) {
            0 | 1 => copied += add(objects, random, wall),
            2 if matches!(objects[path], Item::File(..)) => {
                let len = random.within(1..5000) as usize;
                copied += len as u64;
                let file = Item::File(random.bytes(len), wall - random.within(1..50) as i64);
                objects.insert(path.clone(), file);
            }
            _ => {
                // Removed, or renamed with everything below.
                let below = format!("{path}/");
                let moved = objects
                    .keys()
                    .filter(|one| *one == path || one.starts_with(&below));
                let moved: Vec<String> = moved.cloned().collect();
                let target = random
                    .one_in(2)
                    .then(|| format!("{}/renamed {}", parent(path), random.within(0..100_000)));
                for old in moved {
                    let item = objects.remove(&old).unwrap();
                    if let Some(target) = &target {
                        let new = format!("{target}{}", &old[path.len()..]);
                        if let Item::File(bytes, _) = &item {
                            copied += bytes.len() as u64;
                        }
                        objects.insert(new, item);
                    }
                }
            }
        }
    }
    copied
}

/// A folder of a backup, shared by all backups in which it is the same.
#[derive(Debug, Default)]
struct FolderBody {
    children: Vec<(String, Child)>,
    /// Number of different folders that have it.
    parents: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    Folder(usize),
    File(usize),
}

/// Files and folders by identity, over all backups.
#[derive(Debug, Default)]
struct Bodies {
    folders: Vec<FolderBody>,
    files: Vec<Item>,
    /// Those of the last backup, by path.
    last: HashMap<String, Child>,
}

impl Bodies {
    /// Returns the children of a folder in a backup. What has not changed is what it was.
    fn children(
        &mut self,
        objects: &Objects,
        path: &str,
        next: &mut HashMap<String, Child>,
    ) -> Vec<(String, Child)> {
        let below = format!("{path}/");
        let here = objects
            .range(below.clone()..)
            .take_while(|(one, _)| one.starts_with(&below));
        let here: Vec<_> = here.filter(|(one, _)| parent(one) == path).collect();
        let mut children = Vec::new();
        for (one, item) in here {
            let known = self.last.get(one).copied();
            let child = match (item, known) {
                (Item::Folder, known) => {
                    let within = self.children(objects, one, next);
                    match known {
                        Some(Child::Folder(body)) if self.folders[body].children == within => {
                            Child::Folder(body)
                        }
                        _ => {
                            for (_, child) in &within {
                                if let Child::Folder(body) = child {
                                    self.folders[*body].parents += 1;
                                }
                            }
                            self.folders.push(FolderBody {
                                children: within,
                                parents: 0,
                            });
                            Child::Folder(self.folders.len() - 1)
                        }
                    }
                }
                (item, Some(Child::File(body))) if self.files[body] == *item => Child::File(body),
                (item, _) => {
                    self.files.push(item.clone());
                    Child::File(self.files.len() - 1)
                }
            };
            next.insert(one.clone(), child);
            children.push((name(one).to_owned(), child));
        }
        children
    }
}

/// The nodes of an HFS+ volume of backups.
struct Nodes<'a> {
    bodies: &'a Bodies,
    nodes: Vec<SourceNode>,
    /// The node of each file that was made.
    files: HashMap<usize, u32>,
}

impl Nodes<'_> {
    fn push(&mut self, node: SourceNode) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    fn folder(&mut self, parent: u32, name: &str, wall: i64) -> u32 {
        let moment = Timestamp::from_seconds(wall - OFFSET);
        self.push(SourceNode::made(
            parent,
            name,
            SourceKind::Folder,
            0o755,
            moment,
        ))
    }

    fn fill(&mut self, folder: u32, children: &[(String, Child)], wall: i64) {
        let bodies = self.bodies;
        for (name, child) in children {
            match *child {
                Child::Folder(body) if bodies.folders[body].parents > 1 => {
                    let empty = SourceKind::File(Stream::empty());
                    let moment = Timestamp::from_seconds(wall - OFFSET);
                    let mut link = SourceNode::made(folder, name, empty, 0o444, moment);
                    (link.uid, link.gid) = (MARK, GROUP | body as u32);
                    self.push(link);
                }
                Child::Folder(body) => {
                    let inside = self.folder(folder, name, wall);
                    self.fill(inside, &bodies.folders[body].children, wall);
                }
                Child::File(body) => {
                    if let Some(&first) = self.files.get(&body) {
                        let moment = Timestamp::from_seconds(wall);
                        let link = SourceKind::HardLink(first);
                        self.push(SourceNode::made(folder, name, link, 0o644, moment));
                        continue;
                    }
                    let (kind, modified) = match &bodies.files[body] {
                        Item::File(bytes, modified) => (
                            SourceKind::File(Stream::Bytes(bytes.clone().into())),
                            *modified,
                        ),
                        Item::Link(target) => (SourceKind::Symlink((**target).into()), wall),
                        Item::Folder => unreachable!("folders have bodies of their own"),
                    };
                    let moment = Timestamp::from_seconds(modified - OFFSET);
                    let made = self.push(SourceNode::made(folder, name, kind, 0o644, moment));
                    self.files.insert(body, made);
                }
            }
        }
    }
}

/// Returns the bytes of an HFS+ volume with these backups, as Time Machine makes them: what did not
/// change is a hard link. The machine also has an unfinished backup, and whatever `extra` adds to its
/// folder.
pub(crate) fn hfs_plus(
    history: &History,
    extra: impl FnOnce(&mut Vec<SourceNode>, u32),
) -> Vec<u8> {
    let mut bodies = Bodies::default();
    let mut roots = Vec::new();
    for backup in &history.backups {
        let mut next = HashMap::new();
        let children = bodies.children(&backup.objects, "", &mut next);
        for (_, child) in &children {
            if let Child::Folder(body) = child {
                bodies.folders[*body].parents += 1;
            }
        }
        bodies.last = next;
        roots.push(children);
    }
    let first = history.backups[0].wall;
    let moment = Timestamp::from_seconds(first - OFFSET);
    let root = SourceNode::made(0, "", SourceKind::Folder, 0o755, moment);
    let mut nodes = Nodes {
        bodies: &bodies,
        nodes: vec![root],
        files: HashMap::new(),
    };
    let private = nodes.folder(0, &PRIVATE.replace("Data", "Date"), first);
    let mut shared = BTreeMap::new();
    for (body, folder) in bodies.folders.iter().enumerate() {
        if folder.parents > 1 {
            let node = nodes.folder(private, &format!("body {body}"), first);
            nodes.fill(node, &folder.children, first);
            shared.insert(body as u32, node);
        }
    }
    let store = nodes.folder(0, "Backups.backupdb", first);
    let machine = nodes.folder(store, MACHINE, first);
    for (backup, children) in history.backups.iter().zip(&roots) {
        let date = nodes.folder(machine, &backup.date, backup.wall);
        let micros = |wall: i64| ((wall - OFFSET) * 1_000_000).to_string();
        for (name, value) in [
            (
                "com.apple.backupd.SnapshotStartDate",
                micros(backup.wall - 240),
            ),
            (
                "com.apple.backupd.SnapshotCompletionDate",
                micros(backup.wall),
            ),
            (
                "com.apple.backupd.SnapshotTotalBytesCopied",
                backup.copied.to_string(),
            ),
            ("com.apple.backupd.SnapshotState", "4".to_owned()),
        ] {
            let value = Stream::Bytes(format!("{value}\0").into_bytes().into());
            nodes.nodes[date as usize].xattrs.push((name.into(), value));
        }
        let volume = nodes.folder(date, VOLUME, backup.wall);
        nodes.fill(volume, children, backup.wall);
    }
    let last = history.backups.last().unwrap();
    let unfinished = format!("{}.inProgress", name_of(last.wall + 3600));
    let unfinished = nodes.folder(machine, &unfinished, last.wall + 3600);
    let inside = nodes.folder(
        unfinished,
        "0A0B0C0D-0000-4000-8000-000000000001",
        last.wall,
    );
    nodes.folder(inside, VOLUME, last.wall);
    let latest = SourceKind::Symlink((*last.date).into());
    nodes.push(SourceNode::made(machine, "Latest", latest, 0o755, moment));
    let mut nodes = nodes.nodes;
    extra(&mut nodes, machine);
    let numbers = numbers(&nodes);
    let mut targets = HashMap::new();
    for (body, node) in shared {
        let number = numbers[node as usize];
        nodes[node as usize].name = format!("dir_{number}").into();
        targets.insert(body, number);
    }
    let options = hfsplus::build::Options {
        name: "Backups".into(),
        case_sensitive: true,
        journaled: false,
        block_size: None,
        created: moment,
        latest: None,
        opens: false,
        identifier: 7,
    };
    let tree = Tree {
        nodes,
        contents: Box::new(InMemory),
    };
    let plan = hfsplus::build::Plan::new(tree, options).unwrap();
    let device = Memory::zeros(plan.comfortable_len().unwrap() as usize);
    plan.build(&device, &Silent).unwrap();
    let mut bytes = device.to_vec();
    make_links(&mut bytes, &targets);
    bytes
}

/// Returns the numbers (CNIDs) that the nodes get: a file with several names takes two.
pub(crate) fn numbers(nodes: &[SourceNode]) -> Vec<u32> {
    let firsts: std::collections::HashSet<u32> = nodes
        .iter()
        .filter_map(|node| match node.kind {
            SourceKind::HardLink(first) => Some(first),
            _ => None,
        })
        .collect();
    let mut next = 16 + u32::from(!firsts.is_empty());
    let mut numbers = vec![2];
    for node in 1..nodes.len() as u32 {
        numbers.push(next);
        next += if firsts.contains(&node) { 2 } else { 1 };
    }
    numbers
}

/// Turns the marked files into hard links of folders, as they are in the catalog of a volume: type
/// and creator, the alias flag, the flag of a chain of links, and the number of the folder.
pub(crate) fn make_links(bytes: &mut [u8], targets: &HashMap<u32, u32>) {
    // Volumes are not built with this name; the other one has the same place in the catalog.
    let utf16 = |name: &str| -> Vec<u8> {
        let units = name.encode_utf16();
        units.flat_map(u16::to_be_bytes).collect()
    };
    let (old, new) = (utf16(&PRIVATE.replace("Data", "Date")), utf16(PRIVATE));
    for at in 0..bytes.len() - old.len() {
        if bytes[at..].starts_with(&old) {
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
    }
    let mark = MARK.to_be_bytes();
    let mut made = 0;
    let mut at = 32;
    while at + 32 < bytes.len() {
        if bytes[at..at + 4] != mark {
            at += 2;
            continue;
        }
        let group = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        let record = at - 32;
        assert_eq!(
            (bytes[record..record + 2].to_vec(), group & 0xff00_0000),
            (vec![0, 2], GROUP)
        );
        let target = targets[&(group & 0x00ff_ffff)];
        bytes[at..at + 8].fill(0);
        bytes[record + 3] |= 0x20;
        bytes[at + 12..at + 16].copy_from_slice(&target.to_be_bytes());
        bytes[at + 16..at + 24].copy_from_slice(b"fdrpMACS");
        bytes[at + 24] |= 0x80;
        made += 1;
        at += 32;
    }
    assert!(made > 0 || targets.is_empty(), "no links were made");
}

/// Returns the bytes of an APFS container with these backups, as Time Machine makes them: a snapshot
/// for each, of a volume with the role of backups. Whatever `extra` does happens to the volume after
/// the last backup.
pub(crate) fn apfs(history: &History, extra: impl FnOnce(&dyn FileSystemMut, NodeId)) -> Vec<u8> {
    let first = Timestamp::from_seconds(history.backups[0].wall - OFFSET - 1000);
    let options = apfs::build::Options {
        volumes: vec![apfs::build::NewVolume {
            name: format!("Backups of {MACHINE}"),
            case_sensitive: true,
            uuid: Uuid::from_u128(1),
        }],
        created: first,
        latest: None,
        uuid: Uuid::from_u128(2),
    };
    let plan = apfs::build::Plan::new(Tree::empty(first), options).unwrap();
    let device = Arc::new(Memory::zeros(64 << 20));
    plan.build(&*device, &Silent).unwrap();
    let mut before: Option<&Backup> = None;
    for (number, backup) in history.backups.iter().enumerate() {
        let volume = open(&device, backup.wall);
        let root = volume.root();
        let working = format!("{}.inprogress", backup.date);
        let previous = before.map(|before| format!("{}.previous", before.date));
        let rename = |from: &str, to: &str| {
            volume
                .rename((root, from), (root, to), ExistingTarget::Error)
                .unwrap();
        };
        match &previous {
            Some(previous) => rename(previous, &working),
            None => {
                let folder = NewNode::new(NewKind::Folder);
                let working = volume.create(root, &working, &folder).unwrap();
                volume.create(working, VOLUME, &folder).unwrap();
            }
        }
        let base = volume.resolve(&format!("/{working}/{VOLUME}")).unwrap().id;
        let nothing = Objects::new();
        let old = before.map_or(&nothing, |before| &before.objects);
        copy(&volume, base, old, &backup.objects);
        put(
            &volume,
            root,
            "backup_manifest.plist",
            history.manifest(number).as_bytes(),
        );
        let done = format!("{}.backup", backup.date);
        rename(&working, &done);
        volume.sync().unwrap();
        volume
            .take_snapshot(
                &format!("com.apple.TimeMachine.{}.backup", backup.date),
                None,
            )
            .unwrap();
        rename(&done, &format!("{}.previous", backup.date));
        volume.unmount().unwrap();
        before = Some(backup);
    }
    let last = history.backups.last().unwrap();
    let volume = open(&device, last.wall + 3600);
    let unfinished = format!("{}.interrupted", name_of(last.wall + 3600));
    let folder = NewNode::new(NewKind::Folder);
    let unfinished = volume.create(volume.root(), &unfinished, &folder).unwrap();
    volume.create(unfinished, VOLUME, &folder).unwrap();
    extra(&volume, volume.root());
    volume.unmount().unwrap();
    drop(volume);
    let mut bytes = device.to_vec();
    set_role(&mut bytes);
    bytes
}

fn open(device: &Arc<Memory>, wall: i64) -> ApfsMut {
    let device: Arc<dyn BlockDevice> = device.clone();
    let container = Arc::new(Container::open(device, None).unwrap());
    let options = WriteOptions {
        now: Some(Timestamp::from_seconds(wall - OFFSET)),
    };
    ApfsMut::open(&container, 1, options, &|_| {
        unreachable!("it is not encrypted")
    })
    .unwrap()
}

/// Gives the volume and its snapshots the role of backups.
fn set_role(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(4096) {
        if block[32..36] == *b"APSB" {
            block[0x3C4..0x3C6].copy_from_slice(&0x180_u16.to_le_bytes());
        }
    }
    apfs::reseal(bytes);
}

fn put(volume: &ApfsMut, folder: NodeId, name: &str, bytes: &[u8]) -> NodeId {
    let known = volume.lookup(folder, name).unwrap().map(|found| found.id);
    let file = NewNode::new(NewKind::File);
    let file = known.unwrap_or_else(|| volume.create(folder, name, &file).unwrap());
    volume.write_all(file, bytes).unwrap();
    file
}

/// Changes the volume from one state of the Mac to another.
fn copy(volume: &ApfsMut, base: NodeId, old: &Objects, new: &Objects) {
    let folder_of = |path: &str| {
        let mut at = base;
        for part in parent(path).split('/').filter(|part| !part.is_empty()) {
            at = volume.lookup(at, part).unwrap().unwrap().id;
        }
        at
    };
    let kind = |item: &Item| std::mem::discriminant(item);
    for (path, item) in old.iter().rev() {
        if new.get(path).is_none_or(|other| kind(other) != kind(item)) {
            volume.remove(folder_of(path), name(path)).unwrap();
        }
    }
    for (path, item) in new {
        let known = old.get(path);
        if known == Some(item) {
            continue;
        }
        let folder = folder_of(path);
        match item {
            Item::Folder => {
                volume
                    .create(folder, name(path), &NewNode::new(NewKind::Folder))
                    .unwrap();
            }
            Item::Link(target) => {
                let link = NewNode::new(NewKind::Symlink(target.clone()));
                volume.create(folder, name(path), &link).unwrap();
            }
            Item::File(bytes, modified) => {
                // Some are changed in place, others are replaced.
                if known.is_some() && modified % 2 == 0 {
                    volume.remove(folder, name(path)).unwrap();
                }
                let file = put(volume, folder, name(path), bytes);
                let change = Change {
                    modified: Some(Timestamp::from_seconds(modified - OFFSET)),
                    ..Change::default()
                };
                volume.set_attributes(file, &change).unwrap();
            }
        }
    }
}
