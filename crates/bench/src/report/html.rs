//! A single page with all results: it works offline, has no script except for a button, follows
//! light and dark mode, and can be printed.

use bandsaw::Result;

use super::Report;
use super::chart::escape;
use super::plot::plots;
use super::table::{facts, tables};
use crate::reference::references;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("theme.js");
/// Content security policy: no data in the results can load anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Formats the page. It contains the results as JSON, in an element with the id `data`.
pub fn html(report: &Report) -> Result<String> {
    let title = format!("bandsaw bench {}", report.benchmark);
    let mut page = vec![format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><h1>{title}</h1><button id=\"theme\" type=\"button\">Light or dark</button></header>",
        title = escape(&title)
    )];
    page.push("<dl>".to_owned());
    page.extend(
        facts(report)
            .iter()
            .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value))),
    );
    page.push("</dl>".to_owned());
    for plot in plots(report) {
        let (title, about) = (escape(&plot.title), escape(&plot.about));
        page.push(format!(
            "<h2>{title}</h2>\n<figure><div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">{}</div>\
             <figcaption>{about}</figcaption></figure>",
            plot.inline()
        ));
    }
    for table in tables(report) {
        page.push(format!(
            "<h2>{title}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\"><table>",
            title = escape(&table.title)
        ));
        page.push(row("th", &table.heading));
        page.extend(table.rows.iter().map(|cells| row("td", cells)));
        page.push("</table></div>".to_owned());
    }
    if report.series.iter().any(|series| series.image.is_some()) {
        page.push("<h2>Published figures</h2>\n<dl>".to_owned());
        for article in references().articles.values() {
            let (from, about) = (
                format!("{}, {}", article.author, article.date),
                format!("{}: {}", article.about, article.system),
            );
            page.push(format!(
                "<dt>{}</dt><dd>{}</dd>",
                escape(&from),
                escape(&about)
            ));
        }
        page.push("</dl>".to_owned());
    }
    // Escaped, `<` cannot end the element.
    let json = report.to_json()?.replace('<', "\\u003c");
    page.push(format!(
        "</main>\n<script type=\"application/json\" id=\"data\">{json}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    ));
    Ok(page.join("\n"))
}

fn row(tag: &str, cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
        .collect();
    format!("<tr>{cells}</tr>")
}
