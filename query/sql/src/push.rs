//! Predicates that the index answers: comparisons, patterns and relevance functions as clauses of the
//! query language.
//!
//! SQL knows three truth values, an index two. So each pushed predicate is a pair: the rows where it is true
//! and the rows where it is false; where neither holds it is unknown. AND, OR and NOT combine pairs, and a
//! WHERE takes the rows that are true. A predicate is only pushed where the index's answer is exact.

use datafusion::logical_expr::{Expr, Operator, not};
use millrace_dsl::query;
use millrace_mapping::{Field, FieldType};
use millrace_matching::lower;
use millrace_matching::table::TableSnapshot;
use serde_json::{Map, Value, json};

use super::bind::Literal;
use super::elements::nested_clause;
use super::error::Result;
use super::functions::time;

/// Most clauses that are combined in the index.
const MAX_CLAUSES: usize = 1_000;

/// A predicate of the query language.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Clause {
    /// Every row.
    All,
    /// A clause, as the body of a search has it.
    Leaf(Value),
    /// A clause that was parsed, with the values that it takes from other documents.
    Read(Value, Box<query::Query>),
    /// A clause whose score counts, with a boost.
    Scored(Value, f32),
    /// All of them.
    And(Vec<Clause>),
    /// Any of them.
    Or(Vec<Clause>),
    Not(Box<Clause>),
}

/// The rows where a predicate is true, and those where it is false.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PushedPredicate {
    /// Place of the source among those of the SELECT.
    pub source: usize,
    /// Clause that is true where the predicate is.
    pub truth: Clause,
    /// Clause that is true where the predicate is false.
    pub falsity: Clause,
}

impl PushedPredicate {
    /// Makes the pair of a clause that is never unknown.
    pub(crate) fn certain(source: usize, clause: Clause) -> Self {
        Self { source, falsity: Clause::Not(Box::new(clause.clone())), truth: clause }
    }

    /// Makes the pair of a clause that is unknown where the field has no value.
    fn of_field(source: usize, field: &str, clause: Clause) -> Self {
        let exists = Clause::Leaf(json!({"exists": {"field": field}}));
        let falsity = Clause::And(vec![exists, Clause::Not(Box::new(clause.clone()))]);
        Self { source, truth: clause, falsity }
    }

    /// Negates.
    pub(crate) fn not(self) -> Self {
        Self { source: self.source, truth: self.falsity, falsity: self.truth }
    }

    /// Combines predicates of one source.
    pub(crate) fn all(parts: &[Self], and: bool) -> Option<Self> {
        let source = parts.first()?.source;
        if parts.len() > MAX_CLAUSES || parts.iter().any(|part| part.source != source) {
            return None;
        }
        let truths = parts.iter().map(|part| part.truth.clone()).collect();
        let falsities = parts.iter().map(|part| part.falsity.clone()).collect();
        Some(match and {
            true => Self { source, truth: Clause::And(truths), falsity: Clause::Or(falsities) },
            false => Self { source, truth: Clause::Or(truths), falsity: Clause::And(falsities) },
        })
    }
}

impl Clause {
    /// Lowers to the expression that a scan takes; `scores` tells whether scores are asked for.
    pub(crate) fn expr(&self, scores: bool) -> Result<Expr> {
        Ok(match self {
            Self::All => lower::lower_filter(&query::Query::match_all()).expr(),
            Self::Leaf(body) => lower::lower_filter(&query::parse(body)?).expr(),
            Self::Read(_, query) => lower::lower_filter(query).expr(),
            Self::Scored(body, boost) => {
                let query = query::parse(body)?;
                let lowered =
                    if scores { lower::lower_boosted(&query, *boost) } else { lower::lower_filter(&query) };
                lowered.expr()
            }
            Self::And(parts) => combined(parts, scores, Expr::and)?,
            Self::Or(parts) => combined(parts, scores, Expr::or)?,
            Self::Not(part) => not(part.expr(false)?),
        })
    }
}

/// Combines in a balanced tree.
fn combined(parts: &[Clause], scores: bool, with: fn(Expr, Expr) -> Expr) -> Result<Expr> {
    let mut level = parts.iter().map(|part| part.expr(scores)).collect::<Result<Vec<_>>>()?;
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => with(left, right),
                None => left,
            });
        }
        level = next;
    }
    match level.pop() {
        Some(whole) => Ok(whole),
        None => Clause::All.expr(false),
    }
}

/// Kind of the comparison of a field by the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Keyword,
    /// Integers; the compared value is one of their range.
    Whole,
    Unsigned,
    Float,
    Double,
    Boolean,
    Date,
    DateNanos,
    Ip,
    Text,
    /// The id of a document.
    Id,
    /// The name of its index, where no alias is taken for one.
    IndexName,
}

/// A field of a source, the same in all of its indices.
#[derive(Clone, Debug)]
pub(crate) struct Comparable {
    source: usize,
    /// The field that has the values as they are.
    path: String,
    /// The field whose presence means a value.
    whole: String,
    kind: Kind,
    ignore_above: Option<usize>,
    /// The nested path whose elements are compared, where rows with such an element are asked for.
    nested: Option<String>,
    /// `true` if a normalizer makes the values of an index.
    normalized: bool,
    /// The least and the greatest integer that every index takes.
    limits: (i64, i64),
}

impl Comparable {
    /// Finds how a path is compared; `None` where the index cannot do it exactly.
    pub(crate) fn new(snapshot: &TableSnapshot, source: usize, path: &str) -> Option<Self> {
        Self::within(snapshot, source, path, None)
    }

    /// Finds how a path below a nested one is compared: by rows that have an element for which a comparison holds.
    pub(crate) fn of_elements(
        snapshot: &TableSnapshot,
        source: usize,
        path: &str,
        nested: &str,
    ) -> Option<Self> {
        let own = Self::within(snapshot, source, path, Some(nested))?;
        Some(Self { nested: Some(nested.to_owned()), ..own })
    }

    /// Finds how a path is compared in elements of a nested path, or in documents.
    pub(crate) fn within(
        snapshot: &TableSnapshot,
        source: usize,
        path: &str,
        nested: Option<&str>,
    ) -> Option<Self> {
        if let (Some(kind), None) = (metadata_kind(snapshot, path), nested) {
            return Some(Self {
                source,
                path: path.to_owned(),
                whole: path.to_owned(),
                kind,
                ignore_above: None,
                nested: None,
                normalized: false,
                limits: (i64::MIN, i64::MAX),
            });
        }
        let mut found: Option<Self> = None;
        for index in &snapshot.indices {
            let Some(field) = index.mapping.field(path) else {
                if index.mapping.is_object(path) || index.mapping.flat_object(path).is_some() {
                    return None;
                }
                continue;
            };
            if !field.index || index.mapping.nested_path(path) != nested {
                return None;
            }
            let mut own = Self {
                source,
                path: path.to_owned(),
                whole: path.to_owned(),
                kind: kind(field)?,
                ignore_above: None,
                nested: None,
                normalized: field.normalizer.is_some(),
                limits: limits(&field.field_type),
            };
            if own.kind == Kind::Text
                && let Some(exact) = index.mapping.field(&format!("{path}.keyword"))
                && exact.field_type == FieldType::Keyword
                && exact.index
                && exact.normalizer.is_none()
            {
                own.path = exact.path.to_string();
                own.ignore_above = exact.ignore_above;
                own.kind = Kind::Keyword;
            }
            match &found {
                None => found = Some(own),
                Some(other) if other.kind != own.kind || other.path != own.path => return None,
                Some(other) => {
                    own.ignore_above = match (own.ignore_above, other.ignore_above) {
                        (Some(one), Some(other)) => Some(one.min(other)),
                        (one, other) => one.or(other),
                    };
                    own.normalized |= other.normalized;
                    own.limits = (own.limits.0.max(other.limits.0), own.limits.1.min(other.limits.1));
                    found = Some(own);
                }
            }
        }
        found
    }

    fn pair(&self, clause: Clause) -> PushedPredicate {
        if matches!(self.kind, Kind::Id | Kind::IndexName) {
            return PushedPredicate::certain(self.source, clause);
        }
        let Some(path) = &self.nested else {
            return PushedPredicate::of_field(self.source, &self.whole, clause);
        };
        let nested = |clause: &Clause| Clause::Leaf(nested_clause(path, clause));
        let exists = nested(&Clause::Leaf(json!({"exists": {"field": &self.whole}})));
        let truth = nested(&clause);
        let falsity = Clause::And(vec![exists, Clause::Not(Box::new(truth.clone()))]);
        PushedPredicate { source: self.source, truth, falsity }
    }

    /// Returns whether the field holds every value, of any length.
    fn is_whole(&self) -> bool {
        self.path == self.whole || self.ignore_above.is_none()
    }

    /// Returns whether the field lacks the values that are longer than it takes.
    pub(crate) fn is_cut(&self) -> bool {
        !self.is_whole()
    }

    /// Takes the field for one that has every value.
    pub(crate) fn with_all_values(self) -> Self {
        Self { ignore_above: None, ..self }
    }

    /// Returns a literal as the clause has it; `None` where the index would read it differently.
    fn value(&self, literal: &Literal) -> Option<Value> {
        match (self.kind, literal) {
            (Kind::Keyword, Literal::Str(text)) => {
                let fits = self.is_whole()
                    || self.ignore_above.is_none_or(|limit| text.encode_utf16().count() <= limit);
                fits.then(|| json!(text))
            }
            (Kind::Id, Literal::Str(text)) => Some(json!(text)),
            (Kind::IndexName, Literal::Str(text)) => (!text.contains('*')).then(|| json!(text)),
            (Kind::Ip, Literal::Str(text)) => text.parse::<std::net::IpAddr>().ok().map(|_| json!(text)),
            (Kind::Whole, Literal::Int(number)) => {
                (self.limits.0..=self.limits.1).contains(number).then(|| json!(number))
            }
            (Kind::Unsigned, Literal::Int(number)) => (*number >= 0).then(|| json!(number)),
            (Kind::Unsigned, Literal::UInt(number)) => Some(json!(number)),
            (Kind::Float | Kind::Double, Literal::Float(number)) => {
                serde_json::Number::from_f64(*number).map(Value::Number)
            }
            (Kind::Boolean, Literal::Bool(flag)) => Some(json!(flag)),
            (Kind::Date, Literal::Timestamp(nanos)) => {
                let millis = i64::try_from(nanos / 1_000_000).ok();
                millis.filter(|_| nanos % 1_000_000 == 0).map(|millis| json!(millis))
            }
            (Kind::DateNanos, Literal::Timestamp(nanos)) => {
                let fits = (0..=i128::from(i64::MAX)).contains(nanos);
                fits.then(|| json!(nanos_text(*nanos)))
            }
            _ => None,
        }
    }

    /// Makes the pair of `field = literal`.
    fn equal(&self, literal: &Literal) -> Option<PushedPredicate> {
        if matches!(literal, Literal::Timestamp(..0)) && self.kind == Kind::DateNanos {
            return self.before_1970(Operator::Eq);
        }
        let value = self.value(literal)?;
        Some(self.pair(match self.kind {
            Kind::Text => return None,
            Kind::Date | Kind::DateNanos => self.range(&[("gte", value.clone()), ("lte", value)]),
            _ => Clause::Leaf(json!({"term": {&self.path: {"value": value}}})),
        }))
    }

    /// Makes the pair of `field IN (literals)`.
    pub(crate) fn any_of(&self, literals: &[Literal]) -> Option<PushedPredicate> {
        let values = || literals.iter().map(|literal| self.value(literal)).collect::<Option<Vec<_>>>();
        match self.kind {
            Kind::Text => None,
            Kind::Date | Kind::DateNanos => {
                let each = literals.iter().map(|literal| self.equal(literal)).collect::<Option<Vec<_>>>()?;
                PushedPredicate::all(&each, false)
            }
            _ => Some(self.pair(Clause::Leaf(json!({"terms": {&self.path: values()?}})))),
        }
    }

    /// Makes the pair of `field operator literal`.
    pub(crate) fn compared(&self, operator: Operator, literal: &Literal) -> Option<PushedPredicate> {
        match operator {
            Operator::Eq => self.equal(literal),
            Operator::NotEq => self.equal(literal).map(PushedPredicate::not),
            Operator::Lt => self.ordered("lt", literal),
            Operator::LtEq => self.ordered("lte", literal),
            Operator::Gt => self.ordered("gt", literal),
            Operator::GtEq => self.ordered("gte", literal),
            _ => None,
        }
    }

    /// Makes the pair of a comparison by order: `lt`, `lte`, `gt` or `gte`.
    fn ordered(&self, operator: &'static str, literal: &Literal) -> Option<PushedPredicate> {
        let has_order = !matches!(self.kind, Kind::Text | Kind::Boolean | Kind::Id | Kind::IndexName);
        if !has_order || !self.is_whole() {
            return None;
        }
        if matches!(literal, Literal::Timestamp(..0)) && self.kind == Kind::DateNanos {
            return self.before_1970(if operator.starts_with('l') { Operator::Lt } else { Operator::Gt });
        }
        let value = self.value(literal)?;
        Some(self.pair(self.range(&[(operator, value)])))
    }

    /// Makes the pair of a comparison of nanoseconds, which begin with 1970, with a time before that.
    fn before_1970(&self, operator: Operator) -> Option<PushedPredicate> {
        let bound = if operator == Operator::Gt { "gte" } else { "lt" };
        Some(self.pair(self.range(&[(bound, self.value(&Literal::Timestamp(0))?)])))
    }

    fn range(&self, bounds: &[(&str, Value)]) -> Clause {
        let mut body = Map::new();
        for (operator, value) in bounds {
            body.insert((*operator).to_owned(), value.clone());
        }
        let format = match self.kind {
            Kind::Date => Some("epoch_millis"),
            Kind::DateNanos => Some("strict_date_optional_time_nanos"),
            _ => None,
        };
        if let Some(format) = format {
            body.insert("format".to_owned(), json!(format));
        }
        Clause::Leaf(json!({"range": {&self.path: body}}))
    }

    /// Makes the pair of `field LIKE pattern`: against the whole value, or over terms of a text that has no
    /// exact field.
    pub(crate) fn like(&self, pattern: &str) -> Option<PushedPredicate> {
        let clause = |path: &str| {
            Clause::Leaf(
                json!({"wildcard": {path: {"value": wildcard(pattern, false), "case_insensitive": true}}}),
            )
        };
        match self.kind {
            Kind::Text => Some(self.pair(clause(&self.path))),
            Kind::Keyword if self.is_whole() && !self.normalized => Some(self.pair(clause(&self.path))),
            _ => None,
        }
    }

    /// Returns true where values are compared as terms, which are the values.
    pub(crate) fn has_terms(&self) -> bool {
        let is_term =
            matches!(self.kind, Kind::Keyword | Kind::Whole | Kind::Unsigned | Kind::Boolean | Kind::Ip);
        is_term && !self.normalized
    }

    /// Returns true where a normalizer makes values of the field.
    pub(crate) fn is_normalized(&self) -> bool {
        self.normalized
    }

    /// Returns whether patterns are met by terms of a text, which only the index has.
    pub(crate) fn is_of_terms(&self) -> bool {
        self.kind == Kind::Text
    }
}

/// Makes the pair of `field IS NULL`.
pub(crate) fn is_null(source: usize, path: &str) -> PushedPredicate {
    PushedPredicate::certain(source, Clause::Leaf(json!({"exists": {"field": path}}))).not()
}

/// Returns whether `exists` means a value of the path in every index.
pub(crate) fn has_exists(snapshot: &TableSnapshot, path: &str) -> bool {
    has_exists_within(snapshot, path, None)
}

/// Returns whether `exists` means a value of the path in elements of a nested path, or in documents, of every index.
pub(crate) fn has_exists_within(snapshot: &TableSnapshot, path: &str, nested: Option<&str>) -> bool {
    snapshot.indices.iter().all(|index| match index.mapping.field(path) {
        Some(field) => {
            (field.index || field.doc_values)
                && field.field_type != FieldType::Binary
                && index.mapping.nested_path(path) == nested
        }
        None => !index.mapping.is_object(path) && index.mapping.flat_object(path).is_none(),
    })
}

/// Writes a time of a date_nanos field with all of its digits.
fn nanos_text(nanos: i128) -> String {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    let shown = time::shown_timestamp(seconds, 1).replace(' ', "T");
    format!("{shown}.{:09}Z", nanos.rem_euclid(1_000_000_000))
}

/// Returns how the index compares a path that every document has beside its fields.
fn metadata_kind(snapshot: &TableSnapshot, path: &str) -> Option<Kind> {
    match path {
        "_id" => Some(Kind::Id),
        // A clause takes aliases for the name, too.
        "_index" => {
            let has_alias = snapshot.indices.iter().any(|index| !index.meta.aliases.is_empty());
            (!has_alias).then_some(Kind::IndexName)
        }
        _ => None,
    }
}

fn kind(field: &Field) -> Option<Kind> {
    Some(match &field.field_type {
        FieldType::Keyword | FieldType::ConstantKeyword | FieldType::Wildcard => Kind::Keyword,
        FieldType::Byte | FieldType::Short | FieldType::Integer | FieldType::Long => Kind::Whole,
        FieldType::UnsignedLong => Kind::Unsigned,
        FieldType::Float => Kind::Float,
        FieldType::Double => Kind::Double,
        FieldType::Boolean => Kind::Boolean,
        FieldType::Date => Kind::Date,
        FieldType::DateNanos => Kind::DateNanos,
        FieldType::Ip => Kind::Ip,
        FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => Kind::Text,
        // What the index rounds is compared by value.
        FieldType::HalfFloat
        | FieldType::ScaledFloat { .. }
        | FieldType::FlatObject
        | FieldType::GeoPoint
        | FieldType::TokenCount
        | FieldType::RankFeature
        | FieldType::RankFeatures
        | FieldType::Completion
        | FieldType::Range(_)
        | FieldType::Binary => return None,
    })
}

/// The integers that a type takes.
fn limits(field: &FieldType) -> (i64, i64) {
    match field {
        FieldType::Byte => (i8::MIN.into(), i8::MAX.into()),
        FieldType::Short => (i16::MIN.into(), i16::MAX.into()),
        FieldType::Integer => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Turns a pattern of LIKE into one of `wildcard`; `both` tells whether `*` and `?` are wild already.
pub(crate) fn wildcard(pattern: &str, both: bool) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next_if(|next| matches!(next, '%' | '_' | '\\' | '*' | '?')) {
                Some(escaped @ ('%' | '_')) => out.push(escaped),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push_str("\\\\"),
            },
            '%' => out.push('*'),
            '_' => out.push('?'),
            '*' | '?' if !both => out.extend(['\\', letter]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_wildcards() {
        for (pattern, expected) in
            [("a%b_", "a*b?"), (r"100\%", "100%"), (r"a\_b", "a_b"), ("a*b?", r"a\*b\?"), (r"a\b", r"a\\b")]
        {
            assert_eq!(wildcard(pattern, false), expected, "{pattern}");
        }
        assert_eq!(wildcard(r"*\%?", true), "*%?");
    }

    #[test]
    fn negation_swaps_truth_and_falsity() {
        let field = PushedPredicate::of_field(0, "a", Clause::Leaf(json!({"term": {"a": 1}})));
        let both = PushedPredicate::all(&[field.clone(), field.clone().not()], true).unwrap();
        assert_eq!(both.truth, Clause::And(vec![field.truth.clone(), field.falsity.clone()]));
        assert_eq!(both.falsity, Clause::Or(vec![field.falsity.clone(), field.truth.clone()]));
        assert_eq!(both.clone().not().not(), both);
        assert!(
            PushedPredicate::all(&[field.clone(), PushedPredicate { source: 1, ..field }], true).is_none()
        );
    }
}
