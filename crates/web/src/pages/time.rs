//! The states of a volume over time: its Time Machine backups, or its snapshots, and the versions of
//! a file in them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Timestamp};
use bandsaw::progress::Progress;
use bandsaw::{Kind, Result as LibraryResult};
use bandsaw_backups::{Backup, Backups, is_same_version, versions};
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::limits::{Deadline, acquire_permit, late};
use super::volume_state::VolumeState;
use super::{open_volume, refusal_in, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::{OpenImage, VolumeId};
use crate::reply::{Refusal, page};
use crate::request_checks::Visit;
use crate::text;

/// States that are listed.
const MAX_STATES: usize = 1000;

/// An object in one state of a volume.
struct Moment {
    /// The state, as comparisons name it.
    state: VolumeState,
    when: String,
    name: String,
    remark: &'static str,
    /// The object in this state, if it is there.
    found: Option<(Target, Attributes)>,
    /// The number of its version, from 1.
    version: Option<usize>,
    problem: Option<String>,
}

/// The states of a volume, the oldest first.
struct Timeline {
    moments: Vec<Moment>,
    /// The path within each state.
    path: String,
    problems: Vec<String>,
}

/// Returns the name of a backup that is a snapshot.
fn snapshot_of(backups: &Backups, backup: &Backup) -> Option<String> {
    let mut all = backups
        .volumes()
        .iter()
        .flat_map(|volume| &volume.snapshots);
    all.any(|snapshot| snapshot.name == backup.name)
        .then(|| backup.name.clone())
}

/// Returns the path within a backup of what is at a path of the volume.
fn path_within(backups: &Backups, target: &Target) -> String {
    let snapshot = target.volume.as_ref().and_then(|id| id.snapshot.as_ref());
    for (number, backup) in backups.all().iter().enumerate() {
        if snapshot_of(backups, backup).as_ref() != snapshot {
            continue;
        }
        let rest = match backups.open(number) {
            Ok(open) => target.path.strip_prefix(&*open.path).map(str::to_owned),
            Err(_) => None,
        };
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            return rest;
        }
    }
    String::new()
}

impl Timeline {
    fn of(image: &OpenImage, target: &Target) -> LibraryResult<Self> {
        let id = target.volume()?;
        let deadline = Deadline::new();
        let volumes = image.backup_volumes(id)?;
        let backups = Backups::read(volumes);
        if backups.all().is_empty() {
            return Self::of_snapshots(&backups, target, &deadline);
        }
        Self::of_backups(image, &backups, target, &deadline)
    }

    fn of_backups(
        image: &OpenImage,
        backups: &Backups,
        target: &Target,
        deadline: &Deadline,
    ) -> LibraryResult<Self> {
        let path = path_within(backups, target);
        let searched = if path.is_empty() { "/" } else { &*path };
        let found = versions(backups, searched, deadline)?;
        let mut moments: Vec<_> = backups
            .all()
            .iter()
            .enumerate()
            .map(|(number, backup)| Moment {
                state: VolumeState::Backup(number),
                when: backup.date.to_string(),
                name: format!("{} {}", backup.machine, backup.name),
                remark: match backup.state {
                    bandsaw_backups::BackupState::Complete => "",
                    bandsaw_backups::BackupState::InProgress => "in progress",
                    bandsaw_backups::BackupState::Interrupted => "interrupted",
                },
                found: None,
                version: None,
                problem: None,
            })
            .collect();
        for (at, version) in found.versions.iter().enumerate() {
            for &number in &version.backups {
                let (Some(moment), Some(backup)) =
                    (moments.get_mut(number), backups.all().get(number))
                else {
                    continue;
                };
                moment.version = Some(at + 1);
                let open = backups.open(number)?;
                let volume = VolumeId {
                    snapshot: snapshot_of(backups, backup),
                    ..target.volume()?.clone()
                };
                let path = format!("{}{}", open.path, version.path);
                let place = Target {
                    volume: Some(volume),
                    path,
                    ..target.clone()
                };
                moment.found = Some((place, version.attributes.clone()));
            }
        }
        for (number, error) in &found.unread {
            if let Some(moment) = moments.get_mut(*number) {
                moment.problem = Some(visible(&image.located().message(error)));
            }
        }
        let problems = backups.problems().iter();
        let problems = problems.map(|error| visible(&image.located().message(error)));
        Ok(Self {
            problems: problems.collect(),
            moments,
            path,
        })
    }

    fn of_snapshots(
        backups: &Backups,
        target: &Target,
        deadline: &dyn Progress,
    ) -> LibraryResult<Self> {
        let mut moments = Vec::new();
        let mut known: Vec<Attributes> = Vec::new();
        let mut add = |fs: LibraryResult<Arc<dyn FileSystem>>, name: Option<&str>, when: String| {
            let volume = target.volume.clone().map(|id| VolumeId {
                snapshot: name.map(str::to_owned),
                ..id
            });
            let place = Target {
                volume,
                ..target.clone()
            };
            let found = fs.and_then(|fs| match fs.resolve(&target.path) {
                Err(error) if error.kind() == Kind::NotFound => Ok(None),
                found => found.map(Some),
            });
            let (found, problem) = match found {
                Ok(found) => (found, None),
                Err(error) => (None, Some(visible(&error.to_string()))),
            };
            let version = found.as_ref().map(|found| {
                let same = known.iter().position(|known| is_same_version(known, found));
                same.unwrap_or_else(|| {
                    known.push(found.clone());
                    known.len() - 1
                }) + 1
            });
            moments.push(Moment {
                state: VolumeState::Snapshot(name.map(str::to_owned)),
                when,
                name: name.unwrap_or(text::NOW).to_owned(),
                remark: "",
                found: found.map(|found| (place, found)),
                version,
                problem,
            });
        };
        for volume in backups.volumes() {
            for snapshot in volume.snapshots.iter().take(MAX_STATES) {
                deadline.check()?;
                let when = snapshot
                    .created
                    .map_or_else(String::new, |time| time.to_string());
                add((volume.open)(&snapshot.name), Some(&snapshot.name), when);
            }
            if let (false, Some(fs)) = (volume.snapshots.is_empty(), &volume.fs) {
                add(Ok(fs.clone()), None, String::new());
            }
        }
        Ok(Self {
            moments,
            path: target.path.clone(),
            problems: Vec::new(),
        })
    }
}

/// Shows the states of a volume, and what they have at a path.
pub(crate) async fn time(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let turn = acquire_permit(&app).await?;
    let (shown, of) = (visit.clone(), target);
    let main = work(move || {
        let _turn = turn;
        let (image, fs) = open_volume(&app, &shown, &of)?;
        let timeline = Timeline::of(&image, &of).map_err(|error| late(&image, error))?;
        image.check().map_err(|error| refusal_in(&image, &error))?;
        let name = fs.volume().name;
        Ok(html! {
            h1 { "Timeline of " (layout::name(if name.is_empty() { "the volume" } else { &name })) }
            p { "Path: " (layout::name(if timeline.path.is_empty() { "/" } else { &timeline.path })) }
            (layout::links(&[
                (of.address("image", &[]), "Image"),
                (of.at("/").address("folder", &[]), "Volume"),
            ]))
            @for problem in timeline.problems.iter().take(20) { p.bad { (problem) } }
            @if timeline.moments.is_empty() { p { (text::NO_STATES) } }
            @else { (drawn(&timeline)) }
            @if timeline.moments.len() > 1 { (choice(&timeline, &of)) }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Timeline", Frame::default(), &main);
    Ok(page(StatusCode::OK, markup))
}

fn drawn(timeline: &Timeline) -> Markup {
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Date" } th scope="col" { "State" } th.number scope="col" { "Version" }
                th.number scope="col" { "Size" } th scope="col" { "Modified (UTC)" }
            } }
            tbody { @for moment in timeline.moments.iter().rev().take(MAX_STATES) {
                tr {
                    td { (moment.when) }
                    td {
                        @match &moment.found {
                            Some((place, found)) => {
                                @let page = if found.kind == FileKind::Folder { "folder" } else { "file" };
                                a href=(place.address(page, &[])) { (layout::name(&moment.name)) }
                            }
                            None => (layout::name(&moment.name)),
                        }
                        @if !moment.remark.is_empty() { " " span.dim { (moment.remark) } }
                        @if let Some(problem) = &moment.problem { " " span.bad { (problem) } }
                    }
                    td.number { @if let Some(version) = moment.version { (version) } @else { "–" } }
                    @match &moment.found {
                        Some((_, found)) => {
                            td.number {
                                @if found.kind == FileKind::Folder { (found.size) " entries" }
                                @else { (layout::bytes(found.size)) }
                            }
                            td { @if let Some(time) = found.modified { (Timestamp::from_seconds(time.seconds)) } }
                        }
                        None => { td.number { "–" } td {} }
                    }
                }
            } }
        } }
    }
}

/// Returns the form that compares two states.
fn choice(timeline: &Timeline, target: &Target) -> Markup {
    let of_volume = Target {
        volume: target.volume.clone().map(|id| VolumeId {
            snapshot: None,
            ..id
        }),
        ..target.clone()
    };
    let Some(fields) = layout::hidden(&of_volume, &timeline.path) else {
        return html! {};
    };
    let last = timeline.moments.len().saturating_sub(1);
    let states = |name: &str, chosen: usize| {
        html! {
            select id=(name) name=(name) {
                @for (number, moment) in timeline.moments.iter().enumerate() {
                    option value=(moment.state.text()) selected[number == chosen] {
                        @if !moment.when.is_empty() { (moment.when) " – " }
                        (visible(&moment.name))
                    }
                }
            }
        }
    };
    html! {
        h2 { "Compare" }
        form.change method="get" action="compare" {
            (fields)
            p { label for="old" { "Older" } " " (states("old", last.saturating_sub(1))) }
            p { label for="new" { "Newer" } " " (states("new", last)) }
            p { button type="submit" { "Show the differences" } }
        }
    }
}
