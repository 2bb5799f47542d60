//! `/v1/logs`: logs of OpenTelemetry, by OTLP over HTTP.
//!
//! A request is one write, and so one frame of the log; it is answered once that is durable. Records that can never be stored are
//! counted in the answer. Where one cannot be stored for now, the whole request is refused with a status on which clients send
//! it again: a record may be there twice then, and none is lost.

use std::sync::Arc;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use millrace_otlp::{
    Converter, DocumentMapping, Encoding, ExportAnswer, RequestError, read, reading_cost,
};
use millrace_runtime::Priority;

use crate::Api;
use crate::documents::options::TIMEOUT;
use crate::error::Error;
use crate::http::{Body, LARGE, MemoryAllowance, Request, Response};

/// Statuses on which clients send a request again.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];
/// Bytes of an operation beside its document.
const OP_BYTES: usize = size_of::<WriteOp>() + size_of::<Bytes>();
/// Type of all documents.
const DOC_TYPE: &str = "_doc";

/// Settings for OpenTelemetry's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpConfig {
    /// Form of the documents.
    pub mapping: DocumentMapping,
    /// Index of all documents; without one, `logs-<dataset>-<namespace>`.
    pub index: Option<Arc<str>>,
}

/// Documents of a request.
struct ConvertedRequest {
    ops: Vec<WriteOp>,
    answer: ExportAnswer,
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        Self::new(400, "parse_exception", error.to_string())
    }
}

/// Answers `/v1/logs`.
pub(crate) async fn export(config: &OtlpConfig, api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let media_type = request.media_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::of_media_type(media_type).ok_or_else(|| {
        let reason = format!(
            "Content-Type header [{media_type}] is not supported; send [application/x-protobuf] or [application/json]"
        );
        Error::new(415, "media_type_header_exception", reason)
    })?;
    let now_ms = u64::try_from(api.session.clock().now_ms()).unwrap_or_default();
    let (body, config, allowance) = (request.body.clone(), config.clone(), request.allowance.clone());
    let convert = move || convert(encoding, &body, &config, now_ms.saturating_mul(1_000_000), &allowance);
    let ConvertedRequest { ops, mut answer } = match request.body.len() {
        small if small <= LARGE => convert()?,
        _ => api.session.compute().run(Priority::Ingest, move || Ok(convert())).await??,
    };
    let all = ops.len();
    let results = match all {
        0 => Vec::new(),
        _ => api.session.write(ops, RefreshPolicy::None, TIMEOUT).await?,
    };
    let (mut refused, mut not_allowed) = (0, None);
    for error in results.into_iter().filter_map(Result::err) {
        api.session.refusals().note(&error);
        let error = Error::from(error);
        if RETRYABLE.contains(&error.status()) {
            return Err(error);
        }
        answer.reject(error.reason());
        refused += 1;
        if error.is_refusal() {
            not_allowed.get_or_insert(error);
        }
    }
    match not_allowed {
        // Nobody looks for missing rights in an answer of success.
        Some(error) if refused == all => Err(error),
        _ => {
            let body = Body::Bytes { content_type: encoding.media_type(), bytes: answer.encode(encoding).into() };
            Ok(Response { status: 200, body, headers: Vec::new() })
        }
    }
}

/// Makes the documents of a request.
fn convert(
    encoding: Encoding,
    body: &[u8],
    config: &OtlpConfig,
    now_ns: u64,
    allowance: &MemoryAllowance,
) -> Result<ConvertedRequest, Error> {
    let cost = usize::try_from(reading_cost(encoding, body)).unwrap_or(usize::MAX);
    let reading = allowance.sibling();
    reading.take(cost)?;
    let mut converter = Converter::new(config.mapping, config.index.clone());
    let (mut text, mut ends, mut answer) = (Vec::new(), Vec::new(), ExportAnswer::default());
    read::<Error>(encoding, body, |context, record| {
        let begin = text.len();
        let converted = record
            .and_then(|record| converter.convert(context, &record, now_ns, &mut text).map_err(|error| error.to_string()));
        match converted {
            Ok(index) => {
                allowance.take(text.len() - begin + OP_BYTES)?;
                ends.push((index, text.len()));
            }
            Err(reason) => answer.reject(&reason),
        }
        Ok(())
    })?;
    drop(reading);
    text.shrink_to_fit();
    let text = Bytes::from(text);
    let (mut begin, doc_type): (usize, Arc<str>) = (0, DOC_TYPE.into());
    let ops = ends.into_iter().map(|(index, end)| {
        let document = text.slice(std::mem::replace(&mut begin, end)..end);
        WriteOp::of_type(Arc::clone(&doc_type), index, None, Action::Create(document))
    });
    Ok(ConvertedRequest { ops: ops.collect(), answer })
}
