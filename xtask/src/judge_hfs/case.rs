//! One damaged volume: the verdicts and repairs of both programs, and the contents afterwards.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::Result;
use bandsaw::testing::Random;
use serde_json::Value;

use super::JudgeArgs;
use super::damage::Kind;
use super::places::Places;
use super::programs::{Ran, bandsaw, repaired_by_other, verdict};
use super::volumes::{Contents, Gone, LossKind, Preserved, Sample};

/// The exit code of `check` and `repair` for damage, and of `check` for warnings.
const DAMAGE: i32 = 5;
const WARNINGS: i32 = 8;
/// The exit codes of `repair`: nothing to do; stopped for a decision or a loss.
const NOTHING: i32 = 10;
const UNDECIDED: i32 = 9;

/// A case and the results of both programs.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    /// The name of the only kind of damage, or `several`.
    pub(super) kind: String,
    pub(super) damage: String,
    pub(super) about: String,
    /// True if the other checker rejects the damaged volume.
    pub(super) is_rejected: bool,
    pub(super) check: Ran,
    /// Contents that the damaged volume holds, and no longer holds.
    pub(super) before: Preserved,
    pub(super) gone_before: Vec<Gone>,
    pub(super) repair: Repair,
    /// The repair with `--accept-loss`, if the other one stopped.
    pub(super) accepting: Option<Repair>,
    pub(super) theirs: Theirs,
}

/// The result of `bandsaw repair`.
#[derive(Debug, Clone, Default)]
pub(super) struct Repair {
    pub(super) ran: Ran,
    pub(super) is_changed: bool,
    /// True if the other checker accepts the result.
    pub(super) is_accepted: bool,
    /// The exit code of `check` afterwards.
    pub(super) check: Option<i32>,
    pub(super) kept: Preserved,
    pub(super) gone: Vec<Gone>,
    /// The paths of what is missing and counted in the output, but not named: no record or thread
    /// has the name.
    pub(super) counted: Vec<String>,
    /// The paths of what is missing and neither named nor counted in the output.
    pub(super) unnamed: Vec<String>,
    /// True if contents are missing that neither a loss nor a possible one tells of.
    pub(super) is_silent: bool,
    pub(super) is_undone: bool,
    pub(super) is_predicted: bool,
    pub(super) bytes: Vec<u8>,
    /// The messages of the other checker about the result.
    report: String,
}

/// The result of the other program's repair.
#[derive(Debug)]
pub(super) struct Theirs {
    pub(super) ran: Ran,
    pub(super) is_accepted: bool,
    pub(super) kept: Preserved,
    pub(super) bytes: Vec<u8>,
}

/// Makes and judges the case of `seed`; `None` if it damages nothing. Returns the damaged volume as
/// well.
pub(super) fn judge(
    args: &JudgeArgs,
    sample: &Sample,
    places: &Places,
    seed: u64,
) -> Result<Option<(Case, Vec<u8>)>> {
    let mut random = Random::new(seed ^ 0x4846_532B);
    let mut bytes = sample.bytes.clone();
    let damages = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3][random.within(0..10) as usize];
    let (mut kinds, mut done) = (Vec::new(), Vec::new());
    for _ in 0..damages {
        let kind = Kind::random(&mut random);
        let kind = args.only.unwrap_or(kind);
        if let Some(what) = kind.damage(sample, places, &mut bytes, &mut random) {
            kinds.push(kind);
            done.push(what);
        }
    }
    if bytes == sample.bytes {
        return Ok(None);
    }
    let older = kinds
        .iter()
        .any(|kind| kind.is_stale())
        .then_some(&sample.older_holds);
    let name = format!("{seed}");
    let theirs = verdict(args, &bytes, &name)?;
    let image = args.scratch.join(format!("{name}.img"));
    fs::write(&image, &bytes)?;
    let check = bandsaw(args, &["check"], &image)?.0;
    let damaged = contents(&bytes);
    let judged = Judged {
        args,
        sample,
        older,
        bytes: &bytes,
        damaged: &damaged,
        verdict: &theirs,
        name: &name,
    };
    let repair = judged.repair(&[])?;
    let accepting = (repair.ran.exit == Some(UNDECIDED))
        .then(|| judged.repair(&["--accept-loss"]))
        .transpose()?;
    let (ran, fixed) = repaired_by_other(args, &bytes, &name)?;
    let after = if fixed == bytes {
        theirs.clone()
    } else {
        verdict(args, &fixed, &name)?
    };
    fs::remove_file(&image)?;
    let kind = match &kinds[..] {
        [kind] => format!("{kind:?}"),
        _ => "several".to_owned(),
    };
    let case = Case {
        seed,
        kind,
        damage: done.join("; "),
        about: sample.about.clone(),
        is_rejected: theirs.exit != Some(0),
        check,
        before: sample.holds.kept(&damaged),
        gone_before: sample.holds.gone(&damaged, older),
        repair,
        accepting,
        theirs: Theirs {
            ran: Ran {
                text: format!("{}--- their repair\n{}", theirs.text, ran.text),
                ..ran
            },
            is_accepted: after.exit == Some(0),
            kept: sample.holds.kept(&contents(&fixed)),
            bytes: fixed,
        },
    };
    Ok(Some((case, bytes)))
}

/// Reads a volume. A reader that panics has read nothing.
fn contents(bytes: &[u8]) -> Contents {
    catch_unwind(AssertUnwindSafe(|| Contents::of(bytes))).unwrap_or_default()
}

/// A damaged volume to repair.
struct Judged<'a> {
    args: &'a JudgeArgs,
    sample: &'a Sample,
    /// The older state that is as good an answer, if the damage comes from it.
    older: Option<&'a Contents>,
    bytes: &'a [u8],
    damaged: &'a Contents,
    verdict: &'a Ran,
    name: &'a str,
}

impl Judged<'_> {
    /// Repairs the volume: a dry run, the repair, a check, and the undo.
    fn repair(&self, options: &[&str]) -> Result<Repair> {
        let image = self.args.scratch.join(format!("{}.img", self.name));
        let undo = self.args.scratch.join(format!("{}.img.undo", self.name));
        fs::write(&image, self.bytes)?;
        let run =
            |words: &[&str]| bandsaw(self.args, &[&["repair"], options, words].concat(), &image);
        let (dry, foretold) = run(&["--dry-run"])?;
        let is_untouched = fs::read(&image)? == self.bytes && !undo.exists();
        let (ran, facts) = run(&[])?;
        let bytes = fs::read(&image)?;
        let is_changed = bytes != self.bytes;
        let is_predicted =
            is_untouched && dry.exit == ran.exit && comparable(&foretold) == comparable(&facts);
        let (mut check, mut is_undone) = (None, true);
        let mut verdict_after = self.verdict.clone();
        if is_changed {
            check = bandsaw(self.args, &["check"], &image)?.0.exit;
            verdict_after = verdict(self.args, &bytes, self.name)?;
            let (undone, _) = bandsaw(self.args, &["repair", "--undo"], &image)?;
            is_undone = undone.exit == Some(0) && fs::read(&image)? == self.bytes && !undo.exists();
        }
        if undo.exists() {
            fs::remove_dir_all(&undo)?;
        }
        let now = if is_changed {
            &contents(&bytes)
        } else {
            self.damaged
        };
        let gone = self.sample.holds.gone(now, self.older);
        let losses = ListedLosses::new(&facts["losses"]);
        let possible = ListedLosses::new(&facts["possible_losses"]);
        let (mut counted, mut unnamed) = (Vec::new(), Vec::new());
        for gone in gone.iter().filter(|gone| gone.kind.is_missing()) {
            if losses.has_name(&gone.path, &self.sample.holds) {
                continue;
            }
            if losses.has_count(gone, now) {
                counted.push(gone.path.clone());
            } else {
                unnamed.push(gone.path.clone());
            }
        }
        let is_told = |path: &String| {
            possible.has_name(path, &self.sample.holds)
                || possible.all.iter().any(|(kind, ..)| kind == "unowned")
        };
        Ok(Repair {
            is_silent: counted.iter().chain(&unnamed).any(|path| !is_told(path)),
            is_changed,
            is_accepted: verdict_after.exit == Some(0),
            check,
            kept: self.sample.holds.kept(now),
            counted,
            unnamed,
            gone,
            is_undone,
            is_predicted,
            report: if verdict_after.exit == Some(0) {
                String::new()
            } else {
                verdict_after.text
            },
            bytes,
            ran,
        })
    }
}

/// Returns what a dry run and a repair must have in common, which is all but the places of the undo
/// data.
fn comparable(facts: &Value) -> Value {
    let mut facts = facts.clone();
    if let Some(facts) = facts.as_object_mut() {
        for different in ["dry_run", "undo_path", "losses_path"] {
            facts.remove(different);
        }
    }
    facts
}

/// The losses that a repair lists.
struct ListedLosses {
    /// Kind, path and message of each.
    all: Vec<(String, String, String)>,
}

impl ListedLosses {
    fn new(list: &Value) -> Self {
        let text = |loss: &Value, field: &str| loss[field].as_str().unwrap_or_default().to_owned();
        let all = list.as_array().map_or(&[][..], Vec::as_slice);
        Self {
            all: all
                .iter()
                .map(|loss| {
                    (
                        text(loss, "loss"),
                        text(loss, "volume_path"),
                        text(loss, "message"),
                    )
                })
                .collect(),
        }
    }

    /// Returns true if one has `path`, or its last name in a folder that the `sound` volume does not
    /// have: one of which only the number is known.
    fn has_name(&self, path: &str, sound: &Contents) -> bool {
        self.all.iter().any(|(_, of, _)| {
            let is_same = || of.rsplit('/').next() == path.rsplit('/').next();
            let folder = of.rsplit_once('/').map_or("", |(folder, _)| folder);
            of == path || !folder.is_empty() && !sound.folders.contains(folder) && is_same()
        })
    }

    /// Returns true if something that is not named may be this: an entry of a folder above, in which
    /// nothing has the name that is missing `now`, or an attribute.
    fn has_count(&self, gone: &Gone, now: &Contents) -> bool {
        self.all.iter().any(|(kind, of, message)| {
            if kind == "attributes" && of == "/" {
                return gone.kind == LossKind::Attribute && message.contains("cannot be read");
            }
            let folder = of.trim_end_matches('/');
            let Some(rest) = gone.path.strip_prefix(folder) else {
                return false;
            };
            let Some(rest) = rest.strip_prefix('/') else {
                return false;
            };
            let entry = format!("{folder}/{}", rest.split('/').next().unwrap_or(rest));
            kind == "entries" && !now.folders.contains(&entry) && !now.files.contains_key(&entry)
        })
    }
}

impl Repair {
    /// Returns true if it says that nothing is wrong any more.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.ran.exit, Some(0 | NOTHING))
    }

    /// Returns true if it stopped for a decision.
    pub(super) fn is_undecided(&self) -> bool {
        self.ran.exit == Some(UNDECIDED)
    }
}

impl Case {
    /// Returns the repair that keeps most: with `--accept-loss` if the other one stopped.
    pub(super) fn best(&self) -> &Repair {
        self.accepting.as_ref().unwrap_or(&self.repair)
    }

    fn repairs(&self) -> impl Iterator<Item = &Repair> {
        [&self.repair].into_iter().chain(&self.accepting)
    }

    /// Returns the disagreements and failures.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut flags = Vec::new();
        let mut add = |wrong: bool, flag| {
            if wrong {
                flags.push(flag);
            }
        };
        let any = |wrong: &dyn Fn(&Repair) -> bool| self.repairs().any(wrong);
        let best = self.best();
        let both_repaired = self.theirs.is_accepted && best.is_done() && best.is_accepted;
        add(
            self.check.crashed() || any(&|repair| repair.ran.crashed()),
            "CRASH",
        );
        add(self.is_rejected && self.check.exit == Some(0), "MISSED");
        add(
            !self.is_rejected && self.check.exit == Some(DAMAGE),
            "STRICT",
        );
        add(
            !self.is_rejected && self.check.exit == Some(WARNINGS),
            "WARNED",
        );
        add(
            any(&|repair| repair.ran.exit == Some(0) && !repair.is_accepted),
            "REJECTED",
        );
        add(
            any(&|repair| repair.ran.exit == Some(0) && repair.check != Some(0)),
            "NOTCLEAN",
        );
        add(
            any(&|repair| {
                repair.is_changed && !self.is_rejected && !repair.is_accepted
                    || repair.ran.exit != Some(UNDECIDED)
                        && repair.kept.at_path < self.before.at_path
                        && repair.kept.anywhere < self.before.anywhere
            }),
            "WORSE",
        );
        let is_missing = |gone: &[Gone]| gone.iter().any(|gone| gone.kind.is_missing());
        add(
            self.repair.is_done() && is_missing(&self.repair.gone),
            "GONE",
        );
        add(self.repair.is_done() && self.repair.is_silent, "SILENT");
        add(
            self.accepting.as_ref().is_some_and(|repair| {
                repair.is_done() && repair.is_accepted && !is_missing(&repair.gone)
            }),
            "NEEDLESS",
        );
        // Differences that no checksum covers; the log names them.
        add(
            self.repair.is_done() && self.repair.gone.iter().any(|gone| !gone.kind.is_missing()),
            "DIFFERENT",
        );
        add(
            self.check.exit == Some(0) && is_missing(&self.gone_before),
            "UNSEEN",
        );
        add(
            self.accepting
                .as_ref()
                .is_some_and(|repair| repair.is_changed && !repair.unnamed.is_empty()),
            "UNNAMED",
        );
        add(any(&|repair| !repair.is_undone), "UNDO");
        add(any(&|repair| !repair.is_predicted), "DRYRUN");
        add(
            self.is_rejected && self.theirs.is_accepted && !(best.is_done() && best.is_accepted),
            "ONLYTHEIRS",
        );
        add(
            both_repaired && best.kept.at_path < self.theirs.kept.at_path,
            "FEWER",
        );
        flags
    }

    /// Returns everything that was said about it.
    pub(super) fn report(&self) -> String {
        let mut text = format!("--- theirs\n{}", self.theirs.ran.text);
        text += &format!("--- our check: {}", self.check.text);
        for repair in self.repairs() {
            text += &format!(
                "--- our repair: {}gone: {:?}\n{}",
                repair.ran.text, repair.gone, repair.report
            );
        }
        text
    }
}
