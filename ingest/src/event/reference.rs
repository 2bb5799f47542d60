//! Field references: `name`, `[name]`, `[a][b][0]`; also with references in brackets of their own, which are part of the outer one: `[[a][b]]`, `[a][[b][c]]`.

use std::fmt;

/// Longest reference in names.
const MAX_DEPTH: usize = 64;

/// Path of a value in an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldReference {
    /// At least one name.
    path: Vec<String>,
}

impl FieldReference {
    /// Parses a reference. A text without brackets is one name, dots included.
    ///
    /// # Errors
    /// What is wrong with the text, naming it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("[{text}] is not a field reference: {why}");
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        if !text.contains(['[', ']']) {
            return Ok(Self { path: vec![text.to_owned()] });
        }
        let mut path = Vec::new();
        let mut rest = text;
        // How many names there were before each bracket that is open around a reference.
        let mut open = Vec::new();
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(']') {
                let before = open.pop().ok_or_else(|| wrong("a bracket is closed that is not open"))?;
                if before == path.len() {
                    return Err(wrong("there is nothing between two brackets"));
                }
                rest = behind;
                continue;
            }
            let inner = rest.strip_prefix('[').ok_or_else(|| wrong("a name must be in brackets"))?;
            if inner.starts_with('[') {
                open.push(path.len());
                if open.len() > MAX_DEPTH {
                    return Err(wrong("it is too deep"));
                }
                rest = inner;
                continue;
            }
            let end = inner.find(['[', ']']).ok_or_else(|| wrong("a bracket is not closed"))?;
            if inner.as_bytes().get(end) != Some(&b']') || end == 0 {
                return Err(wrong("a name is missing or a bracket is not closed"));
            }
            path.push(inner[..end].to_owned());
            if path.len() > MAX_DEPTH {
                return Err(wrong("it is too deep"));
            }
            rest = &inner[end + 1..];
        }
        if !open.is_empty() {
            return Err(wrong("a bracket is not closed"));
        }
        Ok(Self { path })
    }

    /// Names from the outermost on, at least one.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The first name and those behind it.
    pub(super) fn split(&self) -> (&str, &[String]) {
        self.path.split_first().map_or(("", &[]), |(first, rest)| (first.as_str(), rest))
    }
}

impl fmt::Display for FieldReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_slice() {
            [name] => f.write_str(name),
            path => path.iter().try_for_each(|name| write!(f, "[{name}]")),
        }
    }
}
