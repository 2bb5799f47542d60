//! The statement: its parameters become literals, and it is wrapped for ordered reading.

use super::address::Kind;

/// Name of the parameter that holds how far the last run came.
pub(super) const LAST_VALUE: &str = "sql_last_value";

/// A value in a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    /// A number, as it is written.
    Number(String),
    Text(String),
    /// `true` or `false`.
    Boolean(bool),
    /// Several, in parentheses.
    List(Vec<Literal>),
}

impl Literal {
    /// The literal in the language of a database.
    pub(super) fn write(&self, kind: Kind, out: &mut String) {
        match self {
            Self::Number(number) => {
                // Two of them begin a comment.
                if number.starts_with('-') && out.ends_with('-') {
                    out.push(' ');
                }
                out.push_str(number);
            }
            Self::Boolean(value) => out.push_str(if *value { "TRUE" } else { "FALSE" }),
            Self::Text(text) => {
                // A server may read backslashes as escapes in plain texts, too (`standard_conforming_strings`).
                let is_escaped = kind == Kind::Postgres && text.contains('\\');
                out.push_str(if is_escaped { " E'" } else { "'" });
                for c in text.chars() {
                    match c {
                        '\'' => out.push_str("''"),
                        '\\' if is_escaped || kind == Kind::MySql => out.push_str("\\\\"),
                        c => out.push(c),
                    }
                }
                out.push('\'');
            }
            Self::List(list) => {
                out.push('(');
                for (at, element) in list.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    element.write(kind, out);
                }
                out.push(')');
            }
        }
    }
}

/// A statement cut at its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    kind: Kind,
    parts: Vec<StatementItem>,
}

#[derive(Clone, Debug, PartialEq)]
enum StatementItem {
    Text(String),
    /// `:name`.
    Named(String),
    /// `?`, counted from 0.
    Positional(usize),
}

impl Statement {
    /// Cuts a statement. Texts, quoted names and comments have no parameters in them; `?` is one where
    /// `positional`.
    pub(super) fn parse(kind: Kind, sql: &str, positional: bool) -> Self {
        let sql = sql.trim_end().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
        let mut parts = Vec::new();
        let (mut start, mut at, mut count) = (0, 0, 0);
        while let Some(rest) = sql.get(at..).filter(|rest| !rest.is_empty()) {
            let before = sql.get(..at).and_then(|before| before.chars().next_back());
            if let Some(length) = quoted(kind, rest, before) {
                at += length;
            } else if positional && rest.starts_with('?') {
                push_text(&mut parts, sql, start, at);
                parts.push(StatementItem::Positional(count));
                count += 1;
                at += 1;
                start = at;
            } else if let Some(name) = name(rest).filter(|_| before.is_none_or(|c| c != ':' && !is_word(c))) {
                push_text(&mut parts, sql, start, at);
                parts.push(StatementItem::Named(name.to_owned()));
                at += 1 + name.len();
                start = at;
            } else if rest.starts_with(is_word) {
                // A word as a whole, so that `a:b` is not taken for a parameter.
                at += rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        push_text(&mut parts, sql, start, sql.len());
        Self { kind, parts }
    }

    /// Returns the number of `?` in it.
    pub(super) fn positions(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, StatementItem::Positional(_))).count()
    }

    /// Returns whether a parameter occurs.
    pub(super) fn names(&self, wanted: &str) -> bool {
        self.parts.iter().any(|part| matches!(part, StatementItem::Named(name) if name == wanted))
    }

    /// Returns whether it reads rows, so that it can be wrapped.
    pub(super) fn is_query(&self) -> bool {
        let text = self.fill(&|_| None, &[]);
        let mut rest = text.as_str();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
            match quoted(self.kind, rest, None) {
                Some(length) if !rest.starts_with(['\'', '"', '`', '$']) => {
                    rest = rest.get(length..).unwrap_or("")
                }
                _ => break,
            }
        }
        let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
        ["select", "with", "values", "table"].iter().any(|query| word.eq_ignore_ascii_case(query))
    }

    /// The statement with literals in place of its parameters. A name without a value stays as it is.
    pub(super) fn fill(&self, named: &dyn Fn(&str) -> Option<Literal>, positions: &[Literal]) -> String {
        let mut sql = String::new();
        for part in &self.parts {
            match part {
                StatementItem::Text(text) => sql.push_str(text),
                StatementItem::Named(name) => match named(name) {
                    Some(literal) => literal.write(self.kind, &mut sql),
                    None => {
                        sql.push(':');
                        sql.push_str(name);
                    }
                },
                StatementItem::Positional(at) => match positions.get(*at) {
                    Some(literal) => literal.write(self.kind, &mut sql),
                    None => sql.push('?'),
                },
            }
        }
        sql
    }
}

/// Rows of a statement in the order of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderedStatement<'a> {
    pub(super) kind: Kind,
    /// The statement, filled in.
    pub(super) sql: &'a str,
    /// Name of the column as the database spells it.
    pub(super) column: &'a str,
    /// Selected values.
    pub(super) values: Values<'a>,
    /// Greatest number of rows.
    pub(super) limit: usize,
}

/// Values of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    All,
    From(&'a Literal),
    Above(&'a Literal),
}

impl OrderedStatement<'_> {
    /// The wrapped statement: rows from a value on, in its order. A comment at the end of the inner
    /// statement ends with its line.
    pub(super) fn sql(&self) -> String {
        let mut column = String::from("millrace_rows.");
        quote_name(self.kind, self.column, &mut column);
        let mut sql = format!("SELECT * FROM (\n{}\n) AS millrace_rows WHERE {column} ", self.sql);
        let (sign, value) = match self.values {
            Values::All => ("IS NOT NULL", None),
            Values::From(value) => (">= ", Some(value)),
            Values::Above(value) => ("> ", Some(value)),
        };
        sql.push_str(sign);
        if let Some(value) = value {
            value.write(self.kind, &mut sql);
        }
        sql.push_str(&format!(" ORDER BY {column} LIMIT {}", self.limit));
        sql
    }
}

fn quote_name(kind: Kind, name: &str, out: &mut String) {
    let quote = if kind == Kind::MySql { '`' } else { '"' };
    out.push(quote);
    for c in name.chars() {
        out.push(c);
        if c == quote {
            out.push(c);
        }
    }
    out.push(quote);
}

fn push_text(parts: &mut Vec<StatementItem>, sql: &str, start: usize, end: usize) {
    if let Some(text) = sql.get(start..end).filter(|text| !text.is_empty()) {
        parts.push(StatementItem::Text(text.to_owned()));
    }
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Name of the parameter that a text begins with.
fn name(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix(':')?;
    if !rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    rest.get(..rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
}

/// Length of the quoted text or comment that a text begins with; one without an end goes on to the end.
pub(super) fn quoted(kind: Kind, rest: &str, before: Option<char>) -> Option<usize> {
    let whole = rest.len();
    let until = |from: usize, end: &str| {
        rest.get(from..).and_then(|inner| inner.find(end)).map_or(whole, |at| from + at + end.len())
    };
    match rest.chars().next()? {
        quote @ ('\'' | '"' | '`') => {
            // PostgreSQL has backslashes in E'…' only.
            let escapes = kind == Kind::MySql && quote != '`'
                || kind == Kind::Postgres && quote == '\'' && matches!(before, Some('e' | 'E'));
            let mut chars = rest.char_indices().skip(1);
            while let Some((at, c)) = chars.next() {
                if c == '\\' && escapes {
                    chars.next();
                } else if c == quote {
                    return Some(at + 1);
                }
            }
            Some(whole)
        }
        '-' if rest.starts_with("--") => Some(until(2, "\n")),
        '#' if kind == Kind::MySql => Some(until(1, "\n")),
        '/' if rest.starts_with("/*") => Some(until(2, "*/")),
        '$' if kind == Kind::Postgres && !before.is_some_and(is_word) => {
            let length = rest.get(1..)?.find('$')? + 2;
            let tag = rest.get(..length)?;
            let inner = tag.trim_matches('$');
            if !inner.chars().all(is_word) || inner.starts_with(|c: char| c.is_ascii_digit()) {
                return None;
            }
            Some(until(length, tag))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(kind: Kind, sql: &str) -> String {
        let last = |name: &str| (name == LAST_VALUE).then(|| Literal::Number("7".to_owned()));
        Statement::parse(kind, sql, false).fill(&last, &[])
    }

    #[test]
    fn parameters_are_found_outside_of_quotes_and_comments() {
        for (sql, wanted) in [
            ("SELECT * FROM t WHERE id > :sql_last_value", "SELECT * FROM t WHERE id > 7"),
            ("SELECT * FROM t WHERE id>:sql_last_value;\n", "SELECT * FROM t WHERE id>7"),
            (
                "SELECT ':sql_last_value', \":sql_last_value\"",
                "SELECT ':sql_last_value', \":sql_last_value\"",
            ),
            ("SELECT 'it''s', :sql_last_value", "SELECT 'it''s', 7"),
            ("SELECT 1 -- :sql_last_value\n, :sql_last_value", "SELECT 1 -- :sql_last_value\n, 7"),
            ("SELECT /* :sql_last_value */ :sql_last_value", "SELECT /* :sql_last_value */ 7"),
            ("SELECT :sql_last_value::int, x::text", "SELECT 7::int, x::text"),
            ("SELECT :other, :sql_last_values", "SELECT :other, :sql_last_values"),
            ("SELECT a[1:sql_last_value]", "SELECT a[1:sql_last_value]"),
            ("SELECT $x$ :sql_last_value $x$, :sql_last_value", "SELECT $x$ :sql_last_value $x$, 7"),
            ("SELECT E'\\' :sql_last_value', :sql_last_value", "SELECT E'\\' :sql_last_value', 7"),
            ("SELECT '\\', :sql_last_value", "SELECT '\\', 7"),
        ] {
            assert_eq!(filled(Kind::Postgres, sql), wanted);
        }
        assert_eq!(
            filled(Kind::MySql, "SELECT '\\' :sql_last_value', :sql_last_value # :sql_last_value"),
            "SELECT '\\' :sql_last_value', 7 # :sql_last_value"
        );
    }

    #[test]
    fn literals_cannot_leave_their_quotes() {
        let mut out = String::new();
        Literal::Text("a'b\\'c".to_owned()).write(Kind::Postgres, &mut out);
        Literal::Text("a'b\\'c".to_owned()).write(Kind::MySql, &mut out);
        Literal::List(vec![Literal::Number("1".to_owned()), Literal::Boolean(true)])
            .write(Kind::Sqlite, &mut out);
        assert_eq!(out, " E'a''b\\\\''c''a''b\\\\''c'(1, TRUE)");
    }

    #[test]
    fn negative_numbers_begin_no_comment() {
        let number = |_: &str| Some(Literal::Number("-5".to_owned()));
        let statement = Statement::parse(Kind::Postgres, "SELECT 10-:n, :n", false);
        assert_eq!(statement.fill(&number, &[]), "SELECT 10- -5, -5");
    }

    #[test]
    fn positions_are_counted() {
        let statement = Statement::parse(Kind::Sqlite, "SELECT ? FROM t WHERE a = '?' AND b > ?", true);
        assert_eq!(statement.positions(), 2);
        let values = [Literal::Number("1".to_owned()), Literal::Text("x".to_owned())];
        assert_eq!(statement.fill(&|_| None, &values), "SELECT 1 FROM t WHERE a = '?' AND b > 'x'");
    }

    #[test]
    fn queries_are_told_from_calls() {
        for (sql, query) in [
            ("select 1", true),
            (" -- why\n /* x */ (WITH a AS (SELECT 1) SELECT * FROM a)", true),
            ("CALL fetch()", false),
            ("UPDATE t SET a = 1", false),
            ("", false),
        ] {
            assert_eq!(Statement::parse(Kind::MySql, sql, false).is_query(), query, "{sql}");
        }
    }

    #[test]
    fn the_wrapped_statement_orders_and_limits() {
        let from = Literal::Text("2024-01-01".to_owned());
        let ordered = OrderedStatement {
            kind: Kind::Postgres,
            sql: "SELECT * FROM t -- all",
            column: "a\"b",
            values: Values::From(&from),
            limit: 10,
        };
        assert_eq!(
            ordered.sql(),
            "SELECT * FROM (\nSELECT * FROM t -- all\n) AS millrace_rows WHERE millrace_rows.\"a\"\"b\" >= '2024-01-01' ORDER BY millrace_rows.\"a\"\"b\" LIMIT 10"
        );
    }

    proptest! {
        #[test]
        fn a_statement_without_parameters_stays(sql in "[a-z'\"`$;:?/*#\\\\\n -]{0,60}") {
            for kind in [Kind::Postgres, Kind::MySql, Kind::Sqlite] {
                let statement = Statement::parse(kind, &sql, false);
                let trimmed = sql.trim_end().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
                prop_assert_eq!(statement.fill(&|_| None, &[]), trimmed);
            }
        }
    }
}
