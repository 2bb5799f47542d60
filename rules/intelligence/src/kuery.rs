//! Kibana's query language: `field: value`, `"phrases"`, `*` within values and names, `field: *`, lists of values in parentheses, ranges,
//! `and`, `or`, `not`, parentheses, values without a field, and `path: { … }` for what one element of a nested object has.
//!
//! [`query`] makes the clauses that Kibana makes. Kibana knows the fields of an index pattern, and asks each one that a pattern of names
//! fits. Here the clause has the pattern, which the mapping of each index expands when it is searched; like any other clause it reaches
//! elements of nested objects within braces alone.
//!
//! - [`token`]: the text as names, values and what stands between them
//! - [`clause`]: what is made of them

mod clause;
#[cfg(test)]
mod tests;
mod token;

use serde_json::Value;

use self::clause::{Clause, Field, anywhere, too_deep};
use self::token::{Literal, Token, short, tokens};

/// Longest text, in bytes.
const MAX_BYTES: usize = 16_384;
/// Deepest nesting, of parentheses and braces and of the clauses that are made.
const MAX_DEPTH: usize = 50;
/// Most conditions: about as many leaves as a search takes.
const MAX_CONDITIONS: usize = 1_024;
/// Bytes of the names in all conditions, at most: within braces each has the path before it.
const MAX_NAME_BYTES: usize = 128 << 10;

/// Makes a query of a text.
///
/// # Errors
/// What is wrong with it, or is not supported, as the end of a sentence.
pub(crate) fn query(text: &str) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("is longer than {MAX_BYTES} bytes"));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, depth: 0, path: None, conditions: 0, name_bytes: 0 };
    let query = parser.any(&mut Parser::term)?;
    match parser.tokens.first() {
        None => Ok(query.into_query()),
        Some(rest) => Err(format!("goes on with {rest}, where nothing is expected")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    depth: usize,
    /// Path of the nested object whose elements are asked.
    path: Option<String>,
    conditions: usize,
    name_bytes: usize,
}

/// Parser of the operands of `and` and `or`.
type Leaf<'a, 'b> = &'b mut dyn FnMut(&mut Parser<'a>) -> Result<Clause, String>;

impl<'a> Parser<'a> {
    fn take(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn next_is(&mut self, token: &Token) -> bool {
        let is = self.tokens.first() == Some(token);
        if is {
            self.take();
        }
        is
    }

    /// Terms joined by `or`.
    fn any(&mut self, leaf: Leaf<'a, '_>) -> Result<Clause, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut terms = vec![self.all(leaf)?];
        while self.next_is(&Token::Or) {
            terms.push(self.all(leaf)?);
        }
        self.depth -= 1;
        Clause::any(terms)
    }

    /// Terms joined by `and`.
    fn all(&mut self, leaf: Leaf<'a, '_>) -> Result<Clause, String> {
        let mut terms = vec![self.not(leaf)?];
        while self.next_is(&Token::And) {
            terms.push(self.not(leaf)?);
        }
        Clause::all(terms)
    }

    fn not(&mut self, leaf: Leaf<'a, '_>) -> Result<Clause, String> {
        let mut negated = false;
        while self.next_is(&Token::Not) {
            negated = !negated;
        }
        let term = match self.next_is(&Token::Open) {
            true => self.within(leaf)?,
            false => leaf(self)?,
        };
        if negated { term.negated() } else { Ok(term) }
    }

    /// Terms behind a parenthesis, up to the one that closes it.
    fn within(&mut self, leaf: Leaf<'a, '_>) -> Result<Clause, String> {
        let within = self.any(leaf)?;
        self.close(&Token::Close, "parenthesis")?;
        Ok(within)
    }

    fn close(&mut self, with: &Token, opened: &str) -> Result<(), String> {
        match self.take() {
            Some(token) if token == with => Ok(()),
            Some(other) => Err(format!("goes on with {other}, where a {opened} is still open")),
            None => Err(format!("has a {opened} that is not closed")),
        }
    }

    /// A field with what it is asked for, elements of a nested object, or a value of any field.
    fn term(&mut self) -> Result<Clause, String> {
        let first = match self.take() {
            None => return Err("ends where something is expected".to_owned()),
            Some(Token::Literal(first)) => first,
            Some(other) => return Err(format!("has {other} where a field or a value is expected")),
        };
        match self.tokens.first() {
            Some(Token::Colon | Token::Range(_)) if first.is_empty() => {
                Err("names a field by nothing between quotes".to_owned())
            }
            Some(Token::Colon) => {
                self.take();
                if self.next_is(&Token::OpenNested) {
                    return self.elements(first);
                }
                let field = Field::new(first, self.path.as_deref())?;
                match self.next_is(&Token::Open) {
                    true => self.within(&mut |parser: &mut Parser<'a>| parser.value(&field)),
                    false => self.value(&field),
                }
            }
            Some(Token::Range(of)) => {
                self.take();
                let field = Field::new(first, self.path.as_deref())?;
                self.compared(&field, of)
            }
            _ => self.anywhere(first),
        }
    }

    /// Parses the conditions on one element of a nested object, behind the brace, up to the one that closes it.
    fn elements(&mut self, name: &Literal) -> Result<Clause, String> {
        if name.is_pattern() {
            let name = short(&name.to_string());
            return Err(format!("names nested objects by a pattern, [{name}], where a path is expected"));
        }
        let path = match &self.path {
            Some(around) => format!("{around}.{name}"),
            None => name.to_string(),
        };
        self.count_name(&path)?;
        let around = self.path.replace(path.clone());
        let within = self.any(&mut Parser::term)?;
        self.path = around;
        self.close(&Token::CloseNested, "brace")?;
        within.of_elements(&path)
    }

    /// Parses the values that a field is compared with.
    fn value(&mut self, field: &Field) -> Result<Clause, String> {
        match self.take() {
            None => Err(format!("ends where a value of {field} is expected")),
            Some(Token::Literal(value)) => self.condition(field.name(), field.is(value)?),
            Some(other) => Err(format!("has {other} where a value of {field} is expected")),
        }
    }

    /// Parses the bound of a comparison of a field.
    fn compared(&mut self, field: &Field, of: &str) -> Result<Clause, String> {
        match self.take() {
            Some(Token::Literal(value)) if value.is_pattern() => {
                Err(format!("compares {field} with a pattern, [{}]", short(&value.to_string())))
            }
            Some(Token::Literal(value)) => {
                self.condition(field.name(), field.compared(of, &value.to_string())?)
            }
            _ => Err(format!("compares {field} with no value")),
        }
    }

    /// A value of any field.
    fn anywhere(&mut self, value: &Literal) -> Result<Clause, String> {
        if let Some(path) = &self.path {
            // Kibana asks for it in a field of the name `null`, and finds nothing.
            let (value, path) = (short(&value.to_string()), short(path));
            return Err(format!(
                "asks elements of [{path}] for the value [{value}] without a field: name one, or [*] for all of them"
            ));
        }
        self.condition("", anywhere(value))
    }

    /// Counts a condition on fields of a name.
    fn condition(&mut self, name: &str, query: Value) -> Result<Clause, String> {
        self.conditions += 1;
        if self.conditions > MAX_CONDITIONS {
            return Err(format!("has more than {MAX_CONDITIONS} conditions"));
        }
        self.count_name(name)?;
        Ok(Clause::leaf(query))
    }

    fn count_name(&mut self, name: &str) -> Result<(), String> {
        self.name_bytes += name.len();
        match self.name_bytes > MAX_NAME_BYTES {
            true => Err(format!(
                "has names of fields that take more than {MAX_NAME_BYTES} bytes, each with the path before it"
            )),
            false => Ok(()),
        }
    }
}
