//! `terms`: a bucket for each value.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::include::IncludeExclude;
use super::members::ErrorLabel;
use super::order::BucketOrder;
use super::source::{AcceptedMembers, ValuesSource};

/// Members of the aggregation.
const KNOWN: &[&str] = &[
    "collect_mode",
    "exclude",
    "execution_hint",
    "field",
    "format",
    "include",
    "min_doc_count",
    "missing",
    "order",
    "script",
    "shard_min_doc_count",
    "shard_size",
    "show_term_doc_count_error",
    "size",
    "value_type",
];

/// A `terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Source of values.
    pub source: ValuesSource,
    /// Order of buckets; by count, greatest first, where the request does not say.
    pub order: BucketOrder,
    /// Selection of the terms that make buckets.
    pub include: IncludeExclude,
    /// Bounds on the number of buckets, and on their documents.
    pub thresholds: Thresholds,
    /// `true` if each bucket shows `doc_count_error_upper_bound`, here always 0.
    pub show_error: bool,
    /// `collect_mode`; both give the same answer.
    pub collect_mode: Option<CollectMode>,
}

/// Bounds on the number of buckets, and on their documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Most buckets.
    pub size: usize,
    /// Most buckets of a shard as the request has it; at least `size`. `None` where absent. Counts here are exact without it.
    pub shard_size: Option<usize>,
    /// Least documents of a bucket. 0 shows terms of the index without a matching document too.
    pub min_doc_count: u64,
    /// Least documents of a bucket on a shard.
    pub shard_min_doc_count: u64,
}

/// `collect_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CollectMode {
    DepthFirst,
    BreadthFirst,
}

impl Terms {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut terms = Self {
            source: ValuesSource::default(),
            order: BucketOrder::count_descending(),
            include: IncludeExclude::default(),
            thresholds: Thresholds::new(10, 1),
            show_error: false,
            collect_mode: None,
        };
        for (key, value) in members {
            match key.as_str() {
                "order" => terms.order = BucketOrder::parse(part, key, value)?,
                "show_term_doc_count_error" => terms.show_error = part.boolean(key, value)?,
                "collect_mode" => terms.collect_mode = Some(CollectMode::parse(part, key, value)?),
                "execution_hint" => execution_hint(part, key, value)?,
                _ if terms.include.take(part, key, value)? => {}
                _ if terms.thresholds.take(part, key, value)? => {}
                _ if terms.source.take(part, AcceptedMembers::Format, key, value)? => {}
                _ => return Err(part.unknown(key, KNOWN)),
            }
        }
        terms.source = terms.source.required(part)?;
        terms.thresholds = terms.thresholds.consistent();
        Ok(terms)
    }
}

impl Thresholds {
    pub(super) fn new(size: usize, min_doc_count: u64) -> Self {
        Self { size, shard_size: None, min_doc_count, shard_min_doc_count: 0 }
    }

    /// Takes one of its members; returns whether it is one.
    pub(super) fn take(&mut self, part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<bool> {
        let positive = |label: &str| {
            let number = part.int(key, value)?;
            usize::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
                let reason = format!("[{label}] must be greater than 0. Found [{number}] in [{}]", part.name);
                part.refused(key, reason)
            })
        };
        match key {
            "size" => self.size = positive("size")?,
            "shard_size" => self.shard_size = Some(positive("shardSize")?),
            "min_doc_count" => self.min_doc_count = not_negative(part, key, "minDocCount", value)?,
            "shard_min_doc_count" => {
                self.shard_min_doc_count = not_negative(part, key, "shardMinDocCount", value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes the thresholds of shards fit those of the whole.
    pub(super) fn consistent(mut self) -> Self {
        self.shard_size = self.shard_size.map(|shard_size| shard_size.max(self.size));
        self.shard_min_doc_count = self.shard_min_doc_count.min(self.min_doc_count);
        self
    }
}

/// Reads a number of documents.
pub(super) fn not_negative(part: ErrorLabel<'_>, key: &str, label: &str, value: &Value) -> Result<u64> {
    let number = part.long(key, value)?;
    u64::try_from(number).map_err(|_| {
        let reason =
            format!("[{label}] must be greater than or equal to 0. Found [{number}] in [{}]", part.name);
        part.refused(key, reason)
    })
}

impl CollectMode {
    pub(super) fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        match part.text(key, value)?.as_str() {
            "depth_first" => Ok(Self::DepthFirst),
            "breadth_first" => Ok(Self::BreadthFirst),
            other => {
                Err(part.unread(key, Error::Parse(format!("no [collect_mode] found for value [{other}]"))))
            }
        }
    }
}

/// Checks a hint, which has no effect.
pub(super) fn execution_hint(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<()> {
    match part.text(key, value)?.as_str() {
        "map" | "global_ordinals" => Ok(()),
        other => Err(Error::IllegalArgument(format!(
            "Unknown `execution_hint`: [{other}], expected any of [map, global_ordinals]"
        ))),
    }
}
