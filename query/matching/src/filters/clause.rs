//! Filters as trees over clauses: a clause that several filters have is one, whose rows are found once a batch.

use std::fmt::Write;
use std::sync::Arc;

use millrace_mapping::Mapping;
use millrace_scoring::node::{ExpansionSelection, Node, ResolvedPredicate};
use millrace_work::error::{Error, Result};

use super::fields::Fields;
use super::view::IndexView;
use crate::table::predicate::Predicate;
use crate::table::resolve::resolve_filter;

/// Two times that have nothing in common, under any rounding, and between which other times in filters are: a clause that is the
/// same at both does not depend on time. Dates in nanoseconds reach as far.
const TIMES_MS: [i64; 2] = [-8_000_000_000_000, 7_234_567_890_123];

/// A filter over clauses, which it has by their numbers.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Everything,
    Clause(usize),
    /// Those that need no columns come first.
    All(Vec<Tree>),
    AtLeast(usize, Vec<Tree>),
    Not(Box<Tree>),
}

/// A condition that the search language has a clause for.
#[derive(Debug)]
pub(super) struct Clause {
    /// Text of the clause, and its caller: two of the same text are the same under one mapping.
    pub(super) written: Arc<str>,
    /// Predicate for the index; where it depends on time, at some time.
    pub(super) resolved: ResolvedPredicate,
    /// Clause that is resolved at each time, where it depends on time.
    pub(super) timed: Option<RelativeTimeClause>,
    /// Fields that it names, at any time.
    pub(super) fields: Fields,
}

/// A clause in which times are relative to now.
#[derive(Debug)]
pub(super) struct RelativeTimeClause {
    predicate: Predicate,
    view: Arc<IndexView>,
    mapping: Arc<Mapping>,
    part: ClauseContainer,
}

/// Container of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClauseContainer {
    /// The filter itself.
    Asked,
    /// The visible documents: it must not be more than a search by the same shows.
    Narrowing,
}

impl RelativeTimeClause {
    /// Makes what it is at a time.
    ///
    /// # Errors
    /// Those of the mapping.
    pub(super) fn at(&self, now_ms: i64) -> Result<ResolvedPredicate> {
        resolved(&self.predicate, &self.view, &self.mapping, self.part, now_ms)
    }
}

/// Makes a tree of a predicate; its clauses are put behind those that there are.
///
/// # Errors
/// Clauses that the mapping refuses, and those in which a score decides what matches: it would be another in each batch. Where
/// it says what may be seen, also those of which the terms are chosen among all of an index.
pub(super) fn tree(
    predicate: &Predicate,
    view: &Arc<IndexView>,
    mapping: &Arc<Mapping>,
    in_part: ClauseContainer,
    clauses: &mut Vec<Arc<Clause>>,
) -> Result<Tree> {
    let mut of = |part: &Predicate| tree(part, view, mapping, in_part, clauses);
    Ok(match predicate {
        Predicate::All => Tree::Everything,
        Predicate::And(parts) => {
            let mut parts: Vec<Tree> = parts.iter().map(of).collect::<Result<_>>()?;
            parts.sort_by_key(|part| part.reads_columns(clauses));
            Tree::All(parts)
        }
        Predicate::AtLeast(required, parts) => {
            Tree::AtLeast(*required, parts.iter().map(of).collect::<Result<_>>()?)
        }
        Predicate::DisMax(_, parts) => Tree::AtLeast(1, parts.iter().map(of).collect::<Result<_>>()?),
        Predicate::Not(part) => Tree::Not(Box::new(of(part)?)),
        Predicate::Constant(_, part) | Predicate::Boosting { positive: part, .. } => of(part)?,
        Predicate::Leaf(_) | Predicate::FunctionScore(..) | Predicate::Nested(..) => {
            clauses.push(Arc::new(Clause::new(predicate, view, mapping, in_part)?));
            Tree::Clause(clauses.len() - 1)
        }
    })
}

impl Tree {
    fn reads_columns(&self, clauses: &[Arc<Clause>]) -> bool {
        match self {
            Self::Everything => false,
            Self::Clause(number) => clauses.get(*number).is_some_and(|own| own.resolved.node.reads_columns()),
            Self::All(parts) | Self::AtLeast(_, parts) => {
                parts.iter().any(|part| part.reads_columns(clauses))
            }
            Self::Not(part) => part.reads_columns(clauses),
        }
    }

    /// Returns whether every document matches.
    pub(super) fn is_everything(&self, clauses: &[Arc<Clause>]) -> bool {
        match self {
            Self::Everything => true,
            Self::Clause(number) => clauses
                .get(*number)
                .is_some_and(|own| own.timed.is_none() && matches!(own.resolved.node, Node::All(_))),
            Self::All(parts) => parts.iter().all(|part| part.is_everything(clauses)),
            Self::AtLeast(..) | Self::Not(_) => false,
        }
    }

    /// Gives clauses other numbers.
    pub(super) fn renumbered(&self, number: &mut dyn FnMut(usize) -> usize) -> Self {
        match self {
            Self::Everything => Self::Everything,
            Self::Clause(own) => Self::Clause(number(*own)),
            Self::All(parts) => Self::All(parts.iter().map(|part| part.renumbered(number)).collect()),
            Self::AtLeast(required, parts) => {
                Self::AtLeast(*required, parts.iter().map(|part| part.renumbered(number)).collect())
            }
            Self::Not(part) => Self::Not(Box::new(part.renumbered(number))),
        }
    }
}

impl Clause {
    fn new(
        predicate: &Predicate,
        view: &Arc<IndexView>,
        mapping: &Arc<Mapping>,
        part: ClauseContainer,
    ) -> Result<Self> {
        let mut written = format!("{predicate:?}");
        // An escaped letter may be one of `now`.
        let may_be_timed = written.contains("now") || written.contains('\\');
        let [at, other] = TIMES_MS;
        let own = resolved(predicate, view, mapping, part, at)?;
        let mut fields = Fields::default();
        fields.add(&own);
        let mut timed = None;
        if may_be_timed {
            let other = resolved(predicate, view, mapping, part, other)?;
            if shown(&own) != shown(&other) {
                // A range that is empty at some time asks no field then.
                fields.add(&other);
                let (predicate, view, mapping) = (predicate.clone(), Arc::clone(view), Arc::clone(mapping));
                timed = Some(RelativeTimeClause { predicate, view, mapping, part });
            }
        }
        if !mapping.field_rules().is_empty() {
            // To a string, this cannot fail.
            let _ = write!(written, " {:?}", mapping.field_rules());
        }
        Ok(Self { written: written.into(), resolved: own, timed, fields })
    }
}

fn shown(resolved: &ResolvedPredicate) -> String {
    format!("{:?} {:?}", resolved.node, resolved.expansions)
}

fn resolved(
    predicate: &Predicate,
    view: &IndexView,
    mapping: &Mapping,
    part: ClauseContainer,
    now_ms: i64,
) -> Result<ResolvedPredicate> {
    let mut resolved = resolve_filter(predicate, view.context(mapping, now_ms))?;
    if resolved.node.scores_decide() {
        return Err(Error::IllegalArgument(format!(
            "its scores decide what matches, so it is no filter: [{predicate}]"
        )));
    }
    for expansion in &mut resolved.expansions {
        if part == ClauseContainer::Narrowing && expansion.is_chosen() {
            // What the rule is, is not told.
            return Err(Error::IllegalArgument(format!(
                "no filter is available on [{}], of which the query of a role or the filter of an alias shows documents by terms \
                 that are chosen among those of all documents",
                view.meta.name
            )));
        }
        if matches!(expansion.keep, ExpansionSelection::InterestingTerms(_)) {
            return Err(Error::IllegalArgument(format!(
                "statistics of an index decide what matches, so it is no filter: [{predicate}]"
            )));
        }
        // Which terms are the best, or the first, of an index is not known of a batch; it has few.
        expansion.keep = ExpansionSelection::AtMost(usize::MAX);
    }
    Ok(resolved)
}
