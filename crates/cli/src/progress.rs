//! A progress bar on the terminal, and Ctrl-C, which interrupts work at a safe point.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bandsaw::progress::Progress;
use bandsaw::size;
use bandsaw::sync::Mutex;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::flag;

use crate::output::Output;
use crate::signals::{self, STOPPED_BY, signal_seen};

/// The time between two lines of progress in a log, in seconds.
const LOG_INTERVAL: u64 = 10;

/// The duration of work without a progress bar.
const DRAW_DELAY: Duration = Duration::from_millis(300);

/// A progress bar that interrupts work after SIGINT, SIGTERM or SIGHUP. The same signal once more
/// ends the process at once; another one does not, as a process that Ctrl-C interrupts may also be
/// asked to end by the end of the one that started it.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Created when first drawn, as most work ends before that.
    bar: OnceLock<ProgressBar>,
    /// The name and the total of the current stage.
    stage: Mutex<(String, u64)>,
    /// The progress before there is a bar.
    done: AtomicU64,
    began: Instant,
    /// True while the bar waits for [`DRAW_DELAY`] before it is drawn.
    waiting: AtomicBool,
    percentages: Option<Percentages>,
    /// The time of the next line in a log, in seconds from the beginning; `None` without lines.
    next_line: Option<AtomicU64>,
    /// True until it was printed that the work stops.
    says_stop: AtomicBool,
}

/// Progress for programs: a line for each whole percent.
#[derive(Debug, Default)]
struct Percentages {
    total: AtomicU64,
    done: AtomicU64,
    reported: AtomicU64,
}

impl Percentages {
    fn stage(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.reported.store(0, Ordering::Relaxed);
        if total == 0 {
            println!("PERCENTAGE:-1.000000");
        }
    }

    fn advance(&self, n: u64) {
        let (total, done) = (
            self.total.load(Ordering::Relaxed),
            self.done.fetch_add(n, Ordering::Relaxed).saturating_add(n),
        );
        let percent = (u128::from(done) * 100)
            .checked_div(total.into())
            .map_or(0, |percent| percent.min(100) as u64);
        if self.reported.fetch_max(percent, Ordering::Relaxed) < percent {
            println!("PERCENTAGE:{percent}.000000");
        }
    }
}

impl Bar {
    /// Creates a bar. From then on the signals no longer kill the process: they set the flag that
    /// [`Progress::cancelled`] reads.
    pub(crate) fn new(output: &Output) -> Self {
        for signal in signals::ending() {
            let stopping = Arc::new(AtomicBool::new(false));
            // Order matters: the shutdown acts on a flag that only an earlier signal can have set.
            // If registering fails (no memory), signals still kill.
            let _ =
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopping));
            let _ = flag::register(signal, Arc::clone(&stopping));
            let _ = flag::register_usize(
                signal,
                Arc::clone(&STOPPED_BY),
                usize::try_from(signal).unwrap_or(1),
            );
        }
        Self {
            bar: OnceLock::new(),
            stage: Mutex::default(),
            done: AtomicU64::new(0),
            began: Instant::now(),
            waiting: AtomicBool::new(output.shows_progress()),
            percentages: output.prints_percentages().then(Percentages::default),
            next_line: output.logs_progress().then(AtomicU64::default),
            says_stop: AtomicBool::new(output.notes()),
        }
    }

    fn show_once_patience_ends(&self) {
        if self.waiting.load(Ordering::Relaxed)
            && self.began.elapsed() >= DRAW_DELAY
            && self.waiting.swap(false, Ordering::Relaxed)
        {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let stage = self.stage.lock();
            begin(&bar, &stage.0, stage.1);
            bar.inc(self.done.load(Ordering::Relaxed));
            let _ = self.bar.set(bar); // only one thread gets here
        }
    }

    /// Prints a line if one is due.
    fn log(&self) {
        let Some(next) = &self.next_line else { return };
        let (due, now) = (next.load(Ordering::Relaxed), self.began.elapsed().as_secs());
        let is_due = now >= due
            && next
                .compare_exchange(
                    due,
                    now + LOG_INTERVAL,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if is_due {
            let (stage, total) = self.stage.lock().clone();
            let done = self.done.load(Ordering::Relaxed);
            // Best effort: the work goes on without a log.
            let _ = writeln!(io::stderr(), "progress: {}", line(&stage, done, total));
        }
    }
}

/// Returns a line of a log: the stage, and how much of it is done.
fn line(stage: &str, done: u64, total: u64) -> String {
    match total {
        0 => format!("{stage}: {done}"),
        _ => format!(
            "{stage}: {}, {} of {}",
            size::percent(done, total),
            size::display(done),
            size::display(total)
        ),
    }
}

impl Progress for Bar {
    fn stage(&self, name: &str, total: u64) {
        if let Some(percentages) = &self.percentages {
            percentages.stage(total);
        }
        *self.stage.lock() = (name.to_owned(), total);
        self.done.store(0, Ordering::Relaxed);
        if let Some(bar) = self.bar.get() {
            begin(bar, name, total);
        }
        self.show_once_patience_ends();
    }

    fn advance(&self, n: u64) {
        if let Some(percentages) = &self.percentages {
            percentages.advance(n);
        }
        match self.bar.get() {
            Some(bar) => bar.inc(n),
            None => {
                self.done.fetch_add(n, Ordering::Relaxed);
                self.show_once_patience_ends();
                self.log();
            }
        }
    }

    fn cancelled(&self) -> bool {
        let stopped = signal_seen().is_some();
        if stopped && self.says_stop.swap(false, Ordering::Relaxed) {
            if let Some(bar) = self.bar.get() {
                bar.finish_and_clear();
            }
            // Best effort: the work stops either way.
            let _ = writeln!(io::stderr(), "stopping…");
        }
        stopped
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Starts a bar anew.
fn begin(bar: &ProgressBar, name: &str, total: u64) {
    // Without a total there is only a growing number.
    let template = match total {
        0 => "{msg:>8} {spinner} {human_pos}",
        _ => {
            "{msg:>8} {wide_bar} {percent:>3}% {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
        }
    };
    bar.reset();
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_length(total);
    bar.set_message(name.to_owned());
}
