//! The answer of a search, written as bytes: sources go in verbatim.

use bytes::Bytes;
use millrace_dsl::query::Query;
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::order::number;
use millrace_storage::segment::StoredRow;
use millrace_work::error::{Error, Result, ShardFailure};
use millrace_work::{PARSED_SHARE, Work, bytes_of, bytes_of_members};
use serde_json::{Value, json};

use crate::fetch::phases::{Extras, Phases};

/// Name of the one node, where answers name it.
pub(crate) const NODE: &str = "millrace";

/// One hit.
#[derive(Debug)]
pub struct Hit {
    /// Concrete index.
    pub index: String,
    /// Which element of the document it is, if it is one.
    pub nested: Option<Value>,
    /// Id, version, source and the like.
    pub row: StoredRow,
    /// Score; `null` where not computed.
    pub score: Option<f32>,
    /// Sort values, where the request asked for an order.
    pub sort: Option<Value>,
    /// Names of matching clauses, with their scores.
    pub matched_queries: Vec<(String, f32)>,
    /// Fields and highlights.
    pub extras: Extras,
    /// Hits below this one.
    pub inner_hits: Vec<InnerHitList>,
    /// How it got its score, and the shard that it comes from, where asked for.
    pub explanation: Option<(Value, String)>,
}

/// Which parts of a hit are shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Part of the source.
    pub source: SourceFilter,
    /// Whether ids are shown.
    pub id: bool,
    /// Whether versions are shown.
    pub version: bool,
    /// Whether sequence number and primary term are shown.
    pub seq_no: bool,
    /// The filter of hits, whose names are shown too.
    pub post_filter: Option<Query>,
    /// Whether the scores of named clauses are shown.
    pub matched_scores: bool,
    /// What else is.
    pub phases: Phases,
}

impl Shown {
    /// Shows nothing of hits, as of none.
    pub fn nothing() -> Self {
        Self {
            source: SourceFilter::None,
            id: false,
            version: false,
            seq_no: false,
            post_filter: None,
            matched_scores: false,
            phases: Phases::default(),
        }
    }
}

/// Hits with what is said of all of them.
#[derive(Debug, Default)]
pub struct HitList {
    /// Matches, and whether there are more; absent where not counted.
    pub total: Option<(u64, bool)>,
    /// Greatest score.
    pub max_score: Option<f32>,
    /// Hits in order.
    pub hits: Vec<Hit>,
}

/// Hits below a hit.
#[derive(Debug)]
pub struct InnerHitList {
    /// Name under which they are shown.
    pub name: String,
    /// They.
    pub list: HitList,
    /// Which parts of them are shown.
    pub shown: Shown,
}

/// The answer of a search.
#[derive(Debug)]
pub struct Answer {
    /// Milliseconds it took.
    pub took_ms: i64,
    /// Whether time was over before the end.
    pub timed_out: bool,
    /// Whether shards stopped early; absent where not asked for.
    pub terminated_early: Option<bool>,
    /// Number of shards.
    pub shards: u32,
    /// Shards that could not answer.
    pub failures: Vec<ShardFailure>,
    /// Whether totals are bare numbers.
    pub total_as_int: bool,
    /// The hits.
    pub list: HitList,
    /// Scroll to go on with.
    pub scroll_id: Option<String>,
    /// Point in time that was searched.
    pub point_in_time: Option<String>,
    /// Shards that were known to have no match.
    pub skipped: u32,
    /// Where the time went, where asked for.
    pub profile: Option<Value>,
    /// How long each phase took, where asked for.
    pub phase_took: Option<Value>,
    /// Results of aggregations, where asked for.
    pub aggregations: Option<Value>,
    /// Suggestions, where asked for.
    pub suggestions: Option<Value>,
}

impl Answer {
    /// Makes the answer of so many shards without hits.
    pub fn of(shards: u32) -> Self {
        Self {
            took_ms: 0,
            timed_out: false,
            terminated_early: None,
            shards,
            failures: Vec::new(),
            total_as_int: false,
            list: HitList::default(),
            scroll_id: None,
            point_in_time: None,
            skipped: 0,
            profile: None,
            phase_took: None,
            aggregations: None,
            suggestions: None,
        }
    }

    /// Whether it is written in no time: few hits and nothing else.
    pub fn is_small(&self) -> bool {
        let others = [&self.aggregations, &self.suggestions, &self.profile];
        others.iter().all(|other| other.is_none()) && self.list.bytes() <= SMALL_BYTES
    }

    /// Writes the answer, for some work.
    ///
    /// # Errors
    /// A source that is no JSON, [`Error::TimedOut`] once the work should end, more than queries may hold.
    pub fn render(&self, shown: &Shown, work: &Work) -> Result<Bytes> {
        let sources: usize = self.list.hits.iter().map(|hit| hit.row.source.len() + 256).sum();
        let mut out = Vec::with_capacity(512 + sources);
        out.push(b'{');
        if let Some(id) = &self.scroll_id {
            member(&mut out, "_scroll_id", &json!(id));
        }
        if let Some(id) = &self.point_in_time {
            member(&mut out, "pit_id", &json!(id));
        }
        member(&mut out, "took", &json!(self.took_ms.max(0)));
        if let Some(phases) = &self.phase_took {
            member(&mut out, "phase_took", phases);
        }
        member(&mut out, "timed_out", &json!(self.timed_out));
        if let Some(early) = self.terminated_early {
            member(&mut out, "terminated_early", &json!(early));
        }
        member(&mut out, "_shards", &shards_json(self.shards, self.skipped, &self.failures));
        self.list.render(shown, self.total_as_int, &mut out, work)?;
        if let Some(aggregations) = &self.aggregations {
            member(&mut out, "aggregations", aggregations);
        }
        if let Some(suggestions) = &self.suggestions {
            member(&mut out, "suggest", suggestions);
        }
        if let Some(profile) = &self.profile {
            member(&mut out, "profile", profile);
        }
        out.push(b'}');
        Ok(Bytes::from(out))
    }
}

/// Bytes that a hit is rendered to beside its texts.
const RENDERED_HIT_BYTES: usize = 256;
/// Bytes of hits that are written in no time, also where only parts of their sources are shown.
const SMALL_BYTES: usize = 16 << 10;

impl HitList {
    /// Estimates the bytes that the hits are rendered to.
    pub fn bytes(&self) -> usize {
        let hit = |hit: &Hit| {
            let extras = bytes_of_members(&hit.extras.fields) + bytes_of_members(&hit.extras.highlight);
            let inner: usize = hit.inner_hits.iter().map(|inner| inner.list.bytes()).sum();
            let explained = hit.explanation.as_ref().map_or(0, |(explanation, _)| bytes_of(explanation));
            RENDERED_HIT_BYTES + hit.row.id.len() + hit.row.source.len() + extras + inner + explained
        };
        self.hits.iter().map(hit).sum()
    }

    /// Makes a value of the hits, as `top_hits` shows them, for some work.
    ///
    /// # Errors
    /// As [`Answer::render`].
    pub fn to_value(&self, shown: &Shown, work: &Work) -> Result<Value> {
        let bytes = self.bytes();
        let _made = work.part_of(bytes.saturating_mul(1 + PARSED_SHARE))?;
        let mut out = Vec::with_capacity(bytes);
        out.push(b'{');
        self.render(shown, false, &mut out, work)?;
        out.push(b'}');
        let mut value: Value = serde_json::from_slice(&out)
            .map_err(|error| Error::Execution(format!("hits of a bucket are not JSON: {error}")))?;
        Ok(value["hits"].take())
    }

    /// Writes the member `hits`.
    fn render(&self, shown: &Shown, total_as_int: bool, out: &mut Vec<u8>, work: &Work) -> Result<()> {
        key(out, "hits");
        out.push(b'{');
        match (self.total, total_as_int) {
            (Some((total, _)), true) => member(out, "total", &json!(total)),
            (None, true) => member(out, "total", &json!(-1)),
            (Some((total, more)), false) => {
                let relation = if more { "gte" } else { "eq" };
                member(out, "total", &json!({"value": total, "relation": relation}));
            }
            (None, false) => {}
        }
        member(out, "max_score", &score_json(self.max_score));
        key(out, "hits");
        out.push(b'[');
        for (at, hit) in self.hits.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            hit.render(shown, total_as_int, out, work)?;
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }
}

impl Hit {
    fn render(&self, shown: &Shown, total_as_int: bool, out: &mut Vec<u8>, work: &Work) -> Result<()> {
        out.push(b'{');
        if let Some((_, shard)) = &self.explanation {
            member(out, "_shard", &json!(shard));
            member(out, "_node", &json!(NODE));
        }
        member(out, "_index", &json!(self.index));
        member(out, "_type", &json!("_doc"));
        if shown.id {
            member(out, "_id", &json!(self.row.id));
        }
        if let Some(nested) = &self.nested {
            member(out, "_nested", nested);
        }
        if shown.version {
            member(out, "_version", &json!(self.row.version));
        }
        if shown.seq_no {
            member(out, "_seq_no", &json!(self.row.seq_no));
            member(out, "_primary_term", &json!(self.row.primary_term));
        }
        member(out, "_score", &score_json(self.score));
        if shown.id {
            if let Some(routing) = &self.row.routing {
                member(out, "_routing", &json!(routing));
            }
            if !self.row.ignored.is_empty() {
                member(out, "_ignored", &json!(self.row.ignored));
            }
        }
        match &shown.source {
            SourceFilter::None => {}
            // Without `_source` in the mapping there is nothing to show.
            _ if self.row.source.is_empty() => {}
            // An element's source is filtered already.
            filter if *filter == SourceFilter::All || self.nested.is_some() => {
                key(out, "_source");
                out.extend_from_slice(&self.row.source);
            }
            filter => {
                work.check()?;
                let _text = work.part_of(self.row.source.len())?;
                let shown = filter.apply_to_text(&self.row.source).ok_or_else(|| {
                    Error::Execution(format!("the source of [{}] is not JSON", self.row.id))
                })?;
                key(out, "_source");
                out.extend_from_slice(&shown);
            }
        }
        if !self.extras.fields.is_empty() {
            key(out, "fields");
            write(out, &self.extras.fields);
        }
        if !self.extras.highlight.is_empty() {
            key(out, "highlight");
            write(out, &self.extras.highlight);
        }
        if let Some(sort) = &self.sort {
            member(out, "sort", sort);
        }
        if !self.matched_queries.is_empty() {
            let matched = self.matched_queries.iter();
            let matched: Value = match shown.matched_scores {
                true => {
                    matched.map(|(name, score)| (name.clone(), number(f64::from(*score), true))).collect()
                }
                false => matched.map(|(name, _)| json!(name)).collect(),
            };
            member(out, "matched_queries", &matched);
        }
        if !self.inner_hits.is_empty() {
            key(out, "inner_hits");
            out.push(b'{');
            for inner in &self.inner_hits {
                if out.last() != Some(&b'{') {
                    out.push(b',');
                }
                write(out, &inner.name);
                out.extend_from_slice(b":{");
                inner.list.render(&inner.shown, total_as_int, out, work)?;
                out.push(b'}');
            }
            out.push(b'}');
        }
        if let Some((explanation, _)) = &self.explanation {
            member(out, "_explanation", explanation);
        }
        out.push(b'}');
        Ok(())
    }
}

/// Renders `_shards`.
pub fn shards_json(total: u32, skipped: u32, failures: &[ShardFailure]) -> Value {
    let failed = failures.len() as u32;
    let mut shards = json!({
        "total": total,
        "successful": total.saturating_sub(failed),
        "skipped": skipped,
        "failed": failed,
    });
    if !failures.is_empty() {
        shards["failures"] = failures.iter().map(ShardFailure::to_json).collect();
    }
    shards
}

fn score_json(score: Option<f32>) -> Value {
    match score {
        Some(score) if score.is_finite() => number(f64::from(score), true),
        _ => Value::Null,
    }
}

fn key(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    key(out, name);
    write(out, value);
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Values in memory can always be written.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let row = StoredRow {
            row: 0,
            id: "1".into(),
            version: 2,
            seq_no: 3,
            primary_term: 1,
            routing: None,
            source: Bytes::from_static(b"{ \"a\" : 1.0, \"b\": {\"c\": 2} }"),
            ignored: Vec::new(),
        };
        let hit = Hit {
            index: "logs".into(),
            nested: None,
            row,
            score: Some(1.0),
            sort: Some(json!([7])),
            matched_queries: vec![("q".into(), 1.0)],
            extras: Extras::default(),
            inner_hits: Vec::new(),
            explanation: None,
        };
        Answer {
            took_ms: 1,
            list: HitList { total: Some((1, false)), max_score: Some(1.0), hits: vec![hit] },
            ..Answer::of(1)
        }
    }

    #[test]
    fn sources_go_in_verbatim() {
        let shown = Shown {
            source: SourceFilter::All,
            id: true,
            version: true,
            seq_no: true,
            post_filter: None,
            matched_scores: false,
            phases: Phases::default(),
        };
        let text = String::from_utf8(answer().render(&shown, &Work::default()).unwrap().to_vec()).unwrap();
        insta::assert_snapshot!(text, @r#"{"took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},"hits":{"total":{"value":1,"relation":"eq"},"max_score":1.0,"hits":[{"_index":"logs","_type":"_doc","_id":"1","_version":2,"_seq_no":3,"_primary_term":1,"_score":1.0,"_source":{ "a" : 1.0, "b": {"c": 2} },"sort":[7],"matched_queries":["q"]}]}}"#);
    }

    #[test]
    fn parts_are_left_out_as_asked() {
        let source = SourceFilter::parse(&json!("b.c")).unwrap();
        let shown = Shown {
            source,
            id: false,
            version: false,
            seq_no: false,
            post_filter: None,
            matched_scores: false,
            phases: Phases::default(),
        };
        let mut answer = answer();
        (answer.list.total, answer.total_as_int) = (None, true);
        let value: Value = serde_json::from_slice(&answer.render(&shown, &Work::default()).unwrap()).unwrap();
        assert_eq!(value["hits"]["total"], -1);
        assert_eq!(value["hits"]["hits"][0]["_source"], json!({"b": {"c": 2}}));
        assert!(value["hits"]["hits"][0].get("_id").is_none());
    }
}
