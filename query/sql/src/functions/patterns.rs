//! Functions of texts and regular expressions.

use std::borrow::Cow;
use std::cell::RefCell;

use regex::{Captures, Regex, RegexBuilder};
use serde_json::json;

use super::Definition;
use super::row::{Context, Val};
use crate::types::SqlType::{self, Array, Boolean, Keyword, Undefined};

type Answer<'a> = Result<Val<'a>, String>;

/// Longest text that a function makes, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "regexp_match" => Definition::new(
            |types| texts(types, 2, Boolean),
            |args, _| {
                let [text, pattern] = args else { return Ok(Val::Null) };
                with_regex(pattern.text(), |regex| Ok(Val::Bool(regex.is_match(text.text()))))
            },
        ),
        "regexp_replace" => Definition::new(
            |types| texts(types, 3, Keyword),
            |args, _| {
                let [text, pattern, replacement] = args else { return Ok(Val::Null) };
                let replacement = groups_by_number(replacement.text());
                with_regex(pattern.text(), |regex| replaced(regex, text.text(), &replacement, usize::MAX))
            },
        ),
        "isempty" => Definition::with_nulls(is_empty_types, |args, _| {
            Ok(Val::Bool(args.first().is_none_or(|text| *text == Val::Null || text.text().is_empty())))
        }),
        "isblank" => Definition::with_nulls(is_empty_types, |args, _| {
            Ok(Val::Bool(args.first().is_none_or(|text| *text == Val::Null || text.text().trim().is_empty())))
        }),
        "parse_group" => Definition::with_nulls(
            |types| texts(types, 3, Keyword),
            |args, context| {
                Ok(match rex_group(args, context)? {
                    Val::Null => Val::str(""),
                    found => found,
                })
            },
        ),
        "rex_group" => Definition::new(|types| texts(types, 3, Keyword), rex_group),
        "rex_groups" => Definition::new(rex_groups_types, rex_groups),
        "rex_offsets" => Definition::new(|types| texts(types, 2, Keyword), rex_offsets),
        "sed" => Definition::new(|types| texts(types, 2, Keyword), sed),
        "wildcard_replace" => Definition::new(|types| texts(types, 3, Keyword), wildcard_replace),
        "like_exactly" => Definition::new(
            |types| texts(types, 2, Boolean),
            |args, _| {
                let [text, pattern] = args else { return Ok(Val::Null) };
                with_regex(&like_pattern(pattern.text()), |regex| Ok(Val::Bool(regex.is_match(text.text()))))
            },
        ),
        _ => return None,
    })
}

fn texts(types: &[SqlType], count: usize, ty: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    let fits = |ty: &SqlType| !ty.is_json() && *ty != SqlType::Interval;
    (types.len() == count && types.iter().all(fits)).then(|| (vec![Keyword; count], ty))
}

/// Takes one value; arrays and objects are their texts.
fn is_empty_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [ty] if ty.is_json() => Some((vec![*ty], Boolean)),
        types => texts(types, 1, Boolean),
    }
}

fn rex_groups_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [text, pattern, name, count] = types else { return None };
    let fits = [text, pattern, name].iter().all(|ty| ty.is_string() || **ty == Undefined);
    (fits && count.is_integer()).then(|| (vec![Keyword, Keyword, Keyword, SqlType::Long], Array))
}

/// Runs a part with the regular expression of a text; the last one stays compiled.
pub(super) fn with_regex<T>(
    pattern: &str,
    part: impl FnOnce(&Regex) -> Result<T, String>,
) -> Result<T, String> {
    thread_local! {
        static LAST: RefCell<Option<(String, Regex)>> = const { RefCell::new(None) };
    }
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| known != pattern) {
            let compiled = RegexBuilder::new(&with_known_groups(pattern))
                .size_limit(1 << 20)
                .build()
                .map_err(|error| format!("[{pattern}] is no regular expression: {}", fault(&error)))?;
            *last = Some((pattern.to_owned(), compiled));
        }
        match last.as_ref() {
            Some((_, regex)) => part(regex),
            None => Err(format!("[{pattern}] is no regular expression")),
        }
    })
}

/// Words a fault of a regular expression.
fn fault(error: &regex::Error) -> String {
    let text = error.to_string();
    let known =
        [("unclosed character class", "Unclosed character class"), ("unclosed group", "Unclosed group")];
    match known.iter().find(|(own, _)| text.contains(own)) {
        Some((_, fault)) => format!("{fault}; {text}"),
        None => text,
    }
}

/// Writes named groups, and literals between `\Q` and `\E`, as the library reads them.
fn with_known_groups(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains("\\Q") {
        return with_groups(pattern);
    }
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, behind)) = split_at_quote(rest) {
        let (literal, next) = behind.split_once("\\E").unwrap_or((behind, ""));
        out.push_str(&with_groups(before));
        out.push_str(&regex::escape(literal));
        rest = next;
    }
    out.push_str(&with_groups(rest));
    Cow::Owned(out)
}

/// Splits a pattern at its first `\Q`; that of `\\Q` is a backslash and a letter.
fn split_at_quote(pattern: &str) -> Option<(&str, &str)> {
    let is_quote = |at: usize| {
        let before = pattern.get(..at).unwrap_or_default();
        (before.len() - before.trim_end_matches('\\').len()).is_multiple_of(2)
    };
    let (at, quote) = pattern.match_indices("\\Q").find(|(at, _)| is_quote(*at))?;
    Some((pattern.get(..at)?, pattern.get(at + quote.len()..)?))
}

/// Writes named groups as the library reads them.
fn with_groups(pattern: &str) -> Cow<'_, str> {
    // Looking around has the same beginning.
    match pattern.contains("(?<") && !pattern.contains("(?<=") && !pattern.contains("(?<!") {
        true => Cow::Owned(pattern.replace("(?<", "(?P<")),
        false => Cow::Borrowed(pattern),
    }
}

/// Writes references to groups, `\1` and `$1`, as the library reads them.
fn groups_by_number(replacement: &str) -> String {
    let mut out = String::with_capacity(replacement.len());
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        if matches!(letter, '\\' | '$') && letters.peek().is_some_and(char::is_ascii_digit) {
            out.push_str("${");
            while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                out.push(digit);
            }
            out.push('}');
        } else if letter == '$' {
            out.push_str("$$");
        } else if letter == '\\' {
            out.extend(letters.next());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Appends a part of a text that is made.
fn append(out: &mut String, part: &str) -> Result<(), String> {
    if out.len() + part.len() > MAX_BYTES {
        return Err(format!("a string would be longer than {MAX_BYTES} bytes"));
    }
    out.push_str(part);
    Ok(())
}

/// Appends a replacement of [`groups_by_number`], with the texts of the groups.
fn expand(found: &Captures<'_>, replacement: &str, out: &mut String) -> Result<(), String> {
    let mut rest = replacement;
    while let Some((before, behind)) = rest.split_once('$') {
        append(out, before)?;
        rest = match behind.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
            Some((number, behind)) => {
                let group = number.parse().ok().and_then(|number: usize| found.get(number));
                append(out, group.map_or("", |group| group.as_str()))?;
                behind
            }
            None => {
                append(out, "$")?;
                behind.strip_prefix('$').unwrap_or(behind)
            }
        };
    }
    append(out, rest)
}

fn replaced<'a>(regex: &Regex, text: &str, replacement: &str, most: usize) -> Answer<'a> {
    let mut out = String::new();
    let mut last = 0;
    for found in regex.captures_iter(text).take(most) {
        let Some(whole) = found.get(0) else { continue };
        out.push_str(text.get(last..whole.start()).unwrap_or_default());
        expand(&found, replacement, &mut out)?;
        last = whole.end();
    }
    out.push_str(text.get(last..).unwrap_or_default());
    Ok(Val::str(out))
}

fn rex_group<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, pattern, name] = args else { return Ok(Val::Null) };
    if *text == Val::Null {
        return Ok(Val::Null);
    }
    with_regex(pattern.text(), |regex| {
        let found = regex.captures(text.text());
        let group = found.as_ref().and_then(|found| found.name(name.text()));
        Ok(group.map_or(Val::Null, |group| Val::str(group.as_str())))
    })
}

fn rex_groups<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, pattern, name, count] = args else { return Ok(Val::Null) };
    let most = usize::try_from(count.int()).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    with_regex(pattern.text(), |regex| {
        let found = regex.captures_iter(text.text()).take(most);
        let groups: Vec<&str> = found.filter_map(|found| Some(found.name(name.text())?.as_str())).collect();
        Ok(if groups.is_empty() { Val::Null } else { Val::str(json!(groups).to_string()) })
    })
}

/// Writes the letters that each named group spans: `name=first-last`, by name.
fn rex_offsets<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, pattern] = args else { return Ok(Val::Null) };
    with_regex(pattern.text(), |regex| {
        let Some(found) = regex.captures(text.text()) else { return Ok(Val::Null) };
        let letters = |bytes: usize| text.text().get(..bytes).unwrap_or_default().chars().count();
        let mut offsets: Vec<String> = Vec::new();
        for name in regex.capture_names().flatten() {
            if let Some(group) = found.name(name) {
                let last = letters(group.end()).saturating_sub(1);
                offsets.push(format!("{name}={}-{last}", letters(group.start())));
            }
        }
        offsets.sort_unstable();
        Ok(if offsets.is_empty() { Val::Null } else { Val::str(offsets.join("&")) })
    })
}

/// Edits a text by `s/pattern/replacement/flags` or `y/letters/others/`.
fn sed<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, command] = args else { return Ok(Val::Null) };
    let command = command.text();
    let refused = || format!("[{command}] is no command of sed: expected s/pattern/replacement/flags");
    let mut letters = command.chars();
    let (kind, separator) = (letters.next().ok_or_else(refused)?, letters.next().ok_or_else(refused)?);
    let mut parts = vec![String::new()];
    while let Some(letter) = letters.next() {
        let Some(part) = parts.last_mut() else { break };
        match letter {
            '\\' => {
                let next = letters.next();
                if next != Some(separator) {
                    part.push('\\');
                }
                part.extend(next);
            }
            own if own == separator => parts.push(String::new()),
            own => part.push(own),
        }
    }
    let [first, second, flags] = parts.as_slice() else { return Err(refused()) };
    match kind {
        's' => {
            let most = match flags.as_str() {
                "" => 1,
                "g" | "gi" | "ig" => usize::MAX,
                "i" => 1,
                number => {
                    return sed_nth(text.text(), (first, second), number.parse().map_err(|_| refused())?);
                }
            };
            let pattern = if flags.contains('i') { format!("(?i){first}") } else { first.clone() };
            let replacement = groups_by_number(second);
            with_regex(&pattern, |regex| replaced(regex, text.text(), &replacement, most))
        }
        'y' => {
            let (from, to): (Vec<char>, Vec<char>) = (first.chars().collect(), second.chars().collect());
            if from.len() != to.len() {
                return Err(refused());
            }
            let other = |letter: char| {
                from.iter()
                    .position(|own| *own == letter)
                    .and_then(|at| to.get(at))
                    .copied()
                    .unwrap_or(letter)
            };
            Ok(Val::str(text.text().chars().map(other).collect::<String>()))
        }
        _ => Err(refused()),
    }
}

/// Replaces the match of a number, from one.
fn sed_nth<'a>(text: &str, (pattern, replacement): (&str, &str), number: usize) -> Answer<'a> {
    let replacement = groups_by_number(replacement);
    with_regex(pattern, |regex| {
        let Some(found) = regex.captures_iter(text).nth(number.saturating_sub(1)) else {
            return Ok(Val::str(text));
        };
        let Some(whole) = found.get(0) else { return Ok(Val::str(text)) };
        let mut out = text.get(..whole.start()).unwrap_or_default().to_owned();
        expand(&found, &replacement, &mut out)?;
        out.push_str(text.get(whole.end()..).unwrap_or_default());
        Ok(Val::str(out))
    })
}

/// Replaces a text that a pattern with `*` stands for; each `*` of the replacement is the text of the `*` of its number.
fn wildcard_replace<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, pattern, replacement] = args else { return Ok(Val::Null) };
    let parts: Vec<String> = wildcard_parts(pattern.text()).iter().map(|part| regex::escape(part)).collect();
    with_regex(&format!("^(?s:{})$", parts.join("(.*?)")), |regex| {
        let Some(found) = regex.captures(text.text()) else { return Ok(text.clone()) };
        let mut out = String::new();
        for (at, part) in wildcard_parts(replacement.text()).iter().enumerate() {
            if at > 0 {
                out.push_str(found.get(at).map_or("", |group| group.as_str()));
            }
            out.push_str(part);
        }
        Ok(Val::str(out))
    })
}

/// Splits a pattern at each `*`; a backslash makes it, or another backslash, a letter of its own.
fn wildcard_parts(pattern: &str) -> Vec<String> {
    let (mut parts, mut letters) = (vec![String::new()], pattern.chars().peekable());
    while let Some(letter) = letters.next() {
        let escaped = (letter == '\\').then(|| letters.next_if(|next| matches!(next, '*' | '\\'))).flatten();
        match (letter, escaped) {
            ('*', _) => parts.push(String::new()),
            (letter, escaped) => {
                if let Some(part) = parts.last_mut() {
                    part.push(escaped.unwrap_or(letter));
                }
            }
        }
    }
    parts
}

/// Writes a pattern of LIKE as a regular expression that tells upper from lower case.
fn like_pattern(pattern: &str) -> String {
    let mut out = String::from("^(?s:");
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '\\' => out.push_str(&regex::escape(&letters.next().map(String::from).unwrap_or_default())),
            own => out.push_str(&regex::escape(&own.to_string())),
        }
    }
    out.push_str(")$");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[&str]) -> Val<'static> {
        let args: Vec<Val<'static>> = args.iter().map(|text| Val::str(*text)).collect();
        (find(name).unwrap().eval)(&args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn groups_of_expressions() {
        assert_eq!(run("parse_group", &["a@b.c", ".+@(?<host>.+)", "host"]), Val::str("b.c"));
        assert_eq!(run("parse_group", &["none", ".+@(?<host>.+)", "host"]), Val::str(""));
        assert_eq!(run("rex_group", &["none", ".+@(?<host>.+)", "host"]), Val::Null);
        assert_eq!(run("rex_offsets", &["ab12", "(?<l>[a-z]+)(?<d>[0-9]+)"]), Val::str("d=2-3&l=0-1"));
        assert_eq!(run("regexp_replace", &["2024-05", r"(\d+)-(\d+)", r"\2/\1"]), Val::str("05/2024"));
        // A quote begins at a backslash that no other one escapes.
        assert_eq!(run("regexp_replace", &["a.b", r"\Q.\E", "-"]), Val::str("a-b"));
        assert_eq!(run("regexp_replace", &[r"C:\Quux", r"\\Qu+x", "-"]), Val::str("C:-"));
        assert_eq!(run("regexp_replace", &[r"C:\.x", r"\\\Q.\Ex", "-"]), Val::str("C:-"));
    }

    #[test]
    fn edits_of_texts() {
        assert_eq!(run("sed", &["aXbX", "s/X/-/g"]), Val::str("a-b-"));
        assert_eq!(run("sed", &["aXbX", "s/X/-/"]), Val::str("a-bX"));
        assert_eq!(run("sed", &["aXbX", "s/X/-/2"]), Val::str("aXb-"));
        assert_eq!(run("sed", &["abc", "y/ab/xy/"]), Val::str("xyc"));
        assert_eq!(run("wildcard_replace", &["New York", "New *", "* (new)"]), Val::str("York (new)"));
        assert_eq!(run("wildcard_replace", &["a.b", "a*", "x"]), Val::str("x"));
        assert_eq!(run("wildcard_replace", &["a*b", r"a\*b", "x"]), Val::str("x"));
        assert_eq!(run("wildcard_replace", &["f1.t", "f*.*", r"\**.*"]), Val::str("*1.t"));
        assert_eq!(run("like_exactly", &["Abc", "A_c"]), Val::Bool(true));
        assert_eq!(run("like_exactly", &["Abc", "a%"]), Val::Bool(false));
        assert_eq!(run("regexp_replace", &["ab", "(a)(b)", "$2$$1 ${1} \\1"]), Val::str("b$a ${1} a"));
        assert_eq!((run("isblank", &[" "]), run("isempty", &[" "])), (Val::Bool(true), Val::Bool(false)));
        assert_eq!(run("isempty", &[""]), Val::Bool(true));
    }

    #[test]
    fn long_results_are_refused() {
        let (text, groups) = ("x".repeat(10_000), r"\1".repeat(200));
        for (name, args) in [
            ("regexp_replace", [text.as_str(), "(.+)", groups.as_str()].map(Val::str).to_vec()),
            ("sed", vec![Val::str(text.as_str()), Val::str(format!("s/(.+)/{groups}/"))]),
            ("sed", vec![Val::str(text.as_str()), Val::str(format!("s/(.+)/{groups}/1"))]),
        ] {
            let answer = (find(name).unwrap().eval)(&args, Context { now: 0, ty: Keyword });
            assert!(answer.is_err(), "{name}");
        }
    }
}
