//! Pipeline aggregations: values that are computed of the reduced tree.
//!
//! [`validate`](millrace_dsl::aggs::validate) checks them before a search runs; [`apply`] runs them over the results, innermost
//! first and each after those whose values it reads. Expressions are parsed with the request
//! ([`Expression`](millrace_dsl::expression::Expression)).

mod parent;
mod resolve;
mod sibling;

use std::sync::Arc;

use millrace_dsl::aggs::{Aggregation, Aggregations, Path, Pipeline};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use crate::collector::ADDED_RESULT_BYTES;
use crate::result::{Entry, Format, Header, Outcome, Results};

/// Runs the pipelines of a request over its results, which are complete otherwise: buckets ordered and cut, gaps filled. Entries of
/// `results` must have the names of `aggregations`. What is added to them is held by `work`.
///
/// # Errors
/// A path that leads nowhere, an expression that is not boolean, and the like, as OpenSearch words it; more than queries may
/// hold.
pub(crate) fn apply(aggregations: &Aggregations, results: &mut Results, work: &QueryContext) -> Result<()> {
    if !has_pipelines(aggregations) {
        return Ok(());
    }
    level(aggregations, results, work)?;
    for aggregation in ordered(aggregations) {
        if let PipelineRun { header, kind: Pipeline::BucketMetric(metric) } = PipelineRun::new(aggregation)? {
            let outcome = sibling::compute(metric, results, work)?;
            results.0.push(Entry { header, outcome: Outcome::Metric(outcome) });
        }
    }
    Ok(())
}

/// One pipeline aggregation about to run.
struct PipelineRun<'a> {
    header: Arc<Header>,
    kind: &'a Pipeline,
}

impl<'a> PipelineRun<'a> {
    fn new(aggregation: &'a Aggregation) -> Result<Self> {
        let millrace_dsl::aggs::Kind::Pipeline(pipeline) = &aggregation.kind else {
            return Err(millrace_work::error::Error::Execution(format!(
                "[{}] is no pipeline",
                aggregation.name
            )));
        };
        let format = match pipeline.as_ref() {
            Pipeline::BucketMetric(metric) => metric.format.as_deref(),
            Pipeline::Derivative(derivative) => derivative.format.as_deref(),
            Pipeline::CumulativeSum { format, .. } => format.as_deref(),
            Pipeline::MovingFn(moving) => moving.format.as_deref(),
            Pipeline::SerialDiff(diff) => diff.format.as_deref(),
            Pipeline::BucketScript(script) => script.format.as_deref(),
            Pipeline::BucketSort(_) | Pipeline::BucketSelector(_) => None,
        };
        let header = Header {
            name: Arc::clone(&aggregation.name),
            meta: aggregation.meta.clone(),
            format: Format::decimal(format)?,
        };
        Ok(Self { header: Arc::new(header), kind: pipeline })
    }
}

fn has_pipelines(aggregations: &Aggregations) -> bool {
    aggregations.pipelines().next().is_some()
        || aggregations.0.iter().any(|aggregation| has_pipelines(&aggregation.subs))
}

/// Runs what is inside the aggregations of a level.
fn level(aggregations: &Aggregations, results: &mut Results, work: &QueryContext) -> Result<()> {
    for aggregation in aggregations.collected().filter(|aggregation| has_pipelines(&aggregation.subs)) {
        let entry = results.0.iter_mut().find(|entry| entry.header.name == aggregation.name);
        let Some(entry) = entry else { continue };
        match &mut entry.outcome {
            Outcome::Single(single) => level(&aggregation.subs, &mut single.subs, work)?,
            Outcome::Buckets(buckets) => {
                for bucket in &mut buckets.buckets {
                    level(&aggregation.subs, &mut bucket.subs, work)?;
                }
            }
            Outcome::Metric(_) | Outcome::TopHits { .. } => continue,
        }
        for pipeline in ordered(&aggregation.subs) {
            inside(&PipelineRun::new(pipeline)?, &aggregation.name, &mut entry.outcome, work)?;
        }
    }
    Ok(())
}

/// Runs one pipeline of an aggregation's own.
fn inside(run: &PipelineRun<'_>, parent: &str, outcome: &mut Outcome, work: &QueryContext) -> Result<()> {
    work.check()?;
    if let Outcome::Buckets(buckets) = &*outcome {
        work.hold(buckets.buckets.len() * ADDED_RESULT_BYTES)?;
    }
    match (outcome, run.kind) {
        (Outcome::Buckets(buckets), Pipeline::BucketMetric(metric)) => {
            for bucket in &mut buckets.buckets {
                let found = sibling::compute(metric, &bucket.subs, work)?;
                bucket
                    .subs
                    .0
                    .push(Entry { header: Arc::clone(&run.header), outcome: Outcome::Metric(found) });
            }
            Ok(())
        }
        (Outcome::Single(single), Pipeline::BucketMetric(metric)) => {
            let found = sibling::compute(metric, &single.subs, work)?;
            single.subs.0.push(Entry { header: Arc::clone(&run.header), outcome: Outcome::Metric(found) });
            Ok(())
        }
        (Outcome::Buckets(buckets), kind) => parent::compute(kind, &run.header, parent, buckets),
        _ => Ok(()),
    }
}

/// Lists the pipelines of a level, each behind those that it reads. That there is no cycle has been validated; if there were one,
/// its members would come in the order of the request.
fn ordered(aggregations: &Aggregations) -> Vec<&Aggregation> {
    let mut waiting: Vec<(&Aggregation, &Pipeline)> = aggregations.pipelines().collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let reads = |pipeline: &Pipeline| {
            pipeline.paths().into_iter().any(|path| {
                let first = Path::parse(path).ok().and_then(|path| path.0.into_iter().next());
                first.is_some_and(|first| {
                    waiting
                        .iter()
                        .any(|(other, kind)| !std::ptr::eq(*kind, pipeline) && *other.name == *first.name)
                })
            })
        };
        let next = waiting.iter().position(|(_, pipeline)| !reads(pipeline)).unwrap_or(0);
        ordered.push(waiting.remove(next).0);
    }
    ordered
}

#[cfg(test)]
mod tests;
