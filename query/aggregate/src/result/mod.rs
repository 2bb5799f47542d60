//! The reduced tree: the operator hands it to pipelines, and pipelines to the answer.
//!
//! [`Results`] is a list of named [`Outcome`]s: metrics, single buckets, or buckets with [`Results`] of
//! their own. [`Results::write`] makes the JSON that OpenSearch would answer.

mod format;
mod metric;
mod property;
mod render;

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

pub(crate) use format::Format;
pub(crate) use metric::{
    ExtendedStats, GeoBox, MatrixField, MatrixStats, Metric, PercentileMethod, Percentiles, Stats,
};
pub(crate) use property::Property;

/// Results of aggregations beside each other, in the order in which they are shown.
#[derive(Clone, Debug, Default)]
pub struct Results(pub Vec<Entry>);

/// One named result.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Members that all results of this aggregation share, whichever bucket they are in.
    pub header: Arc<Header>,
    /// The result.
    pub outcome: Outcome,
}

/// Members that all results of one aggregation share.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Name of the aggregation.
    pub name: Arc<str>,
    /// Metadata that the answer repeats.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// Format of keys and values.
    pub format: Format,
}

/// One result.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Numbers.
    Metric(Metric),
    /// The one bucket of an aggregation that has one.
    Single(Box<SingleBucket>),
    /// Buckets.
    Buckets(Box<Buckets>),
    /// Hits of a bucket.
    TopHits {
        /// Their number among the hits that are fetched.
        number: usize,
        /// JSON text once they are fetched: an object with `total`, `max_score` and `hits`.
        text: Bytes,
    },
}

/// The bucket of an aggregation that has one.
#[derive(Clone, Debug)]
pub struct SingleBucket {
    /// Kind of the aggregation.
    pub kind: SingleKind,
    /// Number of its documents.
    pub doc_count: u64,
    /// Results of the sub-aggregations.
    pub subs: Results,
}

/// Aggregations with one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SingleKind {
    Filter,
    Global,
    Missing,
    Nested,
    ReverseNested,
    Sampler,
}

/// Buckets in the order in which they are shown.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// Kind of the aggregation, and the members beside the buckets.
    pub shape: BucketsKind,
    /// `true` if they are members of an object, by their keys.
    pub keyed: bool,
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

/// Aggregations with buckets.
#[derive(Clone, Debug)]
pub enum BucketsKind {
    /// `terms`.
    Terms {
        /// Type of keys.
        key_type: KeyType,
        /// Number of documents of values that are not shown.
        other: u64,
        /// `true` if buckets show `doc_count_error_upper_bound`.
        show_error: bool,
    },
    /// `multi_terms`; keys are [`Key::List`].
    MultiTerms {
        /// Formats of the parts of keys.
        formats: Arc<[Format]>,
        /// Number of documents of values that are not shown.
        other: u64,
        /// `true` if buckets show `doc_count_error_upper_bound`.
        show_error: bool,
    },
    /// `rare_terms`.
    RareTerms(KeyType),
    /// `significant_terms`; buckets have [`Detail::Significant`].
    SignificantTerms {
        /// Type of keys.
        key_type: KeyType,
        /// Documents in the foreground.
        doc_count: u64,
        /// Documents in the background.
        background: u64,
    },
    /// `composite`; keys are [`Key::List`].
    Composite {
        /// Names and formats of the parts of keys.
        parts: Arc<[(Arc<str>, Format)]>,
        /// Key of the last bucket; shown where present.
        after: Option<Key>,
    },
    /// `date_histogram`; keys are [`Key::Long`] in milliseconds.
    DateHistogram,
    /// `auto_date_histogram`; keys are [`Key::Long`] in milliseconds.
    AutoDateHistogram {
        /// The chosen interval, such as `7d`.
        interval: Arc<str>,
    },
    /// `histogram`; keys are [`Key::Double`].
    Histogram,
    /// `range`; buckets have [`Detail::Range`].
    Range,
    /// `date_range`; buckets have [`Detail::Range`] in milliseconds.
    DateRange,
    /// `ip_range`; buckets have [`Detail::IpRange`].
    IpRange,
    /// `filters`; keys are [`Key::Text`], or [`Key::Null`] where filters have no names.
    Filters,
    /// `adjacency_matrix`; keys are [`Key::Text`].
    AdjacencyMatrix,
}

/// Type of the keys of an aggregation over terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// [`Key::Text`] or [`Key::Ip`].
    Strings,
    /// [`Key::Long`]: whole numbers, dates, booleans.
    Longs,
    /// [`Key::Unsigned`].
    Unsigned,
    /// [`Key::Double`].
    Doubles,
    /// None: no index has the field.
    Unmapped,
}

/// One bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Its key.
    pub key: Key,
    /// Number of its documents.
    pub doc_count: u64,
    /// Details of a bucket.
    pub detail: Detail,
    /// Results of the sub-aggregations.
    pub subs: Results,
}

/// Key of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// No value, or no name.
    Null,
    /// A whole number, milliseconds of a date, or 0 or 1 of a boolean.
    Long(i64),
    /// A number of an unsigned_long.
    Unsigned(u64),
    /// A floating point number.
    Double(f64),
    /// A text.
    Text(Arc<str>),
    /// An address, IPv4 mapped.
    Ip([u8; 16]),
    /// Several keys in the order of their sources.
    List(Arc<[Key]>),
}

/// Details of a bucket besides key, count and results.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// Nothing.
    None,
    /// The bounds of a range; a bucket's key is [`Key::Text`] where the request names it, else [`Key::Null`].
    Range {
        /// Lower bound; open where absent.
        from: Option<f64>,
        /// Upper bound; open where absent.
        to: Option<f64>,
    },
    /// The bounds of a range of addresses.
    IpRange {
        /// Lower bound; open where absent.
        from: Option<[u8; 16]>,
        /// Upper bound; open where absent.
        to: Option<[u8; 16]>,
    },
    /// Significance of a term.
    Significant {
        /// Its score.
        score: f64,
        /// Documents of the background that have it.
        background: u64,
    },
}

impl Results {
    /// Finds the result of a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| &*entry.header.name == name)
    }
}

impl Outcome {
    /// Makes the result of an aggregation with buckets.
    pub(crate) fn buckets(shape: BucketsKind, keyed: bool, buckets: Vec<Bucket>) -> Self {
        Self::Buckets(Box::new(Buckets { shape, keyed, buckets }))
    }
}

impl Key {
    /// Compares keys of one aggregation: null first, numbers by value, texts and addresses by their bytes.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Long(a), Self::Long(b)) => a.cmp(b),
            (Self::Unsigned(a), Self::Unsigned(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Ip(a), Self::Ip(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => {
                let mut parts = a.iter().zip(b.iter()).map(|(a, b)| a.compare(b));
                parts.find(|found| found.is_ne()).unwrap_or(Ordering::Equal)
            }
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Less,
            (_, Self::Null) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}
