//! The template of indices that an output puts on another server before it sends events there.

use std::path::Path;

use serde_json::Value;

use crate::Options;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Name where none is given.
const DEFAULT_NAME: &str = "logstash";

/// A template and its place on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexTemplate {
    /// Path on the server.
    pub(super) path: String,
    /// JSON.
    pub(super) body: Vec<u8>,
    /// `true` if it replaces one that is there.
    pub(super) overwrites: bool,
}

impl IndexTemplate {
    /// Takes the options of templates; `None` where there is none to be put. `refuse` tells that an option needs a file.
    pub(super) fn take(options: &mut Options, refuse: impl Fn(&mut Options, &str)) -> Option<Self> {
        let manage = options.one_of("manage_template", &["true", "false", "auto"]);
        let file = options.text("template");
        let name = options.text("template_name");
        let overwrites = options.boolean("template_overwrite");
        let api = options.one_of("template_api", &["auto", "legacy", "composable"]);
        let is_legacy = options.boolean("legacy_template").unwrap_or(false) || api == Some("legacy");
        if manage == Some("false") {
            return None;
        }
        let Some(file) = file else {
            for (option, is_given) in [
                ("manage_template", manage == Some("true")),
                ("template_name", name.is_some()),
                ("template_overwrite", overwrites == Some(true)),
            ] {
                if is_given {
                    refuse(options, option);
                }
            }
            return None;
        };
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
                let api = if is_composable && !is_legacy { "_index_template" } else { "_template" };
                let overwrites = overwrites.unwrap_or(false);
                Some(Self {
                    path: format!("{api}/{name}"),
                    body: template.to_string().into_bytes(),
                    overwrites,
                })
            }
            Err(problem) => {
                options.fault_here(format!("option [template]: {problem}"));
                None
            }
        }
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
