//! `ruby`: changes events by scripts, in a subset of Ruby that an interpreter of its own evaluates.
//!
//! A script has the event, and no files, programs or network. [`parser`] refuses what the subset lacks, by name and place, before the
//! pipeline runs. [`interpreter`] bounds steps, memory and time of each event.

mod file;
mod interpreter;
mod lexer;
mod methods;
mod parser;
mod syntax;
mod task;
mod token;
mod value;

use std::path::Path;
use std::sync::Arc;

use chrono::DateTime;
use millrace_ingest::{Event, Fault, Options};
use parking_lot::Mutex;
use serde_json::Value;

use super::refresh::read_text;
use super::settings::{texts_or, value_of};
use super::{Filter, Outcome};
use file::ScriptFile;
use interpreter::{Interpreter, ScriptState};
use syntax::Script;
pub(super) use task::{TaskMap, TaskScript};
use value::{RaisedError, Val, empty_nested};

/// Longest script, in bytes.
const MAX_SCRIPT_BYTES: usize = 64 << 10;
/// Bytes that variables which outlive an event may take, about.
const MAX_STATE_BYTES: usize = 64 << 20;
/// Events between two measurements of these variables.
const MEASURED_EACH: u32 = 256;
/// Bytes of new values after which these variables are measured earlier.
const MEASURED_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Ruby {
    script: Script,
    state: Mutex<RubyState>,
    has_state: bool,
    tags_on_exception: Vec<String>,
    tag_with_message: bool,
    /// `true` if the value of the script is the array of events that go on.
    returns_events: bool,
}

#[derive(Debug, Default)]
struct RubyState {
    variables: ScriptState,
    events: u32,
    /// Bytes of values that runs have made since the last measurement.
    bytes: usize,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let is_given = |name: &str, options: &Options| options.given().any(|(given, _)| given == name);
    let (has_code, has_path) = (is_given("code", &options), is_given("path", &options));
    let has_init = is_given("init", &options);
    let code = script(&mut options, "code");
    let init = script(&mut options, "init");
    let file = script_file(&mut options);
    let parameters: serde_json::Map<String, Value> =
        options.hash("script_params").into_iter().map(|(name, value)| (name, value_of(value))).collect();
    let tags_on_exception = texts_or(&mut options, "tag_on_exception", &["_rubyexception"]);
    let tag_with_message = options.boolean("tag_with_exception_message").unwrap_or(false);
    if has_code == has_path {
        options.fault_here("[ruby] needs either the option [code], or [path] with a file of scripts");
    }
    // What a script that is refused would assign is not known.
    if code.is_some() == has_code && init.is_some() == has_init && file.is_some() == has_path {
        let scripts = code.iter().chain(&init).chain(file.iter().flat_map(ScriptFile::scripts));
        unassigned_globals(scripts).into_iter().for_each(|fault| options.fault_here(fault));
    }
    let mut state = RubyState::default();
    if let Some(init) = &init
        && let Err(error) = Interpreter::new(init.slots, Vec::new(), &mut state.variables).run(init)
    {
        options.fault_here(format!("[init] of [ruby] fails: {} ({})", error.message, error.class));
    }
    let returns_events = file.is_some();
    let script = match file {
        None => code,
        Some(file) => {
            let mut run = Interpreter::new(file.constants.slots, Vec::new(), &mut state.variables);
            if let Err(error) = run.run(&file.constants) {
                options.fault_here(format!(
                    "a constant of [path] of [ruby] fails: {} ({})",
                    error.message, error.class
                ));
            }
            if let Some(register) = &file.register {
                let mut run = Interpreter::new(register.slots, Vec::new(), &mut state.variables);
                run.bind(vec![Val::from_json(&Value::Object(parameters))]);
                if let Err(error) = run.run(register) {
                    options.fault_here(format!(
                        "[register] of [ruby] fails: {} ({})",
                        error.message, error.class
                    ));
                }
            }
            Some(file.filter)
        }
    };
    options.finish()?;
    let Some(script) = script else { return Err(Vec::new()) };
    let has_state = script.has_state;
    let state = Mutex::new(state);
    Ok(Arc::new(Ruby { script, state, has_state, tags_on_exception, tag_with_message, returns_events }))
}

/// Returns the faults of global variables that no script of the filter assigns: they would be those of another filter, and always `nil`.
fn unassigned_globals<'a>(scripts: impl Iterator<Item = &'a Script> + Clone) -> Vec<String> {
    let mut unassigned: Vec<String> = Vec::new();
    for (name, at) in scripts.clone().flat_map(|script| &script.globals.named) {
        if !scripts.clone().any(|script| script.globals.assigned.contains(name)) {
            unassigned.push(format!(
                "{at}: no script of this filter assigns the global variable [{name}], and those of other filters are not seen: use \
                 @metadata of the event"
            ));
        }
    }
    unassigned
}

/// Takes the file of scripts.
fn script_file(options: &mut Options) -> Option<ScriptFile> {
    let at = options.at();
    let path = options.text("path")?;
    let read = read_text(Path::new(&path), MAX_SCRIPT_BYTES as u64);
    let parsed = read.and_then(|text| {
        ScriptFile::parse(&text).map_err(|fault| format!("[{path}], {}: {}", fault.at, fault.message))
    });
    parsed.map_err(|problem| options.fault(at, format!("option [path] of [ruby]: {problem}"))).ok()
}

/// Takes a script.
fn script(options: &mut Options, name: &'static str) -> Option<Script> {
    let at = options.at();
    let text = options.text(name)?;
    if text.len() > MAX_SCRIPT_BYTES {
        options.fault(at, format!("option [{name}] of [ruby] has more than {MAX_SCRIPT_BYTES} bytes"));
        return None;
    }
    match parser::parse(&text) {
        Ok(script) => Some(script),
        Err(fault) => {
            options.fault(at, format!("[{name}] of [ruby], {}: {}", fault.at, fault.message));
            None
        }
    }
}

/// Result of a script for an event.
#[derive(Debug)]
struct ScriptOutcome {
    /// An error that nothing rescued.
    result: Result<(), RaisedError>,
    /// `true` if the event ends.
    is_cancelled: bool,
    /// Bytes of values that the script made.
    bytes: usize,
}

/// Properties of a script's run.
#[derive(Clone, Copy, Debug, Default)]
struct ScriptBehaviour {
    /// `true` to free values that contain themselves: nothing that outlives the event may share them.
    empties_locals: bool,
    /// `true` if the value of the script is the array of events that go on.
    returns_events: bool,
}

/// Runs a script for an event; the first local variables have these values.
fn run_script(
    script: &Script,
    event: &mut Event,
    made: &mut Vec<Event>,
    variables: &mut ScriptState,
    locals: Vec<Val>,
    behaviour: ScriptBehaviour,
) -> ScriptOutcome {
    let taken = std::mem::replace(event, Event::new(DateTime::UNIX_EPOCH));
    let mut run = Interpreter::new(script.slots, vec![taken], variables);
    if behaviour.returns_events {
        // The parameter of the function.
        run.bind(vec![run.event(0)]);
    } else {
        run.bind(locals);
    }
    let mut result = run.run(script);
    if behaviour.returns_events
        && let Ok(value) = &result
        && let Err(error) = run.hand_on_all(value)
    {
        result = Err(error);
    }
    let result = result.map(drop);
    if behaviour.empties_locals {
        run.empty_locals();
    }
    let bytes = run.bytes();
    let handed_on = std::mem::take(&mut run.handed_on);
    let is_cancelled = run.is_cancelled;
    let mut events = std::mem::take(&mut run.events).into_iter();
    if let Some(first) = events.next() {
        *event = first;
    }
    let others: Vec<Event> = events.collect();
    for number in handed_on {
        made.extend(others.get(number - 1).cloned());
    }
    ScriptOutcome { result, is_cancelled, bytes }
}

impl Ruby {
    /// Runs the script; returns the bytes of values that it has made, too.
    fn run(&self, event: &mut Event, made: &mut Vec<Event>, variables: &mut ScriptState) -> (Outcome, usize) {
        let behaviour =
            ScriptBehaviour { empties_locals: !self.has_state, returns_events: self.returns_events };
        let ScriptOutcome { result, is_cancelled, bytes } =
            run_script(&self.script, event, made, variables, Vec::new(), behaviour);
        let outcome = match result {
            Err(error) => {
                self.tags_on_exception.iter().for_each(|tag| event.tag(tag));
                if self.tag_with_message {
                    for tag in &self.tags_on_exception {
                        event.tag(&format!("{tag}: {}", error.message));
                    }
                }
                tracing::debug!(
                    class = error.class,
                    message = error.message,
                    "a script of the filter ruby failed"
                );
                Outcome::Unmatched
            }
            Ok(()) if is_cancelled => Outcome::Dropped,
            Ok(()) => Outcome::Matched,
        };
        (outcome, bytes)
    }
}

impl Filter for Ruby {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        if !self.has_state {
            return self.run(event, made, &mut ScriptState::new()).0;
        }
        let mut state = self.state.lock();
        state.events = state.events.wrapping_add(1);
        if state.events.is_multiple_of(MEASURED_EACH) || state.bytes > MEASURED_BYTES {
            state.bytes = 0;
            let bytes = state
                .variables
                .values()
                .fold(0, |sum: usize, value| sum.saturating_add(value.weight(MAX_STATE_BYTES)));
            if bytes > MAX_STATE_BYTES {
                tracing::error!(
                    bytes,
                    "variables of a script of the filter ruby exceed {MAX_STATE_BYTES} bytes and are emptied"
                );
                empty_nested(std::mem::take(&mut state.variables).into_values().collect());
            }
        }
        let (outcome, bytes) = self.run(event, made, &mut state.variables);
        state.bytes = state.bytes.saturating_add(bytes);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::{Location, Setting};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const WORDS: &[&str] = &[
        "event", ".get", ".set", "('a')", "('b', 1)", "x", "=", "+", "-", "*", "/", "(", ")", "[", "]", "{",
        "}", "|x|", "\n", ";", "if", "else", "end", "do", "while", "true", "nil", "1", "2.5", "'t'",
        "\"#{x}\"", ":s", "=>", ",", ".each", ".map", ".to_s", ".split", "..", "&&", "||", "!", "==", "=~",
        "/a/", "$1", "@v", "+=", "<<", "?", ":", "case", "when", "then", "begin", "rescue", "&:to_s",
        "%w[a b]", "->", "unless", "and", "not", "*a", ".sort", ".to_json", " ", "return", "next", "break",
    ];

    fn apply(code: &str) {
        let given = [("code".to_owned(), Location::default(), Setting::Text(code.to_owned()))];
        let Ok(filter) = build(Options::new("ruby", Location::default(), given)) else { return };
        let fields = json!({"a": [1, "x", {"k": null}], "b": "text"});
        let mut event =
            Event::from_fields(fields.as_object().cloned().unwrap_or_default(), DateTime::UNIX_EPOCH);
        filter.apply(&mut event, &mut Vec::new());
    }

    fn outcome(code: &str) -> Outcome {
        let given = [("code".to_owned(), Location::default(), Setting::Text(code.to_owned()))];
        let filter = build(Options::new("ruby", Location::default(), given)).unwrap();
        filter.apply(&mut Event::new(DateTime::UNIX_EPOCH), &mut Vec::new())
    }

    #[test]
    fn a_file_has_scripts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let code = "# tags\ndef register(params)\n  @field = params.fetch('field')\nend\n\ndef filter(event)\n  \
            return [] if event.get(@field) == 'drop'\n  if event.get(@field).nil?\n    event.tag(\"#{@field}_missing\")\n    \
            return [event]\n  end\n  copy = event.clone\n  copy.set('copy', true)\n  [event, copy]\nend\n\n\
            test 'x' do\n  expect('y') { |events| events.first.get('a') == 1 }\nend\n";
        std::fs::write(file.path(), code).unwrap();
        let text = |text: &str| Setting::Text(text.to_owned());
        let given = |path: &std::path::Path| {
            let parameters = Setting::Hash(vec![("field".to_owned(), text("a"))]);
            [("path", text(path.to_str().unwrap())), ("script_params", parameters)]
                .map(|(name, value)| (name.to_owned(), Location::default(), value))
        };
        let filter = build(Options::new("ruby", Location::default(), given(file.path()))).unwrap();
        let apply = |fields: Value| {
            let fields = fields.as_object().cloned().unwrap_or_default();
            let (mut event, mut made) = (Event::from_fields(fields, DateTime::UNIX_EPOCH), Vec::new());
            (filter.apply(&mut event, &mut made), event.fields().clone(), made.len())
        };
        assert_eq!(apply(json!({"a": "drop"})).0, Outcome::Dropped);
        assert_eq!(apply(json!({})).1["tags"], json!(["a_missing"]));
        assert_eq!((apply(json!({"a": 1})).0, apply(json!({"a": 1})).2), (Outcome::Matched, 1));
        for (code, expected) in [
            ("def register(params)\nend", "no `def filter(event)`"),
            (
                "def filter(event)\n[event]\nend\ndef filter(event)\n[event]\nend",
                "[def filter] is not supported",
            ),
            (
                "NAMES = [1].first(-1)\ndef filter(event)\n[event]\nend",
                "a constant of [path] of [ruby] fails",
            ),
            ("NAMES = [\ndef filter(event)\n[event]\nend", "[def filter] is not expected here"),
            ("event.set('a', 1)", "a file of scripts has"),
        ] {
            std::fs::write(file.path(), code).unwrap();
            let faults = build(Options::new("ruby", Location::default(), given(file.path()))).unwrap_err();
            assert!(faults[0].message.contains(expected), "{faults:?}");
        }
        let code = "require 'set'\nNAMES = ['x', 'y'].freeze\nLENGTHS = NAMES.map { |name| name.length + 1 }\n\
            def register(params)\n  @n = count(0)\nend\n\
            def filter(event)\n  event.set('n', count(@n))\n  event.set('all', LENGTHS)\n  [event]\nend\n\
            def count(n)\n  @calls = (@calls || 0) + 1\n  n + NAMES.length + @calls\nend\n";
        std::fs::write(file.path(), code).unwrap();
        let filter = build(Options::new("ruby", Location::default(), given(file.path()))).unwrap();
        for n in [7, 8] {
            let mut event = Event::new(DateTime::UNIX_EPOCH);
            assert_eq!(filter.apply(&mut event, &mut Vec::new()), Outcome::Matched);
            assert_eq!((&event.fields()["n"], &event.fields()["all"]), (&json!(n), &json!([2, 2])));
        }
        std::fs::write(file.path(), "def filter(event)\n  event\nend").unwrap();
        let filter = build(Options::new("ruby", Location::default(), given(file.path()))).unwrap();
        let mut event = Event::new(DateTime::UNIX_EPOCH);
        assert_eq!(filter.apply(&mut event, &mut Vec::new()), Outcome::Unmatched);
        assert_eq!(event.fields()["tags"], json!(["_rubyexception"]));
    }

    #[test]
    fn values_that_contain_themselves_end() {
        for code in [
            "h = {}; h['self'] = h; h.invert; h[h]; h.delete(h); h.inspect; h == h.dup; [h].include?(h.dup)",
            "a = []; a << a; a.inspect; a.join('x'); a.flatten; a == [a]",
        ] {
            assert_eq!(outcome(code), Outcome::Matched, "{code}");
        }
        assert_eq!(outcome("h = {}; h['self'] = h; event.set('x', h)"), Outcome::Unmatched);
        let code = "@h ||= {}; @h['self'] = @h".to_owned();
        let given = [("code".to_owned(), Location::default(), Setting::Text(code))];
        let filter = build(Options::new("ruby", Location::default(), given)).unwrap();
        for _ in 0..=MEASURED_EACH {
            let mut event = Event::new(DateTime::UNIX_EPOCH);
            assert_eq!(filter.apply(&mut event, &mut Vec::new()), Outcome::Matched);
        }
    }

    #[test]
    fn deep_values_and_scripts_do_not_exhaust_the_stack() {
        assert_eq!(outcome("x = []; 150_000.times { x = [x] }"), Outcome::Matched);
        assert_eq!(outcome("x = {}; 100_000.times { x = {'a' => x} }; x = nil"), Outcome::Matched);
        // Scripts run on threads with so much stack.
        let run = || outcome(&format!("1{}", "+1".repeat(400)));
        let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(run).unwrap();
        assert_eq!(thread.join().unwrap(), Outcome::Matched);
        for code in [
            "def f(x)\n f(x + 1)\nend\nf(1)",
            "def f(x)\n [x].each { |y| f([y].map { |z| z + 1 }.first) }\nend\nf(1)",
            "def f(h)\n h.each_with_object({}) { |(k, v), all| all[k] = f({k => v}) }\nend\nf({'a' => 1})",
            "def f(x)\n (1..2).each { |y| case y\n when 1 then x.sort_by { |z| \"#{f([z]).map { |a| a }}\" }\n end }\nend\nf([1, 2])",
        ] {
            let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(|| outcome(code)).unwrap();
            assert_eq!(thread.join().unwrap(), Outcome::Unmatched, "{code}");
        }
        assert_eq!(outcome(&"event.set('a', 1 + 1)\n".repeat(600)), Outcome::Matched);
        for code in [
            format!("1{}", "+1".repeat(16_000)),
            format!("1{}", ".abs".repeat(10_000)),
            format!("{}1{}", "(".repeat(15), format!("{})", "+1".repeat(300)).repeat(15)),
        ] {
            let fault = parser::parse(&code).unwrap_err();
            assert!(fault.message.contains("in a row"), "{}", fault.message);
        }
    }

    #[test]
    fn shared_values_count_as_often_as_they_are_reached() {
        for end in [
            "x.to_s",
            "x.to_json",
            "x.join('aaaa')",
            "x.flatten",
            "y = ['a' * 1000]; 30.times { y = [y, y] }; x == y",
            "y = {x => 1}",
            "event.set('x', x)",
            "Array.new(1000, 'a' * 100_000).join",
            "'%4096d' * 20_000 % ([1] * 20_000)",
            "1..x",
        ] {
            let code = format!("x = ['a' * 1000]; 30.times {{ x = [x, x] }}; {end}");
            assert_eq!(outcome(&code), Outcome::Unmatched, "{end}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn words_in_any_order_do_not_panic(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..24)) {
            apply(&words.concat());
            apply(&words.join(" "));
        }

        #[test]
        fn any_text_does_not_panic(code in "[ -~\n\u{e4}]{0,60}") {
            apply(&code);
        }
    }
}
