//! Output of analysis is bounded, and its loss is reported.

use serde_json::{Map, Value, json};

use super::Analyzers;

#[test]
fn tokens_that_multiply_are_bounded_and_told() {
    let terms: Vec<String> = (0..1000).map(|number| format!("t{number}")).collect();
    let synonyms = format!("a => {}", terms.join(" "));
    let settings = json!({
        "index.max_ngram_diff": 100_000,
        "index.max_shingle_diff": 1_000,
        "index.analysis.tokenizer.grams.type": "ngram",
        "index.analysis.tokenizer.grams.min_gram": 1,
        "index.analysis.tokenizer.grams.max_gram": 10_000,
        "index.analysis.filter.grams.type": "ngram",
        "index.analysis.filter.grams.min_gram": 1,
        "index.analysis.filter.grams.max_gram": 10_000,
        "index.analysis.filter.edges.type": "edge_ngram",
        "index.analysis.filter.edges.min_gram": 1,
        "index.analysis.filter.edges.max_gram": 100_000,
        "index.analysis.filter.shingles.type": "shingle",
        "index.analysis.filter.shingles.max_shingle_size": 900,
        "index.analysis.filter.synonyms.type": "synonym",
        "index.analysis.filter.synonyms.synonyms": [synonyms.clone()],
        "index.analysis.filter.graph.type": "synonym_graph",
        "index.analysis.filter.graph.synonyms": [synonyms],
        "index.analysis.filter.several.type": "multiplexer",
        "index.analysis.filter.several.filters": ["lowercase,grams"],
        "index.analysis.analyzer.tokenizer.tokenizer": "grams",
        "index.analysis.analyzer.grams.tokenizer": "keyword",
        "index.analysis.analyzer.grams.filter": ["grams"],
        "index.analysis.analyzer.several.tokenizer": "keyword",
        "index.analysis.analyzer.several.filter": ["several"],
        "index.analysis.analyzer.edges.tokenizer": "keyword",
        "index.analysis.analyzer.edges.filter": ["edges"],
        "index.analysis.analyzer.shingles.tokenizer": "whitespace",
        "index.analysis.analyzer.shingles.filter": ["shingles"],
        "index.analysis.analyzer.synonyms.tokenizer": "whitespace",
        "index.analysis.analyzer.synonyms.filter": ["synonyms"],
        "index.analysis.analyzer.graph.tokenizer": "whitespace",
        "index.analysis.analyzer.graph.filter": ["graph"],
    });
    let settings: Map<String, Value> = settings.as_object().unwrap().clone();
    let analyzers = Analyzers::new(&settings).unwrap();
    for (name, length) in [
        ("tokenizer", 4_000),
        ("grams", 4_000),
        ("several", 4_000),
        ("edges", 9_500),
        ("shingles", 4_000),
        ("synonyms", 1_000),
        ("graph", 1_000),
    ] {
        let analyzer = analyzers.get(name).unwrap();
        let text = "a ".repeat(length / 2);
        let mut bytes = 0;
        let outcome = analyzer.run(&text, &mut |token| bytes += token.text.len());
        assert!(outcome.cut && outcome.text_cut, "{name}: {bytes}");
        assert!(bytes > 1 << 19 && bytes <= (1 << 20) + 4096 * length, "{name}: {bytes}");
        assert!(analyzer.exceeds_bounds(&text), "{name}");
        let short = "x y z ".repeat(20);
        assert!(!analyzer.run(&short, &mut |_| {}).text_cut, "{name}");
        assert!(!analyzer.exceeds_bounds(&short), "{name}");
    }
}

#[test]
fn ordinary_analyzers_are_far_from_their_bounds() {
    let settings = json!({
        "index.max_ngram_diff": 20,
        "index.analysis.filter.grams.type": "ngram",
        "index.analysis.filter.grams.min_gram": 1,
        "index.analysis.filter.grams.max_gram": 20,
        "index.analysis.analyzer.grams.tokenizer": "standard",
        "index.analysis.analyzer.grams.filter": ["lowercase", "grams"],
        "index.analysis.analyzer.shingles.tokenizer": "standard",
        "index.analysis.analyzer.shingles.filter": ["lowercase", "shingle"],
    });
    let analyzers = Analyzers::new(settings.as_object().unwrap()).unwrap();
    for (name, length) in
        [("standard", 20 << 20), ("english", 20 << 20), ("grams", 100 << 10), ("shingles", 1 << 20)]
    {
        assert!(!analyzers.get(name).unwrap().may_exceed_bounds(length), "{name}");
    }
}
