//! The aliases through which an index is named: their filters and routing values.

use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::query;
use millrace_mapping::pattern::matches;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::lower;
use crate::table::predicate::Predicate;

/// Filter and routing of the aliases through which an index was named.
#[derive(Debug, Default)]
pub struct Aliases {
    /// Rows that the aliases show; all where absent.
    pub filter: Option<Predicate>,
    /// Routing values of the aliases; all shards are searched where absent.
    pub routing: Option<Vec<String>>,
}

impl Aliases {
    /// Finds the aliases that name an index. An index that is named itself, or by an alias without a filter, is searched whole.
    ///
    /// # Errors
    /// The filter of an alias that cannot be understood.
    pub fn new(meta: &IndexMeta, parts: &[String]) -> Result<Self> {
        let mut filters = Vec::new();
        let mut routings: Vec<String> = Vec::new();
        let (mut unfiltered, mut unrouted) = (false, false);
        for part in parts {
            if part.is_empty() || part == "_all" || matches(part, &meta.name) {
                return Ok(Self::default());
            }
            for (name, alias) in &meta.aliases {
                if !matches(part, name) {
                    continue;
                }
                match alias.get("filter").filter(|filter| !filter.is_null()) {
                    Some(filter) => {
                        let filter = query::parse(filter).map_err(|error| {
                            Error::IllegalArgument(format!(
                                "failed to parse filter for alias [{name}]: {error}"
                            ))
                        })?;
                        filters.push(lower::lower_filter(&filter));
                    }
                    None => unfiltered = true,
                }
                match alias.get("search_routing").and_then(Value::as_str) {
                    Some(values) => routings.extend(values.split(',').map(str::to_owned)),
                    None => unrouted = true,
                }
            }
        }
        let filter = (!unfiltered && !filters.is_empty()).then(|| Predicate::any(filters));
        let routing = (!unrouted && !routings.is_empty()).then_some(routings);
        Ok(Self { filter, routing })
    }
}
