//! `user_agent`: browser, operating system and device of a user agent, by the expressions of uap-core.

use std::sync::Arc;

use millrace_ingest::user_agent::{OTHER, ParsedUserAgent, SoftwareVersion, UserAgentLookup};
use serde_json::{Map, Value, json};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, null_value};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Properties in the order of OpenSearch.
const PROPERTIES: [&str; 5] = ["NAME", "OS", "DEVICE", "ORIGINAL", "VERSION"];

#[derive(Debug)]
struct UserAgent {
    field: FieldPath,
    target: FieldPath,
    properties: Vec<&'static str>,
    lookup: Arc<UserAgentLookup>,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.path_or("target_field", &FieldPath::parse("user_agent")?)?;
    if let Some(file) = config.text("regex_file")?.filter(|file| file != "_default_") {
        let reason = format!("regex file [{file}] is not supported: the expressions of uap-core are in use");
        return Err(config.refusal("regex_file", &reason));
    }
    let properties = match config.texts("properties")? {
        None => PROPERTIES.to_vec(),
        Some(names) => {
            let property = |name: &String| {
                PROPERTIES.into_iter().find(|known| *known == name.to_uppercase()).ok_or_else(|| {
                    let all = PROPERTIES.join(", ");
                    let reason = format!("illegal property value [{name}]. valid values are [{all}]");
                    config.refusal("properties", &reason)
                })
            };
            names.iter().map(property).collect::<Result<_>>()?
        }
    };
    let ignore_missing = config.flag("ignore_missing", false)?;
    // Fields have had the names of the Elastic Common Schema in any case since OpenSearch 1.
    config.flag("ecs", true)?;
    let lookup = UserAgentLookup::shared().map_err(ProcessorError::exceeded)?;
    Ok(Box::new(UserAgent { field, target, properties, lookup, ignore_missing }))
}

/// Joins the parts of a version; `None` where there is none.
fn version(software: &SoftwareVersion) -> Option<String> {
    let [major, minor, patch] = software.parts();
    let mut version = major?.to_owned();
    for part in [minor, patch, software.patch_minor.as_deref()].into_iter().map_while(|part| part) {
        version.push('.');
        version.push_str(part);
    }
    Some(version)
}

fn details(agent: &ParsedUserAgent, text: &str, properties: &[&'static str]) -> Map<String, Value> {
    let mut details = Map::new();
    for property in properties {
        match *property {
            "NAME" => drop(details.insert("name".to_owned(), agent.browser.family.as_str().into())),
            "DEVICE" => drop(details.insert("device".to_owned(), json!({ "name": agent.device }))),
            "ORIGINAL" => drop(details.insert("original".to_owned(), text.into())),
            "VERSION" => {
                details.extend(version(&agent.browser).map(|version| ("version".to_owned(), version.into())));
            }
            // An operating system that no expression knows is left out.
            _ if agent.os.family == OTHER => {}
            _ => {
                let mut os = json!({ "name": agent.os.family });
                if let Some(version) = version(&agent.os) {
                    os["full"] = format!("{} {version}", agent.os.family).into();
                    os["version"] = version.into();
                }
                details.insert("os".to_owned(), os);
            }
        }
    }
    details
}

impl Processor for UserAgent {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = match document.get(&self.field) {
            Ok(Value::Null) if !self.ignore_missing => {
                return Err(null_value(&self.field, "parse user-agent"));
            }
            _ => document.text(&self.field, self.ignore_missing)?,
        };
        let Some(text) = text.map(str::to_owned) else { return Ok(Flow::Continue) };
        let Some(agent) = self.lookup.find(&text) else {
            let name = self.field.as_str();
            return Err(ProcessorError::exceeded(format!("the user agent of field [{name}] takes too long")));
        };
        document.set(&self.target, Value::Object(details(&agent, &text, &self.properties)))?;
        Ok(Flow::Continue)
    }
}
