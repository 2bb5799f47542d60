//! `_prometheus/metrics`: the figures of the node for scrapers.
//!
//! A [`Page`] gathers figures without a lock that writers hold, and encodes itself as a collector of a registry: the families that
//! dashboards of OpenSearch know ([`opensearch`]), those of this server ([`own`]), and those that its parts hand over ([`parts`]). A figure that nobody measures is not shown;
//! [`left_out_families`] names the families of OpenSearch's exporter that are missing for that reason.

mod left_out;
mod opensearch;
mod own;
mod page;
mod parts;

use std::fmt;

use bytes::Bytes;
use http::HeaderValue;
use millrace_lifecycle::LifecycleFigures;
use millrace_runtime::Priority;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;

pub use self::left_out::left_out_families;
use self::page::Page;
use crate::Api;
use crate::error::Error;
use crate::http::{Body, Request, Response};
use crate::route::DataApi;

/// Media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposition {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    /// Selects OpenMetrics where the header `Accept` names it.
    fn from_accept(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let names = |range: &str| {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let is_refused = parameters.split(';').any(|parameter| {
                let weight = parameter.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok());
                weight.is_some_and(|weight: f32| weight <= 0.0)
            });
            kind.trim().eq_ignore_ascii_case("application/openmetrics-text") && !is_refused
        };
        if accept.split(',').any(names) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Encodes the page of a registry.
    fn encode(self, registry: &Registry) -> Result<(&'static str, String), fmt::Error> {
        let mut page = String::new();
        let content_type = match self {
            Self::Prometheus => {
                prometheus_text::encode(&mut page, registry)?;
                prometheus_text::CONTENT_TYPE
            }
            Self::OpenMetrics => {
                text::encode(&mut page, registry)?;
                OPENMETRICS
            }
        };
        Ok((content_type, page))
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        opensearch::encode(self, &mut encoder)?;
        own::encode(self, &mut encoder)?;
        parts::encode(self, &mut encoder)
    }
}

/// `GET /_prometheus/metrics`
pub(crate) async fn get(served: &DataApi, api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let exposition = Exposition::from_accept(request.accept.as_ref());
    let policies = match served.lifecycle() {
        Some(lifecycle) => lifecycle.figures().await,
        None => LifecycleFigures::default(),
    };
    let sources = page::Sources::new(served, api, policies);
    let encode = move || {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Page::gather(sources)));
        Ok(exposition.encode(&registry))
    };
    let encoded = api.session.compute().run(Priority::Foreground, encode).await?;
    let (content_type, page) =
        encoded.map_err(|error| Error::concealed(500, "illegal_state_exception", &error))?;
    let body = Body::Bytes { content_type, bytes: Bytes::from(page) };
    Ok(Response { status: 200, body, headers: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_callers_that_accept_it() {
        let chosen = |accept: &str| Exposition::from_accept(Some(&accept.parse().unwrap()));
        let of_prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(chosen(of_prometheus), Exposition::OpenMetrics);
        for other in ["*/*", "text/plain", "application/openmetrics-text;q=0, text/plain", "", ";;,,"] {
            assert_eq!(chosen(other), Exposition::Prometheus, "{other}");
        }
        assert_eq!(Exposition::from_accept(None), Exposition::Prometheus);
    }
}
