//! The differences between two states of a volume: Time Machine backups, or snapshots.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::fs::{Attributes, FileKind, FileSystemExt};
use bandsaw::{Error, Kind, Result as LibraryResult};
use bandsaw_backups::Backups;
use bandsaw_evidence::{ComparedFolder, Options};
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

/// Differences that are listed.
const MAX_DIFFERENCES: usize = 2000;

/// A difference, in words.
struct Difference {
    path: String,
    what: String,
    sizes: [Option<u64>; 2],
}

/// The differences between two states.
struct Differences {
    /// The names of the states.
    states: [String; 2],
    list: Vec<Difference>,
    problems: Vec<Error>,
}

/// Compares two states of a volume, or what is at a path in them.
pub(crate) async fn compare(
    State(app): State<Arc<App>>,
    visit: Visit,
) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let state = |name: &str| {
        let state = visit.query.text(name).and_then(VolumeState::parse);
        state.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, text::MISSING))
    };
    let (old, new) = (state("old")?, state("new")?);
    let turn = acquire_permit(&app).await?;
    let shown = visit.clone();
    let main = work(move || {
        let _turn = turn;
        let (image, _) = open_volume(&app, &shown, &target)?;
        let compared = match (&old, &new) {
            (VolumeState::Backup(old), VolumeState::Backup(new)) => backups(&image, &target, [*old, *new]),
            (VolumeState::Snapshot(old), VolumeState::Snapshot(new)) => {
                snapshots(&image, &target, [old.as_deref(), new.as_deref()])
            }
            _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, text::MISSING)),
        };
        let found = compared.map_err(|error| late(&image, error))?;
        image.check().map_err(|error| refusal_in(&image, &error))?;
        let [old, new] = &found.states;
        Ok(html! {
            h1 { "Differences" }
            p { (layout::name(old)) " – " (layout::name(new)) ", below " (layout::name(&target.path)) }
            (layout::links(&[(target.at("/").address("time", &[]), "Timeline")]))
            (drawn(&image, &found))
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Differences", Frame::default(), &main);
    Ok(page(StatusCode::OK, markup))
}

fn backups(image: &OpenImage, target: &Target, numbers: [usize; 2]) -> LibraryResult<Differences> {
    let backups = Backups::read(image.backup_volumes(target.volume()?)?);
    let [old, new] = numbers.map(|number| backups.open(number));
    let found = bandsaw_backups::diff(&old?, &new?, &target.path, &Deadline::new())?;
    let size = |of: &Option<Attributes>| {
        let file = of.as_ref().filter(|of| of.kind == FileKind::File);
        file.map(|file| file.size)
    };
    let list = found.list.iter().map(|one| Difference {
        path: one.path.clone(),
        what: match (one.kind, one.files) {
            (bandsaw_backups::DifferenceKind::Attributes, _) => "attributes changed".to_owned(),
            (kind, 0 | 1) => kind.name().to_owned(),
            (kind, files) => format!("{}, {files} files", kind.name()),
        },
        sizes: [size(&one.old), size(&one.new)],
    });
    Ok(Differences {
        states: numbers.map(|number| {
            let backup = backups.all().get(number);
            backup.map_or_else(String::new, |backup| backup.date.to_string())
        }),
        list: list.collect(),
        problems: found.problems,
    })
}

fn snapshots(
    image: &OpenImage,
    target: &Target,
    names: [Option<&str>; 2],
) -> LibraryResult<Differences> {
    let volume = target.volume()?;
    let open = |name: Option<&str>| {
        let fs = image.volume(&VolumeId {
            snapshot: name.map(str::to_owned),
            ..volume.clone()
        })?;
        let found = match fs.resolve(&target.path) {
            Err(error) if error.kind() == Kind::NotFound => None,
            found => Some(found?),
        };
        Ok::<_, Error>((fs, found))
    };
    let [(old, before), (new, after)] = [open(names[0])?, open(names[1])?];
    let missing = || {
        let message = "does not exist in both states: compare the folder above it";
        Error::new(Kind::NotFound, "path", message).named(&*target.path)
    };
    let (before, after) = before.zip(after).ok_or_else(missing)?;
    let side = |fs, attributes| ComparedFolder { fs, attributes };
    let found = bandsaw_evidence::diff(
        side(&*old, &before),
        side(&*new, &after),
        &Options::default(),
        &Deadline::new(),
    )?;
    let base = target.path.trim_end_matches('/');
    let list = found.differences.iter().map(|one| {
        let mut what = one.kind.name().to_owned();
        if let Some(old) = &one.old_path {
            what = format!("{what} from {base}{old}");
        }
        let fields: Vec<_> = one.fields.iter().map(|field| field.name()).collect();
        if !fields.is_empty() {
            what = format!("{what}: {}", fields.join(", ").replace('_', " "));
        }
        let is_itself = one.path == "/" && !base.is_empty();
        Difference {
            path: match is_itself {
                true => base.to_owned(),
                false => format!("{base}{}", one.path),
            },
            what,
            sizes: [one.old_size, one.new_size],
        }
    });
    Ok(Differences {
        states: names.map(|name| name.unwrap_or(text::NOW).to_owned()),
        list: list.collect(),
        problems: found.problems,
    })
}

fn drawn(image: &OpenImage, found: &Differences) -> Markup {
    let size = |size: Option<u64>| size.map_or_else(|| html! { "–" }, layout::bytes);
    html! {
        @for error in found.problems.iter().take(20) {
            p.bad { "Cannot be read: " (visible(&image.located().message(error))) }
        }
        @if found.list.is_empty() { p { (text::NO_DIFFERENCE) } } @else {
            p.dim { (found.list.len()) " differences" }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th scope="col" { "Path" } th scope="col" { "Difference" }
                    th.number scope="col" { "Older size" } th.number scope="col" { "Newer size" }
                } }
                tbody { @for one in found.list.iter().take(MAX_DIFFERENCES) {
                    @let [old, new] = one.sizes;
                    tr {
                        td { (layout::name(&one.path)) }
                        td { (visible(&one.what)) }
                        td.number { (size(old)) } td.number { (size(new)) }
                    }
                } }
            } }
            @if found.list.len() > MAX_DIFFERENCES {
                p.dim { (found.list.len() - MAX_DIFFERENCES) " more are not listed." }
            }
        }
    }
}
