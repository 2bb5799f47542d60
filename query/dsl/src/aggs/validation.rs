//! Checks that pipelines can run at their place.

use millrace_work::error::{Error, Result};

use crate::aggs::{Aggregation, Aggregations, Kind, Path, Pipeline};

/// Checks the pipelines of a request before it runs: that paths name aggregations which have what they ask for, and that
/// parents stand where they can.
///
/// # Errors
/// An `action_request_validation_exception` or `illegal_argument_exception` with OpenSearch's text.
pub fn validate(aggregations: &Aggregations) -> Result<()> {
    let mut problems = Vec::new();
    level(aggregations, None, &mut problems)?;
    if problems.is_empty() { Ok(()) } else { Err(Error::validation(&problems)) }
}

fn level(
    aggregations: &Aggregations,
    parent: Option<&Aggregation>,
    problems: &mut Vec<String>,
) -> Result<()> {
    for aggregation in aggregations.collected() {
        level(&aggregation.subs, Some(aggregation), problems)?;
    }
    let before = problems.len();
    for (aggregation, pipeline) in aggregations.pipelines() {
        for path in pipeline.paths() {
            if let Some(problem) = unresolved(aggregations, path)? {
                problems.push(problem);
            }
        }
        if cyclic(aggregations, aggregation)? {
            return Err(Error::IllegalArgument(format!(
                "Cyclical dependency found with pipeline aggregator {}",
                aggregation.name
            )));
        }
    }
    if problems.len() > before {
        return Ok(());
    }
    for (aggregation, pipeline) in aggregations.pipelines() {
        problems.extend(misplaced(aggregations, aggregation, pipeline, parent)?);
    }
    Ok(())
}

/// Returns the error of a path, if there is one.
fn unresolved(siblings: &Aggregations, path: &str) -> Result<Option<String>> {
    if matches!(path, "_count" | "_key") {
        return Ok(None);
    }
    let elements = Path::parse(path)?.0;
    let Some((first, rest)) = elements.split_first() else {
        return Ok(Some(format!("No aggregation found for path [{path}]")));
    };
    let Some(mut current) = siblings.get(&first.name) else {
        return Ok(Some(format!("No aggregation found for path [{path}]")));
    };
    for (at, element) in rest.iter().enumerate() {
        let last = at + 1 == rest.len();
        if last && (element.name == "_count" || element.name.eq_ignore_ascii_case("_key")) {
            return Ok(None);
        }
        match current.subs.get(&element.name) {
            Some(next) => current = next,
            None => {
                return Ok(Some(format!("No aggregation [{}] found for path [{path}]", element.name)));
            }
        }
    }
    Ok(None)
}

/// Returns whether a pipeline reads itself, by way of others of its level.
fn cyclic(siblings: &Aggregations, start: &Aggregation) -> Result<bool> {
    let mut seen: Vec<&str> = Vec::new();
    let mut waiting: Vec<&Aggregation> = vec![start];
    while let Some(aggregation) = waiting.pop() {
        let Kind::Pipeline(pipeline) = &aggregation.kind else { continue };
        for path in pipeline.paths() {
            let first = Path::parse(path)?.0.into_iter().next();
            let Some(next) = first.and_then(|first| siblings.get(&first.name)) else { continue };
            if next.name == start.name {
                return Ok(true);
            }
            if !seen.contains(&&*next.name) {
                seen.push(&next.name);
                waiting.push(next);
            }
        }
    }
    Ok(false)
}

/// Says why a pipeline cannot stand where it does.
fn misplaced(
    siblings: &Aggregations,
    aggregation: &Aggregation,
    pipeline: &Pipeline,
    parent: Option<&Aggregation>,
) -> Result<Option<String>> {
    let name = &aggregation.name;
    Ok(match pipeline {
        Pipeline::BucketMetric(metric) => {
            let first = Path::parse(&metric.path)?.0.into_iter().next();
            let first = first.filter(|first| first.key.is_none() || !metric.path.contains('>'));
            match first.and_then(|first| siblings.get(&first.name)) {
                None => Some(format!(
                    "buckets_path aggregation does not exist for aggregation [{name}]: {}",
                    metric.path
                )),
                Some(first) if !has_buckets(&first.kind) => Some(format!(
                    "The first aggregation in buckets_path must be a multi-bucket aggregation for aggregation [{name}] found :{} for buckets path: {}",
                    builder_name(&first.kind),
                    metric.path
                )),
                Some(_) => None,
            }
        }
        Pipeline::Derivative(_) => sequential("derivative", name, parent),
        Pipeline::CumulativeSum { .. } => sequential("cumulative_sum", name, parent),
        Pipeline::MovingFn(_) => sequential("moving_fn", name, parent),
        Pipeline::SerialDiff(_) => sequential("serial_diff", name, parent),
        Pipeline::BucketSort(sort) => {
            if parent.is_none_or(|parent| !has_buckets(&parent.kind)) {
                Some(format!(
                    "bucket_sort aggregation [{name}] must be declared inside of another aggregation"
                ))
            } else if sort.sort.is_empty() && sort.size.is_none() && sort.from == 0 {
                Some(format!(
                    "[{name}] is configured to perform nothing. Please set either of [sort, size, from] to use bucket_sort"
                ))
            } else {
                None
            }
        }
        Pipeline::BucketSelector(_) => inner("bucket_selector", name, parent),
        Pipeline::BucketScript(_) => inner("bucket_script", name, parent),
    })
}

fn inner(kind: &str, name: &str, parent: Option<&Aggregation>) -> Option<String> {
    parent
        .is_none_or(|parent| !has_buckets(&parent.kind))
        .then(|| format!("{kind} aggregation [{name}] must be declared inside of another aggregation"))
}

/// Returns the error of a sequential pipeline that has no histogram without gaps around it.
fn sequential(kind: &str, name: &str, parent: Option<&Aggregation>) -> Option<String> {
    let histogram = "must have a histogram, date_histogram or auto_date_histogram as parent";
    let min_doc_count = match parent.map(|parent| &parent.kind) {
        None => {
            return Some(format!("{kind} aggregation [{name}] {histogram} but doesn't have a parent"));
        }
        Some(Kind::Histogram(histogram)) => histogram.min_doc_count,
        Some(Kind::DateHistogram(histogram)) => histogram.min_doc_count,
        Some(Kind::AutoDateHistogram(_)) => 0,
        Some(_) => return Some(format!("{kind} aggregation [{name}] {histogram}")),
    };
    (min_doc_count != 0)
        .then(|| format!("parent histogram of {kind} aggregation [{name}] must have min_doc_count of 0"))
}

fn has_buckets(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::AdjacencyMatrix(_)
            | Kind::AutoDateHistogram(_)
            | Kind::Composite(_)
            | Kind::DateHistogram(_)
            | Kind::DateRange(_)
            | Kind::Filters(_)
            | Kind::Histogram(_)
            | Kind::IpRange(_)
            | Kind::MultiTerms(_)
            | Kind::Range(_)
            | Kind::RareTerms(_)
            | Kind::SignificantTerms(_)
            | Kind::Terms(_)
    )
}

/// Name of the class that builds such an aggregation in OpenSearch.
fn builder_name(kind: &Kind) -> String {
    let (package, class) = match kind {
        Kind::Filter(_) => ("bucket.filter", "Filter"),
        Kind::Global => ("bucket.global", "Global"),
        Kind::Missing(_) => ("bucket.missing", "Missing"),
        Kind::Nested(_) => ("bucket.nested", "Nested"),
        Kind::ReverseNested(_) => ("bucket.nested", "ReverseNested"),
        Kind::Sampler(_) => ("bucket.sampler", "Sampler"),
        Kind::TopHits(_) => ("metrics", "TopHits"),
        Kind::Metric(metric) => {
            let class: String = metric
                .name()
                .split('_')
                .map(|word| {
                    let mut letters = word.chars();
                    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
                })
                .map(Option::unwrap_or_default)
                .collect();
            return format!("org.opensearch.search.aggregations.metrics.{class}AggregationBuilder");
        }
        _ => ("pipeline", "Pipeline"),
    };
    format!("org.opensearch.search.aggregations.{package}.{class}AggregationBuilder")
}
