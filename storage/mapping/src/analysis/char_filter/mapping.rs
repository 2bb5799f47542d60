//! The `mapping` character filter: strings replaced by strings, the longest that fits first.

use std::collections::BTreeMap;

use millrace_runtime::{Error, Result};

use super::{CharFilter, Corrections, units};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Rules: the replaced texts and their replacements.
    rules: BTreeMap<String, String>,
    /// Lengths in bytes of the strings that begin with a character, longest first.
    lengths: hashbrown::HashMap<char, Vec<usize>>,
}

impl Mapping {
    /// Reads rules of the form `from => to`, with the escapes of Java's strings.
    pub(crate) fn new(lines: &[String]) -> Result<Self> {
        let mut rules = BTreeMap::new();
        for (number, line) in lines.iter().enumerate() {
            let invalid =
                || Error::IllegalArgument(format!("Line [{}]: Invalid mapping rule : [{line}]", number + 1));
            // As the greedy `(.*)\s*=>\s*(.*)\s*$`: the last arrow divides.
            let at = line.rfind("=>").ok_or_else(invalid)?;
            let from = unescape(line[..at].trim())?;
            let to = unescape(line[at + 2..].trim())?;
            if from.is_empty() {
                return Err(Error::IllegalArgument("cannot match the empty string".to_owned()));
            }
            if rules.insert(from.clone(), to).is_some() {
                return Err(Error::IllegalArgument(format!("match \"{from}\" was already added")));
            }
        }
        let mut lengths: hashbrown::HashMap<char, Vec<usize>> = hashbrown::HashMap::new();
        for from in rules.keys() {
            if let Some(first) = from.chars().next() {
                lengths.entry(first).or_default().push(from.len());
            }
        }
        for lengths in lengths.values_mut() {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        }
        Ok(Self { rules, lengths })
    }
}

impl CharFilter for Mapping {
    fn growth(&self) -> usize {
        self.rules.iter().map(|(from, to)| to.len().div_ceil(from.len())).max().unwrap_or(1).max(1)
    }

    fn apply(&self, text: &str, most: usize) -> (String, Corrections) {
        let mut out = String::with_capacity(text.len());
        let mut corrections = Corrections::default();
        let (mut at, mut written) = (0, 0u32);
        while let Some(first) = text[at..].chars().next() {
            if out.len() >= most {
                corrections.cut = true;
                break;
            }
            let found = self.lengths.get(&first).and_then(|lengths| {
                lengths.iter().find_map(|&length| {
                    let from = text.get(at..at + length)?;
                    Some((from, self.rules.get(from)?))
                })
            });
            let Some((from, to)) = found else {
                out.push(first);
                written += first.len_utf16() as u32;
                at += first.len_utf8();
                continue;
            };
            if out.len().saturating_add(to.len()) > most {
                corrections.cut = true;
                break;
            }
            let (before, after) = (units(from), units(to));
            let difference = i64::from(before) - i64::from(after);
            if difference > 0 {
                corrections.add(written + after, corrections.last_difference() + difference);
            } else {
                // What was put in points at the end of what it replaces, unit by unit.
                for extra in 0..(after - before) {
                    let previous = corrections.last_difference();
                    corrections.add(written + before + extra, previous - 1);
                }
            }
            out.push_str(to);
            written += after;
            at += from.len();
        }
        (out, corrections)
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

/// Reads `\\`, `\n`, `\t`, `\r`, `\b`, `\f` and `\uXXXX`; another escaped character stands for itself.
pub(crate) fn unescape(text: &str) -> Result<String> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    let mut buffer = [0u16; 2];
    while let Some(c) = characters.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        let invalid = || Error::IllegalArgument(format!("Invalid escaped char in [{text}]"));
        let c = match characters.next().ok_or_else(invalid)? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits: String = characters.by_ref().take(4).collect();
                if digits.len() != 4 {
                    return Err(invalid());
                }
                units.push(u16::from_str_radix(&digits, 16).map_err(|_| invalid())?);
                continue;
            }
            other => other,
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}
