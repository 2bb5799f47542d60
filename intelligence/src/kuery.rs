//! Kibana's query language, as far as saved searches of logs use it: `field: value`, `"phrases"`, `*` within values, `field: *`, lists of
//! values in parentheses, ranges, `and`, `or`, `not`, parentheses, and values without a field.
//!
//! Queries on nested objects (`field: { … }`) and wildcards in names of fields are refused. What it makes are the clauses that Kibana makes.

use serde_json::{Value, json};

/// Longest text, in bytes.
const MAX_BYTES: usize = 16_384;
/// Deepest nesting.
const MAX_DEPTH: usize = 50;

/// A part of the text.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// Text as it stands, with what a backslash took away from its meaning; whether it has a `*` that means something.
    Word {
        text: String,
        pattern: bool,
    },
    Quoted(String),
    Colon,
    /// `<`, `<=`, `>`, `>=` by the names of ranges.
    Range(&'static str),
    Open,
    Close,
    And,
    Or,
    Not,
}

/// Makes a query of a text.
///
/// # Errors
/// What is wrong with it, or is not supported, as the end of a sentence.
pub(crate) fn query(text: &str) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("is longer than {MAX_BYTES} bytes"));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, depth: 0 };
    let query = parser.any(&mut Parser::term)?;
    match parser.tokens.first() {
        None => Ok(query),
        Some(rest) => Err(format!("goes on with {}, where nothing is expected", shown(rest))),
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word { text, .. } | Token::Quoted(text) => {
            format!("[{}]", text.chars().take(64).collect::<String>())
        }
        Token::Colon => "[:]".to_owned(),
        Token::Range(_) => "a comparison".to_owned(),
        Token::Open => "[(]".to_owned(),
        Token::Close => "[)]".to_owned(),
        Token::And => "[and]".to_owned(),
        Token::Or => "[or]".to_owned(),
        Token::Not => "[not]".to_owned(),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        let or_equal = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| rest.next_if_eq(&'=').is_some();
        tokens.push(match next {
            space if space.is_whitespace() => continue,
            ':' => Token::Colon,
            '(' => Token::Open,
            ')' => Token::Close,
            '<' => Token::Range(if or_equal(&mut rest) { "lte" } else { "lt" }),
            '>' => Token::Range(if or_equal(&mut rest) { "gte" } else { "gt" }),
            '{' | '}' => return Err("asks for nested objects with braces, which is not supported".to_owned()),
            '"' => {
                let mut quoted = String::new();
                loop {
                    match rest.next() {
                        None => return Err("has a quote that does not end".to_owned()),
                        Some('"') => break Token::Quoted(quoted),
                        Some('\\') => quoted.extend(rest.next()),
                        Some(other) => quoted.push(other),
                    }
                }
            }
            first => {
                let (mut word, mut pattern, mut plain) = (String::new(), false, true);
                let mut now = Some(first);
                while let Some(one) = now {
                    match one {
                        '\\' => {
                            plain = false;
                            word.extend(rest.next());
                        }
                        one => {
                            pattern |= one == '*';
                            word.push(one);
                        }
                    }
                    now = rest.next_if(|next| !next.is_whitespace() && !":()<>\"{}".contains(*next));
                }
                match word.to_ascii_lowercase().as_str() {
                    "and" if plain => Token::And,
                    "or" if plain => Token::Or,
                    "not" if plain => Token::Not,
                    _ => Token::Word { text: word, pattern },
                }
            }
        });
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [Token],
    depth: usize,
}

/// What stands between `and` and `or`.
type Leaf<'a, 'b> = &'b mut dyn FnMut(&mut Parser<'a>) -> Result<Value, String>;

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
    fn any(&mut self, leaf: Leaf<'a, '_>) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        let mut terms = vec![self.all(leaf)?];
        while self.next_is(&Token::Or) {
            terms.push(self.all(leaf)?);
        }
        self.depth -= 1;
        Ok(match terms.len() {
            1 => terms.remove(0),
            _ => json!({"bool": {"should": terms, "minimum_should_match": 1}}),
        })
    }

    /// Terms joined by `and`.
    fn all(&mut self, leaf: Leaf<'a, '_>) -> Result<Value, String> {
        let mut terms = vec![self.not(leaf)?];
        while self.next_is(&Token::And) {
            terms.push(self.not(leaf)?);
        }
        Ok(match terms.len() {
            1 => terms.remove(0),
            _ => json!({"bool": {"filter": terms}}),
        })
    }

    fn not(&mut self, leaf: Leaf<'a, '_>) -> Result<Value, String> {
        let mut negated = false;
        while self.next_is(&Token::Not) {
            negated = !negated;
        }
        let term = match self.next_is(&Token::Open) {
            true => {
                let within = self.any(leaf)?;
                self.close()?;
                within
            }
            false => leaf(self)?,
        };
        Ok(if negated { json!({"bool": {"must_not": [term]}}) } else { term })
    }

    fn close(&mut self) -> Result<(), String> {
        match self.next_is(&Token::Close) {
            true => Ok(()),
            false => Err("has a parenthesis that is not closed".to_owned()),
        }
    }

    /// A field with what it is asked for, or a value of any field.
    fn term(&mut self) -> Result<Value, String> {
        let first = self.take().ok_or_else(|| "ends where something is expected".to_owned())?;
        let (name, pattern) = match first {
            Token::Word { text, pattern } => (text.as_str(), *pattern),
            Token::Quoted(text) => (text.as_str(), false),
            other => return Err(format!("has {} where a field or a value is expected", shown(other))),
        };
        let is_field = matches!(self.tokens.first(), Some(Token::Colon | Token::Range(_)));
        if is_field && pattern {
            return Err(format!("names fields by a pattern, [{name}], which is not supported"));
        }
        match self.tokens.first() {
            Some(Token::Colon) => {
                self.take();
                if self.next_is(&Token::Open) {
                    let within = self.any(&mut |parser: &mut Parser<'a>| parser.value(name))?;
                    self.close()?;
                    return Ok(within);
                }
                self.value(name)
            }
            Some(Token::Range(of)) => {
                self.take();
                match self.take() {
                    Some(Token::Word { text, pattern: false } | Token::Quoted(text)) => {
                        Ok(json!({"range": {name: {*of: text}}}))
                    }
                    _ => Err(format!("compares [{name}] with no value")),
                }
            }
            _ => Ok(anywhere(first)),
        }
    }

    /// What a field is asked for: several words are one value.
    fn value(&mut self, field: &str) -> Result<Value, String> {
        let first = self.take().ok_or_else(|| format!("ends where a value of [{field}] is expected"))?;
        match first {
            Token::Quoted(text) => Ok(json!({"match_phrase": {field: text}})),
            Token::Word { text, pattern } => {
                let (mut text, mut pattern) = (text.clone(), *pattern);
                while let Some(Token::Word { text: more, pattern: also }) = self.tokens.first() {
                    // The next one may be a field.
                    if matches!(self.tokens.get(1), Some(Token::Colon | Token::Range(_))) {
                        break;
                    }
                    text.push(' ');
                    text.push_str(more);
                    pattern |= also;
                    self.take();
                }
                Ok(match (text.as_str(), pattern) {
                    ("*", true) => json!({"exists": {"field": field}}),
                    (_, true) => json!({"query_string": {"fields": [field], "query": escaped(&text)}}),
                    (_, false) => json!({"match": {field: text}}),
                })
            }
            other => Err(format!("has {} where a value of [{field}] is expected", shown(other))),
        }
    }
}

/// A value of any field.
fn anywhere(token: &Token) -> Value {
    match token {
        Token::Word { text, pattern: true } => json!({"query_string": {"query": escaped(text)}}),
        Token::Word { text, pattern: false } => {
            json!({"multi_match": {"type": "best_fields", "query": text, "lenient": true}})
        }
        Token::Quoted(text) => json!({"multi_match": {"type": "phrase", "query": text, "lenient": true}}),
        _ => json!({"match_none": {}}),
    }
}

/// Takes from all but `*` what it means in a query string.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for one in text.chars() {
        // These cannot be escaped there.
        if matches!(one, '<' | '>') {
            continue;
        }
        if "+-=&|!(){}[]^\"~?:\\/ ".contains(one) {
            escaped.push('\\');
        }
        escaped.push(one);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_those_of_kibana() {
        let any = |terms: Value| json!({"bool": {"should": terms, "minimum_should_match": 1}});
        for (text, expected) in [
            ("status: 500", json!({"match": {"status": "500"}})),
            ("message: \"access denied\"", json!({"match_phrase": {"message": "access denied"}})),
            ("message: access denied", json!({"match": {"message": "access denied"}})),
            ("host: *", json!({"exists": {"field": "host"}})),
            ("host: web-*", json!({"query_string": {"fields": ["host"], "query": "web\\-*"}})),
            ("bytes >= 100", json!({"range": {"bytes": {"gte": "100"}}})),
            ("bytes<5", json!({"range": {"bytes": {"lt": "5"}}})),
            ("error", json!({"multi_match": {"type": "best_fields", "query": "error", "lenient": true}})),
            ("not a: b", json!({"bool": {"must_not": [{"match": {"a": "b"}}]}})),
            (
                "a: 1 and b: 2 or c: 3",
                any(
                    json!([{"bool": {"filter": [{"match": {"a": "1"}}, {"match": {"b": "2"}}]}}, {"match": {"c": "3"}}]),
                ),
            ),
            ("a: (1 or \"2 3\")", any(json!([{"match": {"a": "1"}}, {"match_phrase": {"a": "2 3"}}]))),
            (
                "a: (x and not y)",
                json!({"bool": {"filter": [{"match": {"a": "x"}}, {"bool": {"must_not": [{"match": {"a": "y"}}]}}]}}),
            ),
            (
                "(a: 1 OR b: 2) AND c: 3",
                json!({"bool": {"filter": [
                    any(json!([{"match": {"a": "1"}}, {"match": {"b": "2"}}])), {"match": {"c": "3"}},
                ]}}),
            ),
            ("a: \\*", json!({"match": {"a": "*"}})),
            ("a: \\and", json!({"match": {"a": "and"}})),
            ("path: C\\:\\\\temp", json!({"match": {"path": "C:\\temp"}})),
        ] {
            // An escaped star is no pattern.
            assert_eq!(query(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_supported_or_no_query_is_refused() {
        for (text, expected) in [
            ("user: { name: x }", "nested objects"),
            ("us*: x", "by a pattern"),
            ("a: (1", "not closed"),
            ("(a: 1", "not closed"),
            ("a: 1)", "nothing is expected"),
            ("a:", "value of [a]"),
            ("a: and", "value of [a]"),
            ("and", "field or a value"),
            ("a > ", "no value"),
            ("a: \"x", "does not end"),
            ("a: 1 b: 2", "nothing is expected"),
            (&"(".repeat(10_000), "deep"),
            (&"not ".repeat(4000), "ends where"),
            (&"x".repeat(20_000), "longer"),
        ] {
            let refused = query(text).unwrap_err();
            assert!(refused.contains(expected), "{text:.40}: {refused}");
        }
    }
}
