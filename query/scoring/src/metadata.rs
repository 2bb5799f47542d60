//! Rows by what is stored with them and nowhere indexed: `_routing`, `_ignored`, `_seq_no`, members of the
//! source that no index and no column holds.

use std::sync::Arc;

use millrace_mapping::fields::FieldRules;
use millrace_segment::RowParts;
use millrace_work::PARSED_SHARE;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::path_values::has_value_at;
use crate::source::Source;
use crate::steps::in_steps;

/// Condition on a row's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// A routing value: one of these, or any.
    Routing(Option<Vec<String>>),
    /// Ignored fields.
    Ignored {
        /// One of these, or any.
        any_of: Option<Vec<String>>,
        /// Field rules under which they are seen.
        rules: Arc<[Arc<FieldRules>]>,
    },
    /// A sequence number from one to another.
    SeqNo(u64, u64),
    /// A value at a path of the source.
    InSource(String),
}

/// Finds the rows, of those that matter.
pub(super) fn rows(
    source: &Source,
    metadata: &Metadata,
    among: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    let all: Vec<u32> = match among {
        Some(among) => among.iter().collect(),
        None => (0..source.reader.rows()).collect(),
    };
    let parts = RowParts {
        source: matches!(metadata, Metadata::InSource(_)),
        versions: matches!(metadata, Metadata::SeqNo(..)),
    };
    let mut found = RoaringBitmap::new();
    in_steps(source.reader.as_ref(), &all, parts, &source.work, |batch, bytes| {
        let _read = source.work.part_of(bytes)?;
        for stored in batch {
            let fits = match metadata {
                Metadata::Routing(wanted) => stored
                    .routing
                    .is_some_and(|own| wanted.as_ref().is_none_or(|wanted| wanted.contains(&own))),
                Metadata::Ignored { any_of, rules } => stored.ignored.iter().any(|own| {
                    any_of.as_ref().is_none_or(|wanted| wanted.contains(own))
                        && rules.iter().all(|rules| rules.shows(own))
                }),
                Metadata::SeqNo(from, to) => (*from..=*to).contains(&stored.seq_no),
                Metadata::InSource(path) => {
                    source.work.check()?;
                    let _parsed = source.work.part_of(PARSED_SHARE * stored.source.len())?;
                    let parsed = serde_json::from_slice(&stored.source).map_err(|error| {
                        Error::Execution(format!("the source of [{}] is not JSON: {error}", stored.id))
                    })?;
                    has_value_at(&parsed, path)
                }
            };
            if fits {
                found.insert(stored.row);
            }
        }
        Ok(())
    })?;
    Ok(found)
}
