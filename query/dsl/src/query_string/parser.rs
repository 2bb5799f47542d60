//! The grammar of the classic syntax: tokens to a [`Group`].
//!
//! Open parentheses are kept on a stack, so that their number costs no recursion; a group of one
//! clause without a sign is that clause, so that `((((a))))` is no deeper than `a`.

use std::sync::Arc;

use super::escape::unescape;
use super::expected::{ClauseFollow, GrammarPosition};
use super::lexer::{Kind, Token, tokens};
use super::syntax::{Clause, Conjunction, Expression, Group, Leaf, Modifier};
use super::{SyntaxError, number};
use crate::query::MAX_CLAUSES;

/// Longest query string, in UTF-16 code units.
const MAX_LENGTH: usize = 1 << 20;
/// Deepest nesting of groups, those that are no more than a clause aside.
const MAX_DEPTH: usize = 256;

/// Parsed text, as far as it is in the language.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedQuery {
    /// Its clauses, or those before the error; `None` where there are none, which matches nothing.
    pub group: Option<Group>,
    /// Why it is not in the language.
    pub error: Option<SyntaxError>,
}

/// Parses a query string; `field` is what conditions ask that name no field.
pub fn parse(text: &str, field: Option<&str>) -> ParsedQuery {
    if text.trim().is_empty() {
        return ParsedQuery::default();
    }
    let length = text.encode_utf16().count();
    if length > MAX_LENGTH {
        let reason =
            format!("Query string length exceeds max allowed length {MAX_LENGTH}; actual length: {length}");
        return ParsedQuery { group: None, error: Some(SyntaxError(reason)) };
    }
    let outermost = Frame { field: field.map(Arc::from), clauses: Vec::new(), joined: None, depth: 0 };
    let mut parser = Parser { text, tokens: tokens(text), at: 0, open: vec![outermost], leaves: 0 };
    let mut error = parser.whole().err();
    while parser.open.len() > 1 {
        error = error.or(parser.close(None).err());
    }
    let clauses = parser.open.pop().map(|frame| frame.clauses).unwrap_or_default();
    let group = (!clauses.is_empty()).then_some(Group { clauses });
    let error = error.map(|error| SyntaxError(format!("Cannot parse '{text}': {}", error.0)));
    ParsedQuery { group, error }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    /// The whole string and the groups that are open, innermost last.
    open: Vec<Frame>,
    leaves: usize,
}

/// A group that is being read.
struct Frame {
    /// Field of conditions that name none.
    field: Option<Arc<str>>,
    clauses: Vec<Clause>,
    /// Join of the group with the clauses before it.
    joined: Option<(Conjunction, Modifier)>,
    /// Levels of groups inside.
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Reads all clauses into the outermost frame.
    fn whole(&mut self) -> Result<(), SyntaxError> {
        loop {
            let Some(mut after) = self.clause()? else { continue };
            loop {
                let nested = self.open.len() > 1;
                match self.kind(0) {
                    kind if kind.starts_clause() || matches!(kind, Kind::And | Kind::Or) => break,
                    Kind::CloseGroup if nested => {
                        self.at += 1;
                        let boost = self.boost()?;
                        self.close(boost)?;
                        after = ClauseFollow { caret: boost.is_none(), tilde: false };
                    }
                    Kind::End if !nested => return Ok(()),
                    _ => return Err(self.unexpected(GrammarPosition::Clause { after, nested })),
                }
            }
        }
    }

    /// Returns the kind of the token so many places ahead.
    fn kind(&self, ahead: usize) -> Kind {
        self.tokens.get(self.at + ahead).map_or(Kind::End, |token| token.kind)
    }

    /// Takes the next token if it is of the kind.
    fn take(&mut self, kind: Kind) -> Option<&'a str> {
        let token = self.tokens.get(self.at).filter(|token| token.kind == kind)?;
        self.at += 1;
        Some(token.image)
    }

    fn expect(&mut self, kind: Kind, expected: GrammarPosition) -> Result<&'a str, SyntaxError> {
        self.take(kind).ok_or_else(|| self.unexpected(expected))
    }

    fn unexpected(&self, expected: GrammarPosition) -> SyntaxError {
        match self.tokens.get(self.at).or(self.tokens.last()) {
            Some(token) => expected.refuse(token, self.text),
            None => SyntaxError("Encountered \"<EOF>\"".to_owned()),
        }
    }

    /// The group that is read.
    fn frame(&mut self) -> Option<&mut Frame> {
        self.open.last_mut()
    }

    fn push(&mut self, clause: Clause) {
        if let Some(frame) = self.frame() {
            frame.clauses.push(clause);
        }
    }

    /// Reads a clause, and returns what could still have followed it; `None` where it opened a group.
    fn clause(&mut self) -> Result<Option<ClauseFollow>, SyntaxError> {
        let outer = self.open.last().and_then(|frame| frame.field.clone());
        let first = self.open.last().is_none_or(|frame| frame.clauses.is_empty());
        if let Some(text) = self.words()? {
            self.count(1 + text.matches(' ').count())?;
            self.push(Clause {
                conjunction: Conjunction::None,
                modifier: Modifier::None,
                expression: Expression::Leaf(outer, Leaf::Words(text)),
                boost: None,
            });
            return Ok(Some(ClauseFollow { caret: false, tilde: false }));
        }
        let mut expected = if first { GrammarPosition::FirstClause } else { GrammarPosition::NextClause };
        let conjunction = if first { Conjunction::None } else { self.conjunction() };
        let modifier = self.modifier();
        if modifier != Modifier::None {
            expected = GrammarPosition::SignedClause;
        }
        let field = match self.field()? {
            None => outer,
            named => {
                expected = GrammarPosition::FieldClause;
                named
            }
        };
        if self.take(Kind::OpenGroup).is_some() {
            let joined = Some((conjunction, modifier));
            self.open.push(Frame { field, clauses: Vec::new(), joined, depth: 0 });
            return Ok(None);
        }
        self.count(1)?;
        let (leaf, boost, after) = self.leaf(expected)?;
        self.push(Clause { conjunction, modifier, expression: Expression::Leaf(field, leaf), boost });
        Ok(Some(after))
    }

    /// Closes the innermost group: it becomes a clause of the one around it.
    fn close(&mut self, boost: Option<f32>) -> Result<(), SyntaxError> {
        let Some(Frame { mut clauses, joined, depth, .. }) = self.open.pop() else { return Ok(()) };
        if clauses.is_empty() {
            return Ok(());
        }
        let (conjunction, modifier) = joined.unwrap_or((Conjunction::None, Modifier::None));
        let alone = clauses.len() == 1
            && clauses.iter().all(|clause| {
                clause.modifier == Modifier::None
                    && !matches!(clause.expression, Expression::Leaf(_, Leaf::Words(_)))
            });
        let (clause, depth) = match clauses.pop() {
            Some(only) if alone => {
                let boost = match (only.boost, boost) {
                    (Some(inner), Some(outer)) => Some(inner * outer),
                    (inner, outer) => inner.or(outer),
                };
                (Clause { conjunction, modifier, expression: only.expression, boost }, depth)
            }
            last => {
                clauses.extend(last);
                let expression = Expression::Group(Group { clauses });
                (Clause { conjunction, modifier, expression, boost }, depth + 1)
            }
        };
        if depth > MAX_DEPTH {
            return Err(SyntaxError(format!("more than {MAX_DEPTH} levels of groups")));
        }
        if let Some(frame) = self.frame() {
            frame.depth = frame.depth.max(depth);
            frame.clauses.push(clause);
        }
        Ok(())
    }

    /// Words that follow each other without an operator: each but the first must be followed by
    /// what leaves it a word.
    fn words(&mut self) -> Result<Option<String>, SyntaxError> {
        let joins = |parser: &Self, ahead: usize| {
            parser.kind(ahead) == Kind::Term
                && !matches!(
                    parser.kind(ahead + 1),
                    Kind::Colon | Kind::Star | Kind::Tilde | Kind::Caret | Kind::And | Kind::Or
                )
        };
        if self.kind(0) != Kind::Term || !joins(self, 1) {
            return Ok(None);
        }
        let mut text = self.take(Kind::Term).unwrap_or_default().to_owned();
        while joins(self, 0) {
            text.push(' ');
            text.push_str(self.take(Kind::Term).unwrap_or_default());
        }
        unescape(&text).map(Some)
    }

    fn conjunction(&mut self) -> Conjunction {
        if self.take(Kind::And).is_some() {
            Conjunction::And
        } else if self.take(Kind::Or).is_some() {
            Conjunction::Or
        } else {
            Conjunction::None
        }
    }

    fn modifier(&mut self) -> Modifier {
        if self.take(Kind::Plus).is_some() {
            Modifier::Required
        } else if self.take(Kind::Minus).is_some() || self.take(Kind::Not).is_some() {
            Modifier::Excluded
        } else {
            Modifier::None
        }
    }

    /// The field that a clause names before a colon.
    fn field(&mut self) -> Result<Option<Arc<str>>, SyntaxError> {
        let name = match (self.kind(0), self.kind(1)) {
            (Kind::Term, Kind::Colon) => unescape(self.take(Kind::Term).unwrap_or_default())?,
            (Kind::Star, Kind::Colon) => self.take(Kind::Star).unwrap_or_default().to_owned(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(name.into()))
    }

    fn leaf(&mut self, expected: GrammarPosition) -> Result<(Leaf, Option<f32>, ClauseFollow), SyntaxError> {
        let kind = self.kind(0);
        match kind {
            Kind::Term
            | Kind::Star
            | Kind::Prefix
            | Kind::Wildcard
            | Kind::Regexp
            | Kind::Number
            | Kind::BareSign => {
                let image = self.expect(kind, expected)?;
                let image = if kind == Kind::BareSign { &image[..1] } else { image };
                let (boost, tilde, after) = self.suffixes()?;
                let text = unescape(image)?;
                let leaf = match (kind, tilde) {
                    (Kind::Star | Kind::Wildcard, _) => Leaf::Wildcard(image.to_owned()),
                    (Kind::Prefix, _) => Leaf::Prefix(unescape(&image[..image.len() - 1])?),
                    (Kind::Regexp, _) => Leaf::Regexp(image[1..image.len() - 1].to_owned()),
                    (_, Some("")) => Leaf::Fuzzy { text, fuzziness: None },
                    (_, Some(fuzziness)) => Leaf::Fuzzy { text, fuzziness: Some(fuzziness.to_owned()) },
                    (_, None) => Leaf::Word(text),
                };
                Ok((leaf, boost, after))
            }
            Kind::Quoted => {
                let image = self.expect(kind, expected)?;
                let (boost, tilde, after) = self.suffixes()?;
                let text = unescape(&image[1..image.len() - 1])?;
                // What is not a number leaves the slop as it is by default.
                let slop = tilde.and_then(number).map(|slop| slop as i32);
                Ok((Leaf::Phrase { text, slop }, boost, after))
            }
            Kind::OpenIncluded | Kind::OpenExcluded => {
                self.at += 1;
                let from = self.bound()?;
                self.expect(Kind::RangeTo, GrammarPosition::RangeTo)?;
                let to = self.bound()?;
                let include_to = match self.take(Kind::CloseIncluded) {
                    Some(_) => true,
                    None => {
                        self.expect(Kind::CloseExcluded, GrammarPosition::RangeEnd)?;
                        false
                    }
                };
                let boost = self.boost()?;
                let after = ClauseFollow { caret: boost.is_none(), tilde: false };
                let include_from = kind == Kind::OpenIncluded;
                Ok((Leaf::Range { from, to, include_from, include_to }, boost, after))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// `^2` and `~1` behind a word or phrase, in either order: the boost, the text behind the tilde, and the tokens that could
    /// still follow.
    fn suffixes(&mut self) -> Result<(Option<f32>, Option<&'a str>, ClauseFollow), SyntaxError> {
        let tilde = |parser: &mut Self| parser.take(Kind::Tilde).map(|image| &image[1..]);
        let mut fuzziness = tilde(self);
        let factor = self.boost()?;
        if factor.is_some() && fuzziness.is_none() {
            fuzziness = tilde(self);
        }
        let after = ClauseFollow { caret: factor.is_none(), tilde: fuzziness.is_none() };
        Ok((factor, fuzziness, after))
    }

    fn boost(&mut self) -> Result<Option<f32>, SyntaxError> {
        if self.take(Kind::Caret).is_none() {
            return Ok(None);
        }
        let number = self.expect(Kind::Number, GrammarPosition::Number)?;
        // Digits and a point are always a number.
        Ok(Some(number.parse().unwrap_or(1.0)))
    }

    /// A bound of a range; `None` is open.
    fn bound(&mut self) -> Result<Option<String>, SyntaxError> {
        let text = match self.kind(0) {
            Kind::RangeQuoted => {
                let image = self.expect(Kind::RangeQuoted, GrammarPosition::Bound)?;
                unescape(&image[1..image.len() - 1])?
            }
            Kind::RangeTo => self.expect(Kind::RangeTo, GrammarPosition::Bound)?.to_owned(),
            _ => unescape(self.expect(Kind::RangeWord, GrammarPosition::Bound)?)?,
        };
        Ok(Some(text).filter(|text| text != "*"))
    }

    fn count(&mut self, leaves: usize) -> Result<(), SyntaxError> {
        self.leaves += leaves;
        match self.leaves > MAX_CLAUSES {
            true => Err(SyntaxError("too many boolean clauses".to_owned())),
            false => Ok(()),
        }
    }
}
