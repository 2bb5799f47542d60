//! Synonym rules, in Solr's form and in WordNet's.

use std::collections::BTreeMap;
use std::ops::Bound;

use millrace_runtime::{Error, Result};

use super::allowance::TOKEN_BYTES;

/// Most rules that the lines of one filter may make, and most terms in one.
const MAX_RULES: usize = 1_000_000;
const MAX_TERMS: usize = 1_000;

/// Entry of a sequence of terms.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Sequences of terms, none empty.
    pub(crate) outputs: Vec<Vec<String>>,
    /// `true` if the terms themselves stay.
    pub(crate) keep_original: bool,
}

impl Entry {
    /// Cost of its outputs as tokens.
    pub(crate) fn bytes(&self) -> usize {
        self.outputs.iter().flatten().map(|term| term.len() + TOKEN_BYTES).sum()
    }
}

/// Rules by the terms that they replace, joined by NUL.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    entries: BTreeMap<String, Entry>,
    longest: usize,
    count: usize,
}

/// Analyzes a term of a rule into the terms that the filter will see.
pub(crate) type Analyze<'a> = dyn Fn(&str) -> Result<Vec<String>> + 'a;

impl Rules {
    /// The number of terms in the longest rule.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Greatest cost of the outputs of a sequence of terms.
    pub(crate) fn largest(&self) -> usize {
        self.entries.values().map(Entry::bytes).max().unwrap_or(0)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Returns whether a longer rule begins with the terms of `key`.
    pub(crate) fn is_prefix(&self, key: &str) -> bool {
        let longer = format!("{key}\0");
        self.entries
            .range::<str, _>((Bound::Included(longer.as_str()), Bound::Unbounded))
            .next()
            .is_some_and(|(next, _)| next.starts_with(&longer))
    }

    fn add(&mut self, input: &[String], output: &[String], keep_original: bool) -> Result<()> {
        if input.is_empty() || output.is_empty() {
            return Ok(());
        }
        self.count += 1;
        if self.count > MAX_RULES || input.len() > MAX_TERMS || output.len() > MAX_TERMS {
            return Err(Error::IllegalArgument(format!(
                "synonym rules make more than {MAX_RULES} pairs or have more than {MAX_TERMS} terms"
            )));
        }
        self.longest = self.longest.max(input.len());
        let entry = self.entries.entry(input.join("\0")).or_default();
        entry.keep_original |= keep_original;
        if !entry.outputs.iter().any(|known| known == output) {
            entry.outputs.push(output.to_vec());
        }
        Ok(())
    }

    /// Reads lines `a, b => c` and `a, b, c`.
    pub(crate) fn solr(lines: &[String], expand: bool, analyze: &Analyze<'_>) -> Result<Self> {
        let mut rules = Self::default();
        for line in lines.iter().flat_map(|line| line.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let terms = |side: &str| -> Result<Vec<Vec<String>>> {
                split(side, ",").iter().map(|term| analyze(unescape(term).trim())).collect()
            };
            let sides = split(line, "=>");
            match sides.as_slice() {
                [equal] => {
                    let terms = terms(equal)?;
                    for (nth, input) in terms.iter().enumerate() {
                        if !expand {
                            rules.add(input, &terms[0], false)?;
                            continue;
                        }
                        for (other, output) in terms.iter().enumerate() {
                            if other != nth {
                                rules.add(input, output, true)?;
                            }
                        }
                    }
                }
                [from, to] => {
                    let (inputs, outputs) = (terms(from)?, terms(to)?);
                    for input in &inputs {
                        for output in &outputs {
                            rules.add(input, output, false)?;
                        }
                    }
                }
                _ => {
                    return Err(Error::IllegalArgument(
                        "more than one explicit mapping specified on the same line".to_owned(),
                    ));
                }
            }
        }
        Ok(rules)
    }

    /// Reads lines of WordNet's `wn_s.pl`: `s(100000001,1,'abstain',v,1,0).`
    pub(crate) fn wordnet(lines: &[String], expand: bool, analyze: &Analyze<'_>) -> Result<Self> {
        let mut rules = Self::default();
        let mut set: Vec<Vec<String>> = Vec::new();
        let mut last = "";
        for line in lines.iter().flat_map(|line| line.lines()).map(str::trim).filter(|line| !line.is_empty())
        {
            let invalid = || Error::IllegalArgument(format!("invalid synonym rule [{line}]"));
            let id = line.get(2..11).ok_or_else(invalid)?;
            if id != last {
                rules.add_set(&set, expand)?;
                set.clear();
            }
            let (start, end) =
                (line.find('\'').ok_or_else(invalid)? + 1, line.rfind('\'').ok_or_else(invalid)?);
            let word = line.get(start..end).ok_or_else(invalid)?.replace("''", "'");
            set.push(analyze(&word)?);
            last = id;
        }
        rules.add_set(&set, expand)?;
        Ok(rules)
    }

    fn add_set(&mut self, set: &[Vec<String>], expand: bool) -> Result<()> {
        if set.len() <= 1 {
            return Ok(());
        }
        for (nth, input) in set.iter().enumerate() {
            if !expand {
                self.add(input, &set[0], false)?;
                continue;
            }
            for (other, output) in set.iter().enumerate() {
                if other != nth {
                    self.add(input, output, true)?;
                }
            }
        }
        Ok(())
    }
}

/// Splits at a separator that no backslash precedes.
fn split<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(separator) {
            parts.push(&text[start..at]);
            at += separator.len();
            start = at;
        } else {
            let mut characters = rest.chars();
            let first = characters.next().map_or(1, char::len_utf8);
            at += first;
            if rest.starts_with('\\') {
                at += characters.next().map_or(0, char::len_utf8);
            }
        }
    }
    // As Solr's parser, which drops what is empty at the end.
    if start < text.len() || parts.is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => out.push(characters.next().unwrap_or('\\')),
            c => out.push(c),
        }
    }
    out
}
