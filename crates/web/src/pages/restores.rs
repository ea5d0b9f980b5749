//! Restores of files into a folder of the host.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::problem::Severity;
use bandsaw::progress::Progress;
use bandsaw::{Error, Result as LibraryResult, size};
use maud::{Markup, html};

use super::changes::visitor;
use super::open_volume;
use crate::app::{App, Target};
use crate::change_log::Visitor;
use crate::job::{Job, JobKind, JobResult};
use crate::names::visible;
use crate::query::address;
use crate::reply::{Refusal, see};
use crate::request_checks::{Peer, Visit};
use crate::restore::{name_of, restore};
use crate::session::Session;
use crate::text;

/// Starts a restore, and leads to the page that shows it.
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    visit: Visit,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Refusal> {
    let number = visit.form.number("into");
    let number = number.and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|number| app.restores.paths().nth(*number).is_some());
    let number = number.ok_or_else(|| Refusal::new(StatusCode::FORBIDDEN, text::NO_RESTORES))?;
    if visit.form.text("confirm") != Some("yes") {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text::UNCONFIRMED));
    }
    let target = Target::parse(&visit.query)?;
    target.volume()?;
    let session = visit.session.number();
    let kind = JobKind::Restore(target.path.clone());
    let job = app.jobs.add(session, target.image.clone(), kind)?;
    let job = job.ok_or_else(|| Refusal::new(StatusCode::TOO_MANY_REQUESTS, text::TOO_MANY))?;
    let next = see(&address("job", &[("id", job.number().as_bytes())]));
    let turn = app.jobs.permits();
    let visitor = visitor(&visit, peer);
    tokio::spawn(async move {
        let Ok(turn) = turn.acquire_owned().await else {
            return;
        };
        let run = move || {
            job.run_task(|job| restore_and_log(&app, &visit, &target, number, visitor, job));
            drop(turn);
        };
        let _ = tokio::task::spawn_blocking(run).await;
    });
    Ok(next)
}

/// Restores, and writes that to the log. An error is in the words of the page.
fn restore_and_log(
    app: &App,
    visit: &Visit,
    target: &Target,
    number: usize,
    visitor: Visitor,
    job: &Job,
) -> Result<JobResult, String> {
    let (image, fs) = open_volume(app, visit, target).map_err(|refusal| refusal.message)?;
    let located = image.located();
    let name = name_of(&target.path, &fs.volume().name);
    let what = format!("restore {} of {}", target.path, located.shown().display());
    let folder = app.restores.paths().nth(number).unwrap_or(Path::new(""));
    let place = folder.join(&name);
    // Errors name files by what is open.
    let opened = app.restores.get(number).map(|of| {
        let opened = format!("/proc/self/fd/{}/", of.folder.as_raw_fd());
        (opened, format!("{}/", folder.display()))
    });
    let readable = |error: &Error| {
        let text = error.to_string();
        match &opened {
            Ok((opened, folder)) => located.readable(&text.replace(opened, folder)),
            Err(_) => located.readable(&text),
        }
    };
    let entry = app.log.begin(visitor, &what, &place.display().to_string());
    let done: LibraryResult<_> = image.check().and_then(|()| {
        let folder = &app.restores.get(number)?.folder;
        let done = restore(&*fs, &target.path, folder, &name, job as &dyn Progress)?;
        image.check().map(|()| done)
    });
    match done {
        Ok(done) => {
            let mut result = JobResult {
                conclusion: format!(
                    "Restored: {}, {}.",
                    size::counted(done.files, "file", "files"),
                    size::display(done.bytes)
                ),
                is_sound: done.problem_count == 0,
                is_failure: done.problem_count > 0,
                undo: "remove it".to_owned(),
                ..JobResult::default()
            };
            result.add_fact("Place", visible(&place.display().to_string()));
            let of = |severity| {
                let readable = &readable;
                move |error: &Error| (severity, visible(&readable(error)))
            };
            result
                .findings
                .extend(done.problems.iter().map(of(Severity::Damage)));
            result
                .findings
                .extend(done.notes.iter().map(of(Severity::Note)));
            app.log
                .end(entry, !result.is_failure, &result.conclusion, &result.undo);
            Ok(result)
        }
        Err(error) => {
            let message = readable(&error);
            app.log.end(entry, false, &message, "");
            Err(message)
        }
    }
}

/// Returns the form that restores what a page shows; empty if that is not allowed.
pub(crate) fn form(app: &App, session: &Session, target: &Target) -> Markup {
    let folders: Vec<_> = app.restores.paths().collect();
    if folders.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Restore" }
        form.change method="post" action=(target.address("restore", &[])) {
            input type="hidden" name="csrf" value=(session.csrf().reveal());
            p {
                label for="restore-into" { "Into the folder" } " "
                select #restore-into name="into" {
                    @for (number, folder) in folders.iter().enumerate() {
                        option value=(number) { (visible(&folder.display().to_string())) }
                    }
                }
            }
            p {
                input #confirm-restore type="checkbox" name="confirm" value="yes" required; " "
                label for="confirm-restore" { "Write it there" }
            }
            p { button type="submit" { "Restore" } }
        }
    }
}
