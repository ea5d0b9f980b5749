//! The tables of results, by kind of damage.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use super::case::{Case, Repair};
use super::volumes::{LossKind, Preserved};
use bandsaw::sync::Mutex;

/// The columns of verdicts.
const VERDICTS: [&str; 19] = [
    "cases",
    "they reject",
    "missed",
    "we call damaged, they accept",
    "we warn, they accept",
    "repaired by exit 0",
    "repaired with --accept-loss in addition",
    "of these nothing missing",
    "repaired by them",
    "repaired only by them",
    "undecided with --accept-loss too",
    "left damaged",
    "rejected after exit 0",
    "check not 0 after exit 0",
    "made worse",
    "undo not exact",
    "dry run differs",
    "crashes",
    "fewer files than theirs, both repaired",
];

/// The columns of contents.
const CONTENTS: [&str; 23] = [
    "files",
    "right at the path: damaged",
    "repaired",
    "with --accept-loss",
    "by them",
    "contents anywhere: ours",
    "theirs",
    "attributes",
    "ours",
    "theirs",
    "exit 0 or 10 though contents are missing: cases",
    "files vanished",
    "emptied",
    "cut",
    "resource fork",
    "attribute",
    "exit 0 or 10: files with other contents",
    "unreadable",
    "attribute with another value",
    "check 0 though contents are missing: cases",
    "gone with --accept-loss: files",
    "of these counted in their folder, not named",
    "neither named nor counted",
];

/// Counts of one kind of damage.
#[derive(Debug, Clone, Default)]
struct Row {
    verdicts: [usize; VERDICTS.len()],
    contents: [usize; CONTENTS.len()],
}

/// The counts of all kinds.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: BTreeMap<String, Row>,
}

impl Report {
    pub(super) fn add(&mut self, case: &Case, all: Preserved) {
        for name in [case.kind.as_str(), "~all"] {
            self.rows.entry(name.to_owned()).or_default().add(case, all);
        }
    }

    pub(super) fn print(&self) {
        let print = |columns: &[&str], values: &dyn Fn(&Row) -> Vec<usize>| {
            println!("| damage | {} |", columns.join(" | "));
            println!("|{}", " --- |".repeat(columns.len() + 1));
            for (name, row) in &self.rows {
                let values: Vec<_> = values(row).iter().map(ToString::to_string).collect();
                println!(
                    "| {} | {} |",
                    name.trim_start_matches('~'),
                    values.join(" | ")
                );
            }
            println!();
        };
        print(&VERDICTS, &|row| row.verdicts.to_vec());
        print(&CONTENTS, &|row| row.contents.to_vec());
    }
}

impl Row {
    fn add(&mut self, case: &Case, all: Preserved) {
        let flags = case.flags();
        let is = |flag: &str| flags.contains(&flag);
        let repaired = |repair: &Repair| case.is_rejected && repair.is_done() && repair.is_accepted;
        let best = case.best();
        let verdicts = [
            true,
            case.is_rejected,
            is("MISSED"),
            is("STRICT"),
            is("WARNED"),
            repaired(&case.repair),
            case.accepting.as_ref().is_some_and(repaired),
            case.is_rejected && is("NEEDLESS"),
            case.is_rejected && case.theirs.is_accepted,
            is("ONLYTHEIRS"),
            best.is_undecided(),
            !best.is_undecided() && !best.is_done(),
            is("REJECTED"),
            is("NOTCLEAN"),
            is("WORSE"),
            is("UNDO"),
            is("DRYRUN"),
            is("CRASH"),
            is("FEWER"),
        ];
        for (sum, value) in self.verdicts.iter_mut().zip(verdicts) {
            *sum += usize::from(value);
        }
        let silent = |kind: LossKind| {
            if !case.repair.is_done() {
                return 0;
            }
            case.repair
                .gone
                .iter()
                .filter(|gone| gone.kind == kind)
                .count()
        };
        let accepting = case.accepting.as_ref().filter(|repair| repair.is_changed);
        let contents = [
            all.at_path,
            case.before.at_path,
            case.repair.kept.at_path,
            best.kept.at_path,
            case.theirs.kept.at_path,
            best.kept.anywhere,
            case.theirs.kept.anywhere,
            all.attributes,
            best.kept.attributes,
            case.theirs.kept.attributes,
            usize::from(is("GONE")),
            silent(LossKind::Vanished),
            silent(LossKind::Emptied),
            silent(LossKind::Cut),
            silent(LossKind::Resource),
            silent(LossKind::Attribute),
            silent(LossKind::Other),
            silent(LossKind::Unreadable),
            silent(LossKind::OtherValue),
            usize::from(is("UNSEEN")),
            accepting.map_or(0, |repair| {
                repair
                    .gone
                    .iter()
                    .filter(|gone| gone.kind.is_missing())
                    .count()
            }),
            accepting.map_or(0, |repair| repair.counted.len()),
            accepting.map_or(0, |repair| repair.unnamed.len()),
        ];
        for (sum, value) in self.contents.iter_mut().zip(contents) {
            *sum += value;
        }
    }
}

/// Writes a line for the case to the log, and everything that was said if something is wrong.
pub(super) fn log(case: &Case, log: &Mutex<File>) {
    let mut log = log.lock();
    let flags = case.flags();
    let exit = |repair: &Repair| {
        repair
            .ran
            .exit
            .map_or("signal".into(), |exit| exit.to_string())
    };
    let _ = writeln!(
        log,
        "CASE {} {} [{}] rejects={} check={:?} repair={} accepting={} theirs={} kept={}/{}/{}/{} | {} | {}",
        case.seed,
        case.kind,
        flags.join(","),
        case.is_rejected,
        case.check.exit,
        exit(&case.repair),
        case.accepting.as_ref().map_or("-".into(), exit),
        case.theirs.is_accepted,
        case.before.at_path,
        case.repair.kept.at_path,
        case.best().kept.at_path,
        case.theirs.kept.at_path,
        case.damage,
        case.about
    );
    if !flags.is_empty() {
        let _ = writeln!(log, "{}", case.report());
    }
}
