//! Atoms that a batch must have for a filter to match anything of it: values, tokens, numbers, pieces of values.
//!
//! Most filters match nothing of most batches. Each is known by a few [`Atom`]s of which a batch has at least one where the
//! filter matches; [`finder`](super::finder) finds the filters whose atoms a batch has. The atoms of a filter are a guess at
//! the least that is needed, and only that: whether it matches is decided by its clauses.

use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{Expansion, Node};
use millrace_scoring::operands::{ExactValue, RawBound};
use millrace_scoring::phrase::{Phrase, PlaceTerms};
use millrace_segment::ValueRange;

use super::clause::{Clause, Tree};

/// Most atoms by which one filter is known.
const MAX_ATOMS: usize = 4_096;
/// Shortest text that values are looked through for.
pub(super) const PIECE_BYTES: usize = 3;

/// Path of a value: a field or a column, of documents or of the elements of a nested path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ValuePath {
    pub(super) nested: Option<PathId>,
    pub(super) path: PathId,
}

/// Something that a batch may have.
#[derive(Clone, Debug)]
pub(super) enum Atom {
    /// An exact value, as terms write it.
    Value(ValuePath, Vec<u8>),
    /// An exact value between two, both included; open where absent.
    Values(ValuePath, Vec<u8>, Option<Vec<u8>>),
    /// A token of a text.
    Token(ValuePath, String),
    /// A number of a column between two, both included, in the order of [`Numbers`].
    Number(ValuePath, Numbers, u64, u64),
    /// A value of a pattern, or a token of it, that has a text in it.
    Piece { place: ValuePath, text: bool, pattern: Arc<Pattern>, literals: Vec<String> },
    /// Any value.
    Present(ValuePath),
}

/// The numbers of a column, which are brought into an order of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    Signed,
    Unsigned,
    Floating,
}

impl Numbers {
    /// Puts the bits of a number in order.
    pub(super) fn ordered(self, bits: u64) -> u64 {
        const SIGN: u64 = 1 << 63;
        match self {
            Self::Signed => bits ^ SIGN,
            Self::Unsigned => bits,
            Self::Floating => {
                // There is one zero.
                let bits = (f64::from_bits(bits) + 0.0).to_bits();
                if bits & SIGN == 0 { bits | SIGN } else { !bits }
            }
        }
    }
}

/// Atoms of which a batch has at least one where a filter matches.
pub(super) type RequiredAtoms = Vec<Atom>;

/// Lists needs of a filter: each of them holds. None where nothing is known that it needs.
pub(super) fn of_tree(tree: &Tree, clauses: &[Arc<Clause>]) -> Vec<RequiredAtoms> {
    match tree {
        Tree::Everything | Tree::Not(_) => Vec::new(),
        Tree::Clause(number) => match clauses.get(*number) {
            Some(clause) if clause.timed.is_none() => {
                let expansions = &clause.resolved.expansions;
                ClauseContext { expansions, nested: None }.of(&clause.resolved.node)
            }
            _ => Vec::new(),
        },
        Tree::All(parts) => parts.iter().flat_map(|part| of_tree(part, clauses)).collect(),
        Tree::AtLeast(required, parts) => {
            any(*required, parts.iter().map(|part| of_tree(part, clauses)).collect())
        }
    }
}

/// Joins the needs of parts of which so many match.
fn any(required: usize, parts: Vec<Vec<RequiredAtoms>>) -> Vec<RequiredAtoms> {
    // Any so many of the parts have one that matches: those with the strictest needs are taken.
    let Some(taken) = (parts.len() + 1).checked_sub(required.max(1)).filter(|_| required > 0) else {
        return if required > parts.len() { vec![Vec::new()] } else { Vec::new() };
    };
    let strictest = |needs: Vec<RequiredAtoms>| needs.into_iter().min_by_key(|own| looseness(own));
    let mut strictest: Vec<Option<RequiredAtoms>> = parts.into_iter().map(strictest).collect();
    strictest.sort_by_key(|needs| needs.as_deref().map_or(u32::MAX, looseness));
    let joined: Option<Vec<RequiredAtoms>> = strictest.into_iter().take(taken).collect();
    joined.map(|needs| vec![needs.concat()]).filter(|needs| few_enough(needs)).unwrap_or_default()
}

fn few_enough(needs: &[RequiredAtoms]) -> bool {
    needs.iter().all(|own| own.len() <= MAX_ATOMS)
}

/// Guesses how many batches have any of some atoms.
pub(super) fn looseness(needs: &[Atom]) -> u32 {
    let of = |atom: &Atom| match atom {
        Atom::Value(..) => 1,
        Atom::Token(..) | Atom::Number(_, _, _, _) if is_point(atom) => 2,
        Atom::Token(..) | Atom::Piece { .. } => 4,
        Atom::Values(_, _, Some(_)) => 8,
        Atom::Number(_, _, from, to) if *from > 0 && *to < u64::MAX => 16,
        Atom::Number(..) | Atom::Values(..) => 64,
        Atom::Present(_) => 256,
    };
    needs.iter().map(of).fold(0, u32::saturating_add)
}

fn is_point(atom: &Atom) -> bool {
    match atom {
        Atom::Number(_, _, from, to) => from == to,
        // Long words are rare.
        Atom::Token(_, term) => term.len() > 6,
        _ => false,
    }
}

/// Context of the clause that a node is of.
#[derive(Clone, Copy)]
struct ClauseContext<'a> {
    expansions: &'a [Expansion],
    nested: Option<PathId>,
}

impl ClauseContext<'_> {
    fn at(self, path: PathId) -> ValuePath {
        ValuePath { nested: self.nested, path }
    }

    /// Lists needs of a node.
    fn of(self, node: &Node) -> Vec<RequiredAtoms> {
        let needs = match node {
            Node::None => vec![Vec::new()],
            Node::Exact { path, column, value, .. } => {
                self.exact(*path, *column, value).into_iter().collect()
            }
            Node::AnyExact { path, column, values, .. } if values.len() <= MAX_ATOMS => {
                let each = values.iter().map(|value| self.exact(*path, *column, value));
                each.collect::<Option<Vec<RequiredAtoms>>>().map(|all| all.concat()).into_iter().collect()
            }
            Node::Text { path, term, .. } => vec![vec![Atom::Token(self.at(*path), term.clone())]],
            Node::RawRange { path, from, to, range: ValueRange::Str(..) | ValueRange::Ip(..), .. } => {
                vec![vec![Atom::Values(self.at(*path), least(from), greatest(to))]]
            }
            Node::ColumnRange { column, range, .. } => self.numbers(*column, range).into_iter().collect(),
            Node::Matching { path, text, pattern, .. } => self.piece(*path, *text, pattern, self.nested),
            Node::Expanded(slot) => match self.expansions.get(*slot) {
                Some(own) => self.piece(own.path, own.text, &own.pattern, own.nested),
                None => Vec::new(),
            },
            Node::Synonyms { path, terms, .. } => vec![self.tokens(*path, terms)],
            Node::Phrase { path, phrase, .. } => self.phrase(*path, phrase),
            Node::Exists { paths, .. } => {
                vec![paths.iter().map(|path| Atom::Present(self.at(*path))).collect()]
            }
            Node::And(parts) => parts.iter().flat_map(|part| self.of(part)).collect(),
            Node::AtLeast(required, parts) => {
                any(*required, parts.iter().map(|part| self.of(part)).collect())
            }
            Node::DisMax(_, parts) => any(1, parts.iter().map(|part| self.of(part)).collect()),
            Node::Constant(_, part) | Node::Boosting { positive: part, .. } => self.of(part),
            Node::FunctionScore { base, .. } => self.of(base),
            Node::Nested(nested) => match nested.chain.first() {
                Some(path) => Self { nested: Some(*path), ..self }.of(&nested.inner),
                None => Vec::new(),
            },
            Node::All(_)
            | Node::AnyExact { .. }
            | Node::RawRange { .. }
            | Node::ColumnMatching { .. }
            | Node::TextRange { .. }
            | Node::ManyExpanded { .. }
            | Node::Ids { .. }
            | Node::Intervals { .. }
            | Node::Spans { .. }
            | Node::Metadata { .. }
            | Node::Listed(_)
            | Node::Not(_)
            | Node::Within { .. } => Vec::new(),
        };
        if few_enough(&needs) { needs } else { Vec::new() }
    }

    fn exact(self, path: PathId, column: PathId, value: &ExactValue) -> Option<RequiredAtoms> {
        let bytes = match &value.value {
            Scalar::Str(text) => text.as_bytes().to_vec(),
            Scalar::Ip(address) => address.to_vec(),
            Scalar::Bool(flag) => vec![u8::from(*flag)],
            Scalar::I64(_) | Scalar::U64(_) | Scalar::F64(_) | Scalar::GeoPoint { .. } => {
                return self.numbers(column, value.range.as_ref()?);
            }
        };
        Some(vec![Atom::Value(self.at(path), bytes)])
    }

    fn numbers(self, column: PathId, range: &ValueRange) -> Option<RequiredAtoms> {
        let (kind, from, to) = match range {
            ValueRange::I64(from, to) => (Numbers::Signed, from.cast_unsigned(), to.cast_unsigned()),
            ValueRange::U64(from, to) => (Numbers::Unsigned, *from, *to),
            ValueRange::F64(from, to) if !from.is_nan() && !to.is_nan() => {
                (Numbers::Floating, from.to_bits(), to.to_bits())
            }
            _ => return None,
        };
        Some(vec![Atom::Number(self.at(column), kind, kind.ordered(from), kind.ordered(to))])
    }

    fn tokens(self, path: PathId, terms: &[String]) -> RequiredAtoms {
        terms.iter().map(|term| Atom::Token(self.at(path), term.clone())).collect()
    }

    /// Each place of a phrase needs one of its terms.
    fn phrase(self, path: PathId, phrase: &Phrase) -> Vec<RequiredAtoms> {
        let Phrase::Places(places, _) = phrase else { return Vec::new() };
        let fixed = places.iter().filter_map(|place| match &place.terms {
            PlaceTerms::Fixed(terms) if !terms.is_empty() => Some(self.tokens(path, terms)),
            _ => None,
        });
        fixed.collect()
    }

    fn piece(
        self,
        path: PathId,
        text: bool,
        pattern: &Arc<Pattern>,
        nested: Option<PathId>,
    ) -> Vec<RequiredAtoms> {
        let literals: Vec<String> = pattern
            .literals()
            .filter(|literal| literal.len() >= PIECE_BYTES)
            .map(str::to_ascii_lowercase)
            .collect();
        if literals.is_empty() {
            return Vec::new();
        }
        let place = ValuePath { nested, path };
        vec![vec![Atom::Piece { place, text, pattern: Arc::clone(pattern), literals }]]
    }
}

/// Returns the least value, including an excluded bound: atoms need not be exact.
fn least(from: &RawBound) -> Vec<u8> {
    from.as_ref().map(|(bytes, _)| bytes.clone()).unwrap_or_default()
}

fn greatest(to: &RawBound) -> Option<Vec<u8>> {
    to.as_ref().map(|(bytes, _)| bytes.clone())
}
