//! Figures that parts of a server hand to its metrics page.
//!
//! - [`MetricSource`]: a part with figures, which reads them when the page is made
//! - [`MetricFamily`], [`MetricSample`], [`MetricValue`]: what it hands over, without the page's format
//! - [`MetricSources`]: the sources of a server; there is no global registry

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::histogram::HistogramSnapshot;

/// A part of a server that has figures. It is read without a lock that writers hold.
pub trait MetricSource: fmt::Debug + Send + Sync {
    /// Reads the figures of now. The number of samples is bounded.
    fn families(&self) -> Vec<MetricFamily>;
}

/// Samples of one name, all of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Name, without the `_total` of counters.
    pub name: &'static str,
    /// Meaning, in a few words.
    pub help: &'static str,
    /// Samples.
    pub samples: Vec<MetricSample>,
}

/// One value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    /// Names and values of labels.
    pub labels: Vec<(&'static str, String)>,
    /// Value.
    pub value: MetricValue,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A value that rises and falls.
    Gauge(f64),
    /// A sum that only rises.
    Counter(f64),
    /// Durations.
    Histogram(HistogramSnapshot),
}

impl MetricFamily {
    /// Makes a family.
    pub fn new(name: &'static str, help: &'static str, samples: Vec<MetricSample>) -> Self {
        Self { name, help, samples }
    }

    /// Makes a family of one gauge without labels.
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(name, help, vec![MetricSample::gauge(value)])
    }

    /// Makes a family of one counter without labels.
    pub fn counter(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(name, help, vec![MetricSample::counter(value)])
    }
}

impl MetricSample {
    /// Makes a sample of a gauge.
    pub fn gauge(value: f64) -> Self {
        Self { labels: Vec::new(), value: MetricValue::Gauge(value) }
    }

    /// Makes a sample of a counter.
    pub fn counter(value: f64) -> Self {
        Self { labels: Vec::new(), value: MetricValue::Counter(value) }
    }

    /// Makes a sample of durations.
    pub fn histogram(value: HistogramSnapshot) -> Self {
        Self { labels: Vec::new(), value: MetricValue::Histogram(value) }
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((name, value.into()));
        self
    }
}

/// The sources of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MetricSources(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sources: RwLock<Vec<Arc<dyn MetricSource>>>,
    errors: AtomicU64,
}

impl MetricSources {
    /// Adds a source. The number of sources is that of the server's parts.
    pub fn add(&self, source: Arc<dyn MetricSource>) {
        self.0.sources.write().push(source);
    }

    /// Returns all sources, in the order in which they were added.
    pub fn all(&self) -> Vec<Arc<dyn MetricSource>> {
        self.0.sources.read().clone()
    }

    /// Counts a figure that a page leaves out.
    pub fn note_error(&self) {
        self.0.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many figures pages have left out.
    pub fn errors(&self) -> u64 {
        self.0.errors.load(Ordering::Relaxed)
    }
}
