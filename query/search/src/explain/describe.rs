//! Resolved leaves as Lucene prints its queries.

use std::fmt::Write;

use millrace_dsl::query::Relation;
use millrace_mapping::{FieldType, Mapping, PathId, Scalar};
use millrace_matching::address::AddressText;
use millrace_scoring::intervals::source::{IntervalSide, Source};
use millrace_scoring::intervals::{Intervals, LeafTerms};
use millrace_scoring::node::Node;
use millrace_scoring::operands::ExactValue;
use millrace_scoring::phrase::{Phrase, PlaceTerms};
use millrace_segment::ValueRange;

/// Text that Lucene prints for a query that matches nothing.
const NOTHING: &str = "MatchNoDocsQuery(\"User requested \"match_none\" query.\")";

/// Adds a boost to the text of a query.
pub(super) fn boosted(text: String, boost: f32) -> String {
    if boost == 1.0 { text } else { format!("({text})^{boost:?}") }
}

/// Describes a node of an index. `whole` also names the way over doc values where there is one.
/// `None` for nodes that Lucene has no common words for.
pub(super) fn described(node: &Node, mapping: &Mapping, whole: bool) -> Option<String> {
    ExplanationBuilder { mapping, whole }.node(node)
}

struct ExplanationBuilder<'a> {
    mapping: &'a Mapping,
    whole: bool,
}

impl ExplanationBuilder<'_> {
    fn name(&self, path: PathId) -> Option<&str> {
        self.mapping.field_by_id(path).map(|field| field.path.as_ref())
    }

    fn node(&self, node: &Node) -> Option<String> {
        Some(match node {
            Node::All(_) => "*:*".to_owned(),
            Node::None => NOTHING.to_owned(),
            Node::Text { path, term, .. } => format!("{}:{term}", self.name(*path)?),
            Node::Exact { path, value, .. } => match &value.value {
                Scalar::Str(text) => format!("{}:{text}", self.name(*path)?),
                Scalar::Bool(flag) => format!("{}:{}", self.name(*path)?, if *flag { "T" } else { "F" }),
                _ => self.range(*path, value.range.as_ref()?)?,
            },
            Node::AnyExact { path, values, .. } => self.any_of(*path, values)?,
            Node::RawRange { path, range, .. } => self.range(*path, range)?,
            Node::ColumnRange { column, range, .. } => self.range(*column, range)?,
            Node::Matching { path, pattern, .. } => {
                format!("{}:{}*", self.name(*path)?, pattern.only_prefix()?)
            }
            Node::Synonyms { path, terms, .. } => {
                let name = self.name(*path)?;
                let terms: Vec<String> = terms.iter().map(|term| format!("{name}:{term}")).collect();
                format!("Synonym({})", terms.join(" "))
            }
            Node::Exists { paths, .. } => match paths.as_slice() {
                [only] => format!("ConstantScore(FieldExistsQuery [field={}])", self.name(*only)?),
                several => {
                    let names = several.iter().filter_map(|path| self.name(*path));
                    let parts: Vec<String> =
                        names.map(|name| format!("FieldExistsQuery [field={name}]")).collect();
                    format!("ConstantScore({})", parts.join(" "))
                }
            },
            Node::Ids { values, .. } => {
                let ids: Vec<String> = values.iter().map(|id| encoded_id(id)).collect();
                format!("_id:({})", ids.join(" "))
            }
            Node::And(parts) => self.joined(parts, "+")?,
            Node::AtLeast(0 | 1, parts) => self.joined(parts, "")?,
            Node::AtLeast(required, parts) => format!("({})~{required}", self.joined(parts, "")?),
            Node::Not(part) => format!("-{} #*:*", self.node(part)?),
            Node::Constant(score, part) => {
                let text = self.node(part)?;
                if *score == 1.0 { text } else { format!("(ConstantScore({text}))^{score:?}") }
            }
            Node::Phrase { path, phrase, .. } => self.phrase(*path, phrase)?,
            Node::Intervals { path, intervals, .. } => {
                format!("{}:{}", self.name(*path)?, self.intervals(&intervals.source, intervals)?)
            }
            Node::Spans { spans, .. } => spans.root.text(&spans.leaves, &|_| None),
            _ => return None,
        })
    }

    /// Writes a phrase; an omitted token of it is a `?`.
    fn phrase(&self, path: PathId, phrase: &Phrase) -> Option<String> {
        let Phrase::Places(places, slop) = phrase else { return None };
        let (mut words, mut next) = (Vec::new(), 0);
        for place in places {
            while next < place.offset {
                words.push("?".to_owned());
                next += 1;
            }
            next = place.offset.saturating_add(1);
            match &place.terms {
                PlaceTerms::Fixed(terms) => words.push(match terms.as_slice() {
                    [term] => term.clone(),
                    several => format!("({})", several.join(" ")),
                }),
                PlaceTerms::Expanded(_) => return None,
            }
        }
        let slop = if *slop > 0 { format!("~{slop}") } else { String::new() };
        Some(format!("{}:\"{}\"{slop}", self.name(path)?, words.join(" ")))
    }

    /// Writes what intervals are looked for.
    fn intervals(&self, source: &Source, of: &Intervals) -> Option<String> {
        let one = |part: &Source| self.intervals(part, of);
        let list = |parts: &[Source]| Some(parts.iter().map(one).collect::<Option<Vec<_>>>()?.join(","));
        let positions = |count: u32| count.min(i32::MAX as u32);
        Some(match source {
            Source::Nothing => "no_match".to_owned(),
            Source::Leaf(leaf) => match &of.leaves.get(*leaf)?.terms {
                LeafTerms::One(term) => term.clone(),
                LeafTerms::Matching { shown, .. } => format!("MultiTerm({shown})"),
            },
            Source::Extended(part, before, after) => {
                format!("EXTEND({},{},{})", one(part)?, positions(*before), positions(*after))
            }
            Source::Beside(part, IntervalSide::Before) => format!("PRECEDING({})", one(part)?),
            Source::Beside(part, IntervalSide::Behind) => format!("FOLLOWING({})", one(part)?),
            Source::Repeated(part, count) => vec![one(part)?; *count].join(","),
            Source::Ordered(parts) => format!("ORDERED({})", list(parts)?),
            Source::Unordered(parts) => format!("UNORDERED({})", list(parts)?),
            Source::Block(parts) => format!("BLOCK({})", list(parts)?),
            Source::Any(parts) => {
                let mut parts = parts.iter().map(one).collect::<Option<Vec<_>>>()?;
                parts.sort();
                format!("or({})", parts.join(","))
            }
            Source::MaxGaps(part, gaps) => format!("MAXGAPS/{gaps}({})", one(part)?),
            Source::Related(relation, own, other) => {
                let name = match relation {
                    Relation::Containing => "CONTAINING",
                    Relation::NotContaining => "NOT_CONTAINING",
                    Relation::NotContainedBy => "NOT_CONTAINED_BY",
                    Relation::Overlapping => "OVERLAPPING",
                    Relation::NotOverlapping => "NON_OVERLAPPING",
                    _ => "CONTAINED_BY",
                };
                format!("{name}({},{})", one(own)?, one(other)?)
            }
            Source::Fixed(part) => {
                let path = part.first_leaf().and_then(|leaf| of.leaves.get(leaf))?.path;
                format!("FIELD({},{})", self.name(path)?, one(part)?)
            }
        })
    }

    fn joined(&self, parts: &[Node], sign: &str) -> Option<String> {
        let parts: Option<Vec<String>> =
            parts.iter().map(|part| Some(format!("{sign}{}", self.node(part)?))).collect();
        Some(parts?.join(" "))
    }

    fn any_of(&self, path: PathId, values: &[ExactValue]) -> Option<String> {
        let name = self.name(path)?;
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            texts.push(match &value.value {
                Scalar::Str(text) => text.clone(),
                Scalar::I64(number) => number.to_string(),
                Scalar::U64(number) => number.to_string(),
                Scalar::F64(number) => format!("{number:?}"),
                Scalar::Bool(flag) => (if *flag { "T" } else { "F" }).to_owned(),
                Scalar::Ip(address) => AddressText::new(*address).to_string(),
                Scalar::GeoPoint { .. } => return None,
            });
        }
        texts.sort();
        Some(match values.first().map(|value| &value.value) {
            Some(Scalar::Str(_) | Scalar::Bool(_)) => format!("{name}:({})", texts.join(" ")),
            _ => {
                let points = format!("{name}:{{{}}}", texts.join(" "));
                match self.whole && self.has_doc_values(path) {
                    true => format!(
                        "IndexOrDocValuesQuery(indexQuery={points}, dvQuery={name}: [{}])",
                        texts.join(", ")
                    ),
                    false => points,
                }
            }
        })
    }

    fn has_doc_values(&self, path: PathId) -> bool {
        self.mapping.field_by_id(path).is_some_and(|field| field.doc_values && field.index)
    }

    fn range(&self, path: PathId, range: &ValueRange) -> Option<String> {
        let field = self.mapping.field_by_id(path)?;
        let name = &field.path;
        let both = |from: &str, to: &str| format!("{name}:[{from} TO {to}]");
        let (points, values) = match range {
            ValueRange::I64(from, to) => {
                let text = both(&from.to_string(), &to.to_string());
                (text.clone(), text)
            }
            ValueRange::U64(from, to) => {
                let text = both(&from.to_string(), &to.to_string());
                (text.clone(), text)
            }
            ValueRange::Bool(from, to) => {
                let text = both(&u8::from(*from).to_string(), &u8::from(*to).to_string());
                (text.clone(), text)
            }
            ValueRange::F64(from, to) => (
                both(&shown_float(*from), &shown_float(*to)),
                both(&sortable(&field.field_type, *from), &sortable(&field.field_type, *to)),
            ),
            ValueRange::Ip(from, to) => (
                both(&AddressText::new(*from), &AddressText::new(*to)),
                both(&shown_bytes(from), &shown_bytes(to)),
            ),
            ValueRange::Str(from, to) => {
                let open = |bound: &Option<(String, bool)>| match bound {
                    None => ("*".to_owned(), true),
                    Some((text, included)) => (text.clone(), *included),
                };
                let ((from, from_in), (to, to_in)) = (open(from), open(to));
                let text = format!(
                    "{name}:{}{from} TO {to}{}",
                    if from_in { '[' } else { '{' },
                    if to_in { ']' } else { '}' }
                );
                (text.clone(), text)
            }
        };
        Some(match self.whole && field.doc_values && field.index {
            true => format!("IndexOrDocValuesQuery(indexQuery={points}, dvQuery={values})"),
            false => points,
        })
    }
}

fn shown_float(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => format!("{value:?}"),
    }
}

/// A floating point number as the integer by which Lucene sorts it.
fn sortable(field_type: &FieldType, value: f64) -> String {
    match field_type {
        FieldType::Float | FieldType::HalfFloat => {
            let bits = (value as f32).to_bits().cast_signed();
            (bits ^ ((bits >> 31) & 0x7fff_ffff)).to_string()
        }
        _ => {
            let bits = value.to_bits().cast_signed();
            (bits ^ ((bits >> 63) & 0x7fff_ffff_ffff_ffff)).to_string()
        }
    }
}

fn shown_bytes(bytes: &[u8]) -> String {
    let mut out = String::from("[");
    for (at, byte) in bytes.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(out, "{}{byte:x}", if at > 0 { " " } else { "" });
    }
    out.push(']');
    out
}

/// An id as Lucene's index has it: digits in nibbles, else the text behind a marker.
fn encoded_id(id: &str) -> String {
    let digits: Option<Vec<u8>> = id.bytes().map(|byte| byte.is_ascii_digit().then(|| byte - b'0')).collect();
    let bytes = match digits.filter(|digits| !digits.is_empty()) {
        Some(digits) => std::iter::once(0xfe)
            .chain(digits.chunks(2).map(|pair| (pair[0] << 4) | pair.get(1).copied().unwrap_or(0x0f)))
            .collect(),
        None => [&[0xff], id.as_bytes()].concat(),
    };
    shown_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_lucene_prints_them() {
        assert_eq!(encoded_id("1"), "[fe 1f]");
        assert_eq!(encoded_id("1234"), "[fe 12 34]");
        assert_eq!(encoded_id("a1"), "[ff 61 31]");
        assert_eq!(sortable(&FieldType::Float, 1.5), "1069547520");
        assert_eq!(sortable(&FieldType::Float, f64::INFINITY), "2139095040");
        assert_eq!(sortable(&FieldType::Double, -0.0), (i64::MIN ^ i64::MAX).to_string());
        assert_eq!(boosted("k:a".to_owned(), 2.0), "(k:a)^2.0");
    }
}
