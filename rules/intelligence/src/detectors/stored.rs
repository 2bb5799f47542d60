//! A detector as a document of `.intelligence_rules`: the users' definition, the outcome of its last run, and the server's state.

use std::sync::Arc;

use millrace_engine::DocumentVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::definition::DetectorDefinition;
use crate::store::RunRecord;

/// Summary of the model that serves, as the record shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ModelSummary {
    /// End of the training window.
    pub(crate) trained_ms: i64,
    /// Rows, buckets or lines that it was trained on.
    pub(crate) samples: u64,
    /// Facts that depend on the model type: seasons, cluster profiles, missing values.
    pub(crate) details: Map<String, Value>,
}

/// State that the server has of a detector beside its definition and the outcome of its last run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DetectorState {
    /// User that saved it last: it runs with the rights of this user.
    pub(crate) owner: String,
    /// Grows by one with each change of the definition.
    pub(crate) revision: u64,
    /// The latest time of the schedule that was seen to, or when it was saved.
    pub(crate) handled_ms: i64,
    /// Runs of the schedule that the server did not live to see the end of, one after another.
    pub(crate) tries: u32,
    /// Number of the models that serve; 0 before the first training.
    pub(crate) build: u64,
    /// Definition that these models were trained by, and the user whose rights it has.
    pub(crate) serving: Option<Value>,
    pub(crate) serving_owner: String,
    /// First frame of the change feed whose documents are scored; `None` while nothing is scored as it arrives.
    pub(crate) since: Option<u64>,
    pub(crate) model: Option<ModelSummary>,
    /// Places of the values whose training failed.
    pub(crate) untrained: Vec<usize>,
    /// The `start_date` from which history was scored.
    pub(crate) walked_ms: Option<i64>,
    /// Forecasts before this time have their actual values, or never get one.
    pub(crate) filled_ms: Option<i64>,
}

/// A detector with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct StoredDetector {
    pub(crate) id: String,
    pub(crate) definition: Arc<DetectorDefinition>,
    /// Definition that the models were trained by.
    pub(crate) serving: Option<Arc<DetectorDefinition>>,
    pub(crate) ran: RunRecord,
    pub(crate) state: DetectorState,
    /// Version of the document; `None` before it is stored.
    pub(crate) version: Option<DocumentVersion>,
}

impl StoredDetector {
    /// Makes a detector that was not there before.
    pub(crate) fn new(id: String, definition: DetectorDefinition, state: DetectorState) -> Self {
        Self {
            id,
            definition: Arc::new(definition),
            serving: None,
            ran: RunRecord::default(),
            state,
            version: None,
        }
    }

    /// Takes another definition; the models of the earlier one serve until new ones are built.
    pub(crate) fn redefine(&mut self, definition: Arc<DetectorDefinition>, owner: &str, now_ms: i64) {
        if self.serving.as_ref().is_some_and(|serving| serving.digest() == definition.digest()) {
            self.serve(Arc::clone(&definition), owner);
        }
        self.definition = definition;
        owner.clone_into(&mut self.state.owner);
        self.state.revision += 1;
        self.state.handled_ms = now_ms;
        if !self.definition.is_scheduled() {
            self.state.since = None;
        }
    }

    /// Has models of a definition serve.
    pub(crate) fn serve(&mut self, definition: Arc<DetectorDefinition>, owner: &str) {
        self.state.serving = Some(Value::Object(definition.document()));
        owner.clone_into(&mut self.state.serving_owner);
        self.serving = Some(definition);
    }

    /// Returns whether it scores what arrives.
    pub(crate) fn is_live(&self) -> bool {
        self.state.since.is_some()
            && self.definition.is_scheduled()
            && self.serving.as_ref().is_some_and(|serving| serving.model_type.is_scored())
    }

    /// Names its status, as users see it; `running` is the phase of a run in flight.
    pub(crate) fn status(&self, running: Option<&'static str>) -> &'static str {
        match (running, self.ran.exit_code) {
            (Some(phase), _) => phase,
            (None, Some(code)) if code != 0 => "Error",
            (None, _) if self.is_live() => "Scoring",
            (None, _) if self.definition.is_scheduled() => "Scheduled",
            (None, Some(_)) => "Finished",
            (None, None) => "Waiting to start",
        }
    }

    /// Writes the document as it is shown, without `state`.
    pub(crate) fn to_json(&self) -> Value {
        let mut members = self.definition.document();
        if let Ok(Value::Object(ran)) = serde_json::to_value(&self.ran) {
            members.extend(ran.into_iter().filter(|(_, value)| !value.is_null()));
        }
        if let Some(model) = &self.state.model {
            let mut shown = model.details.clone();
            shown.insert("trained_until".to_owned(), json!(crate::time::iso(model.trained_ms)));
            shown.insert("samples".to_owned(), json!(model.samples));
            shown.insert("build".to_owned(), json!(self.state.build));
            members.insert("model".to_owned(), Value::Object(shown));
        }
        Value::Object(members)
    }

    /// Writes the document as it is stored.
    pub(crate) fn document(&self) -> Value {
        let mut document = self.to_json();
        document["state"] = serde_json::to_value(&self.state).unwrap_or_default();
        document
    }

    /// Reads a stored document.
    ///
    /// # Errors
    /// The reason why it is no detector.
    pub(crate) fn read(id: &str, document: Value) -> Result<Self, String> {
        let definition = DetectorDefinition::parse(&document).map_err(|error| error.to_string())?;
        let state: DetectorState =
            serde_json::from_value(document["state"].clone()).map_err(|error| error.to_string())?;
        let serving = state.serving.as_ref().map(DetectorDefinition::parse).transpose();
        let serving = serving.map_err(|error| format!("the definition of its model: {error}"))?;
        let ran = serde_json::from_value(document).map_err(|error| error.to_string())?;
        let (definition, serving) = (Arc::new(definition), serving.map(Arc::new));
        Ok(Self { id: id.to_owned(), definition, serving, ran, state, version: None })
    }
}
