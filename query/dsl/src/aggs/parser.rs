//! Reads the tree: names, `meta`, sub-aggregations, and which kind each aggregation is.

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::*;
use crate::json::{did_you_mean, token};
use crate::query;

/// Names of the aggregations that exist.
const KNOWN: &[&str] = &[
    "adjacency_matrix",
    "auto_date_histogram",
    "avg",
    "avg_bucket",
    "bucket_script",
    "bucket_selector",
    "bucket_sort",
    "cardinality",
    "composite",
    "cumulative_sum",
    "date_histogram",
    "date_range",
    "derivative",
    "extended_stats",
    "extended_stats_bucket",
    "filter",
    "filters",
    "geo_bounds",
    "global",
    "histogram",
    "ip_range",
    "matrix_stats",
    "max",
    "max_bucket",
    "median_absolute_deviation",
    "min",
    "min_bucket",
    "missing",
    "moving_fn",
    "multi_terms",
    "nested",
    "percentile_ranks",
    "percentiles",
    "percentiles_bucket",
    "range",
    "rare_terms",
    "reverse_nested",
    "sampler",
    "serial_diff",
    "significant_terms",
    "stats",
    "stats_bucket",
    "sum",
    "sum_bucket",
    "terms",
    "top_hits",
    "value_count",
    "weighted_avg",
];

/// Names of the aggregations of OpenSearch that this server does not have.
const UNSUPPORTED: &[&str] = &[
    "children",
    "diversified_sampler",
    "geo_centroid",
    "geo_distance",
    "geohash_grid",
    "geotile_grid",
    "moving_avg",
    "parent",
    "scripted_metric",
    "significant_text",
    "variable_width_histogram",
];

/// Bounds of one tree while it is parsed.
#[derive(Debug, Default)]
struct Parser {
    count: usize,
    depth: usize,
}

impl Aggregations {
    /// Parses the value of the member `key` of a body: `aggs` or `aggregations`.
    ///
    /// # Errors
    /// What cannot be read, with OpenSearch's text.
    pub fn parse(key: &str, value: &Value) -> Result<Self> {
        let members = value
            .as_object()
            .ok_or_else(|| Error::Parsing(format!("Unknown key for a {} in [{key}].", token(value))))?;
        Parser::default().list(members)
    }
}

impl Parser {
    fn list(&mut self, members: &Map<String, Value>) -> Result<Aggregations> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::IllegalArgument(format!(
                "aggregations are nested deeper than the [{MAX_DEPTH}] levels that are allowed"
            )));
        }
        let list: Result<Vec<Aggregation>> =
            members.iter().map(|(name, value)| self.aggregation(name, value)).collect();
        self.depth -= 1;
        list.map(Aggregations)
    }

    fn aggregation(&mut self, name: &str, value: &Value) -> Result<Aggregation> {
        self.count += 1;
        if self.count > MAX_COUNT {
            return Err(Error::IllegalArgument(format!(
                "the request has more than the [{MAX_COUNT}] aggregations that are allowed"
            )));
        }
        if name.is_empty() || name.contains(['[', ']', '>']) {
            return Err(Error::Parsing(format!(
                "Invalid aggregation name [{name}]. Aggregation names can contain any character except '[', ']', and '>'"
            )));
        }
        let Value::Object(members) = value else {
            return Err(Error::Parsing(format!(
                "Aggregation definition for [{name} starts with a [{}], expected a [START_OBJECT].",
                token(value)
            )));
        };
        let (mut found, mut meta, mut subs): (Option<(&str, Kind)>, _, Option<Aggregations>) =
            (None, None, None);
        for (key, value) in members {
            let Value::Object(body) = value else {
                return Err(Error::Parsing(format!(
                    "Expected [START_OBJECT] under [{key}], but got a [{}] in [{name}]",
                    token(value)
                )));
            };
            match key.as_str() {
                "meta" => meta = Some(Arc::new(body.clone())),
                "aggs" | "aggregations" => {
                    if subs.is_some() {
                        return Err(Error::Parsing(format!(
                            "Found two sub aggregation definitions under [{name}]"
                        )));
                    }
                    subs = Some(self.list(body)?);
                }
                kind => {
                    if let Some((first, _)) = &found {
                        return Err(Error::Parsing(format!(
                            "Found two aggregation type definitions in [{name}]: [{first}] and [{kind}]"
                        )));
                    }
                    found = Some((kind, self.kind(kind, name, body)?));
                }
            }
        }
        let Some((kind_name, kind)) = found else {
            return Err(Error::Parsing(format!("Missing definition for aggregation [{name}]")));
        };
        match &kind {
            Kind::Pipeline(_) if subs.is_some() => {
                return Err(Error::Parsing(format!("Aggregation [{name}] cannot define sub-aggregations")));
            }
            Kind::Metric(_) | Kind::TopHits(_) if subs.as_ref().is_some_and(|subs| !subs.is_empty()) => {
                return Err(Error::Exception {
                    kind: "aggregation_initialization_exception",
                    status: 500,
                    reason: format!(
                        "Aggregator [{name}] of type [{kind_name}] cannot accept sub-aggregations"
                    ),
                });
            }
            _ => {}
        }
        Ok(Aggregation { name: name.into(), kind, meta, subs: subs.unwrap_or_default() })
    }

    fn kind(&mut self, kind: &str, name: &str, body: &Map<String, Value>) -> Result<Kind> {
        let Some(kind) = KNOWN.iter().copied().find(|known| *known == kind) else {
            if UNSUPPORTED.contains(&kind) {
                return Err(Error::Parsing(format!("[{kind}] aggregation is not supported yet")));
            }
            let reason = format!("Unknown aggregation type [{kind}]{}", did_you_mean(kind, KNOWN));
            return Err(Error::UnknownQuery { reason, name: kind.to_owned() });
        };
        let part = ErrorLabel { kind, name };
        let metric = |metric: Result<Metric>| metric.map(|metric| Kind::Metric(Arc::new(metric)));
        let pipeline = |pipeline: Result<Pipeline>| pipeline.map(|found| Kind::Pipeline(Arc::new(found)));
        Ok(match kind {
            "adjacency_matrix" => Kind::AdjacencyMatrix(Arc::new(AdjacencyMatrix::parse(part, body)?)),
            "auto_date_histogram" => Kind::AutoDateHistogram(Arc::new(AutoDateHistogram::parse(part, body)?)),
            "composite" => Kind::Composite(Arc::new(Composite::parse(part, body)?)),
            "date_histogram" => Kind::DateHistogram(Arc::new(DateHistogram::parse(part, body)?)),
            "date_range" => Kind::DateRange(Arc::new(DateRange::parse(part, body)?)),
            "filter" => Kind::Filter(Arc::new(query::parse(&Value::Object(body.clone()))?)),
            "filters" => Kind::Filters(Arc::new(Filters::parse(part, body)?)),
            "global" => match body.keys().next() {
                None => Kind::Global,
                Some(key) => {
                    let found = token(body.get(key).unwrap_or(&Value::Null));
                    return Err(Error::Parsing(format!(
                        "Expected [FIELD_NAME] under a [START_OBJECT], but got a [{found}] in [{name}]"
                    )));
                }
            },
            "histogram" => Kind::Histogram(Arc::new(Histogram::parse(part, body)?)),
            "ip_range" => Kind::IpRange(Arc::new(IpRange::parse(part, body)?)),
            "missing" => Kind::Missing(Arc::new(ValuesSource::parse_only(part, body)?)),
            "multi_terms" => Kind::MultiTerms(Arc::new(MultiTerms::parse(part, body)?)),
            "nested" => Kind::Nested(Arc::new(Nested::parse(part, body)?)),
            "range" => Kind::Range(Arc::new(Range::parse(part, body)?)),
            "rare_terms" => Kind::RareTerms(Arc::new(RareTerms::parse(part, body)?)),
            "reverse_nested" => Kind::ReverseNested(Arc::new(ReverseNested::parse(part, body)?)),
            "sampler" => Kind::Sampler(Arc::new(Sampler::parse(part, body)?)),
            "significant_terms" => Kind::SignificantTerms(Arc::new(SignificantTerms::parse(part, body)?)),
            "terms" => Kind::Terms(Arc::new(Terms::parse(part, body)?)),
            "top_hits" => Kind::TopHits(Arc::new(TopHits::parse(part, body)?)),
            "avg_bucket"
            | "bucket_script"
            | "bucket_selector"
            | "bucket_sort"
            | "cumulative_sum"
            | "derivative"
            | "extended_stats_bucket"
            | "max_bucket"
            | "min_bucket"
            | "moving_fn"
            | "percentiles_bucket"
            | "serial_diff"
            | "stats_bucket"
            | "sum_bucket" => pipeline(Pipeline::parse(part, body))?,
            _ => metric(Metric::parse(part, body))?,
        })
    }
}
