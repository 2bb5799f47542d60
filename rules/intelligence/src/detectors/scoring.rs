//! Scores of documents by the models of detectors, on compute threads.
//!
//! [`LiveDetector`] is a detector with its models in memory. [`FrameScoring`](super::frame_scoring::FrameScoring) hands it the documents
//! that match, and takes results. A model that panics stops its own detector alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_anomaly::{MAX_TEMPLATES, RowModel, ScoreCutoff, TextModel};
use millrace_rules::Event;
use serde::{Deserialize, Serialize};

use super::algorithm::{DetectorAlgorithm, ModelType};
use super::definition::DetectorDefinition;
use super::features;
use super::frame_columns::{ColumnPlace, FrameColumns};
use super::frame_scoring::{RowBatch, ScoredBatch};
use super::model::DetectorModel;
use super::results::{ScoredDocument, ScoredEvent, Subject};
use super::row_results::{RowDocument, RowResultWriter};
use super::stored::StoredDetector;
use crate::error::catch_model_panic;

/// Late buckets of a detector that wait to be scored anew; beyond them the oldest are left as they are.
const MAX_LATE: usize = 10_000;
/// Values without a model that are told.
const MAX_UNSEEN: usize = 10;

/// Progress of a univariate detector, stored with the position in the change feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeriesProgress {
    /// Number of the first bucket that is not scored.
    pub(crate) next: i64,
    /// Length of the buckets that are numbered, in milliseconds.
    #[serde(default)]
    pub(crate) bucket_ms: i64,
    /// Scored buckets that have got more documents since, by the place of the value.
    pub(crate) late: BTreeSet<(usize, i64)>,
}

impl SeriesProgress {
    /// Makes the progress of a detector whose next bucket has a number.
    pub(crate) fn at(next: i64, bucket_ms: i64) -> Self {
        Self { next, bucket_ms, late: BTreeSet::new() }
    }

    /// Counts in buckets of another length from the same time on; `first` is the next bucket where no length is known.
    pub(crate) fn rebase(&mut self, bucket_ms: i64, first: i64) {
        if self.bucket_ms == bucket_ms {
            return;
        }
        let next = match self.bucket_ms {
            before if before > 0 => self.next.saturating_mul(before).div_euclid(bucket_ms),
            _ => first,
        };
        *self = Self::at(next, bucket_ms);
    }
}

/// Counts and problems of a detector's scoring.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScoringTally {
    pub(crate) scored: u64,
    pub(crate) anomalies: u64,
    /// Documents whose value of `multiply_by_field` has no model, with some of these values.
    pub(crate) unseen: u64,
    pub(crate) unseen_values: BTreeSet<String>,
    /// Values that are no numbers though the field is analysed, by field.
    pub(crate) missing: BTreeMap<String, u64>,
    pub(crate) problem: Option<String>,
}

/// Models of a detector by the place of their value.
#[derive(Debug)]
pub(crate) enum ValueModel {
    Rows(Arc<RowModel>),
    Text(Arc<TextModel>),
    Series(Arc<millrace_anomaly::SeriesModel>),
    /// Panics at each document.
    #[cfg(test)]
    Broken,
}

/// A detector with its models in memory.
#[derive(Debug)]
pub(crate) struct LiveDetector {
    pub(crate) stored: Arc<StoredDetector>,
    /// Definition that the models were trained by.
    pub(crate) definition: Arc<DetectorDefinition>,
    pub(crate) cutoff: ScoreCutoff,
    /// By the place of the value in [`DetectorDefinition::values`]; `None` where training failed.
    pub(crate) models: Vec<Option<ValueModel>>,
    /// First frame whose documents are scored.
    pub(crate) since: u64,
    /// First frame that text models have not observed.
    pub(crate) observed: u64,
    pub(crate) progress: SeriesProgress,
    pub(crate) tally: ScoringTally,
    /// Text models have observed lines since they were stored.
    pub(crate) has_observed: bool,
    /// Text of a panic of its model, which scores nothing from then on.
    pub(crate) failure: Option<String>,
}

impl ValueModel {
    /// Takes a model for scoring; `None` of one that scores nothing.
    pub(crate) fn new(model: DetectorModel) -> Option<Self> {
        match model {
            DetectorModel::Rows(model) => Some(Self::Rows(model)),
            DetectorModel::Text(model) => Some(Self::Text(model)),
            DetectorModel::Series(model) => Some(Self::Series(model)),
            DetectorModel::Forecast(_) => None,
        }
    }
}

/// A matched document with the frame that brought it.
pub(crate) struct ArrivedEvent<'a> {
    pub(crate) event: &'a Event,
    pub(crate) frame: u64,
    pub(crate) frame_ms: i64,
    pub(crate) time_ms: i64,
}

impl LiveDetector {
    /// Finds the place of the value that a document belongs to; notes values without a model.
    pub(crate) fn place(&mut self, event: &Event) -> Option<usize> {
        let Some(field) = &self.definition.multiply_by else { return Some(0) };
        // Sources have no multi-fields: the field that one is of has its value.
        let value = features::text(&event.source, field).or_else(|| {
            field.strip_suffix(".keyword").and_then(|field| features::text(&event.source, field))
        });
        let place =
            value.as_ref().and_then(|value| self.definition.values.iter().position(|one| one == value));
        if place.is_none() {
            self.tally.unseen += 1;
            let value = value.unwrap_or_else(|| "(none)".to_owned());
            if self.tally.unseen_values.len() < MAX_UNSEEN {
                self.tally.unseen_values.insert(value.chars().take(64).collect());
            }
        }
        place
    }

    /// Returns true of a detector whose models score rows.
    pub(crate) fn scores_rows(&self) -> bool {
        self.models.iter().flatten().any(|model| matches!(model, ValueModel::Rows(_)))
    }

    /// Adds the row of a document, which is at a place of its frame, to those that wait for their model.
    pub(crate) fn push_row(
        &mut self,
        arrived: &ArrivedEvent<'_>,
        place: usize,
        (columns, of_fields): (&mut FrameColumns, &[ColumnPlace]),
        batch: &mut RowBatch,
    ) {
        let ArrivedEvent { event, frame_ms, time_ms, .. } = *arrived;
        for (field, column) in self.definition.fields.iter().zip(of_fields) {
            let number = columns.number(*column, field, (place, event));
            if number.is_nan() {
                *self.tally.missing.entry(field.clone()).or_default() += 1;
            }
            batch.numbers.push(number);
        }
        batch.documents.push(RowDocument {
            index: Arc::clone(&event.index),
            uuid: Arc::clone(&event.uuid),
            id: Arc::clone(&event.id),
            seq_no: event.seq_no,
            time_ms,
            frame_ms,
        });
    }

    /// Scores rows by the model of a value; a panic of the model becomes the failure of the detector.
    pub(crate) fn score_rows(&mut self, place: usize, batch: RowBatch, results: &mut ScoredBatch) {
        let Some(Some(ValueModel::Rows(model))) = self.models.get(place) else { return };
        if self.failure.is_some() {
            return;
        }
        let (definition, cutoff) = (&self.definition, self.cutoff);
        let scores = match catch_model_panic(|| model.score_all(&batch.numbers, cutoff)) {
            Ok(Ok(scores)) => scores,
            Ok(Err(error)) => {
                self.tally.problem = Some(error.to_string());
                return;
            }
            Err(reason) => {
                self.failure = Some(reason);
                return;
            }
        };
        let value = definition.values().get(place).copied().flatten();
        let mut writer = RowResultWriter::new(&self.stored, definition, value, scores.len());
        let rows = batch.numbers.chunks(definition.fields.len().max(1));
        for ((document, row), score) in batch.documents.iter().zip(rows).zip(&scores) {
            let is_anomalous = model.is_anomalous(score, cutoff);
            writer.write(document, row, score, is_anomalous);
            self.tally.scored += 1;
            self.tally.anomalies += u64::from(is_anomalous);
        }
        writer.finish().for_each(|document| results.push(document));
    }

    /// Scores a document by itself; a panic of the model becomes the failure of the detector.
    pub(crate) fn score_guarded(
        &mut self,
        arrived: &ArrivedEvent<'_>,
        is_written: bool,
    ) -> Option<ScoredDocument> {
        catch_model_panic(|| self.score(arrived, is_written)).unwrap_or_else(|reason| {
            self.failure = Some(reason);
            None
        })
    }

    fn score(&mut self, arrived: &ArrivedEvent<'_>, is_written: bool) -> Option<ScoredDocument> {
        let is_text = self.definition.model_type == ModelType::Text;
        if is_written && !is_text {
            return None;
        }
        let place = self.place(arrived.event)?;
        let definition = Arc::clone(&self.definition);
        let bucket = arrived.time_ms.div_euclid(definition.window.bucket().ms());
        let stored = Arc::clone(&self.stored);
        let value = definition.values().get(place).copied().flatten();
        let ArrivedEvent { event, frame_ms, time_ms, .. } = *arrived;
        let subject = Subject { detector: &stored, definition: &definition, value, time_ms, frame_ms };
        let document =
            ScoredEvent { index: &event.index, uuid: &event.uuid, id: &event.id, seq_no: event.seq_no };
        let tally = &mut self.tally;
        let result = match self.models.get_mut(place)?.as_mut()? {
            // Rows are scored together.
            ValueModel::Rows(_) => return None,
            ValueModel::Text(model) => {
                // Lines with results were observed by the stored snapshot; others need a score even if training had them.
                if is_written && arrived.frame < self.observed {
                    return None;
                }
                let Some(line) = features::text(&event.source, definition.field()) else {
                    *tally.missing.entry(definition.field().to_owned()).or_default() += 1;
                    return None;
                };
                let model = Arc::make_mut(model);
                let score = model.observe(bucket, &line);
                self.has_observed = true;
                if is_written {
                    return None;
                }
                // A line is no anomaly merely because the bounds of the model allow no further template.
                let is_full = definition.algorithm == DetectorAlgorithm::Drain && score.template.is_none();
                if is_full {
                    tally.problem = Some(format!(
                        "the model has {MAX_TEMPLATES} templates and takes no more: lines without one are not flagged"
                    ));
                }
                let is_anomalous = !is_full && self.cutoff.flags(score.rank);
                let template = score.template.and_then(|id| model.template_text(id));
                (subject.line(&document, &line, template, &score, is_anomalous), is_anomalous)
            }
            ValueModel::Series(model) => {
                if bucket < self.progress.next && bucket >= model.oldest_revisable() {
                    self.progress.late.insert((place, bucket));
                    if self.progress.late.len() > MAX_LATE {
                        self.progress.late.pop_first();
                        tally.problem = Some(format!(
                            "more than {MAX_LATE} scored buckets have got late documents: the oldest keep their scores"
                        ));
                    }
                }
                return None;
            }
            #[cfg(test)]
            ValueModel::Broken => panic!("a node is not there"),
        };
        tally.scored += 1;
        tally.anomalies += u64::from(result.1);
        Some(result.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_on_at_the_same_time_in_buckets_of_another_length() {
        let mut progress =
            SeriesProgress { late: BTreeSet::from([(0, 5)]), ..SeriesProgress::at(1_005, 60_000) };
        progress.rebase(60_000, 0);
        assert_eq!((progress.next, progress.late.len()), (1_005, 1));
        progress.rebase(600_000, 0);
        assert_eq!(progress, SeriesProgress::at(100, 600_000));
        progress.rebase(60_000, 0);
        assert_eq!(progress, SeriesProgress::at(1_000, 60_000));
        let mut unknown: SeriesProgress = serde_json::from_str(r#"{"next":7,"late":[]}"#).unwrap();
        unknown.rebase(60_000, 3);
        assert_eq!(unknown, SeriesProgress::at(3, 60_000));
    }
}
