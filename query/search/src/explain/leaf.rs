//! Leaves explained: terms by the parts of BM25, sums of terms, and all else by its score.

use std::sync::Arc;

use millrace_mapping::Mapping;
use millrace_scoring::bm25::{B, Bm25, K1};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_scoring::prepare::prepare;
use millrace_scoring::reader::InvertedIndex;
use millrace_scoring::source::Source;
use millrace_work::error::Result;

use super::describe::described;
use super::{Explanation, Leaf, Row, scored_text};

impl Leaf {
    /// Explains the leaf for a row.
    pub(super) fn explain(&self, row: &Row<'_>) -> Result<Explanation> {
        let Some(Some(resolved)) = self.resolved.get(row.index) else {
            return Ok(Explanation::missed(format!("{} is no query of this index", self.text), Vec::new()));
        };
        let functions =
            self.functions.of(row.snapshot, &self.resolved, row.index, row.shard, true, &row.source.work)?;
        let source = Source { functions, ..row.source.clone() };
        let mapping = &row.snapshot.indices[row.index].mapping;
        let mut peers = Vec::new();
        for segment in row.snapshot.segments.iter().filter(|segment| segment.shard == row.shard) {
            peers.push(segment.reader.inverted()?);
        }
        let explained =
            ExplainedRow { source: &source, peers: &peers, mapping, row: row.row, text: &self.text };
        explained.node(&resolved.node)
    }
}

/// Returns the score of a row; `None` where it does not match.
pub(super) fn score(node: &Node, source: &Source, row: u32) -> Result<Option<f32>> {
    let prepared = prepare(node, source, None)?;
    let mut scorer = prepared.scorer(source.inverted.as_ref(), source.reader.rows())?;
    Ok((scorer.seek(row) == row).then(|| scorer.score()))
}

/// A row of which nodes are explained.
pub(super) struct ExplainedRow<'a> {
    pub source: &'a Source,
    /// The indices of all segments of the shard; of none where elements are explained.
    pub peers: &'a [Arc<dyn InvertedIndex>],
    pub mapping: &'a Mapping,
    pub row: u32,
    /// The clause in Millrace's own words.
    pub text: &'a str,
}

impl ExplainedRow<'_> {
    pub(super) fn node(&self, node: &Node) -> Result<Explanation> {
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
            Node::Phrase { phrase, weight: Weight::Bm25(slot), .. } => {
                match self.phrase(node, phrase, *slot)? {
                    Some(explained) => Ok(explained),
                    None => self.scored(node),
                }
            }
            Node::Spans { path, spans, weight: Weight::Bm25(slot) } => {
                match self.spans((*path, spans), *slot)? {
                    Some(explained) => Ok(explained),
                    None => self.scored(node),
                }
            }
            other => match self.compound(other)? {
                Some(explained) => Ok(explained),
                None => self.scored(other),
            },
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
    pub(super) fn named(&self, node: &Node) -> String {
        described(node, self.mapping, false).unwrap_or_else(|| self.text.to_owned())
    }

    /// Explains a score by BM25; `length` is absent where norms are not kept.
    pub(super) fn weighed(&self, name: &str, function: &Bm25, freq: u32, length: Option<u32>) -> Explanation {
        let number = |value: f32, text: &str| Explanation::found(value, text, Vec::new());
        let score = function.score(freq, length.unwrap_or(1));
        let statistics = function.statistics();
        let part = function.frequency_part(freq, length.unwrap_or(1));
        let parts = vec![
            number(function.boost(), "boost"),
            Explanation::found(
                function.idf(),
                "idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:",
                vec![
                    Explanation::count(statistics.doc_freq, "n, number of documents containing term"),
                    Explanation::count(statistics.docs, "N, total number of documents with field"),
                ],
            ),
            self.frequency_part(part, freq as f32, length, function, false),
        ];
        let inner = format!("score(freq={:?}), computed as boost * idf * tf from:", freq as f32);
        Explanation::found(
            score,
            format!("weight({name} in {}) [PerFieldSimilarity], result of:", self.row),
            vec![Explanation::found(score, inner, parts)],
        )
    }

    /// Explains the part of a score that frequency and length decide.
    pub(super) fn frequency_part(
        &self,
        part: f32,
        freq: f32,
        length: Option<u32>,
        function: &Bm25,
        phrase: bool,
    ) -> Explanation {
        let number = |value: f32, text: &str| Explanation::found(value, text, Vec::new());
        let named = match phrase {
            true => format!("phraseFreq={freq:?}"),
            false => "freq, occurrences of term within document".to_owned(),
        };
        let mut parts = vec![number(freq, &named), number(K1, "k1, term saturation parameter")];
        let formula = match length {
            Some(length) => {
                parts.extend([
                    number(B, "b, length normalization parameter"),
                    number(length as f32, "dl, length of field"),
                    number(function.average_length(), "avgdl, average length of field"),
                ]);
                "tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:"
            }
            None => {
                parts.push(number(0.0, "b, norms omitted for field"));
                "tf, computed as freq / (freq + k1) from:"
            }
        };
        Explanation::found(part, formula, parts)
    }
}

pub(super) fn no_term() -> Explanation {
    Explanation::missed("no matching term", Vec::new())
}
