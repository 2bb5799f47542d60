//! Classes, modules and their methods.

use std::sync::Arc;

use chrono::Utc;
use millrace_ingest::Event;
use millrace_ingest::pattern::Expression;
use serde_json::Value;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::syntax::Block;
use super::super::value::{Members, RaisedError, Val};
use super::{arg, int_arg, libraries, text_arg, time};

/// Methods of classes and modules.
pub(super) const NAMES: &[&str] = &[
    "new",
    "now",
    "at",
    "parse",
    "strptime",
    "utc",
    "gm",
    "local",
    "mktime",
    "iso8601",
    "today",
    "generate",
    "dump",
    "load",
    "pretty_generate",
    "hexdigest",
    "digest",
    "base64digest",
    "encode64",
    "decode64",
    "strict_encode64",
    "strict_decode64",
    "urlsafe_encode64",
    "urlsafe_decode64",
    "uuid",
    "hex",
    "random_number",
    "alphanumeric",
    "sqrt",
    "cbrt",
    "log",
    "log2",
    "log10",
    "pow",
    "exp",
    "sin",
    "cos",
    "tan",
    "atan",
    "atan2",
    "hypot",
    "floor",
    "escape",
    "unescape",
    "encode",
    "decode",
    "encode_www_form_component",
    "decode_www_form_component",
    "unescapeHTML",
    "escapeHTML",
    "coerce",
    "name",
    "call",
    "yield",
    "===",
    "try_convert",
    "info",
    "warn",
    "error",
    "debug",
    "debug?",
    "info?",
    "fatal",
    "trace",
    "quote",
    "union",
    "last_match",
    "message",
    "backtrace",
    "full_message",
    "to_proc",
    "id2name",
    "begin",
    "end",
    "cover?",
];

/// Constants of scripts.
const CONSTANTS: &[&str] = &[
    "Array",
    "Base64",
    "CGI",
    "Comparable",
    "DateTime",
    "Date",
    "Digest::MD5",
    "Digest::SHA1",
    "Digest::SHA256",
    "Digest::SHA2",
    "Digest::SHA384",
    "Digest::SHA512",
    "Enumerable",
    "FalseClass",
    "Fixnum",
    "Float",
    "Float::INFINITY",
    "Float::NAN",
    "Hash",
    "Integer",
    "JSON",
    "LogStash::Event",
    "LogStash::Json",
    "LogStash::Timestamp",
    "Math",
    "Math::E",
    "Math::PI",
    "NilClass",
    "Numeric",
    "Object",
    "Range",
    "Regexp",
    "Regexp::IGNORECASE",
    "Regexp::MULTILINE",
    "SecureRandom",
    "String",
    "Symbol",
    "Time",
    "TrueClass",
    "URI",
    "Bignum",
    "BasicObject",
    "Random",
];

/// Classes of errors, each with the one above it.
const ERRORS: &[(&str, &str)] = &[
    ("Exception", ""),
    ("StandardError", "Exception"),
    ("RuntimeError", "StandardError"),
    ("ArgumentError", "StandardError"),
    ("TypeError", "StandardError"),
    ("NameError", "StandardError"),
    ("NoMethodError", "NameError"),
    ("ZeroDivisionError", "StandardError"),
    ("FloatDomainError", "RangeError"),
    ("RangeError", "StandardError"),
    ("IndexError", "StandardError"),
    ("KeyError", "IndexError"),
    ("StopIteration", "IndexError"),
    ("RegexpError", "StandardError"),
    ("EncodingError", "StandardError"),
    ("IOError", "StandardError"),
    ("LoadError", "Exception"),
    ("NoMemoryError", "Exception"),
    ("JSON::ParserError", "StandardError"),
    ("LogStash::Json::ParserError", "StandardError"),
    ("URI::InvalidURIError", "StandardError"),
    ("Date::Error", "ArgumentError"),
    ("Encoding::UndefinedConversionError", "EncodingError"),
    ("Encoding::InvalidByteSequenceError", "EncodingError"),
];

/// Finds a constant by its path.
///
/// # Errors
/// There is none, with what to do.
pub(in super::super) fn constant(path: &str) -> Result<&'static str, String> {
    let path = path.strip_prefix("::").unwrap_or(path);
    if let Some(known) = CONSTANTS.iter().find(|known| **known == path) {
        return Ok(known);
    }
    if let Some(error) = error_class(path) {
        return Ok(error);
    }
    let reason = match path.split("::").next().unwrap_or_default() {
        "File" | "Dir" | "IO" | "FileUtils" | "YAML" | "CSV" => ": scripts read and write no files",
        "Net" | "Socket" | "TCPSocket" | "UDPSocket" | "Resolv" | "HTTP" => {
            ": scripts use no network; see the filters http and dns"
        }
        "ENV" => ": use ${NAME} in the file of the pipeline",
        "Kernel" | "Process" | "Open3" | "ObjectSpace" | "Thread" | "Java" => ": scripts have the event only",
        _ => "",
    };
    Err(format!("the constant [{path}] is not supported{reason}"))
}

/// Returns the value of a constant.
pub(in super::super) fn constant_value(name: &'static str) -> Val {
    match name {
        "Float::INFINITY" => Val::Float(f64::INFINITY),
        "Float::NAN" => Val::Float(f64::NAN),
        "Math::PI" => Val::Float(std::f64::consts::PI),
        "Math::E" => Val::Float(std::f64::consts::E),
        "Regexp::IGNORECASE" => Val::Int(1),
        "Regexp::MULTILINE" => Val::Int(4),
        class => Val::Constant(class),
    }
}

/// Finds a class of errors.
pub(in super::super) fn error_class(path: &str) -> Option<&'static str> {
    ERRORS.iter().find(|(class, _)| *class == path).map(|(class, _)| *class)
}

/// Returns whether an error is one of a class.
pub(in super::super) fn is_error_of(error: &RaisedError, class: &str) -> bool {
    let mut have = error.class;
    loop {
        if have == class {
            return true;
        }
        match ERRORS.iter().find(|(known, _)| *known == have) {
            Some((_, above)) if !above.is_empty() => have = above,
            _ => return false,
        }
    }
}

/// Returns whether a value is one of a class.
pub(super) fn is_instance(value: &Val, class: &str) -> bool {
    match class {
        "Object" | "BasicObject" => true,
        "Numeric" => matches!(value, Val::Int(_) | Val::Float(_)),
        "Fixnum" | "Bignum" => matches!(value, Val::Int(_)),
        "Comparable" => {
            matches!(value, Val::Int(_) | Val::Float(_) | Val::Text(_) | Val::Time(_) | Val::Timestamp(_))
        }
        "Enumerable" => matches!(value, Val::Array(_) | Val::Hash(_) | Val::Range { .. }),
        "DateTime" | "Date" => matches!(value, Val::Time(_)),
        _ => match value {
            Val::Error(error) => is_error_of(error, class),
            other => other.class() == class,
        },
    }
}

/// Returns whether a value has a method, as far as its type tells.
pub(super) fn responds(value: &Val, name: &str) -> bool {
    let lists: &[&[&str]] = match value {
        Val::Text(_) => &[super::text::NAMES, super::text_change::NAMES],
        Val::Int(_) | Val::Float(_) => &[super::number::NAMES],
        Val::Array(_) => &[super::array::NAMES],
        Val::Hash(_) => &[super::hash::NAMES, super::array::NAMES],
        Val::Time(_) | Val::Timestamp(_) => &[super::time::NAMES],
        Val::Event(_) => &[super::event::NAMES],
        _ => &[],
    };
    super::OBJECT.contains(&name) || lists.iter().any(|list| list.contains(&name))
}

/// Calls a method of a class or module.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    class: &'static str,
    name: &'static str,
    args: &[Val],
    block: Option<&Block>,
) -> Option<Evaluated> {
    match (class, name) {
        (_, "name" | "to_s") => return Some(Ok(Val::text(class))),
        (_, "===") => {
            return Some(arg(args, 0).map(|value| Val::Bool(is_instance(value, class))).map_err(Flow::from));
        }
        _ => {}
    }
    Some(match class {
        "Time" | "DateTime" | "Date" | "LogStash::Timestamp" => {
            return time::class_call(class, name, args);
        }
        "JSON" | "LogStash::Json" => libraries::json(run, name, args)?,
        "Base64" => libraries::base64(run, name, args)?,
        "Digest::MD5" | "Digest::SHA1" | "Digest::SHA256" | "Digest::SHA2" | "Digest::SHA384"
        | "Digest::SHA512" => libraries::hash(run, class, name, args)?,
        "SecureRandom" | "Random" => libraries::random(run, name, args)?,
        "Math" => libraries::math(name, args)?,
        "URI" | "CGI" => libraries::web(run, class, name, args)?,
        "Regexp" => regexp(run, name, args)?,
        "LogStash::Event" if name == "new" => new_event(run, args),
        "new_event_block" if matches!(name, "call" | "yield") => hand_on(run, args),
        "logger" => {
            let texts: Vec<String> = args.iter().map(|value| value.to_text().to_string()).collect();
            if let Err(flow) = run.allocate(texts.iter().map(String::len).sum()) {
                return Some(Err(flow));
            }
            tracing::debug!(level = name, text = texts.join(" "), "a script of the filter ruby logs");
            Ok(Val::Bool(false))
        }
        "Hash" if name == "new" => run.hash(Members::new()),
        "Array" if name == "new" => new_array(run, args, block),
        "String" if name == "new" => {
            let text = args.first().map_or_else(|| Arc::from(""), Val::to_text);
            run.text(text)
        }
        error if name == "new" && error_class(error).is_some() => {
            let message = args.first().map_or_else(|| error.to_owned(), |text| text.to_text().to_string());
            Ok(Val::Error(Arc::new(RaisedError::new(class, message))))
        }
        _ => return None,
    })
}

fn new_event(run: &mut Interpreter<'_>, args: &[Val]) -> Evaluated {
    let fields = match args.first() {
        None => serde_json::Map::new(),
        Some(value) => match run.json(value)? {
            Value::Object(fields) => fields,
            _ => return Err(RaisedError::type_error("an event is made of a hash").into()),
        },
    };
    run.add_event(Event::from_fields(fields, Utc::now()))
}

fn hand_on(run: &mut Interpreter<'_>, args: &[Val]) -> Evaluated {
    match arg(args, 0)? {
        Val::Event(handle) => match run.event_number(*handle)? {
            0 => Err(RaisedError::argument("the event itself goes on in any case: hand on a clone").into()),
            number => {
                run.hand_on(number)?;
                Ok(Val::Nil)
            }
        },
        other => Err(RaisedError::type_error(format!("[{}] is no event", other.class())).into()),
    }
}

fn new_array(run: &mut Interpreter<'_>, args: &[Val], block: Option<&Block>) -> Evaluated {
    match args.first() {
        None => run.array(Vec::new()),
        Some(Val::Array(elements)) => {
            let elements = elements.lock().clone();
            run.array(elements)
        }
        Some(_) => {
            let count = usize::try_from(int_arg(args, 0)?)
                .map_err(|_| RaisedError::argument("negative array size"))?;
            run.allocate(count.saturating_mul(32))?;
            run.step(count)?;
            let mut elements = Vec::with_capacity(count);
            for at in 0..count {
                elements.push(match block {
                    Some(block) => run.run_block(block, vec![Val::Int(at as i64)])?,
                    None => args.get(1).cloned().unwrap_or(Val::Nil),
                });
            }
            run.array(elements)
        }
    }
}

fn regexp(run: &mut Interpreter<'_>, name: &str, args: &[Val]) -> Option<Evaluated> {
    Some(match name {
        "new" => {
            let mut compiled = || -> Result<Arc<Expression>, Flow> {
                if let Val::Regex(regex) = arg(args, 0)? {
                    return Ok(Arc::clone(regex));
                }
                let text = text_arg(args, 0)?;
                let ignores_case = matches!(args.get(1), Some(Val::Int(bits)) if bits & 1 == 1)
                    || matches!(args.get(1), Some(Val::Bool(true)));
                let text = if ignores_case { format!("(?i){text}") } else { text.to_string() };
                run.expression(&text)
            };
            compiled().map(Val::Regex)
        }
        "escape" | "quote" => match text_arg(args, 0) {
            Ok(text) => run.text(super::pattern::quoted(&text)),
            Err(error) => Err(error.into()),
        },
        "union" => {
            let values: Vec<Val> = args.iter().cloned().flat_map(super::super::interpreter::spread).collect();
            let alternatives: Vec<String> = values
                .iter()
                .map(|value| match value {
                    Val::Regex(regex) => format!("(?:{})", regex.as_str()),
                    other => super::pattern::quoted(&other.to_text()),
                })
                .collect();
            run.expression(&alternatives.join("|")).map(Val::Regex)
        }
        _ => return None,
    })
}
