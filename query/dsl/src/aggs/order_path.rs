//! Checks that the value of an order exists: paths through the sub-aggregations of the buckets.

use millrace_work::error::{Error, Result};

use super::{Aggregations, BucketOrder, Kind, Metric, OrderBy, Simple};

/// Values of `stats` by which buckets are ordered.
const STATS: [&str; 5] = ["avg", "count", "max", "min", "sum"];
/// Those of `extended_stats`, besides.
const EXTENDED: [&str; 13] = [
    "sum_of_squares",
    "variance",
    "variance_population",
    "variance_sampling",
    "std_deviation",
    "std_deviation_population",
    "std_deviation_sampling",
    "std_upper",
    "std_lower",
    "std_upper_population",
    "std_lower_population",
    "std_upper_sampling",
    "std_lower_sampling",
];

/// Possible end of a path.
enum PathEnd<'a> {
    /// The documents of one bucket.
    Bucket,
    /// One value.
    Value,
    /// Some of several values.
    Values(&'a dyn Fn(&str) -> bool),
    /// Nothing: several buckets, hits.
    Nothing,
}

impl BucketOrder {
    /// Checks the paths of an order against the sub-aggregations of the buckets.
    ///
    /// # Errors
    /// A path that leads to nothing that can be compared.
    pub fn check(&self, subs: &Aggregations) -> Result<()> {
        self.0.iter().try_for_each(|criterion| match &criterion.by {
            OrderBy::Key | OrderBy::Count => Ok(()),
            OrderBy::Path { names, property } => check(subs, names, property.as_deref()),
        })
    }
}

fn check(mut subs: &Aggregations, names: &[String], property: Option<&str>) -> Result<()> {
    let mut path = names.join(">");
    if let Some(property) = property {
        path = format!("{path}.{property}");
    }
    let refuse = |reason: String| {
        let reason = format!("Invalid aggregation order path [{path}]. {reason}");
        Err(Error::Exception { kind: "aggregation_execution_exception", status: 500, reason })
    };
    let missing = |name: &str| {
        refuse(format!(
            "The provided aggregation [{name}] either does not exist, or is a pipeline aggregation and cannot be used to sort the buckets."
        ))
    };
    const FORM: &str = "Buckets can only be sorted on a sub-aggregator path that is built out of zero or more single-bucket aggregations within the path and a final single-bucket or a metrics aggregation at the path end.";
    let Some((last, around)) = names.split_last() else { return missing("") };
    for name in around {
        match subs.get(name) {
            None => return missing(name),
            Some(found) if single_bucket(&found.kind) => subs = &found.subs,
            Some(_) => return refuse(format!("{FORM} [{name}] is not single-bucket.")),
        }
    }
    let Some(found) = subs.get(last).filter(|found| !matches!(found.kind, Kind::Pipeline(_))) else {
        return missing(last);
    };
    with_end(&found.kind, |end| match (end, property) {
        (PathEnd::Nothing, _) => refuse(FORM.to_owned()),
        (PathEnd::Bucket, None | Some("doc_count")) | (PathEnd::Value, None | Some("value")) => Ok(()),
        (PathEnd::Bucket, Some(_)) => refuse(format!(
            "Ordering on a single-bucket aggregation can only be done on its doc_count. Either drop the key (a la \"{last}\") or change it to \"doc_count\" (a la \"{last}.doc_count\") or \"key\"."
        )),
        (PathEnd::Value, Some(_)) => refuse(format!(
            "Ordering on a single-value metrics aggregation can only be done on its value. Either drop the key (a la \"{last}\") or change it to \"value\" (a la \"{last}.value\")"
        )),
        (PathEnd::Values(_), None) => refuse(
            "When ordering on a multi-value metrics aggregation a metric name must be specified.".to_owned(),
        ),
        (PathEnd::Values(has), Some(name)) if has(name) => Ok(()),
        (PathEnd::Values(_), Some(name)) => {
            refuse(format!("Unknown metric name [{name}] on multi-value metrics aggregation [{last}]"))
        }
    })
}

fn single_bucket(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Filter(_)
            | Kind::Global
            | Kind::Missing(_)
            | Kind::Nested(_)
            | Kind::ReverseNested(_)
            | Kind::Sampler(_)
    )
}

fn with_end<T>(kind: &Kind, then: impl FnOnce(PathEnd<'_>) -> T) -> T {
    let Kind::Metric(metric) = kind else {
        return then(if single_bucket(kind) { PathEnd::Bucket } else { PathEnd::Nothing });
    };
    let listed = |numbers: &[f64], name: &str| name.parse().is_ok_and(|number| numbers.contains(&number));
    match metric.as_ref() {
        Metric::Simple(Simple::Stats, _) => then(PathEnd::Values(&|name| STATS.contains(&name))),
        Metric::ExtendedStats { .. } => {
            then(PathEnd::Values(&|name| STATS.contains(&name) || EXTENDED.contains(&name)))
        }
        Metric::Percentiles(percentiles) => {
            then(PathEnd::Values(&|name| listed(&percentiles.percents, name)))
        }
        Metric::PercentileRanks(ranks) => then(PathEnd::Values(&|name| listed(&ranks.values, name))),
        Metric::GeoBounds { .. } | Metric::MatrixStats(_) => then(PathEnd::Nothing),
        Metric::Simple(..)
        | Metric::Cardinality(_)
        | Metric::MedianAbsoluteDeviation { .. }
        | Metric::WeightedAvg(_) => then(PathEnd::Value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values_or_are_refused() {
        let subs = Aggregations::parse("aggs", &json!({
            "s": {"stats": {"field": "f"}}, "e": {"extended_stats": {"field": "f"}}, "m": {"max": {"field": "f"}},
            "p": {"percentiles": {"field": "f", "percents": [50, 99.5]}}, "t": {"terms": {"field": "f"}},
            "fl": {"filter": {"match_all": {}}, "aggs": {"m2": {"min": {"field": "f"}}}},
        }))
        .unwrap();
        let checked = |names: &[&str], property: Option<&str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check(&subs, &names, property).map_err(|error| error.to_string())
        };
        for (names, property) in [
            (&["s"][..], Some("avg")),
            (&["e"], Some("std_upper")),
            (&["m"], None),
            (&["m"], Some("value")),
            (&["p"], Some("99.5")),
            (&["p"], Some("50")),
            (&["fl"], None),
            (&["fl"], Some("doc_count")),
            (&["fl", "m2"], None),
        ] {
            assert_eq!(checked(names, property), Ok(()), "{names:?} {property:?}");
        }
        for (names, property, part) in [
            (&["x"][..], None, "[x] either does not exist"),
            (&["s"], None, "a metric name must be specified"),
            (&["s"], Some("nope"), "[s.nope]. Unknown metric name [nope]"),
            (&["s", "avg"], None, "[s>avg]. Buckets can only"),
            (&["m"], Some("foo"), "change it to \"value\""),
            (&["p"], Some("33"), "Unknown metric name [33]"),
            (&["fl"], Some("_count"), "[fl._count]. Ordering on a single-bucket"),
            (&["fl", "x"], None, "[fl>x]. The provided aggregation [x]"),
            (&["t"], None, "at the path end."),
        ] {
            let error = checked(names, property).unwrap_err();
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}
