//! What a process uses, as the system tells it.

use std::time::Duration;

use crate::clock::{Clock, HostClock};
use crate::report::Process;

/// A process that is watched from here on: this one, or a server.
#[derive(Debug)]
pub(super) struct Watched {
    id: u32,
    clock: HostClock,
    before: Option<(Duration, Duration)>,
}

impl Watched {
    pub(super) fn new(id: u32) -> Self {
        Self { id, clock: HostClock::default(), before: times(id) }
    }

    /// What it used since; `None` where the system does not tell.
    pub(super) fn so_far(&self) -> Option<Process> {
        let ((user, system), (user_before, system_before)) = (times(self.id)?, self.before?);
        Some(Process {
            real: self.clock.now().as_secs_f64(),
            user: user.saturating_sub(user_before).as_secs_f64(),
            system: system.saturating_sub(system_before).as_secs_f64(),
            threads: threads(self.id)?,
        })
    }
}

/// Time of processors in the program and in the system.
fn times(id: u32) -> Option<(Duration, Duration)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let time = |field: usize| Some(Duration::from_secs_f64(fields.get(field)?.parse::<u64>().ok()? as f64 / ticks as f64));
    Some((time(11)?, time(12)?))
}

fn threads(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_of() {
        let watched = Watched::new(std::process::id());
        let until = HostClock::default();
        let mut sum = 0_u64;
        while until.now() < Duration::from_millis(120) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        std::hint::black_box(sum);
        let used = watched.so_far().unwrap();
        assert!(used.threads >= 1 && used.real >= 0.12 && used.user + used.system > 0.0, "{used:?}");
    }
}
