//! Memory of a parsed query: holders of one between requests are charged for it.

use std::fmt::{self, Write};

use super::Query;

/// Bytes of a clause beside what it is made of: its place, the rounding of allocations.
const CLAUSE_BYTES: usize = 64 + size_of::<Query>();
/// Bytes that each byte of what a clause is written as for debugging may stand for.
const WRITTEN_SHARE: usize = 4;
/// Bytes of a string beside its text.
pub(super) const STRING_BYTES: usize = size_of::<String>() + 16;

/// Counts what is written to it.
struct Counter(usize);

impl Write for Counter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        Ok(())
    }
}

impl Query {
    /// Estimates the bytes that the query takes, rather too many than too few.
    pub fn bytes(&self) -> usize {
        let mut bytes = 0_usize;
        self.walk(&mut |clause| {
            let name = clause.common().name.as_ref().map_or(0, String::len);
            bytes = bytes.saturating_add(CLAUSE_BYTES + name + clause.own_bytes());
        });
        bytes
    }
}

/// Estimates the bytes of what is written for debugging.
pub(super) fn written(part: &impl fmt::Debug) -> usize {
    let mut counter = Counter(0);
    // Counting cannot fail.
    let _ = write!(counter, "{part:?}");
    counter.0.saturating_mul(WRITTEN_SHARE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::query::parse;

    #[test]
    fn long_lists_and_texts_count_wherever_they_are() {
        let bytes = |query: &Value| parse(query).unwrap().bytes();
        let numbers: Vec<u32> = (0..10_000).collect();
        let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let text = "word ".repeat(10_000);
        for (clause, least) in [
            (json!({"terms": {"n": numbers}}), 10_000 * size_of::<Value>()),
            (json!({"ids": {"values": texts}}), 10_000 * size_of::<String>()),
            (json!({"match": {"text": text}}), 50_000),
            (json!({"query_string": {"query": text}}), 50_000),
        ] {
            assert!((least..8 * least).contains(&bytes(&clause)), "{clause:.80}: {}", bytes(&clause));
            for around in [
                json!({"bool": {"must_not": clause}}),
                json!({"constant_score": {"filter": clause}}),
                json!({"nested": {"path": "p", "query": clause}}),
                json!({"function_score": {"functions": [{"filter": clause, "weight": 2}]}}),
            ] {
                assert!((bytes(&clause)..9 * least).contains(&bytes(&around)), "{around:.80}");
            }
        }
        assert!(bytes(&json!({"term": {"tag": "a"}})) < 4_096);
    }
}
