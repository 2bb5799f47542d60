//! A whole search request: body and parameters together, checked against each other.

use millrace_storage::metadata::IndicesOptions;
use serde_json::Value;

use crate::dsl::body::{self, SearchBody, StoredFields, TrackHits};
use crate::dsl::json;
use crate::dsl::query;
use crate::dsl::sort;
use crate::dsl::source_filter::SourceFilter;
use crate::error::{Error, Result};
use crate::params::Params;

/// Hits counted exactly where the request does not say.
const TRACKED_HITS: u64 = 10_000;
/// Longest that a scroll may be kept alive: `search.max_keep_alive`.
#[derive(Clone, Debug)]
pub(crate) struct LongestScroll {
    ms: u64,
    /// As the setting has it.
    text: String,
}

impl Default for LongestScroll {
    fn default() -> Self {
        Self { ms: 86_400_000, text: "1d".to_owned() }
    }
}

impl LongestScroll {
    /// Reads the setting; `None` and what is no time value stand for the default.
    pub(crate) fn of(setting: Option<&Value>) -> Self {
        let text = setting.and_then(Value::as_str).filter(|text| *text != "24h");
        let ms = text.and_then(|text| json::parse_time("search.max_keep_alive", text).ok().flatten());
        match (text, ms) {
            (Some(text), Some(ms)) => Self { ms, text: text.to_owned() },
            _ => Self::default(),
        }
    }
}

/// A parsed search request.
#[derive(Clone, Debug)]
pub(crate) struct SearchRequest {
    /// The body, with what parameters put in its place.
    pub body: SearchBody,
    /// Which indices the expression may stand for.
    pub options: IndicesOptions,
    /// Routing values that restrict shards.
    pub routing: Option<Vec<String>>,
    /// Whether statistics of all shards are joined before scoring.
    pub global_statistics: bool,
    /// Whether `hits.total` is a number.
    pub totals_as_int: bool,
    /// How long a scroll is kept alive, in milliseconds; no scroll where absent.
    pub scroll_ms: Option<u64>,
    /// Whether partial results are wanted.
    pub allow_partial: bool,
}

impl SearchRequest {
    /// Parses a request to `path`.
    pub(crate) fn parse(
        path: String,
        given: Vec<(String, String)>,
        body: Option<&Value>,
        longest: &LongestScroll,
    ) -> Result<Self> {
        let mut params = Params::new(path, given);
        let from_param = params.source()?;
        let mut body = match body.or(from_param.as_ref()) {
            Some(body) => SearchBody::parse(body)?,
            None => SearchBody::default(),
        };
        override_body(&mut body, &mut params)?;
        let options = params.indices_options()?;
        let routing = params.list("routing");
        let global_statistics = match params.take("search_type").as_deref() {
            None | Some("query_then_fetch" | "") => false,
            Some("dfs_query_then_fetch") => true,
            Some(other) => {
                return Err(Error::IllegalArgument(format!("No search type for [{other}]")));
            }
        };
        let totals_as_int = params.boolean("rest_total_hits_as_int")?.unwrap_or(false);
        let scroll_ms = params.take("scroll").map(|text| keep_alive(&text, longest)).transpose()?;
        let request_cache = params.boolean("request_cache")?;
        let allow_partial = params.boolean("allow_partial_search_results")?.unwrap_or(true);
        // How work is spread over nodes and shards; here one node has it all.
        params.take("preference");
        params.boolean("ccs_minimize_roundtrips")?;
        params.boolean("typed_keys")?;
        positive(&mut params, "batched_reduce_size", 2)?;
        positive(&mut params, "max_concurrent_shard_requests", 1)?;
        positive(&mut params, "pre_filter_shard_size", 1)?;
        if let Some(query) = query::from_uri(&mut params)? {
            body.query = Some(query);
        }
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
        let request =
            Self { body, options, routing, global_statistics, totals_as_int, scroll_ms, allow_partial };
        request.check_scroll(request_cache)?;
        Ok(request)
    }

    fn check_scroll(&self, request_cache: Option<bool>) -> Result<()> {
        let body = &self.body;
        if self.scroll_ms.is_none() {
            if body.slice.is_some() {
                return Err(Error::Validation("[slice] can only be used with [scroll] context".to_owned()));
            }
            return Ok(());
        }
        let refuse = |text: &str| Err(Error::Validation(text.to_owned()));
        if matches!(body.track_total_hits, Some(TrackHits::None | TrackHits::UpTo(_))) {
            return refuse("disabling [track_total_hits] is not allowed in a scroll context");
        }
        if body.from.is_some_and(|from| from > 0) {
            return refuse("using [from] is not allowed in a scroll context");
        }
        if request_cache == Some(true) {
            return refuse("[request_cache] cannot be used in a scroll context");
        }
        if body.size == Some(0) {
            return refuse("[size] cannot be [0] in a scroll context");
        }
        if body.search_after.is_some() {
            return refuse("`search_after` cannot be used in a scroll context.");
        }
        Ok(())
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

/// Puts parameters in the place of members of the body.
fn override_body(body: &mut SearchBody, params: &mut Params) -> Result<()> {
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
        body.timeout_ms = timeout;
    }
    if let Some(number) = params.integer("terminate_after")? {
        body.terminate_after = body::terminate_after(number)?;
    }
    if let Some(names) = params.list("stored_fields") {
        body.stored_fields = Some(StoredFields::new(names)?);
    }
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
    if !includes.is_empty() || !excludes.is_empty() {
        body.source = Some(SourceFilter::fields(includes, excludes)?);
    } else if whole.is_some() {
        body.source = whole;
    }
    Ok(())
}

fn positive(params: &mut Params, name: &'static str, least: i64) -> Result<()> {
    match params.integer(name)? {
        Some(number) if number < least => {
            Err(Error::IllegalArgument(format!("{name} must be >= {least}, found [{number}]")))
        }
        _ => Ok(()),
    }
}

/// Parses how long a scroll is kept alive.
pub(crate) fn keep_alive(text: &str, longest: &LongestScroll) -> Result<u64> {
    let time = json::parse_time("scroll", text)?.unwrap_or(0);
    if time == 0 {
        return Err(Error::IllegalArgument(format!("[scroll] must be greater than 0, found [{text}]")));
    }
    if time > longest.ms {
        return Err(Error::IllegalArgument(format!(
            "Keep alive for request ({text}) is too large. It must be less than ({}). This limit can be set by changing the [search.max_keep_alive] cluster level setting.",
            longest.text
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
        SearchRequest::parse("/_search".to_owned(), params, Some(&body), &LongestScroll::default())
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
            parse(&[("q", "a:b"), ("default_operator", "xor")], json!({})),
            parse(&[("df", "a")], json!({})),
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
        No enum constant org.opensearch.index.query.Operator.XOR
        request [/_search] contains unrecognized parameter: [df]
        ");
    }
}
