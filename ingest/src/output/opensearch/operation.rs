//! Operations of events: an action on a document of an index.

use bytes::Bytes;
use millrace_catalog::operation::{ActionKind, VersionType};
use serde_json::Value;

use super::data_stream::{self, DataStreamTarget};
use crate::{Event, Options, Template};

/// Index where none is given.
const INDEX: &str = "logstash-%{+yyyy.MM.dd}";
/// Index where none is given and fields have the names of the schema.
const SCHEMA_INDEX: &str = "ecs-logstash-%{+yyyy.MM.dd}";
/// Longest id of a document.
const MAX_ID_BYTES: usize = 512;

/// Builder of the operations of events.
#[derive(Debug)]
pub(super) struct Operations {
    action: Template,
    index: Template,
    /// In place of the index.
    data_stream: Option<DataStreamTarget>,
    document_id: Option<Template>,
    routing: Option<Template>,
    pub(super) pipeline: Option<Template>,
    version: Option<Template>,
    version_type: Option<VersionType>,
    upsert: Option<Template>,
    doc_as_upsert: bool,
    pub(super) retry_on_conflict: u32,
}

/// Names that an output takes where it is given none.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexNaming {
    index: &'static str,
    /// `true` if documents go to a data stream.
    prefers_data_stream: bool,
}

impl IndexNaming {
    /// Takes `ecs_compatibility`, before all other options.
    pub(super) fn take(options: &mut Options) -> Self {
        let ecs = options.ecs_compatibility();
        Self {
            index: ecs.select(INDEX, SCHEMA_INDEX),
            prefers_data_stream: ecs.is_enabled() && data_stream::is_possible(options),
        }
    }
}

/// Action of operations that are the same but for their documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConstantAction {
    Index,
    Create,
}

/// An action on a document.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) action: ActionKind,
    pub(super) index: String,
    pub(super) id: Option<String>,
    pub(super) routing: Option<String>,
    pub(super) pipeline: Option<String>,
    pub(super) version: Option<(u64, VersionType)>,
    /// The event as JSON; empty for a deletion.
    pub(super) document: Bytes,
    pub(super) upsert: Option<Value>,
    pub(super) doc_as_upsert: bool,
}

impl Operations {
    /// Takes the options that say what an event becomes.
    pub(super) fn take(options: &mut Options, naming: IndexNaming) -> Self {
        let data_stream = DataStreamTarget::take(options, naming.prefers_data_stream);
        let default_action = if data_stream.is_some() { "create" } else { "index" };
        let action = options.template("action").unwrap_or_else(|| Template::parse(default_action));
        if data_stream.is_some() && action.as_str() != "create" {
            options.fault_here(format!(
                "[action] is [{}], but documents of data streams are only created",
                action.as_str()
            ));
        }
        if action.is_constant() && ActionKind::parse(action.as_str()).is_none() {
            let action = action.as_str();
            options.fault_here(format!("[action] is [{action}], not one of [index, create, update, delete]"));
        }
        let version_type =
            options.one_of("version_type", &["internal", "external", "external_gt", "external_gte"]);
        let version_type = version_type.and_then(VersionType::parse);
        let document_id = options.template("document_id");
        if document_id.is_none() && matches!(action.as_str(), "update" | "delete") {
            options.fault_here(format!("[action => \"{}\"] needs the option [document_id]", action.as_str()));
        }
        let retries = options.integer("retry_on_conflict", 0..=1_000).unwrap_or(1);
        Self {
            action,
            index: options.template("index").unwrap_or_else(|| Template::parse(naming.index)),
            data_stream,
            document_id,
            routing: options.template("routing"),
            pipeline: options.template("pipeline"),
            version: options.template("version"),
            version_type,
            upsert: options.template("upsert").filter(|upsert| !upsert.as_str().is_empty()),
            doc_as_upsert: options.boolean("doc_as_upsert").unwrap_or(false),
            retry_on_conflict: u32::try_from(retries).unwrap_or(1),
        }
    }

    /// Returns the action of all events, where it is the same for all and nothing but an index is asked of an operation.
    pub(super) fn constant_action(&self) -> Option<ConstantAction> {
        let Self { action, document_id, routing, pipeline, version, .. } = self;
        let is_plain = document_id.is_none()
            && routing.is_none()
            && pipeline.is_none()
            && version.is_none()
            && self.data_stream.is_none();
        if !is_plain || !action.is_constant() {
            return None;
        }
        match ActionKind::parse(action.as_str())? {
            ActionKind::Index => Some(ConstantAction::Index),
            ActionKind::Create => Some(ConstantAction::Create),
            ActionKind::Delete | ActionKind::Update => None,
        }
    }

    /// Returns the names of the indices and data streams that events go to, as a pattern.
    pub(super) fn names(&self) -> String {
        self.data_stream.as_ref().map_or_else(|| self.index.pattern(), DataStreamTarget::pattern)
    }

    /// Returns the index of all events, where it is the same for all.
    pub(super) fn constant_index(&self) -> Option<&str> {
        // A constant text is rendered as it is written.
        let index = self.index.as_str();
        (self.index.is_constant() && !index.contains("%{")).then_some(index)
    }

    /// Returns the index of an event.
    ///
    /// # Errors
    /// The event lacks a part of its name.
    pub(super) fn index_for(&self, event: &Event) -> Result<String, String> {
        let index = self.index.render(event);
        if index.contains("%{") {
            return Err(format!("the event has not what the name of its index is made of: [{index}]"));
        }
        Ok(index)
    }

    /// Makes the operation of an event.
    ///
    /// # Errors
    /// Why there can be none.
    pub(super) fn operation_for(
        &self,
        event: &Event,
        stable_id: Option<String>,
    ) -> Result<Operation, String> {
        let name = self.action.render(event);
        let mut action = ActionKind::parse(&name)
            .ok_or_else(|| format!("action [{name}] is not one of [index, create, update, delete]"))?;
        let (index, synced) = match &self.data_stream {
            Some(stream) => stream.resolve(event)?,
            None => (self.index_for(event)?, None),
        };
        let event = synced.as_ref().unwrap_or(event);
        let given = self.document_id.as_ref().map(|id| id.render(event)).filter(|id| !id.is_empty());
        let given_none = given.is_none();
        // Sent again under the same id, it is not there twice.
        let stable_id = stable_id.filter(|_| matches!(action, ActionKind::Index | ActionKind::Create));
        let id = given.or(stable_id);
        if given_none && id.is_some() {
            action = ActionKind::Create;
        }
        if id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return Err(format!("document_id is longer than {MAX_ID_BYTES} bytes"));
        }
        if id.is_none() && matches!(action, ActionKind::Update | ActionKind::Delete) {
            return Err(format!("action [{name}] needs a document_id"));
        }
        let version = self.version.as_ref().map(|version| version.render(event));
        let version = match version {
            None => None,
            Some(text) => {
                let number = text.parse().map_err(|_| format!("version [{text}] is not a number"))?;
                Some((number, self.version_type.unwrap_or(VersionType::Internal)))
            }
        };
        let upsert = match (&self.upsert, action) {
            (Some(upsert), ActionKind::Update) => {
                let text = upsert.render(event);
                let upsert: Value = serde_json::from_str(&text)
                    .map_err(|error| format!("upsert [{text}] is not JSON: {error}"))?;
                if !upsert.is_object() {
                    return Err(format!("upsert [{text}] is not an object"));
                }
                Some(upsert)
            }
            _ => None,
        };
        let document = match event.document() {
            _ if action == ActionKind::Delete => Bytes::new(),
            Some(document) => document,
            None => {
                let mut document = Vec::with_capacity(512);
                event.write_json(&mut document);
                Bytes::from(document)
            }
        };
        Ok(Operation {
            action,
            index,
            id,
            routing: self
                .routing
                .as_ref()
                .map(|routing| routing.render(event))
                .filter(|text| !text.is_empty()),
            pipeline: self
                .pipeline
                .as_ref()
                .map(|pipeline| pipeline.render(event))
                .filter(|text| !text.is_empty()),
            version,
            document,
            upsert,
            doc_as_upsert: self.doc_as_upsert && action == ActionKind::Update,
        })
    }
}
