//! The log of the changes that visitors make: who, when, what, the result, and how it is undone.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

use bandsaw::fs::Timestamp;
use bandsaw::sync::Mutex;

use crate::names::visible;
use crate::options::LogSink;

/// Changes that the page of the log shows.
const MAX_ENTRIES: usize = 500;
/// Maximum length of a text of the log in characters.
const MAX_TEXT: usize = 500;

/// The log of a server. Lines go to its sink at once; the page shows the last of them.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    table: Mutex<LogTable>,
    sink: Option<LogSink>,
}

#[derive(Debug, Default)]
struct LogTable {
    entries: VecDeque<LogEntry>,
    count: u64,
}

/// A change.
#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    number: u64,
    pub(crate) begin: Timestamp,
    pub(crate) visitor: Visitor,
    /// The change, and the image or folder.
    pub(crate) what: String,
    pub(crate) place: String,
    /// `None` as long as it has not ended.
    pub(crate) end: Option<ChangeEnd>,
}

/// The end of a change.
#[derive(Debug, Clone)]
pub(crate) struct ChangeEnd {
    pub(crate) time: Timestamp,
    pub(crate) is_success: bool,
    pub(crate) result: String,
    /// The way to undo it; empty if nothing was changed.
    pub(crate) undo: String,
}

/// A visitor as the log names one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visitor {
    pub(crate) session: u64,
    /// `None` on a Unix socket.
    pub(crate) address: Option<IpAddr>,
}

impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} at ", self.session)?;
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("the socket"),
        }
    }
}

impl ChangeLog {
    /// Creates an empty log, whose lines also go to `sink`.
    pub(crate) fn new(sink: Option<LogSink>) -> Self {
        Self {
            table: Mutex::default(),
            sink,
        }
    }

    /// Writes that a change begins. Returns its number, for its end.
    pub(crate) fn begin(&self, visitor: Visitor, what: &str, place: &str) -> u64 {
        let (what, place, begin) = (short(what), short(place), Timestamp::now_in_seconds());
        self.write(&format!("{begin} {visitor}: {what}: {place}: begins"));
        let mut table = self.table.lock();
        table.count += 1;
        let number = table.count;
        if table.entries.len() >= MAX_ENTRIES {
            table.entries.pop_front();
        }
        table.entries.push_back(LogEntry {
            number,
            begin,
            visitor,
            what,
            place,
            end: None,
        });
        number
    }

    /// Writes how a change ended, and how it is undone.
    pub(crate) fn end(&self, number: u64, is_success: bool, result: &str, undo: &str) {
        let end = ChangeEnd {
            time: Timestamp::now_in_seconds(),
            is_success,
            result: short(result),
            undo: short(undo),
        };
        let mut table = self.table.lock();
        let entry = table
            .entries
            .iter_mut()
            .find(|entry| entry.number == number);
        let Some(entry) = entry else { return };
        let mut line = format!(
            "{} {}: {}: {}: {}: {}",
            end.time,
            entry.visitor,
            entry.what,
            entry.place,
            if is_success { "done" } else { "failed" },
            end.result
        );
        if !end.undo.is_empty() {
            line.push_str("; undo: ");
            line.push_str(&end.undo);
        }
        entry.end = Some(end);
        drop(table);
        self.write(&line);
    }

    /// Returns the last changes, the newest first.
    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        self.table.lock().entries.iter().rev().cloned().collect()
    }

    fn write(&self, line: &str) {
        if let Some(LogSink(sink)) = &self.sink {
            sink(line);
        }
    }
}

/// Returns text of one line, cut to its longest length.
fn short(text: &str) -> String {
    let shown = visible(text);
    match shown.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", shown.get(..at).unwrap_or_default()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_change_has_two_lines_and_the_page_is_bounded() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let sink = LogSink(Arc::new(move |line: &str| {
            kept.lock().push(line.to_owned());
        }));
        let log = ChangeLog::new(Some(sink));
        let visitor = Visitor {
            session: 7,
            address: None,
        };
        let number = log.begin(visitor, "compact", "/a\nb");
        log.end(number, true, "1 MiB freed", "none is needed");
        let written = lines.lock().clone();
        assert_eq!(written.len(), 2);
        assert!(written[0].ends_with(" session 7 at the socket: compact: /a\\u{a}b: begins"));
        assert!(
            written[1].ends_with(": compact: /a\\u{a}b: done: 1 MiB freed; undo: none is needed")
        );
        for _ in 0..2 * MAX_ENTRIES {
            log.begin(visitor, &"x".repeat(10_000), "y");
        }
        let entries = log.entries();
        assert_eq!(entries.len(), MAX_ENTRIES);
        assert!(entries[0].what.chars().count() <= MAX_TEXT + 1);
        // The entry of this change has gone.
        log.end(number, true, "", "");
    }
}
