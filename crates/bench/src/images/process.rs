//! Resource usage of a process, as the system reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{Clock, HostClock};
use crate::report::Process;

/// Interval at which the threads are counted.
const OFTEN: Duration = Duration::from_millis(20);

/// A process whose usage is measured from the creation of this value: this process, or a server.
#[derive(Debug)]
pub(super) struct MeasuredProcess {
    id: u32,
    clock: HostClock,
    before: Option<(Duration, Duration)>,
    threads: ThreadCounter,
}

impl MeasuredProcess {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            clock: HostClock::default(),
            before: times(id),
            threads: ThreadCounter::count(id),
        }
    }

    /// Returns a new measurement of the same process, from now on.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.id)
    }

    /// Returns the usage so far; `None` if the system does not report it.
    pub(super) fn so_far(&self) -> Option<Process> {
        let ((user, system), (user_before, system_before)) = (times(self.id)?, self.before?);
        Some(Process {
            real: self.clock.now().as_secs_f64(),
            user: user.saturating_sub(user_before).as_secs_f64(),
            system: system.saturating_sub(system_before).as_secs_f64(),
            threads: self.threads.most()?,
        })
    }
}

/// The maximum number of threads of a process, counted by a thread of ours until this is dropped.
#[derive(Debug)]
struct ThreadCounter {
    most: Arc<AtomicU64>,
    /// Counting stops when this is dropped.
    goes_on: Option<Sender<()>>,
    counting: Option<JoinHandle<()>>,
}

impl ThreadCounter {
    fn count(id: u32) -> Self {
        // The counting thread is not part of the measurement.
        let of_ours = u64::from(id == std::process::id());
        let most = Arc::new(AtomicU64::new(threads(id).unwrap_or_default()));
        let (goes_on, ended) = mpsc::channel::<()>();
        let counted = Arc::clone(&most);
        let counting = thread::Builder::new()
            .name("threads".into())
            .spawn(move || {
                while ended.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
                    let Some(threads) = threads(id) else { return };
                    counted.fetch_max(threads.saturating_sub(of_ours), Ordering::Relaxed);
                }
            });
        Self {
            most,
            goes_on: Some(goes_on),
            counting: counting.ok(),
        }
    }

    fn most(&self) -> Option<u64> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }
}

impl Drop for ThreadCounter {
    fn drop(&mut self) {
        self.goes_on = None;
        if let Some(counting) = self.counting.take() {
            // The thread cannot panic.
            let _ = counting.join();
        }
    }
}

/// Returns the user and system time of a process.
fn times(id: u32) -> Option<(Duration, Duration)> {
    if cfg!(target_os = "macos") {
        return times_of_ps(&ps(id, &["-o", "utime=,time="])?);
    }
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let time = |field: usize| {
        Some(Duration::from_secs_f64(
            fields.get(field)?.parse::<u64>().ok()? as f64 / ticks as f64,
        ))
    };
    Some((time(11)?, time(12)?))
}

/// Returns the number of threads of a process.
fn threads(id: u32) -> Option<u64> {
    if cfg!(target_os = "macos") {
        // A line for each thread, below a title.
        return u64::try_from(ps(id, &["-M"])?.lines().count().checked_sub(1)?).ok();
    }
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok())
}

/// Returns what macOS's `ps` prints about a process.
fn ps(id: u32, words: &[&str]) -> Option<String> {
    let output = std::process::Command::new("/bin/ps")
        .args(words)
        .args(["-p", &id.to_string()])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses user time and all time, as `0:01.25 0:02.50`: the rest is system time.
fn times_of_ps(text: &str) -> Option<(Duration, Duration)> {
    let mut times = text.split_whitespace().map(|word| {
        word.split(':').try_fold(0.0, |sum: f64, part| {
            Some(sum * 60.0 + part.parse::<f64>().ok()?)
        })
    });
    let (user, all) = (times.next()??, times.next()??);
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    Some((duration(user)?, duration(all - user)?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn times_of_macos_are_read() {
        let times = times_of_ps("   0:01.25   1:02:02.50\n").unwrap();
        assert_eq!(times.0, Duration::from_millis(1250));
        assert_eq!(times.1, Duration::from_millis(3_721_250));
        assert_eq!(times_of_ps(""), None);
        assert_eq!(times_of_ps("0:01.25 now"), None);
    }

    #[test]
    fn this_process_is_measured() {
        let watched = MeasuredProcess::new(std::process::id());
        let until = HostClock::default();
        let mut sum = 0_u64;
        while until.now() < Duration::from_millis(120) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        std::hint::black_box(sum);
        let used = watched.so_far().unwrap();
        assert!(
            used.threads >= 1 && used.real >= 0.12 && used.user + used.system > 0.0,
            "{used:?}"
        );
    }

    /// Threads that have ended are still part of the maximum.
    #[test]
    fn the_maximum_of_threads_is_reported() {
        let watched = MeasuredProcess::new(std::process::id());
        let before = watched.so_far().unwrap().threads;
        thread::scope(|scope| {
            let (end, ended) = mpsc::channel::<()>();
            let ended = Arc::new(bandsaw::sync::Mutex::new(ended));
            for _ in 0..20 {
                let ended = Arc::clone(&ended);
                scope.spawn(move || ended.lock().recv());
            }
            // Other tests in this process have threads of their own, some of which may have ended.
            let began = HostClock::default();
            while watched.so_far().unwrap().threads < before + 10 {
                assert!(
                    began.now() < Duration::from_secs(20),
                    "they are not counted"
                );
                thread::sleep(OFTEN);
            }
            drop(end);
        });
        assert!(watched.so_far().unwrap().threads >= before + 10);
    }

    #[test]
    fn an_ended_process_is_not_measured() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let watched = MeasuredProcess::new(child.id());
        assert_eq!(watched.so_far().unwrap().threads, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(watched.so_far(), None);
    }
}
