//! Checks and changes of images that run while their visitors look at other pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bandsaw::Result;
use bandsaw::open::{self, Conclusion, LayerVerdict};
use bandsaw::ops::diagnose::{self, Cause};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Progress;
use bandsaw::sync::Mutex;
use tokio::sync::Semaphore;

use crate::change::{Change, ChangeWork};
use crate::health::HealthTable;
use crate::key_ring::ImageKeys;
use crate::names::visible;
use crate::roots::{ImageId, Located};
use crate::token::Token;

/// Jobs of a session that are kept; the oldest finished one goes first.
const PER_SESSION: usize = 4;
/// Jobs of all sessions.
const IN_ALL: usize = 64;

/// The kind of a job.
#[derive(Debug, Clone)]
pub(crate) enum JobKind {
    Check,
    Diagnose,
    /// A dry run of a change.
    Plan(Change),
    Change(Change),
    /// The restore of what is at this path of a volume.
    Restore(String),
}

/// A check or change of an image.
#[derive(Debug)]
pub(crate) struct Job {
    number: String,
    session: u64,
    image: ImageId,
    kind: JobKind,
    stage: Mutex<(String, u64)>,
    done: AtomicU64,
    is_cancelled: AtomicBool,
    result: Mutex<Option<Arc<JobResult>>>,
}

/// The result of a job, in words.
#[derive(Debug, Default)]
pub(crate) struct JobResult {
    /// The verdict.
    pub(crate) conclusion: String,
    /// True if nothing is wrong.
    pub(crate) is_sound: bool,
    /// Layers, each with what became of it.
    pub(crate) layers: Vec<(String, String)>,
    /// Findings by severity.
    pub(crate) findings: Vec<(Severity, String)>,
    /// Number of findings that are not listed.
    pub(crate) omitted: u64,
    pub(crate) advice: Vec<String>,
    /// True if a change was not made.
    pub(crate) is_failure: bool,
    /// Figures, each with its name.
    pub(crate) facts: Vec<(String, String)>,
    /// The steps of a repair.
    pub(crate) steps: Vec<String>,
    /// Files, or parts of files, that a repair does not keep.
    pub(crate) losses: Vec<String>,
    /// Possible remains of an older state that a repair does not keep.
    pub(crate) possible_losses: Vec<String>,
    /// The choices if a repair needs a decision: texts of `--assume`, and the evidence.
    pub(crate) alternatives: Vec<(Vec<String>, String)>,
    /// The change that a dry run has shown.
    pub(crate) next: Option<Change>,
    /// The way to undo a change; empty if there was none.
    pub(crate) undo: String,
}

impl Job {
    pub(crate) fn number(&self) -> &str {
        &self.number
    }

    pub(crate) fn image(&self) -> &ImageId {
        &self.image
    }

    pub(crate) fn kind(&self) -> &JobKind {
        &self.kind
    }

    /// Returns the stage, and the units that are done and in all; 0 if that is not known.
    pub(crate) fn progress(&self) -> (String, u64, u64) {
        let (stage, total) = self.stage.lock().clone();
        (stage, self.done.load(Ordering::Relaxed).min(total), total)
    }

    /// Returns the result once the job has ended.
    pub(crate) fn result(&self) -> Option<Arc<JobResult>> {
        self.result.lock().clone()
    }

    /// Requests the end of the job, which comes at its next safe point.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Runs a check or diagnosis, and keeps its result.
    pub(crate) fn run(&self, located: &Located, keys: Option<&ImageKeys>, health: &HealthTable) {
        let result = match self.kind {
            JobKind::Diagnose => self.diagnose(located, keys),
            _ => self.check(located, keys),
        };
        self.finish(result, |error| located.message(error));
        if let (JobKind::Check, Some(result)) = (&self.kind, self.result()) {
            health.set(&self.image, located, &result);
        }
    }

    /// Runs a change or its dry run, and keeps its result.
    pub(crate) fn run_change(&self, work: &ChangeWork) {
        let result = match &self.kind {
            // It was cancelled while it waited: nothing is to begin.
            _ if self.cancelled() => Err(bandsaw::Error::new(
                bandsaw::Kind::Cancelled,
                crate::LAYER,
                "cancelled",
            )),
            JobKind::Change(change) => {
                let done = work.apply(change, self);
                work.app.health.invalidate(&self.image);
                done
            }
            JobKind::Plan(change) => work.plan(change, self),
            JobKind::Check | JobKind::Diagnose | JobKind::Restore(_) => return,
        };
        self.finish(result, |error| work.place.readable(&error.to_string()));
    }

    /// Runs other work, whose errors are in words, and keeps its result.
    pub(crate) fn run_task(
        &self,
        task: impl FnOnce(&Self) -> std::result::Result<JobResult, String>,
    ) {
        let done = match self.cancelled() {
            true => Err("cancelled".to_owned()),
            false => task(self),
        };
        let result = done.unwrap_or_else(|message| JobResult::failed(&message));
        *self.result.lock() = Some(Arc::new(result));
    }

    fn finish(&self, result: Result<JobResult>, message: impl Fn(&bandsaw::Error) -> String) {
        let result = result.unwrap_or_else(|error| JobResult::failed(&message(&error)));
        *self.result.lock() = Some(Arc::new(result));
    }

    fn check(&self, located: &Located, keys: Option<&ImageKeys>) -> Result<JobResult> {
        let found = open::examine(&located.path(), &located.options(keys), self)?;
        let mut result = JobResult::default();
        result.set_examination(&found, located);
        Ok(result)
    }

    fn diagnose(&self, located: &Located, keys: Option<&ImageKeys>) -> Result<JobResult> {
        let found = diagnose::diagnose(&located.path(), &located.options(keys), self)?;
        let mut result = JobResult::default();
        if let Some(check) = &found.check {
            result.set_examination(check, located);
        }
        result.layers = found
            .layers
            .into_iter()
            .map(|(layer, what)| (layer, visible(&located.readable(&what))))
            .collect();
        match found.cause {
            None => {
                result.conclusion = crate::text::OPENS.to_owned();
                result.is_sound = true;
            }
            Some(Cause {
                layer,
                what,
                advice,
                opens,
                ..
            }) => {
                result.conclusion = visible(&located.readable(&format!("{layer}: it {what}")));
                result.is_sound = opens;
                let advice = advice.iter().map(|line| visible(&located.readable(line)));
                result.advice = advice.collect();
            }
        }
        Ok(result)
    }
}

impl JobResult {
    fn failed(message: &str) -> Self {
        Self {
            conclusion: visible(message),
            is_failure: true,
            ..Self::default()
        }
    }

    pub(crate) fn add_fact(&mut self, name: &str, value: String) {
        self.facts.push((name.to_owned(), value));
    }

    fn set_examination(&mut self, found: &open::Examination, located: &Located) {
        let conclusion = found.conclusion();
        self.is_sound = matches!(conclusion, Conclusion::Sound);
        self.conclusion = match &conclusion {
            Conclusion::Damaged => crate::text::DAMAGED.to_owned(),
            Conclusion::Unknown(error) => {
                format!(
                    "{}: {}",
                    crate::text::NOT_ALL_CHECKED,
                    visible(&located.message(error))
                )
            }
            Conclusion::Warned => crate::text::WARNED.to_owned(),
            Conclusion::Unchecked => crate::text::UNCHECKED.to_owned(),
            Conclusion::Sound => crate::text::SOUND.to_owned(),
        };
        for layer in &found.layers {
            let verdict = match &layer.verdict {
                LayerVerdict::Checked => crate::text::CHECKED.to_owned(),
                LayerVerdict::Broken => crate::text::BROKEN.to_owned(),
                LayerVerdict::Unknown(error) => visible(&located.message(error)),
                LayerVerdict::Skipped => crate::text::NO_CHECK.to_owned(),
            };
            self.layers.push((visible(&layer.layer), verdict));
        }
        self.add(&found.problems, located);
    }

    fn add(&mut self, problems: &Problems, located: &Located) {
        for problem in problems.listed() {
            let text = visible(&located.message(&problem.error));
            self.findings.push((problem.severity, text));
        }
        self.findings
            .sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
        self.omitted += problems.omitted();
    }
}

impl Progress for Job {
    fn stage(&self, name: &str, total: u64) {
        *self.stage.lock() = (name.to_owned(), total);
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

/// All jobs.
#[derive(Debug)]
pub(crate) struct Jobs {
    all: Mutex<Vec<Arc<Job>>>,
    turn: Arc<Semaphore>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Jobs {
    /// Returns the permit to run: one job at a time, as each may need much memory.
    pub(crate) fn permits(&self) -> Arc<Semaphore> {
        self.turn.clone()
    }

    /// Adds a job. `None`: there are too many.
    pub(crate) fn add(
        &self,
        session: u64,
        image: ImageId,
        kind: JobKind,
    ) -> Result<Option<Arc<Job>>> {
        let mut all = self.all.lock();
        let own = |job: &Arc<Job>| job.session == session;
        if all.iter().filter(|job| own(job)).count() >= PER_SESSION {
            let finished = all
                .iter()
                .position(|job| own(job) && job.result().is_some());
            match finished {
                Some(at) => drop(all.remove(at)),
                None => return Ok(None),
            }
        }
        if all.len() >= IN_ALL {
            return Ok(None);
        }
        let number = Token::new()?.reveal().chars().take(32).collect();
        let job = Arc::new(Job {
            number,
            session,
            image,
            kind,
            stage: Mutex::default(),
            done: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            result: Mutex::default(),
        });
        all.push(job.clone());
        Ok(Some(job))
    }

    /// Returns the session and image of each job that runs or waits.
    pub(crate) fn unfinished(&self) -> Vec<(u64, ImageId)> {
        let all = self.all.lock();
        let open = all.iter().filter(|job| job.result().is_none());
        open.map(|job| (job.session, job.image.clone())).collect()
    }

    /// Returns a job of a session.
    pub(crate) fn find(&self, session: u64, number: &str) -> Option<Arc<Job>> {
        let all = self.all.lock();
        let found = all
            .iter()
            .find(|job| job.session == session && job.number == number);
        found.cloned()
    }

    /// Cancels and forgets the jobs of a session for one image or for all: their results tell what
    /// is in an image that is locked now.
    pub(crate) fn cancel(&self, session: u64, image: Option<&ImageId>) {
        self.all.lock().retain(|job| {
            let concerned = job.session == session && image.is_none_or(|image| job.image == *image);
            if concerned {
                job.cancel();
            }
            !concerned
        });
    }

    /// Cancels and forgets all jobs of a session that has ended.
    pub(crate) fn remove(&self, session: u64) {
        self.cancel(session, None);
    }

    pub(crate) fn cancel_all(&self) {
        self.all.lock().iter().for_each(|job| job.cancel());
    }
}
