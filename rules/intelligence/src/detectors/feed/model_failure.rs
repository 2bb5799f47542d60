//! Detectors whose models have panicked: they wait for their next models, and the others go on.
//!
//! The record of such a detector has the status `Error` and the reason. Its next models score the documents that it has missed from what
//! is stored.

use super::super::algorithm::ModelType;
use super::super::note_outcome;
use super::super::scoring::{LiveDetector, ScoringTally};
use super::super::stored::StoredDetector;
use super::Scorer;
use crate::error::{Error, Result};

impl Scorer {
    /// Stops the detectors whose models have failed. Their next models score the documents of frames from `first` on.
    pub(super) async fn stop_failed(&mut self, first: u64) -> Result<()> {
        let failure = |(id, detector): (&String, &LiveDetector)| {
            detector.failure.as_ref().map(|reason| (id.clone(), Error::ModelFailed(reason.clone())))
        };
        let failed: Vec<(String, Error)> = self.detectors.iter().filter_map(failure).collect();
        for (id, error) in failed {
            if let Some(detector) = self.detectors.remove(&id) {
                self.stop_detector(&id, detector, first, error).await?;
            }
        }
        Ok(())
    }

    /// Has a detector wait for its next models.
    pub(super) async fn stop_detector(
        &mut self,
        id: &str,
        detector: LiveDetector,
        first: u64,
        error: Error,
    ) -> Result<()> {
        tracing::error!(rule = id, %error, "a model of an AI rule has failed");
        self.unusable.insert(id.to_owned(), detector.stored.state.build);
        let is_series = detector.definition.model_type == ModelType::Univariate;
        if is_series {
            self.waiting.insert(id.to_owned(), detector.progress);
        }
        if let Some(matching) = &mut self.matching {
            matching.remove(id);
        }
        let tally = ScoringTally { problem: Some(error.to_string()), ..detector.tally };
        self.shared.detectors.publish(id, &tally);
        // The record is durable before the position moves beyond the documents that are missed.
        let note = |kept: &mut StoredDetector| {
            note_outcome(kept, Some(&error));
            if !is_series {
                kept.state.since = kept.state.since.map(|since| since.max(first));
            }
        };
        match self.shared.store.note_detector(id, note).await {
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
