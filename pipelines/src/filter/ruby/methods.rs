//! Methods, functions and constants that scripts have.
//!
//! Each type has a file with the names of its methods; a script that uses another name is refused before it runs.

mod array;
mod array_blocks;
mod class;
mod event;
mod hash;
mod libraries;
mod number;
mod pattern;
mod text;
mod text_change;
mod text_format;
mod time;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use millrace_ingest::pattern::Expression;
use serde_json::Value;

use super::interpreter::{Evaluated, Flow, Interpreter};
use super::syntax::{Block, Position};
use super::value::{RaisedError, Val};

pub(super) use class::{constant, constant_value, error_class, is_error_of};
pub(super) use text_change::{change as change_text, is_change as changes_text};

/// Class of the error for a method that a value does not have.
pub(super) const NO_METHOD: &str = "NoMethodError";

/// Methods of all values.
const OBJECT: &[&str] = &[
    "!",
    "==",
    "===",
    "=~",
    "class",
    "clone",
    "dup",
    "eql?",
    "equal?",
    "freeze",
    "frozen?",
    "inspect",
    "instance_of?",
    "is_a?",
    "kind_of?",
    "nil?",
    "respond_to?",
    "tap",
    "then",
    "to_a",
    "to_f",
    "to_h",
    "to_i",
    "to_json",
    "to_s",
    "yield_self",
    "&",
    "|",
];

/// Functions, which have no receiver.
const FUNCTIONS: &[&str] = &[
    "Array",
    "Float",
    "Integer",
    "String",
    "event",
    "format",
    "logger",
    "loop",
    "map_meta",
    "new_event_block",
    "p",
    "print",
    "printf",
    "puts",
    "raise",
    "rand",
    "require",
    "require_relative",
    "sprintf",
];

/// Libraries whose classes are here without a `require`.
const LIBRARIES: &[&str] = &[
    "base64",
    "bigdecimal",
    "cgi",
    "date",
    "digest",
    "digest/md5",
    "digest/sha1",
    "digest/sha2",
    "json",
    "logstash/event",
    "logstash/json",
    "logstash/namespace",
    "logstash/timestamp",
    "logstash/util",
    "securerandom",
    "set",
    "time",
    "uri",
];

static NAMES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let lists = [
        OBJECT,
        array::NAMES,
        class::NAMES,
        event::NAMES,
        hash::NAMES,
        number::NAMES,
        pattern::NAMES,
        text::NAMES,
        text_change::NAMES,
        time::NAMES,
    ];
    lists.into_iter().flatten().copied().collect()
});

/// Finds a method by its name.
pub(super) fn find(name: &str) -> Option<&'static str> {
    NAMES.get(name).copied()
}

/// Returns the names of all methods.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

/// Finds a function by its name.
pub(super) fn function(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().copied().find(|function| *function == name)
}

/// Returns what to do instead of a function that is refused for good.
pub(super) fn refused_function(name: &str) -> &'static str {
    match name {
        "system" | "exec" | "spawn" | "fork" => ": scripts start no programs",
        "open" | "load" => ": scripts read no files",
        "sleep" => ": scripts do not wait",
        "lambda" | "proc" => ": write the code where it is needed",
        "eval" | "instance_eval" | "send" | "binding" => ": scripts run no text as code",
        "exit" | "abort" => ": use event.cancel",
        _ => "",
    }
}

/// Compiles an expression.
///
/// # Errors
/// The reason why it is refused, as an error of the script.
pub(super) fn compile(text: &str) -> Result<Arc<Expression>, RaisedError> {
    Expression::compile(text).map(Arc::new).map_err(|error| RaisedError::new("RegexpError", error))
}

/// The error for a method that a value does not have; the caller fills it in.
fn no_method() -> Flow {
    Flow::Raise(RaisedError { class: NO_METHOD, message: String::new() })
}

/// Returns an argument.
///
/// # Errors
/// There is none.
fn arg(args: &[Val], at: usize) -> Result<&Val, RaisedError> {
    args.get(at).ok_or_else(|| {
        RaisedError::argument(format!(
            "wrong number of arguments (given {}, expected {})",
            args.len(),
            at + 1
        ))
    })
}

/// Returns an argument as text.
///
/// # Errors
/// It is none.
fn text_arg(args: &[Val], at: usize) -> Result<Arc<str>, RaisedError> {
    match arg(args, at)? {
        Val::Text(text) | Val::Symbol(text) => Ok(Arc::clone(text)),
        other => {
            Err(RaisedError::type_error(format!("no implicit conversion of {} into String", other.class())))
        }
    }
}

/// Returns an argument as a whole number.
///
/// # Errors
/// It is none.
fn int_arg(args: &[Val], at: usize) -> Result<i64, RaisedError> {
    match arg(args, at)? {
        Val::Int(number) => Ok(*number),
        Val::Float(number) => Ok(*number as i64),
        other => {
            Err(RaisedError::type_error(format!("no implicit conversion of {} into Integer", other.class())))
        }
    }
}

/// Returns the block of a call.
///
/// # Errors
/// There is none: enumerators are not supported.
fn needs_block(block: Option<&Block>) -> Result<&Block, RaisedError> {
    block.ok_or_else(|| RaisedError::argument("a block is needed: enumerators are not supported"))
}

/// Calls a method of a value.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &'static str,
    args: Vec<Val>,
    block: Option<&Block>,
) -> Evaluated {
    let called = match receiver {
        Val::Text(text) => match text::call(run, text, name, &args, block) {
            None if changes_text(name) => Some(
                text_change::change(run, text, name, args.clone(), block, Position::default())
                    .map(|(_, result)| result),
            ),
            called => called,
        },
        Val::Symbol(text) => match name {
            "to_proc" | "id2name" | "name" => Some(Ok(Val::Text(Arc::clone(text)))),
            "to_sym" => Some(Ok(receiver.clone())),
            "<=>" | "length" | "size" | "empty?" | "start_with?" | "end_with?" | "[]" | "=~" | "match" => {
                text::call(run, text, name, &args, block)
            }
            _ => None,
        },
        Val::Int(_) | Val::Float(_) => number::call(run, receiver, name, &args, block),
        Val::Array(elements) => array::call(run, elements, name, &args, block),
        Val::Hash(members) => hash::call(run, members, name, &args, block),
        Val::Range { from, to, exclusive } => range(run, (from, to, *exclusive), name, &args, block),
        Val::Regex(_) | Val::Match(_) => pattern::call(run, receiver, name, &args),
        Val::Time(_) | Val::Timestamp(_) => time::call(run, receiver, name, &args),
        Val::Event(handle) => match run.event_number(*handle) {
            Ok(number) => event::call(run, number, name, &args),
            Err(error) => Some(Err(error.into())),
        },
        Val::Constant(class) => class::call(run, class, name, &args, block),
        Val::Error(error) => match name {
            "message" | "to_s" | "full_message" => Some(Ok(Val::text(error.message.as_str()))),
            "backtrace" => Some(Ok(Val::array(Vec::new()))),
            _ => None,
        },
        Val::Nil | Val::Bool(_) => None,
    };
    called.unwrap_or_else(|| object(run, receiver, name, &args, block))
}

/// Digs on in a value that `dig` has found, by the rest of its steps.
fn dig(run: &mut Interpreter<'_>, value: Val, steps: &[Val]) -> Evaluated {
    match &value {
        _ if steps.is_empty() => Ok(value),
        Val::Nil => Ok(value),
        Val::Array(_) | Val::Hash(_) => call(run, &value, "dig", steps.to_vec(), None),
        _ => Err(RaisedError::type_error(format!("{} does not have #dig method", value.class())).into()),
    }
}

/// Methods of all values.
fn object(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Evaluated {
    Ok(match name {
        "==" | "eql?" | "equal?" => Val::Bool(run.equals(receiver, arg(args, 0)?)?),
        "===" => Val::Bool(case_equals(run, receiver, arg(args, 0)?)?),
        "=~" => Val::Nil,
        "!" => Val::Bool(!receiver.is_true()),
        "&" => Val::Bool(receiver.is_true() && arg(args, 0)?.is_true()),
        "|" if matches!(receiver, Val::Nil | Val::Bool(_)) => {
            Val::Bool(receiver.is_true() || arg(args, 0)?.is_true())
        }
        "nil?" => Val::Bool(matches!(receiver, Val::Nil)),
        "class" => Val::Constant(receiver.class()),
        "is_a?" | "kind_of?" | "instance_of?" => match arg(args, 0)? {
            Val::Constant(class) => Val::Bool(class::is_instance(receiver, class)),
            _ => return Err(RaisedError::type_error("class or module required").into()),
        },
        "respond_to?" => {
            let name = text_arg(args, 0)?;
            Val::Bool(class::responds(receiver, &name))
        }
        "to_s" => {
            let text = receiver.to_text();
            run.text(text)?
        }
        "inspect" => {
            let text = receiver.inspect();
            run.text(text)?
        }
        "to_json" => {
            let json = run.json(receiver)?.to_string();
            run.text(json)?
        }
        "to_a" if matches!(receiver, Val::Nil) => run.array(Vec::new())?,
        "to_h" if matches!(receiver, Val::Nil) => run.hash(Default::default())?,
        "to_i" if matches!(receiver, Val::Nil) => Val::Int(0),
        "to_f" if matches!(receiver, Val::Nil) => Val::Float(0.0),
        "dup" | "clone" | "freeze" => receiver.clone(),
        "frozen?" => Val::Bool(false),
        "tap" => {
            run.run_block(needs_block(block)?, vec![receiver.clone()])?;
            receiver.clone()
        }
        "then" | "yield_self" => run.run_block(needs_block(block)?, vec![receiver.clone()])?,
        _ => return Err(no_method()),
    })
}

/// Returns whether a value of `when` matches a subject.
pub(super) fn case_equals(run: &mut Interpreter<'_>, pattern: &Val, subject: &Val) -> Result<bool, Flow> {
    match pattern {
        Val::Constant(class) => Ok(class::is_instance(subject, class)),
        Val::Regex(_) => match subject {
            Val::Text(text) | Val::Symbol(text) => Ok(pattern::find(run, pattern, text, 0)?.is_true()),
            _ => Ok(false),
        },
        Val::Range { from, to, exclusive } => Ok(covers(from, to, *exclusive, subject)),
        other => run.equals(other, subject),
    }
}

/// Returns whether a range has a value.
fn covers(from: &Val, to: &Val, exclusive: bool, value: &Val) -> bool {
    let is_behind = matches!(from, Val::Nil) || from.order(value).is_some_and(|order| order.is_le());
    let is_before = matches!(to, Val::Nil)
        || value.order(to).is_some_and(|order| if exclusive { order.is_lt() } else { order.is_le() });
    is_behind && is_before
}

/// Methods of ranges; those of arrays work on the elements.
fn range(
    run: &mut Interpreter<'_>,
    (from, to, exclusive): (&Val, &Val, bool),
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    let answer = match name {
        "include?" | "member?" | "cover?" | "===" => {
            arg(args, 0).map(|value| Val::Bool(covers(from, to, exclusive, value))).map_err(Flow::from)
        }
        "begin" | "min" if args.is_empty() && block.is_none() => Ok(from.clone()),
        "end" => Ok(to.clone()),
        "==" | "to_s" | "inspect" | "is_a?" | "kind_of?" | "class" | "nil?" => return None,
        _ => {
            let elements = match range_elements(run, from, to, exclusive) {
                Ok(elements) => elements,
                Err(flow) => return Some(Err(flow)),
            };
            let Val::Array(elements) = Val::array(elements) else { return None };
            return array::call(run, &elements, name, args, block);
        }
    };
    Some(answer)
}

fn range_elements(
    run: &mut Interpreter<'_>,
    from: &Val,
    to: &Val,
    exclusive: bool,
) -> Result<Vec<Val>, Flow> {
    match (from, to) {
        (Val::Int(from), Val::Int(to)) => {
            let to = if exclusive { to.saturating_sub(1) } else { *to };
            let count = usize::try_from(to.saturating_sub(*from).saturating_add(1)).unwrap_or(0);
            run.step(count)?;
            run.allocate(count.saturating_mul(32))?;
            Ok((*from..=to).map(Val::Int).collect())
        }
        (Val::Text(from), Val::Text(to)) => match (single_letter(from), single_letter(to)) {
            (Some(first), Some(last)) => {
                let letters = (first..=last).filter(|letter| !exclusive || *letter != last);
                Ok(letters.map(|letter| Val::text(letter.to_string())).collect())
            }
            _ => {
                Err(RaisedError::type_error("only ranges of numbers and of single letters have elements")
                    .into())
            }
        },
        _ => {
            Err(RaisedError::type_error("only ranges of numbers and of single letters have elements").into())
        }
    }
}

fn single_letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|_| letters.next().is_none())
}

/// Calls a function.
pub(super) fn call_function(
    run: &mut Interpreter<'_>,
    name: &'static str,
    args: Vec<Val>,
    block: Option<&Block>,
    at: Position,
) -> Evaluated {
    run.step(1)?;
    match name {
        "event" => {
            if run.events.is_empty() {
                return Err(
                    RaisedError::new("NameError", format!("there is no event in [init] ({at})")).into()
                );
            }
            Ok(run.event(0))
        }
        "new_event_block" => Ok(Val::Constant("new_event_block")),
        "logger" => Ok(Val::Constant("logger")),
        "require" | "require_relative" => {
            let library = text_arg(&args, 0)?;
            if LIBRARIES.contains(&&*library) {
                Ok(Val::Bool(true))
            } else {
                Err(RaisedError::new("LoadError", format!("the library [{library}] is not supported ({at})"))
                    .into())
            }
        }
        "puts" | "print" | "p" | "printf" => {
            let texts: Vec<String> = args.iter().map(|value| value.to_text().to_string()).collect();
            run.allocate(texts.iter().map(String::len).sum())?;
            tracing::info!(text = texts.join(" "), "a script of the filter ruby prints");
            Ok(Val::Nil)
        }
        "raise" => {
            let error = raised(&args);
            run.allocate(error.message.len())?;
            Err(error.into())
        }
        "rand" => number::random(args.first()),
        "format" | "sprintf" => {
            let template = text_arg(&args, 0)?;
            let text = text_format::format(run, &template, args.get(1..).unwrap_or_default())?;
            run.text(text)
        }
        "Integer" => number::integer_of(arg(&args, 0)?, args.get(1)),
        "Float" => number::float_of(arg(&args, 0)?),
        "String" => {
            let text = arg(&args, 0)?.to_text();
            run.text(text)
        }
        "Array" => match arg(&args, 0)? {
            Val::Nil => run.array(Vec::new()),
            Val::Hash(_) => call(run, &args[0], "to_a", Vec::new(), None),
            other => run.array(super::interpreter::spread(other.clone())),
        },
        "loop" => loop {
            match run.run_block(needs_block(block)?, Vec::new()) {
                Ok(_) => {}
                Err(Flow::Raise(error)) if error.class == "StopIteration" => return Ok(Val::Nil),
                Err(flow) => return Err(flow),
            }
        },
        "map_meta" => {
            Err(RaisedError::new("NameError", "[map_meta] is a part of the filter aggregate only").into())
        }
        _ => Err(no_method()),
    }
}

fn raised(args: &[Val]) -> RaisedError {
    match args {
        [] => RaisedError::new("RuntimeError", "unhandled exception"),
        [Val::Error(error), ..] => (**error).clone(),
        [Val::Constant(class), rest @ ..] => RaisedError::new(
            class,
            rest.first().map_or_else(|| (*class).to_owned(), |text| text.to_text().to_string()),
        ),
        [message, ..] => RaisedError::new("RuntimeError", message.to_text().to_string()),
    }
}

/// Parses JSON.
///
/// # Errors
/// It is none, as an error of the script.
fn parse_json(text: &str) -> Result<Val, RaisedError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| RaisedError::new("JSON::ParserError", error.to_string()))?;
    Ok(Val::from_json(&value))
}
