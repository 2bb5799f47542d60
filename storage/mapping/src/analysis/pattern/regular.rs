//! Patterns that the `regex` crate can match, in linear time: those without look-around, back references and what is
//! possessive.
//!
//! Ends of lines and of words are look-around to the `regex` crate, as Java defines them. Of texts that have no line terminators, or
//! ASCII only, simpler conditions hold, so most texts are matched in linear time still.

use std::fmt::Write;

use regex_syntax::hir::ClassUnicode;

use super::class::LINE_TERMINATORS;
use super::program::width;
use super::syntax::{Assertion, Node, Repetition};

/// Longest expression, in bytes: classes are written as their ranges, of which the parser holds many times the bytes.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

/// Texts for which an expression is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Domain {
    /// Only those that are not empty and have no line terminators.
    single_line: bool,
    /// Only those of ASCII.
    ascii: bool,
}

impl Domain {
    /// Returns true if a text is one of them.
    pub(super) fn contains(self, text: &str) -> bool {
        (!self.ascii || text.is_ascii())
            && (!self.single_line || (!text.is_empty() && !text.contains(&LINE_TERMINATORS[..])))
    }
}

/// Writes an expression of the `regex` crate, or `None` where there is none.
pub(super) fn expression(node: &Node) -> Option<(String, Domain)> {
    let mut out = Writer { text: String::new(), domain: Domain::default() };
    out.node(node)?;
    Some((out.text, out.domain))
}

struct Writer {
    text: String,
    domain: Domain,
}

impl Writer {
    fn node(&mut self, node: &Node) -> Option<()> {
        match node {
            Node::Class(class) => self.class(class)?,
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node))?,
            Node::Alternate(nodes) => {
                self.text.push_str("(?:");
                for (nth, node) in nodes.iter().enumerate() {
                    if nth > 0 {
                        self.text.push('|');
                    }
                    self.node(node)?;
                }
                self.text.push(')');
            }
            Node::Repeat { kind: Repetition::Possessive, .. }
            | Node::Atomic(_)
            | Node::Look { .. }
            | Node::BackReference { .. } => return None,
            // An empty turn of a loop leaves other groups behind.
            Node::Repeat { node, max, .. } if *max != Some(1) && width(node).0 == 0 && has_groups(node) => {
                return None;
            }
            Node::Repeat { node, min, max, kind } => {
                self.text.push_str("(?:");
                self.node(node)?;
                self.text.push(')');
                let _ = match max {
                    Some(max) => write!(self.text, "{{{min},{max}}}"),
                    None => write!(self.text, "{{{min},}}"),
                };
                if *kind == Repetition::Reluctant {
                    self.text.push('?');
                }
            }
            Node::Group(_, node) => {
                self.text.push('(');
                self.node(node)?;
                self.text.push(')');
            }
            Node::Assertion(assertion) => self.assertion(*assertion)?,
        }
        Some(())
    }

    fn class(&mut self, class: &ClassUnicode) -> Option<()> {
        let single = match class.ranges() {
            [only] if only.start() == only.end() => Some(only.start()),
            _ => None,
        };
        if let Some(c) = single {
            self.text.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
            return Some(());
        }
        self.text.push('[');
        for range in class.ranges() {
            let _ = write!(
                self.text,
                "\\x{{{:x}}}-\\x{{{:x}}}",
                u32::from(range.start()),
                u32::from(range.end())
            );
        }
        if class.ranges().is_empty() {
            // No character is in it.
            self.text.push_str("^\\x{0}-\\x{10ffff}");
        }
        self.text.push(']');
        (self.text.len() <= MAX_EXPRESSION_BYTES).then_some(())
    }

    fn assertion(&mut self, assertion: Assertion) -> Option<()> {
        self.text.push_str(match assertion {
            Assertion::TextStart => r"\A",
            Assertion::TextEnd => r"\z",
            Assertion::LineStart { .. } => {
                self.domain.single_line = true;
                r"\A"
            }
            Assertion::FinalEnd { .. } | Assertion::LineEnd { .. } => {
                self.domain.single_line = true;
                r"\z"
            }
            Assertion::WordBoundary { negated, .. } => {
                self.domain.ascii = true;
                if negated { r"\B" } else { r"\b" }
            }
            Assertion::PreviousEnd => return None,
        });
        Some(())
    }
}

fn has_groups(node: &Node) -> bool {
    match node {
        Node::Group(..) => true,
        Node::Concat(nodes) | Node::Alternate(nodes) => nodes.iter().any(has_groups),
        Node::Repeat { node, .. } | Node::Atomic(node) | Node::Look { node, .. } => has_groups(node),
        Node::Class(_) | Node::BackReference { .. } | Node::Assertion(_) => false,
    }
}
