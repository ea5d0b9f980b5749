//! The numbers of `docs/unconfirmed.md`: of each section that it links to, and of all.

use super::links::{anchor, links, resolve};
use super::{Fault, Text};

const PAGE: &str = "docs/unconfirmed.md";

/// Checks that each row has the number of points of the sections that it links to, that the text
/// states their sum, and that no page with such a section is left out.
pub(super) fn check(files: &[Text]) -> Vec<Fault> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    let (mut sum, mut linked) = (0, Vec::new());
    for (number, line) in (1..).zip(page.text.lines()) {
        let Some(stated) = line
            .split('|')
            .nth(2)
            .and_then(|cell| cell.trim().parse::<usize>().ok())
        else {
            continue;
        };
        let mut found = 0;
        for (_, target) in links(line) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = resolve(PAGE, path);
            if let Some(other) = files.iter().find(|other| other.path == path) {
                found += points(&other.text, heading);
            }
            linked.push(path);
        }
        if found != stated {
            faults.push(page.fault(number, format!("{stated} points, but {found} are listed")));
        }
        sum += found;
    }
    let states = format!("{sum} points are open");
    if !page.text.contains(&states) {
        faults.push(page.fault(1, format!("does not state that {states}")));
    }
    for file in files {
        let is_page = file.path.starts_with("docs/formats/") && file.path.ends_with(".md");
        if is_page && has_section(&file.text) && !linked.contains(&file.path) {
            faults.push(page.fault(1, format!("does not link to {}", file.path)));
        }
    }
    faults
}

/// Returns the number of points below a heading: rows of tables and items of lists.
fn points(text: &str, heading: &str) -> usize {
    let (mut inside, mut count, mut rows) = (false, 0, 0);
    for line in text.lines() {
        if line.starts_with('#') {
            inside = anchor(line) == heading;
        }
        // The first two lines of a table are its head.
        rows = if line.starts_with('|') { rows + 1 } else { 0 };
        count += usize::from(inside && (rows > 2 || line.starts_with("* ")));
    }
    count
}

fn has_section(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with('#') && anchor(line).contains("not-confirmed-on-a-mac"))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    fn faults(page: &str, format: &str) -> Vec<String> {
        check(&[text(PAGE, page), text("docs/formats/a.md", format)])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn numbers_are_counted() {
        let format = "# A\n* no\n## 3. Not confirmed on a Mac\n\n| a | b |\n| --- | --- |\n| 1 | x |\n| 2 | y |\n\n* 3\n  more\n## B\n* no\n";
        let row =
            |number| format!("| [a](formats/a.md#3-not-confirmed-on-a-mac) | {number} | x |\n");
        let right = format!("{}3 points are open.\n", row(3));
        assert_eq!(faults(&right, format), [""; 0]);
        assert_eq!(
            faults(&format!("{}3 points are open.\n", row(4)), format),
            ["docs/unconfirmed.md:1: 4 points, but 3 are listed"]
        );
        assert_eq!(
            faults(&row(3), format),
            ["docs/unconfirmed.md:1: does not state that 3 points are open"]
        );
        assert_eq!(
            faults("0 points are open", format),
            ["docs/unconfirmed.md:1: does not link to docs/formats/a.md"]
        );
    }
}
