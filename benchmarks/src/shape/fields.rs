//! Wide mappings: the same number of values a document, out of many mapped fields or of few.
//!
//! Compared byte for byte they say what a mapping costs that most documents leave empty.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::Generator;
use crate::query::Operation;
use crate::random::Random;
use crate::words::WORDS;

/// Fields of the sparse mapping.
pub(super) const WIDE: usize = 1_000;
/// Fields of the dense mapping, and values of a document in both.
pub(super) const NARROW: usize = 20;

/// The generator.
#[derive(Debug)]
pub(super) struct Fields {
    random: Random,
    fields: usize,
}

impl Fields {
    pub(super) fn new(seed: u64, fields: usize) -> Self {
        Self { random: Random::new(seed), fields }
    }
}

impl Generator for Fields {
    fn next(&mut self, out: &mut Vec<u8>) {
        // One field out of each of twenty equal stretches: distinct, and for few fields all of them.
        let stretch = self.fields / NARROW;
        for slot in 0..NARROW {
            out.push(if slot == 0 { b'{' } else { b',' });
            let field = slot * stretch + self.random.index(stretch);
            // Writing to a vector cannot fail.
            let _ = match field % 2 {
                0 => write!(out, "\"field{field:04}\":{}", self.random.below(100_000)),
                _ => write!(out, "\"field{field:04}\":\"{}\"", self.random.pick(WORDS)),
            };
        }
        out.push(b'}');
    }
}

pub(super) fn index_body(fields: usize) -> Value {
    let properties: Map<String, Value> = (0..fields)
        .map(|field| {
            let kind = if field % 2 == 0 { "long" } else { "keyword" };
            (format!("field{field:04}"), json!({"type": kind}))
        })
        .collect();
    json!({
        "settings": {
            "number_of_shards": 1,
            "number_of_replicas": 0,
            "index.mapping.total_fields.limit": 2 * WIDE,
        },
        "mappings": {"dynamic": "strict", "properties": properties},
    })
}

pub(super) fn operations(index: &str) -> Vec<Operation> {
    vec![
        Operation::search("match_all", index, json!({"query": {"match_all": {}}})),
        Operation::search("term", index, json!({"query": {"term": {"field0001": "request"}}})),
        Operation::count("count exists", index, json!({"query": {"exists": {"field": "field0000"}}})),
    ]
}
