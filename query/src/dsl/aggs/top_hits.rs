//! `top_hits`: the best documents of a bucket.

use crate::dsl::body::SearchBody;

/// A `top_hits` aggregation.
#[derive(Clone, Debug)]
pub(crate) struct TopHits {
    /// What is shown, in which order: `from` and `size` (0 and 3 by default) are set; never a query.
    pub body: SearchBody,
}
