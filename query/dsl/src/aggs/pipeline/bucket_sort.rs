//! `bucket_sort`: the order of buckets, and how many of them are left.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::members::Members;
use super::paths::MAX_PATHS;
use crate::sort::SortBy;

/// `bucket_sort`.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSort {
    /// Keys of the order; the order stays where empty.
    pub sort: Vec<SortPath>,
    /// Buckets left out at the beginning.
    pub from: usize,
    /// Most buckets.
    pub size: Option<usize>,
    /// Treatment of buckets without a value.
    pub gap_policy: GapPolicy,
}

/// One key of [`BucketSort`].
#[derive(Clone, Debug, PartialEq)]
pub struct SortPath {
    /// The value.
    pub path: String,
    /// `true` if greater values come first.
    pub descending: bool,
}

impl BucketSort {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let failed = |error: Error| Error::Content {
            reason: "failed to build [bucket_sort] after last required field arrived".to_owned(),
            cause: Some(Box::new(error)),
        };
        let mut shared = Members::default();
        let (mut sort, mut from, mut size) = (Vec::new(), 0, None);
        for (key, value) in members {
            match key.as_str() {
                "sort" => sort = sort_paths(part, key, value)?,
                "from" => {
                    let number = part.int(key, value)?;
                    from = usize::try_from(number).map_err(|_| {
                        failed(
                            part.refused(key, format!("[from] must be a non-negative integer: [{number}]")),
                        )
                    })?;
                }
                "size" => {
                    let number = part.int(key, value)?;
                    let positive = usize::try_from(number).ok().filter(|size| *size > 0);
                    size = Some(positive.ok_or_else(|| {
                        failed(part.refused(key, format!("[size] must be a positive integer: [{number}]")))
                    })?);
                }
                "gap_policy" if shared.take(part, key, value)? => {}
                _ => return Err(part.unknown(key, &["from", "gap_policy", "size", "sort"])),
            }
        }
        Ok(Self { sort, from, size, gap_policy: shared.gap_policy })
    }
}

/// Reads the keys of an order: paths, or objects of paths and directions.
fn sort_paths(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Vec<SortPath>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Object(_) => std::slice::from_ref(value),
        other => return Err(part.wrong_type(key, other)),
    };
    if items.len() > MAX_PATHS {
        let reason = format!("too many sort keys: {} given, at most {MAX_PATHS} allowed", items.len());
        return Err(part.refused(key, reason));
    }
    let mut paths = Vec::new();
    for sort in crate::sort::parse(&Value::Array(items.to_vec())).map_err(|error| part.unread(key, error))? {
        let path = match sort.by {
            SortBy::Field(field) => field.field,
            SortBy::Score => "_score".to_owned(),
            SortBy::Doc => "_doc".to_owned(),
            SortBy::Distance(_) => {
                return Err(part.refused(key, "buckets are not sorted by distance".to_owned()));
            }
        };
        paths.push(SortPath { path, descending: sort.descending });
    }
    Ok(paths)
}
