//! Methods of arrays that run a block for elements, or order them.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::interpreter::{Evaluated, Interpreter, spread};
use super::super::syntax::Block;
use super::super::value::{Members, RaisedError, Val};
use super::array::{Elements, known};
use super::{arg, case_equals, int_arg, needs_block, text_arg};

/// Runs a block for elements.
pub(super) fn iterate(
    run: &mut Interpreter<'_>,
    shared: &Elements,
    elements: Vec<Val>,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let answer = || -> Evaluated {
        match name {
            "each" | "each_entry" | "reverse_each" | "each_index" | "each_with_index"
            | "each_with_object" | "each_slice" | "each_cons" | "cycle" | "with_index" => {
                each(run, shared, elements, name, args, block)
            }
            "sort" | "sort_by" | "min" | "max" | "min_by" | "max_by" | "minmax" => {
                ordered(run, elements, name, args, block)
            }
            "count" | "any?" | "all?" | "none?" | "one?" => counted(run, &elements, name, args, block),
            "sum" | "inject" | "reduce" => folded(run, elements, name, args, block),
            "find" | "detect" | "find_index" | "index" | "rindex" => found(run, &elements, name, args, block),
            "uniq" => {
                let mut seen = std::collections::HashSet::new();
                let mut left = Vec::new();
                for element in elements {
                    let key = match block {
                        Some(block) => run.run_block(block, vec![element.clone()])?,
                        None => element.clone(),
                    };
                    if seen.insert(run.key(&key)?) {
                        left.push(element);
                    }
                }
                run.array(left)
            }
            _ => collected(run, elements, name, block),
        }
    };
    known(answer())
}

fn each(
    run: &mut Interpreter<'_>,
    shared: &Elements,
    mut elements: Vec<Val>,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    if block.is_none()
        && matches!(name, "each_slice" | "each_cons" | "each_with_index" | "each" | "each_index")
    {
        // Without a block, the parts themselves: for `each_slice(2).map { … }`.
        let size = if name.starts_with("each_s") || name == "each_cons" {
            usize::try_from(int_arg(args, 0)?).unwrap_or(0).max(1)
        } else {
            1
        };
        let parts: Vec<Val> = match name {
            "each_slice" => elements.chunks(size).map(|part| Val::array(part.to_vec())).collect(),
            "each_cons" => elements.windows(size).map(|part| Val::array(part.to_vec())).collect(),
            "each_with_index" => elements
                .into_iter()
                .enumerate()
                .map(|(at, value)| Val::array(vec![value, Val::Int(at as i64)]))
                .collect(),
            "each_index" => (0..elements.len() as i64).map(Val::Int).collect(),
            _ => elements,
        };
        run.allocate(parts.len().saturating_mul(64))?;
        return run.array(parts);
    }
    let block = needs_block(block)?;
    match name {
        "each_slice" | "each_cons" => {
            let size = usize::try_from(int_arg(args, 0)?).ok().filter(|size| *size > 0);
            let size = size.ok_or_else(|| RaisedError::argument("invalid slice size"))?;
            let parts: Vec<Vec<Val>> = if name == "each_slice" {
                elements.chunks(size).map(<[Val]>::to_vec).collect()
            } else {
                run.allocate(elements.len().saturating_mul(size).saturating_mul(32))?;
                elements.windows(size).map(<[Val]>::to_vec).collect()
            };
            for part in parts {
                run.run_block(block, vec![Val::array(part)])?;
            }
        }
        "each_with_object" => {
            let object = arg(args, 0)?.clone();
            for element in elements {
                run.run_block(block, vec![element, object.clone()])?;
            }
            return Ok(object);
        }
        "cycle" => {
            while !elements.is_empty() {
                for element in &elements {
                    run.run_block(block, vec![element.clone()])?;
                }
            }
        }
        _ => {
            if name == "reverse_each" {
                elements.reverse();
            }
            for (at, element) in elements.into_iter().enumerate() {
                let args = match name {
                    "each_with_index" | "with_index" => vec![element, Val::Int(at as i64)],
                    "each_index" => vec![Val::Int(at as i64)],
                    _ => vec![element],
                };
                run.run_block(block, args)?;
            }
        }
    }
    Ok(Val::Array(Arc::clone(shared)))
}

fn collected(run: &mut Interpreter<'_>, elements: Vec<Val>, name: &str, block: Option<&Block>) -> Evaluated {
    if block.is_none() && name == "to_h" {
        return pairs(run, elements);
    }
    if !matches!(
        name,
        "map"
            | "collect"
            | "flat_map"
            | "collect_concat"
            | "select"
            | "filter"
            | "find_all"
            | "reject"
            | "filter_map"
            | "partition"
            | "group_by"
            | "take_while"
            | "drop_while"
            | "to_h"
    ) {
        return Err(super::no_method());
    }
    let block = needs_block(block)?;
    let (mut made, mut others) = (Vec::new(), Vec::new());
    let mut groups = Members::new();
    let mut is_dropping = true;
    for element in elements {
        let value = if name == "drop_while" && !is_dropping {
            Val::Nil
        } else {
            run.run_block(block, vec![element.clone()])?
        };
        let is_true = value.is_true();
        run.allocate(32)?;
        match name {
            "map" | "collect" | "to_h" => made.push(value),
            "flat_map" | "collect_concat" => made.extend(spread(value)),
            "select" | "filter" | "find_all" if is_true => made.push(element),
            "reject" if !is_true => made.push(element),
            "filter_map" if is_true => made.push(value),
            "partition" if is_true => made.push(element),
            "partition" => others.push(element),
            "take_while" if !is_true => break,
            "take_while" => made.push(element),
            "drop_while" => {
                is_dropping &= is_true;
                if !is_dropping {
                    made.push(element);
                }
            }
            "group_by" => {
                let group = groups.entry(run.key(&value)?).or_insert_with(|| Val::array(Vec::new()));
                if let Val::Array(group) = group {
                    group.lock().push(element);
                }
            }
            _ => {}
        }
    }
    match name {
        "partition" => {
            let (first, second) = (run.array(made)?, run.array(others)?);
            run.array(vec![first, second])
        }
        "group_by" => run.hash(groups),
        "to_h" => pairs(run, made),
        _ => run.array(made),
    }
}

/// Makes a hash of pairs.
fn pairs(run: &mut Interpreter<'_>, elements: Vec<Val>) -> Evaluated {
    let mut members = Members::new();
    for element in elements {
        match element.elements().as_deref() {
            Some([key, value]) => drop(members.insert(run.key(key)?, value.clone())),
            _ => return Err(RaisedError::type_error("wrong element type (expected an array of two)").into()),
        }
    }
    run.hash(members)
}

fn ordered(
    run: &mut Interpreter<'_>,
    elements: Vec<Val>,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    run.step(elements.len())?;
    // Keys are made first: a sort needs an order that is the same for its whole time.
    let mut keyed = Vec::with_capacity(elements.len());
    let by_key = name.ends_with("_by");
    for element in elements {
        let key =
            if by_key { run.run_block(needs_block(block)?, vec![element.clone()])? } else { element.clone() };
        keyed.push((key, element));
    }
    let mut failure = None;
    let mut order = |a: &(Val, Val), b: &(Val, Val)| -> Ordering {
        if failure.is_some() {
            return Ordering::Equal;
        }
        let order = match block.filter(|_| !by_key) {
            Some(block) => match run.run_block(block, vec![a.1.clone(), b.1.clone()]) {
                Ok(Val::Int(order)) => Some(order.cmp(&0)),
                Ok(Val::Float(order)) => order.partial_cmp(&0.0),
                Ok(_) => None,
                Err(flow) => {
                    failure = Some(flow);
                    return Ordering::Equal;
                }
            },
            None => a.0.order(&b.0),
        };
        order.unwrap_or_else(|| {
            let message = format!("comparison of {} with {} failed", a.0.class(), b.0.class());
            failure = Some(RaisedError::argument(message).into());
            Ordering::Equal
        })
    };
    merge_sort(&mut keyed, &mut order);
    if let Some(flow) = failure {
        return Err(flow);
    }
    let sorted: Vec<Val> = keyed.into_iter().map(|(_, element)| element).collect();
    let most = args.first().map_or(Ok(None), |_| int_arg(args, 0).map(|most| usize::try_from(most).ok()))?;
    match (name, most) {
        ("sort" | "sort_by", _) => run.array(sorted),
        ("minmax", _) => {
            let (first, last) = (sorted.first().cloned(), sorted.last().cloned());
            run.array(vec![first.unwrap_or(Val::Nil), last.unwrap_or(Val::Nil)])
        }
        ("min" | "min_by", None) => Ok(sorted.first().cloned().unwrap_or(Val::Nil)),
        ("max" | "max_by", None) => Ok(sorted.last().cloned().unwrap_or(Val::Nil)),
        ("min" | "min_by", Some(most)) => run.array(sorted.into_iter().take(most).collect()),
        (_, most) => run.array(sorted.into_iter().rev().take(most.unwrap_or(usize::MAX)).collect()),
    }
}

/// Sorts by an order that may be none: the standard library may panic on such.
fn merge_sort<T: Clone>(list: &mut [T], order: &mut impl FnMut(&T, &T) -> Ordering) {
    if list.len() < 2 {
        return;
    }
    let (left, right) = list.split_at_mut(list.len() / 2);
    merge_sort(left, order);
    merge_sort(right, order);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if order(a, b).is_le() { left.next() } else { right.next() };
        merged.extend(next.cloned());
    }
    merged.extend(left.cloned());
    merged.extend(right.cloned());
    list.clone_from_slice(&merged);
}

fn counted(
    run: &mut Interpreter<'_>,
    elements: &[Val],
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    let mut count = 0_usize;
    for element in elements {
        let holds = match (args.first(), block) {
            (Some(value), _) if name == "count" => run.equals(element, value)?,
            (Some(pattern), _) => case_equals(run, pattern, element)?,
            (None, Some(block)) => run.run_block(block, vec![element.clone()])?.is_true(),
            (None, None) => name == "count" || element.is_true(),
        };
        count += usize::from(holds);
        match name {
            "any?" if holds => return Ok(Val::Bool(true)),
            "all?" if !holds => return Ok(Val::Bool(false)),
            "none?" if holds => return Ok(Val::Bool(false)),
            _ => {}
        }
    }
    Ok(match name {
        "count" => Val::Int(count as i64),
        "one?" => Val::Bool(count == 1),
        "any?" => Val::Bool(false),
        _ => Val::Bool(true),
    })
}

fn folded(
    run: &mut Interpreter<'_>,
    elements: Vec<Val>,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    let mut elements = elements.into_iter();
    if name == "sum" {
        let mut sum = args.first().cloned().unwrap_or(Val::Int(0));
        for element in elements {
            let value = match block {
                Some(block) => run.run_block(block, vec![element])?,
                None => element,
            };
            sum = super::call(run, &sum, "+", vec![value], None)?;
        }
        return Ok(sum);
    }
    let (initial, method) = match args {
        [] => (None, None),
        [Val::Symbol(_)] if block.is_none() => (None, Some(text_arg(args, 0)?)),
        [initial] => (Some(initial.clone()), None),
        [initial, ..] => (Some(initial.clone()), Some(text_arg(args, 1)?)),
    };
    let method = match method {
        Some(name) => Some(
            super::find(&name)
                .ok_or_else(|| RaisedError::new("NoMethodError", format!("undefined method '{name}'")))?,
        ),
        None => None,
    };
    let Some(mut result) = initial.or_else(|| elements.next()) else { return Ok(Val::Nil) };
    for element in elements {
        result = match method {
            Some(method) => super::call(run, &result, method, vec![element], None)?,
            None => run.run_block(needs_block(block)?, vec![result, element])?,
        };
    }
    Ok(result)
}

fn found(
    run: &mut Interpreter<'_>,
    elements: &[Val],
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    let places: Vec<usize> =
        if name == "rindex" { (0..elements.len()).rev().collect() } else { (0..elements.len()).collect() };
    for at in places {
        let Some(element) = elements.get(at) else { continue };
        let holds = match args.first() {
            Some(value) => run.equals(element, value)?,
            None => run.run_block(needs_block(block)?, vec![element.clone()])?.is_true(),
        };
        if holds {
            return Ok(if matches!(name, "find" | "detect") { element.clone() } else { Val::Int(at as i64) });
        }
    }
    Ok(Val::Nil)
}
