//! Methods of texts that make others of them.
//!
//! Texts are not shared: a method that changes one in place (`gsub!`, `<<`) returns the text of now, which the caller assigns.

use std::sync::Arc;

use millrace_ingest::pattern::Replacement;

use super::super::interpreter::{Flow, Interpreter};
use super::super::syntax::{Block, Position};
use super::super::value::{Key, RaisedError, Val};
use super::{arg, needs_block, pattern, text_arg};

/// Methods of texts that make others of them.
pub(super) const NAMES: &[&str] = &[
    "<<",
    "concat",
    "prepend",
    "replace",
    "insert",
    "clear",
    "upcase",
    "downcase",
    "capitalize",
    "swapcase",
    "strip",
    "lstrip",
    "rstrip",
    "chomp",
    "chop",
    "gsub",
    "sub",
    "tr",
    "tr_s",
    "delete",
    "squeeze",
    "reverse",
    "force_encoding",
    "encode",
    "scrub",
    "unicode_normalize",
    "b",
    "upcase!",
    "downcase!",
    "capitalize!",
    "swapcase!",
    "strip!",
    "lstrip!",
    "rstrip!",
    "chomp!",
    "chop!",
    "gsub!",
    "sub!",
    "tr!",
    "delete!",
    "squeeze!",
    "reverse!",
    "slice!",
    "encode!",
    "scrub!",
    "unicode_normalize!",
    "dump",
    "undump",
];

/// Returns whether a method makes another text.
pub(in super::super) fn is_change(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Makes another text; returns the receiver as it is afterwards, and the result of the call.
pub(in super::super) fn change(
    run: &mut Interpreter<'_>,
    text: &Arc<str>,
    name: &'static str,
    args: Vec<Val>,
    block: Option<&Block>,
    at: Position,
) -> Result<(Val, Val), Flow> {
    let receiver = Val::Text(Arc::clone(text));
    let plain = name.trim_end_matches('!');
    let in_place = plain != name;
    run.step(text.len() / 256)?;
    if matches!(plain, "tr" | "tr_s" | "delete" | "squeeze") {
        let set: usize = args.iter().map(Val::text_bytes).sum();
        run.step(set.saturating_mul(text.len()) / 1024)?;
    }
    if plain == "slice" {
        let part = super::text::slice(run, text, &args)?;
        let rest = match &part {
            Val::Text(part) => text.replacen(&**part, "", 1),
            _ => text.to_string(),
        };
        return Ok((run.text(rest)?, part));
    }
    let changed = match plain {
        "<<" | "concat" => {
            let mut joined = text.to_string();
            for value in &args {
                match value {
                    Val::Int(letter) => joined.extend(u32::try_from(*letter).ok().and_then(char::from_u32)),
                    Val::Text(more) => joined.push_str(more),
                    other => {
                        let what = if matches!(other, Val::Nil) { "nil" } else { other.class() };
                        return Err(RaisedError::type_error(format!(
                            "no implicit conversion of {what} into String at {at}"
                        ))
                        .into());
                    }
                }
            }
            let joined = run.text(joined)?;
            return Ok((joined.clone(), joined));
        }
        "prepend" | "replace" | "insert" | "clear" => {
            let made = match plain {
                "prepend" => format!("{}{text}", text_arg(&args, 0)?),
                "replace" => text_arg(&args, 0)?.to_string(),
                "clear" => String::new(),
                _ => {
                    let place = super::int_arg(&args, 0)?;
                    let count = text.chars().count() as i64;
                    let place = usize::try_from(if place < 0 { place + count + 1 } else { place })
                        .unwrap_or(usize::MAX);
                    let before: String = text.chars().take(place).collect();
                    let behind: String = text.chars().skip(place).collect();
                    format!("{before}{}{behind}", text_arg(&args, 1)?)
                }
            };
            let made = run.text(made)?;
            return Ok((made.clone(), made));
        }
        "gsub" | "sub" => substituted(run, text, plain == "gsub", &args, block)?,
        _ => Some(simple(text, plain, &args)?),
    };
    let Some(changed) = changed.filter(|changed| *changed != **text) else {
        // What changes nothing in place is nil.
        let result = if in_place { Val::Nil } else { receiver.clone() };
        return Ok((receiver, result));
    };
    let changed = run.text(changed)?;
    Ok(if in_place { (changed.clone(), changed) } else { (receiver, changed) })
}

fn simple(text: &str, name: &str, args: &[Val]) -> Result<String, RaisedError> {
    let space = |letter: char| letter.is_ascii_whitespace() || letter == '\0' || letter == '\u{b}';
    Ok(match name {
        "upcase" => text.to_uppercase(),
        "downcase" => text.to_lowercase(),
        "capitalize" => {
            let mut letters = text.chars();
            let first = letters.next().map(|first| first.to_uppercase().collect::<String>());
            first.unwrap_or_default() + &letters.as_str().to_lowercase()
        }
        "swapcase" => text
            .chars()
            .flat_map(|letter| {
                let swapped: Vec<char> = if letter.is_uppercase() {
                    letter.to_lowercase().collect()
                } else {
                    letter.to_uppercase().collect()
                };
                swapped
            })
            .collect(),
        "strip" => text.trim_matches(space).to_owned(),
        "lstrip" => text.trim_start_matches(space).to_owned(),
        "rstrip" => text.trim_end_matches(space).to_owned(),
        "chomp" => match args.first() {
            Some(_) => {
                let end = text_arg(args, 0)?;
                text.strip_suffix(&*end).unwrap_or(text).to_owned()
            }
            None => {
                let without = text.strip_suffix('\n').unwrap_or(text);
                without.strip_suffix('\r').unwrap_or(without).to_owned()
            }
        },
        "chop" => {
            let mut letters = text.chars();
            letters.next_back();
            letters.as_str().to_owned()
        }
        "tr" | "tr_s" => translated(text, &text_arg(args, 0)?, &text_arg(args, 1)?, name == "tr_s"),
        "delete" => {
            let set = LetterSet::parse(&text_arg(args, 0)?);
            text.chars().filter(|letter| !set.contains(*letter)).collect()
        }
        "squeeze" => {
            let set = match args.first() {
                Some(_) => Some(LetterSet::parse(&text_arg(args, 0)?)),
                None => None,
            };
            let mut out = String::with_capacity(text.len());
            for letter in text.chars() {
                let squeezes = set.as_ref().is_none_or(|set| set.contains(letter));
                if !(squeezes && out.ends_with(letter)) {
                    out.push(letter);
                }
            }
            out
        }
        "reverse" => text.chars().rev().collect(),
        "dump" => format!("{text:?}"),
        // Texts are always valid UTF-8.
        _ => text.to_owned(),
    })
}

/// Replaces matches by a text, a hash or a block; `None` where there is none.
fn substituted(
    run: &mut Interpreter<'_>,
    text: &Arc<str>,
    all: bool,
    args: &[Val],
    block: Option<&Block>,
) -> Result<Option<String>, Flow> {
    let regex = pattern::expression_of(run, arg(args, 0)?)?;
    let by_text = match args.get(1) {
        Some(Val::Text(replacement)) => Some(Replacement::parse(replacement, &regex)),
        Some(Val::Hash(_)) | None => None,
        Some(other) => {
            return Err(RaisedError::type_error(format!(
                "no implicit conversion of {} into String",
                other.class()
            ))
            .into());
        }
    };
    if let (Some(replacement), true) = (&by_text, all) {
        run.step(1 + text.len() / 256)?;
        let replaced = regex.replace_all(text, replacement, &run.deadline);
        return replaced
            .map_err(|_| Flow::Exceeded("replacing takes too long, or makes a text too long".to_owned()));
    }
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut from) = (0, 0);
    let mut any = false;
    while let Some(found) = pattern::find_from(run, &regex, text, from)? {
        let Some(range) = found.groups.first().cloned().flatten() else { break };
        any = true;
        out.push_str(text.get(copied..range.start).unwrap_or_default());
        let matched = found.group(0).unwrap_or_default().to_owned();
        let value = match (&by_text, args.get(1)) {
            (Some(replacement), _) => {
                let one = regex.replace_all(&matched, replacement, &run.deadline).ok().flatten();
                Val::text(one.unwrap_or_else(|| matched.clone()))
            }
            (None, Some(Val::Hash(members))) => {
                members.lock().get(&Key::Text(Arc::from(matched.as_str()))).cloned().unwrap_or(Val::Nil)
            }
            _ => {
                run.set_match(Some(found));
                run.run_block(needs_block(block)?, vec![Val::text(matched.as_str())])?
            }
        };
        out.push_str(&value.to_text());
        run.allocate(32)?;
        copied = range.end;
        from = range.end;
        if !all {
            break;
        }
        if range.is_empty() {
            let Some(letter) = text.get(from..).and_then(|rest| rest.chars().next()) else { break };
            from += letter.len_utf8();
        }
        if out.len() > text.len().saturating_mul(2) {
            run.allocate(out.len())?;
        }
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Ok(any.then_some(out))
}

/// Letters of `tr`, `delete` and `count`: ranges, `^` for all others.
pub(super) struct LetterSet {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl LetterSet {
    pub(super) fn parse(text: &str) -> Self {
        let negated = text.starts_with('^') && text.chars().count() > 1;
        let text = if negated { text.trim_start_matches('^') } else { text };
        Self { ranges: ranges(text), negated }
    }

    pub(super) fn contains(&self, letter: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != self.negated
    }

    /// Returns the number of a letter among those of the ranges.
    fn position(&self, letter: char) -> Option<usize> {
        let mut before = 0;
        for (first, last) in &self.ranges {
            if (*first..=*last).contains(&letter) {
                return Some(before + ordinal(letter) - ordinal(*first));
            }
            before += ordinal(*last) - ordinal(*first) + 1;
        }
        None
    }
}

/// Number of a letter among all letters. Surrogates are none.
fn ordinal(letter: char) -> usize {
    let code = u32::from(letter);
    (if code > 0xd7ff { code - 0x800 } else { code }) as usize
}

/// Returns the letter of a number among those of ranges; the last one beyond them.
fn letter_at(ranges: &[(char, char)], number: usize) -> Option<char> {
    let mut left = number;
    for (first, last) in ranges {
        let count = ordinal(*last) - ordinal(*first) + 1;
        if left < count {
            return (*first..=*last).nth(left);
        }
        left -= count;
    }
    ranges.last().map(|(_, last)| *last)
}

/// Parses ranges; a single letter is one.
fn ranges(text: &str) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        let letter = if letter == '\\' { rest.next().unwrap_or('\\') } else { letter };
        let mut ahead = rest.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if letter <= last => {
                ranges.push((letter, last));
                rest = ahead;
            }
            _ => ranges.push((letter, letter)),
        }
    }
    ranges
}

fn translated(text: &str, from: &str, to: &str, squeezes: bool) -> String {
    let set = LetterSet::parse(from);
    let to = ranges(to);
    let mut out = String::with_capacity(text.len());
    let mut last = None;
    for letter in text.chars() {
        if !set.contains(letter) {
            out.push(letter);
            last = None;
            continue;
        }
        let at = if set.negated { usize::MAX } else { set.position(letter).unwrap_or(usize::MAX) };
        let Some(replacement) = letter_at(&to, at) else { continue };
        if !(squeezes && last == Some(replacement)) {
            out.push(replacement);
        }
        last = Some(replacement);
    }
    out
}
