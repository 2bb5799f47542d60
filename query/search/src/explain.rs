//! Explanations of scores: a tree of numbers and the words that Lucene has for them.
//!
//! An [`Explainer`] is made once for a query over a snapshot and explains any of its rows. Compound
//! clauses are walked as the query has them; a leaf is resolved for each index and explained by
//! [`leaf`], or, where that has no words for it, by its scorer alone. [`describe`] writes clauses as
//! Lucene prints its queries, which `_validate/query` shows too.

mod compound;
mod describe;
mod leaf;

use std::sync::Arc;

use millrace_dsl::query::{BoolQuery, Query};
use millrace_matching::lower;
use millrace_matching::order::number;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::statistics::Functions;
use millrace_scoring::collect::Address;
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_scoring::source::Source;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use self::describe::{boosted, described};

/// Rows explained at once, at most: each walks the whole query.
const MAX_ROWS: usize = 10_000;

/// Bytes of an explained number with what it is rendered to, beside its description.
const NUMBER_BYTES: usize = 768;

/// A number, its description, and its components.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// `true` if the row matches.
    pub matched: bool,
    /// The number.
    pub value: Number,
    /// Description of the number.
    pub description: String,
    /// Explanations of its components.
    pub details: Vec<Explanation>,
}

/// A score, or a count that is printed without a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A score.
    Score(f32),
    /// A count.
    Count(u64),
}

impl Explanation {
    /// Makes the explanation of a match.
    pub fn found(value: f32, description: impl Into<String>, details: Vec<Explanation>) -> Self {
        Self { matched: true, value: Number::Score(value), description: description.into(), details }
    }

    /// Makes the explanation of what is no match.
    pub(crate) fn missed(description: impl Into<String>, details: Vec<Explanation>) -> Self {
        Self { matched: false, value: Number::Score(0.0), description: description.into(), details }
    }

    /// Makes the explanation of a count.
    pub fn count(count: u64, description: &str) -> Self {
        let value = Number::Count(count);
        Self { matched: true, value, description: description.to_owned(), details: Vec::new() }
    }

    /// Estimates the bytes that it takes with what it is rendered to.
    fn bytes(&self) -> usize {
        NUMBER_BYTES + 3 * self.description.len() + self.details.iter().map(Self::bytes).sum::<usize>()
    }

    /// Returns the score; 0 for a count.
    pub fn score(&self) -> f32 {
        match self.value {
            Number::Score(score) => score,
            Number::Count(_) => 0.0,
        }
    }

    /// Renders the tree.
    pub fn to_json(&self) -> Value {
        let value = match self.value {
            Number::Score(score) => number(f64::from(score), true),
            Number::Count(count) => json!(count),
        };
        let details: Vec<Value> = self.details.iter().map(Self::to_json).collect();
        json!({"value": value, "description": self.description, "details": details})
    }

    /// Adds up the parts of a match.
    fn sum(details: Vec<Explanation>) -> Self {
        let sum: f64 = details.iter().map(|part| f64::from(part.score())).sum();
        Self::found(sum as f32, "sum of:", details)
    }
}

/// Occurrence of a clause in a `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occur {
    Must,
    MustNot,
    Should,
    Filter,
}

impl Occur {
    fn sign(self) -> &'static str {
        match self {
            Self::Must => "+",
            Self::MustNot => "-",
            Self::Should => "",
            Self::Filter => "#",
        }
    }
}

/// A clause made ready for explaining.
#[derive(Debug)]
struct Clause {
    shape: ScoreShape,
    /// The clause's own boost, as its text shows it.
    boost: f32,
}

#[derive(Debug)]
enum ScoreShape {
    Bool {
        clauses: Vec<(Occur, Clause)>,
        /// Number of optional clauses that must match.
        required: usize,
        /// `true` if the request said so.
        explicit: bool,
    },
    /// One score, the product of the boosts down to here.
    Constant {
        inner: Box<Clause>,
        score: f32,
    },
    Leaf(Box<Leaf>),
}

/// A leaf as each index of the snapshot understands it.
#[derive(Debug)]
struct Leaf {
    resolved: Vec<Option<ResolvedPredicate>>,
    functions: Functions,
    /// The clause in Millrace's own words, where Lucene's are not known.
    text: String,
}

/// Explains the rows of a snapshot.
#[derive(Debug)]
pub struct Explainer {
    snapshot: Arc<TableSnapshot>,
    root: Clause,
    /// Filters of the aliases through which indices were named.
    filters: Vec<Option<Node>>,
}

impl Explainer {
    /// Makes a query ready.
    ///
    /// # Errors
    /// That of the first index that refuses the query where all do.
    pub fn new(
        query: &Query,
        snapshot: &Arc<TableSnapshot>,
        global_statistics: bool,
        now_ms: i64,
    ) -> Result<Self> {
        let builder = Builder { snapshot, global_statistics, now_ms };
        let root = builder.clause(query, 1.0, true)?;
        let mut filters = Vec::with_capacity(snapshot.indices.len());
        for (at, index) in snapshot.indices.iter().enumerate() {
            let filter = index.filter.as_ref().map(|filter| resolve(filter, builder.context(at)));
            filters.push(filter.transpose()?.map(|resolved| resolved.node));
        }
        Ok(Self { snapshot: Arc::clone(snapshot), root, filters })
    }

    /// Describes the query as an index understands it.
    pub fn describe(&self, index: usize) -> String {
        boosted(self.root.text(&self.snapshot, index), self.root.boost)
    }

    /// Explains rows, in their order, for some work, which holds what they are rendered to.
    pub async fn explain(
        self: &Arc<Self>,
        addresses: &[Address],
        compute: &Compute,
        work: &QueryContext,
    ) -> Result<Vec<Explanation>> {
        if addresses.len() > MAX_ROWS {
            return Err(Error::IllegalArgument(format!(
                "too many hits to explain: {} found, at most {MAX_ROWS} allowed",
                addresses.len()
            )));
        }
        let (explainer, addresses, work) = (Arc::clone(self), addresses.to_vec(), work.clone());
        let explain = move |address: &Address| {
            work.check()?;
            let explained = explainer.row(*address, &work)?;
            work.hold(explained.bytes())?;
            Ok(explained)
        };
        compute.run(move || addresses.iter().map(explain).collect()).await
    }

    /// Explains one row. Blocks; runs on a compute thread.
    fn row(&self, address: Address, work: &QueryContext) -> Result<Explanation> {
        let segment = self
            .snapshot
            .segments
            .get(address.segment as usize)
            .ok_or_else(|| Error::Execution(format!("segment {} is not pinned", address.segment)))?;
        let row = Row {
            snapshot: &self.snapshot,
            index: segment.index,
            shard: segment.shard,
            source: self.snapshot.source(address.segment, segment, work)?,
            row: address.row,
        };
        if let Some(Some(filter)) = self.filters.get(segment.index)
            && leaf::score(filter, &row.source, row.row)?.is_none()
        {
            let text = described(filter, &self.snapshot.indices[segment.index].mapping, true);
            let text = text.unwrap_or_else(|| "filter of the alias".to_owned());
            return Ok(Explanation::missed(format!("no match on required clause ({text})"), Vec::new()));
        }
        let explained = self.root.explain(&row)?;
        let boost = self.snapshot.indices.get(segment.index).map_or(1.0, |index| index.boost);
        if boost == 1.0 || !explained.matched {
            return Ok(explained);
        }
        let score = explained.score() * boost;
        Ok(Explanation::found(
            score,
            "product of:",
            vec![explained, Explanation::found(boost, "boost of the index", Vec::new())],
        ))
    }
}

/// The row that is explained.
struct Row<'a> {
    snapshot: &'a TableSnapshot,
    index: usize,
    shard: u32,
    source: Source,
    row: u32,
}

/// Makes clauses ready.
struct Builder<'a> {
    snapshot: &'a Arc<TableSnapshot>,
    global_statistics: bool,
    now_ms: i64,
}

impl Builder<'_> {
    fn context(&self, index: usize) -> IndexContext<'_> {
        let index = &self.snapshot.indices[index];
        IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms: self.now_ms }
    }

    /// `boost` is the product of the boosts above; clauses that do not score have their own texts.
    fn clause(&self, query: &Query, boost: f32, scored: bool) -> Result<Clause> {
        let own = query.common().boost;
        let shape = match query {
            Query::Bool(query) if query.clauses().next().is_some() => {
                self.bool(query, boost * own, scored)?
            }
            Query::ConstantScore(query) => {
                let inner = self.clause(&query.filter, 1.0, false)?;
                ScoreShape::Constant { inner: Box::new(inner), score: boost * own }
            }
            _ => ScoreShape::Leaf(Box::new(self.leaf(query, boost, scored)?)),
        };
        Ok(Clause { shape, boost: own })
    }

    /// Clauses come in the order in which Lucene has them.
    fn bool(&self, query: &BoolQuery, boost: f32, scored: bool) -> Result<ScoreShape> {
        let mut clauses = Vec::new();
        let kinds = [
            (Occur::Must, &query.must),
            (Occur::MustNot, &query.must_not),
            (Occur::Should, &query.should),
            (Occur::Filter, &query.filter),
        ];
        for (occur, own) in kinds {
            for clause in own {
                clauses.push(match occur {
                    Occur::Must | Occur::Should => (occur, self.clause(clause, boost, scored)?),
                    Occur::MustNot | Occur::Filter => (occur, self.clause(clause, 1.0, false)?),
                });
            }
        }
        if clauses.iter().all(|(occur, _)| *occur == Occur::MustNot) {
            clauses.push((Occur::Filter, self.clause(&Query::match_all(), 1.0, false)?));
        }
        let explicit = query.minimum_should_match.is_some() && !query.should.is_empty();
        Ok(ScoreShape::Bool { clauses, required: query.required_should(), explicit })
    }

    fn leaf(&self, query: &Query, boost: f32, scored: bool) -> Result<Leaf> {
        let predicate = match scored {
            true => lower::lower_boosted(query, boost),
            false => lower::lower_filter(query),
        };
        let mut resolved = Vec::with_capacity(self.snapshot.indices.len());
        let mut refused = None;
        for at in 0..self.snapshot.indices.len() {
            resolved.push(match resolve(&predicate, self.context(at)) {
                Ok(own) => Some(own),
                Err(error) => {
                    let index = &self.snapshot.indices[at];
                    refused.get_or_insert_with(|| error.of_index(&index.meta));
                    None
                }
            });
        }
        match refused {
            Some(error) if resolved.iter().all(Option::is_none) => return Err(error),
            _ => {}
        }
        let functions = Functions::new(self.snapshot.shards, self.global_statistics);
        Ok(Leaf { resolved, functions, text: predicate.to_string() })
    }
}

impl Clause {
    /// Writes the clause as Lucene prints queries, without its boost.
    fn text(&self, snapshot: &TableSnapshot, index: usize) -> String {
        match &self.shape {
            ScoreShape::Leaf(leaf) => {
                let mapping = &snapshot.indices[index].mapping;
                let known = leaf.resolved.get(index).and_then(Option::as_ref);
                let known = known.and_then(|resolved| described(&resolved.node, mapping, true));
                known.unwrap_or_else(|| leaf.text.clone())
            }
            ScoreShape::Constant { inner, .. } => {
                format!("ConstantScore({})", boosted(inner.text(snapshot, index), inner.boost))
            }
            ScoreShape::Bool { clauses, required, explicit } => {
                let parts: Vec<String> = clauses
                    .iter()
                    .map(|(occur, clause)| {
                        let text = clause.text(snapshot, index);
                        let text = match &clause.shape {
                            _ if clause.boost != 1.0 => boosted(text, clause.boost),
                            ScoreShape::Bool { .. } => format!("({text})"),
                            _ if text.contains(' ') && clause.is_compound(index) => format!("({text})"),
                            _ => text,
                        };
                        format!("{}{text}", occur.sign())
                    })
                    .collect();
                match explicit {
                    true => format!("({})~{required}", parts.join(" ")),
                    false => parts.join(" "),
                }
            }
        }
    }

    /// Returns whether a leaf became several clauses, as a `match` of several terms does.
    fn is_compound(&self, index: usize) -> bool {
        match &self.shape {
            ScoreShape::Leaf(leaf) => leaf.resolved.get(index).and_then(Option::as_ref).is_some_and(|resolved| {
                matches!(&resolved.node, Node::And(parts) | Node::AtLeast(1, parts) if parts.len() > 1)
            }),
            _ => false,
        }
    }

    fn explain(&self, row: &Row<'_>) -> Result<Explanation> {
        match &self.shape {
            ScoreShape::Leaf(leaf) => leaf.explain(row),
            ScoreShape::Constant { inner, score } => {
                let text = self.text(row.snapshot, row.index);
                Ok(match inner.explain(row)?.matched {
                    true => Explanation::found(*score, scored_text(&text, *score), Vec::new()),
                    false => Explanation::missed(format!("{text} doesn't match id {}", row.row), Vec::new()),
                })
            }
            ScoreShape::Bool { clauses, required, .. } => self.explain_bool(clauses, *required, row),
        }
    }

    fn explain_bool(
        &self,
        clauses: &[(Occur, Clause)],
        required: usize,
        row: &Row<'_>,
    ) -> Result<Explanation> {
        // Lucene makes another query of a single clause.
        if let [(occur, only)] = clauses {
            match occur {
                Occur::Must => return only.explain(row),
                Occur::Should if required <= 1 => return only.explain(row),
                Occur::Filter => {
                    let text = boosted(only.text(row.snapshot, row.index), only.boost);
                    return Ok(match only.explain(row)?.matched {
                        true => Explanation::found(0.0, format!("ConstantScore({text})^0.0"), Vec::new()),
                        false => Explanation::missed(
                            format!("ConstantScore({text}) doesn't match id {}", row.row),
                            Vec::new(),
                        ),
                    });
                }
                _ => {}
            }
        }
        let (mut details, mut failed) = (Vec::new(), false);
        let mut optional = 0;
        for (occur, clause) in clauses {
            let explained = clause.explain(row)?;
            let text = || boosted(clause.text(row.snapshot, row.index), clause.boost);
            match (occur, explained.matched) {
                (Occur::Must, true) => details.push(explained),
                (Occur::Should, true) => {
                    optional += 1;
                    details.push(explained);
                }
                (Occur::Should, false) | (Occur::MustNot, false) => {}
                (Occur::Filter, true) => details.push(Explanation::found(
                    0.0,
                    "match on required clause, product of:",
                    vec![
                        Explanation::found(0.0, "# clause", Vec::new()),
                        Explanation::found(1.0, text(), Vec::new()),
                    ],
                )),
                (Occur::Must | Occur::Filter, false) => {
                    failed = true;
                    details.push(Explanation::missed(
                        format!("no match on required clause ({})", text()),
                        vec![explained],
                    ));
                }
                (Occur::MustNot, true) => {
                    failed = true;
                    let prohibited = Explanation::found(1.0, text(), Vec::new());
                    details.push(Explanation::missed(
                        format!("match on prohibited clause ({})", text()),
                        vec![prohibited],
                    ));
                }
            }
        }
        Ok(if failed {
            Explanation::missed("Failure to meet condition(s) of required/prohibited clause(s)", details)
        } else if optional < required {
            few(optional, required, details)
        } else {
            Explanation::sum(details)
        })
    }
}

/// Too few optional clauses match.
fn few(matching: usize, required: usize, details: Vec<Explanation>) -> Explanation {
    match (matching, required) {
        (0, 1) => Explanation::missed("No matching clauses", details),
        _ => Explanation::missed(
            format!("Failure to match minimum number of optional clauses: {required}"),
            details,
        ),
    }
}

/// A text with its score, where that is not 1.
fn scored_text(text: &str, score: f32) -> String {
    if score == 1.0 { text.to_owned() } else { format!("{text}^{score:?}") }
}
