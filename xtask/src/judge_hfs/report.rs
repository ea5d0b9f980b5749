//! The tables of results, by kind of damage.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use super::case::{Case, Repair};
use super::volumes::{LossKind, Preserved};
use bandsaw::sync::Mutex;

/// Columns of a table with their counts.
type Columns = Vec<(&'static str, usize)>;

/// Counts of one kind of damage.
#[derive(Debug, Clone, Default)]
struct Row {
    verdicts: Columns,
    contents: Columns,
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
        let tables: [fn(&Row) -> &Columns; 2] = [|row| &row.verdicts, |row| &row.contents];
        for table in tables {
            let Some(first) = self.rows.values().next().map(table) else {
                return;
            };
            let names: Vec<_> = first.iter().map(|(name, _)| *name).collect();
            println!("| damage | {} |", names.join(" | "));
            println!("|{}", " --- |".repeat(names.len() + 1));
            for (kind, row) in &self.rows {
                let counts = table(row).iter().map(|(_, count)| count.to_string());
                let counts: Vec<_> = counts.collect();
                println!(
                    "| {} | {} |",
                    kind.trim_start_matches('~'),
                    counts.join(" | ")
                );
            }
            println!();
        }
    }
}

impl Row {
    fn add(&mut self, case: &Case, all: Preserved) {
        let flags = case.flags();
        let is = |flag: &str| flags.contains(&flag);
        let repaired = |repair: &Repair| case.is_rejected && repair.is_done() && repair.is_accepted;
        let best = case.best();
        let verdicts = [
            ("cases", true),
            ("they reject", case.is_rejected),
            ("missed", is("MISSED")),
            ("we call damaged, they accept", is("STRICT")),
            ("we warn, they accept", is("WARNED")),
            ("repaired by exit 0", repaired(&case.repair)),
            (
                "repaired with --accept-loss in addition",
                case.accepting.as_ref().is_some_and(repaired),
            ),
            (
                "of these nothing missing",
                case.is_rejected && is("NEEDLESS"),
            ),
            (
                "repaired by them",
                case.is_rejected && case.theirs.is_accepted,
            ),
            ("repaired only by them", is("ONLYTHEIRS")),
            ("undecided with --accept-loss too", best.is_undecided()),
            ("left damaged", !best.is_undecided() && !best.is_done()),
            ("rejected after exit 0", is("REJECTED")),
            ("check not 0 after exit 0", is("NOTCLEAN")),
            ("made worse", is("WORSE")),
            ("undo not exact", is("UNDO")),
            ("dry run differs", is("DRYRUN")),
            ("crashes", is("CRASH")),
            ("fewer files than theirs, both repaired", is("FEWER")),
        ];
        let verdicts = verdicts.map(|(name, is_so)| (name, usize::from(is_so)));
        add(&mut self.verdicts, &verdicts);
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
            ("files", all.at_path),
            ("right at the path: damaged", case.before.at_path),
            ("repaired", case.repair.kept.at_path),
            ("with --accept-loss", best.kept.at_path),
            ("by them", case.theirs.kept.at_path),
            ("contents anywhere: ours", best.kept.anywhere),
            ("theirs", case.theirs.kept.anywhere),
            ("attributes", all.attributes),
            ("ours", best.kept.attributes),
            ("theirs", case.theirs.kept.attributes),
            (
                "exit 0 or 10 though contents are missing: cases",
                usize::from(is("GONE")),
            ),
            (
                "of these without a possible loss",
                usize::from(is("SILENT")),
            ),
            ("files vanished", silent(LossKind::Vanished)),
            ("emptied", silent(LossKind::Emptied)),
            ("cut", silent(LossKind::Cut)),
            ("resource fork", silent(LossKind::Resource)),
            ("attribute", silent(LossKind::Attribute)),
            (
                "exit 0 or 10: files with other contents",
                silent(LossKind::Other),
            ),
            ("unreadable", silent(LossKind::Unreadable)),
            ("attribute with another value", silent(LossKind::OtherValue)),
            (
                "check 0 though contents are missing: cases",
                usize::from(is("UNSEEN")),
            ),
            (
                "gone with --accept-loss: files",
                accepting.map_or(0, |repair| {
                    repair
                        .gone
                        .iter()
                        .filter(|gone| gone.kind.is_missing())
                        .count()
                }),
            ),
            (
                "of these counted in their folder, not named",
                accepting.map_or(0, |repair| repair.counted.len()),
            ),
            (
                "neither named nor counted",
                accepting.map_or(0, |repair| repair.unnamed.len()),
            ),
        ];
        add(&mut self.contents, &contents);
    }
}

fn add(sums: &mut Columns, counts: &[(&'static str, usize)]) {
    sums.resize(counts.len(), ("", 0));
    for (sum, &(name, count)) in sums.iter_mut().zip(counts) {
        *sum = (name, sum.1 + count);
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
