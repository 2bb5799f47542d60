//! Spans of requests: joined to the trace of the caller, and with the fields that each line of a JSON log has.
//!
//! A caller names its trace in the header `traceparent` (W3C Trace Context). A request without one begins a trace. The id of the trace is a
//! field of the span, so that logs have it whether traces are exported or not. Nothing is made where no subscriber wants the span.

use http::request::Parts;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::route::{PathParams, Spec};

/// Header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";
/// Bytes of an index expression that a span keeps.
const MAX_INDEX_BYTES: usize = 512;

/// Makes the span of a request.
pub(crate) fn request_span(head: &Parts, listener: &'static str) -> Span {
    let span = tracing::info_span!(
        "request",
        otel.kind = "server",
        otel.name = Empty,
        listener,
        method = head.method.as_str(),
        trace_id = Empty,
        route = Empty,
        principal = Empty,
        index = Empty,
        status = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let caller = head.headers.get(TRACEPARENT).and_then(|value| parse_traceparent(value.to_str().ok()?));
    if let Some(caller) = &caller {
        // Where no trace is exported there is nothing to join.
        let _ = span.set_parent(Context::new().with_remote_span_context(caller.clone()));
    }
    let exported = span.context().span().span_context().trace_id();
    let trace_id = match (exported, caller) {
        (TraceId::INVALID, Some(caller)) => caller.trace_id(),
        (TraceId::INVALID, None) => TraceId::from_bytes(rand::random()),
        (exported, _) => exported,
    };
    span.record("trace_id", tracing::field::display(trace_id));
    span
}

/// Notes the route of a request and its sender in the span of the request.
pub(crate) fn record_route(span: &Span, route: &Spec, captured: &PathParams, principal: &str) {
    if span.is_disabled() {
        return;
    }
    span.record("otel.name", route.path);
    span.record("route", route.path);
    span.record("principal", principal);
    if let Some(index) = captured.find("index").or_else(|| captured.find("expression")) {
        span.record("index", &index[..index.floor_char_boundary(MAX_INDEX_BYTES)]);
    }
}

/// Reads a `traceparent` of version 0, or of a later version that begins with its fields; `None` for anything else.
fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut fields = text.trim().split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_known = is_hex(version, 2) && version != "ff" && (version != "00" || fields.next().is_none());
    if !(is_known && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2)) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & TraceFlags::SAMPLED.to_u8());
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_is_read_or_ignored() {
        let context = parse_traceparent(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
        assert_eq!(context.trace_id().to_string(), TRACE);
        assert_eq!(context.span_id().to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled() && context.is_remote());
        let unsampled = parse_traceparent(&format!("00-{TRACE}-00f067aa0ba902b7-00")).unwrap();
        assert!(!unsampled.is_sampled());
        assert!(parse_traceparent(&format!("01-{TRACE}-00f067aa0ba902b7-01-more")).is_some());
        let zeros = "0".repeat(32);
        for malformed in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}1-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-zz"),
            "-".repeat(10_000),
        ] {
            let shown: String = malformed.chars().take(80).collect();
            assert!(parse_traceparent(&malformed).is_none(), "{shown}");
        }
    }
}
