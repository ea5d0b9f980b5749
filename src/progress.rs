//! How long work is watched and stopped from outside. The library never prints.

/// Told of the progress of long work, and asked whether to go on. Called from several threads.
pub trait Progress: Sync {
    /// A new stage begins: what is done (`"copy"`), and how many units it has (bytes, unless the stage says files).
    fn stage(&self, name: &str, total: u64);
    /// `n` more units of the stage are done.
    fn advance(&self, n: u64);
    /// Whether the work is to stop at the next safe point, leaving no damage.
    fn cancelled(&self) -> bool;
}

/// Nobody watches, nobody stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

impl dyn Progress + '_ {
    /// `Err(Cancelled)` once the watcher wants to stop.
    pub fn check(&self) -> crate::Result<()> {
        if self.cancelled() {
            return Err(crate::Error::new(crate::Kind::Cancelled, "interrupt", "stopped as asked"));
        }
        Ok(())
    }
}
