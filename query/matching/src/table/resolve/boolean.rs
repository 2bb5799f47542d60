//! Clauses that query strings combine, as a Lucene boolean query does.

use millrace_dsl::minimum_should_match::MinimumShouldMatch;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;

/// Conditions that must, may and must not match.
#[derive(Clone, Debug, Default)]
pub(super) struct Boolean {
    /// Must match, and score.
    pub must: Vec<Node>,
    /// May match, and then score; one has to where nothing else must match.
    pub should: Vec<Node>,
    /// Must not match.
    pub must_not: Vec<Node>,
    /// Number of `should` clauses that have to match.
    pub required: usize,
    /// `true` if there is a condition that everything fulfils without a score.
    pub everything: bool,
}

impl Boolean {
    /// Returns the number of conditions.
    pub(super) fn len(&self) -> usize {
        self.must.len() + self.should.len() + self.must_not.len()
    }

    /// Takes how many of `should` have to match; more than there are match nothing, even where there
    /// are none.
    pub(super) fn require(&mut self, minimum: Option<&MinimumShouldMatch>) {
        if let Some(minimum) = minimum {
            self.required = minimum.required(self.should.len());
        }
    }

    /// Lets all that is not excluded match where there are exclusions only.
    pub(super) fn complete(&mut self) {
        self.everything |= self.must.is_empty() && self.should.is_empty() && !self.must_not.is_empty();
    }

    /// Makes the condition; `weight` tells whether scores count.
    pub(super) fn node(self, weight: Weight) -> Node {
        let Self { must, should, must_not, required, everything } = self;
        let needed = !must.is_empty() || everything;
        let required = if needed { required } else { required.max(1) };
        let mut parts = must;
        match (required, should.len()) {
            (required, count) if required > count => return Node::None,
            (0, 0) => {}
            (0, _) if weight == Weight::None => {}
            (required, count) if required == count => parts.extend(should),
            (required, _) => parts.push(Node::AtLeast(required, should)),
        }
        parts.extend(must_not.into_iter().map(|part| Node::Not(Box::new(part))));
        match parts.len() {
            // A score of nothing counts nothing.
            0 => Node::All(Weight::Constant(0.0)),
            1 if !matches!(parts[0], Node::Not(_) | Node::AtLeast(0, _)) => parts.remove(0),
            _ => Node::And(parts),
        }
    }
}
