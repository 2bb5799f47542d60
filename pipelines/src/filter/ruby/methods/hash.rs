//! Methods of hashes; those of arrays work on their pairs.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::syntax::Block;
use super::super::value::{Key, Members, RaisedError, SharedHash, Val};
use super::array::known;
use super::{arg, needs_block};

/// Methods of hashes.
pub(super) const NAMES: &[&str] = &[
    "[]",
    "[]=",
    "store",
    "fetch",
    "dig",
    "key?",
    "has_key?",
    "include?",
    "member?",
    "value?",
    "has_value?",
    "key",
    "keys",
    "values",
    "values_at",
    "fetch_values",
    "length",
    "size",
    "count",
    "empty?",
    "delete",
    "delete_if",
    "reject!",
    "select!",
    "keep_if",
    "clear",
    "merge",
    "merge!",
    "update",
    "each",
    "each_pair",
    "each_key",
    "each_value",
    "map",
    "select",
    "filter",
    "reject",
    "transform_values",
    "transform_keys",
    "transform_values!",
    "transform_keys!",
    "invert",
    "to_h",
    "to_hash",
    "to_a",
    "sort_by",
    "any?",
    "all?",
    "find",
    "min_by",
    "max_by",
    "slice",
    "except",
    "compact",
    "compact!",
    "first",
    "partition",
    "group_by",
    "sum",
    "replace",
    "compare_by_identity",
    "default=",
];

type SharedMembers = Arc<SharedHash>;

/// Calls a method of a hash.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    shared: &SharedMembers,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    if let Err(flow) = run.step(shared.lock().len() / divisor(name)) {
        return Some(Err(flow));
    }
    let called = access(run, shared, name, args, block);
    let called = called.or_else(|| change(run, shared, name, args, block));
    let called = called.or_else(|| iterate(run, shared, name, args, block));
    if called.is_some() {
        return called;
    }
    let is_of_arrays =
        matches!(name, "+" | "-" | "&" | "|" | "*" | "<<" | "push" | "join" | "concat" | "pop" | "shift");
    if is_of_arrays || !super::array::NAMES.contains(&name) {
        return None;
    }
    let pairs = pair_list(shared);
    if let Err(flow) = run.allocate(pairs.len().saturating_mul(96)) {
        return Some(Err(flow));
    }
    match Val::array(pairs) {
        Val::Array(pairs) => super::array::call(run, &pairs, name, args, block),
        _ => None,
    }
}

/// Returns the number of members that a method looks at in a step.
fn divisor(name: &str) -> usize {
    match name {
        "[]" | "[]=" | "store" | "fetch" | "dig" | "key?" | "has_key?" | "include?" | "member?"
        | "length" | "size" | "empty?" | "values_at" | "fetch_values" | "to_h" | "to_hash" => usize::MAX,
        "delete" => 256,
        _ => 16,
    }
}

/// Returns the value of a key. Making the key may lock the hash, so it is made before.
fn get(run: &mut Interpreter<'_>, shared: &SharedMembers, key: &Val) -> Result<Option<Val>, Flow> {
    let key = run.key(key)?;
    Ok(shared.lock().get(&key).cloned())
}

fn pair_list(shared: &SharedMembers) -> Vec<Val> {
    shared.lock().iter().map(|(key, value)| Val::array(vec![key.value(), value.clone()])).collect()
}

/// Looks at members.
fn access(
    run: &mut Interpreter<'_>,
    shared: &SharedMembers,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let mut answer = || -> Evaluated {
        Ok(match name {
            "[]" => get(run, shared, arg(args, 0)?)?.unwrap_or(Val::Nil),
            "fetch" => match (get(run, shared, arg(args, 0)?)?, args.get(1), block) {
                (Some(value), ..) => value,
                (None, _, Some(block)) => run.run_block(block, vec![args[0].clone()])?,
                (None, Some(default), _) => default.clone(),
                (None, None, None) => {
                    return Err(RaisedError::new(
                        "KeyError",
                        format!("key not found: {}", args[0].inspect()),
                    )
                    .into());
                }
            },
            "dig" => {
                let value = get(run, shared, arg(args, 0)?)?.unwrap_or(Val::Nil);
                return super::dig(run, value, args.get(1..).unwrap_or_default());
            }
            "key?" | "has_key?" | "include?" | "member?" => {
                Val::Bool(get(run, shared, arg(args, 0)?)?.is_some())
            }
            "value?" | "has_value?" => {
                let value = arg(args, 0)?;
                let members = shared.lock().clone();
                for have in members.values() {
                    if run.equals(have, value)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Val::Bool(false)
            }
            "key" => {
                let value = arg(args, 0)?;
                let members = shared.lock().clone();
                for (key, have) in &members {
                    if run.equals(have, value)? {
                        return Ok(key.value());
                    }
                }
                Val::Nil
            }
            "keys" => {
                let keys: Vec<Val> = shared.lock().keys().map(Key::value).collect();
                return run.array(keys);
            }
            "values" => {
                let values: Vec<Val> = shared.lock().values().cloned().collect();
                return run.array(values);
            }
            "values_at" | "fetch_values" => {
                let mut values = Vec::with_capacity(args.len());
                for key in args {
                    values.push(get(run, shared, key)?.unwrap_or(Val::Nil));
                }
                return run.array(values);
            }
            "length" | "size" => Val::Int(shared.lock().len() as i64),
            "count" if args.is_empty() && block.is_none() => Val::Int(shared.lock().len() as i64),
            "empty?" => Val::Bool(shared.lock().is_empty()),
            "to_h" | "to_hash" if block.is_none() => Val::Hash(Arc::clone(shared)),
            "dup" | "clone" => {
                let members = shared.lock().clone();
                return run.hash(members);
            }
            "invert" => {
                let members = shared.lock().clone();
                let mut inverted = Members::with_capacity(members.len());
                for (key, value) in members {
                    inverted.insert(run.key(&value)?, key.value());
                }
                return run.hash(inverted);
            }
            "slice" | "except" => {
                let keys: HashSet<Key> = args.iter().map(|key| run.key(key)).collect::<Result<_, _>>()?;
                let members = shared.lock().clone();
                let left =
                    members.into_iter().filter(|(key, _)| keys.contains(key) == (name == "slice")).collect();
                return run.hash(left);
            }
            "compact" => {
                let members = shared.lock().clone();
                return run
                    .hash(members.into_iter().filter(|(_, value)| !matches!(value, Val::Nil)).collect());
            }
            _ => return Err(super::no_method()),
        })
    };
    known(answer())
}

/// Changes the hash in place, or makes a changed copy.
fn change(
    run: &mut Interpreter<'_>,
    shared: &SharedMembers,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let receiver = || Val::Hash(Arc::clone(shared));
    let mut answer = || -> Evaluated {
        Ok(match name {
            "[]=" | "store" => {
                let (key, value) = (run.key(arg(args, 0)?)?, arg(args, 1)?.clone());
                run.allocate(96 + key.bytes())?;
                shared.lock().insert(key, value.clone());
                value
            }
            "delete" => {
                let key = run.key(arg(args, 0)?)?;
                let removed = shared.lock().shift_remove(&key);
                removed.unwrap_or(Val::Nil)
            }
            "clear" => {
                shared.lock().clear();
                receiver()
            }
            "replace" => {
                let Val::Hash(other) = arg(args, 0)? else {
                    return Err(RaisedError::type_error("no implicit conversion into Hash").into());
                };
                let members = other.lock().clone();
                *shared.lock() = members;
                receiver()
            }
            "default=" => return Err(RaisedError::argument("hashes have no defaults: use ||=").into()),
            "compact!" => {
                shared.lock().retain(|_, value| !matches!(value, Val::Nil));
                receiver()
            }
            "merge" | "merge!" | "update" => {
                let mut members = shared.lock().clone();
                for other in args {
                    let Val::Hash(other) = other else {
                        return Err(RaisedError::type_error("no implicit conversion into Hash").into());
                    };
                    let other = other.lock().clone();
                    for (key, value) in other {
                        let value = match (block, members.get(&key).cloned()) {
                            (Some(block), Some(have)) => {
                                run.run_block(block, vec![key.value(), have, value])?
                            }
                            _ => value,
                        };
                        members.insert(key, value);
                    }
                }
                if name == "merge" {
                    return run.hash(members);
                }
                run.allocate(members.len().saturating_mul(16))?;
                *shared.lock() = members;
                receiver()
            }
            "delete_if" | "reject!" | "select!" | "keep_if" => {
                let block = needs_block(block)?;
                let keeps = matches!(name, "select!" | "keep_if");
                let members = shared.lock().clone();
                let before = members.len();
                let mut left = Members::new();
                for (key, value) in members {
                    if run.run_block(block, vec![key.value(), value.clone()])?.is_true() == keeps {
                        left.insert(key, value);
                    }
                }
                let is_same = left.len() == before;
                *shared.lock() = left;
                if is_same && name.ends_with('!') { Val::Nil } else { receiver() }
            }
            "transform_values!" | "transform_keys!" => {
                let plain = super::find(name.trim_end_matches('!')).unwrap_or("to_h");
                if let Val::Hash(made) = super::call(run, &receiver(), plain, args.to_vec(), block)? {
                    let made = made.lock().clone();
                    *shared.lock() = made;
                }
                receiver()
            }
            _ => return Err(super::no_method()),
        })
    };
    known(answer())
}

/// Runs a block for members.
fn iterate(
    run: &mut Interpreter<'_>,
    shared: &SharedMembers,
    name: &str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let is_known = matches!(
        name,
        "each"
            | "each_pair"
            | "each_key"
            | "each_value"
            | "select"
            | "filter"
            | "reject"
            | "transform_values"
            | "transform_keys"
            | "any?"
            | "all?"
            | "find"
            | "detect"
            | "count"
            | "map"
            | "collect"
            | "flat_map"
            | "filter_map"
            | "sum"
    );
    let block = block.filter(|_| is_known && args.is_empty())?;
    let members = shared.lock().clone();
    let answer = || -> Evaluated {
        let mut made = Members::new();
        let mut list = Vec::new();
        let mut count = 0_i64;
        for (key, value) in members {
            let pair = || vec![key.value(), value.clone()];
            let args = match name {
                "each_key" | "transform_keys" => vec![key.value()],
                "each_value" | "transform_values" => vec![value.clone()],
                // One parameter gets the pair, two its parts.
                "each" | "each_pair" | "map" | "collect" | "flat_map" | "filter_map" | "find" | "detect"
                | "sum" => vec![Val::array(pair())],
                _ => pair(),
            };
            let result = run.run_block(block, args)?;
            run.allocate(32)?;
            match name {
                "select" | "filter" if result.is_true() => drop(made.insert(key, value)),
                "reject" if !result.is_true() => drop(made.insert(key, value)),
                "transform_values" => drop(made.insert(key, result)),
                "transform_keys" => drop(made.insert(run.key(&result)?, value)),
                "any?" if result.is_true() => return Ok(Val::Bool(true)),
                "all?" if !result.is_true() => return Ok(Val::Bool(false)),
                "find" | "detect" if result.is_true() => return run.array(pair()),
                "count" => count += i64::from(result.is_true()),
                "map" | "collect" | "sum" => list.push(result),
                "flat_map" => list.extend(super::super::interpreter::spread(result)),
                "filter_map" if result.is_true() => list.push(result),
                _ => {}
            }
        }
        match name {
            "each" | "each_pair" | "each_key" | "each_value" => Ok(Val::Hash(Arc::clone(shared))),
            "any?" => Ok(Val::Bool(false)),
            "all?" => Ok(Val::Bool(true)),
            "find" | "detect" => Ok(Val::Nil),
            "count" => Ok(Val::Int(count)),
            "sum" => {
                let list = Val::array(list);
                super::call(run, &list, "sum", Vec::new(), None)
            }
            "map" | "collect" | "flat_map" | "filter_map" => run.array(list),
            _ => run.hash(made),
        }
    };
    Some(answer())
}
