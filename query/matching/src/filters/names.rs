//! Fields that a filter names, so that it is compiled anew only where one of these means something else.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use millrace_dsl::query::{FieldBoosts, Function, IntervalFilter, IntervalRule, Query, QueryStringQuery};
use millrace_dsl::query_string::syntax::{Expression, Group, Leaf};
use millrace_dsl::query_string::{self, escape};

use super::view::IndexView;
use crate::table::predicate::Predicate;

/// Changes of an index since before.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The paths; absent where everything may mean something else.
    paths: Option<BTreeSet<Arc<str>>>,
}

impl Changes {
    /// Compares what a filter was compiled for with what it would be now.
    pub fn between(before: &IndexView, now: &IndexView) -> Self {
        let same = before.rules == now.rules
            && before.seen.field_rules() == now.seen.field_rules()
            && before.meta.name == now.meta.name
            && before.meta.settings == now.meta.settings
            && before.meta.aliases == now.meta.aliases;
        Self { paths: if same { before.whole.changes_to(&now.whole) } else { None } }
    }

    /// Returns whether nothing is said otherwise.
    pub fn is_empty(&self) -> bool {
        self.paths.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Returns whether a name, or what it is inside of, or what is inside of it, means something else.
    fn concern(paths: &BTreeSet<Arc<str>>, name: &str) -> bool {
        let around = name.match_indices('.').any(|(at, _)| paths.contains(&name[..at]));
        let below = format!("{name}.");
        let after = (Bound::Included(below.as_str()), Bound::Unbounded);
        let mut inside = paths.range::<str, _>(after);
        paths.contains(name) || around || inside.next().is_some_and(|path| path.starts_with(&below))
    }
}

/// The fields that a filter names.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// `true` if any field may be meant, as by patterns and default fields.
    any: bool,
    /// `true` if the name of the index may be asked: a pattern may mean `_index`.
    index: bool,
    names: BTreeSet<Box<str>>,
}

impl Names {
    /// Returns whether a change may give a filter another meaning.
    pub(super) fn are_changed(&self, changes: &Changes) -> bool {
        match &changes.paths {
            None => true,
            Some(paths) if paths.is_empty() => false,
            Some(paths) => self.any || self.names.iter().any(|name| Changes::concern(paths, name)),
        }
    }

    /// Returns a name that is not shown; `*` where any field may be meant.
    pub(super) fn hidden(&self, shows: impl Fn(&str) -> bool) -> Option<String> {
        let hidden = self.names.iter().find(|name| !name.starts_with('_') && !shows(name));
        hidden.map(ToString::to_string).or_else(|| self.any.then(|| "*".to_owned()))
    }

    /// Takes the names of a predicate.
    pub(super) fn add(&mut self, predicate: &Predicate) {
        match predicate {
            Predicate::All => {}
            Predicate::Leaf(leaf) => self.query(&leaf.query),
            Predicate::And(parts) | Predicate::AtLeast(_, parts) | Predicate::DisMax(_, parts) => {
                parts.iter().for_each(|part| self.add(part));
            }
            Predicate::Not(part) | Predicate::Constant(_, part) => self.add(part),
            Predicate::Boosting { positive, negative, .. } => {
                self.add(positive);
                self.add(negative);
            }
            Predicate::FunctionScore(query, base, filters) => {
                self.query(&Query::FunctionScore(Arc::clone(query)));
                self.add(base);
                filters.iter().for_each(|filter| self.add(filter));
            }
            Predicate::Nested(query, inner) => {
                self.name(&query.path);
                self.add(inner);
            }
        }
    }

    /// Returns whether a filter may go by which index it is asked of.
    pub(super) fn may_ask_index(&self) -> bool {
        self.index
    }

    fn name(&mut self, name: &str) {
        self.index |= name == "_index"
            || (name != "*" && name.contains(['*', '\\']) && name.starts_with(['_', '*', '\\']));
        match name.contains('*') {
            true => self.any = true,
            false => {
                self.names.insert(name.into());
            }
        }
    }

    /// Takes the fields of a list; without any, the default ones are meant.
    fn fields(&mut self, fields: &FieldBoosts) {
        self.any |= fields.0.is_empty();
        fields.0.iter().for_each(|(name, _)| self.name(name));
    }

    fn query(&mut self, query: &Query) {
        query.walk(&mut |clause| self.clause(clause));
    }

    fn clause(&mut self, clause: &Query) {
        match clause {
            Query::Bool(_)
            | Query::Boosting(_)
            | Query::ConstantScore(_)
            | Query::DisMax(_)
            | Query::Ids(_)
            | Query::MatchAll(_)
            | Query::MatchNone(_)
            | Query::SpanContaining(_)
            | Query::SpanFirst(_)
            | Query::SpanNear(_)
            | Query::SpanNot(_)
            | Query::SpanOr(_)
            | Query::SpanWithin(_) => {}
            Query::DistanceFeature(own) => self.name(&own.field),
            Query::Exists(own) => self.name(&own.field),
            Query::FunctionScore(own) => {
                for function in &own.functions {
                    match &function.function {
                        Function::FieldValue(value) => self.name(&value.field),
                        Function::Decay(decay) => self.name(&decay.field),
                        Function::One | Function::Random(_) => {}
                    }
                }
            }
            Query::Fuzzy(own) => self.name(&own.field),
            Query::GeoBoundingBox(own) => self.name(&own.field),
            Query::GeoDistance(own) => self.name(&own.field),
            Query::GeoPolygon(own) => self.name(&own.field),
            Query::Intervals(own) => {
                self.name(&own.field);
                self.rule(&own.rule);
            }
            Query::Match(own) => self.name(&own.field),
            Query::MatchBoolPrefix(own) => self.name(&own.field),
            Query::MatchPhrase(own) => self.name(&own.field),
            Query::MatchPhrasePrefix(own) => self.name(&own.phrase.field),
            Query::MoreLikeThis(_) => self.any = true,
            Query::MultiMatch(own) => self.fields(&own.fields),
            Query::Nested(own) => self.name(&own.path),
            Query::Prefix(own) => self.name(&own.field),
            Query::QueryString(own) => self.query_string(own),
            Query::Range(own) => self.name(&own.field),
            Query::RankFeature(own) => self.name(&own.field),
            Query::Regexp(own) => self.name(&own.field),
            Query::SimpleQueryString(own) => {
                self.any |= own.quote_field_suffix.is_some();
                self.fields(&own.fields);
            }
            Query::SpanFieldMasking(own) => self.name(&own.field),
            Query::SpanGap(own) => self.name(&own.field),
            Query::SpanMulti(own) => self.name(&own.field),
            Query::SpanTerm(own) => self.name(&own.0.field),
            Query::Term(own) => self.name(&own.field),
            Query::Terms(own) => self.name(&own.field),
            Query::Wildcard(own) => self.name(&own.field),
        }
    }

    fn query_string(&mut self, own: &QueryStringQuery) {
        self.any |= own.quote_field_suffix.is_some();
        let text = if own.escape { escape(&own.query) } else { own.query.clone() };
        let Some(group) = query_string::parse(&text, None).group else { return };
        if self.group(&group) {
            match &own.default_field {
                Some(field) => self.name(field),
                None => self.fields(&own.fields),
            }
        }
    }

    /// Takes the names of a group; returns whether a condition of it names no field.
    fn group(&mut self, group: &Group) -> bool {
        let mut unnamed = false;
        for clause in &group.clauses {
            match &clause.expression {
                Expression::Group(group) => unnamed |= self.group(group),
                Expression::Leaf(None, _) => unnamed = true,
                Expression::Leaf(
                    Some(field),
                    Leaf::Word(name) | Leaf::Words(name) | Leaf::Phrase { text: name, .. },
                ) if **field == *"_exists_" => {
                    self.name(name);
                }
                Expression::Leaf(Some(field), _) => {
                    // How a name is escaped is the parser's business: such are rare.
                    self.any |= **field == *"_exists_" || field.contains('\\');
                    self.name(field);
                }
            }
        }
        unnamed
    }

    fn rule(&mut self, rule: &IntervalRule) {
        let (source, filter) = match rule {
            IntervalRule::Match { source, filter, .. } => (Some(source), filter.as_deref()),
            IntervalRule::Prefix { source, .. }
            | IntervalRule::Wildcard { source, .. }
            | IntervalRule::Regexp { source, .. }
            | IntervalRule::Fuzzy { source, .. } => (Some(source), None),
            IntervalRule::AllOf { intervals, filter, .. } | IntervalRule::AnyOf { intervals, filter } => {
                intervals.iter().for_each(|rule| self.rule(rule));
                (None, filter.as_deref())
            }
        };
        if let Some(field) = source.and_then(|source| source.use_field.as_deref()) {
            self.name(field);
        }
        if let Some(IntervalFilter { rule, .. }) = filter {
            self.rule(rule);
        }
    }
}
