//! Paths to values of aggregations: `histogram>stats.avg`, `terms['key']>sum`, `percentiles[99.9]`.

use millrace_work::error::{Error, Result};

/// A path: elements separated by `>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(pub Vec<Element>);

/// One element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Name of an aggregation, or of what a bucket has.
    pub name: String,
    /// Key in brackets, or, at the end of a path, behind the last dot.
    pub key: Option<String>,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// Brackets or dots that are in the wrong place.
    pub fn parse(path: &str) -> Result<Self> {
        let elements: Vec<&str> = path.split('>').map(str::trim).filter(|part| !part.is_empty()).collect();
        let last = elements.len().saturating_sub(1);
        let parsed: Result<Vec<Element>> =
            elements.iter().enumerate().map(|(at, text)| element(text, at == last, path)).collect();
        parsed.map(Self)
    }

    /// Lists names and keys in their order, as OpenSearch walks them.
    pub fn names(&self) -> Vec<&str> {
        let parts = self
            .0
            .iter()
            .flat_map(|element| std::iter::once(element.name.as_str()).chain(element.key.as_deref()));
        parts.collect()
    }
}

fn element(text: &str, last: bool, path: &str) -> Result<Element> {
    let invalid = || Error::Exception {
        kind: "aggregation_execution_exception",
        status: 500,
        reason: format!("Invalid path element [{text}] in path [{path}]"),
    };
    if let Some((name, key)) = text.rsplit_once('[') {
        let key = key.strip_suffix(']').filter(|key| !key.is_empty() && !name.is_empty());
        let key = key.ok_or_else(invalid)?;
        return Ok(Element { name: name.to_owned(), key: Some(key.to_owned()) });
    }
    match text.rsplit_once('.').filter(|_| last) {
        Some((name, key)) if !name.is_empty() && !key.is_empty() => {
            Ok(Element { name: name.to_owned(), key: Some(key.to_owned()) })
        }
        Some(_) => Err(invalid()),
        None => Ok(Element { name: text.to_owned(), key: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_into_names_and_keys() {
        let names = |path: &str| Path::parse(path).unwrap().names().join(" | ");
        assert_eq!(names("a>b.c"), "a | b | c");
        assert_eq!(names("a['k 1']>p[99.9]"), "a | 'k 1' | p | 99.9");
        assert_eq!(names("a.b>_count"), "a.b | _count");
        for bad in ["a.", ".a", "a[]", "[a]", "a[b", "a[b>c"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }
}
