//! From the text of a statement to its syntax tree.
//!
//! The tokens are worked over before DataFusion's parser sees them: an index expression behind FROM or
//! JOIN becomes one quoted name (`logs-2024.01*, other`), as does such a name where it qualifies a field;
//! strings get the value that OpenSearch gives them (a doubled quote is one, a backslash stays). What
//! the user wrote for each output column is cut out of the text here, because the tree prints another.

use std::sync::Arc;

use sqlparser::ast::{Delete, FromTable, Query, SetExpr, Statement as Ast, TableFactor};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use self::depth::{MAX_NESTING, check_tokens, check_tree, too_deep};
use self::operand_limits::parenthesize_limited_operands;
use self::source::{Source, solid};
use self::time_buckets::replace_time_buckets;
use super::dialect::OpenSearchDialect;
use super::error::{Result, SqlError};
use super::parameters::Parameters;
use super::relational::RelationalStatement;
use super::request::{SqlDialect, SqlRequest};

mod depth;
mod elasticsearch;
mod hints;
mod names;
mod operand_limits;
mod source;
mod time_buckets;

pub(crate) use self::depth::check_query;
pub(crate) use self::elasticsearch::ShowStatement;
pub(crate) use self::names::Names;
pub(crate) use self::source::{MAX_SOURCES, too_many_sources};

/// Longest statement, in bytes.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// Query of the documents that are to be deleted.
const FOUND_BY_DELETE: &str = "SELECT _index, _id, _routing, _seq_no, _primary_term FROM t";
/// A parsed statement.
#[derive(Debug)]
pub(crate) enum Statement {
    Query(Box<Query>, Names),
    /// `EXPLAIN [ANALYZE] query`.
    Explain {
        query: Box<Query>,
        names: Names,
        /// True for `EXPLAIN ANALYZE`, which runs the query.
        analyze: bool,
    },
    /// `DELETE FROM index [WHERE condition]`, as the query that finds what is deleted.
    Delete(Box<Query>),
    /// `SHOW TABLES LIKE pattern`.
    ShowTables(String),
    /// `DESCRIBE TABLES LIKE pattern [COLUMNS LIKE pattern]`.
    DescribeTables(String, Option<String>),
    /// A statement about metadata in the dialect of Elasticsearch.
    Show(ShowStatement),
    /// A statement of another language.
    Relational(Arc<dyn RelationalStatement>),
}

/// Parses one statement.
pub(crate) fn parse(text: &str) -> Result<Statement> {
    counted(text).map(|(statement, _)| statement)
}

/// Parses the statement of a request in its dialect.
pub(crate) fn parse_request(request: &SqlRequest) -> Result<Statement> {
    if let Some(statement) = &request.statement {
        return Ok(Statement::Relational(Arc::clone(statement)));
    }
    with_parameters(counted_in(&request.query, request.dialect)?, &request.parameters)
}

/// Parses one statement that has a placeholder for each parameter.
pub(crate) fn parse_with(text: &str, parameters: &Parameters) -> Result<Statement> {
    with_parameters(counted(text)?, parameters)
}

fn with_parameters(counted: (Statement, usize), parameters: &Parameters) -> Result<Statement> {
    let (statement, placeholders) = counted;
    match parameters {
        Parameters::Given(values) if values.len() != placeholders => {
            Err(Parameters::wrong_count(placeholders, values.len()))
        }
        _ => Ok(statement),
    }
}

/// Parses one statement and counts its placeholders.
pub(crate) fn counted(text: &str) -> Result<(Statement, usize)> {
    counted_in(text, SqlDialect::OpenSearch)
}

/// Parses one statement of a dialect and counts its placeholders.
fn counted_in(text: &str, dialect: SqlDialect) -> Result<(Statement, usize)> {
    if text.len() > MAX_BYTES {
        return Err(SqlError::TooLarge(format!(
            "the statement has {} bytes, more than the {MAX_BYTES} that are allowed",
            text.len()
        )));
    }
    let tokens = match dialect {
        SqlDialect::OpenSearch => tokens(text)?,
        SqlDialect::Elasticsearch => elasticsearch::tokens(text)?,
    };
    check_tokens(&tokens)?;
    let source = Source::new(text);
    let tokens = source.merged(tokens)?;
    let names = Names::new(&source, &tokens);
    let (mut tokens, placeholders) = unescaped(tokens)?;
    let explain = take_explain(&mut tokens);
    while matches!(last_solid(&tokens), Some(Token::SemiColon)) {
        let at = tokens.iter().rposition(|token| token.token == Token::SemiColon);
        at.map(|at| tokens.remove(at));
    }
    let metadata = match dialect {
        SqlDialect::OpenSearch => metadata(&tokens)?,
        SqlDialect::Elasticsearch => elasticsearch::show(&tokens)?.map(Statement::Show),
    };
    if let Some(metadata) = metadata {
        if placeholders > 0 {
            return Err(SqlError::Unsupported(
                "the placeholder [?] has no value in SHOW and DESCRIBE; write the name itself".to_owned(),
            ));
        }
        return Ok((metadata, placeholders));
    }
    if !is_query(&tokens) {
        return Err(other_statement());
    }
    without_star(&mut tokens);
    let tokens = parenthesize_limited_operands(tokens);
    let parsed = OpenSearchDialect::new(tokens.len());
    let syntax = |error: ParserError| match error {
        ParserError::RecursionLimitExceeded if parsed.is_exhausted() => SqlError::TooLarge(
            "the statement can be read in too many ways; quote words of the language that are names"
                .to_owned(),
        ),
        ParserError::RecursionLimitExceeded => too_deep(),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => SqlError::Syntax(text),
    };
    let mut parser =
        Parser::new(&parsed).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens);
    let mut statement = parser.parse_statement().map_err(syntax)?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(SqlError::Syntax(format!("[{}] is unexpected{}", next.token, next.span.start)));
    }
    check_tree(&statement)?;
    if replace_time_buckets(&mut statement, dialect)? {
        check_tree(&statement)?;
    }
    match statement {
        Ast::Query(query) => match explain {
            None => Ok((Statement::Query(query, names), placeholders)),
            Some(analyze) => Ok((Statement::Explain { query, names, analyze }, placeholders)),
        },
        _ if explain.is_some() => Err(SqlError::Unsupported("only queries can be explained".to_owned())),
        Ast::Delete(_) if dialect == SqlDialect::Elasticsearch => Err(SqlError::Unsupported(
            "DELETE is no statement of this dialect; send it to [_plugins/_sql]".to_owned(),
        )),
        Ast::Delete(delete) => deletion(delete).map(|statement| (statement, placeholders)),
        _ => Err(other_statement()),
    }
}

/// Takes `EXPLAIN [ANALYZE]` out of a statement; returns whether it analyzes, `None` where the statement has it not.
fn take_explain(tokens: &mut Vec<TokenWithSpan>) -> Option<bool> {
    let mut take = |keyword: Keyword| {
        let first = solid(tokens, 0);
        let is_it = matches!(
            tokens.get(first).map(|token| &token.token),
            Some(Token::Word(word)) if word.keyword == keyword && word.quote_style.is_none()
        );
        if is_it {
            tokens.drain(..=first);
        }
        is_it
    };
    take(Keyword::EXPLAIN).then(|| take(Keyword::ANALYZE))
}

/// Reads the tokens of a statement.
fn tokens(text: &str) -> Result<Vec<TokenWithSpan>> {
    let dialect = OpenSearchDialect::default();
    let mut tokens = Vec::new();
    Tokenizer::new(&dialect, text)
        .with_unescape(false)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| SqlError::Syntax(error.to_string()))?;
    Ok(tokens)
}

/// Returns whether a statement begins as one does that is supported: the parser knows many more, and how deep these can be is not
/// known.
fn is_query(tokens: &[TokenWithSpan]) -> bool {
    match tokens.get(solid(tokens, 0)).map(|token| &token.token) {
        Some(Token::Word(word)) => matches!(
            word.keyword,
            Keyword::SELECT | Keyword::DELETE | Keyword::WITH | Keyword::VALUES | Keyword::VALUE
        ),
        Some(Token::LParen) => true,
        _ => false,
    }
}

fn other_statement() -> SqlError {
    SqlError::Syntax(
        "only SELECT, DELETE, SHOW TABLES and DESCRIBE TABLES statements are supported".to_owned(),
    )
}

/// Makes the query that finds what a DELETE is about.
fn deletion(delete: Delete) -> Result<Statement> {
    let plain = delete.tables.is_empty()
        && delete.using.is_none()
        && delete.returning.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none();
    let FromTable::WithFromKeyword(from) = delete.from else {
        return Err(SqlError::Syntax("expected DELETE FROM <index> [WHERE <condition>]".to_owned()));
    };
    let one = matches!(from.as_slice(), [table] if table.joins.is_empty()
        && matches!(table.relation, TableFactor::Table { args: None, .. }));
    if !plain || !one {
        return Err(SqlError::Unsupported(
            "DELETE with more than one FROM and one WHERE is not supported".to_owned(),
        ));
    }
    let Statement::Query(mut query, _) = parse(FOUND_BY_DELETE)? else {
        return Err(SqlError::Syntax("expected DELETE FROM <index> [WHERE <condition>]".to_owned()));
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = from;
        select.selection = delete.selection;
    }
    Ok(Statement::Delete(query))
}

/// Takes the `*` out of `DELETE * FROM`, which OpenSearch accepts.
fn without_star(tokens: &mut Vec<TokenWithSpan>) {
    let first = solid(tokens, 0);
    let second = solid(tokens, first + 1);
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let deletes = matches!(token(first), Some(Token::Word(word)) if word.keyword == Keyword::DELETE);
    if deletes && token(second) == Some(&Token::Mul) {
        tokens.remove(second);
    }
}

fn last_solid(tokens: &[TokenWithSpan]) -> Option<&Token> {
    tokens
        .iter()
        .rev()
        .map(|token| &token.token)
        .find(|token| !matches!(token, Token::Whitespace(_) | Token::EOF))
}

/// Reads the statements about metadata, whose grammar is not the parser's.
fn metadata(tokens: &[TokenWithSpan]) -> Result<Option<Statement>> {
    let mut words = tokens
        .iter()
        .map(|token| &token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_) | Token::EOF));
    let is = |token: Option<&Token>, name: &str| match token {
        Some(Token::Word(word)) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let first = words.next();
    let (show, describe) = (is(first, "show"), is(first, "describe") || is(first, "desc"));
    if !show && !describe {
        return Ok(None);
    }
    let usage = || {
        SqlError::Syntax(match show {
            true => "expected SHOW TABLES LIKE <pattern>".to_owned(),
            false => "expected DESCRIBE TABLES LIKE <pattern> [COLUMNS LIKE <pattern>]".to_owned(),
        })
    };
    if !is(words.next(), "tables") || !is(words.next(), "like") {
        return Err(usage());
    }
    let mut table = String::new();
    let mut columns = None;
    while let Some(token) = words.next() {
        if describe && !table.is_empty() && is(Some(token), "columns") {
            if !is(words.next(), "like") {
                return Err(usage());
            }
            let pattern: String = words.by_ref().map(plain).collect();
            columns = Some(pattern).filter(|pattern| !pattern.is_empty());
            if columns.is_none() {
                return Err(usage());
            }
            break;
        }
        table.push_str(&plain(token));
    }
    if table.is_empty() || words.next().is_some() {
        return Err(usage());
    }
    Ok(Some(match show {
        true => Statement::ShowTables(table),
        false => Statement::DescribeTables(table, columns),
    }))
}

/// The text that a token stands for.
fn plain(token: &Token) -> String {
    match token {
        Token::Word(word) => word.value.clone(),
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Gives strings the value that they stand for, numbers placeholders and counts them, and writes two forms that the parser
/// does not have as ones that it has: `{ts '…'}` as a typed string, `[a 2]` as `[a ^ 2]`.
fn unescaped(tokens: Vec<TokenWithSpan>) -> Result<(Vec<TokenWithSpan>, usize)> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let (mut placeholders, mut brackets) = (0, 0usize);
    let mut braces = false;
    let mut named = false;
    for TokenWithSpan { token, span } in tokens {
        let token = match token {
            Token::SingleQuotedString(text) => Token::SingleQuotedString(text.replace("''", "'")),
            Token::DoubleQuotedString(text) => Token::DoubleQuotedString(text.replace("\"\"", "\"")),
            Token::Placeholder(text) if text == "?" => {
                placeholders += 1;
                Token::Placeholder(format!("?{}", placeholders - 1))
            }
            Token::Placeholder(text) => {
                return Err(SqlError::Syntax(format!("[{text}] is no placeholder, only [?] is one")));
            }
            Token::LBracket => {
                brackets += 1;
                Token::LBracket
            }
            Token::RBracket => {
                brackets = brackets.saturating_sub(1);
                Token::RBracket
            }
            Token::LBrace => {
                braces = true;
                continue;
            }
            Token::RBrace if braces => {
                braces = false;
                continue;
            }
            Token::Word(word) if braces && word.quote_style.is_none() => {
                let name = match word.value.to_ascii_lowercase().as_str() {
                    "d" => "DATE".to_owned(),
                    "t" => "TIME".to_owned(),
                    "ts" => "TIMESTAMP".to_owned(),
                    _ => word.value,
                };
                Token::make_word(&name, None)
            }
            other => other,
        };
        if brackets > 0 && named && matches!(token, Token::Number(..)) {
            out.push(TokenWithSpan { token: Token::Caret, span });
        }
        if !matches!(token, Token::Whitespace(_)) {
            named =
                matches!(token, Token::Word(_) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_));
        }
        out.push(TokenWithSpan { token, span });
    }
    Ok((out, placeholders))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        match parse(text).unwrap() {
            Statement::Query(query, _) => query.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn index_expressions_are_one_name() {
        for (text, expected) in [
            ("SELECT a FROM logs-2024.01*", "SELECT a FROM `logs-2024.01*`"),
            ("SELECT a FROM x, y WHERE b = 1", "SELECT a FROM `x,y` WHERE b = 1"),
            ("SELECT my-2.a FROM my-2", "SELECT `my-2`.a FROM `my-2`"),
            ("SELECT my-x.a FROM my-x", "SELECT `my-x`.a FROM `my-x`"),
            ("SELECT e.a FROM x AS e, e.b AS p", "SELECT e.a FROM `x` AS e, e.b AS p"),
            ("SELECT a FROM `x`;", "SELECT a FROM `x`"),
            ("SELECT EXTRACT(DAY FROM \"x\") FROM y", "SELECT EXTRACT(DAY FROM \"x\") FROM `y`"),
            ("SELECT 5 - 3 FROM (SELECT a FROM b-c) AS d", "SELECT 5 - 3 FROM (SELECT a FROM `b-c`) AS d"),
        ] {
            assert_eq!(printed(text), expected);
        }
    }

    #[test]
    fn items_are_as_the_user_wrote_them() {
        let Statement::Query(query, names) =
            parse("SELECT DISTINCT  max( age )  AS m, `b`, f(x, 'a,b') FROM t").unwrap()
        else {
            panic!("not a query")
        };
        let select = query.body.as_select().unwrap().select_token.0.span.start;
        assert_eq!(names.items(select), ["max( age )  AS m", "`b`", "f(x, 'a,b')"]);
    }

    #[test]
    fn forms_that_the_parser_does_not_have() {
        assert_eq!(printed("SELECT {ts '2020-01-01 00:00:00'}"), "SELECT TIMESTAMP '2020-01-01 00:00:00'");
        for (text, expected) in [
            ("SELECT a LIMIT 1 UNION ALL SELECT b LIMIT 2", "(SELECT a LIMIT 1) UNION ALL SELECT b LIMIT 2"),
            (
                "SELECT a IN (SELECT b LIMIT 1, 2 MINUS SELECT 1) LIMIT 3 OFFSET 4 UNION SELECT c",
                "(SELECT a IN ((SELECT b LIMIT 1, 2) MINUS SELECT 1) LIMIT 3 OFFSET 4) UNION SELECT c",
            ),
        ] {
            assert_eq!(printed(text), expected);
        }
        assert_eq!(
            printed("SELECT a WHERE f([\"x\" 2.5, y], ?, ?)"),
            "SELECT a WHERE f([\"x\" ^ 2.5, y], ?0, ?1)"
        );
    }

    #[test]
    fn hostile_statements_are_refused() {
        let deep = format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500));
        let wide = format!("SELECT 1{}", " + 1".repeat(5_000));
        let long = format!("SELECT '{}'", "x".repeat(MAX_BYTES));
        for text in [deep.as_str(), &wide, &long, "SELECT", "", "DROP TABLE a", "SELECT 1 FROM", "SELECT 'a"]
        {
            assert!(parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
    }

    /// Tests the bound on texts that the parser reads twice, and within that twice again: they would keep it for hours.
    #[test]
    fn what_is_read_again_and_again_is_bounded() {
        let columns = vec!["*"; 50_000].join(",");
        let names = vec!["a"; 3_000].join(".");
        let strings = vec!["'a'"; 3_000].join(",");
        for text in [
            format!("{}{columns}", "SELECT * FROM ((((SELECT ".repeat(9)),
            format!("{}{columns}", "SELECT * FROM a JOIN ((((SELECT ".repeat(9)),
            format!("{}{columns}", "SELECT * FROM a AS x, a.b AS y, ( (SELECT ".repeat(20)),
            format!("{}{columns}", "SELECT 1 FROM a WHERE 1 IN ((SELECT ".repeat(12)),
            format!("{}{columns}", "SELECT 1 FROM a WHERE 1 IN (SELECT ".repeat(12)),
            format!("{}{columns}", "SELECT (SELECT ".repeat(12)),
            format!("DELETE FROM {}a", "((((".repeat(20)),
            format!("SELECT {}{names} x y", "CASE + ".repeat(40)),
            format!("SELECT {}CAST(a AS ENUM({strings})) x y", "CASE + ".repeat(40)),
            format!("SELECT {}CAST(a AS ENUM({strings} 5", "CASE + ".repeat(40)),
            format!("SELECT {}{names} x y", "POSITION(".repeat(40)),
            format!("SELECT {}{names} x y", "1 IN ((VALUES (".repeat(15)),
        ] {
            assert!(parse(&text).is_err(), "{}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn deletions_are_queries_of_what_they_delete() {
        for text in ["DELETE FROM my-index WHERE a = 1", "delete * from my-index where a = 1;"] {
            let Statement::Delete(query) = parse(text).unwrap() else { panic!("{text}") };
            let found = "SELECT _index, _id, _routing, _seq_no, _primary_term FROM `my-index` WHERE a = 1";
            assert_eq!(query.to_string(), found);
        }
        for text in ["DELETE a", "DELETE FROM a USING b", "DELETE FROM a LIMIT 3", "DELETE FROM a, b AS c"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_statements() {
        assert_eq!(printed("SHOW TABLES LIKE acc%"), r#"ShowTables("acc%")"#);
        assert_eq!(
            printed(r#"DESCRIBE TABLES LIKE "accounts" COLUMNS LIKE "%name""#),
            r#"DescribeTables("accounts", Some("%name"))"#
        );
        assert!(parse("SHOW me").is_err());
        for text in ["SHOW TABLES LIKE ?", "DESCRIBE TABLES LIKE a COLUMNS LIKE ?"] {
            assert!(parse(text).unwrap_err().to_string().contains("[?]"), "{text}");
        }
    }
}
