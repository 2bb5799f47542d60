//! Lucene's regular expressions as a nondeterministic automaton, for the tokenizers that take the longest
//! match.
//!
//! Built are characters, `.`, classes, groups, alternatives, the quantifiers, quotations and escapes; the
//! optional operators (`~`, `&`, `<1-9>`, `@`) are refused.

use crate::{Error, Result};

/// Most states of an automaton: matching takes that many steps a character at worst.
const MAX_STATES: usize = 10_000;

/// Deepest nesting of groups.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug)]
enum State {
    /// A character of (or outside of) the ranges, then the next state.
    Characters {
        ranges: Vec<(char, char)>,
        negated: bool,
        next: usize,
    },
    /// Either of two states.
    Split(usize, usize),
    /// The next state.
    Jump(usize),
    Accept,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Automaton {
    states: Vec<State>,
    start: usize,
}

/// The tree of an expression.
#[derive(Clone, Debug)]
enum Node {
    Empty,
    Characters(Vec<(char, char)>, bool),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

struct Parser<'t> {
    pattern: &'t str,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    depth: usize,
}

impl Automaton {
    /// Compiles an expression.
    pub(crate) fn new(pattern: &str) -> Result<Self> {
        let mut parser = Parser { pattern, rest: pattern.chars().peekable(), depth: 0 };
        let node = parser.alternatives()?;
        if parser.rest.peek().is_some() {
            return Err(parser.invalid("unexpected end of group"));
        }
        let mut automaton = Self { states: vec![State::Accept], start: 0 };
        automaton.start = automaton.add(&node, 0)?;
        Ok(automaton)
    }

    fn push(&mut self, state: State) -> Result<usize> {
        if self.states.len() >= MAX_STATES {
            return Err(Error::IllegalArgument(format!(
                "Determinizing automaton would require more than {MAX_STATES} effort."
            )));
        }
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    /// Adds the states of `node`, which lead to `next`; returns where they begin.
    fn add(&mut self, node: &Node, next: usize) -> Result<usize> {
        match node {
            Node::Empty => Ok(next),
            Node::Characters(ranges, negated) => {
                self.push(State::Characters { ranges: ranges.clone(), negated: *negated, next })
            }
            Node::Sequence(nodes) => nodes.iter().rev().try_fold(next, |next, node| self.add(node, next)),
            Node::Either(nodes) => {
                let mut start = None;
                for node in nodes {
                    let this = self.add(node, next)?;
                    start = Some(match start {
                        None => this,
                        Some(other) => self.push(State::Split(other, this))?,
                    });
                }
                Ok(start.unwrap_or(next))
            }
            Node::Repeat(node, least, most) => {
                let mut at = next;
                match most {
                    None => {
                        let split = self.push(State::Jump(next))?;
                        let body = self.add(node, split)?;
                        self.states[split] = State::Split(body, next);
                        at = split;
                    }
                    Some(most) => {
                        for _ in *least..*most {
                            let body = self.add(node, at)?;
                            at = self.push(State::Split(body, next))?;
                        }
                    }
                }
                for _ in 0..*least {
                    at = self.add(node, at)?;
                }
                Ok(at)
            }
        }
    }

    /// The length in bytes of the longest match at the start of `text`.
    pub(crate) fn longest_match(&self, text: &str) -> Option<usize> {
        let mut current = Vec::new();
        let mut seen = vec![usize::MAX; self.states.len()];
        let mut longest = None;
        if self.follow(self.start, 0, &mut seen, &mut current) {
            longest = Some(0);
        }
        let mut next = Vec::new();
        for (step, (at, c)) in text.char_indices().enumerate() {
            next.clear();
            let mut accepted = false;
            for &state in &current {
                if let State::Characters { ranges, negated, next: to } = &self.states[state]
                    && ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
                {
                    accepted |= self.follow(*to, step + 1, &mut seen, &mut next);
                }
            }
            if accepted {
                longest = Some(at + c.len_utf8());
            }
            std::mem::swap(&mut current, &mut next);
            if current.is_empty() {
                break;
            }
        }
        longest
    }

    /// Adds the states that `from` leads to without a character; says whether one accepts.
    fn follow(&self, from: usize, step: usize, seen: &mut [usize], states: &mut Vec<usize>) -> bool {
        let mut open = vec![from];
        let mut accepts = false;
        while let Some(state) = open.pop() {
            if std::mem::replace(&mut seen[state], step) == step {
                continue;
            }
            match self.states[state] {
                State::Accept => accepts = true,
                State::Jump(to) => open.push(to),
                State::Split(one, other) => open.extend([one, other]),
                State::Characters { .. } => states.push(state),
            }
        }
        accepts
    }
}

impl Parser<'_> {
    fn invalid(&self, why: &str) -> Error {
        Error::IllegalArgument(format!("failed to parse pattern [{}]: {why}", self.pattern))
    }

    fn alternatives(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.invalid("groups are nested too deeply"));
        }
        let mut nodes = vec![self.sequence()?];
        while self.rest.next_if_eq(&'|').is_some() {
            nodes.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Either(nodes) })
    }

    fn sequence(&mut self) -> Result<Node> {
        let mut nodes = Vec::new();
        while self.rest.peek().is_some_and(|&c| c != '|' && c != ')') {
            let node = self.single()?;
            nodes.push(self.quantified(node)?);
        }
        Ok(Node::Sequence(nodes))
    }

    fn quantified(&mut self, mut node: Node) -> Result<Node> {
        loop {
            let (least, most) = match self.rest.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.rest.next();
                    let least = self.number()?.ok_or_else(|| self.invalid("integer expected"))?;
                    let most =
                        if self.rest.next_if_eq(&',').is_some() { self.number()? } else { Some(least) };
                    if self.rest.peek() != Some(&'}') {
                        return Err(self.invalid("expected '}'"));
                    }
                    if most.is_some_and(|most| most < least) {
                        return Err(self.invalid("invalid repetition range"));
                    }
                    (least, most)
                }
                _ => return Ok(node),
            };
            self.rest.next();
            node = Node::Repeat(Box::new(node), least, most);
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let mut digits = String::new();
        while let Some(digit) = self.rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) if number <= MAX_STATES => Ok(Some(number)),
            _ => Err(self.invalid("repetition is too large")),
        }
    }

    fn single(&mut self) -> Result<Node> {
        let c = self.rest.next().ok_or_else(|| self.invalid("end of expression"))?;
        Ok(match c {
            '.' => Node::Characters(Vec::new(), true),
            '(' => {
                let node = if self.rest.peek() == Some(&')') { Node::Empty } else { self.alternatives()? };
                if self.rest.next() != Some(')') {
                    return Err(self.invalid("expected ')'"));
                }
                node
            }
            '[' => self.class()?,
            '"' => {
                let quoted: Vec<char> = self.rest.by_ref().take_while(|&c| c != '"').collect();
                Node::Sequence(quoted.into_iter().map(character).collect())
            }
            '\\' => self.escaped()?,
            '#' => Node::Either(Vec::new()),
            '~' | '&' | '<' | '@' => return Err(self.invalid("optional operators are not supported")),
            '*' | '+' | '?' | '{' => return Err(self.invalid("nothing to repeat")),
            c => character(c),
        })
    }

    fn escaped(&mut self) -> Result<Node> {
        let c = self.rest.next().ok_or_else(|| self.invalid("end of expression"))?;
        Ok(match class_of(c) {
            Some((ranges, negated)) => Node::Characters(ranges, negated),
            None => character(c),
        })
    }

    fn class(&mut self) -> Result<Node> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut ranges = Vec::new();
        loop {
            let mut from = self.rest.next().ok_or_else(|| self.invalid("expected ']'"))?;
            if from == ']' && !ranges.is_empty() {
                break;
            }
            if from == '\\' {
                from = self.rest.next().ok_or_else(|| self.invalid("end of expression"))?;
                if let Some((more, outside)) = class_of(from) {
                    if outside {
                        return Err(self.invalid("a negated class within a class is not supported"));
                    }
                    ranges.extend(more);
                    continue;
                }
            }
            let mut to = from;
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
                self.rest.next();
                to = self.rest.next().ok_or_else(|| self.invalid("expected ']'"))?;
                if to == '\\' {
                    to = self.rest.next().ok_or_else(|| self.invalid("end of expression"))?;
                }
            }
            if from > to {
                return Err(self.invalid(&format!(
                    "invalid range: from ({}) cannot be > to ({})",
                    from as u32, to as u32
                )));
            }
            ranges.push((from, to));
        }
        Ok(Node::Characters(ranges, negated))
    }
}

fn character(c: char) -> Node {
    Node::Characters(vec![(c, c)], false)
}

/// `\d`, `\w`, `\s` and their opposites.
fn class_of(c: char) -> Option<(Vec<(char, char)>, bool)> {
    Some(match c {
        'd' | 'D' => (vec![('0', '9')], c == 'D'),
        'w' | 'W' => (vec![('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')], c == 'W'),
        's' | 'S' => (vec![('\t', '\n'), ('\r', '\r'), (' ', ' ')], c == 'S'),
        _ => return None,
    })
}
