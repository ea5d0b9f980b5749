//! The differences as an HTML page, without scripts and external resources.

use std::fmt::Write;

use bandsaw::error::is_deceptive;

use super::{Comparison, Difference, DifferenceKind};

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8884;vertical-align:top;overflow-wrap:anywhere}\
td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}code{font-size:.92em}";

/// The texts at the top of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageTitle<'a> {
    /// Address of the first folder.
    pub old: &'a str,
    /// Address of the second folder.
    pub new: &'a str,
}

/// Returns the page.
pub fn html(title: PageTitle<'_>, of: &Comparison) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Differences</title>\n<style>{STYLE}</style>\n<h1>Differences</h1>\n\
         <p>from <code>{}</code><br>to <code>{}</code></p>\n<p>{} objects compared</p>\n",
        escaped(title.old),
        escaped(title.new),
        of.compared
    );
    if !of.problems.is_empty() {
        let _ = writeln!(page, "<h2>Not compared ({})</h2>\n<ul>", of.problems.len());
        for problem in &of.problems {
            let _ = writeln!(page, "<li>{}", escaped(&problem.to_string()));
        }
        page.push_str("</ul>\n");
    }
    for (kind, heading) in [
        (DifferenceKind::Changed, "Changed"),
        (DifferenceKind::Renamed, "Renamed"),
        (DifferenceKind::Added, "Added"),
        (DifferenceKind::Removed, "Removed"),
    ] {
        let all = of.differences.iter().filter(|one| one.kind == kind);
        let count = all.clone().count();
        if count == 0 {
            continue;
        }
        let _ = writeln!(
            page,
            "<h2>{heading} ({count})</h2>\n<table>\n<tr><th>Path<th>Differs<th>Bytes before<th>Bytes after"
        );
        for one in all {
            row(&mut page, one);
        }
        page.push_str("</table>\n");
    }
    if of.differences.is_empty() && of.problems.is_empty() {
        page.push_str("<p>No differences.</p>\n");
    }
    page
}

fn row(page: &mut String, of: &Difference) {
    let _ = write!(page, "<tr><td>{}", escaped(&of.path));
    if let Some(old) = &of.old_path {
        let _ = write!(page, "<br>from {}", escaped(old));
    }
    if let Some(evidence) = of.evidence {
        let _ = write!(page, " (same {})", evidence.name().replace('_', " "));
    }
    let names: Vec<_> = of.fields.iter().map(|field| field.name()).collect();
    let size = |size: Option<u64>| size.map_or_else(String::new, |size| size.to_string());
    let _ = writeln!(
        page,
        "<td>{}<td class=\"n\">{}<td class=\"n\">{}",
        names.join(", ").replace('_', " "),
        size(of.old_size),
        size(of.new_size)
    );
}

/// Returns text for HTML. Deceptive characters are written as numbers.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            c if is_deceptive(c) => {
                let _ = write!(result, "\\u{{{:x}}}", u32::from(c));
            }
            c => result.push(c),
        }
    }
    result
}
