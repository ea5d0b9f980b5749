//! An image: its layers, partitions and volumes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::device::BlockDevice;
use bandsaw::fs::apfs::{Container, Locking, Snapshot, Summary};
use bandsaw::open::{Image, Layer, Volume};
use bandsaw::{Error, Kind, Reason};
use bandsaw_registry::Registry;
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::list::{described, user};
use super::{refuse, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::{OpenImage, VolumeId};
use crate::reply::{Refusal, page};
use crate::request_checks::Visit;
use crate::session::Session;

/// Snapshots of a volume that are listed.
const MAX_SNAPSHOTS: usize = 500;
/// Partitions and volumes that are listed.
const MAX_PARTS: usize = 256;

/// A volume of the list.
struct VolumeRow {
    id: VolumeId,
    place: String,
    format: String,
    name: Option<String>,
    role: Option<&'static str>,
    used: Option<u64>,
    total: u64,
    /// False if it cannot be opened at all.
    is_readable: bool,
    remark: Option<String>,
    snapshots: Vec<Snapshot>,
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
            Ok(image) => opened(&image, &of),
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
            (actions(&shown.session, &of))
            (body)
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Image", Frame::default(), &main);
    Ok(page(StatusCode::OK, markup))
}

fn actions(session: &Session, target: &Target) -> Markup {
    let check = target.address("check", &[]);
    html! {
        nav aria-label="Actions" { ul {
            li { a href=(target.address("space", &[])) { "Space" } }
            li { (layout::button(session, &check, "Check", &[("kind", "check")])) }
            li { (layout::button(session, &check, "Diagnose", &[("kind", "diagnose")])) }
        } }
    }
}

fn opened(open: &OpenImage, target: &Target) -> Markup {
    let image = open.image();
    let rows: Vec<_> = image
        .volumes()
        .iter()
        .flat_map(volumes)
        .take(MAX_PARTS)
        .collect();
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
            @if let Ok(contents) = image.contents() {
                (layout::fact("Contents", &html! { (contents.name()) }))
            }
        }
        h2 { "Volumes" }
        @if rows.is_empty() { p { "No volume was found." } }
        @else { (volume_table(&rows, target)) }
        @for row in rows.iter().filter(|row| !row.snapshots.is_empty()) {
            (snapshot_table(row, target))
        }
        @if let Some(map) = image.partitions() {
            h2 { "Partitions (" (map.scheme.to_string()) ")" }
            div.scroll { table {
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
        ol { @for layer in image.layers().iter().filter_map(described_layer) { li { (layer) } } }
    }
}

fn volume_table(rows: &[VolumeRow], target: &Target) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "File system" } th scope="col" { "Place" }
                th.number scope="col" { "Used" } th.number scope="col" { "Size" } th scope="col" { "Remarks" }
            } }
            tbody { @for row in rows {
                @let name = row.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("without a name");
                tr {
                    td {
                        @if row.is_readable { a href=(address(target, &row.id, "folder")) { (layout::name(name)) } }
                        @else { (layout::name(name)) }
                        @if let Some(role) = row.role { " " span.dim { (role) } }
                    }
                    td { (row.format) } td { (row.place) }
                    td.number { @if let Some(used) = row.used { (layout::bytes(used)) } @else { "–" } }
                    td.number { (layout::bytes(row.total)) }
                    td { @if let Some(remark) = &row.remark { (visible(remark)) } }
                }
            } }
        } }
    }
}

fn snapshot_table(row: &VolumeRow, target: &Target) -> Markup {
    html! {
        h2 { "Snapshots of " (layout::name(row.name.as_deref().unwrap_or_default())) }
        div.scroll { table {
            thead { tr { th scope="col" { "Taken" } th scope="col" { "Name" } } }
            tbody { @for snapshot in row.snapshots.iter().rev().take(MAX_SNAPSHOTS) {
                @let id = VolumeId { snapshot: Some(snapshot.name.clone()), ..row.id.clone() };
                tr {
                    td { @if let Some(time) = snapshot.created { (time) } @else { "–" } }
                    td { a href=(address(target, &id, "folder")) { (layout::name(&snapshot.name)) } }
                }
            } }
        } }
        @if row.snapshots.len() > MAX_SNAPSHOTS {
            p.dim { "The newest " (MAX_SNAPSHOTS) " of " (row.snapshots.len()) " are listed." }
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
    let row = |number| VolumeRow {
        id: VolumeId {
            partition: volume.partition.unwrap_or(1),
            number,
            snapshot: None,
        },
        place: volume.place(),
        format: volume.format.name().to_owned(),
        name: None,
        role: None,
        used: None,
        total: volume.range.end.saturating_sub(volume.range.start),
        is_readable: true,
        remark: None,
        snapshots: Vec::new(),
    };
    let unread = |error: &Error| VolumeRow {
        is_readable: error.kind() == Kind::WrongKey,
        remark: Some(error.message().to_owned()),
        ..row(None)
    };
    if volume.format.is_container() {
        return match volume.container() {
            Ok(container) => in_container(&container, &row),
            Err(error) => vec![unread(&error)],
        };
    }
    vec![match volume.open() {
        Ok(fs) => {
            let info = fs.volume();
            let used = info
                .total
                .saturating_sub(info.free)
                .saturating_sub(info.pending);
            VolumeRow {
                format: info.format.to_owned(),
                name: Some(info.name),
                used: Some(used),
                ..row(None)
            }
        }
        Err(error) => unread(&error),
    }]
}

fn in_container(container: &Container, row: &dyn Fn(Option<u32>) -> VolumeRow) -> Vec<VolumeRow> {
    let one = |summary: bandsaw::Result<Summary>| match summary {
        Ok(summary) => VolumeRow {
            name: Some(summary.label.name),
            role: summary.label.role,
            used: Some(summary.used),
            is_readable: summary.locking != Locking::Hardware,
            remark: match summary.locking {
                Locking::Plain => None,
                Locking::Software => Some("encrypted".to_owned()),
                Locking::Hardware => Some("encrypted with a key of its Mac".to_owned()),
            },
            snapshots: summary.snapshots,
            ..row(Some(summary.label.number))
        },
        Err(error) => VolumeRow {
            is_readable: false,
            remark: Some(error.message().to_owned()),
            ..row(None)
        },
    };
    container.volumes().into_iter().map(one).collect()
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

fn described_layer(layer: &Layer) -> Option<String> {
    Some(match layer {
        Layer::File(_) => "File of this host".to_owned(),
        Layer::Remote(_) => "File of another host".to_owned(),
        Layer::Bucket(_) => "Folder in a bucket".to_owned(),
        Layer::Archive(archive) => format!(
            "Encrypted archive, {}",
            archive.description.profile.description()
        ),
        Layer::Crypt(encryption) => format!("Encryption with AES-{}", encryption.key_bits),
        Layer::Raw(raw) => format!("Raw disk of {}", bandsaw::size::display(raw.info().len)),
        Layer::Bundle(bundle) => format!(
            "Sparse bundle with {} bands of {}",
            bundle.band_count(),
            bandsaw::size::display(bundle.band_size())
        ),
        Layer::SparseImage(image) => {
            let usage = image.usage();
            let size = bandsaw::size::display(usage.band_size);
            format!("Sparse image with {} bands of {size}", usage.bands)
        }
        Layer::Asif(image) => {
            let usage = image.usage();
            let size = bandsaw::size::display(usage.chunk_size);
            format!("Apple sparse image with {} chunks of {size}", usage.chunks)
        }
        Layer::Udif(udif) => {
            let usage = udif.usage();
            let (stored, held) = (
                bandsaw::size::display(usage.stored),
                bandsaw::size::display(usage.held),
            );
            format!(
                "{} with {} chunks: {held} stored in {stored}",
                udif.format(),
                usage.chunks
            )
        }
        Layer::Overlay(_) => "Layer with changes".to_owned(),
        Layer::Stack(_) => "Disk of an image and its layers".to_owned(),
        Layer::Partitions(map) => {
            format!("{} with {} partitions", map.scheme, map.partitions.len())
        }
        Layer::Volumes(_) => return None,
    })
}
