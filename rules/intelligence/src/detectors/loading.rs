//! Detectors taken into memory: [`load`] reads the models that serve, [`match_request`] says which documents they are asked of.

use std::sync::Arc;

use millrace_percolator::MatchRequest;
use millrace_runtime::Priority;
use serde_json::json;

use super::model::{self, ModelSnapshot};
use super::scoring::{LiveDetector, ScoringTally, SeriesProgress, ValueModel};
use super::stored::StoredDetector;
use super::training;
use crate::IntelligenceContext;
use crate::error::Result;

/// Makes the request that the documents of a detector match.
pub(super) fn match_request(detector: &LiveDetector) -> MatchRequest {
    let definition = &detector.definition;
    let expression = definition.expression();
    MatchRequest {
        id: detector.stored.id.clone(),
        owner: detector.stored.state.serving_owner.clone(),
        parts: expression.split(',').filter(|part| !part.starts_with('-')).map(str::to_owned).collect(),
        expression,
        body: json!({"query": definition.query}),
        second: None,
        include_updates: false,
        allow_alerts: false,
        timestamp_field: definition.time_field.clone(),
    }
}

/// Reads the models of a detector that serve; `None` where one of them cannot be used, so that they are trained anew.
///
/// # Errors
/// The store's.
pub(super) async fn load(
    shared: &IntelligenceContext,
    stored: &Arc<StoredDetector>,
) -> Result<Option<LiveDetector>> {
    let Some(definition) = stored.serving.clone() else { return Ok(None) };
    let mut files = Vec::new();
    for place in 0..definition.values().len() {
        let name = training::model_name(stored.state.build, place);
        files.push(shared.artefacts.read_bytes(&stored.id, &name).await);
    }
    let failed: Vec<usize> = stored.state.untrained.clone();
    let decode = move || {
        let decoded = files.into_iter().enumerate().map(|(place, bytes)| match bytes {
            Some(bytes) => ModelSnapshot::decode(&bytes).map(Some),
            None if failed.contains(&place) => Ok(None),
            None => Err("its file is missing".to_owned()),
        });
        Ok(decoded.collect::<Result<Vec<_>, String>>())
    };
    let snapshots = match shared.engine.compute().run(Priority::Background, decode).await? {
        Ok(snapshots) => snapshots,
        Err(reason) => {
            tracing::warn!(rule = stored.id, reason, "a stored model cannot be used: it is trained anew");
            return Ok(None);
        }
    };
    let observed = snapshots.iter().flatten().map(|snapshot| snapshot.next_frame).min().unwrap_or(0);
    let models = snapshots.into_iter().map(|snapshot| ValueModel::new(snapshot?.model)).collect();
    #[cfg(test)]
    let models = match definition.name.starts_with("broken") {
        true => vec![Some(ValueModel::Broken)],
        false => models,
    };
    let since = stored.state.since.unwrap_or(0);
    Ok(Some(LiveDetector {
        cutoff: model::cutoff(&definition)?,
        definition,
        models,
        since,
        observed,
        progress: SeriesProgress::default(),
        tally: ScoringTally { problem: None, ..shared.detectors.tally(&stored.id) },
        has_observed: false,
        failure: None,
        stored: Arc::clone(stored),
    }))
}

/// Returns the number of the first bucket that a detector scores: that of `start_date`, or the first behind its training.
pub(super) fn first_bucket(detector: &LiveDetector) -> i64 {
    let latest = detector.models.iter().flatten().filter_map(|model| match model {
        ValueModel::Series(model) => Some(model.latest() + 1),
        _ => None,
    });
    let behind = latest.max().unwrap_or(0);
    let start =
        detector.definition.start_ms.map(|ms| ms.div_euclid(detector.definition.window.bucket().ms()));
    start.map_or(behind, |start| start.min(behind))
}
