//! Names over all backups.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use bandsaw::fs::{Attributes, FileKind, NodeId, Timestamp};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::backups::Backups;
use crate::folders::about;
use crate::glob::Glob;
use crate::opened::{Instance, OpenBackup};

/// Maximum number of paths that one search returns.
const MAX_FOUND: usize = 1_000_000;
/// Maximum length of all these paths in bytes.
const MAX_LENGTH: usize = 256 << 20;

/// A path that a search has found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Path within the backups: `/VOLUME/...`.
    pub path: String,
    /// Its attributes in the newest of the backups that have it.
    pub attributes: Attributes,
    /// Number of the first backup that has it, in the order of their dates.
    pub first: usize,
    /// Number of the last.
    pub last: usize,
    /// Number of backups that have it.
    pub count: usize,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct FoundNames {
    /// The paths, sorted.
    pub found: Vec<Found>,
    /// Numbers of the backups that cannot be read, and the reasons.
    pub unread: Vec<(usize, Error)>,
    /// Folders that cannot be read, each only once.
    pub problems: Vec<Error>,
}

/// Finds the objects whose names `glob` stands for, over all backups. A folder that several backups
/// have as hard links is read once; one of a snapshot that has its number, its times and its place in
/// the volume from an earlier snapshot is not listed again. Reports a stage with the number of
/// backups.
///
/// [`Kind::Limit`] for more than a million paths.
pub fn find(backups: &Backups, glob: &Glob, progress: &dyn Progress) -> Result<FoundNames> {
    let mut search = Search {
        glob,
        progress,
        instance: None,
        known: HashMap::new(),
        listings: HashMap::new(),
        problems: Vec::new(),
    };
    let mut paths: BTreeMap<String, Found> = BTreeMap::new();
    let mut result = FoundNames::default();
    let mut length = 0_usize;
    progress.stage("search", backups.all().len() as u64);
    for number in 0..backups.all().len() {
        progress.check()?;
        let each = &mut |path: &str, attributes: &Attributes| {
            if let Some(found) = paths.get_mut(path) {
                found.attributes = attributes.clone();
                found.last = number;
                found.count += 1;
                return Ok(());
            }
            length = length.saturating_add(path.len());
            if paths.len() >= MAX_FOUND || length > MAX_LENGTH {
                let message = "too many paths; search for a more specific name";
                return Err(Error::limit(LAYER, message));
            }
            let found = Found {
                path: path.to_owned(),
                attributes: attributes.clone(),
                first: number,
                last: number,
                count: 1,
            };
            paths.insert(path.to_owned(), found);
            Ok(())
        };
        let done = backups.open(number).and_then(|open| {
            search.walk(&open)?;
            search.report(open.root, each)
        });
        match done {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), Kind::Cancelled | Kind::Limit) => {
                return Err(error);
            }
            Err(error) => result.unread.push((number, error)),
        }
        progress.advance(1);
    }
    result.found = paths.into_values().collect();
    result.problems = search.problems;
    Ok(result)
}

/// The result for a folder, with all folders below it.
#[derive(Debug)]
enum Known {
    /// It is being read.
    Busy,
    /// Nothing was found.
    Nothing,
    /// Objects in it, and folders with more.
    Finds(Finds),
}

#[derive(Debug, Default)]
struct Finds {
    objects: Vec<(String, Attributes)>,
    folders: Vec<(String, NodeId)>,
}

/// The relevant entries of a folder of an earlier snapshot.
struct Listing {
    times: [Option<Timestamp>; 2],
    folders: Vec<(String, NodeId)>,
    objects: Vec<(String, NodeId)>,
}

/// A folder that is being read.
struct Frame {
    id: NodeId,
    name: String,
    ahead: std::vec::IntoIter<(String, NodeId)>,
    finds: Finds,
}

impl Frame {
    fn new(
        id: NodeId,
        name: String,
        folders: Vec<(String, NodeId)>,
        objects: Vec<(String, Attributes)>,
    ) -> Self {
        let finds = Finds {
            objects,
            folders: Vec::new(),
        };
        Self {
            id,
            name,
            ahead: folders.into_iter(),
            finds,
        }
    }
}

struct Search<'a> {
    glob: &'a Glob,
    progress: &'a dyn Progress,
    instance: Option<Instance>,
    /// The results of the folders of the present instance.
    known: HashMap<NodeId, Known>,
    /// The folders of earlier snapshots, by volume and number.
    listings: HashMap<(usize, NodeId), Listing>,
    problems: Vec<Error>,
}

impl Search<'_> {
    /// Reads all folders of a backup that are not yet known.
    fn walk(&mut self, open: &OpenBackup) -> Result<()> {
        if self.instance != Some(open.instance) {
            self.known.clear();
            self.instance = Some(open.instance);
        }
        if self.known.contains_key(&open.root) {
            return Ok(());
        }
        let mut frames = vec![self.read_folder(open, open.root, String::new())?];
        while let Some(frame) = frames.last_mut() {
            let Some((name, id)) = frame.ahead.next() else {
                let Some(Frame {
                    id, name, finds, ..
                }) = frames.pop()
                else {
                    break;
                };
                let is_empty = finds.objects.is_empty() && finds.folders.is_empty();
                let known = match is_empty {
                    true => Known::Nothing,
                    false => Known::Finds(finds),
                };
                self.known.insert(id, known);
                if let Some(above) = frames.last_mut().filter(|_| !is_empty) {
                    above.finds.folders.push((name, id));
                }
                continue;
            };
            match self.known.get(&id) {
                Some(Known::Nothing) => {}
                Some(Known::Finds(_)) => frame.finds.folders.push((name, id)),
                Some(Known::Busy) => {
                    let message = "the folder contains itself";
                    self.problem(Error::new(Kind::Corrupt, LAYER, message).named(name));
                }
                None => match self.read_folder(open, id, name) {
                    Ok(frame) => frames.push(frame),
                    Err(error) if error.kind() == Kind::Cancelled => return Err(error),
                    Err(error) => {
                        let path = frames.iter().map(|frame| frame.name.as_str());
                        let path = path.collect::<Vec<_>>().join("/");
                        self.problem(about(error, &path));
                    }
                },
            }
        }
        Ok(())
    }

    fn problem(&mut self, error: Error) {
        if self.problems.len() < 1000 {
            self.problems.push(error);
        }
    }

    /// Reads the entries of a folder.
    fn read_folder(&mut self, open: &OpenBackup, id: NodeId, name: String) -> Result<Frame> {
        self.progress.check()?;
        self.known.insert(id, Known::Busy);
        let key = (open.instance.volume, id);
        let is_snapshot = open.instance.snapshot.is_some();
        let times = match is_snapshot {
            true => {
                let attributes = open.fs.attributes(id)?;
                [attributes.modified, attributes.changed]
            }
            false => [None; 2],
        };
        let same = self.listings.get(&key);
        let same = same.filter(|known| is_snapshot && times[1].is_some() && known.times == times);
        if let Some(known) = same {
            let mut objects = Vec::with_capacity(known.objects.len());
            for (name, id) in &known.objects {
                objects.push((name.clone(), open.fs.attributes(*id)?));
            }
            return Ok(Frame::new(id, name, known.folders.clone(), objects));
        }
        let (mut folders, mut objects) = (Vec::new(), Vec::new());
        let listed = open.fs.list(id, &mut |entry| {
            if entry.attributes.kind == FileKind::Folder {
                folders.push((entry.name.clone(), entry.attributes.id));
            }
            if self.glob.matches(&entry.name) {
                objects.push((entry.name, entry.attributes));
            }
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            // The entries before the damage are searched.
            Err(error) => self.problem(about(error, &name)),
            Ok(()) if is_snapshot => {
                let ids = objects.iter();
                let ids = ids
                    .map(|(name, attributes): &(String, Attributes)| (name.clone(), attributes.id));
                let listing = Listing {
                    times,
                    folders: folders.clone(),
                    objects: ids.collect(),
                };
                self.listings.insert(key, listing);
            }
            Ok(()) => {}
        }
        Ok(Frame::new(id, name, folders, objects))
    }

    /// Calls `each` for everything that was found in a folder and below it, with paths that begin
    /// there.
    fn report(
        &self,
        root: NodeId,
        each: &mut dyn FnMut(&str, &Attributes) -> Result<()>,
    ) -> Result<()> {
        let mut ahead = vec![(String::new(), root)];
        while let Some((path, id)) = ahead.pop() {
            self.progress.check()?;
            let Some(Known::Finds(finds)) = self.known.get(&id) else {
                continue;
            };
            for (name, attributes) in &finds.objects {
                each(&format!("{path}/{name}"), attributes)?;
            }
            let below = finds.folders.iter();
            ahead.extend(below.map(|(name, id)| (format!("{path}/{name}"), *id)));
        }
        Ok(())
    }
}
