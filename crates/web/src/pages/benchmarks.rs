//! Results of `bandsaw bench` in files below the roots: tables and plots.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use bandsaw::fs::Timestamp;
use bandsaw::{Error, Result as LibraryResult};
use bandsaw_bench::report::{Report, plot, table};
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::work;
use crate::app::{App, Target};
use crate::names::visible;
use crate::query::address;
use crate::reply::{CONTENT_POLICY, Refusal, large_page, set};
use crate::request_checks::Visit;
use crate::roots::{FoundImage, ImageId};
use crate::text;

/// Files that are looked at for the list.
const MAX_FILES: usize = 200;
/// Length in bytes of a file that is looked at, and of one that is shown.
const MAX_LISTED: u64 = 512 << 10;
const MAX_SHOWN: u64 = 2 << 20;
/// Bytes of memory of a page: the file, what is parsed, and the tables.
const MEMORY: usize = 16 << 20;

/// The policy of plots: pictures with a style of their own.
const PLOT_POLICY: &str = "; style-src 'unsafe-inline'";

/// A file of the list.
struct Row {
    address: String,
    shown: String,
    report: Report,
}

fn read(app: &App, id: &ImageId, most: u64) -> LibraryResult<Report> {
    let bytes = app.roots.read(id, most)?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| Error::invalid("benchmark", "not text in UTF-8"))?;
    Report::from_json(text)
}

fn row(app: &App, found: FoundImage) -> Option<Row> {
    let report = read(app, &found.id, MAX_LISTED).ok()?;
    Some(Row {
        address: Target::of_image(found.id).address("benchmark", &[]),
        shown: found.shown,
        report,
    })
}

/// Shows the files with results below the roots.
pub(crate) async fn list(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let main = work(move || {
        let mut search = app.roots.search_results();
        let is_cut = search.is_cut || search.images.len() > MAX_FILES;
        search.images.truncate(MAX_FILES);
        let rows: Vec<_> = search
            .images
            .into_iter()
            .filter_map(|found| row(&app, found))
            .collect();
        Ok(html! {
            h1 { (text::BENCHMARKS) }
            @if is_cut { p.note role="status" { (text::CUT) } }
            @if rows.is_empty() { p { (text::NO_BENCHMARKS) } } @else { (files(&rows)) }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, text::BENCHMARKS, Frame::default(), &main);
    Ok(large_page(markup, memory))
}

fn files(rows: &[Row]) -> Markup {
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Begun (UTC)" } th scope="col" { "File" }
                th scope="col" { "Benchmark" } th scope="col" { "Program" }
            } }
            tbody { @for row in rows {
                tr {
                    td { (Timestamp::from_seconds(i64::try_from(row.report.began).unwrap_or(i64::MAX))) }
                    td { a href=(row.address) { (layout::name(&row.shown)) } }
                    td { (visible(&row.report.benchmark)) }
                    td { (visible(&row.report.tool)) }
                }
            } }
        } }
    }
}

/// Shows the results in a file.
pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let main = work(move || {
        let report = read(&app, &target.image, MAX_SHOWN)?;
        Ok(html! {
            h1 { "Benchmark: " (visible(&report.benchmark)) }
            (layout::links(&[(address("benchmarks", &[]), text::BENCHMARKS)]))
            dl { @for (name, value) in table::facts(&report) {
                (layout::fact(name, &html! { (visible(&value)) }))
            } }
            @for plot in plot::plots(&report) {
                h2 { (visible(&plot.title)) }
                figure {
                    img.plot loading="lazy" alt={ "Plot: " (visible(&plot.title)) }
                        src=(target.address("plot.svg", &[("n", plot.name.as_bytes())]));
                    figcaption { (visible(&plot.about)) }
                }
            }
            @for table in table::tables(&report) { (drawn(&table)) }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, text::BENCHMARKS, Frame::default(), &main);
    Ok(large_page(markup, memory))
}

fn drawn(of: &table::Table) -> Markup {
    let class = |column: usize| if column < of.texts { "" } else { "number" };
    html! {
        h2 { (visible(&of.title)) }
        div.scroll tabindex="0" { table {
            thead { tr { @for (at, cell) in of.heading.iter().enumerate() {
                // A column without a heading, as rules of accessibility want it.
                @if cell.is_empty() { td {} } @else { th class=(class(at)) scope="col" { (visible(cell)) } }
            } } }
            tbody { @for row in &of.rows {
                tr { @for (at, cell) in row.iter().enumerate() {
                    td class=(class(at)) { (visible(cell)) }
                } }
            } }
        } }
    }
}

/// Sends a plot as a picture.
pub(crate) async fn plot(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let wanted = visit.query.text("n").unwrap_or_default().to_owned();
    let svg = work(move || {
        let report = read(&app, &target.image, MAX_SHOWN)?;
        let found = plot::plots(&report)
            .into_iter()
            .find(|plot| plot.name == wanted);
        let found = found.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, text::MISSING))?;
        Ok(found.svg_file())
    })
    .await?;
    let mut response = Response::new(svg.into());
    response.extensions_mut().insert(memory);
    set(&mut response, header::CONTENT_TYPE, "image/svg+xml");
    let policy = format!("{CONTENT_POLICY}{PLOT_POLICY}");
    set(&mut response, header::CONTENT_SECURITY_POLICY, &policy);
    Ok(response)
}
