//! Functions of strings.

use std::borrow::Cow;
use std::cell::RefCell;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::common::{Result as PlanResult, exec_err};
use millrace_mapping::automaton::{DEFAULT_EFFORT, Dfa, pieces};

use super::row::{Eval, Val};
use super::{Definition, kernels};
use crate::error::evaluation;
use crate::push::wildcard;
use crate::types::SqlType::{self, Integer, Keyword, Undefined};

/// Longest string that a function makes, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

fn string(ty: SqlType) -> bool {
    // What else there is has a form as a string.
    !ty.is_json() && ty != SqlType::Interval
}

fn strings(types: &[SqlType], count: usize, ty: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    let fits = types.len() == count && types.iter().all(|ty| string(*ty));
    fits.then(|| (vec![Keyword; count], ty))
}

fn to_text(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    strings(types, 1, Keyword)
}

/// Takes a string, and the language whose letters change their case.
fn text_and_locale(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let count = types.len();
    if (1..=2).contains(&count) { strings(types, count, Keyword) } else { None }
}

/// Returns whether the language behind a string has an I without a dot, as Turkish and Azerbaijani have.
fn has_dotless_i(args: &[Val<'_>]) -> Result<bool, String> {
    let tag = args.get(1).map_or("", Val::text);
    let language = tag.split(['-', '_']).next().unwrap_or_default();
    match language.to_ascii_lowercase().as_str() {
        "tr" | "az" => Ok(true),
        "lt" => Err(format!("the letters of the language [{tag}] are not supported")),
        _ => Ok(false),
    }
}

fn to_integer(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    strings(types, 1, Integer)
}

fn two_to_integer(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    strings(types, 2, Integer)
}

fn all(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    if types.is_empty() { None } else { strings(types, types.len(), Keyword) }
}

fn text_and_numbers(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let (first, rest) = types.split_first()?;
    let numbers = rest.iter().all(|ty| ty.is_number() || *ty == Undefined);
    (string(*first) && numbers && (1..=2).contains(&rest.len())).then(|| {
        let mut wanted = vec![SqlType::Long; types.len()];
        wanted[0] = Keyword;
        (wanted, Keyword)
    })
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "ascii" => Definition::new(to_integer, |args, _| {
            Ok(Val::Int(text(args).chars().next().map_or(0, |letter| i64::from(u32::from(letter)))))
        }),
        // Characters, as SUBSTRING and LOCATE count them.
        "length" | "char_length" | "character_length" => {
            let count: Eval = |args, _| Ok(Val::Int(text(args).chars().count() as i64));
            Definition::new(to_integer, count).with_kernel(kernels::length)
        }
        "octet_length" => Definition::new(to_integer, |args, _| Ok(Val::Int(text(args).len() as i64)))
            .with_kernel(kernels::octet_length),
        "lower" | "lcase" => Definition::new(text_and_locale, |args, _| match has_dotless_i(args)? {
            // The second form of a dotted capital has its dot in a character of its own.
            true => {
                let text = text(args).replace('İ', "i").replace("I\u{307}", "i").replace('I', "ı");
                Ok(Val::str(text.to_lowercase()))
            }
            false => Ok(Val::str(text(args).to_lowercase())),
        })
        .with_kernel(kernels::lower),
        "upper" | "ucase" => Definition::new(text_and_locale, |args, _| match has_dotless_i(args)? {
            true => Ok(Val::str(text(args).replace('i', "İ").to_uppercase())),
            false => Ok(Val::str(text(args).to_uppercase())),
        })
        .with_kernel(kernels::upper),
        "trim" => {
            Definition::new(to_text, |args, _| Ok(Val::str(text(args).trim_matches(is_control_or_blank))))
        }
        "ltrim" => {
            Definition::new(to_text, |args, _| Ok(Val::str(text(args).trim_start_matches(is_java_space))))
        }
        "rtrim" => {
            Definition::new(to_text, |args, _| Ok(Val::str(text(args).trim_end_matches(is_java_space))))
        }
        "reverse" => {
            Definition::new(to_text, |args, _| Ok(Val::str(text(args).chars().rev().collect::<String>())))
        }
        "concat" => Definition::new(all, |args, _| joined(args.iter().map(Val::text), ""))
            .with_kernel(kernels::concat),
        "concat_ws" => Definition::with_nulls(all, |args, _| match args.split_first() {
            Some((Val::Null, _)) | None => Ok(Val::Null),
            Some((separator, rest)) => {
                joined(rest.iter().filter(|arg| **arg != Val::Null).map(Val::text), separator.text())
            }
        }),
        "left" => Definition::new(text_and_numbers, |args, _| {
            let count = usize::try_from(args.get(1).map_or(0, Val::int)).unwrap_or(0);
            Ok(Val::str(text(args).chars().take(count).collect::<String>()))
        }),
        "right" => Definition::new(text_and_numbers, |args, _| {
            let count = usize::try_from(args.get(1).map_or(0, Val::int)).unwrap_or(0);
            let letters = text(args).chars().count();
            Ok(Val::str(text(args).chars().skip(letters.saturating_sub(count)).collect::<String>()))
        }),
        "substring" | "substr" => Definition::new(text_and_numbers, |args, _| {
            let letters = text(args).chars().count() as i64;
            let start = args.get(1).map_or(0, Val::int);
            let length = args.get(2).map_or(i64::MAX, Val::int);
            let start = match start {
                0 => return Ok(Val::str("")),
                from_end if from_end < 0 => letters + from_end,
                from_start => from_start - 1,
            };
            if start < 0 || start >= letters || length <= 0 {
                return Ok(Val::str(""));
            }
            let (start, length) = (start as usize, usize::try_from(length).unwrap_or(usize::MAX));
            Ok(Val::str(text(args).chars().skip(start).take(length).collect::<String>()))
        }),
        "replace" => Definition::new(
            |types| strings(types, 3, Keyword),
            |args, _| {
                let [text, from, to] = args else { return Ok(Val::Null) };
                if from.text().is_empty() {
                    return Ok(text.clone());
                }
                let hits = text.text().matches(from.text()).count();
                if hits.saturating_mul(to.text().len()).saturating_add(text.text().len()) > MAX_BYTES {
                    return Err(too_long());
                }
                Ok(Val::Str(Cow::Owned(text.text().replace(from.text(), to.text()))))
            },
        )
        .with_kernel(kernels::replace),
        "locate" | "position" => Definition::new(located_types, |args, _| {
            let [part, whole, ..] = args else { return Ok(Val::Null) };
            let skip = args.get(2).map_or(1, Val::int);
            let Ok(skip) = usize::try_from(skip.saturating_sub(1)) else { return Ok(Val::Int(0)) };
            let Some((at, _)) = whole.text().char_indices().nth(skip) else {
                return Ok(Val::Int(i64::from(part.text().is_empty() && skip == 0)));
            };
            let rest = whole.text().get(at..).unwrap_or_default();
            let found = rest.find(part.text()).and_then(|at| rest.get(..at));
            Ok(Val::Int(found.map_or(0, |before| (before.chars().count() + skip + 1) as i64)))
        }),
        "strcmp" => Definition::new(two_to_integer, |args, _| {
            let [one, other] = args else { return Ok(Val::Null) };
            Ok(Val::Int(one.text().cmp(other.text()) as i64))
        }),
        "regexp" => Definition::new(two_to_integer, |args, _| {
            let [text, pattern] = args else { return Ok(Val::Null) };
            matches(pattern.text(), text.text()).map(|hit| Val::Int(i64::from(hit)))
        }),
        _ => return None,
    })
}

/// Returns true for what TRIM takes off, as `String.trim` of Java does.
fn is_control_or_blank(letter: char) -> bool {
    letter <= ' '
}

/// Returns true for what LTRIM and RTRIM take off, as `String.stripLeading` of Java does: not spaces that do not break.
fn is_java_space(letter: char) -> bool {
    let unbroken = matches!(letter, '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{85}');
    matches!(letter, '\u{1c}'..='\u{1f}') || letter.is_whitespace() && !unbroken
}

fn text<'v>(args: &'v [Val<'_>]) -> &'v str {
    args.first().map_or("", Val::text)
}

pub(super) fn too_long() -> String {
    format!("a string would be longer than {MAX_BYTES} bytes")
}

fn joined<'a, 'v>(parts: impl Iterator<Item = &'v str>, separator: &str) -> Result<Val<'a>, String> {
    let mut out = String::new();
    for (at, part) in parts.enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(part);
        if out.len() > MAX_BYTES {
            return Err(too_long());
        }
    }
    Ok(Val::str(out))
}

fn located_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [part, whole] if string(*part) && string(*whole) => Some((vec![Keyword, Keyword], Integer)),
        [part, whole, start] if string(*part) && string(*whole) && start.is_number() => {
            Some((vec![Keyword, Keyword, SqlType::Long], Integer))
        }
        _ => None,
    }
}

/// Returns whether the whole of a text is like a pattern, as the index has it: case does not matter for ASCII letters.
pub(super) fn like(text: &str, pattern: &str) -> Result<bool, String> {
    thread_local! {
        static LAST: RefCell<Option<(String, Dfa)>> = const { RefCell::new(None) };
    }
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| known != pattern) {
            let made = Dfa::wildcard(&pieces(&wildcard(pattern, false)), true, DEFAULT_EFFORT)
                .map_err(|_| format!("the pattern [{pattern}] of LIKE is too complex"))?;
            *last = Some((pattern.to_owned(), made));
        }
        let Some((_, dfa)) = last.as_ref() else { return Ok(false) };
        let mut state = dfa.start();
        for letter in text.chars() {
            let Some(at) = state else { return Ok(false) };
            state = dfa.step(at, letter.into());
        }
        Ok(state.is_some_and(|state| dfa.accepts(state)))
    })
}

/// Tells which texts are like the patterns beside them.
pub(super) fn alike(texts: &ArrayRef, patterns: &ArrayRef) -> PlanResult<BooleanArray> {
    let (Some(texts), Some(patterns)) = (texts.as_string_view_opt(), patterns.as_string_view_opt()) else {
        return exec_err!("LIKE got no texts");
    };
    let pairs = texts.iter().zip(patterns.iter());
    let alike = pairs.map(|pair| match pair {
        (Some(text), Some(pattern)) => like(text, pattern).map(Some).map_err(evaluation),
        _ => Ok(None),
    });
    alike.collect()
}

/// Returns whether the whole of a text is of a regular expression.
fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    thread_local! {
        static LAST: RefCell<Option<(String, regex::Regex)>> = const { RefCell::new(None) };
    }
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| known != pattern) {
            let compiled = regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
                .size_limit(1 << 20)
                .build()
                .map_err(|error| format!("[{pattern}] is no regular expression: {error}"))?;
            *last = Some((pattern.to_owned(), compiled));
        }
        Ok(last.as_ref().is_some_and(|(_, compiled)| compiled.is_match(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::row::Context;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn letters_are_counted_from_one() {
        let hello = || Val::str("helloworld");
        assert_eq!(run("substring", &[hello(), Val::Int(5), Val::Int(3)]), Val::str("owo"));
        assert_eq!(run("substring", &[hello(), Val::Int(-3)]), Val::str("rld"));
        assert_eq!(run("substring", &[hello(), Val::Int(50)]), Val::str(""));
        assert_eq!(run("locate", &[Val::str("world"), hello()]), Val::Int(6));
        assert_eq!(run("locate", &[Val::str("world"), hello(), Val::Int(7)]), Val::Int(0));
        assert_eq!(run("right", &[hello(), Val::Int(50)]), hello());
        assert_eq!(
            run("concat_ws", &[Val::str(","), Val::str("a"), Val::Null, Val::str("b")]),
            Val::str("a,b")
        );
        let emoji = || Val::str("a😀b");
        for name in ["length", "char_length", "character_length"] {
            assert_eq!(run(name, &[emoji()]), Val::Int(3), "{name}");
        }
        assert_eq!(run("octet_length", &[emoji()]), Val::Int(6));
        assert_eq!(run("locate", &[Val::str("b"), emoji()]), run("length", &[emoji()]));
        let blank = || Val::str("\u{0}\t\u{1f} \u{a0}\u{3000}x\u{3000}\u{a0} \n");
        assert_eq!(run("trim", &[blank()]), Val::str("\u{a0}\u{3000}x\u{3000}\u{a0}"));
        let spaces = || Val::str("\u{1f}\t\u{3000} \u{a0}x\u{a0}\u{2028}\n");
        assert_eq!(run("ltrim", &[spaces()]), Val::str("\u{a0}x\u{a0}\u{2028}\n"));
        assert_eq!(run("rtrim", &[spaces()]), Val::str("\u{1f}\t\u{3000} \u{a0}x\u{a0}"));
        assert_eq!(run("regexp", &[Val::str("abc"), Val::str("a.c")]), Val::Int(1));
    }
}
