//! Lucene's regular expressions.
//!
//! | syntax | meaning |
//! |---|---|
//! | `a\|b`, `ab`, `a?`, `a*`, `a+`, `a{n}`, `a{n,}`, `a{n,m}`, `(a)` | as everywhere |
//! | `.`, `[a-z]`, `[^a-z]`, `\d \D \s \S \w \W`, `\c`, `"text"` | characters, classes, quotes |
//! | `a&b` | both (INTERSECTION) |
//! | `~a` | all else (COMPLEMENT) |
//! | `#`, `@` | nothing (EMPTY), any string (ANYSTRING) |
//! | `<n-m>` | numbers (INTERVAL) |

use super::dfa::Dfa;
use super::nfa::{Nfa, NfaFragment};
use super::{Fault, LAST, TooLarge, case};

type Result<T, E = Fault> = std::result::Result<T, E>;

/// Deepest nesting of an expression.
const MAX_DEPTH: usize = 100;

/// Optional operators of an expression, as Lucene numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// `&` between expressions: both.
    pub const INTERSECTION: Self = Self(0x1);
    /// `~` before an expression: all else.
    pub const COMPLEMENT: Self = Self(0x2);
    /// `#`: nothing at all.
    pub const EMPTY: Self = Self(0x4);
    /// `@`: any string.
    pub const ANYSTRING: Self = Self(0x8);
    /// `<n-m>`: numbers.
    pub const INTERVAL: Self = Self(0x20);
    /// All of them.
    pub const ALL: Self = Self(0xff);
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Returns whether an operator is on.
    pub fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

impl Dfa {
    /// Makes the automaton of an expression. `folded` takes ASCII letters in either case, but for those of
    /// ranges.
    ///
    /// # Errors
    /// What is no expression, and one whose automaton takes more than `limit` allows.
    pub fn regexp(text: &str, flags: Flags, folded: bool, limit: i64) -> Result<Self> {
        Ok(automaton(&parse(text, flags, folded)?, folded, limit)?)
    }
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Nothing,
    AnyString,
    Text(String),
    Character(char),
    Class(Vec<(u32, u32)>),
    Interval(u32, u32, usize),
    Union(Vec<Expression>),
    Concatenation(Vec<Expression>),
    Intersection(Box<Expression>, Box<Expression>),
    Complement(Box<Expression>),
    Repeat(Box<Expression>, usize, Option<usize>),
}

/// Parses an expression. `folded` takes ASCII letters in either case, but for those of ranges.
pub(super) fn parse(text: &str, flags: Flags, folded: bool) -> Result<Expression> {
    let mut parser = Parser { text: text.chars().collect(), at: 0, flags, folded, depth: 0 };
    if parser.text.is_empty() {
        return Ok(Expression::Text(String::new()));
    }
    let expression = parser.union()?;
    match parser.more() {
        true => Err(parser.fault("end-of-string expected")),
        false => Ok(expression),
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    flags: Flags,
    folded: bool,
    depth: usize,
}

impl Parser {
    fn more(&self) -> bool {
        self.at < self.text.len()
    }

    fn peek(&self, any: &str) -> bool {
        self.text.get(self.at).is_some_and(|next| any.contains(*next))
    }

    fn take(&mut self, character: char) -> bool {
        let found = self.text.get(self.at) == Some(&character);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Result<char> {
        let next = self.text.get(self.at).copied();
        self.at += 1;
        next.ok_or_else(|| Fault::Syntax("unexpected end-of-string".to_owned()))
    }

    /// Words an error; Lucene counts positions in UTF-16 code units.
    fn fault_at(&self, what: &str, at: usize) -> Fault {
        let position: usize = self.text.iter().take(at).map(|c| c.len_utf16()).sum();
        Fault::Syntax(format!("{what} at position {position}"))
    }

    fn fault(&self, what: &str) -> Fault {
        self.fault_at(what, self.at)
    }

    fn union(&mut self) -> Result<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::Syntax(format!("regular expression is nested more than {MAX_DEPTH} deep")));
        }
        let mut parts = vec![self.intersection()?];
        while self.take('|') {
            parts.push(self.intersection()?);
        }
        self.depth -= 1;
        Ok(one_or(parts, Expression::Union))
    }

    fn intersection(&mut self) -> Result<Expression> {
        let mut whole = self.concatenation()?;
        while self.flags.has(Flags::INTERSECTION) && self.take('&') {
            whole = Expression::Intersection(Box::new(whole), Box::new(self.concatenation()?));
        }
        Ok(whole)
    }

    fn concatenation(&mut self) -> Result<Expression> {
        let mut parts = vec![self.repetition()?];
        while self.more() && !self.peek(")|") && !(self.flags.has(Flags::INTERSECTION) && self.peek("&")) {
            parts.push(self.repetition()?);
        }
        Ok(one_or(parts, Expression::Concatenation))
    }

    fn repetition(&mut self) -> Result<Expression> {
        let mut whole = self.complement()?;
        let mut operators = 0;
        loop {
            let (least, most) = if self.take('?') {
                (0, Some(1))
            } else if self.take('*') {
                (0, None)
            } else if self.take('+') {
                (1, None)
            } else if self.take('{') {
                self.bounds()?
            } else {
                return Ok(whole);
            };
            operators += 1;
            if operators > MAX_DEPTH {
                return Err(self.fault("too many repetitions"));
            }
            whole = Expression::Repeat(Box::new(whole), least, most);
        }
    }

    fn bounds(&mut self) -> Result<(usize, Option<usize>)> {
        let least = self.number()?.ok_or_else(|| self.fault("integer expected"))?;
        let most = if self.take(',') { self.number()? } else { Some(least) };
        if !self.take('}') {
            return Err(self.fault("expected '}'"));
        }
        match most {
            Some(most) if most < least => {
                Err(Fault::Syntax(format!("invalid repetition range(out of order): {least}..{most}")))
            }
            _ => Ok((least, most)),
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let start = self.at;
        while self.peek("0123456789") {
            self.at += 1;
        }
        if start == self.at {
            return Ok(None);
        }
        let digits: String = self.text[start..self.at].iter().collect();
        digits
            .parse::<i32>()
            .map(|number| Some(number.unsigned_abs() as usize))
            .map_err(|_| Fault::Number(digits))
    }

    fn complement(&mut self) -> Result<Expression> {
        let mut complements = 0;
        while self.flags.has(Flags::COMPLEMENT) && self.take('~') {
            complements += 1;
        }
        let mut whole = self.class()?;
        // Twice the complement is the thing itself.
        if complements % 2 == 1 {
            whole = Expression::Complement(Box::new(whole));
        }
        Ok(whole)
    }

    fn class(&mut self) -> Result<Expression> {
        if !self.take('[') {
            return self.simple();
        }
        let negated = self.take('^');
        let mut ranges = self.class_member()?;
        while self.more() && !self.peek("]") {
            ranges.extend(self.class_member()?);
        }
        if !self.take(']') {
            return Err(self.fault("expected ']'"));
        }
        Ok(Expression::Class(if negated { others(ranges) } else { ranges }))
    }

    fn class_member(&mut self) -> Result<Vec<(u32, u32)>> {
        if let Some(ranges) = self.predefined()? {
            return Ok(ranges);
        }
        let first = self.character()?;
        if !self.take('-') {
            return Ok(case::ranges(first, self.folded));
        }
        let (first, last) = (u32::from(first), u32::from(self.character()?));
        if first > last {
            return Err(Fault::Syntax(format!("invalid range: from ({first}) cannot be > to ({last})")));
        }
        Ok(vec![(first, last)])
    }

    fn predefined(&mut self) -> Result<Option<Vec<(u32, u32)>>> {
        let range = |first: char, last: char| (u32::from(first), u32::from(last));
        if !self.take('\\') {
            return Ok(None);
        }
        let digits = || vec![range('0', '9')];
        let spaces = || [' ', '\n', '\r', '\t'].map(|c| range(c, c)).to_vec();
        let words = || vec![range('a', 'z'), range('A', 'Z'), range('_', '_'), range('0', '9')];
        let ranges = match self.text.get(self.at) {
            Some('d') => digits(),
            Some('D') => others(digits()),
            Some('s') => spaces(),
            Some('S') => others(spaces()),
            Some('w') => words(),
            Some('W') => others(words()),
            Some('\\') => vec![range('\\', '\\')],
            Some(letter) if letter.is_ascii_alphabetic() => {
                return Err(Fault::Syntax(format!("invalid character class \\{}", u32::from(*letter))));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(ranges))
    }

    fn character(&mut self) -> Result<char> {
        self.take('\\');
        self.next()
    }

    fn simple(&mut self) -> Result<Expression> {
        if self.take('.') {
            return Ok(Expression::Class(vec![(0, LAST)]));
        }
        if self.flags.has(Flags::EMPTY) && self.take('#') {
            return Ok(Expression::Nothing);
        }
        if self.flags.has(Flags::ANYSTRING) && self.take('@') {
            return Ok(Expression::AnyString);
        }
        if self.take('"') {
            return Ok(Expression::Text(self.up_to('"')?));
        }
        if self.take('(') {
            if self.take(')') {
                return Ok(Expression::Text(String::new()));
            }
            let inner = self.union()?;
            return match self.take(')') {
                true => Ok(inner),
                false => Err(self.fault("expected ')'")),
            };
        }
        if self.flags.has(Flags::INTERVAL) && self.take('<') {
            return self.interval();
        }
        match self.predefined()? {
            Some(ranges) => Ok(Expression::Class(ranges)),
            None => Ok(Expression::Character(self.character()?)),
        }
    }

    fn up_to(&mut self, end: char) -> Result<String> {
        let start = self.at;
        while self.more() && self.text[self.at] != end {
            self.at += 1;
        }
        if !self.take(end) {
            return Err(self.fault(&format!("expected '{end}'")));
        }
        Ok(self.text[start..self.at - 1].iter().collect())
    }

    fn interval(&mut self) -> Result<Expression> {
        let text = self.up_to('>')?;
        let wrong = |parser: &Self| parser.fault_at("interval syntax error", parser.at - 1);
        let Some((first, last)) = text.split_once('-') else {
            // A name of an automaton, of which there are none.
            return Err(Fault::Syntax(format!("'{text}' not found")));
        };
        if first.is_empty() || last.is_empty() || last.contains('-') {
            return Err(wrong(self));
        }
        let number = |text: &str| text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
        let (Some(from), Some(to)) = (number(first), number(last)) else { return Err(wrong(self)) };
        let digits = if first.len() == last.len() { first.len() } else { 0 };
        Ok(Expression::Interval(from.min(to), from.max(to), digits))
    }
}

fn one_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

/// Returns the characters that are in none of the ranges.
fn others(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut rest = Vec::new();
    let mut from = 0;
    for (first, last) in ranges {
        if first > from {
            rest.push((from, first - 1));
        }
        from = from.max(last + 1);
    }
    if from <= LAST {
        rest.push((from, LAST));
    }
    rest
}

/// Makes the automaton of an expression.
fn automaton(expression: &Expression, folded: bool, limit: i64) -> Result<Dfa, TooLarge> {
    let mut builder = Builder { nfa: Nfa::default(), folded, limit };
    let whole = builder.part(expression)?;
    Dfa::new(&builder.nfa, whole, limit)
}

struct Builder {
    nfa: Nfa,
    folded: bool,
    limit: i64,
}

impl Builder {
    fn part(&mut self, expression: &Expression) -> Result<NfaFragment, TooLarge> {
        match expression {
            Expression::Nothing => self.nfa.nothing(),
            Expression::AnyString => self.nfa.any_string(),
            Expression::Text(text) => {
                let mut whole = self.nfa.empty_string()?;
                for character in text.chars() {
                    let part = self.nfa.characters(&case::ranges(character, self.folded))?;
                    whole = self.nfa.concatenate(whole, part);
                }
                Ok(whole)
            }
            Expression::Character(character) => self.nfa.characters(&case::ranges(*character, self.folded)),
            Expression::Class(ranges) => self.nfa.characters(ranges),
            Expression::Interval(from, to, digits) => self.interval(*from, *to, *digits),
            Expression::Union(parts) => {
                let parts = parts.iter().map(|part| self.part(part)).collect::<Result<Vec<_>, _>>()?;
                self.nfa.union(&parts)
            }
            Expression::Concatenation(parts) => {
                let mut whole = self.nfa.empty_string()?;
                for part in parts {
                    let part = self.part(part)?;
                    whole = self.nfa.concatenate(whole, part);
                }
                Ok(whole)
            }
            Expression::Intersection(left, right) => {
                let (left, right) = (self.alone(left)?, self.alone(right)?);
                let both = left.intersection(&right, self.limit)?;
                self.nfa.embed(&both)
            }
            Expression::Complement(inner) => {
                let others = self.alone(inner)?.complement();
                self.nfa.embed(&others)
            }
            Expression::Repeat(inner, least, most) => self.repeat(inner, *least, *most),
        }
    }

    /// Makes the automaton of a part by itself.
    fn alone(&self, expression: &Expression) -> Result<Dfa, TooLarge> {
        automaton(expression, self.folded, self.limit)
    }

    fn repeat(
        &mut self,
        inner: &Expression,
        least: usize,
        most: Option<usize>,
    ) -> Result<NfaFragment, TooLarge> {
        let inner = self.alone(inner)?;
        // As Lucene: what is to be copied is counted before it is.
        let states = inner.states().len().saturating_sub(1).saturating_mul(most.unwrap_or(least).max(least));
        if i64::try_from(states).is_ok_and(|states| states > self.limit) {
            return Err(TooLarge::Effort(states as i64));
        }
        let mut whole = self.nfa.empty_string()?;
        for _ in 0..least {
            let part = self.nfa.embed(&inner)?;
            whole = self.nfa.concatenate(whole, part);
        }
        let Some(most) = most else {
            let part = self.nfa.embed(&inner)?;
            let rest = self.nfa.repeat(part)?;
            return Ok(self.nfa.concatenate(whole, rest));
        };
        // Each further copy may be left out together with all behind it.
        let end = self.nfa.nothing()?.end;
        for _ in least..most {
            self.nfa.empty[whole.end as usize].push(end);
            let part = self.nfa.embed(&inner)?;
            whole = self.nfa.concatenate(whole, part);
        }
        self.nfa.empty[whole.end as usize].push(end);
        Ok(NfaFragment { start: whole.start, end })
    }

    fn interval(&mut self, from: u32, to: u32, digits: usize) -> Result<NfaFragment, TooLarge> {
        if digits > 0 {
            return self.numbers(from, to, digits);
        }
        let zeros = self.nfa.characters(&[(u32::from('0'), u32::from('0'))])?;
        let zeros = self.nfa.repeat(zeros)?;
        let mut widths = Vec::new();
        for width in 1..=to.to_string().len() {
            let low = if width == 1 { 0 } else { 10u64.pow(width as u32 - 1) };
            let high = 10u64.pow(width as u32) - 1;
            let (low, high) = (low.max(from.into()), high.min(to.into()));
            if low <= high {
                widths.push(self.numbers(low as u32, high as u32, width)?);
            }
        }
        let numbers = self.nfa.union(&widths)?;
        Ok(self.nfa.concatenate(zeros, numbers))
    }

    /// Matches the numbers of a range, written with so many digits.
    fn numbers(&mut self, from: u32, to: u32, digits: usize) -> Result<NfaFragment, TooLarge> {
        let split =
            |number: u32| -> Vec<u32> { format!("{number:0digits$}").chars().map(u32::from).collect() };
        let (low, high) = (split(from), split(to));
        self.between(&low, &high, true, true)
    }

    /// Matches digits between two rows of them, where `above` and `below` say that these bound.
    fn between(
        &mut self,
        low: &[u32],
        high: &[u32],
        above: bool,
        below: bool,
    ) -> Result<NfaFragment, TooLarge> {
        let (Some((first, low)), Some((last, high))) = (low.split_first(), high.split_first()) else {
            return self.nfa.empty_string();
        };
        let from = if above { *first } else { u32::from('0') };
        let to = if below { *last } else { u32::from('9') };
        let mut parts = Vec::new();
        // Digits that bound the rest, and the run between them that does not.
        let mut ways = Vec::new();
        if above && below && from == to {
            ways.push((from, to, true, true));
        } else {
            if above {
                ways.push((from, from, true, false));
            }
            if below {
                ways.push((to, to, false, true));
            }
            let (from, to) = (from + u32::from(above), to - u32::from(below));
            if from <= to {
                ways.push((from, to, false, false));
            }
        }
        for (from, to, above, below) in ways {
            let digit = self.nfa.characters(&[(from, to)])?;
            let rest = self.between(low, high, above, below)?;
            parts.push(self.nfa.concatenate(digit, rest));
        }
        self.nfa.union(&parts)
    }
}
