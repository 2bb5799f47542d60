//! Families of the server's parts, such as rules, notifications and pipelines, which hand them over as [`MetricSource`]s.
//!
//! A part that panics, or a value that is no number, is left out and counted: the rest of the page is served.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrace_runtime::metrics::{MetricFamily, MetricSample, MetricSource, MetricSources, MetricValue};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::page::Page;

/// Writes the families of all parts, and the number of figures that were left out.
pub(super) fn encode(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let sources = page.parts();
    let mut written = BTreeSet::new();
    for part in sources.all() {
        for family in read(sources, &part) {
            // A second family of a name would make the whole page unreadable.
            match written.insert(family.name) {
                true => write(sources, family, encoder)?,
                false => leave_out(sources, family.name),
            }
        }
    }
    let name = "millrace_metrics_errors";
    let help = "Figures that were left out of a page";
    let mut errors = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    errors.encode_counter::<NoLabelSet, u64, f64>(&sources.errors(), None)
}

fn read(sources: &MetricSources, part: &Arc<dyn MetricSource>) -> Vec<MetricFamily> {
    catch_unwind(AssertUnwindSafe(|| part.families())).unwrap_or_else(|_| {
        leave_out(sources, "all families of a part");
        Vec::new()
    })
}

fn leave_out(sources: &MetricSources, family: &str) {
    sources.note_error();
    tracing::debug!(family, "a figure is left out of the metrics");
}

fn write(sources: &MetricSources, family: MetricFamily, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let MetricFamily { name, help, mut samples } = family;
    let kind = samples.first().map(|sample| kind(&sample.value));
    samples.retain(|sample| {
        let is_sound =
            Some(kind_index(&sample.value)) == kind.as_ref().map(|(index, _)| *index) && is_finite(sample);
        if !is_sound {
            leave_out(sources, name);
        }
        is_sound
    });
    let Some((_, kind)) = kind.filter(|_| !samples.is_empty()) else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for MetricSample { labels, value } in samples {
        match labels.is_empty() {
            true => write_value(&mut family, &value)?,
            false => write_value(&mut family.encode_family(&labels)?, &value)?,
        }
    }
    Ok(())
}

fn write_value(encoder: &mut MetricEncoder<'_>, value: &MetricValue) -> fmt::Result {
    match value {
        MetricValue::Gauge(value) => encoder.encode_gauge(value),
        MetricValue::Counter(value) => encoder.encode_counter::<NoLabelSet, f64, f64>(value, None),
        MetricValue::Histogram(durations) => encoder.encode_histogram::<NoLabelSet>(
            durations.sum.as_secs_f64(),
            durations.count,
            &durations.buckets,
            None,
        ),
    }
}

fn is_finite(sample: &MetricSample) -> bool {
    match sample.value {
        MetricValue::Gauge(value) | MetricValue::Counter(value) => value.is_finite(),
        MetricValue::Histogram(_) => true,
    }
}

fn kind_index(value: &MetricValue) -> u8 {
    kind(value).0
}

fn kind(value: &MetricValue) -> (u8, MetricType) {
    match value {
        MetricValue::Gauge(_) => (0, MetricType::Gauge),
        MetricValue::Counter(_) => (1, MetricType::Counter),
        MetricValue::Histogram(_) => (2, MetricType::Histogram),
    }
}
