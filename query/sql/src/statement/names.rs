//! Texts of the user for the output columns of each SELECT, which the syntax tree prints differently.
//!
//! A statement may hold many SELECTs, whose items overlap; so the items of one are cut out when they are asked for.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::hints::Hints;
use super::source::Source;

/// The text of a statement, by its tokens.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    words: Vec<Word>,
    hints: Hints,
}

/// A token.
#[derive(Clone, Copy, Debug)]
struct Word {
    start: Location,
    /// Its bytes in the text.
    from: usize,
    to: usize,
    kind: Kind,
}

/// Kind of a token for the items of a SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Comma,
    Open,
    Close,
    /// `DISTINCT` or `ALL`.
    Quantifier,
    /// Clause behind the items.
    Clause,
    /// `;` or the end.
    End,
    Other,
}

impl Names {
    pub(super) fn new(source: &Source<'_>, tokens: &[TokenWithSpan]) -> Self {
        let solid = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
        let words = solid.map(|token| Word {
            start: token.span.start,
            from: source.offset(token.span.start),
            to: source.offset(token.span.end),
            kind: kind(&token.token),
        });
        Self { words: words.collect(), text: source.text().to_owned(), hints: Hints::new(tokens) }
    }

    /// Returns the hints of the statement.
    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Cuts out the items of the SELECT at a place.
    pub(crate) fn items(&self, select: Location) -> Vec<&str> {
        let after = self.words.partition_point(|word| word.start <= select);
        let mut items = Vec::new();
        let mut depth = 0_usize;
        // Where the item begins and ends.
        let mut item: Option<(usize, usize)> = None;
        let mut begun = false;
        let cut = |item: Option<(usize, usize)>| {
            item.and_then(|(from, to)| self.text.get(from..to.max(from))).unwrap_or_default()
        };
        for word in self.words.get(after..).unwrap_or_default() {
            match word.kind {
                Kind::Open => depth += 1,
                Kind::Close if depth > 0 => depth -= 1,
                Kind::Close | Kind::End => break,
                Kind::Comma if depth == 0 => {
                    items.push(cut(item.take()));
                    continue;
                }
                Kind::Quantifier if depth == 0 && !begun => continue,
                Kind::Clause if depth == 0 => break,
                _ => {}
            }
            begun = true;
            item = Some((item.map_or(word.from, |(from, _)| from), word.to));
        }
        items.push(cut(item));
        items
    }
}

fn kind(token: &Token) -> Kind {
    match token {
        Token::Comma => Kind::Comma,
        Token::LParen | Token::LBracket | Token::LBrace => Kind::Open,
        Token::RParen | Token::RBracket | Token::RBrace => Kind::Close,
        Token::SemiColon | Token::EOF => Kind::End,
        Token::Word(word) if word.quote_style.is_none() => match word.keyword {
            Keyword::DISTINCT | Keyword::ALL => Kind::Quantifier,
            Keyword::FROM
            | Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::QUALIFY
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::MINUS => Kind::Clause,
            _ => Kind::Other,
        },
        _ => Kind::Other,
    }
}
