//! Results of rows as JSON text: [`RowResultWriter`] makes the members once that all results of a model share, and writes numbers
//! between them. Results of rows are as many as documents that arrive, times detectors: those of a batch share one buffer.
//!
//! A usual result has the members that tell its score apart from others. An anomaly names its detector and its reasons, too.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_anomaly::RowScore;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::algorithm::ModelType;
use super::definition::DetectorDefinition;
use super::results::{self, ResultIds, ScoredDocument, ScoredEvent, Subject};
use super::stored::StoredDetector;
use crate::time::IsoWriter;

/// Fields that are named as reasons, at most, and the least share of the oddness of each.
const MAX_REASONS: usize = 5;
const LEAST_SHARE: f64 = 0.05;
/// Members of all results of a model that usual ones have, too.
const COMMON_MEMBERS: [&str; 2] = ["rule_uid", "last_updatedtime"];
/// Bytes of a result beside its fields, and of a field, about.
const RESULT_BYTES: usize = 280;
const FIELD_BYTES: usize = 24;

/// The document of a row, as a result needs it.
#[derive(Clone, Debug)]
pub(crate) struct RowDocument {
    pub(crate) index: Arc<str>,
    pub(crate) uuid: Arc<str>,
    pub(crate) id: Arc<str>,
    pub(crate) seq_no: u64,
    pub(crate) time_ms: i64,
    /// Time of the frame that brought it.
    pub(crate) frame_ms: i64,
}

/// A result whose text is in the buffer.
#[derive(Debug)]
struct WrittenResult {
    index: Arc<str>,
    id: String,
    /// End of the text.
    end: usize,
}

/// Writes the results of a batch of a model.
#[derive(Debug)]
pub(crate) struct RowResultWriter<'a> {
    definition: &'a DetectorDefinition,
    /// Text from the name of `ai` to the flag.
    head: String,
    /// Members of anomalies that are the same in all of them.
    of_anomalies: String,
    /// Analysed fields: the text before each number, and its place in the row.
    fields: Vec<(String, usize)>,
    /// Text behind the last number.
    fields_end: String,
    /// Text behind `ai`.
    tail: String,
    /// Names of indices by day.
    indices: HashMap<i64, Arc<str>>,
    ids: ResultIds,
    times: IsoWriter,
    /// Texts of the results, one behind another.
    text: Vec<u8>,
    results: Vec<WrittenResult>,
}

impl<'a> RowResultWriter<'a> {
    /// Makes the writer of so many results of the model of a value, or of all documents.
    pub(crate) fn new(
        detector: &'a StoredDetector,
        definition: &'a DetectorDefinition,
        value: Option<&'a str>,
        rows: usize,
    ) -> Self {
        let subject = Subject { detector, definition, value, time_ms: 0, frame_ms: 0 };
        let mut members = Map::new();
        for (place, field) in definition.fields.iter().enumerate() {
            results::put(&mut members, field, json!(place));
        }
        let (mut fields, mut fields_end) = (Vec::new(), String::new());
        push_fields(&members, &mut fields_end, &mut fields);
        let beside = subject.multiplied();
        let mut shared = subject.shared();
        let of_all: Map<String, Value> =
            COMMON_MEMBERS.iter().filter_map(|name| shared.remove_entry(*name)).collect();
        Self {
            ids: ResultIds::new(&detector.id),
            times: IsoWriter::new(),
            text: Vec::with_capacity(rows * (RESULT_BYTES + FIELD_BYTES * fields.len())),
            results: Vec::with_capacity(rows),
            definition,
            head: format!("\",\"ai\":{{{},\"anomaly_flag\":", members_text(of_all)),
            of_anomalies: members_text(shared),
            fields,
            fields_end,
            tail: if beside.is_empty() { "}".to_owned() } else { format!(",{}}}", members_text(beside)) },
            indices: HashMap::new(),
        }
    }

    /// Writes the result of a row.
    pub(crate) fn write(
        &mut self,
        document: &RowDocument,
        row: &[f64],
        score: &RowScore,
        is_anomalous: bool,
    ) {
        let mut text = std::mem::take(&mut self.text);
        text.extend_from_slice(b"{\"source_index\":");
        push(&mut text, &*document.index);
        text.extend_from_slice(b",\"source_id\":");
        push(&mut text, &*document.id);
        text.extend_from_slice(b",\"@timestamp\":\"");
        self.times.push(document.time_ms, &mut text);
        text.extend_from_slice(self.head.as_bytes());
        push(&mut text, &is_anomalous);
        text.extend_from_slice(b",\"anomaly_score\":");
        push(&mut text, &score.rank);
        text.push(b',');
        for (before, place) in &self.fields {
            text.extend_from_slice(before.as_bytes());
            push(&mut text, &row.get(*place).copied().unwrap_or(f64::NAN));
        }
        text.extend_from_slice(self.fields_end.as_bytes());
        if self.definition.model_type == ModelType::Clustering {
            text.extend_from_slice(b",\"cluster\":");
            push(&mut text, &score.cluster);
        }
        if is_anomalous {
            text.push(b',');
            text.extend_from_slice(self.of_anomalies.as_bytes());
            text.extend_from_slice(b",\"raw_score\":");
            push(&mut text, &score.raw);
            text.extend_from_slice(b",\"reasons\":");
            push(&mut text, &self.reasons(&score.contributions));
        }
        text.push(b'}');
        text.extend_from_slice(self.tail.as_bytes());
        let event = ScoredEvent {
            index: &document.index,
            uuid: &document.uuid,
            id: &document.id,
            seq_no: document.seq_no,
        };
        let result =
            WrittenResult { index: self.index(document), id: self.ids.of(&event.id()), end: text.len() };
        self.results.push(result);
        self.text = text;
    }

    /// Returns the results, in the order of their rows.
    pub(crate) fn finish(self) -> impl Iterator<Item = ScoredDocument> {
        let (texts, mut begin) = (Bytes::from(self.text), 0);
        self.results.into_iter().map(move |WrittenResult { index, id, end }| {
            let source = texts.slice(begin..end);
            begin = end;
            ScoredDocument { index, id, source }
        })
    }

    fn index(&mut self, document: &RowDocument) -> Arc<str> {
        let of_ms = results::index_ms(document.time_ms, document.frame_ms);
        let name = || results::index_of_day(self.definition, of_ms).into();
        Arc::clone(self.indices.entry(results::day_number(of_ms)).or_insert_with(name))
    }

    fn reasons(&self, contributions: &[f64]) -> Value {
        let mut shares: Vec<(&String, f64)> =
            self.definition.fields.iter().zip(contributions.iter().copied()).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        let named = shares.into_iter().filter(|(_, share)| *share >= LEAST_SHARE).take(MAX_REASONS);
        named.map(|(field, share)| json!({"field": field, "contribution": share})).collect()
    }
}

/// Writes a value as JSON; numbers that are not finite are `null`.
fn push(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let before = text.len();
    if serde_json::to_writer(&mut *text, value).is_err() {
        text.truncate(before);
        text.extend_from_slice(b"null");
    }
}

/// Returns the members of an object as text, without the braces.
fn members_text(members: Map<String, Value>) -> String {
    let text = Value::Object(members).to_string();
    text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().to_owned()
}

/// Adds the texts before each number of nested members, and leaves the text behind the last one in `text`.
fn push_fields(members: &Map<String, Value>, text: &mut String, fields: &mut Vec<(String, usize)>) {
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        match value {
            Value::Object(within) => {
                text.push('{');
                push_fields(within, text, fields);
                text.push('}');
            }
            place => fields.push((std::mem::take(text), place.as_u64().unwrap_or_default() as usize)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::stored::DetectorState;

    fn write(members: Value, row: &[f64], score: &RowScore, is_anomalous: bool) -> (Arc<str>, Value) {
        let mut body = json!({
            "name": "a \"name\"", "index": "logs-*", "query": {"match_all": {}}, "time_field": "@timestamp",
            "time_frame": "1 day", "value_type": "avg", "model_type": "multivariate", "automatic_cron": "0 0 1 1 *",
            "automatic_enable": true, "automatic": true, "multiply_by_values": [], "multiply_by_field": "none",
        });
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let definition = DetectorDefinition::parse(&body).unwrap();
        let stored = StoredDetector::new("r1".to_owned(), definition, DetectorState::default());
        let definition = Arc::clone(&stored.definition);
        let document = RowDocument {
            index: "logs-\"1\"".into(),
            uuid: "u".into(),
            id: "d\n1".into(),
            seq_no: 7,
            time_ms: 1_772_445_600_000,
            frame_ms: 1_772_445_600_500,
        };
        let value = definition.values()[0];
        let mut writer = RowResultWriter::new(&stored, &definition, value, 2);
        let of_before = RowScore { raw: 0.0, rank: 0.0, contributions: Vec::new(), cluster: None };
        writer.write(&document, row, &of_before, false);
        writer.write(&document, row, score, is_anomalous);
        let written: Vec<ScoredDocument> = writer.finish().collect();
        assert_eq!((written.len(), &written[0].id), (2, &written[1].id));
        (Arc::clone(&written[1].index), serde_json::from_slice(&written[1].source).unwrap())
    }

    #[test]
    fn results_have_the_fields_at_their_paths() {
        let score = RowScore { raw: 0.5, rank: 0.25, contributions: Vec::new(), cluster: None };
        let fields = json!({"fields": ["net.in", "cpu", "net.out.x"]});
        let (index, written) = write(fields, &[1.5, f64::NAN, -3.0], &score, false);
        assert_eq!(&*index, "logs-multivariate-anomaly-2026.03.02");
        let ai = json!({
            "rule_uid": "r1", "last_updatedtime": "1970-01-01T00:00:00.000Z", "anomaly_flag": false, "anomaly_score": 0.25,
            "net": {"in": 1.5, "out": {"x": -3.0}}, "cpu": null,
        });
        let expected = json!({
            "source_index": "logs-\"1\"", "source_id": "d\n1", "@timestamp": "2026-03-02T10:00:00.000Z", "ai": ai,
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn anomalies_have_reasons_and_name_their_detector_and_value() {
        let contributions = vec![0.04, 0.66, 0.3];
        let score = RowScore { raw: 2.0, rank: 1.0, contributions, cluster: Some(3) };
        let members = json!({
            "model_type": "clustering", "fields": ["a", "b", "c"], "multiply_by_field": "host", "multiply_by_values": ["h1"],
        });
        let (_, written) = write(members, &[1.0, 2.0, 3.0], &score, true);
        let reasons = json!([{"field": "b", "contribution": 0.66}, {"field": "c", "contribution": 0.3}]);
        assert_eq!(written["ai"]["reasons"], reasons);
        let detector =
            [&written["ai"]["rule_name"], &written["ai"]["model_type"], &written["ai"]["algorithm"]];
        assert_eq!(detector, [&json!("a \"name\""), &json!("clustering"), &json!("kmeans")]);
        assert_eq!(written["ai"]["raw_score"], 2.0);
        assert_eq!((&written["ai"]["cluster"], &written["ai"]["anomaly_flag"]), (&json!(3), &json!(true)));
        assert_eq!(
            (&written["multiply_by_field"], &written["multiply_by_value"]),
            (&json!("host"), &json!("h1"))
        );
    }
}
