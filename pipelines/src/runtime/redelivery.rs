//! Dead letters whose events go through the running pipeline again.
//!
//! What became of an event is written in one frame with the removal of its letter: it is a letter as long as it is nowhere else. Only
//! what refused it gets it again (`graph::route`).

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_ingest::dead_letter::StoredDeadLetter;

use super::sequence::Sequence;
use super::{Pipeline, commit, compute_future, work};

/// Time that an event may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

impl Pipeline {
    /// Returns the principal of its outputs.
    pub(crate) fn writer(&self) -> Principal {
        self.shared.generations.current().writer.clone()
    }

    /// Sends the event of a letter again, to what refused it, or to an output of this id.
    ///
    /// # Errors
    /// Why there is still a letter: this one, or the one that took its place.
    pub(crate) async fn redeliver(
        &self,
        letter: &StoredDeadLetter,
        output: Option<&str>,
    ) -> Result<(), String> {
        let (event, removal) = (letter.event()?, letter.removal());
        let id = output.unwrap_or(&letter.plugin).to_owned();
        let generation = self.shared.generations.current();
        let pipeline = Arc::clone(&self.shared.id);
        let letter = work::run_letter(pipeline, event, removal, id, generation);
        let delivery =
            compute_future::run(&self.shared.compute, letter).await.map_err(|error| error.to_string())??;
        // It has no order with others.
        let ticket = Sequence::default().enter(std::iter::empty(), false, &delivery.generation);
        let through = commit::redeliver(&self.shared, delivery, ticket);
        match tokio::time::timeout(PATIENCE, through).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("it was not stored within {PATIENCE:?}")),
        }
    }
}
