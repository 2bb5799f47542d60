//! A whole search request: body and parameters together, checked against each other.

use millrace_dsl::body::{self, SearchBody, StoredFields, TrackHits};
use millrace_dsl::fields;
use millrace_dsl::json;
use millrace_dsl::params::{Params, Scope};
use millrace_dsl::sort;
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::table::TableSnapshot;
use millrace_search::collapse::GroupBy;
use millrace_search::searcher::{TRACKED_HITS, search_refused};
use millrace_work::bytes_of;
use millrace_work::error::{Error, Result};
use serde_json::Value;

/// Shards from which those without a match are told where the request does not say.
const PRE_FILTERED_SHARDS: u64 = 128;

/// Longest that a context may be kept alive, by a cluster setting.
#[derive(Clone, Debug)]
pub(crate) struct LongestLife {
    setting: &'static str,
    ms: u64,
    /// As the setting has it.
    text: String,
}

impl LongestLife {
    /// Reads the setting; `None` and what is no time value stand for the default of a day.
    pub(crate) fn new(setting: &'static str, value: Option<&Value>) -> Self {
        let text = value.and_then(Value::as_str).filter(|text| *text != "24h");
        let ms = text.and_then(|text| json::parse_time(setting, text).ok().flatten());
        match (text, ms) {
            (Some(text), Some(ms)) => Self { setting, ms, text: text.to_owned() },
            _ => Self { setting, ms: 86_400_000, text: "1d".to_owned() },
        }
    }
}

/// Longest lives of the contexts that searches open or go on with.
#[derive(Clone, Debug)]
pub(crate) struct ContextLifetimes {
    /// Of scrolls.
    pub scroll: LongestLife,
    /// Of points in time.
    pub point_in_time: LongestLife,
}

/// A parsed search request.
#[derive(Clone, Debug)]
pub(crate) struct SearchRequest {
    /// The body, with what parameters put in its place.
    pub body: SearchBody,
    /// Indices and shards that are searched.
    pub scope: Scope,
    /// `true` if statistics of all shards are joined before scoring.
    pub global_statistics: bool,
    /// `true` if `hits.total` is a number.
    pub totals_as_int: bool,
    /// Time that a scroll is kept alive, in milliseconds; no scroll where absent.
    pub scroll_ms: Option<u64>,
    /// Extension of the point in time's life, where the request has one.
    pub point_in_time_ms: Option<u64>,
    /// `true` if partial results are wanted.
    pub allow_partial: bool,
    /// Shards from which those without a match are told.
    pub pre_filtered: u64,
    /// `true` if the answer says how long each phase took.
    pub phase_took: bool,
    /// Time after which the search is given up, in milliseconds.
    pub cancel_after_ms: Option<u64>,
    /// `true` if names of aggregations tell their types.
    pub typed_keys: bool,
    /// Bytes of the body's values, where a scroll keeps what is made of them.
    pub body_bytes: usize,
}

impl SearchRequest {
    /// Parses a request; `expression` is what its path names.
    pub(crate) fn parse(
        mut params: Params,
        body: Option<&Value>,
        expression: &str,
        lives: &ContextLifetimes,
    ) -> Result<Self> {
        let given = body;
        let mut body = match body {
            Some(body) => SearchBody::parse(body)?,
            None => SearchBody::default(),
        };
        override_body(&mut body, &mut params)?;
        let scope = params.scope()?;
        let global_statistics = match params.take("search_type").as_deref() {
            None | Some("query_then_fetch" | "") => false,
            Some("dfs_query_then_fetch") => true,
            Some(other) => {
                return Err(Error::IllegalArgument(format!("No search type for [{other}]")));
            }
        };
        let totals_as_int = params.boolean("rest_total_hits_as_int")?.unwrap_or(false);
        let scroll = params.take("scroll");
        let request_cache = params.boolean("request_cache")?;
        let typed_keys = params.boolean("typed_keys")?.unwrap_or(false);
        let allow_partial = params.boolean("allow_partial_search_results")?.unwrap_or(true);
        // How work is spread over nodes and shards; here one node has it all.
        params.boolean("ccs_minimize_roundtrips")?;
        params.at_least("batched_reduce_size", 2, "batchedReduceSize")?;
        params.at_least("max_concurrent_shard_requests", 1, "maxConcurrentShardRequests")?;
        let pre_filtered = params.at_least("pre_filter_shard_size", 1, "preFilterShardSize")?;
        let phase_took = params.boolean("phase_took")?.unwrap_or(false);
        let cancel_after_ms = params.time("cancel_after_time_interval")?.flatten();
        if let Some(pipeline) = params.take("search_pipeline") {
            body::no_pipeline(&pipeline)?;
        }
        body::no_verbose_pipeline(params.boolean("verbose_pipeline")?.unwrap_or(false))?;
        params.finish()?;
        if totals_as_int {
            match body.track_total_hits {
                None => body.track_total_hits = Some(TrackHits::All),
                Some(TrackHits::UpTo(number)) => {
                    return Err(Error::IllegalArgument(format!(
                        "[rest_total_hits_as_int] cannot be used if the tracking of total hits is not accurate, got {number}"
                    )));
                }
                Some(_) => {}
            }
        }
        let problems = contradictions(&body, &scope, expression, scroll.is_some(), request_cache);
        if !problems.is_empty() {
            return Err(Error::validation(&problems));
        }
        let scroll_ms = scroll.map(|text| keep_alive("scroll", &text, &lives.scroll)).transpose()?;
        let body_bytes = scroll_ms.and(given).map_or(0, bytes_of);
        let life = body.point_in_time.as_ref().and_then(|pit| pit.keep_alive.as_deref());
        let point_in_time_ms =
            life.map(|text| keep_alive("keep_alive", text, &lives.point_in_time)).transpose()?;
        let pre_filtered = pre_filtered.map_or(PRE_FILTERED_SHARDS, |shards| shards as u64);
        Ok(Self {
            body,
            scope,
            global_statistics,
            totals_as_int,
            scroll_ms,
            point_in_time_ms,
            allow_partial,
            pre_filtered,
            phase_took,
            cancel_after_ms,
            typed_keys,
            body_bytes,
        })
    }

    /// Returns by what matches are grouped, if they are.
    pub(crate) fn grouping(&self, snapshot: &TableSnapshot) -> Result<Option<GroupBy>> {
        let Some(collapse) = &self.body.collapse else { return Ok(None) };
        if self.scroll_ms.is_some() {
            return Err(search_refused("cannot use `collapse` in a scroll context"));
        }
        if self.body.search_after.is_some() {
            return Err(search_refused("cannot use `collapse` in conjunction with `search_after`"));
        }
        if !self.body.rescore.is_empty() {
            return Err(search_refused("cannot use `collapse` in conjunction with `rescore`"));
        }
        GroupBy::new(collapse, snapshot).map(Some)
    }

    /// Returns how many hits are counted exactly; none where they are not counted.
    pub(crate) fn tracked(&self) -> Option<u64> {
        match self.body.track_total_hits {
            _ if self.scroll_ms.is_some() => Some(u64::MAX),
            None => Some(TRACKED_HITS),
            Some(TrackHits::All) => Some(u64::MAX),
            Some(TrackHits::None) => None,
            Some(TrackHits::UpTo(number)) => Some(number),
        }
    }
}

/// Lists options that exclude each other.
fn contradictions(
    body: &SearchBody,
    scope: &Scope,
    expression: &str,
    scroll: bool,
    request_cache: Option<bool>,
) -> Vec<String> {
    let mut problems: Vec<&str> = Vec::new();
    if scroll {
        if matches!(body.track_total_hits, Some(TrackHits::None | TrackHits::UpTo(_))) {
            problems.push("disabling [track_total_hits] is not allowed in a scroll context");
        }
        if body.from.is_some_and(|from| from > 0) {
            problems.push("using [from] is not allowed in a scroll context");
        }
        if body.size == Some(0) {
            problems.push("[size] cannot be [0] in a scroll context");
        }
        if !body.rescore.is_empty() {
            problems.push("using [rescore] is not allowed in a scroll context");
        }
        if request_cache == Some(true) {
            problems.push("[request_cache] cannot be used in a scroll context");
        }
        if body.search_after.is_some() {
            problems.push("`search_after` cannot be used in a scroll context.");
        }
    }
    let mut problems: Vec<String> = problems.into_iter().map(str::to_owned).collect();
    if body.point_in_time.is_some() {
        if scroll {
            problems.push("using [point in time] is not allowed in a scroll context".to_owned());
        }
        let indices = (!expression.is_empty()).then_some("indices");
        for name in indices.iter().chain(&scope.said) {
            problems.push(format!("[{name}] cannot be used with point in time"));
        }
    }
    problems
}

/// Puts parameters in the place of members of the body.
fn override_body(body: &mut SearchBody, params: &mut Params) -> Result<()> {
    if let Some(query) = params.uri_query()? {
        body.query = Some(query);
    }
    if let Some(flag) = params.boolean("explain")? {
        body.explain = flag;
    }
    // Groups of `_stats`, which are not kept.
    params.list("stats");
    if let Some(from) = params.integer("from")? {
        body.from = Some(body::from(from)?);
    }
    if let Some(size) = params.integer("size")? {
        body.size = Some(body::size(size)?);
    }
    if let Some(text) = params.take("sort") {
        body.sort.extend(sort::parse_param(&text)?);
    }
    if let Some(text) = params.take("track_total_hits") {
        body.track_total_hits = Some(TrackHits::parse(&Value::String(text))?);
    }
    body.matched_scores = params.boolean("include_named_queries_score")?.unwrap_or(false);
    if let Some(flag) = params.boolean("track_scores")? {
        body.track_scores = flag;
    }
    if let Some(flag) = params.boolean("version")? {
        body.version = flag;
    }
    if let Some(flag) = params.boolean("seq_no_primary_term")? {
        body.seq_no_primary_term = flag;
    }
    if let Some(timeout) = params.time("timeout")? {
        body.timeout_ms = Some(timeout.unwrap_or(u64::MAX));
    }
    if let Some(number) = params.integer("terminate_after")? {
        body.terminate_after = body::terminate_after(number)?;
    }
    if let Some(names) = params.list("docvalue_fields") {
        body.docvalue_fields.extend(fields::named(names));
    }
    if let Some(names) = params.list("stored_fields") {
        body.stored_fields = Some(StoredFields::new(names)?);
    }
    if let Some(source) = source_filter(params)? {
        body.source = Some(source);
    }
    Ok(())
}

/// Takes what part of the source is shown.
pub(crate) fn source_filter(params: &mut Params) -> Result<Option<SourceFilter>> {
    let source = params.take("_source");
    let (mut includes, mut excludes) = (Vec::new(), Vec::new());
    let mut whole = None;
    match source.as_deref() {
        None => {}
        Some("true" | "") => whole = Some(SourceFilter::All),
        Some("false") => whole = Some(SourceFilter::None),
        Some(list) => includes = list.split(',').map(str::to_owned).collect(),
    }
    for name in ["_source_includes", "_source_include"] {
        includes.extend(params.list(name).unwrap_or_default());
    }
    for name in ["_source_excludes", "_source_exclude"] {
        excludes.extend(params.list(name).unwrap_or_default());
    }
    if includes.is_empty() && excludes.is_empty() {
        return Ok(whole);
    }
    SourceFilter::fields(includes, excludes).map(Some)
}

/// Parses how long a context is kept alive, as the parameter `name` says it.
pub(crate) fn keep_alive(name: &str, text: &str, longest: &LongestLife) -> Result<u64> {
    let time = json::parse_time(name, text)?.unwrap_or(0);
    if time == 0 {
        return Err(Error::IllegalArgument(format!("[{name}] must be greater than 0, found [{text}]")));
    }
    if time > longest.ms {
        return Err(Error::IllegalArgument(format!(
            "Keep alive for request ({text}) is too large. It must be less than ({}). This limit can be set by changing the [{}] cluster level setting.",
            longest.text, longest.setting
        )));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(params: &[(&str, &str)], body: Value) -> Result<SearchRequest> {
        let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let lives = ContextLifetimes {
            scroll: LongestLife::new("search.max_keep_alive", None),
            point_in_time: LongestLife::new("point_in_time.max_keep_alive", None),
        };
        SearchRequest::parse(Params::new("/_search".to_owned(), params), Some(&body), "", &lives)
    }

    #[test]
    fn parameters_stand_before_the_body() {
        let request = parse(&[("size", "3"), ("sort", "a:desc")], json!({"size": 5, "from": 2})).unwrap();
        assert_eq!((request.body.size, request.body.from), (Some(3), Some(2)));
        assert_eq!(request.body.sort.len(), 1);
        assert_eq!(request.tracked(), Some(10_000));
    }

    #[test]
    fn contradictions_are_refused() {
        let texts: Vec<String> = [
            parse(&[("scroll", "1m"), ("request_cache", "true")], json!({})),
            parse(&[("scroll", "1m"), ("from", "3")], json!({})),
            parse(&[("scroll", "1m"), ("size", "0")], json!({})),
            parse(&[("rest_total_hits_as_int", "true")], json!({"track_total_hits": 100})),
            parse(&[("search_type", "query_and_fetch")], json!({})),
            parse(&[("scroll", "2d")], json!({})),
            parse(&[("scroll", "1m"), ("request_cache", "true")], json!({"size": 0})),
            parse(&[("routing", "a"), ("preference", "b")], json!({"pit": {"id": "x"}})),
            parse(&[("batched_reduce_size", "1")], json!({})),
            parse(&[("preference", "_foo")], json!({})),
        ]
        .into_iter()
        .map(|request| request.unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        Validation Failed: 1: [request_cache] cannot be used in a scroll context;
        Validation Failed: 1: using [from] is not allowed in a scroll context;
        Validation Failed: 1: [size] cannot be [0] in a scroll context;
        [rest_total_hits_as_int] cannot be used if the tracking of total hits is not accurate, got 100
        No search type for [query_and_fetch]
        Keep alive for request (2d) is too large. It must be less than (1d). This limit can be set by changing the [search.max_keep_alive] cluster level setting.
        Validation Failed: 1: [size] cannot be [0] in a scroll context;2: [request_cache] cannot be used in a scroll context;
        Validation Failed: 1: [routing] cannot be used with point in time;2: [preference] cannot be used with point in time;
        batchedReduceSize must be >= 2
        no Preference for [_foo]
        ");
    }
}
