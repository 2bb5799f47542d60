//! Scores of closed buckets by the models of univariate detectors.
//!
//! A bucket is closed half a minute after its end. Its value comes from an aggregation, with the rights of the detector's user. Late
//! documents of scored buckets are told by the change feed; these buckets are read and scored again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_anomaly::{SeriesModel, SeriesScore};
use millrace_catalog::metadata::IndicesOptions;
use millrace_runtime::Priority;

use super::results::{ScoredDocument, Subject};
use super::scoring::{LiveDetector, SeriesProgress, ValueModel};
use crate::error::{Error, Result, catch_model_panic};
use crate::fill;
use crate::samples::{MAX_BUCKETS, Reader};
use crate::{IntelligenceContext, run::became};

/// A bucket with its value and its score.
type ScoredBucket = (i64, f64, SeriesScore);

/// Scores of buckets, and the progress behind them.
#[derive(Debug)]
pub(crate) struct BucketScores {
    pub(crate) documents: Vec<ScoredDocument>,
    pub(crate) anomalies: u64,
    pub(crate) progress: SeriesProgress,
    /// Models that have observed the buckets, by the place of their value.
    pub(crate) models: Vec<(usize, Arc<SeriesModel>)>,
}

/// Returns the number of the first bucket of a detector that is not closed.
pub(crate) fn first_open(detector: &LiveDetector, now_ms: i64) -> i64 {
    let frame = detector.definition.window.bucket();
    fill::settled(frame, now_ms).div_euclid(frame.ms())
}

/// Scores the buckets that have closed since, and those that have got late documents; `None` where there are none.
///
/// # Errors
/// The reason why buckets cannot be read.
pub(crate) async fn score_closed(
    shared: &IntelligenceContext,
    detector: &LiveDetector,
    now_ms: i64,
    priority: Priority,
) -> Result<Option<BucketScores>> {
    let end = first_open(detector, now_ms);
    let before = &detector.progress;
    if end <= before.next && before.late.is_empty() {
        return Ok(None);
    }
    let query = detector.definition.series_query();
    let frame = query.frame;
    let session = shared.session_of(&detector.stored.state.serving_owner).await?;
    let options = IndicesOptions { ignore_unavailable: true, ..IndicesOptions::open_only() };
    let indices = session.resolve(&query.expression, &options)?;
    // Documents that have arrived are to be found.
    shared.engine.refresh(&indices).await?;
    let reader = Reader { search: &shared.search, session: &session, series: &query, priority };
    let (mut documents, mut anomalies, mut models) = (Vec::new(), 0, Vec::new());
    for (place, value) in detector.definition.values().into_iter().enumerate() {
        let Some(Some(ValueModel::Series(model))) = detector.models.get(place) else { continue };
        let late: BTreeSet<i64> =
            before.late.iter().filter(|(of, _)| *of == place).map(|(_, bucket)| *bucket).collect();
        let needed = late.first().copied().unwrap_or(i64::MAX).min(before.next);
        let from = needed.max(model.oldest_revisable()).min(model.latest() + 1).max(end - MAX_BUCKETS);
        if from >= end {
            continue;
        }
        let buckets = reader.read(value, from * frame.ms(), end * frame.ms()).await?;
        let value_type = query.value_type;
        let buckets: Vec<Option<f64>> =
            buckets.into_iter().map(|bucket| became(value_type, bucket)).collect();
        let span = BucketSpan { from, next: before.next, late, buckets };
        let (model, stored, definition) =
            (Arc::clone(model), Arc::clone(&detector.stored), Arc::clone(&detector.definition));
        let (cutoff, value) = (detector.cutoff, value.map(str::to_owned));
        let score = move || {
            let scored = catch_model_panic(|| span.score(&model))
                .unwrap_or_else(|reason| Err(Error::ModelFailed(reason)));
            Ok(scored.map(|(model, scored)| {
                let mut anomalies = 0;
                let documents: Vec<ScoredDocument> = scored
                    .into_iter()
                    .map(|(bucket, of_bucket, score)| {
                        let time_ms = bucket * frame.ms();
                        let value = value.as_deref();
                        let subject = Subject {
                            detector: &stored,
                            definition: &definition,
                            value,
                            time_ms,
                            frame_ms: time_ms,
                        };
                        let is_anomalous = cutoff.flags(score.rank);
                        anomalies += u64::from(is_anomalous);
                        subject.bucket(of_bucket, &score, is_anomalous)
                    })
                    .collect();
                (Arc::new(model), documents, anomalies)
            }))
        };
        let (model, scored, odd) = shared.engine.compute().run(priority, score).await??;
        documents.extend(scored);
        anomalies += odd;
        models.push((place, model));
    }
    Ok(Some(BucketScores {
        documents,
        anomalies,
        progress: SeriesProgress::at(end.max(before.next), before.bucket_ms),
        models,
    }))
}

/// Buckets that are read, and those of them that are scored.
struct BucketSpan {
    from: i64,
    next: i64,
    late: BTreeSet<i64>,
    buckets: Vec<Option<f64>>,
}

impl BucketSpan {
    /// Scores the buckets from `next` on, and the late ones, where they have a value. Returns the model behind them, too.
    fn score(&self, before: &SeriesModel) -> Result<(SeriesModel, Vec<ScoredBucket>)> {
        let failed = |error: millrace_anomaly::Error| Error::Run(error.to_string());
        let (mut model, mut scores) = (before.clone(), BTreeMap::new());
        for (bucket, value) in (self.from..).zip(self.buckets.iter().copied()) {
            if bucket > model.latest() {
                scores.insert(bucket, model.observe(bucket, value).map_err(failed)?);
                continue;
            }
            // A revision scores the buckets behind it anew, too.
            let is_needed =
                self.is_wanted(bucket) && (self.late.contains(&bucket) || !scores.contains_key(&bucket));
            if is_needed && bucket >= model.oldest_revisable() {
                scores.extend(model.revise(bucket, value).map_err(failed)?);
            }
        }
        let scored =
            (self.from..).zip(self.buckets.iter().copied()).filter(|(bucket, _)| self.is_wanted(*bucket));
        let scored = scored.filter_map(|(bucket, value)| Some((bucket, value?, *scores.get(&bucket)?)));
        let scored = scored.collect();
        Ok((model, scored))
    }

    fn is_wanted(&self, bucket: i64) -> bool {
        bucket >= self.next || self.late.contains(&bucket)
    }
}
