//! `adjacency_matrix`: a bucket for each query and for each pair of queries.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::filters::NamedFilter;
use super::members::ErrorLabel;

/// Most queries, as `index.max_adjacency_matrix_filters` has it by default.
const MAX_FILTERS: usize = 100;

/// An `adjacency_matrix` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct AdjacencyMatrix {
    /// The queries, ordered by name.
    pub filters: Vec<NamedFilter>,
    /// Separator of the names of a pair, `&` by default.
    pub separator: String,
}

impl AdjacencyMatrix {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut matrix = Self { filters: Vec::new(), separator: "&".to_owned() };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("separator", _) => matrix.separator = part.text(key, value)?,
                ("filters", Value::Object(named)) => {
                    matrix.filters =
                        NamedFilter::parse_all(named, true).map_err(|error| part.unread(key, error))?;
                }
                ("filters", Value::Array(_)) => {
                    let reason =
                        "[filters] doesn't support arrays. Use a single object with multiple fields.";
                    return Err(part.refused(key, reason.to_owned()));
                }
                ("filters", _) => return Err(part.wrong_type(key, value)),
                _ => return Err(part.unknown(key, &["filters", "separator"])),
            }
        }
        match matrix.filters.len() {
            0 => Err(Error::Exception {
                kind: "illegal_state_exception",
                status: 500,
                reason: format!("[{}] is missing : filters parameter", part.name),
            }),
            number if number > MAX_FILTERS => Err(Error::IllegalArgument(format!(
                "Number of filters is too large, must be less than or equal to: [{MAX_FILTERS}] but was [{number}].This limit can be set by changing the [index.max_adjacency_matrix_filters] index level setting."
            ))),
            _ => Ok(matrix),
        }
    }
}
