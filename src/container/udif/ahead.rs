//! Work that is done ahead of a reader, and not after the image is closed.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts pieces of work in other threads, so that whoever closes an image can wait for them: they hold its file, and the lock
/// on that.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    closed: bool,
}

impl Ahead {
    /// Does `work`, unless the image is closed.
    pub(super) fn run(&self, work: impl FnOnce()) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        state.running += 1;
        drop(state);
        work();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.idle.notify_all();
    }

    /// Lets nothing begin any more, and waits for what has begun.
    pub(super) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        while state.running > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn closing_waits_and_nothing_begins_after_it() {
        let ahead = Arc::new(Ahead::default());
        let ((begun, wait), (go, stay)) = (channel(), channel::<()>());
        let other = ahead.clone();
        let worker = std::thread::spawn(move || {
            let mut done = false;
            other.run(|| {
                begun.send(()).unwrap();
                stay.recv().unwrap();
                done = true;
            });
            done
        });
        wait.recv().unwrap();
        go.send(()).unwrap();
        ahead.close();
        ahead.run(|| unreachable!("it is closed"));
        assert!(worker.join().unwrap());
    }
}
