//! Traces for a collector: spans of this server, sent over OTLP (HTTP, protobuf) where the configuration names an endpoint.
//!
//! [`SpanExport`] is a layer beside the log. A thread of the exporter gathers spans and sends them in batches; spans that find its queue full
//! are dropped, so no request waits for a collector. Its requests run on the server's runtime ([`RuntimeClient`]).

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

/// Name of the service in traces.
const SERVICE: &str = "millrace";
/// Path of the collector's traces, where the endpoint has none.
const TRACES_PATH: &str = "/v1/traces";
/// Longest time of a request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that the end of the server waits for the last spans.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer of a collector that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Export of spans; [`SpanExport::finish`] sends the last ones.
#[derive(Debug)]
pub(crate) struct SpanExport(SdkTracerProvider);

impl SpanExport {
    /// Makes the export to an endpoint; requests run on a runtime.
    ///
    /// # Errors
    /// An endpoint that is no URL.
    pub(crate) fn new(endpoint: &str, runtime: &Handle) -> anyhow::Result<Self> {
        let url = traces_url(endpoint)?;
        let client = reqwest::Client::builder().timeout(EXPORT_TIMEOUT).build()?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(RuntimeClient { client, runtime: runtime.clone() })
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url)
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_resource(Resource::builder().with_service_name(SERVICE).build())
            .build();
        Ok(Self(provider))
    }

    /// Makes the layer of a subscriber: spans of this server alone, no events.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let is_own = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("millrace"));
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(is_own.and(LevelFilter::DEBUG))
    }

    /// Sends the last spans. Blocks for some seconds at most; the runtime still runs.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Returns the URL of a collector's traces.
///
/// # Errors
/// An endpoint that is no `http://` or `https://` URL.
pub(crate) fn traces_url(endpoint: &str) -> anyhow::Result<String> {
    let mut url =
        reqwest::Url::parse(endpoint).map_err(|error| anyhow::anyhow!("`{endpoint}` is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        anyhow::bail!("`{endpoint}` is not an http:// or https:// URL");
    }
    if url.path() == "/" {
        url.set_path(TRACES_PATH);
    }
    Ok(url.into())
}

/// Sends requests of the exporter's thread on the server's runtime.
#[derive(Debug)]
struct RuntimeClient {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, head.uri.to_string()).headers(head.headers).body(body);
        let sent = self.runtime.spawn(async move {
            let mut answer = request.send().await?;
            let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                    return Err(HttpError::from("the answer of the collector is too long"));
                }
                bytes.extend_from_slice(&chunk);
            }
            Ok::<_, HttpError>((status, headers, bytes))
        });
        let (status, headers, bytes) = sent.await??;
        let mut response = Response::new(Bytes::from(bytes));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_the_path_of_traces_unless_it_has_another() {
        let url = |endpoint: &str| traces_url(endpoint).unwrap();
        assert_eq!(url("http://localhost:4318"), "http://localhost:4318/v1/traces");
        assert_eq!(url("https://otel.example.com/"), "https://otel.example.com/v1/traces");
        assert_eq!(url("http://localhost:4318/api/traces"), "http://localhost:4318/api/traces");
        for refused in ["", "localhost:4318", "ftp://localhost", "grpc://localhost:4317", "http://"] {
            traces_url(refused).unwrap_err();
        }
    }
}
