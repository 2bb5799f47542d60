//! The dialect of Elasticsearch: its tokens, and its statements about metadata.
//!
//! Double quotes enclose identifiers, a backslash is a letter, `SCORE()` is the relevance. Tokens become those of OpenSearch's dialect,
//! which the parser knows. `SHOW` and `DESCRIBE` have a grammar of their own, read by [`show`].

use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::{plain, solid};
use crate::dialect::OpenSearchDialect;
use crate::error::{Result, SqlError};

/// A statement about metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShowStatement {
    /// `SHOW TABLES`: indices and aliases, of a pattern where there is one.
    Tables(Option<String>),
    /// `SHOW COLUMNS` or `DESCRIBE`: the fields of an index expression.
    Columns(String),
    /// `SHOW FUNCTIONS`: of a pattern where there is one.
    Functions(Option<String>),
    /// `SHOW CATALOGS`: the one that there is.
    Catalogs,
    /// `SHOW SCHEMAS`: none.
    Schemas,
}

/// The dialect as the tokenizer knows it.
#[derive(Debug, Default)]
struct ElasticsearchDialect(OpenSearchDialect);

impl Dialect for ElasticsearchDialect {
    fn is_identifier_start(&self, letter: char) -> bool {
        self.0.is_identifier_start(letter)
    }

    fn is_identifier_part(&self, letter: char) -> bool {
        self.0.is_identifier_part(letter)
    }

    fn is_delimited_identifier_start(&self, letter: char) -> bool {
        matches!(letter, '"' | '`')
    }
}

/// Reads the tokens of a statement, as those of OpenSearch's dialect.
pub(super) fn tokens(text: &str) -> Result<Vec<TokenWithSpan>> {
    let dialect = ElasticsearchDialect::default();
    let mut tokens = Vec::new();
    Tokenizer::new(&dialect, text)
        .with_unescape(false)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| SqlError::Syntax(error.to_string()))?;
    for token in &mut tokens {
        if let Token::Word(word) = &token.token
            && word.quote_style == Some('"')
        {
            token.token = Token::make_word(&word.value.replace("\"\"", "\""), Some('`'));
        }
    }
    Ok(with_scores(tokens))
}

/// Writes the call `SCORE()` as the name of the relevance.
fn with_scores(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let is_score = matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("score"));
        if !is_score || rest.peek().map(|next| &next.token) != Some(&Token::LParen) {
            out.push(token);
            continue;
        }
        let open = rest.next();
        if rest.peek().map(|next| &next.token) == Some(&Token::RParen) {
            rest.next();
            out.push(TokenWithSpan { token: Token::make_word("_score", Some('`')), span: token.span });
        } else {
            out.push(token);
            out.extend(open);
        }
    }
    out
}

/// Reads a statement about metadata; `None` for another one.
pub(super) fn show(tokens: &[TokenWithSpan]) -> Result<Option<ShowStatement>> {
    let mut words = Words { tokens, at: 0 };
    let is_show = words.take("show");
    if !is_show && !words.take("describe") && !words.take("desc") {
        return Ok(None);
    }
    if !is_show {
        return words.columns().map(Some);
    }
    let statement = if words.take("tables") {
        words.skip_frozen()?;
        ShowStatement::Tables(words.pattern()?)
    } else if words.take("columns") {
        words.skip_frozen()?;
        if !words.take("from") && !words.take("in") {
            return Err(usage("SHOW COLUMNS FROM <index>"));
        }
        words.columns()?
    } else if words.take("functions") {
        ShowStatement::Functions(words.pattern()?)
    } else if words.take("catalogs") {
        ShowStatement::Catalogs
    } else if words.take("schemas") {
        ShowStatement::Schemas
    } else {
        return Err(usage("SHOW TABLES, SHOW COLUMNS, SHOW FUNCTIONS, SHOW CATALOGS or SHOW SCHEMAS"));
    };
    match words.rest().is_empty() {
        true => Ok(Some(statement)),
        false => Err(SqlError::Syntax(format!("[{}] is unexpected", words.rest()))),
    }
}

fn usage(form: &str) -> SqlError {
    SqlError::Syntax(format!("expected {form}"))
}

/// The words of a statement, in their order.
struct Words<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl Words<'_> {
    fn peek(&self) -> Option<&Token> {
        let token = self.tokens.get(solid(self.tokens, self.at)).map(|token| &token.token);
        token.filter(|token| !matches!(token, Token::EOF | Token::SemiColon))
    }

    /// Takes a word of the language, where it is the next.
    fn take(&mut self, name: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name));
        if is_next {
            self.at = solid(self.tokens, self.at) + 1;
        }
        is_next
    }

    /// Passes over words that include frozen indices, of which there are none, and refuses other catalogs.
    fn skip_frozen(&mut self) -> Result<()> {
        if self.take("catalog") {
            return Err(SqlError::Unsupported("there is one catalog; leave CATALOG out".to_owned()));
        }
        if self.take("include") && !self.take("frozen") {
            return Err(usage("INCLUDE FROZEN"));
        }
        Ok(())
    }

    /// Takes all words up to the end, joined.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        while let Some(token) = self.peek() {
            text.push_str(&plain(token));
            self.at = solid(self.tokens, self.at) + 1;
        }
        text
    }

    /// Takes a pattern, with or without LIKE.
    fn pattern(&mut self) -> Result<Option<String>> {
        let is_like = self.take("like");
        let Some(token) = self.peek() else {
            return if is_like { Err(usage("LIKE <pattern>")) } else { Ok(None) };
        };
        if !matches!(token, Token::SingleQuotedString(_)) {
            return Ok(Some(self.rest()));
        }
        let pattern = plain(token).replace("''", "'");
        self.at = solid(self.tokens, self.at) + 1;
        if self.take("escape") {
            return Err(SqlError::Unsupported("ESCAPE is not supported in SHOW".to_owned()));
        }
        Ok(Some(pattern))
    }

    /// Takes the table of SHOW COLUMNS and DESCRIBE.
    fn columns(&mut self) -> Result<ShowStatement> {
        self.skip_frozen()?;
        let is_like = self.take("like");
        let table = self.rest();
        if table.is_empty() {
            return Err(usage("DESCRIBE <index>"));
        }
        Ok(ShowStatement::Columns(if is_like { table.replace('%', "*") } else { table }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Statement, counted_in};
    use super::*;
    use crate::request::SqlDialect;

    fn parse(text: &str) -> Result<Statement> {
        counted_in(text, SqlDialect::Elasticsearch).map(|(statement, _)| statement)
    }

    #[test]
    fn double_quotes_enclose_names() {
        for (text, expected) in [
            (
                r#"SELECT "a b", t."c" AS "d" FROM "my-2" AS t WHERE "e" = 'x''y\'"#,
                r"SELECT `a b`, t.`c` AS `d` FROM `my-2` AS t WHERE `e` = 'x''y\'",
            ),
            (r#"SELECT SCORE(), "score" FROM "logs-*";"#, "SELECT `_score`, `score` FROM `logs-*`"),
            ("SELECT COUNT(*) FROM a", "SELECT COUNT(*) FROM `a`"),
            ("SELECT 1", "SELECT 1"),
        ] {
            let Statement::Query(query, _) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(query.to_string(), expected);
        }
    }

    #[test]
    fn statements_about_metadata() {
        use ShowStatement::{Catalogs, Columns, Functions, Schemas, Tables};
        let some = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("SHOW TABLES", Tables(None)),
            ("show tables like 'logs%';", Tables(some("logs%"))),
            (r#"SHOW TABLES "logs-*""#, Tables(some("logs-*"))),
            ("SHOW TABLES INCLUDE FROZEN LIKE 'it''s'", Tables(some("it's"))),
            (r#"SHOW COLUMNS FROM "my-logs""#, Columns("my-logs".to_owned())),
            ("SHOW COLUMNS IN logs-2024.01*", Columns("logs-2024.01*".to_owned())),
            (r#"DESCRIBE "my-logs""#, Columns("my-logs".to_owned())),
            ("DESC LIKE 'logs%'", Columns("logs*".to_owned())),
            ("SHOW FUNCTIONS", Functions(None)),
            ("SHOW FUNCTIONS LIKE 'a__'", Functions(some("a__"))),
            ("SHOW CATALOGS", Catalogs),
            ("SHOW SCHEMAS", Schemas),
        ] {
            let Statement::Show(statement) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(statement, expected, "{text}");
        }
        for text in [
            "SHOW",
            "SHOW me",
            "DESCRIBE",
            "SHOW COLUMNS",
            "SHOW TABLES LIKE",
            "SHOW TABLES LIKE 'a' 'b'",
            "SHOW TABLES LIKE 'a' ESCAPE 'b'",
            "SHOW TABLES CATALOG 'b'",
            "SHOW CATALOGS x",
            "SHOW TABLES LIKE ?",
            "DESCRIBE ?",
            "DELETE FROM a",
            "DROP TABLE a",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
