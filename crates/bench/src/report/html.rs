//! A single page with all results: it works offline, has no script except for a button, follows
//! light and dark mode, and can be printed.

use bandsaw::Result;
use bandsaw::ops::report::html::escape;

use super::Report;
use super::plot::{Plot, plots};
use super::table::{self, Table};
use crate::reference::references;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("theme.js");
/// Content security policy: no data in the results can load anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Formats the page. It contains the results as JSON, in an element with the id `data`.
pub fn html(report: &Report) -> Result<String> {
    let mut body = vec![facts(&table::facts(report))];
    body.extend(plots(report).iter().map(|plot| figure(2, plot)));
    body.extend(table::tables(report).iter().map(|of| table(2, of)));
    if report.series.iter().any(|series| series.image.is_some()) {
        body.push(heading(2, "Published figures"));
        let articles = references().articles.values().map(|article| {
            let from = format!("{}, {}", article.author, article.date);
            (from, format!("{}: {}", article.about, article.system))
        });
        body.push(facts(&articles.collect::<Vec<_>>()));
    }
    let title = format!("bandsaw bench {}", report.benchmark);
    Ok(page(&title, &body, Some(&report.to_json()?)))
}

/// Formats names and values.
pub(crate) fn facts(facts: &[(impl AsRef<str>, String)]) -> String {
    let facts = facts.iter().map(|(name, value)| {
        format!(
            "<dt>{}</dt><dd>{}</dd>",
            escape(name.as_ref()),
            escape(value)
        )
    });
    format!("<dl>\n{}\n</dl>", facts.collect::<Vec<_>>().join("\n"))
}

/// Formats a plot below a heading of this level.
pub(crate) fn figure(level: u8, plot: &Plot) -> String {
    let (title, about) = (escape(&plot.title), escape(&plot.about));
    format!(
        "{}\n<figure><div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">{}</div>\
         <figcaption>{about}</figcaption></figure>",
        heading(level, &plot.title),
        plot.inline()
    )
}

/// Formats a table below a heading of this level.
pub(crate) fn table(level: u8, table: &Table) -> String {
    let rows = table.rows.iter().map(|cells| row("td", cells));
    format!(
        "{}\n<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table>\n{}\n{}\n</table></div>",
        heading(level, &table.title),
        escape(&table.title),
        row("th", &table.heading),
        rows.collect::<Vec<_>>().join("\n")
    )
}

/// Formats a heading of this level.
pub(crate) fn heading(level: u8, text: &str) -> String {
    format!("<h{level}>{}</h{level}>", escape(text))
}

/// Formats a paragraph.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>", escape(text))
}

/// Formats a list.
pub(crate) fn list(items: &[String]) -> String {
    let items = items
        .iter()
        .map(|item| format!("<li>{}</li>", escape(item)));
    format!("<ul>\n{}\n</ul>", items.collect::<Vec<_>>().join("\n"))
}

/// Formats a whole page with a title and, in an element with the id `data`, JSON.
pub(crate) fn page(title: &str, body: &[String], json: Option<&str>) -> String {
    let title = escape(title);
    let body = body.join("\n");
    // Escaped, `<` cannot end the element.
    let json = json.map_or_else(String::new, |json| {
        let json = json.replace('<', "\\u003c");
        format!("<script type=\"application/json\" id=\"data\">{json}</script>\n")
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><h1>{title}</h1><button id=\"theme\" type=\"button\">Light or dark</button></header>\n\
         {body}\n</main>\n{json}<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn row(tag: &str, cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
        .collect();
    format!("<tr>{cells}</tr>")
}
