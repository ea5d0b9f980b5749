//! Power failures: the state afterwards must be the state after some operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::life::Life;
use super::world::World;
use crate::device::{AfterDiscard, BlockDevice, Memory};
use crate::fs::FileSystemMut;
use crate::fs::hfsplus::{HfsPlus, check};
use crate::problem::Severity;
use crate::progress::Silent;
use crate::store::{Open, Store};
use crate::testing::PowerCut;
use crate::testing::power_cut::Keep;

/// The history of operations on a recording store.
pub(super) struct Story {
    store: PowerCut,
    steps: Vec<Step>,
}

/// One operation, and the state after it.
struct Step {
    /// The position in the store's record before and after it.
    begin: usize,
    end: usize,
    world: World,
    /// All of it survives every later crash.
    durable: bool,
    /// A file whose contents were overwritten in place.
    touched: Option<u64>,
}

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store
        .open("disk", Open::Create)
        .expect("the store opens its disk")
        .expect("a disk")
}

impl Life {
    /// Records the end of an operation; the model is the state after it.
    pub(super) fn did(&mut self, touched: Option<u64>) {
        self.step(touched, false);
    }

    /// Records that everything so far is durable.
    pub(super) fn durable(&mut self) {
        self.step(None, true);
    }

    fn step(&mut self, touched: Option<u64>, durable: bool) {
        let Some(story) = &mut self.story else { return };
        let (begin, end) = (
            story.steps.last().map_or(0, |step| step.end),
            story.store.position(),
        );
        story.steps.push(Step {
            begin,
            end,
            world: self.world.clone(),
            durable,
            touched,
        });
    }

    /// Runs operations, cuts the power at any of their writes, and continues with the resulting
    /// state.
    pub(super) fn cut(&mut self) {
        self.handles.clear();
        self.close_unlinked();
        self.fs().unmount().expect("an unmount");
        let store = PowerCut::default();
        let bytes = self.device.to_vec();
        disk(&store)
            .set_len(bytes.len() as u64, AfterDiscard::Zeros)
            .expect("a length");
        disk(&store).write_at(0, &bytes).expect("a write");
        disk(&store).flush().expect("a flush");
        store.sync().expect("a sync");
        self.change_device(disk(&store));
        let first = store.position();
        self.story = Some(Story {
            store,
            steps: Vec::new(),
        });
        self.durable();
        for _ in 0..1 + self.below(60) {
            self.operation();
        }
        if self.random.one_in(8) {
            self.fs().unmount().expect("an unmount");
            self.durable();
        }
        let story = self.story.take().expect("the story goes on until here");
        let last = story.store.position();
        let mut left = None;
        for _ in 0..3 {
            let position = self.random.within(first as u64..last as u64 + 1) as usize;
            let keep = match self.below(4) {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Some(self.random.number()),
            };
            let found = story.store.crash_at(position, keep);
            let bytes = crate::device::BlockDeviceExt::read_vec(&*disk(&found), 0, bytes.len())
                .expect("what a crash left");
            let device = Arc::new(Memory::from(bytes));
            let world = story.judge(position, &device, self.nature.case_sensitive);
            left = Some((device, world));
            self.tally.cuts += 1;
        }
        let (device, world) = left.expect("there were cuts");
        (self.device, self.world) = (device.clone(), world);
        self.handles.clear();
        self.change_device(device);
        self.compare();
        // The first change removes files that were open and unlinked, if there is room for it.
        let full = self.tally.full;
        self.set_attributes();
        self.fs().unmount().expect("an unmount");
        let problems = check(self.device.clone(), &Silent).expect("a check");
        assert!(
            problems.is_empty() || self.tally.full > full,
            "after a crash and an operation: {problems:#?}"
        );
        self.compare();
    }
}

impl Story {
    /// Checks that the state after a crash at `position` is one of the allowed ones; returns it.
    fn judge(&self, position: usize, device: &Arc<Memory>, case_sensitive: bool) -> World {
        let least = self
            .steps
            .iter()
            .rposition(|step| step.durable && step.end <= position)
            .unwrap_or(0);
        let most = self
            .steps
            .iter()
            .rposition(|step| step.begin <= position)
            .unwrap_or(0);
        let problems = check(device.clone(), &Silent).expect("a check");
        let damage: Vec<_> = problems
            .iter()
            .filter(|problem| problem.severity == Severity::Damage)
            .collect();
        assert!(
            damage.is_empty(),
            "after a crash at {position}: {damage:#?}"
        );
        let fs = HfsPlus::open(device.clone())
            .unwrap_or_else(|error| panic!("after a crash at {position}: {error}"));
        let found = World::read(&fs, case_sensitive);
        let touched: BTreeSet<u64> = self.steps[least..=most]
            .iter()
            .filter_map(|step| step.touched)
            .collect();
        let differences = || {
            (least..=most)
                .rev()
                .map(|step| self.steps[step].world.difference(&found, &touched))
        };
        if !differences().any(|difference| difference.is_none()) {
            let report: Vec<_> = differences().flatten().collect();
            panic!(
                "after a crash at {position}, none of {} worlds is found: {report:#?}",
                report.len()
            );
        }
        found
    }
}
