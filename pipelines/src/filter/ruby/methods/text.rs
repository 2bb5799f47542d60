//! Methods of texts that leave them as they are, and formats.

use std::sync::Arc;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::syntax::Block;
use super::super::value::{RaisedError, Val};
use super::text_format::format as filled;
use super::{arg, int_arg, number, pattern, text_arg};

/// Methods of texts that leave them as they are.
pub(super) const NAMES: &[&str] = &[
    "length",
    "size",
    "bytesize",
    "empty?",
    "include?",
    "start_with?",
    "end_with?",
    "index",
    "rindex",
    "count",
    "==",
    "===",
    "=~",
    "match",
    "match?",
    "scan",
    "[]",
    "slice",
    "to_i",
    "to_f",
    "to_r",
    "to_c",
    "to_sym",
    "intern",
    "to_str",
    "hex",
    "oct",
    "ord",
    "bytes",
    "chars",
    "lines",
    "each_char",
    "each_line",
    "each_byte",
    "casecmp",
    "casecmp?",
    "<=>",
    "<",
    "<=",
    ">",
    ">=",
    "between?",
    "eql?",
    "+",
    "*",
    "%",
    "split",
    "partition",
    "rpartition",
    "ljust",
    "rjust",
    "center",
    "succ",
    "next",
    "encoding",
    "valid_encoding?",
    "ascii_only?",
    "sum",
    "delete_prefix",
    "delete_suffix",
    "itself",
];

/// Most letters of a text that is padded or repeated.
const MAX_PADDED: usize = 16 << 20;

/// Calls a method of a text.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    text: &Arc<str>,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    if let Err(flow) = run.step(text.len() / 256) {
        return Some(Err(flow));
    }
    let answer = match name {
        "length" | "size" => Ok(Val::Int(text.chars().count() as i64)),
        "bytesize" => Ok(Val::Int(text.len() as i64)),
        "empty?" => Ok(Val::Bool(text.is_empty())),
        "include?" => text_arg(args, 0).map(|part| Val::Bool(text.contains(&*part))).map_err(Flow::from),
        "start_with?" | "end_with?" => begins_or_ends(run, text, name, args),
        "index" | "rindex" => index(run, text, name, args),
        "count" => text_arg(args, 0).map_err(Flow::from).and_then(|set| {
            run.step(set.len().saturating_mul(text.len()) / 1024)?;
            let set = super::text_change::LetterSet::parse(&set);
            Ok(Val::Int(text.chars().filter(|letter| set.contains(*letter)).count() as i64))
        }),
        "=~" | "match" | "match?" => matched(run, text, name, args),
        "scan" => scan(run, text, args, block),
        "[]" | "slice" => slice(run, text, args),
        "to_i" => match args.first() {
            None => Ok(number::leading_integer(text, 10)),
            Some(_) => match int_arg(args, 0) {
                Ok(base @ 2..=36) => Ok(number::leading_integer(text, base as u32)),
                _ => Err(RaisedError::argument("invalid radix").into()),
            },
        },
        "to_f" | "to_r" | "to_c" => Ok(number::leading_float(text)),
        "hex" => Ok(number::leading_integer(text, 16)),
        "oct" => Ok(number::leading_integer(text, 8)),
        "to_sym" | "intern" => Ok(Val::Symbol(Arc::clone(text))),
        "to_str" | "to_s" | "itself" => Ok(Val::Text(Arc::clone(text))),
        "ord" => text
            .chars()
            .next()
            .map(|letter| Val::Int(i64::from(u32::from(letter))))
            .ok_or_else(|| RaisedError::argument("empty string").into()),
        "bytes" => run.array(text.bytes().map(|byte| Val::Int(i64::from(byte))).collect()),
        "sum" => Ok(Val::Int(text.bytes().map(i64::from).sum::<i64>() & 0xffff)),
        "chars" | "each_char" => letters(run, text, block),
        "lines" | "each_line" => {
            let lines: Vec<Val> = text.split_inclusive('\n').map(Val::text).collect();
            each(run, text, lines, block)
        }
        "each_byte" => each(run, text, text.bytes().map(|byte| Val::Int(i64::from(byte))).collect(), block),
        "casecmp" | "casecmp?" | "<=>" | "<" | "<=" | ">" | ">=" | "between?" | "eql?" => {
            compared(text, name, args)
        }
        "+" => match arg(args, 0) {
            Ok(Val::Text(more)) => {
                let joined = format!("{text}{more}");
                run.text(joined)
            }
            Ok(other) => {
                let what = if matches!(other, Val::Nil) { "nil" } else { other.class() };
                Err(RaisedError::type_error(format!("no implicit conversion of {what} into String")).into())
            }
            Err(error) => Err(error.into()),
        },
        "*" => int_arg(args, 0).map_err(Flow::from).and_then(|count| {
            let count =
                usize::try_from(count).map_err(|_| RaisedError::argument("argument must be non-negative"))?;
            run.allocate(text.len().saturating_mul(count))?;
            run.text(text.repeat(count))
        }),
        "%" => arg(args, 0).map_err(Flow::from).and_then(|value| {
            let values = super::super::interpreter::spread(value.clone());
            let text = filled(run, text, &values)?;
            run.text(text)
        }),
        "split" => split(run, text, args),
        "partition" | "rpartition" => partition(run, text, name, args),
        "ljust" | "rjust" | "center" => padded(run, text, name, args),
        "encoding" => Ok(Val::text("UTF-8")),
        "valid_encoding?" => Ok(Val::Bool(true)),
        "ascii_only?" => Ok(Val::Bool(text.is_ascii())),
        "delete_prefix" => text_arg(args, 0)
            .map_err(Flow::from)
            .and_then(|part| run.text(text.strip_prefix(&*part).unwrap_or(text))),
        "delete_suffix" => text_arg(args, 0)
            .map_err(Flow::from)
            .and_then(|part| run.text(text.strip_suffix(&*part).unwrap_or(text))),
        "succ" | "next" => run.text(successor(text)),
        _ => return None,
    };
    Some(answer)
}

fn letters(run: &mut Interpreter<'_>, text: &Arc<str>, block: Option<&Block>) -> Evaluated {
    let letters = text.chars().map(|letter| Val::text(letter.to_string())).collect();
    each(run, text, letters, block)
}

/// Runs a block for each of the parts, or returns them.
fn each(run: &mut Interpreter<'_>, text: &Arc<str>, parts: Vec<Val>, block: Option<&Block>) -> Evaluated {
    run.step(parts.len() / 8)?;
    run.allocate(parts.len().saturating_mul(48))?;
    match block {
        None => run.array(parts),
        Some(block) => {
            for part in parts {
                run.run_block(block, vec![part])?;
            }
            Ok(Val::Text(Arc::clone(text)))
        }
    }
}

fn begins_or_ends(run: &mut Interpreter<'_>, text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    for value in args {
        let holds = match value {
            Val::Regex(regex) => {
                let found = pattern::find_from(run, regex, text, 0)?;
                let begins = found
                    .and_then(|found| found.groups.first().cloned().flatten())
                    .is_some_and(|range| range.start == 0);
                begins && name == "start_with?"
            }
            Val::Text(part) if name == "start_with?" => text.starts_with(&**part),
            Val::Text(part) => text.ends_with(&**part),
            other => {
                return Err(RaisedError::type_error(format!(
                    "no implicit conversion of {} into String",
                    other.class()
                ))
                .into());
            }
        };
        if holds {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

/// Returns the byte at which a character begins; from the end where it is negative.
fn byte_of(text: &str, character: i64) -> Option<usize> {
    let count = text.chars().count() as i64;
    let at = if character < 0 { character + count } else { character };
    if at == count {
        return Some(text.len());
    }
    usize::try_from(at).ok().and_then(|at| text.char_indices().nth(at)).map(|(byte, _)| byte)
}

fn index(run: &mut Interpreter<'_>, text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    let from = match args.get(1) {
        None => 0,
        Some(_) => match byte_of(text, int_arg(args, 1)?) {
            Some(byte) => byte,
            None => return Ok(Val::Nil),
        },
    };
    let found = match arg(args, 0)? {
        Val::Text(part) if name == "index" => {
            text.get(from..).and_then(|rest| rest.find(&**part)).map(|at| at + from)
        }
        Val::Text(part) => {
            let end = if args.len() > 1 { (from + part.len()).min(text.len()) } else { text.len() };
            text.get(..end).and_then(|before| before.rfind(&**part))
        }
        Val::Regex(regex) if name == "index" => {
            let found = pattern::find_from(run, regex, text, from)?;
            let start = found
                .as_ref()
                .and_then(|found| found.groups.first().cloned().flatten())
                .map(|range| range.start);
            run.set_match(found);
            start
        }
        Val::Regex(regex) => {
            let (mut last, mut from) = (None, 0);
            while let Some(found) = pattern::find_from(run, regex, text, from)? {
                let Some(range) = found.groups.first().cloned().flatten() else { break };
                last = Some(range.start);
                let Some(letter) = text.get(range.start..).and_then(|rest| rest.chars().next()) else {
                    break;
                };
                from = range.start + letter.len_utf8();
            }
            last
        }
        other => {
            return Err(RaisedError::type_error(format!(
                "no implicit conversion of {} into String",
                other.class()
            ))
            .into());
        }
    };
    Ok(found.map_or(Val::Nil, |byte| {
        Val::Int(text.get(..byte).map_or(0, |before| before.chars().count()) as i64)
    }))
}

fn matched(run: &mut Interpreter<'_>, text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    let value = match arg(args, 0)? {
        // The text of `match` is an expression.
        Val::Text(expression) if name != "=~" => Val::Regex(run.expression(expression)?),
        other => other.clone(),
    };
    let found = pattern::find(run, &value, text, 0)?;
    Ok(match name {
        "match" => found,
        "match?" => Val::Bool(found.is_true()),
        _ => pattern::place(&found),
    })
}

fn scan(run: &mut Interpreter<'_>, text: &Arc<str>, args: &[Val], block: Option<&Block>) -> Evaluated {
    let regex = pattern::expression_of(run, arg(args, 0)?)?;
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(found) = pattern::find_from(run, &regex, text, from)? {
        let Some(range) = found.groups.first().cloned().flatten() else { break };
        let item = match found.groups.len() {
            1 => Val::optional(found.group(0)),
            count => run.array((1..count).map(|group| Val::optional(found.group(group))).collect())?,
        };
        from = range.end;
        if range.is_empty() {
            let Some(letter) = text.get(from..).and_then(|rest| rest.chars().next()) else {
                all.push(item);
                break;
            };
            from += letter.len_utf8();
        }
        match block {
            Some(block) => {
                run.set_match(Some(found));
                run.run_block(block, vec![item])?;
            }
            None => {
                run.allocate(64)?;
                all.push(item);
            }
        }
    }
    if block.is_some() { Ok(Val::Text(Arc::clone(text))) } else { run.array(all) }
}

/// Returns a part of a text: by place, by place and length, by range, by text or by expression.
pub(super) fn slice(run: &mut Interpreter<'_>, text: &Arc<str>, args: &[Val]) -> Evaluated {
    let part = match arg(args, 0)? {
        Val::Text(part) => text.contains(&**part).then(|| part.to_string()),
        Val::Regex(regex) => {
            let found = pattern::find_from(run, regex, text, 0)?;
            let part = found.as_ref().and_then(|found| match args.get(1) {
                None => found.group(0).map(str::to_owned),
                Some(Val::Text(name) | Val::Symbol(name)) => found.named(name).map(str::to_owned),
                Some(_) => {
                    let group = int_arg(args, 1).ok().and_then(|group| usize::try_from(group).ok())?;
                    found.group(group).map(str::to_owned)
                }
            });
            run.set_match(found);
            part
        }
        Val::Range { from, to, exclusive } => {
            let count = text.chars().count();
            super::array::bounds(from, to, *exclusive, count)
                .map(|range| text.chars().skip(range.start).take(range.len()).collect())
        }
        _ => {
            let count = text.chars().count() as i64;
            let at = int_arg(args, 0)?;
            let at = if at < 0 { at + count } else { at };
            match args.get(1) {
                None => usize::try_from(at).ok().and_then(|at| text.chars().nth(at)).map(String::from),
                Some(_) => {
                    let length = int_arg(args, 1)?;
                    (at >= 0 && at <= count && length >= 0)
                        .then(|| text.chars().skip(at as usize).take(length as usize).collect())
                }
            }
        }
    };
    match part {
        Some(part) => run.text(part),
        None => Ok(Val::Nil),
    }
}

fn compared(text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    let other = match arg(args, 0)? {
        Val::Text(other) => other,
        _ if matches!(name, "<=>" | "casecmp" | "casecmp?") => return Ok(Val::Nil),
        _ if name == "eql?" => return Ok(Val::Bool(false)),
        other => {
            let what = if matches!(other, Val::Nil) { "nil" } else { other.class() };
            return Err(RaisedError::argument(format!("comparison of String with {what} failed")).into());
        }
    };
    let order = text.cmp(other);
    Ok(match name {
        "<=>" => Val::Int(order as i64),
        "casecmp" => Val::Int(text.to_ascii_lowercase().cmp(&other.to_ascii_lowercase()) as i64),
        "casecmp?" => Val::Bool(text.to_lowercase() == other.to_lowercase()),
        "eql?" => Val::Bool(order.is_eq()),
        "<" => Val::Bool(order.is_lt()),
        "<=" => Val::Bool(order.is_le()),
        ">" => Val::Bool(order.is_gt()),
        ">=" => Val::Bool(order.is_ge()),
        _ => Val::Bool(order.is_ge() && **text <= *text_arg(args, 1)?),
    })
}

/// Splits as Ruby does: by white space, a text or an expression; empty parts at the end go, unless there is a limit.
fn split(run: &mut Interpreter<'_>, text: &Arc<str>, args: &[Val]) -> Evaluated {
    let limit = args.get(1).map_or(Ok(0), |_| int_arg(args, 1))?;
    let most = usize::try_from(limit).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    let mut parts: Vec<String> = Vec::new();
    match args.first() {
        None | Some(Val::Nil) => parts = whitespace(text, most),
        Some(Val::Text(by)) if &**by == " " => parts = whitespace(text, most),
        Some(Val::Text(by)) if by.is_empty() => {
            let mut letters = text.chars();
            while parts.len() + 1 < most {
                let Some(letter) = letters.next() else { break };
                parts.push(letter.to_string());
            }
            if !letters.as_str().is_empty() {
                parts.push(letters.as_str().to_owned());
            }
        }
        Some(Val::Text(by)) => parts = text.splitn(most, &**by).map(str::to_owned).collect(),
        Some(Val::Regex(regex)) => {
            let (mut begin, mut from) = (0, 0);
            while parts.len() + 1 < most {
                let Some(found) = pattern::find_from(run, regex, text, from)? else { break };
                let Some(range) = found.groups.first().cloned().flatten() else { break };
                if range.is_empty() {
                    // Between two characters; not before the first.
                    let Some(letter) = text.get(range.start..).and_then(|rest| rest.chars().next()) else {
                        break;
                    };
                    if range.start == begin {
                        from = range.start + letter.len_utf8();
                        if let Some(next) = pattern::find_from(run, regex, text, from)?
                            && next
                                .groups
                                .first()
                                .cloned()
                                .flatten()
                                .is_some_and(|next| next.start == from && next.is_empty())
                            && from < text.len()
                        {
                            parts.push(text.get(begin..from).unwrap_or_default().to_owned());
                            begin = from;
                        }
                        continue;
                    }
                }
                parts.push(text.get(begin..range.start).unwrap_or_default().to_owned());
                parts.extend(
                    (1..found.groups.len()).filter_map(|group| found.group(group)).map(str::to_owned),
                );
                begin = range.end;
                from = range.end.max(range.start + usize::from(range.is_empty()));
                run.allocate(48)?;
            }
            if !text.is_empty() {
                parts.push(text.get(begin..).unwrap_or_default().to_owned());
            }
        }
        Some(other) => {
            return Err(RaisedError::type_error(format!(
                "wrong argument type {} (expected Regexp)",
                other.class()
            ))
            .into());
        }
    }
    if text.is_empty() {
        parts.clear();
    }
    if limit == 0 {
        while parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
    }
    run.allocate(text.len())?;
    run.array(parts.into_iter().map(Val::text).collect())
}

fn whitespace(text: &str, most: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if parts.len() + 1 >= most {
            parts.push(rest.to_owned());
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        parts.push(part.to_owned());
        rest = behind.trim_start();
    }
    parts
}

fn partition(run: &mut Interpreter<'_>, text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    let range = match arg(args, 0)? {
        Val::Text(part) if name == "partition" => text.find(&**part).map(|at| at..at + part.len()),
        Val::Text(part) => text.rfind(&**part).map(|at| at..at + part.len()),
        value => {
            let regex = pattern::expression_of(run, value)?;
            let found = pattern::find_from(run, &regex, text, 0)?;
            found.and_then(|found| found.groups.first().cloned().flatten())
        }
    };
    let parts = match range {
        Some(range) => [text.get(..range.start), text.get(range.clone()), text.get(range.end..)],
        None if name == "partition" => [Some(&**text), Some(""), Some("")],
        None => [Some(""), Some(""), Some(&**text)],
    };
    run.array(parts.into_iter().map(|part| Val::text(part.unwrap_or_default())).collect())
}

fn padded(run: &mut Interpreter<'_>, text: &Arc<str>, name: &str, args: &[Val]) -> Evaluated {
    let width = usize::try_from(int_arg(args, 0)?).unwrap_or(0);
    let pad: Arc<str> = args.get(1).map_or_else(|| Ok(Arc::from(" ")), |_| text_arg(args, 1))?;
    if pad.is_empty() || width > MAX_PADDED {
        return Err(RaisedError::argument("the padding is empty or too long").into());
    }
    let missing = width.saturating_sub(text.chars().count());
    let fill = |count: usize| pad.chars().cycle().take(count).collect::<String>();
    let padded = match name {
        "ljust" => format!("{text}{}", fill(missing)),
        "rjust" => format!("{}{text}", fill(missing)),
        _ => format!("{}{text}{}", fill(missing / 2), fill(missing - missing / 2)),
    };
    run.text(padded)
}

/// The text behind a text: digits and letters count up, from the last on.
fn successor(text: &str) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let mut at = letters.len();
    while let Some(before) = at.checked_sub(1) {
        at = before;
        let Some(letter) = letters.get_mut(at) else { break };
        let (next, carries) = match *letter {
            'z' => ('a', true),
            'Z' => ('A', true),
            '9' => ('0', true),
            other => (char::from_u32(u32::from(other) + 1).unwrap_or(other), false),
        };
        *letter = next;
        if !carries {
            return letters.into_iter().collect();
        }
    }
    match letters.first() {
        Some('0') => letters.insert(0, '1'),
        Some(first) => letters.insert(0, *first),
        None => {}
    }
    letters.into_iter().collect()
}
