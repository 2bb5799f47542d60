//! `SELECT … LIMIT 1 UNION SELECT …`: OpenSearch's first engine accepts the LIMIT of an operand without the parentheses that the
//! parser needs around it.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::source::solid;

/// Puts parentheses around each operand of a set operation that ends with a LIMIT.
pub(super) fn parenthesize_limited_operands(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut ends = Vec::new();
    // The SELECT that an operand begins with, by depth of parentheses.
    let mut open: Vec<Option<usize>> = vec![None];
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => open.push(None),
            Token::RParen if open.len() > 1 => {
                open.pop();
            }
            Token::Word(word) if word.quote_style.is_none() => match (word.keyword, open.last_mut()) {
                (Keyword::SELECT, Some(start)) => *start = Some(at),
                (Keyword::LIMIT, Some(start)) => {
                    if let Some(end) = limit_end(&tokens, at) {
                        ends.extend(start.take().map(|start| (start, end)));
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
    if ends.is_empty() {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 2 * ends.len());
    let mut starts = ends.clone();
    starts.sort_unstable();
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    for (at, token) in tokens.into_iter().enumerate() {
        let span = token.span;
        if ends.next_if(|(_, end)| *end == at).is_some() {
            out.push(TokenWithSpan { token: Token::RParen, span });
        }
        if starts.next_if(|(start, _)| *start == at).is_some() {
            out.push(TokenWithSpan { token: Token::LParen, span });
        }
        out.push(token);
    }
    out
}

/// Finds the set operation behind `LIMIT n`, `LIMIT n, m` or `LIMIT n OFFSET m`.
fn limit_end(tokens: &[TokenWithSpan], limit: usize) -> Option<usize> {
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let is_number = |at: usize| matches!(token(at), Some(Token::Number(..) | Token::Placeholder(_)));
    let number = solid(tokens, limit + 1);
    let mut next = solid(tokens, number + 1);
    if !is_number(number) {
        return None;
    }
    let is_offset = match token(next) {
        Some(Token::Comma) => true,
        Some(Token::Word(word)) => word.keyword == Keyword::OFFSET,
        _ => false,
    };
    if is_offset {
        let offset = solid(tokens, next + 1);
        if !is_number(offset) {
            return None;
        }
        next = solid(tokens, offset + 1);
    }
    let operators = [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT, Keyword::MINUS];
    matches!(token(next), Some(Token::Word(word)) if operators.contains(&word.keyword)).then_some(next)
}
