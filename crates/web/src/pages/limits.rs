//! Limits of work that may take long or much memory.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind};
use tokio::sync::OwnedSemaphorePermit;

use super::refusal_in;
use crate::app::App;
use crate::open_images::OpenImage;
use crate::reply::Refusal;
use crate::text;

/// Time that a search or comparison may take.
const TIME: Duration = Duration::from_secs(20);

/// Ends work after a time.
pub(super) struct Deadline(Instant);

impl Deadline {
    /// Begins to count the time.
    pub(super) fn new() -> Self {
        Self(Instant::now() + TIME)
    }
}

impl Progress for Deadline {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Waits for the turn of work that may need much memory.
pub(super) async fn acquire_permit(app: &App) -> Result<OwnedSemaphorePermit, Refusal> {
    let turn = app.jobs.permits().acquire_owned();
    let turn = tokio::time::timeout(app.limits.wait_time, turn).await;
    turn.ok().and_then(Result::ok).ok_or_else(Refusal::busy)
}

/// Returns the refusal for an error, which explains the end of the time.
pub(super) fn late(image: &OpenImage, error: Error) -> Refusal {
    match error.kind() {
        Kind::Cancelled => Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text::LONG_SEARCH),
        _ => refusal_in(image, &error),
    }
}
