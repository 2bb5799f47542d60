//! Results of detectors: a document for each scored document or bucket, in an index for each source, model type and day.
//!
//! The `_id` of a result is a digest of the detector and of its subject: a document that is scored again has the same id. The index of
//! a result follows from its subject alone, too, so that a revision meets the document that it revises. Results of rows are written by
//! [`row_results`](super::row_results).

use std::sync::Arc;

use bytes::Bytes;
use millrace_anomaly::{SeriesScore, TextScore};
use millrace_engine::Engine;
use millrace_rules::hex;
use millrace_runtime::Error as StorageError;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::algorithm::ModelType;
use super::definition::DetectorDefinition;
use super::stored::StoredDetector;
use crate::error::{Error, Result};
use crate::time;

/// Members of `ai` that are not values of analysed fields.
pub(crate) const OWN_MEMBERS: [&str; 18] = [
    "rule_uid",
    "rule_name",
    "model_type",
    "algorithm",
    "last_updatedtime",
    "anomaly_flag",
    "anomaly_score",
    "raw_score",
    "cluster",
    "reasons",
    "expected",
    "lower",
    "upper",
    "template",
    "template_id",
    "new_template",
    "rate",
    "novelty",
];
/// Longest source within the name of an index, in bytes.
const MAX_SOURCE_BYTES: usize = 150;
/// Longest text of a line in a result, in characters.
const MAX_LINE: usize = 8_192;
/// Bytes of a digest that are the id of a result.
const ID_BYTES: usize = 16;
/// A result is in the index of its event's day if this day is that near to the day of its frame; else in that of the frame's day.
const MAX_DAYS_APART: i64 = 31;
const DAY_MS: i64 = 86_400_000;

/// A result that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct ScoredDocument {
    pub(crate) index: Arc<str>,
    pub(crate) id: String,
    pub(crate) source: Bytes,
}

/// Subject of a result.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) detector: &'a StoredDetector,
    pub(crate) definition: &'a DetectorDefinition,
    pub(crate) value: Option<&'a str>,
    pub(crate) time_ms: i64,
    /// Time of the frame that brought it, or of the bucket.
    pub(crate) frame_ms: i64,
}

/// Names the source of results in the names of their indices.
fn source_name(pattern: &str) -> String {
    let first = pattern.split(',').next().unwrap_or_default().to_lowercase();
    let literal: Vec<&str> = first
        .split('*')
        .map(|part| part.trim_matches(['-', '_', '.', '+']))
        .filter(|part| !part.is_empty())
        .collect();
    let name = literal.join("-");
    match name.is_empty() || first == "_all" {
        true => "all".to_owned(),
        false => name
            .chars()
            .scan(0, |bytes, one| {
                *bytes += one.len_utf8();
                (*bytes <= MAX_SOURCE_BYTES).then_some(one)
            })
            .collect(),
    }
}

/// Returns the beginning of the names of the indices of results of a source.
pub(crate) fn index_prefix(index: &str, model_type: ModelType) -> String {
    format!("{}-{}-anomaly-", source_name(index), model_type.name())
}

/// Names the indices of a detector's results, of all days.
pub(crate) fn index_pattern(definition: &DetectorDefinition) -> String {
    format!("{}*", definition.result_prefix)
}

/// Returns the time whose day a result's index has: that of its event, or of its frame where the event is far away.
pub(super) fn index_ms(time_ms: i64, frame_ms: i64) -> i64 {
    let is_near = (day_number(time_ms) - day_number(frame_ms)).abs() <= MAX_DAYS_APART;
    if is_near { time_ms } else { frame_ms }
}

/// Returns the number of the day of a time.
pub(super) fn day_number(time_ms: i64) -> i64 {
    time_ms.div_euclid(DAY_MS)
}

/// Ids of the results of a detector: 128 bits of a digest of the detector and the subject.
#[derive(Debug)]
pub(super) struct ResultIds {
    /// The digested text, which begins with the detector.
    text: Vec<u8>,
    detector_bytes: usize,
}

impl ResultIds {
    pub(super) fn new(detector: &str) -> Self {
        let mut text = b"[".to_vec();
        text.extend(serde_json::to_vec(detector).unwrap_or_default());
        text.push(b',');
        Self { detector_bytes: text.len(), text }
    }

    /// Returns the id of the result of a subject.
    pub(super) fn of(&mut self, subject: &impl Serialize) -> String {
        self.text.truncate(self.detector_bytes);
        if serde_json::to_writer(&mut self.text, subject).is_err() {
            self.text.truncate(self.detector_bytes);
        }
        self.text.push(b']');
        hex(&digest(&SHA256, &self.text).as_ref()[..ID_BYTES])
    }
}

/// Names the index of a detector's results of the day of a time.
pub(super) fn index_of_day(definition: &DetectorDefinition, time_ms: i64) -> String {
    format!("{}{}", definition.result_prefix, time::day(time_ms))
}

/// Checks that the index of a detector's results of a time is there or can be made.
///
/// # Errors
/// [`Error::Invalid`] of `index`, with the name and the reason.
pub(crate) fn check_index(engine: &Engine, definition: &DetectorDefinition, now_ms: i64) -> Result<()> {
    let name = index_of_day(definition, now_ms);
    match engine.metadata().create_index(&name, &index_body(), now_ms, Uuid::new_v4()) {
        Ok(_) | Err(StorageError::IndexAlreadyExists { .. }) => Ok(()),
        Err(error) => {
            let reason = format!("gives results the index [{name}], which cannot be made: {error}");
            Err(Error::invalid("index", reason))
        }
    }
}

impl Subject<'_> {
    fn index(&self) -> Arc<str> {
        index_of_day(self.definition, index_ms(self.time_ms, self.frame_ms)).into()
    }

    /// Makes the members of `ai` that all results of a model have.
    pub(super) fn shared(&self) -> Map<String, Value> {
        let Self { detector, definition, .. } = self;
        let trained_ms = detector.state.model.as_ref().map_or(0, |model| model.trained_ms);
        let mut ai = Map::new();
        for (name, of) in [
            ("rule_uid", json!(detector.id)),
            ("rule_name", json!(definition.name)),
            ("model_type", json!(definition.model_type.name())),
            ("algorithm", json!(definition.algorithm.name())),
            ("last_updatedtime", json!(time::iso(trained_ms))),
        ] {
            ai.insert(name.to_owned(), of);
        }
        ai
    }

    /// Makes the members that tell the value of a model.
    pub(super) fn multiplied(&self) -> Map<String, Value> {
        let mut members = Map::new();
        if let (Some(field), Some(value)) = (&self.definition.multiply_by, self.value) {
            members.insert("multiply_by_field".to_owned(), json!(field));
            members.insert("multiply_by_value".to_owned(), json!(value));
        }
        members
    }

    /// Makes the members that results of each model type have.
    fn common(&self, is_anomalous: bool, rank: f64, raw: f64) -> Map<String, Value> {
        let mut ai = self.shared();
        ai.insert("anomaly_flag".to_owned(), json!(is_anomalous));
        ai.insert("anomaly_score".to_owned(), json!(rank));
        ai.insert("raw_score".to_owned(), json!(raw));
        ai
    }

    fn finish(
        &self,
        ai: Map<String, Value>,
        id: &impl Serialize,
        mut beside: Map<String, Value>,
    ) -> ScoredDocument {
        beside.insert("@timestamp".to_owned(), json!(time::iso(self.time_ms)));
        beside.insert("ai".to_owned(), Value::Object(ai));
        beside.extend(self.multiplied());
        let id = ResultIds::new(&self.detector.id).of(id);
        ScoredDocument { index: self.index(), id, source: Bytes::from(Value::Object(beside).to_string()) }
    }

    /// Makes the result of a line.
    pub(crate) fn line(
        &self,
        document: &ScoredEvent<'_>,
        line: &str,
        template: Option<String>,
        score: &TextScore,
        is_anomalous: bool,
    ) -> ScoredDocument {
        let mut ai = self.common(is_anomalous, score.rank, score.raw);
        put(&mut ai, self.definition.field(), json!(line.chars().take(MAX_LINE).collect::<String>()));
        for (name, of) in [
            ("template_id", json!(score.template)),
            ("template", json!(template)),
            ("new_template", json!(score.is_new)),
            ("rate", json!(score.rate)),
            ("novelty", json!(score.novelty)),
        ] {
            ai.insert(name.to_owned(), of);
        }
        let reason = match (score.is_new, score.rate >= score.novelty) {
            (true, _) => "the template is new",
            (_, true) => "the template is unusually frequent",
            _ => "the line has unusual words",
        };
        let reasons = is_anomalous.then(|| json!({"reason": reason})).into_iter().collect();
        ai.insert("reasons".to_owned(), Value::Array(reasons));
        self.finish(ai, &document.id(), document.members())
    }

    /// Makes the result of a bucket.
    pub(crate) fn bucket(&self, value: f64, score: &SeriesScore, is_anomalous: bool) -> ScoredDocument {
        let mut ai = self.common(is_anomalous, score.rank, score.raw);
        put(&mut ai, self.definition.field(), json!(value));
        for (name, of) in [("expected", score.expected), ("lower", score.lower), ("upper", score.upper)] {
            ai.insert(name.to_owned(), json!(of));
        }
        let reason = match (value > score.upper, value < score.lower) {
            (true, _) => "above the expected range",
            (_, true) => "below the expected range",
            _ => "an unusual value",
        };
        let reasons = is_anomalous.then(|| json!({"reason": reason})).into_iter().collect();
        ai.insert("reasons".to_owned(), Value::Array(reasons));
        self.finish(ai, &(self.value, self.time_ms), Map::new())
    }
}

/// The document that a result is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoredEvent<'a> {
    pub(crate) index: &'a str,
    pub(crate) uuid: &'a str,
    pub(crate) id: &'a str,
    pub(crate) seq_no: u64,
}

impl ScoredEvent<'_> {
    pub(super) fn id(&self) -> (&str, &str, u64) {
        (self.uuid, self.id, self.seq_no)
    }

    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("source_index".to_owned(), json!(self.index));
        members.insert("source_id".to_owned(), json!(self.id));
        members
    }
}

/// Puts a value at the path of a field; a path through a value that is there already is left out.
pub(super) fn put(members: &mut Map<String, Value>, field: &str, value: Value) {
    match field.split_once('.') {
        None => drop(members.insert(field.to_owned(), value)),
        Some((first, rest)) => {
            if let Value::Object(within) = members.entry(first).or_insert_with(|| json!({})) {
                put(within, rest, value);
            }
        }
    }
}

/// Makes the index of results where it is missing.
///
/// # Errors
/// The store's.
pub(crate) async fn make_index(engine: &Engine, name: &str) -> Result<()> {
    match engine.index(name) {
        Err(StorageError::IndexNotFound { .. }) => {
            engine.make_own_index(name, &index_body()).await?;
            Ok(())
        }
        // A closed index refuses the write itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    let words = json!({"type": "text", "fields": {"keyword": keyword}});
    let (date, double, flag) =
        (json!({"type": "date"}), json!({"type": "double"}), json!({"type": "boolean"}));
    json!({
        "settings": {
            "index.number_of_shards": 1,
            "index.number_of_replicas": 0,
            // Results of many detectors come quickly: a small memtable bounds the memory of its flush.
            "index.translog.flush_threshold_size": "16mb",
            // There is one result for each document and detector: the time of their compression counts more than their size.
            "index.codec": "zstd",
            "index.codec.compression_level": 1,
        },
        "mappings": {
            // The first value of a field may be an integer by chance.
            "dynamic_templates": [{"numbers": {"match_mapping_type": "long", "mapping": double}}],
            "properties": {
                "@timestamp": date,
                "source_index": keyword,
                "source_id": keyword,
                "multiply_by_field": keyword,
                "multiply_by_value": keyword,
                "ai": {"properties": {
                    "rule_uid": keyword,
                    "rule_name": words,
                    "model_type": keyword,
                    "algorithm": keyword,
                    "last_updatedtime": date,
                    "anomaly_flag": flag,
                    "anomaly_score": double,
                    "raw_score": double,
                    "cluster": {"type": "long"},
                    "expected": double,
                    "lower": double,
                    "upper": double,
                    "template": words,
                    "template_id": {"type": "long"},
                    "new_template": flag,
                    "rate": double,
                    "novelty": double,
                    "reasons": {"properties": {"field": keyword, "contribution": double, "reason": keyword}},
                }},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_named_by_their_source() {
        for (pattern, expected) in [
            ("logs-*", "logs"),
            ("logs", "logs"),
            ("*", "all"),
            ("_all", "all"),
            ("a-*-b,c", "a-b"),
            ("-*", "all"),
            (&"x".repeat(300), &"x".repeat(150)),
        ] {
            assert_eq!(source_name(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn ids_are_digests_of_detector_and_subject() {
        let (detector, subjects) = ("a\"b", [("u", "d1", 7), ("u", "d\n2", 8)]);
        let mut ids = ResultIds::new(detector);
        for subject in subjects {
            let id = ids.of(&subject);
            assert_eq!(
                (id.len(), crate::source::digest_of(&(detector, subject)).starts_with(&id)),
                (32, true)
            );
        }
    }

    #[test]
    fn values_stay_at_their_paths() {
        let mut members = Map::new();
        put(&mut members, "a.b", json!(1));
        put(&mut members, "a.c.d", json!(2));
        put(&mut members, "a.b.e", json!(3));
        assert_eq!(Value::Object(members), json!({"a": {"b": 1, "c": {"d": 2}}}));
    }
}
