//! Leaves explained: terms by the parts of BM25, sums of terms, and all else by its score.

use millrace_storage::mapping::Mapping;

use super::describe::described;
use super::{Explanation, Leaf, Number, Row, few, scored_text};
use crate::error::Result;
use crate::score::bm25::{B, Bm25, K1};
use crate::score::build::scorer;
use crate::score::prepare::{Source, prepare};
use crate::table::node::{Node, Weight};

impl Leaf {
    /// Explains the leaf for a row.
    pub(super) fn explain(&self, row: &Row<'_>) -> Result<Explanation> {
        let Some(Some(resolved)) = self.resolved.get(row.index) else {
            return Ok(Explanation::missed(format!("{} is no query of this index", self.text), Vec::new()));
        };
        let functions = self.functions.of(row.snapshot, &self.resolved, row.index, row.shard, true)?;
        let source = Source { functions, ..row.source.clone() };
        let mapping = &row.snapshot.indices[row.index].mapping;
        Explained { source: &source, mapping, row: row.row, text: &self.text }.node(&resolved.node)
    }
}

/// Returns the score of a row; `None` where it does not match.
pub(super) fn score(node: &Node, source: &Source, row: u32) -> Result<Option<f32>> {
    let prepared = prepare(node, source, None)?;
    let mut scorer = scorer(&prepared, source.inverted.as_ref(), source.reader.rows())?;
    Ok((scorer.seek(row) == row).then(|| scorer.score()))
}

struct Explained<'a> {
    source: &'a Source,
    mapping: &'a Mapping,
    row: u32,
    text: &'a str,
}

impl Explained<'_> {
    fn node(&self, node: &Node) -> Result<Explanation> {
        match node {
            Node::None => Ok(Explanation::missed("User requested \"match_none\" query.", Vec::new())),
            Node::Text { path, term, weight: Weight::Bm25(slot) } => {
                let Some(function) = self.source.functions.get(*slot) else { return self.scored(node) };
                let text = self.source.inverted.text(*path);
                let postings = text.map(|text| text.postings(term)).transpose()?.flatten();
                let Some(mut postings) = postings else { return Ok(no_term()) };
                if postings.doc() < self.row {
                    postings.seek(self.row);
                }
                if postings.doc() != self.row {
                    return Ok(no_term());
                }
                let length = text.filter(|text| text.has_norms()).map(|text| text.norm(self.row));
                Ok(self.weighed(&self.named(node), function, postings.term_freq(), length))
            }
            Node::Exact { weight: Weight::Bm25(slot), .. } => {
                match (self.source.functions.get(*slot), score(node, self.source, self.row)?) {
                    (Some(function), Some(_)) => Ok(self.weighed(&self.named(node), function, 1, Some(1))),
                    (_, None) => Ok(no_term()),
                    (None, Some(_)) => self.scored(node),
                }
            }
            Node::AtLeast(required @ 1.., parts) if parts.iter().all(is_term) => {
                let mut details = Vec::new();
                for part in parts {
                    let explained = self.node(part)?;
                    if explained.matched {
                        details.push(explained);
                    }
                }
                Ok(match details.len() {
                    matching if matching < *required => few(matching, *required, details),
                    1 if parts.len() == 1 => details.remove(0),
                    _ => Explanation::sum(details),
                })
            }
            Node::And(parts) if parts.iter().all(is_term) => {
                let (mut details, mut failed) = (Vec::new(), false);
                for part in parts {
                    let explained = self.node(part)?;
                    details.push(if explained.matched {
                        explained
                    } else {
                        failed = true;
                        let text = self.named(part);
                        Explanation::missed(format!("no match on required clause ({text})"), vec![explained])
                    });
                }
                Ok(match failed {
                    true => Explanation::missed(
                        "Failure to meet condition(s) of required/prohibited clause(s)",
                        details,
                    ),
                    false => Explanation::sum(details),
                })
            }
            other => self.scored(other),
        }
    }

    /// Explains by the score alone.
    fn scored(&self, node: &Node) -> Result<Explanation> {
        let text = self.named(node);
        Ok(match score(node, self.source, self.row)? {
            Some(score) => Explanation::found(score, scored_text(&text, score), Vec::new()),
            None => Explanation::missed(format!("{text} doesn't match id {}", self.row), Vec::new()),
        })
    }

    /// Writes a node as Lucene does, or in Millrace's own words.
    fn named(&self, node: &Node) -> String {
        described(node, self.mapping, false).unwrap_or_else(|| self.text.to_owned())
    }

    /// Explains a score by BM25; `length` is absent where norms are not kept.
    fn weighed(&self, name: &str, function: &Bm25, freq: u32, length: Option<u32>) -> Explanation {
        let number = |value: f32, text: &str| Explanation::found(value, text, Vec::new());
        let count = |value: u64, text: &str| Explanation {
            matched: true,
            value: Number::Count(value),
            description: text.to_owned(),
            details: Vec::new(),
        };
        let score = function.score(freq, length.unwrap_or(1));
        let statistics = function.statistics();
        let mut tf = vec![
            number(freq as f32, "freq, occurrences of term within document"),
            number(K1, "k1, term saturation parameter"),
        ];
        match length {
            Some(length) => tf.extend([
                number(B, "b, length normalization parameter"),
                number(length as f32, "dl, length of field"),
                number(function.average_length(), "avgdl, average length of field"),
            ]),
            None => tf.push(number(0.0, "b, norms omitted for field")),
        }
        let formula = match length {
            Some(_) => "tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:",
            None => "tf, computed as freq / (freq + k1) from:",
        };
        let parts = vec![
            number(function.boost(), "boost"),
            Explanation::found(
                function.idf(),
                "idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:",
                vec![
                    count(statistics.doc_freq, "n, number of documents containing term"),
                    count(statistics.docs, "N, total number of documents with field"),
                ],
            ),
            Explanation::found(function.frequency_part(freq, length.unwrap_or(1)), formula, tf),
        ];
        let inner = format!("score(freq={:?}), computed as boost * idf * tf from:", freq as f32);
        Explanation::found(
            score,
            format!("weight({name} in {}) [PerFieldSimilarity], result of:", self.row),
            vec![Explanation::found(score, inner, parts)],
        )
    }
}

fn no_term() -> Explanation {
    Explanation::missed("no matching term", Vec::new())
}

/// Whether a node is a term with a score of its own.
fn is_term(node: &Node) -> bool {
    matches!(node, Node::Text { weight: Weight::Bm25(_), .. } | Node::Exact { weight: Weight::Bm25(_), .. })
}
