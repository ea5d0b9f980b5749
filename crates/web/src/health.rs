//! The results of the last checks of images, until they are changed or exchanged.

use std::collections::HashMap;

use bandsaw::fs::Timestamp;
use bandsaw::sync::Mutex;

use crate::job::JobResult;
use crate::roots::{Identity, ImageId, Located};

/// Images whose results are kept.
const MAX_IMAGES: usize = 1000;

/// The result of the last check of an image.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    /// The verdict, in words.
    pub(crate) conclusion: String,
    pub(crate) is_sound: bool,
    /// The time of the check.
    pub(crate) at: Timestamp,
    identity: Identity,
}

/// The results of the last checks.
#[derive(Debug, Default)]
pub(crate) struct HealthTable(Mutex<HashMap<ImageId, Health>>);

impl HealthTable {
    /// Keeps the result of a check. One that failed tells nothing.
    pub(crate) fn set(&self, id: &ImageId, located: &Located, result: &JobResult) {
        if result.is_failure {
            return;
        }
        let mut table = self.0.lock();
        if table.len() >= MAX_IMAGES {
            table.clear();
        }
        let health = Health {
            conclusion: result.conclusion.clone(),
            is_sound: result.is_sound,
            at: Timestamp::now_in_seconds(),
            identity: located.identity(),
        };
        table.insert(id.clone(), health);
    }

    /// Returns the result of the last check. `None`: there was none, or the image was exchanged.
    pub(crate) fn of(&self, id: &ImageId, located: &Located) -> Option<Health> {
        let found = self.0.lock().get(id).cloned();
        found.filter(|found| found.identity == located.identity())
    }

    /// Forgets the result of an image that is being changed.
    pub(crate) fn invalidate(&self, id: &ImageId) {
        self.0.lock().remove(id);
    }
}
