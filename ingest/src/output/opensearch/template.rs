//! The template of indices that an output puts on its server before it sends events there.

use std::path::Path;

use millrace_catalog::metadata::{TemplateKind, parse_index_template, parse_legacy_template};
use millrace_mapping::pattern;
use serde_json::{Map, Value};

use crate::Options;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Name where none is given.
const DEFAULT_NAME: &str = "logstash";

/// A template that an output brings along.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexTemplate {
    /// Kind of the template.
    pub kind: TemplateKind,
    /// Name of the template.
    pub name: String,
    /// Object that describes the template: for another server as it is written, for this one as it is stored.
    pub body: Value,
    /// `true` if it replaces one that is there.
    pub overwrites: bool,
}

impl IndexTemplate {
    /// Takes the options of templates; `None` where there is none to be put.
    pub(super) fn take(options: &mut Options) -> Option<Self> {
        let manage = options.one_of("manage_template", &["true", "false", "auto"]);
        let file = options.text("template");
        let name = options.text("template_name");
        let overwrites = options.boolean("template_overwrite");
        let api = options.one_of("template_api", &["auto", "legacy", "composable"]);
        let is_legacy = options.boolean("legacy_template").unwrap_or(false) || api == Some("legacy");
        if manage == Some("false") {
            return None;
        }
        // Logstash would put a template of its own; there is none here, and the other options are about it.
        let file = file?;
        let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        {
            options.fault_here(format!(
                "[template_name] must have letters, digits, `_`, `-` and `.`, unlike [{name}]"
            ));
        }
        match read(Path::new(&file)) {
            Ok(template) => {
                // A composable template has its settings and mappings in an object.
                let is_composable =
                    api == Some("composable") || template.get("template").is_some_and(Value::is_object);
                let is_composable = is_composable && !is_legacy;
                let kind = if is_composable { TemplateKind::Index } else { TemplateKind::Legacy };
                Some(Self { kind, name, body: template, overwrites: overwrites.unwrap_or(false) })
            }
            Err(problem) => {
                options.fault_here(format!("option [template]: {problem}"));
                None
            }
        }
    }

    /// Returns its path on another server.
    pub(super) fn path(&self) -> String {
        let api = if self.kind == TemplateKind::Index { "_index_template" } else { "_template" };
        format!("{api}/{}", self.name)
    }

    /// Reads the template for this server. Its indices have to be among those of a pattern of names, which the output writes to.
    ///
    /// # Errors
    /// The reason why this server does not take it.
    pub(super) fn for_this_server(self, names: &str) -> Result<Self, String> {
        let parsed = match self.kind {
            TemplateKind::Index => parse_index_template(&self.name, &self.body),
            _ => parse_legacy_template(&self.name, &self.body, false, None),
        };
        let body = parsed.map_err(|error| error.to_string())?;
        let patterns = body["index_patterns"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let part = if self.kind == TemplateKind::Index { &body["template"] } else { &body };
        let aliases = part["aliases"].as_object().into_iter().flat_map(Map::keys).map(String::as_str);
        // A wildcard of a name is a character that only a wildcard of the output stands for.
        if let Some(other) = patterns.chain(aliases).find(|name| !pattern::matches(names, name)) {
            return Err(format!(
                "it is for [{other}], which is not among the indices [{names}] that the output writes to"
            ));
        }
        Ok(Self { body, ..self })
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("[{shown}] cannot be read: {error}");
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_BYTES {
        return Err(format!("[{shown}] is longer than {MAX_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let template: Value =
        serde_json::from_str(&text).map_err(|error| format!("[{shown}] is no JSON: {error}"))?;
    if template.is_object() { Ok(template) } else { Err(format!("[{shown}] is no object")) }
}
