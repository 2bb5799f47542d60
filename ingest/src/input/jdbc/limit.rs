//! The LIMIT that a statement has of its own.
//!
//! A statement with a tracking column is read from the last value on, in the order of that column: rows at the last value come again, and are told
//! by their hashes. A LIMIT within it counts them too, so that it could give nothing but rows that were read. [`lift`] takes it out of
//! the statement: it bounds the rows that are new in a run instead. Where it cannot be taken out (it is within parentheses, or
//! keeps the greatest rows of a descending order), the input looks behind the last value and says so if it can never go on.

use super::address::Kind;
use super::statement::{is_word, quoted};

/// Stands for no limit: the greatest that all databases take.
const ALL: &str = "9223372036854775807";

/// A statement without its own LIMIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnlimitedStatement {
    pub(super) sql: String,
    /// Rows that it would give at most.
    pub(super) rows: usize,
}

/// A word, a number or a sign of a statement, outside of parentheses.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

impl Token<'_> {
    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Takes `LIMIT n` or `FETCH FIRST n ROWS ONLY` out of a statement that is filled in. `None` where it has none, or one that must stay: with an
/// OFFSET, or behind a descending order.
pub(super) fn lift(kind: Kind, sql: &str) -> Option<UnlimitedStatement> {
    let tokens = tokens(kind, sql);
    let order = tokens.iter().rposition(|token| token.is("order"));
    let behind = |at: usize| tokens.get(at..).unwrap_or_default();
    if let Some(order) = order {
        // The first key decides which rows are first.
        let key = behind(order)
            .iter()
            .take_while(|token| !token.is(",") && !token.is("limit") && !token.is("fetch"));
        if key.into_iter().any(|token| token.is("desc")) {
            return None;
        }
    }
    let at = tokens.iter().rposition(|token| token.is("limit") || token.is("fetch"))?;
    // A name of the statement's own, as in `SELECT limit FROM t`.
    if order.is_some_and(|order| order > at) || tokens.iter().any(|token| token.is("offset")) {
        return None;
    }
    match behind(at) {
        [limit, count, rest @ ..] if limit.is("limit") && (rest.is_empty() || is_lock(rest)) => {
            let rows = count.text.parse().ok()?;
            let mut lifted = sql.to_owned();
            lifted.replace_range(count.at..count.end(), ALL);
            Some(UnlimitedStatement { sql: lifted, rows })
        }
        [fetch, first, rest @ ..] if fetch.is("fetch") && (first.is("first") || first.is("next")) => {
            let (rows, rest) = match rest {
                [count, rest @ ..] if count.text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (count.text.parse().ok()?, rest)
                }
                rest => (1, rest),
            };
            let [of, only, rest @ ..] = rest else { return None };
            if !(of.is("row") || of.is("rows")) || !only.is("only") || !(rest.is_empty() || is_lock(rest)) {
                return None;
            }
            let mut lifted = sql.to_owned();
            lifted.replace_range(fetch.at..only.end(), "");
            Some(UnlimitedStatement { sql: lifted, rows })
        }
        _ => None,
    }
}

/// Returns whether a statement may have a limit somewhere: it has a word that makes one.
pub(super) fn may_limit(kind: Kind, sql: &str) -> bool {
    let mut found = false;
    each_token(kind, sql, |token, _| {
        found |= ["limit", "fetch", "top", "rownum", "row_number"].iter().any(|word| token.is(word));
    });
    found
}

/// Returns whether `FOR UPDATE` and the like begin here.
fn is_lock(tokens: &[Token<'_>]) -> bool {
    tokens.first().is_some_and(|token| token.is("for") || token.is("lock"))
}

/// Returns the tokens outside of parentheses and comments.
fn tokens(kind: Kind, sql: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    each_token(kind, sql, |token, depth| {
        if depth == 0 {
            tokens.push(token);
        }
    });
    tokens
}

/// Calls for each word, number, sign, and quoted text or name, with the number of parentheses around it.
fn each_token<'a>(kind: Kind, sql: &'a str, mut call: impl FnMut(Token<'a>, usize)) {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(rest) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let before = sql.get(..at).and_then(|before| before.chars().next_back());
        let first = rest.chars().next().unwrap_or_default();
        let quoted = quoted(kind, rest, before);
        let length = match quoted {
            Some(length) => length,
            None if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            None => first.len_utf8(),
        };
        let is_comment =
            quoted.is_some() && (rest.starts_with("--") || rest.starts_with("/*") || first == '#');
        match first {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if is_comment || first.is_whitespace() => {}
            _ => {
                if let Some(text) = rest.get(..length) {
                    call(Token { text, at }, depth);
                }
            }
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_its_own_is_taken_out() {
        for (sql, lifted, rows) in [
            (
                "SELECT * FROM t ORDER BY id LIMIT 10",
                "SELECT * FROM t ORDER BY id LIMIT 9223372036854775807",
                10,
            ),
            ("select a from t limit 1 -- x", "select a from t limit 9223372036854775807 -- x", 1),
            (
                "SELECT (SELECT 1 LIMIT 1), 'limit 3' FROM t ORDER BY id ASC, b DESC LIMIT 7 FOR UPDATE",
                "SELECT (SELECT 1 LIMIT 1), 'limit 3' FROM t ORDER BY id ASC, b DESC LIMIT 9223372036854775807 FOR UPDATE",
                7,
            ),
            ("SELECT * FROM t FETCH FIRST 5 ROWS ONLY", "SELECT * FROM t ", 5),
            ("SELECT * FROM t FETCH NEXT ROW ONLY", "SELECT * FROM t ", 1),
        ] {
            assert_eq!(
                lift(Kind::Postgres, sql),
                Some(UnlimitedStatement { sql: lifted.to_owned(), rows }),
                "{sql}"
            );
        }
    }

    #[test]
    fn a_limit_that_must_stay_stays() {
        for sql in [
            "SELECT * FROM t",
            "SELECT * FROM t ORDER BY id DESC LIMIT 1",
            "SELECT * FROM t LIMIT 10 OFFSET 5",
            "SELECT * FROM t LIMIT 5, 10",
            "SELECT * FROM t LIMIT 2 * 5",
            "SELECT * FROM t LIMIT ALL",
            "(SELECT * FROM t LIMIT 5)",
            "SELECT * FROM (SELECT * FROM t LIMIT 5) AS s",
            "SELECT \"limit\" FROM t -- LIMIT 5",
            "SELECT limit FROM t ORDER BY id",
            "SELECT * FROM t FETCH FIRST 5 ROWS WITH TIES",
        ] {
            assert_eq!(lift(Kind::Postgres, sql), None, "{sql}");
        }
    }
}
