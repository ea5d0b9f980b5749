//! Long operations: they run in a thread of their own, while the thread that called them passes progress on to Python and
//! looks for signals. So callbacks run in the caller's thread, and Ctrl-C ends an operation at its next safe point.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bandsaw::progress::Progress;
use bandsaw::sync::{Condvar, Mutex};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::Outcome;

/// Time between two reports to Python.
const PAUSE: Duration = Duration::from_millis(50);

/// The reports of an operation.
#[derive(Default)]
struct Reports {
    /// Under one lock: the units done are those of the stage.
    stage: Mutex<Stage>,
    cancelled: AtomicBool,
}

/// A stage of an operation.
#[derive(Default, Clone, PartialEq, Eq)]
struct Stage {
    /// The number of the stage; 0 before the first.
    number: u64,
    name: String,
    total: u64,
    /// Units done.
    done: u64,
}

impl Progress for Reports {
    fn stage(&self, name: &str, total: u64) {
        let mut stage = self.stage.lock();
        *stage = Stage {
            number: stage.number + 1,
            name: name.to_owned(),
            total,
            done: 0,
        };
    }

    fn advance(&self, n: u64) {
        let mut stage = self.stage.lock();
        stage.done = stage.done.saturating_add(n);
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The place of the result, for which the caller waits.
struct ResultSlot<T> {
    result: Mutex<Option<T>>,
    arrived: Condvar,
}

impl<T> ResultSlot<T> {
    fn set(&self, result: T) {
        *self.result.lock() = Some(result);
        self.arrived.notify_all();
    }

    /// Waits for a moment.
    fn wait_briefly(&self) -> Option<T> {
        let result = self.result.lock();
        self.arrived
            .wait_timeout_while(result, PAUSE, |result| result.is_none())
            .take()
    }
}

/// Runs an operation detached from the interpreter. `progress` is `None`, a function of the name of the stage, the units
/// done and their total, or an object like that of tqdm. An exception that it raises, or a signal, cancels the operation.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Progress) -> bandsaw::Result<T> + Send,
) -> Outcome<T> {
    let reports = Reports::default();
    let slot = ResultSlot {
        result: Mutex::new(None),
        arrived: Condvar::new(),
    };
    let mut listener = Listener::new(progress);
    let (mut stopped, mut finished) = (None, None);
    thread::scope(|scope| -> PyResult<()> {
        let name = thread::Builder::new().name("bandsaw".to_owned());
        let started = name.spawn_scoped(scope, || {
            slot.set(catch_unwind(AssertUnwindSafe(|| work(&reports))));
        });
        started
            .map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
        while finished.is_none() {
            finished = py.detach(|| slot.wait_briefly());
            let reported = py
                .check_signals()
                .and_then(|()| listener.report(py, &reports));
            if let Err(error) = reported {
                reports.cancelled.store(true, Ordering::Relaxed);
                stopped.get_or_insert(error);
            }
        }
        Ok(())
    })?;
    let result = match finished {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => return Err(PyRuntimeError::new_err("the operation has no result").into()),
    };
    match stopped {
        Some(error) => {
            // It may hold an image.
            py.detach(|| drop(result));
            Err(error.into())
        }
        None => Ok(result?),
    }
}

/// The receiver of reports in Python.
struct Listener<'py> {
    receiver: Option<Bound<'py, PyAny>>,
    is_bar: bool,
    /// The stage that was passed on last.
    last: Stage,
}

impl<'py> Listener<'py> {
    fn new(progress: Option<&Bound<'py, PyAny>>) -> Self {
        let receiver = progress.filter(|object| !object.is_none()).cloned();
        let is_bar = receiver
            .as_ref()
            .is_some_and(|object| object.hasattr("update").unwrap_or(false));
        Self {
            receiver,
            is_bar,
            last: Stage::default(),
        }
    }

    /// Passes on what is new.
    fn report(&mut self, py: Python<'py>, reports: &Reports) -> PyResult<()> {
        let Some(receiver) = &self.receiver else {
            return Ok(());
        };
        let stage = py.detach(|| reports.stage.lock().clone());
        if stage == self.last {
            return Ok(());
        }
        if !self.is_bar {
            receiver.call1((&stage.name, stage.done, stage.total))?;
        } else {
            let before = match stage.number == self.last.number {
                true => self.last.done,
                false => {
                    begin(receiver, &stage)?;
                    0
                }
            };
            receiver.call_method1("update", (stage.done.saturating_sub(before),))?;
        }
        self.last = stage;
        Ok(())
    }
}

/// Begins a stage of a bar.
fn begin(bar: &Bound<'_, PyAny>, stage: &Stage) -> PyResult<()> {
    if bar.hasattr("set_description")? {
        bar.call_method1("set_description", (&stage.name,))?;
    }
    match bar.hasattr("reset")? {
        true => bar.call_method1("reset", (stage.total,)).map(drop),
        false => bar.setattr("total", stage.total),
    }
}
