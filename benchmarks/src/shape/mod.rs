//! Shapes of documents: the content of a corpus, and the index that takes it.
//!
//! A [`DocumentKind`] hands documents to `corpus`, an index body to `load`, and a list of operations to
//! `query`. Documents depend on shape, seed and position alone.

mod analyses;
mod big5;
mod clickbench;
mod fields;
mod http_logs;
mod statements;

use clap::ValueEnum;
use serde_json::Value;

pub(crate) use self::analyses::Analysis;
pub(crate) use self::statements::{Statement, digest};
use crate::query::Operation;

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentKind {
    /// Web server access: 5 fields, about 147 bytes.
    HttpLogs,
    /// Cloud logs: 25 fields, about 800 bytes.
    Big5,
    /// Hits of a web analytics service: 32 fields, about 800 bytes.
    #[value(name = "clickbench")]
    ClickBench,
    /// 20 of 1,000 mapped fields.
    Sparse,
    /// The same 20 fields in every document.
    Dense,
}

/// Makes the documents of one corpus, in order.
pub(crate) trait Generator {
    /// Appends the next document to `out`: one JSON object without a line break.
    fn next(&mut self, out: &mut Vec<u8>);
}

impl DocumentKind {
    /// Returns the name, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HttpLogs => "http-logs",
            Self::Big5 => "big5",
            Self::ClickBench => "clickbench",
            Self::Sparse => "sparse",
            Self::Dense => "dense",
        }
    }

    /// Starts a generator for a corpus of `total` documents.
    pub(crate) fn generator(self, seed: u64, total: u64) -> Box<dyn Generator> {
        match self {
            Self::HttpLogs => Box::new(http_logs::HttpLogs::new(seed, total)),
            Self::Big5 => Box::new(big5::Big5::new(seed, total)),
            Self::ClickBench => Box::new(clickbench::ClickBench::new(seed, total)),
            Self::Sparse => Box::new(fields::Fields::new(seed, fields::WIDE)),
            Self::Dense => Box::new(fields::Fields::new(seed, fields::NARROW)),
        }
    }

    /// Returns the body that creates the index.
    pub(crate) fn index_body(self) -> Value {
        match self {
            Self::HttpLogs => http_logs::index_body(),
            Self::Big5 => big5::index_body(),
            Self::ClickBench => clickbench::index_body(),
            Self::Sparse => fields::index_body(fields::WIDE),
            Self::Dense => fields::index_body(fields::NARROW),
        }
    }

    /// Returns the operations to time on an index that holds a corpus of `total` documents.
    pub(crate) fn operations(self, index: &str, total: u64) -> Vec<Operation> {
        match self {
            Self::HttpLogs => http_logs::operations(index, total),
            Self::Big5 => big5::operations(index, total),
            Self::ClickBench => clickbench::operations(index),
            Self::Sparse | Self::Dense => fields::operations(index),
        }
    }

    /// Returns operations whose answers lie in the first tenth of a corpus, if the shape has some.
    pub(crate) fn operations_of_the_beginning(self, index: &str) -> Vec<Operation> {
        match self {
            Self::HttpLogs => http_logs::of_an_hour(index),
            Self::Big5 | Self::ClickBench | Self::Sparse | Self::Dense => Vec::new(),
        }
    }

    /// Returns the aggregations to time on an index that holds a corpus.
    pub(crate) fn analyses(self, index: &str) -> Vec<Analysis> {
        match self {
            Self::HttpLogs => analyses::http_logs(index),
            Self::Big5 => analyses::big5(index),
            Self::ClickBench | Self::Sparse | Self::Dense => Vec::new(),
        }
    }

    /// Returns the statements to time on an index that holds a corpus.
    pub(crate) fn statements(self) -> Vec<Statement> {
        match self {
            Self::HttpLogs => statements::http_logs(),
            Self::Big5 => statements::big5(),
            Self::ClickBench => statements::clickbench(),
            Self::Sparse | Self::Dense => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn documents(shape: DocumentKind, seed: u64, count: u64) -> Vec<String> {
        let mut generator = shape.generator(seed, count);
        (0..count)
            .map(|_| {
                let mut out = Vec::new();
                generator.next(&mut out);
                String::from_utf8(out).unwrap()
            })
            .collect()
    }

    fn leaves(value: &Value, prefix: &str, out: &mut Vec<String>) {
        for (name, value) in value.as_object().unwrap() {
            let path = format!("{prefix}{name}");
            if value.is_object() { leaves(value, &format!("{path}."), out) } else { out.push(path) }
        }
    }

    fn mapped(body: &Value) -> Vec<String> {
        fn walk(properties: &Value, prefix: &str, out: &mut Vec<String>) {
            for (name, field) in properties.as_object().unwrap() {
                match field.get("properties") {
                    Some(inner) => walk(inner, &format!("{prefix}{name}."), out),
                    None => out.push(format!("{prefix}{name}")),
                }
            }
        }
        let mut out = Vec::new();
        walk(&body["mappings"]["properties"], "", &mut out);
        out
    }

    #[test]
    fn documents_are_json_of_mapped_fields() {
        for shape in DocumentKind::value_variants() {
            let mapped = mapped(&shape.index_body());
            for text in documents(*shape, 5, 300) {
                let document: Value =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                let mut paths = Vec::new();
                leaves(&document, "", &mut paths);
                for path in paths {
                    assert!(mapped.contains(&path), "{path} is not mapped in {}", shape.name());
                }
            }
        }
    }

    #[test]
    fn seed_and_position_decide() {
        for shape in DocumentKind::value_variants() {
            assert_eq!(documents(*shape, 1, 50), documents(*shape, 1, 50));
            assert_ne!(documents(*shape, 1, 50), documents(*shape, 2, 50));
        }
    }

    #[test]
    fn documents_have_the_size_of_their_models() {
        let mean = |shape| {
            let documents = documents(shape, 1, 5_000);
            documents.iter().map(String::len).sum::<usize>() / documents.len()
        };
        let http_logs = mean(DocumentKind::HttpLogs);
        assert!((140..=154).contains(&http_logs), "{http_logs}");
        let big5 = mean(DocumentKind::Big5);
        assert!((760..=820).contains(&big5), "{big5}");
        assert!(mean(DocumentKind::Sparse).abs_diff(mean(DocumentKind::Dense)) < 30);
    }

    #[test]
    fn big5_documents_have_their_fields() {
        let mut paths = Vec::new();
        leaves(&serde_json::from_str(&documents(DocumentKind::Big5, 1, 1)[0]).unwrap(), "", &mut paths);
        assert_eq!(paths.len(), 25, "{paths:?}");
    }

    #[test]
    fn the_operations_find_something() {
        let documents = documents(DocumentKind::HttpLogs, 1, 50_000);
        let count = |test: &dyn Fn(&str) -> bool| documents.iter().filter(|text| test(text)).count();
        assert!(count(&|text| text.contains("/images/teams/")) > 100);
        assert!(count(&|text| text.contains("/english/images/")) > 100);
        assert!(count(&|text| text.contains("/french/") && text.contains(".html")) > 100);
        assert!(
            count(&|text| text.contains("/french/") && text.contains(".html") && text.contains(":404")) > 0
        );
        assert!(count(&|text| text.contains(".pdf")) > 5);
        assert!(count(&|text| text.contains("\"status\":500")) > 0);
        let distinct: std::collections::HashSet<_> = documents
            .iter()
            .map(|text| text.split("\"request\":").nth(1).unwrap().split("\",").next().unwrap())
            .collect();
        assert!((1_000..30_000).contains(&distinct.len()), "{}", distinct.len());
    }
}
