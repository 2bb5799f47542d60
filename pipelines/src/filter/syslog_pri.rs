//! `syslog_pri`: splits the priority of a syslog message into facility and severity.

use std::sync::Arc;

use millrace_ingest::number::integer;
use millrace_ingest::syslog_names::{SYSLOG_FACILITIES, SYSLOG_SEVERITIES};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::settings::{field_or, texts_or};
use super::{Filter, Outcome};

const FAILURE: &str = "_syslogpriparsefailure";
/// Priority of a message that has none: `user`, `notice`.
const DEFAULT_PRIORITY: i64 = 13;

#[derive(Debug)]
struct SyslogPriority {
    source: FieldReference,
    facility_code: FieldReference,
    severity_code: FieldReference,
    facility: FieldReference,
    severity: FieldReference,
    facilities: Vec<String>,
    severities: Vec<String>,
    use_labels: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility().is_enabled();
    let [source, facility_code, severity_code, facility, severity] = if ecs {
        [
            "[log][syslog][priority]",
            "[log][syslog][facility][code]",
            "[log][syslog][severity][code]",
            "[log][syslog][facility][name]",
            "[log][syslog][severity][name]",
        ]
    } else {
        ["syslog_pri", "syslog_facility_code", "syslog_severity_code", "syslog_facility", "syslog_severity"]
    };
    let field =
        |name: &str| FieldReference::parse(name).map_err(|message| vec![Fault { at: options.at(), message }]);
    let (facility_code, severity_code) = (field(facility_code)?, field(severity_code)?);
    let (facility, severity) = (field(facility)?, field(severity)?);
    let filter = SyslogPriority {
        source: field_or(&mut options, "syslog_pri_field_name", source),
        facility_code,
        severity_code,
        facility,
        severity,
        facilities: texts_or(&mut options, "facility_labels", &SYSLOG_FACILITIES),
        severities: texts_or(&mut options, "severity_labels", &SYSLOG_SEVERITIES),
        use_labels: options.boolean("use_labels").unwrap_or(true),
    };
    options.finish()?;
    Ok(Arc::new(filter))
}

/// Returns the priority that a value stands for, as Ruby's `to_i` does.
fn priority(value: Option<&Value>) -> i64 {
    match value {
        None | Some(Value::Null) => DEFAULT_PRIORITY,
        Some(Value::Array(elements)) => elements.first().map_or(0, |first| priority(Some(first))),
        Some(Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).unwrap_or(0)
        }
        Some(Value::String(text)) => integer(text).as_i64().unwrap_or(i64::MAX),
        Some(_) => 0,
    }
}

impl Filter for SyslogPriority {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let priority = priority(event.get(&self.source).as_deref());
        let (facility, severity) = (priority >> 3, priority & 7);
        let code = |code: i64| Value::Number(code.into());
        // What stands in the way of a field stays.
        let _ = event.set(&self.severity_code, code(severity));
        let _ = event.set(&self.facility_code, code(facility));
        if !self.use_labels {
            return Outcome::Matched;
        }
        let label =
            |labels: &[String], code: i64| usize::try_from(code).ok().and_then(|at| labels.get(at)).cloned();
        match label(&self.facilities, facility) {
            Some(facility) => {
                let _ = event.set(&self.facility, Value::String(facility));
                if let Some(severity) = label(&self.severities, severity) {
                    let _ = event.set(&self.severity, Value::String(severity));
                }
            }
            None => event.tag(FAILURE),
        }
        Outcome::Matched
    }
}
