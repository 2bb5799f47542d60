//! The text of a statement by places, and the index expressions that are read from it before it is parsed.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use crate::error::{Result, SqlError};

/// Most sources of a statement.
pub(crate) const MAX_SOURCES: usize = 64;

/// Refuses a statement of more sources.
pub(crate) fn too_many_sources() -> SqlError {
    SqlError::TooLarge(format!("the statement has more than {MAX_SOURCES} sources"))
}

/// A statement's text, by places.
pub(super) struct Source<'a> {
    text: &'a str,
    /// Byte offset of each character, by line.
    lines: Vec<Vec<usize>>,
}

/// The clause that a parenthesis, or the statement, is in.
#[derive(Default)]
struct OpenParenthesis {
    /// True for the arguments of a function that FROM separates.
    arguments: bool,
    /// True for a list of sources.
    sources: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut lines = vec![Vec::new()];
        for (at, letter) in text.char_indices() {
            if let Some(line) = lines.last_mut() {
                line.push(at);
            }
            if letter == '\n' {
                lines.push(Vec::new());
            }
        }
        Self { text, lines }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The byte at which a place is.
    pub(super) fn offset(&self, place: Location) -> usize {
        let line = usize::try_from(place.line).ok().and_then(|line| self.lines.get(line.checked_sub(1)?));
        let column = usize::try_from(place.column).ok().and_then(|column| column.checked_sub(1));
        line.zip(column).and_then(|(line, column)| line.get(column)).copied().unwrap_or(self.text.len())
    }

    fn cut(&self, from: Location, to: Location) -> &'a str {
        let (from, to) = (self.offset(from), self.offset(to));
        self.text.get(from..to.max(from)).unwrap_or_default()
    }

    /// Makes one quoted name of each index expression, and of each such name before the dot of a field.
    pub(super) fn merged(&self, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
        let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
        let mut odd: Vec<String> = Vec::new();
        let mut at = 0;
        let mut open = vec![OpenParenthesis::default()];
        let mut word = Keyword::NoKeyword;
        while let Some(token) = tokens.get(at) {
            out.push(token.clone());
            at += 1;
            match &token.token {
                Token::Whitespace(_) => continue,
                Token::LParen => {
                    let arguments = matches!(word, Keyword::EXTRACT | Keyword::SUBSTRING | Keyword::TRIM);
                    open.push(OpenParenthesis { arguments, sources: false });
                }
                Token::RParen if open.len() > 1 => {
                    open.pop();
                }
                _ => {}
            }
            word = match &token.token {
                Token::Word(word) if word.quote_style.is_none() => word.keyword,
                _ => Keyword::NoKeyword,
            };
            let Some(within) = open.last_mut().filter(|within| !within.arguments) else { continue };
            match word {
                Keyword::FROM => within.sources = true,
                Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::WINDOW
                | Keyword::ORDER
                | Keyword::SELECT => {
                    within.sources = false;
                }
                _ => {}
            }
            // A comma behind an alias begins another source.
            let listed = token.token == Token::Comma && within.sources;
            if !listed && !matches!(word, Keyword::FROM | Keyword::JOIN) {
                continue;
            }
            let start = solid(&tokens, at);
            let Some((name, span, next)) = self.index_expression(&tokens, start) else { continue };
            if listed && !name.contains(['-', '*', ':', '<', '{']) {
                continue;
            }
            out.extend(tokens.get(at..start).unwrap_or_default().iter().cloned());
            if (name.contains(['-', '*', ',']) || name.starts_with('.')) && !odd.contains(&name) {
                odd.push(name.clone());
            }
            if odd.len() > MAX_SOURCES {
                return Err(too_many_sources());
            }
            out.push(TokenWithSpan { token: Token::make_word(&name, Some('`')), span });
            at = next;
        }
        Ok(if odd.is_empty() { out } else { self.qualified(out, &odd) })
    }

    /// Reads an index expression at a token: its name, its place, and the token behind it.
    fn index_expression(&self, tokens: &[TokenWithSpan], start: usize) -> Option<(String, Span, usize)> {
        let mut names: Vec<String> = Vec::new();
        let mut at = start;
        let mut end = start;
        loop {
            let mut name = String::new();
            while let Some(token) = tokens.get(at) {
                match &token.token {
                    Token::Word(word) => name.push_str(&word.value),
                    Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) if name.is_empty() => {
                        name.push_str(text);
                    }
                    Token::Minus
                    | Token::Mul
                    | Token::Period
                    | Token::Number(..)
                    | Token::Div
                    | Token::Colon
                    | Token::Lt
                    | Token::Gt
                    | Token::LBrace
                    | Token::RBrace => {
                        name.push_str(self.cut(token.span.start, token.span.end));
                    }
                    _ => break,
                }
                at += 1;
            }
            if name.is_empty() {
                break;
            }
            names.push(name);
            end = at;
            let comma = solid(tokens, at);
            if !matches!(tokens.get(comma).map(|token| &token.token), Some(Token::Comma)) {
                break;
            }
            // `a, b` are two indices; `a, a.b AS c` and `a, (SELECT …)` are two sources.
            let after = solid(tokens, comma + 1);
            let Some(follows) = tokens.get(after) else { break };
            let unnested = |at: usize| {
                let mut at = at;
                while tokens.get(at).is_some_and(|token| {
                    matches!(
                        token.token,
                        Token::Word(_) | Token::Minus | Token::Mul | Token::Period | Token::Number(..)
                    )
                }) {
                    at += 1;
                }
                match tokens.get(solid(tokens, at)).map(|token| &token.token) {
                    Some(Token::Word(word)) => !ends_source(word.keyword),
                    _ => false,
                }
            };
            if follows.token == Token::LParen || unnested(after) {
                break;
            }
            at = after;
        }
        let (first, last) = (tokens.get(start)?, tokens.get(end.checked_sub(1)?)?);
        (!names.is_empty()).then(|| (names.join(","), Span::new(first.span.start, last.span.end), end))
    }

    /// Makes one quoted name of `index-name` before a dot.
    fn qualified(&self, tokens: Vec<TokenWithSpan>, names: &[String]) -> Vec<TokenWithSpan> {
        let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let from = self.offset(token.span.start);
            let rest = self.text.get(from..).unwrap_or_default();
            let starts = matches!(token.token, Token::Word(_) | Token::Period);
            let name = names.iter().find(|name| {
                starts && rest.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
            match name {
                None => {
                    out.push(token.clone());
                    at += 1;
                }
                Some(name) => {
                    let end = from + name.len();
                    let mut last = token.span.end;
                    while let Some(part) = tokens.get(at).filter(|part| self.offset(part.span.start) < end) {
                        last = part.span.end;
                        at += 1;
                    }
                    let span = Span::new(token.span.start, last);
                    out.push(TokenWithSpan { token: Token::make_word(name, Some('`')), span });
                    // `x-2.a` is read as the number `2.` before `a`.
                    if self.offset(last) > end {
                        out.push(TokenWithSpan { token: Token::Period, span });
                    }
                }
            }
        }
        out
    }
}

/// The next token that is no white space.
pub(super) fn solid(tokens: &[TokenWithSpan], from: usize) -> usize {
    let blank = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    from + tokens.get(from..).unwrap_or_default().iter().take_while(blank).count()
}

/// Returns whether a word behind a table's name is no alias of it.
fn ends_source(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::QUALIFY
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::JOIN
            | Keyword::INNER
            | Keyword::LEFT
            | Keyword::RIGHT
            | Keyword::FULL
            | Keyword::NATURAL
            | Keyword::CROSS
            | Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::MINUS
            | Keyword::USING
            | Keyword::ON
    )
}
