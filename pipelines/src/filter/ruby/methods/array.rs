//! Methods of arrays. Those that take a block work on the elements of the beginning.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::super::interpreter::{Evaluated, Flow, Interpreter, MAX_BYTES, spread};
use super::super::syntax::Block;
use super::super::value::{Key, Members, RaisedError, SharedArray, Val};
use super::{arg, array_blocks, int_arg, needs_block};

/// Methods of arrays.
pub(super) const NAMES: &[&str] = &[
    "length",
    "size",
    "count",
    "empty?",
    "any?",
    "all?",
    "none?",
    "one?",
    "first",
    "last",
    "[]",
    "[]=",
    "slice",
    "at",
    "dig",
    "fetch",
    "values_at",
    "push",
    "<<",
    "append",
    "pop",
    "shift",
    "unshift",
    "prepend",
    "insert",
    "concat",
    "+",
    "-",
    "&",
    "|",
    "*",
    "delete",
    "delete_at",
    "delete_if",
    "clear",
    "compact",
    "compact!",
    "flatten",
    "flatten!",
    "uniq",
    "uniq!",
    "reverse",
    "reverse!",
    "rotate",
    "sort",
    "sort!",
    "sort_by",
    "sort_by!",
    "min",
    "max",
    "min_by",
    "max_by",
    "minmax",
    "sum",
    "each",
    "each_with_index",
    "each_index",
    "each_with_object",
    "each_slice",
    "each_cons",
    "each_entry",
    "reverse_each",
    "map",
    "collect",
    "map!",
    "flat_map",
    "collect_concat",
    "select",
    "filter",
    "select!",
    "keep_if",
    "reject",
    "reject!",
    "filter_map",
    "find",
    "detect",
    "find_all",
    "find_index",
    "index",
    "rindex",
    "partition",
    "group_by",
    "inject",
    "reduce",
    "zip",
    "join",
    "include?",
    "member?",
    "take",
    "take_while",
    "drop",
    "drop_while",
    "to_a",
    "to_ary",
    "to_h",
    "to_set",
    "entries",
    "tally",
    "sample",
    "transpose",
    "assoc",
    "with_index",
    "cycle",
    "fill",
    "lazy",
];

pub(super) type Elements = Arc<SharedArray>;

/// Returns the places that a range means among so many.
pub(super) fn bounds(from: &Val, to: &Val, exclusive: bool, count: usize) -> Option<Range<usize>> {
    let place = |value: &Val, default: i64| match value {
        Val::Int(at) if *at < 0 => at + count as i64,
        Val::Int(at) => *at,
        _ => default,
    };
    let start = usize::try_from(place(from, 0)).ok().filter(|start| *start <= count)?;
    let last = place(to, count as i64 - 1);
    let exclusive = exclusive && !matches!(to, Val::Nil);
    let end = if exclusive { last } else { last + 1 };
    let end = usize::try_from(end).unwrap_or(0).clamp(start, count);
    Some(start..end)
}

/// Calls a method of an array.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    shared: &Elements,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    if !NAMES.contains(&name) {
        return None;
    }
    if let Some(called) = direct(run, shared, name, args) {
        return Some(called);
    }
    let elements = shared.lock().clone();
    if let Err(flow) = run.step(1 + elements.len() / 16) {
        return Some(Err(flow));
    }
    let called = access(run, shared, &elements, name, args);
    let called = called.or_else(|| change(run, shared, &elements, name, args, block));
    let called = called.or_else(|| derive(run, &elements, name, args));
    called.or_else(|| array_blocks::iterate(run, shared, elements, name, args, block))
}

/// Calls that touch one element, without a copy of the others.
fn direct(run: &mut Interpreter<'_>, shared: &Elements, name: &str, args: &[Val]) -> Option<Evaluated> {
    Some(match (name, args) {
        ("<<" | "push" | "append", args) => run.allocate(args.len().saturating_mul(32)).map(|()| {
            shared.lock().extend(args.iter().cloned());
            Val::Array(Arc::clone(shared))
        }),
        ("length" | "size", []) => Ok(Val::Int(shared.lock().len() as i64)),
        ("empty?", []) => Ok(Val::Bool(shared.lock().is_empty())),
        ("[]" | "at", [Val::Int(at)]) => {
            let elements = shared.lock();
            let at = if *at < 0 { at + elements.len() as i64 } else { *at };
            Ok(usize::try_from(at).ok().and_then(|at| elements.get(at)).cloned().unwrap_or(Val::Nil))
        }
        _ => return None,
    })
}

/// Looks at elements.
fn access(
    run: &mut Interpreter<'_>,
    shared: &Elements,
    elements: &[Val],
    name: &str,
    args: &[Val],
) -> Option<Evaluated> {
    let count = elements.len();
    let at = |place: i64| {
        let place = if place < 0 { place + count as i64 } else { place };
        usize::try_from(place).ok().and_then(|place| elements.get(place)).cloned()
    };
    let mut answer = || -> Evaluated {
        Ok(match name {
            "length" | "size" => Val::Int(count as i64),
            "empty?" => Val::Bool(count == 0),
            "[]" | "slice" | "at" => match (arg(args, 0)?, args.get(1)) {
                (Val::Range { from, to, exclusive }, None) => match bounds(from, to, *exclusive, count) {
                    Some(range) => return run.array(elements.get(range).unwrap_or_default().to_vec()),
                    None => Val::Nil,
                },
                (_, None) => at(int_arg(args, 0)?).unwrap_or(Val::Nil),
                (_, Some(_)) => {
                    let (start, length) = (int_arg(args, 0)?, int_arg(args, 1)?);
                    let start = usize::try_from(if start < 0 { start + count as i64 } else { start });
                    match (start, usize::try_from(length)) {
                        (Ok(start), Ok(length)) if start <= count => {
                            return run.array(elements.iter().skip(start).take(length).cloned().collect());
                        }
                        _ => Val::Nil,
                    }
                }
            },
            "first" | "take" | "last" | "drop" if !args.is_empty() => {
                let most = usize::try_from(int_arg(args, 0)?)
                    .map_err(|_| RaisedError::argument("negative array size"))?;
                let range = match name {
                    "first" | "take" => 0..most.min(count),
                    "last" => count.saturating_sub(most)..count,
                    _ => most.min(count)..count,
                };
                return run.array(elements.get(range).unwrap_or_default().to_vec());
            }
            "first" => elements.first().cloned().unwrap_or(Val::Nil),
            "last" => elements.last().cloned().unwrap_or(Val::Nil),
            "fetch" => match (at(int_arg(args, 0)?), args.get(1)) {
                (Some(value), _) => value,
                (None, Some(default)) => default.clone(),
                (None, None) => {
                    return Err(RaisedError::new("IndexError", "index outside of array bounds").into());
                }
            },
            "dig" => {
                let value = at(int_arg(args, 0)?).unwrap_or(Val::Nil);
                return super::dig(run, value, args.get(1..).unwrap_or_default());
            }
            "values_at" => {
                let mut values = Vec::new();
                for place in 0..args.len() {
                    values.push(at(int_arg(args, place)?).unwrap_or(Val::Nil));
                }
                return run.array(values);
            }
            "to_a" | "to_ary" | "entries" | "lazy" => Val::Array(Arc::clone(shared)),
            "include?" | "member?" => {
                let value = arg(args, 0)?;
                for element in elements {
                    if run.equals(element, value)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Val::Bool(false)
            }
            "join" => {
                let by = args.first().filter(|by| by.is_true()).map_or_else(|| Arc::from(""), Val::to_text);
                let text = joined(run, elements, &by)?;
                return run.text(text);
            }
            "assoc" => {
                let key = arg(args, 0)?;
                for pair in elements {
                    let first = pair.elements().and_then(|pair| pair.into_iter().next());
                    if let Some(first) = first
                        && run.equals(&first, key)?
                    {
                        return Ok(pair.clone());
                    }
                }
                Val::Nil
            }
            _ => return Err(super::no_method()),
        })
    };
    known(answer())
}

/// Turns the error for an unknown method into nothing.
pub(super) fn known(answer: Evaluated) -> Option<Evaluated> {
    match answer {
        Err(Flow::Raise(error)) if error.class == super::NO_METHOD && error.message.is_empty() => None,
        other => Some(other),
    }
}

/// Deepest nesting that `join` and `flatten` look into.
const MAX_FLATTENED: usize = 64;

fn joined(run: &mut Interpreter<'_>, elements: &[Val], by: &str) -> Result<String, Flow> {
    let mut text = String::new();
    join(run, elements, by, 0, &mut text)?;
    Ok(text)
}

fn join(
    run: &mut Interpreter<'_>,
    elements: &[Val],
    by: &str,
    depth: usize,
    text: &mut String,
) -> Result<(), Flow> {
    run.step(1 + elements.len() / 16)?;
    for (number, element) in elements.iter().enumerate() {
        if number > 0 {
            text.push_str(by);
        }
        match element.elements() {
            Some(inner) if depth < MAX_FLATTENED => join(run, &inner, by, depth + 1, text)?,
            _ => text.push_str(&element.to_text()),
        }
        if text.len() > MAX_BYTES {
            run.allocate(text.len())?;
        }
    }
    Ok(())
}

/// Changes the array in place.
fn change(
    run: &mut Interpreter<'_>,
    shared: &Elements,
    elements: &[Val],
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let receiver = || Val::Array(Arc::clone(shared));
    let count = elements.len();
    let mut answer = || -> Evaluated {
        Ok(match name {
            "concat" => {
                let more: Vec<Val> = args.iter().cloned().flat_map(spread).collect();
                run.allocate(more.len().saturating_mul(32))?;
                shared.lock().extend(more);
                receiver()
            }
            "unshift" | "prepend" => {
                run.allocate(args.len().saturating_mul(32))?;
                shared.lock().splice(0..0, args.iter().cloned());
                receiver()
            }
            "insert" => {
                let place = int_arg(args, 0)?;
                let place = usize::try_from(if place < 0 { place + count as i64 + 1 } else { place })
                    .unwrap_or(0)
                    .min(count);
                shared.lock().splice(place..place, args.iter().skip(1).cloned());
                receiver()
            }
            "pop" => shared.lock().pop().unwrap_or(Val::Nil),
            "shift" => {
                if count == 0 {
                    Val::Nil
                } else {
                    shared.lock().remove(0)
                }
            }
            "[]=" => {
                let place = int_arg(args, 0)?;
                let place = usize::try_from(if place < 0 { place + count as i64 } else { place })
                    .map_err(|_| RaisedError::new("IndexError", "index too small for array"))?;
                let value = arg(args, args.len().saturating_sub(1))?.clone();
                let missing = (place + 1).saturating_sub(count);
                run.allocate(missing.saturating_mul(32))?;
                let mut elements = shared.lock();
                if place >= elements.len() {
                    elements.resize(place + 1, Val::Nil);
                }
                if let Some(element) = elements.get_mut(place) {
                    *element = value.clone();
                }
                value
            }
            "delete" => {
                let value = arg(args, 0)?;
                let mut left = Vec::with_capacity(count);
                for element in elements {
                    if !run.equals(element, value)? {
                        left.push(element.clone());
                    }
                }
                let found = left.len() < count;
                *shared.lock() = left;
                if found { value.clone() } else { Val::Nil }
            }
            "delete_at" => {
                let place = int_arg(args, 0)?;
                let place = usize::try_from(if place < 0 { place + count as i64 } else { place })
                    .ok()
                    .filter(|place| *place < count);
                place.map_or(Val::Nil, |place| shared.lock().remove(place))
            }
            "clear" => {
                shared.lock().clear();
                receiver()
            }
            "delete_if" | "reject!" | "select!" | "keep_if" => {
                let block = needs_block(block)?;
                let keeps = matches!(name, "select!" | "keep_if");
                let mut left = Vec::new();
                for element in elements {
                    if run.run_block(block, vec![element.clone()])?.is_true() == keeps {
                        left.push(element.clone());
                    }
                }
                let is_same = left.len() == count;
                *shared.lock() = left;
                if is_same && name.ends_with('!') { Val::Nil } else { receiver() }
            }
            "map!" | "sort!" | "sort_by!" | "compact!" | "flatten!" | "uniq!" | "reverse!" => {
                let plain = super::find(name.trim_end_matches('!')).unwrap_or("to_a");
                let Val::Array(made) = super::call(run, &receiver(), plain, args.to_vec(), block)? else {
                    return Ok(Val::Nil);
                };
                let made = made.lock().clone();
                let is_same = made.len() == count;
                *shared.lock() = made;
                if is_same && matches!(name, "compact!" | "uniq!") { Val::Nil } else { receiver() }
            }
            "fill" => {
                let value = arg(args, 0)?;
                shared.lock().fill(value.clone());
                receiver()
            }
            _ => return Err(super::no_method()),
        })
    };
    known(answer())
}

/// Makes others of the elements, without a block.
fn derive(run: &mut Interpreter<'_>, elements: &[Val], name: &str, args: &[Val]) -> Option<Evaluated> {
    let others = || -> Result<Vec<Val>, Flow> {
        arg(args, 0)?
            .elements()
            .ok_or_else(|| RaisedError::type_error("no implicit conversion into Array").into())
    };
    let mut answer = || -> Evaluated {
        let made = match name {
            "+" => {
                let others = others()?;
                elements.iter().cloned().chain(others).collect()
            }
            "-" => {
                let others = others()?;
                selected(run, elements, &others, false)?
            }
            "&" => {
                let others = others()?;
                let common = selected(run, elements, &others, true)?;
                distinct(run, common)?
            }
            "|" => {
                let others = others()?;
                distinct(run, elements.iter().cloned().chain(others).collect())?
            }
            "*" => match arg(args, 0)? {
                Val::Text(by) => {
                    let text = joined(run, elements, by)?;
                    return run.text(text);
                }
                _ => {
                    let times = usize::try_from(int_arg(args, 0)?)
                        .map_err(|_| RaisedError::argument("argument must be non-negative"))?;
                    run.allocate(elements.len().saturating_mul(times).saturating_mul(32))?;
                    elements.iter().cycle().take(elements.len() * times).cloned().collect()
                }
            },
            "compact" => elements.iter().filter(|value| !matches!(value, Val::Nil)).cloned().collect(),
            "flatten" => {
                let depth = args.first().map_or(Ok(64), |_| int_arg(args, 0))?;
                let mut flat = Vec::new();
                let depth = usize::try_from(depth).unwrap_or(MAX_FLATTENED).min(MAX_FLATTENED);
                flatten(run, elements, depth, &mut flat)?;
                flat
            }
            "reverse" => elements.iter().rev().cloned().collect(),
            "rotate" => {
                let by = args.first().map_or(Ok(1), |_| int_arg(args, 0))?;
                let mut rotated = elements.to_vec();
                if !rotated.is_empty() {
                    let by = by.rem_euclid(rotated.len() as i64) as usize;
                    rotated.rotate_left(by);
                }
                rotated
            }
            "zip" => {
                let others: Vec<Vec<Val>> =
                    args.iter().map(|other| other.elements().unwrap_or_default()).collect();
                run.allocate(elements.len().saturating_mul(64))?;
                let row = |(at, value): (usize, &Val)| {
                    let rest = others.iter().map(|other| other.get(at).cloned().unwrap_or(Val::Nil));
                    Val::array(std::iter::once(value.clone()).chain(rest).collect())
                };
                elements.iter().enumerate().map(row).collect()
            }
            "transpose" => {
                let rows: Vec<Vec<Val>> =
                    elements.iter().map(|row| row.elements().unwrap_or_default()).collect();
                let width = rows.first().map_or(0, Vec::len);
                if rows.iter().any(|row| row.len() != width) {
                    return Err(RaisedError::new("IndexError", "element size differs").into());
                }
                (0..width)
                    .map(|at| Val::array(rows.iter().filter_map(|row| row.get(at).cloned()).collect()))
                    .collect()
            }
            "tally" => {
                let mut counts = Members::new();
                for value in elements {
                    let count = counts.entry(run.key(value)?).or_insert(Val::Int(0));
                    if let Val::Int(count) = count {
                        *count += 1;
                    }
                }
                return run.hash(counts);
            }
            "sample" => {
                let at = rand::random::<u32>() as usize % elements.len().max(1);
                return Ok(elements.get(at).cloned().unwrap_or(Val::Nil));
            }
            "to_set" => distinct(run, elements.to_vec())?,
            _ => return Err(super::no_method()),
        };
        run.array(made)
    };
    known(answer())
}

fn flatten(
    run: &mut Interpreter<'_>,
    elements: &[Val],
    depth: usize,
    flat: &mut Vec<Val>,
) -> Result<(), Flow> {
    run.step(1 + elements.len() / 16)?;
    run.allocate(elements.len().saturating_mul(32))?;
    for element in elements {
        match element.elements() {
            Some(inner) if depth > 0 => flatten(run, &inner, depth - 1, flat)?,
            _ => flat.push(element.clone()),
        }
    }
    Ok(())
}

/// Returns the elements that are among others, or those that are not.
fn selected(
    run: &mut Interpreter<'_>,
    elements: &[Val],
    others: &[Val],
    wanted: bool,
) -> Result<Vec<Val>, Flow> {
    let keys: HashSet<Key> = others.iter().map(|other| run.key(other)).collect::<Result<_, _>>()?;
    let mut left = Vec::new();
    for element in elements {
        if keys.contains(&run.key(element)?) == wanted {
            left.push(element.clone());
        }
    }
    Ok(left)
}

/// Returns the elements without those that stand before.
fn distinct(run: &mut Interpreter<'_>, elements: Vec<Val>) -> Result<Vec<Val>, Flow> {
    let (mut seen, mut left) = (HashSet::new(), Vec::new());
    for element in elements {
        if seen.insert(run.key(&element)?) {
            left.push(element);
        }
    }
    Ok(left)
}
