//! Templates of texts, addresses, headers, bodies and arguments: a part of Jinja whose work and output are bounded.
//!
//! There are values, filters, `if` and `for`. What could build something large out of something small is not there: no
//! variables, macros, arithmetic, joining of texts, or lists of one's own. So each value is a part of the alert or of the options,
//! or what a filter made of one, which is bounded; steps are counted ([`FUEL`]), as are the bytes that filters make and that come out, loops are nested twice at most, and the output ends at a bound.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::LazyLock;

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, tests as builtin};

/// Steps of a template.
const FUEL: u64 = 50_000;
/// Bytes of a template.
const MAX_TEMPLATE: usize = 64 << 10;
/// Bytes of what a filter makes, or reads of a text.
const MAX_VALUE: usize = 1 << 20;
/// Bytes of all that filters of one run make.
const MAX_VALUES: usize = 32 << 20;
/// Bytes of the output of a body.
pub const MAX_BODY: usize = 1 << 20;
/// Characters that `truncate` leaves unless it is told otherwise.
const TRUNCATED_CHARS: usize = 255;
/// Loops within one another.
const MAX_LOOPS: usize = 2;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(50);
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.add_filter("tojson", json);
    environment.add_filter("join", join);
    environment.add_filter("replace", replace);
    environment.add_filter("truncate", truncate);
    environment.add_filter("default", default);
    environment.add_filter("urlencode", |value: Value| bounded(percent(&text(&value)?)));
    environment.add_filter("e", |value: Value| bounded(html(&text(&value)?)));
    environment.add_filter("upper", |value: Value| bounded(text(&value)?.to_uppercase()));
    environment.add_filter("lower", |value: Value| bounded(text(&value)?.to_lowercase()));
    environment.add_filter("trim", |value: Value| Ok::<_, Error>(text(&value)?.trim().to_owned()));
    environment.add_filter("string", |value: Value| text(&value));
    environment.add_filter("length", length);
    environment.add_filter("first", |value: Value| value.get_item(&Value::from(0)).unwrap_or_default());
    environment.add_test("defined", builtin::is_defined);
    environment.add_test("none", builtin::is_none);
    environment
});

thread_local! {
    /// Bytes that filters may still make, in the template run of this thread.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Takes bytes from what filters may make.
fn charge(bytes: usize) -> Result<(), Error> {
    match LEFT.get().checked_sub(bytes) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => {
            LEFT.set(0);
            Err(refused(format!("its filters make more than {MAX_VALUES} bytes")))
        }
    }
}

/// A writer that ends at a bound.
struct Bounded {
    bytes: Vec<u8>,
    bound: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bound {
            return Err(io::Error::other(format!("it makes more than {} bytes", self.bound)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

fn too_long() -> Error {
    refused(format!("a value has more than {MAX_VALUE} bytes"))
}

fn bounded(text: String) -> Result<String, Error> {
    if text.len() > MAX_VALUE {
        return Err(too_long());
    }
    charge(text.len())?;
    Ok(text)
}

/// The text of a value, which may be long only where the value is.
fn text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        if text.len() > MAX_VALUE {
            return Err(too_long());
        }
        charge(text.len())?;
        return Ok(text.to_owned());
    }
    if value.is_undefined() || value.is_none() {
        return Ok(String::new());
    }
    made(|out| write!(out, "{value}"))
}

/// A text that is written, up to the bound; it counts also where it goes beyond.
fn made(write: impl FnOnce(&mut Bounded) -> io::Result<()>) -> Result<String, Error> {
    let mut out = Bounded { bytes: Vec::new(), bound: MAX_VALUE };
    let written = write(&mut out);
    charge(out.bytes.len())?;
    written.map_err(|error| refused(error.to_string()))?;
    Ok(String::from_utf8_lossy(&out.bytes).into_owned())
}

fn json(value: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from_safe_string("null".to_owned()));
    }
    let text = made(|out| serde_json::to_writer(out, &value).map_err(io::Error::from))?;
    Ok(Value::from_safe_string(text))
}

fn join(values: Value, separator: Option<Value>) -> Result<String, Error> {
    let separator = separator.as_ref().map(text).transpose()?.unwrap_or_default();
    if values.kind() == ValueKind::String {
        return text(&values);
    }
    let mut joined = String::new();
    for (at, value) in values.try_iter()?.enumerate() {
        // What is short takes time, too.
        charge(separator.len() + 16)?;
        if at > 0 {
            joined.push_str(&separator);
        }
        joined.push_str(&text(&value)?);
        if joined.len() > MAX_VALUE {
            return Err(too_long());
        }
    }
    Ok(joined)
}

fn replace(value: Value, from: Value, to: Value) -> Result<String, Error> {
    let (value, from, to) = (text(&value)?, text(&from)?, text(&to)?);
    if from.is_empty() {
        return Ok(value);
    }
    let found = value.matches(&from).count();
    if value.len() + found * to.len() > MAX_VALUE {
        return Err(too_long());
    }
    bounded(value.replace(&from, &to))
}

/// So many characters at most, the last of them `…` where there were more.
fn truncate(value: Value, length: Option<usize>) -> Result<String, Error> {
    let (text, length) = (text(&value)?, length.unwrap_or(TRUNCATED_CHARS));
    match text.char_indices().nth(length) {
        None => Ok(text),
        Some(_) => Ok(text.chars().take(length.saturating_sub(1)).chain(['…']).collect()),
    }
}

fn length(value: Value) -> Result<usize, Error> {
    charge(value.as_str().map_or(0, str::len))?;
    Ok(value.len().unwrap_or(0))
}

fn default(value: Value, other: Rest<Value>) -> Value {
    if value.is_undefined() || value.is_none() {
        other.first().cloned().unwrap_or_else(|| Value::from(""))
    } else {
        value
    }
}

fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Escapes a text for HTML.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Checks a template without running it.
///
/// # Errors
/// The reason why it is refused.
pub fn check(template: &str) -> Result<(), String> {
    if template.len() > MAX_TEMPLATE {
        return Err(format!("has {} bytes, at most {MAX_TEMPLATE} are allowed", template.len()));
    }
    scan(template)?;
    ENVIRONMENT.template_from_str(template).map(drop).map_err(|error| describe(&error))
}

/// Runs a template; `context` are its values.
///
/// # Errors
/// What is wrong with it, or that it does or makes too much.
pub fn render(template: &str, context: &Value, bound: usize) -> Result<String, String> {
    if !template.contains('{') && template.len() <= bound {
        return Ok(template.to_owned());
    }
    check(template)?;
    let mut out = Bounded { bytes: Vec::new(), bound };
    let found = ENVIRONMENT.template_from_str(template).map_err(|error| describe(&error))?;
    LEFT.set(MAX_VALUES);
    found.render_captured_to(context, &mut out).map_err(|error| describe(&error))?;
    String::from_utf8(out.bytes).map_err(|error| error.to_string())
}

fn describe(error: &Error) -> String {
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
    let reason = match error.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {FUEL} steps"),
        ErrorKind::WriteFailure => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            source.unwrap_or_else(|| "it makes too much".to_owned())
        }
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    format!("the template cannot be used: {reason}{line}")
}

/// Refuses what could build something large, by the tokens in tags.
fn scan(template: &str) -> Result<(), String> {
    let no = |what: &str| {
        Err(format!("the template cannot be used: {what} is not there: values, filters, if and for are"))
    };
    let mut rest = template;
    let mut loops = 0_usize;
    while let Some(start) = rest.find('{') {
        let tag = &rest[start..];
        let (end, is_statement) = match tag.as_bytes().get(1) {
            Some(b'#') => {
                rest = tag.find("#}").map_or("", |end| &tag[end + 2..]);
                continue;
            }
            Some(b'{') => ("}}", false),
            Some(b'%') => ("%}", true),
            _ => {
                rest = &tag[1..];
                continue;
            }
        };
        let inner = &tag[2..];
        let length = expression(inner, end)?;
        let code = inner[..length].trim_start_matches(['-', '+']).trim_start();
        rest = &inner[(length + end.len()).min(inner.len())..];
        if !is_statement {
            continue;
        }
        let word: String = code.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match word.as_str() {
            "for" => loops += 1,
            "endfor" => loops = loops.saturating_sub(1),
            "if" | "elif" | "else" | "endif" => {}
            other => return no(&format!("[{other}]")),
        }
        if loops > MAX_LOOPS {
            return Err(format!(
                "the template cannot be used: more than {MAX_LOOPS} loops are within one another"
            ));
        }
        if word == "for" && code.contains("recursive") {
            return no("[recursive]");
        }
    }
    Ok(())
}

/// Bytes of a tag: functions that call themselves parse its nested parts.
const MAX_EXPRESSION: usize = 4096;

/// Returns how long the code of a tag is, and refuses operators and lists in it.
fn expression(code: &str, end: &str) -> Result<usize, String> {
    let no = |what: char| {
        Err(format!("the template cannot be used: [{what}] is not there: values, filters, if and for are"))
    };
    let mut before = ' ';
    // For each bracket that is open, whether a comma may stand in it.
    let mut open: Vec<bool> = Vec::new();
    let mut chars = code.char_indices().peekable();
    let mut at_start = true;
    while let Some((at, c)) = chars.next() {
        if at > MAX_EXPRESSION {
            return Err(format!("the template cannot be used: a tag is longer than {MAX_EXPRESSION} bytes"));
        }
        let at_edge = at_start || code[at + c.len_utf8()..].starts_with(end);
        at_start &= c.is_whitespace();
        match c {
            _ if open.is_empty() && code[at..].starts_with(end) => return Ok(at),
            '"' | '\'' => {
                while let Some((_, inner)) = chars.next() {
                    match inner {
                        '\\' => drop(chars.next()),
                        inner if inner == c => break,
                        _ => {}
                    }
                }
            }
            // Trims what is around a tag.
            '-' | '+' if at_edge => {}
            // A colon makes a part of a text or list, which is a copy.
            '~' | '*' | '+' | '-' | '/' | '%' | '{' | ':' => return no(c),
            '[' if !(before.is_alphanumeric() || matches!(before, '_' | ')' | ']')) => return no(c),
            '(' => open.push(before.is_alphanumeric() || before == '_'),
            '[' => open.push(false),
            ')' | ']' => drop(open.pop()),
            ',' if open.last() != Some(&true)
                && !(open.is_empty() && code.trim_start().starts_with("for")) =>
            {
                return no(c);
            }
            _ => {}
        }
        // A word such as `in` is no value that could be indexed.
        if !c.is_whitespace() {
            before = c;
        } else if before.is_alphanumeric() {
            let word: String =
                code[..at].chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let word: String = word.chars().rev().collect();
            if matches!(word.as_str(), "in" | "if" | "elif" | "else" | "and" | "or" | "not" | "is") {
                before = ' ';
            }
        }
    }
    Ok(code.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(template: &str) -> Result<String, String> {
        let context = Value::from_serialize(serde_json::json!({
            "alert": {"name": "a \"b\"", "list": [1, 2, 3], "host.name": "h"}, "long": "x".repeat(100_000), "count": 2,
            "many": (0..1000).collect::<Vec<_>>(),
        }));
        render(template, &context, 200_000)
    }

    #[test]
    fn values_filters_conditions_and_loops_are_there() {
        for (template, expected) in [
            ("plain", "plain"),
            ("{{ alert.name | tojson }}", r#""a \"b\"""#),
            ("{{ alert.missing.deeper | tojson }}", "null"),
            ("{{ alert['host.name'] }}{{ alert.list[0] }}", "h1"),
            (
                "{% if count == 2 and alert.name != 'x' %}two{% elif count %}some{% else %}none{% endif %}",
                "two",
            ),
            ("{% for n in alert.list %}{{ n }}{% if not loop.last %}, {% endif %}{% endfor %}", "1, 2, 3"),
            ("{% for name, value in alert|items %}{% endfor %}", ""),
            ("{{ alert.list | join('-') }}", "1-2-3"),
            ("{{ 'a b' | replace(' ', '+') | upper }}", "A+B"),
            ("{{ alert.name | e }}", "a &quot;b&quot;"),
            ("{{ 'ä/b' | urlencode }}", "%C3%A4%2Fb"),
            ("{{ 'abcdef' | truncate(3) }}{{ 'abcdef' | truncate }}", "ab…abcdef"),
            ("{{ nothing | default('d') }}{{ (nothing or 'e') | upper }}", "dE"),
            ("{\"a\": {{ count }}, \"b\": {\"c\": [1, {{ count }}]}}", "{\"a\": 2, \"b\": {\"c\": [1, 2]}}"),
            ("{#- a ~ comment -#}{{- count -}} ", "2"),
        ] {
            if template.contains("items") {
                assert!(run(template).is_err(), "{template}");
                continue;
            }
            assert_eq!(run(template).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn what_would_go_on_or_grow_is_refused_or_ended() {
        for (template, reason) in [
            ("{% for a in many %}{% for b in many %}{{ b }}{% endfor %}{% endfor %}", "steps"),
            ("{% for a in many %}{{ long }}{% endfor %}", "more than 200000 bytes"),
            (
                "{% for a in many %}{% for b in many %}{% for c in many %}{% endfor %}{% endfor %}{% endfor %}",
                "loops",
            ),
            ("{% set x = long %}", "[set]"),
            ("{% macro a() %}{% endmacro %}", "[macro]"),
            ("{% filter upper %}{% endfilter %}", "[filter]"),
            ("{% include 'x' %}", "[include]"),
            ("{{ long ~ long }}", "[~]"),
            ("{{ 'x' * 100000000 }}", "[*]"),
            ("{{ long + long }}", "[+]"),
            ("{{ count - count }}", "[-]"),
            (&format!("{{{{ {}count }}}}", "-".repeat(30_000)), "[-]"),
            (&format!("{{{{ {}count }}}}", " ".repeat(30_000)), "longer than"),
            (&format!("{{{{ {}count }}}}", "not ".repeat(10_000)), "longer than"),
            ("{% for a in [long, long] %}{% endfor %}", "[[]"),
            ("{% for a in (long, long) %}{% endfor %}", "[,]"),
            ("{{ {'a': long} }}", "[{]"),
            ("{{ long | replace('x', long) }}", "more than 1048576 bytes"),
            (
                "{% for a in many %}{% if long | upper | lower == 'x' %}{% endif %}{% endfor %}",
                "filters make more than 33554432 bytes",
            ),
            (
                "{% for a in many %}{% if long | length == 1 %}{% endif %}{% endfor %}",
                "filters make more than",
            ),
            ("{% for a in many %}{% if long[1:] == 'x' %}{% endif %}{% endfor %}", "[:]"),
            ("{{ range(1000000) }}", "unknown function"),
            ("{{ many | tojson | tojson | nothing }}", "filter"),
            ("{{ count", "the template cannot be used"),
            ("{% if %}", "the template cannot be used"),
        ] {
            let error = run(template).expect_err(template);
            assert!(error.contains(reason), "{template}: {error}");
        }
        let mut grows = "{{ alert.name".to_owned();
        grows.push_str(&" | tojson".repeat(60));
        grows.push_str(" }}");
        assert!(run(&grows).unwrap_err().contains("bytes"));
        assert!(check(&"x".repeat(MAX_TEMPLATE + 1)).is_err());
        assert!(check(&"{".repeat(MAX_TEMPLATE)).is_ok() || check(&"{".repeat(MAX_TEMPLATE)).is_err());
    }
}
