//! The answer of a search, written as bytes: sources go in verbatim.

use std::sync::Arc;

use bytes::Bytes;
use millrace_dsl::query::Query;
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::order::number;
use millrace_segment::StoredRow;
use millrace_work::answer::{AnswerBuffer, WriteAnswer};
use millrace_work::error::{Error, Result, ShardFailure};
use millrace_work::{QueryContext, bytes_of, bytes_of_members};
use serde_json::{Value, json};

use crate::fetch::phases::{Extras, Phases};

/// Name of the one node, where answers name it.
pub(crate) const NODE: &str = "millrace";

/// One hit.
#[derive(Debug)]
pub struct Hit {
    /// Concrete index.
    pub index: String,
    /// Element of the document that it is, if it is one.
    pub nested: Option<Value>,
    /// Id, version, source and the like.
    pub row: StoredRow,
    /// Score; `null` where not computed.
    pub score: Option<f32>,
    /// Sort values, where the request asked for an order.
    pub sort: Option<Value>,
    /// Names of matching clauses, with their scores.
    pub matched_queries: Vec<(Arc<str>, f32)>,
    /// Fields and highlights.
    pub extras: Extras,
    /// Hits below this one.
    pub inner_hits: Vec<InnerHitList>,
    /// Explanation of its score, and the shard that it comes from, where requested.
    pub explanation: Option<(Value, String)>,
}

/// Parts of a hit that are shown.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// Part of the source.
    pub source: SourceFilter,
    /// `true` if ids are shown.
    pub id: bool,
    /// `true` if versions are shown.
    pub version: bool,
    /// `true` if sequence number and primary term are shown.
    pub seq_no: bool,
    /// The filter of hits, whose names are shown too.
    pub post_filter: Option<Query>,
    /// `true` if the scores of named clauses are shown.
    pub matched_scores: bool,
    /// Further parts.
    pub phases: Phases,
}

impl RenderOptions {
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
    pub name: Arc<str>,
    /// They.
    pub list: HitList,
    /// Parts of the hits that are shown.
    pub shown: Arc<RenderOptions>,
}

/// The answer of a search.
#[derive(Debug)]
pub struct Answer {
    /// Milliseconds it took.
    pub took_ms: i64,
    /// `true` if time was over before the end.
    pub timed_out: bool,
    /// Set if shards stopped early; absent where not requested.
    pub terminated_early: Option<bool>,
    /// Number of shards.
    pub shards: u32,
    /// Shards that could not answer.
    pub failures: Vec<ShardFailure>,
    /// `true` if totals are bare numbers.
    pub total_as_int: bool,
    /// The hits.
    pub list: HitList,
    /// Scroll to go on with.
    pub scroll_id: Option<String>,
    /// Point in time that was searched.
    pub point_in_time: Option<String>,
    /// Shards that were known to have no match.
    pub skipped: u32,
    /// Profile, where requested.
    pub profile: Option<Value>,
    /// Duration of each phase, where requested.
    pub phase_took: Option<Value>,
    /// Results of aggregations, where asked for.
    pub aggregations: Option<Box<dyn WriteAnswer>>,
    /// Suggestions, where asked for.
    pub suggestions: Option<Value>,
}

impl Answer {
    /// Makes the answer of so many shards without hits.
    pub fn new(shards: u32) -> Self {
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

    /// Returns whether it is written in no time: few hits and nothing else.
    pub fn is_small(&self) -> bool {
        let others = [&self.suggestions, &self.profile];
        self.aggregations.is_none()
            && others.iter().all(|other| other.is_none())
            && self.list.bytes() <= SMALL_BYTES
    }

    /// Writes the answer, for some work. The text holds its memory until it is dropped.
    ///
    /// # Errors
    /// A source that is no JSON, [`Error::TimedOut`] once the work should end, more than queries may hold.
    pub fn render(&self, shown: &RenderOptions, work: &QueryContext) -> Result<Bytes> {
        // Of sources that are shown in part nobody knows before how much it is.
        let sources = if shown.source == SourceFilter::All { self.list.bytes() } else { 0 };
        let mut out = AnswerBuffer::with_capacity(work, 512 + sources);
        out.push(b'{');
        if let Some(id) = &self.scroll_id {
            out.member("_scroll_id", id);
        }
        if let Some(id) = &self.point_in_time {
            out.member("pit_id", id);
        }
        out.member("took", &self.took_ms.max(0));
        if let Some(phases) = &self.phase_took {
            out.member("phase_took", phases);
        }
        out.member("timed_out", &self.timed_out);
        if let Some(early) = self.terminated_early {
            out.member("terminated_early", &early);
        }
        out.member("_shards", &shards_json(self.shards, self.skipped, &self.failures));
        out.key("hits");
        self.list.write(shown, self.total_as_int, &mut out, work)?;
        if let Some(aggregations) = &self.aggregations {
            out.key("aggregations");
            aggregations.write(&mut out)?;
        }
        if let Some(suggestions) = &self.suggestions {
            out.member("suggest", suggestions);
        }
        if let Some(profile) = &self.profile {
            out.member("profile", profile);
        }
        out.push(b'}');
        out.finish()
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
            let named = |name: &Arc<str>| name.len();
            let matched: usize = hit.matched_queries.iter().map(|(name, _)| named(name)).sum();
            let names: usize = hit.inner_hits.iter().map(|inner| named(&inner.name)).sum();
            let sort = hit.sort.as_ref().map_or(0, bytes_of);
            let own = hit.row.id.len() + hit.row.source.len() + sort + matched + names;
            RENDERED_HIT_BYTES + own + extras + inner + explained
        };
        self.hits.iter().map(hit).sum()
    }

    /// Writes the hits as an object by itself, as `top_hits` shows them, for some work. The text is not accounted for.
    ///
    /// # Errors
    /// As [`Answer::render`].
    pub fn to_text(&self, shown: &RenderOptions, work: &QueryContext) -> Result<Bytes> {
        let mut out = AnswerBuffer::new(work);
        self.write(shown, false, &mut out, work)?;
        Ok(Bytes::copy_from_slice(&out.finish()?))
    }

    /// Writes the hits as an object.
    fn write(
        &self,
        shown: &RenderOptions,
        total_as_int: bool,
        out: &mut AnswerBuffer,
        work: &QueryContext,
    ) -> Result<()> {
        out.push(b'{');
        match (self.total, total_as_int) {
            (Some((total, _)), true) => out.member("total", &total),
            (None, true) => out.member("total", &-1),
            (Some((total, more)), false) => {
                let relation = if more { "gte" } else { "eq" };
                out.member("total", &json!({"value": total, "relation": relation}));
            }
            (None, false) => {}
        }
        out.member("max_score", &score_json(self.max_score));
        out.key("hits");
        out.push(b'[');
        for hit in &self.hits {
            out.item();
            hit.write(shown, total_as_int, out, work)?;
            out.check()?;
        }
        out.extend(b"]}");
        Ok(())
    }
}

impl Hit {
    fn write(
        &self,
        shown: &RenderOptions,
        total_as_int: bool,
        out: &mut AnswerBuffer,
        work: &QueryContext,
    ) -> Result<()> {
        out.push(b'{');
        if let Some((_, shard)) = &self.explanation {
            out.member("_shard", shard);
            out.member("_node", NODE);
        }
        out.member("_index", &self.index);
        out.member("_type", "_doc");
        if shown.id {
            out.member("_id", &self.row.id);
        }
        if let Some(nested) = &self.nested {
            out.member("_nested", nested);
        }
        if shown.version {
            out.member("_version", &self.row.version);
        }
        if shown.seq_no {
            out.member("_seq_no", &self.row.seq_no);
            out.member("_primary_term", &self.row.primary_term);
        }
        out.member("_score", &score_json(self.score));
        if shown.id {
            if let Some(routing) = &self.row.routing {
                out.member("_routing", routing);
            }
            if !self.row.ignored.is_empty() {
                out.member("_ignored", &self.row.ignored);
            }
        }
        match &shown.source {
            SourceFilter::None => {}
            // Without `_source` in the mapping there is nothing to show.
            _ if self.row.source.is_empty() => {}
            // An element's source is filtered already.
            filter if *filter == SourceFilter::All || self.nested.is_some() => {
                out.key("_source");
                out.extend(&self.row.source);
            }
            filter => {
                work.check()?;
                let _text = work.part_of(self.row.source.len())?;
                let shown = filter.apply_to_text(&self.row.source).ok_or_else(|| {
                    Error::Execution(format!("the source of [{}] is not JSON", self.row.id))
                })?;
                out.key("_source");
                out.extend(&shown);
            }
        }
        if !self.extras.fields.is_empty() {
            out.member("fields", &self.extras.fields);
        }
        if !self.extras.highlight.is_empty() {
            out.member("highlight", &self.extras.highlight);
        }
        if let Some(sort) = &self.sort {
            out.member("sort", sort);
        }
        self.write_matched(shown.matched_scores, out);
        if !self.inner_hits.is_empty() {
            out.key("inner_hits");
            out.push(b'{');
            for inner in &self.inner_hits {
                out.key(&inner.name);
                out.extend(b"{\"hits\":");
                inner.list.write(&inner.shown, total_as_int, out, work)?;
                out.push(b'}');
            }
            out.push(b'}');
        }
        if let Some((explanation, _)) = &self.explanation {
            out.member("_explanation", explanation);
        }
        out.push(b'}');
        Ok(())
    }

    /// Writes the names of matching clauses.
    fn write_matched(&self, with_scores: bool, out: &mut AnswerBuffer) {
        if self.matched_queries.is_empty() {
            return;
        }
        out.key("matched_queries");
        out.push(if with_scores { b'{' } else { b'[' });
        for (name, score) in &self.matched_queries {
            match with_scores {
                true => out.member(name, &number(f64::from(*score), true)),
                false => {
                    out.item();
                    out.value(name.as_ref());
                }
            }
        }
        out.push(if with_scores { b'}' } else { b']' });
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
            ..Answer::new(1)
        }
    }

    #[test]
    fn sources_go_in_verbatim() {
        let shown = RenderOptions {
            source: SourceFilter::All,
            id: true,
            version: true,
            seq_no: true,
            post_filter: None,
            matched_scores: false,
            phases: Phases::default(),
        };
        let text =
            String::from_utf8(answer().render(&shown, &QueryContext::default()).unwrap().to_vec()).unwrap();
        insta::assert_snapshot!(text, @r#"{"took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},"hits":{"total":{"value":1,"relation":"eq"},"max_score":1.0,"hits":[{"_index":"logs","_type":"_doc","_id":"1","_version":2,"_seq_no":3,"_primary_term":1,"_score":1.0,"_source":{ "a" : 1.0, "b": {"c": 2} },"sort":[7],"matched_queries":["q"]}]}}"#);
    }

    #[test]
    fn parts_are_left_out_as_asked() {
        let source = SourceFilter::parse(&json!("b.c")).unwrap();
        let shown = RenderOptions {
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
        let value: Value =
            serde_json::from_slice(&answer.render(&shown, &QueryContext::default()).unwrap()).unwrap();
        assert_eq!(value["hits"]["total"], -1);
        assert_eq!(value["hits"]["hits"][0]["_source"], json!({"b": {"c": 2}}));
        assert!(value["hits"]["hits"][0].get("_id").is_none());
    }
}
