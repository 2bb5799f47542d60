//! The documents of a step of a run: its predictions, as they are written. They are made a batch at a time: with many roles, all
//! of them would be too much to hold.

use std::sync::Arc;

use bytes::Bytes;
use millrace_forecast::{Algorithm, TrainedModel};
use serde_json::{Map, Value, json};

use crate::definition::Definition;
use crate::error::Result;
use crate::results;
use crate::run::became;
use crate::store::StoredRule;
use crate::time;

/// Documents of a batch.
pub(crate) const BATCH: usize = 500;
/// Times before and after year 9999 are not written.
const MAX_MS: f64 = 253_402_300_800_000.0;

/// Measured values: the buckets of a value.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredSeries {
    /// The start of the first.
    pub(crate) from_ms: i64,
    /// The start of the first that is not over for good.
    pub(crate) settled_ms: i64,
    pub(crate) buckets: Arc<Vec<Option<f64>>>,
}

/// The documents of a step.
#[derive(Debug)]
pub(crate) struct Documents {
    definition: Arc<Definition>,
    pub(crate) machine_state_uid: String,
    /// Time at which the trend line reaches the threshold.
    pub(crate) threshold_time: Option<String>,
    origin_ms: i64,
    measured: MeasuredSeries,
    /// Members that all of them have.
    common: Map<String, Value>,
    predicted: Vec<f64>,
}

impl Documents {
    /// Predicts from a time, by a model that took `seconds` with its samples.
    ///
    /// # Errors
    /// The forecast's.
    pub(crate) fn new(
        kept: &StoredRule,
        value: Option<&str>,
        origin_ms: i64,
        trained: &TrainedModel,
        measured: MeasuredSeries,
        seconds: f64,
    ) -> Result<Self> {
        let definition = &kept.definition;
        let frame = definition.frame;
        let predicted = trained.forecast(definition.max_predictions)?;
        let machine_state_uid = results::machine_state_uid(definition, value, origin_ms);
        let score = trained.score();
        let level = definition.level().filter(|_| definition.algorithm == Algorithm::Tl);
        let threshold_time = level.and_then(|level| trained.reaches(level)).and_then(|buckets| {
            // Samples stand for their buckets: the last one of the window began one before the origin.
            let ms = (origin_ms - frame.ms()) as f64 + buckets * frame.ms() as f64;
            (ms.abs() < MAX_MS).then(|| time::iso(ms as i64))
        });
        let mut common = Map::new();
        for (name, of) in [
            ("model_name", json!(definition.name)),
            ("model_uid", json!(kept.id)),
            ("machine_state_uid", json!(machine_state_uid)),
            ("series_uid", json!(results::series_uid(kept))),
            ("method_name", json!(definition.algorithm.name())),
            ("time_frame", json!(frame.name())),
            ("start_date", json!(time::iso(origin_ms))),
            ("processing_time", json!(seconds)),
            ("rmse", json!(score.rmse)),
            ("rmse_normalized", json!(score.rmse_normalized)),
            ("overall_efficiency", json!(score.overall_efficiency)),
        ] {
            common.insert(name.to_owned(), of);
        }
        // Who may see the rule sees what it predicts.
        if !definition.roles.is_empty() {
            common.insert("roles".to_owned(), json!(definition.roles));
        }
        if let (Some(line), Algorithm::Tl | Algorithm::Lrst) = (trained.line(), definition.algorithm) {
            common.insert("linear_function_a".to_owned(), json!(line.slope));
            common.insert("linear_function_b".to_owned(), json!(line.intercept));
        }
        if let Some(level) = definition.level() {
            common.insert("threshold".to_owned(), json!(level));
            common.insert("threshold_time".to_owned(), json!(threshold_time));
        }
        if let (Some(field), Some(value)) = (&definition.multiply_by, value) {
            common.insert("multiply_by_field".to_owned(), json!(field));
            common.insert("multiply_by_value".to_owned(), json!(value));
        }
        let definition = Arc::clone(definition);
        Ok(Self { definition, machine_state_uid, threshold_time, origin_ms, measured, common, predicted })
    }

    /// Counts them.
    pub(crate) fn len(&self) -> usize {
        self.predicted.len()
    }

    /// Makes the next [`BATCH`] of them, or those that are left, from one on: each with its id.
    pub(crate) fn batch(&self, from: usize) -> Vec<(String, Bytes)> {
        let (definition, frame) = (&self.definition, self.definition.frame);
        let there = self.predicted.iter().enumerate().skip(from).take(BATCH);
        let documents = there.map(|(ahead, predicted)| {
            let at = self.origin_ms + ahead as i64 * frame.ms();
            let uid = results::prediction_uid(&self.machine_state_uid, at);
            let mut document = self.common.clone();
            document.insert("@timestamp".to_owned(), json!(time::iso(at)));
            document.insert("predictionUID".to_owned(), json!(uid));
            results::put(&mut document, &definition.field, "pre", *predicted);
            if let Some(current) = self.current(at) {
                results::put(&mut document, &definition.field, "cur", current);
            }
            (uid, Bytes::from(Value::Object(document).to_string()))
        });
        documents.collect()
    }

    /// Returns the value of the bucket at a time, if the bucket is over for good.
    fn current(&self, at_ms: i64) -> Option<f64> {
        let MeasuredSeries { from_ms, settled_ms, buckets } = &self.measured;
        let place = usize::try_from(self.definition.frame.between(*from_ms, at_ms)).ok()?;
        let bucket = buckets.get(place).filter(|_| at_ms < *settled_ms)?;
        became(self.definition.value_type, *bucket)
    }
}
