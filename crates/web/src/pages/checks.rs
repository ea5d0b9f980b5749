//! Checks of an image, with their progress.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use bandsaw::problem::Severity;
use futures_util::stream;
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::{changes, work};
use crate::app::{App, Target};
use crate::job::{Job, JobKind, JobResult};
use crate::names::visible;
use crate::query::address;
use crate::reply::{Refusal, page, see, set};
use crate::request_checks::Visit;
use crate::text;

/// Time between two events of progress.
const TICK: Duration = Duration::from_millis(300);
/// Findings that are listed.
const MAX_LISTED: usize = 1000;

/// Starts a check, and leads to the page that shows it.
pub(crate) async fn start(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let kind = match visit.form.text("kind") {
        Some("diagnose") => JobKind::Diagnose,
        _ => JobKind::Check,
    };
    let session = &visit.session;
    let located = app.locate(&target.image)?;
    let keys = session.keys().of(&target.image, Instant::now());
    let job = app.jobs.add(session.number(), target.image.clone(), kind)?;
    let job = job.ok_or_else(|| Refusal::new(StatusCode::TOO_MANY_REQUESTS, text::TOO_MANY))?;
    let next = see(&address("job", &[("id", job.number().as_bytes())]));
    let turn = app.jobs.permits();
    tokio::spawn(async move {
        let Ok(_turn) = turn.acquire_owned().await else {
            return;
        };
        let _ = tokio::task::spawn_blocking(move || job.run(&located, keys.as_ref(), &app.health))
            .await;
    });
    Ok(next)
}

fn find(app: &App, visit: &Visit) -> Result<Arc<Job>, Refusal> {
    let number = visit.query.text("id").unwrap_or_default();
    let missing = || Refusal::new(StatusCode::NOT_FOUND, text::MISSING);
    app.jobs
        .find(visit.session.number(), number)
        .ok_or_else(missing)
}

/// Shows a check: its progress, or its result.
pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let job = find(&app, &visit)?;
    let target = Target::of_image(job.image().clone());
    let (shared, id) = (app.clone(), job.image().clone());
    let shown = work(move || Ok(shared.locate(&id)?.shown().display().to_string())).await?;
    let what = match job.kind() {
        JobKind::Check => "Check of ".to_owned(),
        JobKind::Diagnose => "Diagnosis of ".to_owned(),
        JobKind::Plan(change) => format!("Dry run: {}: ", visible(&change.described())),
        JobKind::Change(change) => format!("Change: {}: ", visible(&change.described())),
        JobKind::Restore(path) => format!("Restore of {} of ", visible(path)),
    };
    let is_change = matches!(job.kind(), JobKind::Plan(_) | JobKind::Change(_));
    let result = job.result();
    let main = html! {
        h1 { (what) (layout::name(&shown)) }
        @if is_change {
            (layout::links(&[
                (target.address("image", &[]), "Image"),
                (target.address("changes", &[]), text::CHANGES),
                ("log".to_owned(), text::LOG),
            ]))
        } @else {
            (layout::links(&[(target.address("image", &[]), "Image")]))
        }
        @match &result {
            Some(result) => {
                (drawn(result))
                (changes::questions(&visit.session, &target, &job, result))
            }
            None => (progress(&job)),
        }
    };
    let frame = Frame {
        script: result.is_none(),
        ..Frame::default()
    };
    Ok(page(
        StatusCode::OK,
        layout::page(
            &visit.session,
            if is_change { "Change" } else { "Check" },
            frame,
            &main,
        ),
    ))
}

fn percent(job: &Job) -> (Option<u64>, String) {
    let (stage, done, total) = job.progress();
    let percent = done.saturating_mul(100).checked_div(total);
    (percent, crate::names::visible(&stage))
}

fn progress(job: &Job) -> Markup {
    let (percent, stage) = percent(job);
    let events = address("events", &[("id", job.number().as_bytes())]);
    html! {
        p {
            label for="progress" { "Progress: " span #stage role="status" { (stage) } }
            progress #progress max="100" value=[percent] data-events=(events) {}
        }
    }
}

fn drawn(result: &JobResult) -> Markup {
    html! {
        p role="status" class=(if result.is_sound { "good" } else { "bad" }) { (result.conclusion) }
        @if !result.advice.is_empty() {
            ul { @for line in &result.advice { li { (line) } } }
        }
        @if !result.facts.is_empty() {
            dl { @for (name, value) in &result.facts { (layout::fact(name, &html! { (value) })) } }
        }
        (changes::listed("Steps", "", &result.steps))
        (changes::listed("Losses", "bad", &result.losses))
        (changes::listed("Possible losses", "", &result.possible_losses))
        @if !result.layers.is_empty() {
            h2 { "Layers" }
            dl { @for (layer, what) in &result.layers { (layout::fact(layer, &html! { (what) })) } }
        }
        @if !result.findings.is_empty() {
            h2 { "Findings" }
            div.scroll tabindex="0" { table {
                thead { tr { th scope="col" { "Severity" } th scope="col" { "Finding" } } }
                tbody { @for (severity, what) in result.findings.iter().take(MAX_LISTED) {
                    tr { td class=(if *severity == Severity::Damage { "bad" } else { "" }) { (severity) } td { (what) } }
                } }
            } }
            @let more = result.omitted + result.findings.len().saturating_sub(MAX_LISTED) as u64;
            @if more > 0 { p.dim { (more) " more are not listed." } }
        }
    }
}

/// Sends the progress of a check as events, and ends with it.
pub(crate) async fn events(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let job = find(&app, &visit)?;
    // 0: at once, 1: after a pause, 2: the end was sent.
    let next = |(job, step): (Arc<Job>, u8)| async move {
        if step == 2 {
            return None;
        }
        if step == 1 {
            tokio::time::sleep(TICK).await;
        }
        let is_over = job.result().is_some() || bandsaw::progress::Progress::cancelled(&*job);
        let event = if is_over {
            "event: end\ndata: \n\n".to_owned()
        } else {
            let (percent, stage) = percent(&job);
            let percent = percent.map_or_else(|| "?".to_owned(), |percent| percent.to_string());
            format!("event: progress\ndata: {percent} {stage}\n\n")
        };
        let step = if is_over { 2 } else { 1 };
        Some((Ok::<_, Infallible>(Bytes::from(event)), (job, step)))
    };
    let mut response = Response::new(Body::from_stream(stream::unfold((job, 0), next)));
    set(&mut response, header::CONTENT_TYPE, "text/event-stream");
    Ok(response)
}
