//! Values of buckets by path, and what stands for those that are missing.

use millrace_dsl::aggs::{GapPolicy, Path};
use millrace_work::error::{Error, Result};

use crate::result::{Bucket, Outcome, Property};

/// A path to a value of a bucket.
#[derive(Clone, Debug)]
pub(super) struct ValuePath(Vec<String>);

impl ValuePath {
    /// Parses a path; `skip` elements lead to the buckets and are left out.
    pub(super) fn parse(path: &str, skip: usize) -> Result<Self> {
        let path = Path::parse(path)?;
        Ok(Self(path.names().into_iter().skip(skip).map(str::to_owned).collect()))
    }

    /// Finds the value of a bucket of the aggregation `of`: NaN or zero where it is missing, `None` where there is no
    /// aggregation of that name in the bucket.
    ///
    /// # Errors
    /// A path that leads to no number.
    pub(super) fn value(&self, of: &str, bucket: &Bucket, gap_policy: GapPolicy) -> Result<Option<f64>> {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let number = match bucket.property(&names)? {
            None => return Ok(None),
            Some(Property::Number(number)) => number,
            Some(Property::Entry(entry)) => match &entry.outcome {
                Outcome::Metric(metric) => match metric.single() {
                    Some(number) => number,
                    None if metric.is_multiple() => {
                        let name = self.0.first().map_or(of, String::as_str);
                        return Err(unresolved(&format!(
                            "but [{name}] contains multiple values. Please specify which to use."
                        )));
                    }
                    None => return Err(self.got(of, "InternalMetric")),
                },
                Outcome::Single(_) => return Err(self.got(of, "InternalSingleBucketAggregation")),
                Outcome::Buckets(_) => return Err(self.got(of, "InternalMultiBucketAggregation")),
                Outcome::TopHits { .. } => return Err(self.got(of, "InternalTopHits")),
            },
            Some(Property::Bucket) => return Err(self.got(of, "Bucket")),
            Some(Property::Several) => return Err(self.got(of, "Object[]")),
            Some(Property::Key) => return Err(self.got(of, "String")),
        };
        if names == ["_count"] {
            return Ok(Some(number));
        }
        if number.is_finite() && bucket.doc_count > 0 {
            return Ok(Some(number));
        }
        Ok(Some(match gap_policy {
            GapPolicy::Skip => f64::NAN,
            GapPolicy::InsertZeros => 0.0,
        }))
    }

    fn got(&self, of: &str, what: &str) -> Error {
        let name = self.0.first().map_or(of, String::as_str);
        unresolved(&format!("got: [{what}] at aggregation [{name}]"))
    }
}

fn unresolved(what: &str) -> Error {
    Error::Exception {
        kind: "aggregation_execution_exception",
        status: 500,
        reason: format!(
            "buckets_path must reference either a number value or a single value numeric metric aggregation, {what}"
        ),
    }
}
