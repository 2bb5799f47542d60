//! `/v1/logs`: logs of OpenTelemetry, by OTLP over HTTP.

use millrace_gateway::otlp::{OtlpConfig, export_logs};
use millrace_otlp::Encoding;

use crate::Api;
use crate::error::Error;
use crate::http::{Body, Request, Response};

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
    let body = request.body.clone();
    let (pipelines, allowance) = (api.pipelines.as_ref(), &request.allowance);
    let answer = export_logs(&api.session, config, pipelines, encoding, body, allowance).await?;
    let body = Body::Bytes { content_type: encoding.media_type(), bytes: answer.encode(encoding).into() };
    Ok(Response { status: 200, body, headers: Vec::new() })
}
