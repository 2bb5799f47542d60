//! Logs of OpenTelemetry: a request of OTLP becomes documents in one write. Listeners of HTTP and of gRPC share this.
//!
//! A request is one write, and so one frame of the log; it is answered once that is durable. Records that can never be stored are
//! counted in the answer. Where one cannot be stored for now, the whole request is refused with a status on which clients send
//! it again: a record may be there twice then, and none is lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, Session, WriteOp};
pub use millrace_otlp::DocumentMapping;
use millrace_otlp::{Converter, Encoding, ExportAnswer, RequestError, read, reading_cost};
use millrace_runtime::Priority;

use crate::error::Error;
use crate::http::{LARGE, MemoryAllowance};
use crate::write_pipelines::{PipelinedWrite, WritePipelines, apply_pipelines};

/// Statuses on which clients send a request again.
pub const RETRYABLE: [u16; 4] = [429, 502, 503, 504];
/// Time that a write waits for room.
const TIMEOUT: Duration = Duration::from_secs(60);
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

/// Stores the records of a request with the rights of a session, and returns once they are durable. Documents go through the
/// pipelines of their indices first; what these drop counts as taken.
///
/// # Errors
/// A request that cannot be read, or that nothing of may be stored; where a record cannot be stored for now, an error with one of
/// [`RETRYABLE`].
pub async fn export_logs(
    session: &Session,
    config: &OtlpConfig,
    pipelines: Option<&Arc<dyn WritePipelines>>,
    encoding: Encoding,
    body: Bytes,
    allowance: &MemoryAllowance,
) -> Result<ExportAnswer, Error> {
    let now_ns = u64::try_from(session.clock().now_ms()).unwrap_or_default().saturating_mul(1_000_000);
    let (length, config, of_request) = (body.len(), config.clone(), allowance.clone());
    let convert = move || convert(encoding, &body, &config, now_ns, &of_request);
    let ConvertedRequest { ops, mut answer } = match length {
        small if small <= LARGE => convert()?,
        _ => session.compute().run(Priority::Ingest, move || Ok(convert())).await??,
    };
    let PipelinedWrite { ops, failures } = apply_pipelines(pipelines, session, ops, allowance).await?;
    let all = ops.len();
    for failure in failures {
        if RETRYABLE.contains(&failure.status()) {
            return Err(failure);
        }
        answer.reject(failure.reason());
    }
    let results = match ops.len() {
        0 => Vec::new(),
        _ => session.write(ops, RefreshPolicy::None, TIMEOUT).await?,
    };
    let (mut refused, mut not_allowed) = (0, None);
    for error in results.into_iter().filter_map(Result::err) {
        session.refusals().note(&error);
        let error = Error::from(error);
        if RETRYABLE.contains(&error.status()) {
            return Err(error);
        }
        // A block of the index and a failure of the server pass, and nobody sends rejected records again.
        if error.status() >= 500 || (error.status() == 403 && !error.is_refusal()) {
            return Err(Error::new(503, error.error_type(), error.reason()));
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
        _ => Ok(answer),
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
    // Documents are about as long as the records that they are made of.
    let (mut text, mut ends, mut answer) =
        (Vec::with_capacity(body.len()), Vec::new(), ExportAnswer::default());
    read::<Error>(encoding, body, |context, record| {
        let begin = text.len();
        let converted = record.and_then(|record| {
            converter.convert(context, &record, now_ns, &mut text).map_err(|error| error.to_string())
        });
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
