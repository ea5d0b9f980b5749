//! An image: its layers, partitions and volumes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::fs::Timestamp;
use bandsaw::open::{Image, Volume};
use bandsaw::ops::describe::{ApfsSnapshot, VolumeInfo, layer_facts};
use bandsaw::{Kind, Reason};
use bandsaw_registry::Registry;
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::list::{described, health, user};
use super::{refuse, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::{OpenImage, VolumeId};
use crate::reply::{Refusal, page};
use crate::request_checks::Visit;
use crate::roots::{ImageId, Located};
use crate::session::Session;
use crate::text;

/// Snapshots of a volume that are listed.
const MAX_SNAPSHOTS: usize = 500;
/// Partitions and volumes that are listed.
const MAX_PARTS: usize = 256;

/// A volume of the list.
struct VolumeRow {
    id: VolumeId,
    place: String,
    /// True if it can be opened, with its key.
    is_readable: bool,
    remark: Option<String>,
    info: VolumeInfo,
}

/// Shows an image.
pub(crate) async fn image(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let main = work(move || {
        let located = shared.locate(&of.image)?;
        let uses = Registry::of_user().and_then(|registry| registry.entries());
        let user = user(&located, &uses.unwrap_or_default());
        let heading = visible(&located.shown().display().to_string());
        let body = match shared.open(&shown.session, &of) {
            Ok(image) => {
                let known = shared.health.of(&of.image, &located).is_some();
                let health = known.then(|| health(&shared, &of.image, &located, None));
                opened(&image, &of, health.as_ref())
            }
            Err(error) if error.reason() == Some(Reason::InUse) && user.is_some() => html! {
                p { "It is open for changes, so that nothing else may read it meanwhile." }
            },
            Err(error) => {
                let message = located.message(&error);
                if error.kind() == Kind::WrongKey {
                    return Err(refuse(&shown, &of, &error, message, None));
                }
                html! { p.bad role="alert" { (visible(&message)) } }
            }
        };
        Ok(html! {
            h1 { bdi { (heading) } }
            @if let Some(user) = &user { p.note { "In use: " (user) "." } }
            (actions(&shown.session, &of, shared.permissions.changes && of.image.is_changeable()))
            (body)
            (bundle_snapshots(&located, &of))
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Image", Frame::default(), &main);
    Ok(page(StatusCode::OK, markup))
}

fn actions(session: &Session, target: &Target, may_change: bool) -> Markup {
    let check = target.address("check", &[]);
    html! {
        nav aria-label="Actions" { ul {
            li { a href=(target.address("space", &[])) { "Space" } }
            li { (layout::button(session, &check, "Check", &[("kind", "check")])) }
            li { (layout::button(session, &check, "Diagnose", &[("kind", "diagnose")])) }
            @if may_change { li { a href=(target.address("changes", &[])) { (text::CHANGES) } } }
        } }
    }
}

/// Returns the snapshots of a sparse bundle, as images to look at.
fn bundle_snapshots(located: &Located, target: &Target) -> Markup {
    if let Some(snapshot) = &target.image.snapshot {
        let bundle = Target::of_image(ImageId {
            snapshot: None,
            ..target.image.clone()
        });
        return html! {
            p.note { "As of the snapshot " (layout::name(snapshot)) ". " a href=(bundle.address("image", &[])) { "Current state" } }
        };
    }
    let snapshots = match located.snapshots() {
        Ok(snapshots) => snapshots,
        Err(error) => return html! { p.bad { (visible(&located.message(&error))) } },
    };
    html! {
        @if !snapshots.is_empty() {
            h2 { "Snapshots of the bundle" }
            div.scroll tabindex="0" { table {
                thead { tr { th scope="col" { "Taken" } th scope="col" { "Name" } } }
                tbody { @for found in snapshots.iter().rev().take(MAX_SNAPSHOTS) {
                    @let image = ImageId { snapshot: Some(found.name.clone()), ..target.image.clone() };
                    tr {
                        td { (Timestamp::from_seconds(i64::try_from(found.created).unwrap_or(i64::MAX))) }
                        td { a href=(Target::of_image(image).address("image", &[])) { (layout::name(&found.name)) } }
                    }
                } }
            } }
        }
    }
}

fn opened(open: &OpenImage, target: &Target, health: Option<&Markup>) -> Markup {
    let image = open.image();
    let mut rows: Vec<_> = image
        .volumes()
        .iter()
        .flat_map(volumes)
        .take(MAX_PARTS)
        .collect();
    for remark in rows.iter_mut().filter_map(|row| row.remark.as_mut()) {
        *remark = open.located().readable(remark);
    }
    let layers = image
        .layers()
        .iter()
        .filter(|layer| layer.volumes().is_none());
    html! {
        @for warning in image.warnings().iter().take(50) {
            p.note { (visible(&open.located().readable(warning))) }
        }
        dl {
            (layout::fact("Format", &html! { (described(image.format())) }))
            (layout::fact("Size of the disk", &layout::bytes(image.disk().info().len)))
            @if let Some(allocated) = open.located().allocated() {
                (layout::fact("Allocated", &layout::bytes(allocated)))
            }
            (layout::fact("Encrypted", &html! { (if image.is_secret() { "yes, unlocked" } else { "no" }) }))
            @if let Some(health) = health {
                (layout::fact("Last check", health))
            }
            @if let Ok(contents) = image.contents() {
                (layout::fact("Contents", &html! { (contents.name()) }))
            }
        }
        h2 { "Volumes" }
        @if rows.is_empty() { p { "No volume was found." } }
        @else { (volume_table(&rows, target)) }
        @for row in rows.iter().filter(|row| !row.snapshots().is_empty()) {
            (snapshot_table(row, target))
        }
        @if let Some(map) = image.partitions() {
            h2 { "Partitions (" (map.scheme.to_string()) ")" }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th.number scope="col" { "Number" } th scope="col" { "Type" } th scope="col" { "Name" }
                    th.number scope="col" { "Offset" } th.number scope="col" { "Size" }
                } }
                tbody { @for part in map.partitions.iter().take(MAX_PARTS) {
                    tr {
                        td.number { (part.number) } td { (visible(&part.kind)) } td { (layout::name(&part.name)) }
                        td.number { (layout::bytes(part.range.start)) }
                        td.number { (layout::bytes(part.range.end.saturating_sub(part.range.start))) }
                    }
                } }
            } }
        }
        h2 { "Layers" }
        ol { @for (name, facts) in layers.flat_map(layer_facts) {
            li { (name) ": " (visible(&open.located().readable(&facts))) }
        } }
    }
}

fn volume_table(rows: &[VolumeRow], target: &Target) -> Markup {
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "File system" } th scope="col" { "Place" }
                th.number scope="col" { "Used" } th.number scope="col" { "Size" } th scope="col" { "Remarks" }
            } }
            tbody { @for row in rows {
                @let name = row.name().unwrap_or("without a name");
                tr {
                    td {
                        @if row.is_readable { a href=(address(target, &row.id, "folder")) { (layout::name(name)) } }
                        @else { (layout::name(name)) }
                        @if let Some(role) = row.info.apfs().and_then(|apfs| apfs.role) { " " span.dim { (role) } }
                    }
                    td { (row.info.file_system) } td { (row.place) }
                    td.number { @if let Some(content) = &row.info.content { (layout::bytes(content.used)) } @else { "–" } }
                    td.number { (layout::bytes(row.info.size)) }
                    td { @if let Some(remark) = &row.remark { (visible(remark)) } }
                }
            } }
        } }
    }
}

fn snapshot_table(row: &VolumeRow, target: &Target) -> Markup {
    html! {
        h2 { "Snapshots of " (layout::name(row.name().unwrap_or_default())) }
        p { a href=(address(target, &row.id, "time")) { "Timeline" } }
        div.scroll tabindex="0" { table {
            thead { tr { th scope="col" { "Taken" } th scope="col" { "Name" } } }
            tbody { @for snapshot in row.snapshots().iter().rev().take(MAX_SNAPSHOTS) {
                @let id = VolumeId { snapshot: Some(snapshot.name.clone()), ..row.id.clone() };
                tr {
                    td { @if let Some(time) = &snapshot.created { (time) } @else { "–" } }
                    td { a href=(address(target, &id, "folder")) { (layout::name(&snapshot.name)) } }
                }
            } }
        } }
        @if row.snapshots().len() > MAX_SNAPSHOTS {
            p.dim { "The newest " (MAX_SNAPSHOTS) " of " (row.snapshots().len()) " are listed." }
        }
    }
}

fn address(target: &Target, id: &VolumeId, page: &str) -> String {
    let target = Target {
        volume: Some(id.clone()),
        path: "/".to_owned(),
        ..target.clone()
    };
    target.address(page, &[])
}

/// Returns the volumes in a partition.
fn volumes(volume: &Volume) -> Vec<VolumeRow> {
    let all = VolumeInfo::all(volume).into_iter();
    all.map(|info| VolumeRow::new(volume, info)).collect()
}

impl VolumeRow {
    fn new(volume: &Volume, info: VolumeInfo) -> Self {
        let remark = match (&info.problem, info.apfs()) {
            (Some(problem), _) => Some(problem.message.clone()),
            (None, Some(apfs)) if apfs.hardware_key => {
                Some("encrypted with a key of its Mac".to_owned())
            }
            (None, Some(apfs)) => apfs.encrypted.then(|| "encrypted".to_owned()),
            (None, None) => None,
        };
        Self {
            id: VolumeId {
                partition: info.partition.unwrap_or(1),
                number: info.apfs().map(|apfs| apfs.number),
                snapshot: None,
            },
            place: volume.place(),
            is_readable: info.readable || info.locked,
            remark,
            info,
        }
    }

    fn name(&self) -> Option<&str> {
        Some(self.info.content.as_ref()?.name.as_str()).filter(|name| !name.is_empty())
    }

    fn snapshots(&self) -> &[ApfsSnapshot] {
        self.info.apfs().map_or(&[], |apfs| &apfs.snapshots)
    }
}

/// Returns the name of a volume in a container, if it is known without its key.
pub(crate) fn volume_name(image: &Image, id: &VolumeId) -> Option<String> {
    let volume = image
        .volumes()
        .iter()
        .find(|volume| volume.partition.unwrap_or(1) == id.partition)?;
    let container = volume.container().ok()?;
    let labels = container.labels().into_iter().flatten();
    let mut found = labels.filter(|label| id.number.is_none_or(|number| label.number == number));
    found.next().map(|label| label.name)
}
