//! Changes of an image: dry runs, confirmations, and the log.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::fs::Timestamp;
use bandsaw::open::NetworkOptions;
use bandsaw::ops::{repair, snapshot};
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::work;
use crate::app::{App, Target};
use crate::change::{Change, ChangeWork};
use crate::change_log::Visitor;
use crate::job::{Job, JobKind, JobResult};
use crate::names::visible;
use crate::query::{Fields, address};
use crate::reply::{Refusal, page, see};
use crate::request_checks::{Peer, Visit};
use crate::roots::ChangePlace;
use crate::session::Session;
use crate::text;

/// Lines of a list on the page of a dry run.
const MAX_LISTED: usize = 1000;
/// Snapshots that are listed.
const MAX_SNAPSHOTS: usize = 500;
/// Decisions of one repair.
const MAX_DECISIONS: usize = 32;

/// Returns the visitor as the log names one.
pub(super) fn visitor(visit: &Visit, peer: Peer) -> Visitor {
    Visitor {
        session: visit.session.number(),
        address: peer.0,
    }
}

fn check_allowed(app: &App) -> Result<(), Refusal> {
    match app.permissions.changes {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::FORBIDDEN, text::NOT_ALLOWED)),
    }
}

/// Shows the changes that can be made to an image.
pub(crate) async fn changes(
    State(app): State<Arc<App>>,
    visit: Visit,
) -> Result<Response, Refusal> {
    check_allowed(&app)?;
    let target = Target::parse(&visit.query)?;
    let (shared, session, of) = (app.clone(), visit.session.clone(), target.clone());
    let main = work(move || {
        let place = shared.roots.locate_for_change(&of.image)?;
        let shown = place.located().shown().display().to_string();
        let has_undo = repair::undo_folder(&place.path(), None).is_dir();
        let snapshots = snapshot::list(&place.path(), NetworkOptions::default());
        Ok(html! {
            h1 { "Changes of " (layout::name(&shown)) }
            (layout::links(&[
                (of.address("image", &[]), "Image"),
                ("log".to_owned(), text::LOG),
            ]))
            (compact_section(&session, &of))
            (repair_section(&session, &of, has_undo))
            @match snapshots {
                Ok(snapshots) => (snapshot_section(&session, &of, &snapshots)),
                // Only bundles have them.
                Err(error) if error.kind() == bandsaw::Kind::Unsupported => {}
                Err(error) => {
                    h2 { "Snapshots" }
                    p.bad { (visible(&place.readable(&error.to_string()))) }
                }
            }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, text::CHANGES, Frame::default(), &main);
    Ok(page(StatusCode::OK, markup))
}

fn compact_section(session: &Session, target: &Target) -> Markup {
    html! {
        h2 { "Compact" }
        p { "Gives unused space of the volumes back to the host, and packs bands and chunks." }
        (form(session, &target.address("plan", &[]), "Show what would be freed", &html! {
            input type="hidden" name="kind" value="compact";
            p {
                input #zeros type="checkbox" name="zeros" value="1"; " "
                label for="zeros" { "Read all data in use, and free blocks of zeros" }
            }
        }))
    }
}

fn repair_section(session: &Session, target: &Target, has_undo: bool) -> Markup {
    let change = target.address("change", &[]);
    html! {
        h2 { "Repair" }
        p { "Repairs damage where independent sources in the image agree. All bytes that are \
             overwritten are saved first." }
        (form(session, &target.address("plan", &[]), "Show the planned repair", &html! {
            input type="hidden" name="kind" value="repair";
        }))
        @if has_undo {
            h3 { "Undo data of repairs" }
            (form(session, &change, "Undo repairs", &html! {
                input type="hidden" name="kind" value="undo";
                (confirm("undo", "Restore the image to its state before the repairs"))
            }))
            (form(session, &change, "Remove undo data", &html! {
                input type="hidden" name="kind" value="commit";
                (confirm("commit", "Remove the undo data and quarantined files"))
            }))
        }
    }
}

fn snapshot_section(
    session: &Session,
    target: &Target,
    snapshots: &[bandsaw::store::Snapshot],
) -> Markup {
    let change = target.address("change", &[]);
    html! {
        h2 { "Snapshots" }
        (form(session, &change, "Create a snapshot", &html! {
            input type="hidden" name="kind" value="create";
            p {
                label for="name" { "Name" } " "
                input #name type="text" name="name" maxlength="255" required autocomplete="off";
            }
            (confirm("create", "Create it now"))
        }))
        @if !snapshots.is_empty() {
            div.scroll tabindex="0" { table {
                thead { tr {
                    th scope="col" { "Created (UTC)" } th scope="col" { "Name" }
                    th scope="col" { "Restore" } th scope="col" { "Delete" }
                } }
                tbody { @for (at, found) in snapshots.iter().rev().take(MAX_SNAPSHOTS).enumerate() {
                    tr {
                        td { (Timestamp::from_seconds(i64::try_from(found.created).unwrap_or(i64::MAX))) }
                        td { (layout::name(&found.name)) }
                        td { (form(session, &change, "Restore", &html! {
                            input type="hidden" name="kind" value="restore";
                            input type="hidden" name="name" value=(found.name);
                            (confirm(&format!("restore{at}"), "Discard all later changes"))
                        })) }
                        td { (form(session, &change, "Delete", &html! {
                            input type="hidden" name="kind" value="delete";
                            input type="hidden" name="name" value=(found.name);
                            (confirm(&format!("delete{at}"), "Delete it for good"))
                        })) }
                    }
                } }
            } }
        }
    }
}

fn form(session: &Session, action: &str, label: &str, fields: &Markup) -> Markup {
    html! {
        form.change method="post" action=(action) {
            input type="hidden" name="csrf" value=(session.csrf().reveal());
            (fields)
            p { button type="submit" { (label) } }
        }
    }
}

/// Returns the mark without which a change is refused.
fn confirm(id: &str, label: &str) -> Markup {
    let id = format!("confirm-{id}");
    html! {
        p {
            input id=(id) type="checkbox" name="confirm" value="yes" required; " "
            label for=(id) { (label) }
        }
    }
}

/// Starts a dry run, and leads to the page that shows it.
pub(crate) async fn plan(
    State(app): State<Arc<App>>,
    visit: Visit,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Refusal> {
    check_allowed(&app)?;
    let form = &visit.form;
    let change = match form.text("kind") {
        Some("compact") => Change::Compact {
            zeros: form.text("zeros").is_some(),
        },
        Some("repair") => Change::Repair {
            assume: decisions(form)?,
            accepted: None,
        },
        _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, text::MISSING)),
    };
    start(&app, &visit, peer, JobKind::Plan(change)).await
}

/// Returns the decisions that a form holds.
fn decisions(form: &Fields) -> Result<Vec<String>, Refusal> {
    let words = form.text("assume").unwrap_or_default().split(' ');
    let all: Vec<_> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    match all.len() <= MAX_DECISIONS {
        true => Ok(all),
        false => Err(Refusal::new(StatusCode::BAD_REQUEST, text::NO_PLAN)),
    }
}

/// Starts a change that was confirmed, and leads to the page that shows it.
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    visit: Visit,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Refusal> {
    check_allowed(&app)?;
    let form = &visit.form;
    if form.text("confirm") != Some("yes") {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text::UNCONFIRMED));
    }
    let name = || form.text("name").unwrap_or_default().to_owned();
    let change = match form.text("kind") {
        Some("apply") => planned(&app, &visit)?,
        Some("undo") => Change::Undo,
        Some("commit") => Change::Commit,
        Some("create") => Change::CreateSnapshot(name()),
        Some("restore") => Change::RestoreSnapshot(name()),
        Some("delete") => Change::DeleteSnapshot(name()),
        _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, text::MISSING)),
    };
    start(&app, &visit, peer, JobKind::Change(change)).await
}

/// Returns the change that a dry run of this session has shown. Losses must be accepted one more
/// time.
fn planned(app: &App, visit: &Visit) -> Result<Change, Refusal> {
    let refused = |message| Refusal::new(StatusCode::CONFLICT, message);
    let target = Target::parse(&visit.query)?;
    let number = visit.form.text("plan").unwrap_or_default();
    let job = app.jobs.find(visit.session.number(), number);
    let job =
        job.filter(|job| *job.image() == target.image && matches!(job.kind(), JobKind::Plan(_)));
    let result = job.and_then(|job| job.result());
    let next = result.and_then(|result| result.next.clone());
    match next.ok_or_else(|| refused(text::NO_PLAN))? {
        Change::Repair {
            accepted: Some(_), ..
        } if visit.form.text("accept-loss") != Some("yes") => {
            Err(Refusal::new(StatusCode::BAD_REQUEST, text::UNCONFIRMED))
        }
        change => Ok(change),
    }
}

async fn start(
    app: &Arc<App>,
    visit: &Visit,
    peer: Peer,
    kind: JobKind,
) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let (shared, id) = (app.clone(), target.image.clone());
    let place = work(move || Ok(shared.roots.locate_for_change(&id)?)).await?;
    Ok(see(&start_at(app, visit, peer, &target, place, kind)?))
}

/// Starts a job on an image that was located. Returns the address of the page that shows it.
pub(super) fn start_at(
    app: &Arc<App>,
    visit: &Visit,
    peer: Peer,
    target: &Target,
    place: ChangePlace,
    kind: JobKind,
) -> Result<String, Refusal> {
    let session = &visit.session;
    let job = app.jobs.add(session.number(), target.image.clone(), kind)?;
    let job = job.ok_or_else(|| Refusal::new(StatusCode::TOO_MANY_REQUESTS, text::TOO_MANY))?;
    let next = address("job", &[("id", job.number().as_bytes())]);
    launch(
        job,
        ChangeWork {
            app: app.clone(),
            place,
            keys: session.keys().of(&target.image, Instant::now()),
            visitor: visitor(visit, peer),
        },
    );
    Ok(next)
}

/// Runs a change or its dry run when it is its turn.
pub(super) fn launch(job: Arc<Job>, work: ChangeWork) {
    let turn = work.app.jobs.permits();
    tokio::spawn(async move {
        let Ok(turn) = turn.acquire_owned().await else {
            return;
        };
        let run = move || {
            job.run_change(&work);
            // Kept by the thread: the task may end before it.
            drop(turn);
        };
        let _ = tokio::task::spawn_blocking(run).await;
    });
}

/// Returns the questions that a dry run leaves, or the form that confirms the change.
pub(super) fn questions(
    session: &Session,
    target: &Target,
    job: &Job,
    result: &JobResult,
) -> Markup {
    let plan = target.address("plan", &[]);
    html! {
        @if !result.alternatives.is_empty() {
            h2 { "Decision" }
            p { "Sources in the image disagree, and the rest of it does not decide. Choose one; the \
                 repair is shown again before anything is changed." }
            (form(session, &plan, "Show the repair with this choice", &html! {
                input type="hidden" name="kind" value="repair";
                fieldset {
                    legend { "Which one is right?" }
                    @for (at, (assume, evidence)) in result.alternatives.iter().enumerate() {
                        @let id = format!("choice-{at}");
                        p {
                            input id=(id) type="radio" name="assume" value=(assume.join(" ")) required; " "
                            label for=(id) { code { (assume.join(" ")) } " – " (evidence) }
                        }
                    }
                }
            }))
        }
        @if let Some(change) = &result.next {
            h2 { "Confirm" }
            (form(session, &target.address("change", &[]), "Change the image", &html! {
                input type="hidden" name="kind" value="apply";
                input type="hidden" name="plan" value=(job.number());
                @if let Change::Repair { accepted: Some(losses), .. } = change {
                    p.bad {
                        input #accept-loss type="checkbox" name="accept-loss" value="yes" required; " "
                        label for="accept-loss" {
                            "Accept that these are lost: " (losses.len()) " files or parts of files"
                        }
                    }
                }
                (confirm("apply", &format!("Make this change: {}", visible(&change.described()))))
            }))
        }
    }
}

/// Returns a list with its heading, if it has entries.
pub(super) fn listed(heading: &str, class: &str, all: &[String]) -> Markup {
    html! {
        @if !all.is_empty() {
            h2 { (heading) }
            ul class=(class) { @for line in all.iter().take(MAX_LISTED) { li { (line) } } }
            @if all.len() > MAX_LISTED { p.dim { (all.len() - MAX_LISTED) " more are not listed." } }
        }
    }
}

/// Shows the log of changes.
pub(crate) async fn log(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let entries = app.log.entries();
    let main = html! {
        h1 { (text::LOG) }
        @if entries.is_empty() { p { (text::NO_CHANGES) } } @else {
            div.scroll tabindex="0" { table {
                thead { tr {
                    th scope="col" { "Begin (UTC)" } th scope="col" { "Visitor" }
                    th scope="col" { "Change" } th scope="col" { "Result" } th scope="col" { "Undo" }
                } }
                tbody { @for entry in &entries {
                    tr {
                        td { (entry.begin) }
                        td { (entry.visitor.to_string()) }
                        td { (entry.what) br; span.dim { bdi { (entry.place) } } }
                        @match &entry.end {
                            None => { td { "under way" } td {} }
                            Some(end) => {
                                td class=(if end.is_success { "" } else { "bad" }) { (end.result) }
                                td { (end.undo) }
                            }
                        }
                    }
                } }
            } }
        }
    };
    page(
        StatusCode::OK,
        layout::page(&visit.session, text::LOG, Frame::default(), &main),
    )
}
