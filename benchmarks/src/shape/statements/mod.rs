//! Statements in SQL, after those of ClickBench: counts, sums, distinct values, groups of few and of many, patterns,
//! and the first rows of an order. Both engines are asked the same text, but for names.

use serde_json::{Value, json};

use crate::query::Operation;

/// A statement over a table `docs`, names in double quotes.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// Name in reports.
    pub(crate) name: String,
    sql: String,
}

impl Statement {
    /// Returns the request that asks Millrace the statement.
    pub(crate) fn operation(&self, index: &str) -> Operation {
        let query = self.sql.replace("FROM docs", &format!("FROM `{index}`")).replace('"', "`");
        Operation {
            name: self.name.clone(),
            path: "/_plugins/_sql".to_owned(),
            body: json!({ "query": query }),
        }
    }

    /// Returns the statement as DuckDB is asked it, whose table has each value once.
    pub(crate) fn duckdb(&self) -> String {
        self.sql.replace("\"request.raw\"", "request")
    }
}

/// Returns a digest of an answer, to compare the answers of two engines: its rows, and the sum of all numbers in them.
pub(crate) fn digest(answer: &Value) -> (u64, f64) {
    let rows = answer["datarows"].as_array().map_or(&[][..], Vec::as_slice);
    let cells = rows.iter().flat_map(|row| row.as_array().into_iter().flatten());
    (rows.len() as u64, cells.filter_map(Value::as_f64).sum())
}

/// Statements over http_logs.
pub(super) fn http_logs() -> Vec<Statement> {
    read(include_str!("http_logs.sql"))
}

/// Statements over big5.
pub(super) fn big5() -> Vec<Statement> {
    read(include_str!("big5.sql"))
}

/// The statements of ClickBench, with an order that is total.
pub(super) fn clickbench() -> Vec<Statement> {
    let sums = (0..90).map(|add| match add {
        0 => "sum(\"ResolutionWidth\")".to_owned(),
        add => format!("sum(\"ResolutionWidth\" + {add})"),
    });
    let sums = sums.collect::<Vec<_>>().join(", ");
    read(&include_str!("clickbench.sql").replace("{sums}", &sums))
}

/// Reads statements that each stand under a comment with their name.
fn read(text: &str) -> Vec<Statement> {
    let statements = text.split("-- ").skip(1).filter_map(|part| part.split_once('\n'));
    statements
        .map(|(name, sql)| Statement {
            name: name.to_owned(),
            sql: sql.trim().trim_end_matches(';').to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clickbench_has_its_statements() {
        let all = clickbench();
        assert_eq!(all.len(), 43);
        assert!(all.iter().all(|one| one.sql.starts_with("SELECT ") && !one.sql.contains('{')), "{all:?}");
    }

    #[test]
    fn there_are_twenty_and_the_count_by_status() {
        let all: Vec<_> = http_logs().into_iter().chain(big5()).collect();
        assert_eq!(all.len(), 21);
        assert!(all.iter().all(|one| one.sql.starts_with("SELECT ") && !one.sql.contains(';')), "{all:?}");
    }

    #[test]
    fn names_are_quoted_as_each_engine_has_it() {
        let statement =
            &read("-- of some\nSELECT max(\"@timestamp\") FROM docs WHERE \"request.raw\" LIKE 'a%';\n")[0];
        assert_eq!(statement.name, "of some");
        assert_eq!(statement.duckdb(), "SELECT max(\"@timestamp\") FROM docs WHERE request LIKE 'a%'");
        assert_eq!(
            statement.operation("bench-x").body["query"],
            "SELECT max(`@timestamp`) FROM `bench-x` WHERE `request.raw` LIKE 'a%'"
        );
    }

    #[test]
    fn a_digest_counts_rows_and_adds_numbers() {
        assert_eq!(digest(&json!({"datarows": [["a", 1], ["b", 2.5], [null, true]]})), (3, 3.5));
        assert_eq!(digest(&json!({})), (0, 0.0));
    }
}
