//! Search by name below a folder; the results are sent as they are found.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use bandsaw::fs::{Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use bandsaw::{Error, Kind, Result as LibraryResult};
use maud::html;

use super::folder::{breadcrumb, kind};
use super::{layout, open_volume, refusal_in, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::reply::{Refusal, set};
use crate::request_checks::Visit;
use crate::stream::{self, ArchiveSink};

/// Results of a search.
const MAX_FOUND: u64 = 10_000;
/// Folders of a search; each is remembered, to find one that contains itself.
const MAX_FOLDERS: usize = 50_000;
/// Bytes of memory of a search.
const MEMORY: usize = stream::STREAM_MEMORY + (16 << 20);

/// Shows the entries below a folder whose name contains the text of the query, in any case.
pub(crate) async fn find(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let wanted = visit.query.text("q").unwrap_or_default().to_lowercase();
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let (image, fs, top) = work(move || {
        let (image, fs) = open_volume(&shared, &shown, &of)?;
        let top = fs.resolve(&of.path);
        let top = top.map_err(|error| refusal_in(&image, &error))?;
        Ok((image, fs, top))
    })
    .await?;
    let mut begin = layout::opening(&visit.session, "Search");
    let heading = html! {
        (breadcrumb(&target, &fs.volume().name))
        p { "Names that contain " (layout::name(&wanted)) ":" }
    };
    begin.push_str(&heading.into_string());
    begin.push_str("<ul>");
    let reader = image.clone();
    let write = move |mut sink: ArchiveSink| {
        let failed = |error: io::Error| Error::io("search", "write", error);
        sink.write_all(begin.as_bytes())
            .and_then(|()| sink.flush())
            .map_err(failed)?;
        let mut search = Search {
            fs: &*fs,
            wanted,
            found: 0,
            sink,
        };
        let ended = search.run(&target, top.id);
        let said = match &ended {
            Ok(false) => html! { p role="status" { (search.found) " found." } },
            Ok(true) => {
                html! { p.note role="status" { "The search was ended by its limits: " (search.found) " found." } }
            }
            Err(error) if error.kind() == Kind::Cancelled => return Err(error.duplicate()),
            // The page says it: it does not end as if everything had been searched.
            Err(error) => html! {
                p.bad role="alert" { "The search failed: " (visible(&reader.located().message(error))) }
            },
        };
        let end = format!("</ul>{}", said.into_string());
        search.sink.write_all(end.as_bytes()).map_err(failed)?;
        Ok(search.sink)
    };
    let mut response = Response::new(stream::written(image, 0, write, |_| ()));
    response.extensions_mut().insert(memory);
    set(
        &mut response,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    Ok(response)
}

struct Search<'a> {
    fs: &'a dyn FileSystem,
    wanted: String,
    found: u64,
    sink: ArchiveSink,
}

impl Search<'_> {
    /// Returns true if limits ended the search.
    fn run(&mut self, top: &Target, id: NodeId) -> LibraryResult<bool> {
        let mut seen = HashSet::from([id]);
        let mut ahead = vec![(top.clone(), id)];
        while let Some((target, id)) = ahead.pop() {
            let mut is_cut = false;
            let fs = self.fs;
            fs.list(id, &mut |Entry { name, attributes }| {
                if self.sink.is_closed() {
                    return Err(Error::new(
                        Kind::Cancelled,
                        "search",
                        "the client has disconnected",
                    ));
                }
                let is_folder = attributes.kind == FileKind::Folder;
                if name.to_lowercase().contains(&self.wanted) {
                    self.add(&target.child(&name), attributes.kind)?;
                }
                if is_folder && seen.insert(attributes.id) {
                    ahead.push((target.child(&name), attributes.id));
                }
                is_cut = self.found >= MAX_FOUND || seen.len() >= MAX_FOLDERS;
                Ok(match is_cut {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })?;
            if is_cut {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add(&mut self, target: &Target, of: FileKind) -> LibraryResult<()> {
        self.found += 1;
        let page = if of == FileKind::Folder {
            "folder"
        } else {
            "file"
        };
        let item = html! {
            li { a href=(target.address(page, &[])) { (layout::name(&target.path)) } " " span.dim { (kind(of)) } }
        };
        let written = self.sink.write_all(item.into_string().as_bytes());
        // The first ones at once, later ones in pieces.
        let written = written.and_then(|()| match self.found <= 20 {
            true => self.sink.flush(),
            false => Ok(()),
        });
        written.map_err(|error| Error::io("search", "write", error))
    }
}
