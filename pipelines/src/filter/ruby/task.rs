//! Scripts of the filter `aggregate`: they have the event, and the map of its task as the variable `map`.

use millrace_ingest::Event;
use serde_json::Value;

use super::syntax::Script;
use super::value::{Members, Val, empty_nested};
use super::{MAX_SCRIPT_BYTES, ScriptBehaviour, ScriptOutcome, parser, run_script};

/// Variable of the map, in the first slot.
const VARIABLES: [&str; 1] = ["map"];

/// A script with the variables `event` and `map`.
#[derive(Debug)]
pub(in crate::filter) struct TaskScript(Script);

/// Map of a task. Scripts change it; it outlives their events.
#[derive(Debug)]
pub(in crate::filter) struct TaskMap(Val);

/// Result of a script for an event.
#[derive(Debug)]
pub(in crate::filter) struct TaskOutcome {
    /// `true` if the event ends.
    pub(in crate::filter) is_cancelled: bool,
    /// Class and message of an error that nothing rescued.
    pub(in crate::filter) error: Option<String>,
    /// Bytes of values that the script made, about.
    pub(in crate::filter) bytes: usize,
}

impl TaskScript {
    /// Parses a script.
    ///
    /// # Errors
    /// A fault of the script, or a part that is not supported, with its place.
    pub(in crate::filter) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SCRIPT_BYTES {
            return Err(format!("the script has more than {MAX_SCRIPT_BYTES} bytes"));
        }
        let script = parser::parse_with(text, &VARIABLES)
            .map_err(|fault| format!("{}: {}", fault.at, fault.message))?;
        if script.has_state {
            return Err("variables with @ or $ are not supported here: put values into map".to_owned());
        }
        Ok(Self(script))
    }

    /// Runs the script for an event. Events that it makes are added to `made`.
    pub(in crate::filter) fn run(
        &self,
        event: &mut Event,
        map: &TaskMap,
        made: &mut Vec<Event>,
    ) -> TaskOutcome {
        let mut state = super::ScriptState::new();
        let ScriptOutcome { result, is_cancelled, bytes } =
            run_script(&self.0, event, made, &mut state, vec![map.0.clone()], ScriptBehaviour::default());
        let error = result.err().map(|error| format!("{}: {}", error.class, error.message));
        TaskOutcome { is_cancelled, error, bytes }
    }
}

impl TaskMap {
    /// Makes an empty map.
    pub(in crate::filter) fn new() -> Self {
        Self(Val::hash(Members::new()))
    }

    /// Returns the bytes that it takes, about, up to a limit.
    pub(in crate::filter) fn weight(&self, limit: usize) -> usize {
        self.0.weight(limit)
    }

    /// Returns the map as an object.
    ///
    /// # Errors
    /// A value has no form in JSON.
    pub(in crate::filter) fn to_object(&self) -> Result<serde_json::Map<String, Value>, String> {
        match self.0.to_json() {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Ok(serde_json::Map::new()),
            Err(error) => Err(error.message),
        }
    }
}

/// Values may contain themselves.
impl Drop for TaskMap {
    fn drop(&mut self) {
        empty_nested(vec![std::mem::replace(&mut self.0, Val::Nil)]);
    }
}
