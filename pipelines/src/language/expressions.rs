//! Conditions of branches as text. `and` and `nand` bind more tightly than `or` and `xor`; what binds
//! equally goes from left to right.

use millrace_ingest::FieldReference;
use serde_json::Value;

use super::cursor::is_name;
use super::{Parser, SyntaxRecovery};
use crate::condition::{Comparison, Condition, Operand, Pattern};

/// Most operands of one condition.
const MAX_OPERANDS: usize = 1_000;

impl Parser<'_> {
    /// Reads a condition.
    pub(super) fn condition(&mut self) -> Result<Condition, SyntaxRecovery> {
        self.deeper(|parser| {
            let mut count = 0;
            let mut whole = parser.conjunction(&mut count)?;
            loop {
                parser.cursor.skip_blank();
                let make = if parser.cursor.take_word("or") {
                    Condition::Or
                } else if parser.cursor.take_word("xor") {
                    Condition::Xor
                } else {
                    return Ok(whole);
                };
                parser.cursor.skip_blank();
                whole = make(Box::new(whole), Box::new(parser.conjunction(&mut count)?));
            }
        })
    }

    fn conjunction(&mut self, count: &mut usize) -> Result<Condition, SyntaxRecovery> {
        let mut whole = self.expression(count)?;
        loop {
            self.cursor.skip_blank();
            let make = if self.cursor.take_word("and") {
                Condition::And
            } else if self.cursor.take_word("nand") {
                Condition::Nand
            } else {
                return Ok(whole);
            };
            self.cursor.skip_blank();
            whole = make(Box::new(whole), Box::new(self.expression(count)?));
        }
    }

    fn expression(&mut self, count: &mut usize) -> Result<Condition, SyntaxRecovery> {
        *count += 1;
        if *count > MAX_OPERANDS {
            let offset = self.cursor.offset();
            self.fault(offset, format!("a condition may have at most {MAX_OPERANDS} operands"));
            return Err(SyntaxRecovery);
        }
        let open = self.cursor.offset();
        if self.cursor.take("(") {
            self.cursor.skip_blank();
            let inner = self.condition()?;
            self.cursor.skip_blank();
            if !self.cursor.take(")") {
                let found = self.cursor.describe();
                let at = self.cursor.location(open);
                let offset = self.cursor.offset();
                self.fault(offset, format!("expected `)` for the parenthesis at {at}, found {found}"));
                return Err(SyntaxRecovery);
            }
            return Ok(inner);
        }
        if self.cursor.peek() == Some('!') && !self.cursor.rest().starts_with("!=") {
            self.cursor.next();
            self.cursor.skip_blank();
            // `!` belongs to what it stands before alone: `![a] == 1` is refused by Logstash too.
            if self.cursor.peek() == Some('(') || self.cursor.peek() == Some('!') {
                let inner = self.deeper(|parser| parser.expression(count))?;
                return Ok(Condition::Not(Box::new(inner)));
            }
            let operand = self.operand()?;
            self.cursor.skip_blank();
            if self.comparison().is_some() || self.cursor.rest().starts_with("=~") {
                self.fault(open, "`!` in front of a comparison needs parentheses: !(… == …)");
                return Err(SyntaxRecovery);
            }
            return Ok(Condition::Not(Box::new(Condition::Truthy(operand))));
        }
        let left = self.operand()?;
        self.cursor.skip_blank();
        let operator = self.cursor.offset();
        if let Some(comparison) = self.comparison() {
            self.cursor.take(comparison.sign());
            self.cursor.skip_blank();
            return Ok(Condition::Compare(left, comparison, self.operand()?));
        }
        if self.cursor.take("=~") || self.cursor.take("!~") {
            let negated = self.cursor.since(operator).starts_with('!');
            self.cursor.skip_blank();
            let matches = Condition::Matches(left, self.pattern()?);
            return Ok(if negated { Condition::Not(Box::new(matches)) } else { matches });
        }
        if self.cursor.take_word("in") {
            self.cursor.skip_blank();
            return Ok(Condition::In(left, self.operand()?));
        }
        if self.cursor.take_word("not") {
            self.cursor.skip_blank();
            if !self.cursor.take_word("in") {
                return Err(self.expected("`in` behind `not`"));
            }
            self.cursor.skip_blank();
            return Ok(Condition::Not(Box::new(Condition::In(left, self.operand()?))));
        }
        if self.cursor.peek() == Some('=') {
            return Err(self.expected("an operator; equality is written `==`, a match `=~`"));
        }
        Ok(Condition::Truthy(left))
    }

    fn comparison(&self) -> Option<Comparison> {
        let rest = self.cursor.rest();
        Comparison::ALL.into_iter().find(|comparison| rest.starts_with(comparison.sign()))
    }

    /// A text, number, field or array.
    fn operand(&mut self) -> Result<Operand, SyntaxRecovery> {
        let start = self.cursor.offset();
        match self.cursor.peek() {
            Some('"' | '\'') => Ok(Operand::Value(Value::String(self.text()?))),
            Some(c) if c.is_ascii_digit() || c == '-' => Ok(Operand::Value(Value::Number(self.number()?))),
            Some('[') => self.field_or_array(),
            Some(c) if is_name(c) => {
                let word = self.cursor.take_while(|c| is_name(c) || c == '.').to_owned();
                let advice = match word.as_str() {
                    "not" => "a negation is written `!`".to_owned(),
                    "true" | "false" => format!(
                        "there are no bare words in conditions: a boolean field is tested by itself, `if [field]` or `if ![field]`, a text as \"{word}\""
                    ),
                    _ => format!("a field is written [{word}], a text \"{word}\""),
                };
                self.fault(
                    start,
                    format!("expected a field, text, number or array, found `{word}`; {advice}"),
                );
                Err(SyntaxRecovery)
            }
            _ => Err(self.expected("a field such as [name], a text, a number or an array")),
        }
    }

    fn field_or_array(&mut self) -> Result<Operand, SyntaxRecovery> {
        let start = self.cursor.offset();
        while self.cursor.take("[") {
            let name = self.cursor.take_while(|c| !"[],\"'\r\n".contains(c));
            if name.is_empty() || !self.cursor.take("]") {
                self.cursor.back_to(start);
                return self.constant_array().map(Operand::Value);
            }
        }
        let text = self.cursor.since(start);
        FieldReference::parse(text).map(Operand::Field).map_err(|message| {
            self.fault(start, message);
            SyntaxRecovery
        })
    }

    fn constant_array(&mut self) -> Result<Value, SyntaxRecovery> {
        self.deeper(|parser| {
            let start = parser.cursor.offset();
            parser.cursor.take("[");
            let mut elements = Vec::new();
            loop {
                parser.cursor.skip_blank();
                if parser.cursor.take("]") {
                    return Ok(Value::Array(elements));
                }
                parser.check_length(start, elements.len())?;
                elements.push(match parser.cursor.peek() {
                    Some('"' | '\'') => Value::String(parser.text()?),
                    Some('[') => parser.constant_array()?,
                    Some(c) if c.is_ascii_digit() || c == '-' => Value::Number(parser.number()?),
                    Some(c) if is_name(c) => Value::String(parser.cursor.take_while(is_name).to_owned()),
                    _ => return Err(parser.expected("a text, a number or `]` in the array")),
                });
                parser.cursor.skip_blank();
                if !parser.cursor.take(",") && parser.cursor.peek() != Some(']') {
                    return Err(parser.expected("`,` or `]` in the array"));
                }
            }
        })
    }

    /// A regular expression between slashes, or a text that is one.
    fn pattern(&mut self) -> Result<Pattern, SyntaxRecovery> {
        let start = self.cursor.offset();
        let text = match self.cursor.peek() {
            Some('"' | '\'') => self.text()?,
            Some('/') => self.between_slashes()?,
            _ => return Err(self.expected("a regular expression: /…/ or a text")),
        };
        Pattern::new(&text).map_err(|message| {
            self.fault(start, message);
            SyntaxRecovery
        })
    }

    fn between_slashes(&mut self) -> Result<String, SyntaxRecovery> {
        let start = self.cursor.offset();
        self.cursor.take("/");
        loop {
            match self.cursor.next() {
                Some('\\') => _ = self.cursor.next(),
                Some('/') => break,
                Some(c) if c != '\n' => {}
                _ => {
                    self.fault(start, "the regular expression that begins here has no closing /");
                    return Err(SyntaxRecovery);
                }
            }
        }
        let whole = self.cursor.since(start);
        let inner = whole.get(1..whole.len() - 1).unwrap_or_default().to_owned();
        Ok(self.replaced(start, &inner))
    }
}
