//! Saved objects: type and id, members and the rules for them.
//!
//! A [`Draft`] is one that was sent and checked. The [`Document`] that is stored has it as the text that is answered, but for the
//! version, which the store alone knows ([`StoredObject::write`]): what dashboards keep in `attributes` goes through the server as it
//! came.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millrace_engine::DocumentVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::error::invalid;
use crate::http::{MemoryAllowance, json};

/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 400;
/// Longest attributes of an object, in bytes.
const MAX_ATTRIBUTES_BYTES: usize = 5 << 20;
/// Longest search source, in bytes.
const MAX_SEARCH_SOURCE_BYTES: usize = 1 << 20;
/// Most references of an object.
const MAX_REFERENCES: usize = 1_000;
/// Most namespaces, and most entries of a migration version.
const MAX_ENTRIES: usize = 100;
/// Longest of the short texts that are kept beside attributes, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;

/// Type of a saved object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Dashboard,
    Visualization,
    Search,
    IndexPattern,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Dashboard, Self::Visualization, Self::Search, Self::IndexPattern];

    /// Returns the name in requests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Visualization => "visualization",
            Self::Search => "search",
            Self::IndexPattern => "index-pattern",
        }
    }

    pub(crate) fn known(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Reads a name.
    ///
    /// # Errors
    /// 400 that lists those that there are.
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::known(name)
            .ok_or_else(|| invalid("type", format_args!("must be one of [{}], not [{name}]", names())))
    }
}

/// Type and id, which name an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) id: String,
}

impl Key {
    /// Makes one of what a request says.
    ///
    /// # Errors
    /// 400 for an unknown type or an id that is empty, too long or not printable.
    pub(crate) fn parse(kind: &str, id: &str) -> Result<Self, Error> {
        let kind = Kind::parse(kind)?;
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
            return Err(invalid(
                "id",
                format_args!("must have 1 to {MAX_ID_BYTES} bytes, all of them printable"),
            ));
        }
        Ok(Self { kind, id: id.to_owned() })
    }

    /// Takes `type` and `id` out of an object.
    ///
    /// # Errors
    /// As [`Key::parse`]; 400 where one is missing.
    pub(crate) fn take(members: &mut Map<String, Value>) -> Result<Self, Error> {
        let mut take = |name: &str| match members.shift_remove(name) {
            Some(Value::String(text)) => Ok(text),
            None => Err(invalid(name, "is required")),
            Some(_) => Err(invalid(name, "must be a string")),
        };
        let (kind, id) = (take("type")?, take("id")?);
        Self::parse(&kind, &id)
    }

    /// Makes the answer to a key that names nothing.
    pub(crate) fn missing(&self) -> Error {
        Error::resource_not_found(format!("Saved object [{}/{}] not found", self.kind.name(), self.id))
    }
}

/// The id of the stored document.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.id)
    }
}

/// An object that another one names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    /// Name of the reference within the object.
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) id: String,
}

/// The state of a stored object, as text in answers and requests: Kibana's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
}

impl From<DocumentVersion> for Version {
    fn from(DocumentVersion { seq_no, primary_term }: DocumentVersion) -> Self {
        Self { seq_no, primary_term }
    }
}

impl From<Version> for DocumentVersion {
    fn from(Version { seq_no, primary_term }: Version) -> Self {
        Self { seq_no, primary_term }
    }
}

impl Version {
    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let decoded = if text.len() > 128 { None } else { STANDARD.decode(text).ok() };
        let parts = decoded.and_then(|bytes| serde_json::from_slice::<(u64, u64)>(&bytes).ok());
        let (seq_no, primary_term) = parts.ok_or_else(|| {
            invalid("version", format_args!("[{text}] is not the version of an earlier answer"))
        })?;
        Ok(Self { seq_no, primary_term })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(format!("[{},{}]", self.seq_no, self.primary_term)))
    }
}

/// An object to be stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub(crate) key: Key,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) references: Vec<Reference>,
    /// Members beside them that are kept as they are.
    kept: Map<String, Value>,
}

impl Draft {
    /// Checks the members of an object, `type` and `id` apart. What parsing text within attributes takes is charged to `room`.
    ///
    /// # Errors
    /// 400 that names the member and the reason; 413 and 429 for want of room.
    pub(crate) fn parse(
        key: Key,
        members: Map<String, Value>,
        allowance: &MemoryAllowance,
    ) -> Result<Self, Error> {
        let mut draft = Self { key, attributes: Map::new(), references: Vec::new(), kept: Map::new() };
        let mut given = false;
        for (name, value) in members {
            match name.as_str() {
                "attributes" => {
                    draft.attributes = object("attributes", value)?;
                    given = true;
                }
                "references" => draft.references = parse_references(value)?,
                "migrationVersion" => draft.keep("migrationVersion", check_versions(value)?),
                "namespaces" | "initialNamespaces" => {
                    draft.keep("namespaces", check_namespaces(&name, value)?)
                }
                "coreMigrationVersion" | "typeMigrationVersion" | "originId" => {
                    let text = short_text(&name, value)?;
                    draft.keep(&name, text);
                }
                // The server says these itself.
                "version" | "updated_at" | "updated_by" | "created_at" | "created_by" | "managed"
                | "sort" | "score" => {}
                _ => return Err(invalid(&name, "is not a member of a saved object")),
            }
        }
        if !given {
            return Err(invalid("attributes", "is required"));
        }
        draft.check(allowance)?;
        Ok(draft)
    }

    /// Reads a stored object for a change or for what it refers to.
    ///
    /// # Errors
    /// As [`Draft::parse`].
    pub(crate) fn of_stored(stored: &StoredObject, allowance: &MemoryAllowance) -> Result<Self, Error> {
        let mut members = object("object", json::parse(&stored.object, allowance)?)?;
        let key = Key::take(&mut members)?;
        Self::parse(key, members, allowance)
    }

    fn keep(&mut self, name: &str, value: Value) {
        if !value.is_null() {
            self.kept.insert(name.to_owned(), value);
        }
    }

    /// Checks what is known of attributes.
    ///
    /// # Errors
    /// As [`Draft::parse`].
    pub(crate) fn check(&self, allowance: &MemoryAllowance) -> Result<(), Error> {
        match self.attributes.get("title") {
            Some(Value::String(_)) => {}
            None => return Err(invalid("attributes.title", "is required")),
            Some(_) => return Err(invalid("attributes.title", "must be a string")),
        }
        if !matches!(self.attributes.get("description"), None | Some(Value::Null | Value::String(_))) {
            return Err(invalid("attributes.description", "must be a string"));
        }
        const META: &str = "attributes.kibanaSavedObjectMeta";
        const SEARCH_SOURCE: &str = "attributes.kibanaSavedObjectMeta.searchSourceJSON";
        let meta = match self.attributes.get("kibanaSavedObjectMeta") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(meta)) => meta,
            Some(_) => return Err(invalid(META, "must be an object")),
        };
        match meta.get("searchSourceJSON") {
            None => Ok(()),
            Some(Value::String(text)) if text.len() > MAX_SEARCH_SOURCE_BYTES => {
                Err(invalid(SEARCH_SOURCE, format_args!("is longer than [{MAX_SEARCH_SOURCE_BYTES}] bytes")))
            }
            Some(Value::String(text)) => match json::parse(text.as_bytes(), allowance) {
                Err(error) if error.status() == 400 => {
                    Err(invalid(SEARCH_SOURCE, format_args!("must be JSON: {}", error.reason())))
                }
                parsed => parsed.map(drop),
            },
            Some(_) => Err(invalid(SEARCH_SOURCE, "must be a string of JSON")),
        }
    }

    /// Renders the document that is stored.
    ///
    /// # Errors
    /// 400 where the attributes are too long.
    pub(crate) fn document(&self, now_ms: i64) -> Result<Document, Error> {
        let mut out = Vec::with_capacity(1024);
        out.push(b'{');
        for name in ["title", "description"] {
            if let Some(Value::String(words)) = self.attributes.get(name) {
                json::push_str(&mut out, name);
                out.push(b':');
                json::push_str(&mut out, words);
                out.push(b',');
            }
        }
        out.extend_from_slice(b"\"object\":");
        let object = out.len();
        out.extend_from_slice(b"{\"id\":");
        json::push_str(&mut out, &self.key.id);
        out.extend_from_slice(b",\"type\":");
        json::push_str(&mut out, self.key.kind.name());
        out.extend_from_slice(b",\"updated_at\":");
        let now = chrono::DateTime::from_timestamp_millis(now_ms).unwrap_or_default();
        json::push_str(&mut out, &now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
        out.extend_from_slice(b",\"attributes\":");
        let before = out.len();
        push(&mut out, &self.attributes);
        if out.len() - before > MAX_ATTRIBUTES_BYTES {
            let reason = format_args!("take more than [{MAX_ATTRIBUTES_BYTES}] bytes");
            return Err(invalid("attributes", reason));
        }
        out.extend_from_slice(b",\"references\":");
        push(&mut out, &self.references);
        for (name, value) in &self.kept {
            out.push(b',');
            json::push_str(&mut out, name);
            out.push(b':');
            push(&mut out, value);
        }
        out.extend_from_slice(b"}}");
        let text = Bytes::from(out);
        let object = text.slice(object..text.len() - 1);
        Ok(Document { text, object })
    }
}

/// Stored form of an object: itself, and beside it the words that it is found by.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// `{"title": …, "description": …, "object": …}`.
    pub(crate) text: Bytes,
    /// The object within the text.
    object: Bytes,
}

impl Document {
    /// Makes it of a stored text, with the object within.
    pub(super) fn from_stored(text: &Bytes, object: &str) -> Self {
        Self { text: text.clone(), object: text.slice_ref(object.as_bytes()) }
    }

    /// Returns the object.
    pub(crate) fn object(&self) -> Bytes {
        self.object.clone()
    }
}

fn push(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("writing to memory cannot fail");
}

/// Takes an object.
///
/// # Errors
/// 400 for anything else.
pub fn object(name: &str, value: Value) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(invalid(name, "must be an object")),
    }
}

/// Reads the references of an object.
///
/// # Errors
/// 400 that names the one that is none.
pub(crate) fn parse_references(value: Value) -> Result<Vec<Reference>, Error> {
    let Value::Array(items) = value else { return Err(invalid("references", "must be an array")) };
    if items.len() > MAX_REFERENCES {
        return Err(invalid("references", format_args!("has more than [{MAX_REFERENCES}] elements")));
    }
    let read = |(at, item): (usize, Value)| {
        if !item.is_object() {
            return Err(invalid(&format!("references[{at}]"), "must be an object"));
        }
        serde_json::from_value::<Reference>(item).map_err(|error| {
            invalid(
                &format!("references[{at}]"),
                format_args!("must have the strings [id], [type] and [name]: {error}"),
            )
        })
    };
    items.into_iter().enumerate().map(read).collect()
}

fn short_text(name: &str, value: Value) -> Result<Value, Error> {
    match &value {
        Value::String(text) if text.len() <= MAX_TEXT_BYTES => Ok(value),
        _ => Err(invalid(name, format_args!("must be a string of at most {MAX_TEXT_BYTES} bytes"))),
    }
}

fn check_versions(value: Value) -> Result<Value, Error> {
    const NAME: &str = "migrationVersion";
    let versions = object(NAME, value)?;
    if versions.len() > MAX_ENTRIES {
        return Err(invalid(NAME, format_args!("has more than [{MAX_ENTRIES}] members")));
    }
    let is_version = |(name, version): (&String, &Value)| {
        name.len() <= MAX_TEXT_BYTES && version.as_str().is_some_and(|text| text.len() <= MAX_TEXT_BYTES)
    };
    if !versions.iter().all(is_version) {
        return Err(invalid(NAME, "must have a string for each type"));
    }
    Ok(Value::Object(versions))
}

fn check_namespaces(name: &str, value: Value) -> Result<Value, Error> {
    let are_names = |items: &Vec<Value>| {
        let is_name = |item: &Value| item.as_str().is_some_and(|text| text.len() <= MAX_TEXT_BYTES);
        items.len() <= MAX_ENTRIES && items.iter().all(is_name)
    };
    match &value {
        Value::Array(items) if are_names(items) => Ok(value),
        _ => Err(invalid(name, format_args!("must be an array of at most {MAX_ENTRIES} strings"))),
    }
}

/// An object as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    /// The object of its [`Document`].
    pub(crate) object: Bytes,
    pub(crate) version: Version,
}

impl StoredObject {
    /// Appends the object as it is answered.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write(&self.object, self.version, out);
    }
}

/// Appends a stored object, the text of a JSON object, with its version.
pub(super) fn write(object: &[u8], version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(object.trim_ascii_end().strip_suffix(b"}").unwrap_or_default());
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    out.extend_from_slice(b"\"version\":");
    json::push_str(out, &version.to_string());
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn draft(members: Value) -> Result<Draft, String> {
        let key = Key::parse("dashboard", "x").unwrap();
        let members = object("", members).unwrap();
        Draft::parse(key, members, &MemoryAllowance::with_limit(1 << 20))
            .map_err(|error| error.reason().to_owned())
    }

    #[test]
    fn versions_round_trip() {
        let version = Version { seq_no: 4, primary_term: 1 };
        assert_eq!(version.to_string(), "WzQsMV0=", "as Kibana has it");
        assert_eq!(Version::parse("WzQsMV0=").unwrap(), version);
        for text in ["", "4", "WzQsMV0", "WzQsLTFd", "e30=", &"W".repeat(1000)] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_sent_is_stored_as_it_came() {
        let attributes = json!({"z": 1, "title": "T", "a": {"n": 1.50, "s": "\u{2028}"}});
        let references = json!([{"name": "panel_0", "type": "visualization", "id": "v"}]);
        let draft = draft(json!({
            "attributes": attributes, "references": references, "migrationVersion": {"dashboard": "7.9.3"},
            "version": 7, "updated_at": "2020-01-01T00:00:00.000Z",
        }));
        let document = draft.unwrap().document(0).unwrap();
        let object = document.object();
        let expected = json!({
            "id": "x", "type": "dashboard", "updated_at": "1970-01-01T00:00:00.000Z", "attributes": attributes,
            "references": references, "migrationVersion": {"dashboard": "7.9.3"},
        });
        assert_eq!(std::str::from_utf8(&object).unwrap(), expected.to_string());
        let whole: Value = serde_json::from_slice(&document.text).unwrap();
        assert_eq!((&whole["title"], &whole["object"]), (&json!("T"), &expected));
        let mut out = Vec::new();
        StoredObject { object, version: Version { seq_no: 4, primary_term: 1 } }.write(&mut out);
        let answer: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(answer["version"], "WzQsMV0=");
    }

    #[test]
    fn members_are_checked_by_name() {
        let long = "x".repeat(6 << 20);
        for (members, expected) in [
            (json!({}), "[attributes] is required"),
            (json!({"attributes": 1}), "[attributes] must be an object"),
            (json!({"attributes": {}}), "[attributes.title] is required"),
            (json!({"attributes": {"title": 1}}), "[attributes.title] must be a string"),
            (
                json!({"attributes": {"title": "", "description": {}}}),
                "[attributes.description] must be a string",
            ),
            (json!({"attributes": {"title": ""}, "color": 1}), "[color] is not a member"),
            (json!({"attributes": {"title": ""}, "references": {}}), "[references] must be an array"),
            (json!({"attributes": {"title": ""}, "references": [1]}), "[references[0]] must be an object"),
            (
                json!({"attributes": {"title": ""}, "references": [{"id": "a", "type": "b"}]}),
                "missing field `name`",
            ),
            (
                json!({"attributes": {"title": "", "kibanaSavedObjectMeta": 1}}),
                "kibanaSavedObjectMeta] must be",
            ),
            (
                json!({"attributes": {"title": "", "kibanaSavedObjectMeta": {"searchSourceJSON": "{"}}}),
                "searchSourceJSON] must be JSON: EOF",
            ),
            (
                json!({"attributes": {"title": "", "kibanaSavedObjectMeta": {"searchSourceJSON": "[".repeat(10_000)}}}),
                "searchSourceJSON] must be JSON: recursion limit",
            ),
            (
                json!({"attributes": {"title": ""}, "migrationVersion": {"a": 1}}),
                "[migrationVersion] must have",
            ),
            (json!({"attributes": {"title": ""}, "namespaces": "default"}), "[namespaces] must be an array"),
        ] {
            let reason = draft(members.clone()).unwrap_err();
            assert!(reason.contains(expected), "{members}: {reason}");
        }
        let error = draft(json!({"attributes": {"title": long}})).unwrap().document(0).unwrap_err();
        assert!(error.reason().starts_with("[attributes] take more than"), "{error}");
        for (kind, id) in [("map", "x"), ("", "x"), ("search", ""), ("search", "a\nb")] {
            assert!(Key::parse(kind, id).is_err(), "{kind} {id}");
        }
    }
}
