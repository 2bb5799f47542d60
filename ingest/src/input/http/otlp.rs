//! `otlp`: logs of OpenTelemetry over HTTP, as events.
//!
//! Requests come as to the input `http`, and are answered once their events are stored. An event is the document that a record
//! becomes. The answer counts the records that cannot become one. A request that cannot be read is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::Utc;
use http::StatusCode;
use millrace_otlp::{Converter, DocumentMapping, Encoding, ExportAnswer, RequestError, read, reading_cost};
use tokio::sync::watch;

use super::{
    IDEMPOTENCY_SECONDS, Listener, MAX_CONTENT_LENGTH, MAX_PENDING_REQUESTS, Settings, authorization, field,
    idempotency,
};
use crate::codec::{self, Codec, Events};
use crate::{EcsCompatibility, Fault, FieldReference, Options, tls};

/// Port where none is given.
const PORT: i64 = 4318;

/// Makes the input.
///
/// # Errors
/// Faults of the options.
pub(in crate::input) fn build(mut options: Options) -> Result<Listener, Vec<Fault>> {
    let host = options.text("host").unwrap_or_else(|| "0.0.0.0".to_owned());
    let port = options.integer("port", 0..=65_535).unwrap_or(PORT);
    let tls = tls::Server::take(&mut options);
    let authorization = authorization(&mut options);
    let name = options.one_of("mapping", &DocumentMapping::NAMES);
    let mapping = name.and_then(DocumentMapping::find).unwrap_or_default();
    let longest =
        options.integer("max_content_length", 1..=i64::from(i32::MAX)).unwrap_or(MAX_CONTENT_LENGTH);
    let pending = options.integer("max_pending_requests", 1..=100_000).unwrap_or(MAX_PENDING_REQUESTS);
    let headers_field = field(&mut options, "request_headers_target_field", "[@metadata][headers]");
    let host_field = field(&mut options, "remote_host_target_field", "[@metadata][ip_address]");
    let json = codec::build(Options::new("json", options.at(), []));
    options.finish()?;
    let json = json?;
    let settings = Settings {
        name: "otlp",
        otlp: Some(OtlpReader { mapping, json: Arc::clone(&json), has_warned: Arc::default() }),
        host,
        port: u16::try_from(port).unwrap_or_default(),
        tls,
        authorization,
        codec: json,
        codecs: Vec::new(),
        response_code: StatusCode::OK,
        response_headers: Vec::new(),
        max_content_length: longest.unsigned_abs(),
        max_pending_requests: usize::try_from(pending).unwrap_or(usize::MAX),
        headers_field,
        host_field,
        ecs: EcsCompatibility::Disabled,
        // OTLP has no keys for requests that are sent again.
        idempotency: idempotency::Bounds {
            age: Duration::from_secs(IDEMPOTENCY_SECONDS.unsigned_abs()),
            keys: 0,
        },
        address: watch::Sender::new(None),
    };
    Ok(Listener { settings: Arc::new(settings) })
}

/// Returns whether a path is that of traces, metrics or profiles.
pub(super) fn is_other_signal(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/traces", "/metrics", "/profiles"].iter().any(|signal| {
        let version = path.strip_suffix(signal).and_then(|rest| rest.rsplit('/').next());
        matches!(version, Some("v1" | "v1development"))
    })
}

/// Makes events of requests.
#[derive(Clone, Debug)]
pub(super) struct OtlpReader {
    mapping: DocumentMapping,
    /// Makes events of documents.
    json: Arc<dyn Codec>,
    /// `true` once the log has a reason why records are refused.
    has_warned: Arc<AtomicBool>,
}

/// Why the rest of a request is not read.
enum ReadEnd {
    Full,
    Invalid(RequestError),
}

impl From<RequestError> for ReadEnd {
    fn from(error: RequestError) -> Self {
        Self::Invalid(error)
    }
}

impl OtlpReader {
    /// Appends the events of a request, until there is no memory for more ([`Events::is_full`]). Returns an answer that counts the
    /// records that cannot become events.
    ///
    /// # Errors
    /// The request cannot be read. Events of the records before the fault may be there.
    pub(super) fn read(
        &self,
        encoding: Encoding,
        bytes: &[u8],
        events: &mut Events,
    ) -> Result<ExportAnswer, RequestError> {
        let mut answer = ExportAnswer::default();
        if !events.has_room(reading_cost(encoding, bytes)) {
            return Ok(answer);
        }
        let now_ns =
            Utc::now().timestamp_nanos_opt().and_then(|now| u64::try_from(now).ok()).unwrap_or_default();
        let mut converter = Converter::new(self.mapping, None);
        let mut decoder = self.json.line_decoder();
        let mut document = Vec::new();
        let index_field = FieldReference::parse("[@metadata][index]").ok();
        let outcome: Result<(), ReadEnd> = read(encoding, bytes, |context, record| {
            document.clear();
            let before = events.len();
            let converted = record.and_then(|record| {
                converter.convert(context, &record, now_ns, &mut document).map_err(|error| error.to_string())
            });
            match converted {
                Ok(index) => {
                    decoder.decode(&document, events);
                    decoder.finish(events);
                    if let (Some(field), Some(event)) = (&index_field, events.get_mut(before)) {
                        let _ = event.set(field, serde_json::Value::from(&*index));
                    }
                }
                Err(reason) => answer.reject(&reason),
            }
            if events.is_full() { Err(ReadEnd::Full) } else { Ok(()) }
        });
        if answer.rejected > 0 {
            let (rejected, reason) = (answer.rejected, answer.reason.as_str());
            const MESSAGE: &str = "records of OpenTelemetry are no events, and their sender is told so";
            // Whoever sends must not fill the log.
            if self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::debug!(rejected, reason, "{MESSAGE}");
            } else {
                tracing::warn!(rejected, reason, "{MESSAGE}; others are not logged");
            }
        }
        match outcome {
            Err(ReadEnd::Invalid(error)) => Err(error),
            Ok(()) | Err(ReadEnd::Full) => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::options;

    #[test]
    fn paths_of_other_signals_are_known() {
        for (path, is_other) in [
            ("/v1/traces", true),
            ("/collector/v1/metrics/", true),
            ("/v1development/profiles", true),
            ("/v1/logs", false),
            ("/", false),
            ("/my/traces", false),
        ] {
            assert_eq!(is_other_signal(path), is_other, "{path}");
        }
    }

    #[test]
    fn records_become_events() {
        let input = build(options("otlp", &[("mapping", "ecs".into()), ("port", "0".into())])).unwrap();
        let reader = input.settings.otlp.as_ref().unwrap();
        let body = br#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
            "scopeLogs":[{"logRecords":[
                {"timeUnixNano":"1544712660300000000","body":{"stringValue":"hello"}},{"traceId":"zz"},{"traceId":"abcd"}]}]}]}"#;
        let mut events = Events::default();
        let answer = reader.read(Encoding::Json, body, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].fields()["message"], "hello");
        assert_eq!(events[0].fields()["service.name"], "shop");
        assert_eq!(events[0].metadata()["index"], "logs-generic-default");
        assert_eq!(events[0].timestamp_text(), "2018-12-13T14:51:00.300Z");
        assert!(answer.rejected == 2 && !answer.reason.is_empty(), "{answer:?}");
        reader.read(Encoding::Protobuf, b"\xff\xff", &mut Events::default()).unwrap_err();
        let faults = build(options("otlp", &[("codec", "json".into())])).unwrap_err();
        assert!(faults[0].message.contains("has no option [codec]"), "{faults:?}");
    }
}
