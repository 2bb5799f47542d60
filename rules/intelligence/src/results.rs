//! Predictions as documents of `intelligence`, which nobody else writes.
//!
//! A document is one predicted bucket: what was predicted in `<field>_pre`, and once the bucket is over what it was in `<field>_cur`, both
//! where the field is, so that `a.b` becomes `{"a": {"b_pre": …, "b_cur": …}}`. Its `_id` is made of the rule's name, the algorithm, the time
//! from which was predicted and the predicted time, so that a run that is repeated writes the same documents.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Metadata};
use millrace_engine::{
    Action, Engine, Precondition, RefreshPolicy, SystemDocument, SystemDocuments, Update, WriteOp,
};
use millrace_runtime::Error as StorageError;
use serde_json::{Map, Value, json};

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::source::digest_of;
use crate::store::StoredRule;
use crate::time;

/// The index.
pub(crate) const INDEX: &str = "intelligence";
/// First members of its documents that are not those of a predicted field.
pub(crate) const OWN_FIELDS: [&str; 20] = [
    "@timestamp",
    "model_name",
    "model_uid",
    "machine_state_uid",
    "series_uid",
    "predictionUID",
    "method_name",
    "processing_time",
    "start_date",
    "rmse",
    "rmse_normalized",
    "overall_efficiency",
    "linear_function_a",
    "linear_function_b",
    "threshold",
    "threshold_time",
    "multiply_by_field",
    "multiply_by_value",
    "time_frame",
    "roles",
];
/// The field that names what is predicted ([`series_uid`]).
const SERIES_UID: &str = "series_uid";
/// Endings of the names that predicted fields have here.
pub(crate) const ENDINGS: [&str; 2] = ["_pre", "_cur"];
/// Parts of a field's name, at most: the mapping has an object for each but the last.
pub(crate) const MAX_PARTS: usize = 20;
/// Fields of the mapping: each predicted one has two, and objects.
const MAX_FIELDS: usize = 20_000;
/// Documents of a write.
const BATCH: usize = 2_000;

/// The document of a predicted bucket, as JSON.
pub(crate) struct Prediction(Bytes);

impl SystemDocument for Prediction {
    const INDEX: &'static str = INDEX;
    const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

    fn index_body() -> Value {
        index_body()
    }

    fn encode(&self) -> Bytes {
        self.0.clone()
    }

    fn decode(_: &str, source: &Bytes) -> Result<Self, String> {
        Ok(Self(source.clone()))
    }
}

fn limits() -> Value {
    json!({"index.mapping.total_fields.limit": MAX_FIELDS, "index.mapping.depth.limit": MAX_PARTS})
}

fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    let words = json!({"type": "text", "fields": {"keyword": keyword}});
    let (date, double) = (json!({"type": "date"}), json!({"type": "double"}));
    let of_field = |ending: &str| json!({"match": format!("*_{ending}"), "mapping": double});
    let mut settings = limits();
    (settings["index.number_of_shards"], settings["index.number_of_replicas"]) = (json!(1), json!(0));
    json!({
        "settings": settings,
        "mappings": {
            "dynamic_templates": [
                {"predicted": of_field("pre")},
                {"current": of_field("cur")},
                {"lower": of_field("lower*")},
                {"upper": of_field("upper*")},
            ],
            "properties": {
                "@timestamp": date,
                "start_date": date,
                "threshold_time": date,
                "model_name": words,
                "model_uid": keyword,
                "machine_state_uid": keyword,
                "series_uid": keyword,
                "predictionUID": keyword,
                "method_name": keyword,
                "time_frame": keyword,
                "multiply_by_field": keyword,
                "multiply_by_value": keyword,
                "roles": keyword,
                "processing_time": double,
                "rmse": double,
                "rmse_normalized": double,
                "overall_efficiency": double,
                "linear_function_a": double,
                "linear_function_b": double,
                "threshold": double,
            },
        },
    })
}

/// Has an index that is there already take what a new one does: as many fields, where nobody has set a limit, and `series_uid`.
pub(crate) async fn bring_up_to_date(engine: &Engine) {
    let Ok(index) = engine.index(INDEX) else { return };
    let (principal, options, limits) = (Principal::system(), IndicesOptions::open_only(), limits());
    let now_ms = engine.clock().now_ms();
    let decide = |metadata: &Metadata| metadata.update_settings(INDEX, &options, &limits, true, now_ms);
    if let Err(error) = engine.change(&principal, decide).await {
        tracing::warn!(index = INDEX, %error, "predictions of many different fields may find no room");
    }
    if index.mapping().field(SERIES_UID).is_none() {
        let mapping = json!({"properties": {SERIES_UID: index_body()["mappings"]["properties"][SERIES_UID]}});
        if let Err(error) = engine.put_mapping(&principal, INDEX, &mapping).await {
            tracing::warn!(index = INDEX, %error, "predictions may not get to know what became of them");
        }
    }
}

/// Names the state of a model: the predictions from a time.
pub(crate) fn machine_state_uid(definition: &Definition, value: Option<&str>, origin_ms: i64) -> String {
    let value = value.map_or_else(String::new, |value| format!("[{value}]"));
    let (name, algorithm) = (&definition.name, definition.algorithm);
    format!("{name}{value}_{algorithm}_{}", time::underscored(origin_ms))
}

/// Names the predicted series: predictions of the same series get their `_cur` from the same buckets, through all other changes
/// of the rule.
pub(crate) fn series_uid(kept: &StoredRule) -> String {
    let Definition { field, value_type, frame, multiply_by, .. } = &*kept.definition;
    digest_of(&json!([kept.state.search_digest, field, value_type.name(), frame.name(), multiply_by]))
}

/// Makes the condition on predictions of what a rule predicts. Those of a version before do not name it: they are known by field and bucket.
pub(crate) fn of_series(kept: &StoredRule) -> Value {
    let Definition { field, frame, multiply_by, .. } = &*kept.definition;
    let mut before = vec![
        json!({"exists": {"field": format!("{field}_pre")}}),
        json!({"term": {"time_frame": frame.name()}}),
    ];
    if let Some(by) = multiply_by {
        before.push(json!({"bool": {"should": [{"term": {"multiply_by_field": by}}, of_value(None)]}}));
    }
    json!({"bool": {"should": [
        {"term": {SERIES_UID: series_uid(kept)}},
        {"bool": {"filter": before, "must_not": {"exists": {"field": SERIES_UID}}}},
    ]}})
}

/// Makes the condition on predictions of a value of `multiply_by_field`, or of all documents together.
pub(crate) fn of_value(value: Option<&str>) -> Value {
    match value {
        Some(value) => json!({"term": {"multiply_by_value": value}}),
        None => json!({"bool": {"must_not": {"exists": {"field": "multiply_by_value"}}}}),
    }
}

/// Names a prediction.
pub(crate) fn prediction_uid(machine_state_uid: &str, predicted_ms: i64) -> String {
    format!("{machine_state_uid}_{}", time::packed(predicted_ms))
}

/// Makes `{"a": {"b_pre": 5}}` of `a.b`, `pre` and 5.
pub(crate) fn put(document: &mut Map<String, Value>, field: &str, ending: &str, value: f64) {
    let (mut at, mut rest) = (document, field);
    while let Some((first, behind)) = rest.split_once('.') {
        let within = at.entry(first).or_insert_with(|| json!({}));
        let Value::Object(within) = within else { return };
        (at, rest) = (within, behind);
    }
    at.insert(format!("{rest}_{ending}"), json!(value));
}

/// Reads what [`put`] wrote.
pub(crate) fn take(document: &Value, field: &str, ending: &str) -> Option<f64> {
    let (within, last) = field.rsplit_once('.').map_or((None, field), |(within, last)| (Some(within), last));
    let mut at = document;
    for part in within.into_iter().flat_map(|within| within.split('.')) {
        at = at.get(part)?;
    }
    at.get(format!("{last}_{ending}"))?.as_f64()
}

/// Writes predictions by their ids, and counts in `written` those that are stored.
///
/// # Errors
/// The store's; [`Error::Stored`] with the first document that is refused. Others of its batch are stored, those of later ones are not.
pub(crate) async fn write(
    engine: &Arc<Engine>,
    documents: Vec<(String, Bytes)>,
    written: &mut usize,
) -> Result<()> {
    let put = |(id, document)| Prediction::put_op(Some(id), document, Precondition::Any);
    in_batches(engine, documents.into_iter().map(put).collect(), written).await
}

/// Makes what was written visible to searches.
///
/// # Errors
/// The store's.
pub(crate) async fn refresh(engine: &Engine) -> Result<()> {
    match engine.index(INDEX) {
        Ok(index) => Ok(engine.refresh(&[index]).await?),
        Err(_) => Ok(()),
    }
}

/// Writes what became of predictions into their documents; those that are gone meanwhile are left out. Nobody else changes them, but for a run
/// that is repeated: where one was in between, it is an error, and for the next time.
///
/// # Errors
/// As [`write`].
pub(crate) async fn fill(engine: &Arc<Engine>, found: Vec<(String, Value)>) -> Result<()> {
    // Without retries all of them are one frame of the log.
    let update =
        |document: Value| Update { doc: Some(document.into()), detect_noop: true, ..Update::default() };
    let ops = found
        .into_iter()
        .map(|(id, document)| WriteOp::new(INDEX, Some(id), Action::Update(Box::new(update(document)))));
    in_batches(engine, ops.collect(), &mut 0).await
}

async fn in_batches(engine: &Arc<Engine>, mut ops: Vec<WriteOp>, written: &mut usize) -> Result<()> {
    let predictions = SystemDocuments::<Prediction>::with_principal(engine, Principal::of_rules(INDEX));
    while !ops.is_empty() {
        let rest = ops.split_off(ops.len().min(BATCH));
        let results = predictions.write(ops, RefreshPolicy::None).await?;
        let mut refused = None;
        for result in results {
            match result {
                Ok(_) => *written += 1,
                Err(StorageError::DocumentMissing { .. }) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(Error::Stored(format!("a prediction cannot be stored in [{INDEX}]: {error}")));
        }
        ops = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::tests::body;

    #[test]
    fn names_are_made_of_rule_algorithm_and_times() {
        let definition = Definition::parse(&body()).unwrap();
        let state = machine_state_uid(&definition, None, 1_769_853_600_000);
        assert_eq!(state, "cpu_TL_20260131_100000");
        assert_eq!(prediction_uid(&state, 1_769_857_200_000), "cpu_TL_20260131_100000_20260131110000");
        assert_eq!(machine_state_uid(&definition, Some("a"), 0), "cpu[a]_TL_19700101_000000");
    }

    #[test]
    fn fields_stay_where_they_are() {
        let mut document = Map::new();
        put(&mut document, "a.b.c", "pre", 1.5);
        put(&mut document, "a.b.c", "cur", 2.0);
        put(&mut document, "d", "pre", 3.0);
        let document = Value::Object(document);
        assert_eq!(document, json!({"a": {"b": {"c_pre": 1.5, "c_cur": 2.0}}, "d_pre": 3.0}));
        assert_eq!(take(&document, "a.b.c", "cur"), Some(2.0));
        assert_eq!((take(&document, "d", "pre"), take(&document, "a.x", "pre")), (Some(3.0), None));
    }
}
