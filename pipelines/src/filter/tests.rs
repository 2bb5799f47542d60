//! Cases in `cases/<filter>.yaml`: options and an event, with what becomes of it.

use std::fs;
use std::path::Path;

use chrono::{TimeZone, Utc};
use millrace_ingest::budget::AnswerAllowance;
use millrace_ingest::options::{Location, Setting};
use millrace_ingest::{Event, Options};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{FilterContext, FilterPlugin, NAMES, Outcome, build};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    options: Map<String, Value>,
    #[serde(default)]
    event: Map<String, Value>,
    /// All fields afterwards; time and metadata only where they are named.
    is: Option<Map<String, Value>>,
    /// `matched` where it is not said.
    outcome: Option<String>,
    #[serde(default)]
    made: Vec<Map<String, Value>>,
    /// Part of the fault that the options have.
    fault: Option<String>,
}

fn setting(value: Value) -> Setting {
    match value {
        Value::Number(number) => Setting::Number(number),
        Value::Array(elements) => Setting::Array(elements.into_iter().map(setting).collect()),
        Value::Object(members) => {
            Setting::Hash(members.into_iter().map(|(name, value)| (name, setting(value))).collect())
        }
        Value::String(text) => Setting::Text(text),
        other => Setting::Text(other.to_string()),
    }
}

fn options(filter: &str, given: Map<String, Value>) -> Options {
    let given = given.into_iter().map(|(name, value)| (name, Location::default(), setting(value)));
    Options::new(filter, Location::default(), given)
}

fn fields(event: &Event, wanted: &Map<String, Value>) -> Value {
    let mut fields = event.fields().clone();
    if wanted.contains_key("@timestamp") {
        fields.insert("@timestamp".to_owned(), Value::String(event.timestamp_text()));
    }
    if wanted.contains_key("@metadata") {
        fields.insert("@metadata".to_owned(), Value::Object(event.metadata().clone()));
    }
    Value::Object(fields)
}

/// Runs a case; the error names the difference.
fn run(filter: &str, case: Case) -> Result<(), String> {
    let built = match (build(options(filter, case.options), &mut FilterContext::default()), case.fault) {
        (Ok(built), None) => built,
        (Err(faults), Some(expected)) if faults.iter().any(|fault| fault.message.contains(&expected)) => {
            return Ok(());
        }
        (built, expected) => return Err(format!("fault {expected:?} expected, not {:?}", built.err())),
    };
    let mut event = Event::from_fields(case.event, Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap());
    let mut made = Vec::new();
    let outcome = match &built {
        FilterPlugin::Local(filter) => filter.apply(&mut event, &mut made),
        FilterPlugin::Remote(filter) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(filter.apply(&mut event, &AnswerAllowance::default()))
        }
    };
    let outcome = match outcome {
        Outcome::Matched => "matched",
        Outcome::Unmatched => "unmatched",
        Outcome::Dropped => "dropped",
    };
    let expected = case.outcome.as_deref().unwrap_or("matched");
    if outcome != expected {
        return Err(format!("{outcome} instead of {expected}: {:?}", event.fields()));
    }
    if made.len() != case.made.len() {
        return Err(format!("{} events were made", made.len()));
    }
    let wanted = case.is.into_iter().chain(case.made);
    for (event, is) in std::iter::once(&event).chain(&made).zip(wanted) {
        let fields = fields(event, &is);
        let is = Value::Object(is);
        if fields != is {
            return Err(format!("\n  {fields}\nis not\n  {is}"));
        }
    }
    Ok(())
}

#[test]
fn cases_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/filter/cases");
    let mut failures = Vec::new();
    for filter in NAMES {
        let text = fs::read_to_string(directory.join(format!("{filter}.yaml"))).unwrap();
        let cases: Vec<Case> =
            serde_norway::from_str(&text).unwrap_or_else(|error| panic!("{filter}: {error}"));
        assert!(!cases.is_empty(), "{filter}");
        for case in cases {
            let name = format!("{filter}: {}", case.name);
            failures.extend(run(filter, case).err().map(|failure| format!("{name}: {failure}")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn all_names_are_built() {
    for filter in NAMES {
        let given = Map::from_iter([("nonsense".to_owned(), Value::Null)]);
        let faults = build(options(filter, given), &mut FilterContext::default()).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains("[nonsense]")), "{filter}: {faults:?}");
    }
    let refused =
        |name| build(options(name, Map::new()), &mut FilterContext::default()).unwrap_err().remove(0).message;
    assert!(refused("grook").contains("did you mean [grok]?"));
    assert!(refused("multiline").contains("by the codec multiline"));
}

#[test]
fn fingerprints_by_chance_are_uuids() {
    let given = Map::from_iter([("method".to_owned(), Value::from("UUID"))]);
    let built = build(options("fingerprint", given), &mut FilterContext::default()).unwrap();
    let FilterPlugin::Local(filter) = built else { panic!("it asks nobody") };
    let mut event = Event::new(Utc::now());
    filter.apply(&mut event, &mut Vec::new());
    let id = event.fields()["fingerprint"].as_str().unwrap();
    assert_eq!(uuid::Uuid::parse_str(id).unwrap().get_version_num(), 4);
}
