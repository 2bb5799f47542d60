//! Connection to another server: addresses, credentials, TLS, compression, pauses.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url};

use crate::http_client::{authorization_header, custom_headers};
use crate::{Options, Secret, tls};

/// Bytes of one request, before compression.
const BULK_BYTES: usize = 20 << 20;
/// Port where an address has none.
const PORT: u16 = 9200;

/// Settings of the connection and its addresses.
#[derive(Debug)]
pub(super) struct Settings {
    /// They may have credentials.
    hosts: Vec<Secret>,
    tls_enabled: Option<bool>,
    tls: tls::Client,
    authorization: Option<HeaderValue>,
    headers: HeaderMap,
    path: Option<String>,
    bulk_path: Option<String>,
    parameters: Vec<(String, Secret)>,
    proxy: Option<Secret>,
    timeout: Duration,
    pub(super) retry_initial: Duration,
    pub(super) retry_max: Duration,
    pub(super) gzip: Option<u32>,
    pub(super) bulk_bytes: usize,
}

impl Settings {
    /// Takes the options of a connection; `None` without hosts.
    pub(super) fn take(options: &mut Options) -> Option<Self> {
        // One text may have several, as in Logstash.
        let hosts = options.texts("hosts");
        let hosts: Vec<_> =
            hosts.iter().flat_map(|hosts| hosts.split_whitespace()).map(Secret::new).collect();
        let tls_enabled = options.boolean("ssl_enabled");
        let tls_enabled = options.boolean("ssl").or(tls_enabled);
        let tls = tls::Client::take(options);
        let authorization = authorization(options);
        let headers = custom_headers(options);
        let (path, bulk_path) = (options.text("path"), options.text("bulk_path"));
        let texts = |(name, value): (String, crate::Setting)| Some((name, Secret::new(value.as_text()?)));
        let parameters: Vec<_> = options.hash("parameters").into_iter().filter_map(texts).collect();
        let proxy = options.secret("proxy").filter(|proxy| !proxy.expose().is_empty());
        let seconds = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        let timeout = seconds(options.integer("timeout", 1..=86_400).unwrap_or(60));
        let retry_initial = seconds(options.integer("retry_initial_interval", 1..=3600).unwrap_or(2));
        let retry_max = seconds(options.integer("retry_max_interval", 1..=86_400).unwrap_or(64));
        let compression = options.boolean("http_compression");
        let level = options.integer("compression_level", 0..=9);
        let gzip = match (level, compression) {
            (Some(level), _) => u32::try_from(level).ok().filter(|level| *level > 0),
            (None, Some(true)) => Some(3),
            (None, _) => None,
        };
        let bulk_bytes = options.integer("target_bulk_bytes", 1..=1 << 30);
        let bulk_bytes = bulk_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(BULK_BYTES);
        if hosts.is_empty() {
            if authorization.is_some() {
                options
                    .fault_here("credentials are given, but no [hosts]: without, events go into this server");
            }
            return None;
        }
        Some(Self {
            hosts,
            tls_enabled,
            tls,
            authorization,
            headers,
            path,
            bulk_path,
            parameters,
            proxy,
            timeout,
            retry_initial,
            retry_max: retry_max.max(retry_initial),
            gzip,
            bulk_bytes,
        })
    }

    /// The address of `_bulk` of each host.
    pub(super) fn addresses(&self) -> Result<Vec<Url>, String> {
        let mut addresses = Vec::with_capacity(self.hosts.len());
        for host in &self.hosts {
            let host = host.expose();
            // Without what stands before the host: a name and a password.
            let shown = host.rsplit_once('@').map_or(host, |(_, host)| host);
            let scheme = if self.tls_enabled == Some(true) { "https" } else { "http" };
            let text = if host.contains("://") { host.to_owned() } else { format!("{scheme}://{host}") };
            let mut url =
                Url::parse(&text).map_err(|error| format!("host [{shown}] is not an address: {error}; write special characters of a password as %2F and the like"))?;
            match (url.scheme(), self.tls_enabled) {
                ("http" | "https", None) | ("http", Some(false)) | ("https", Some(true)) => {}
                (scheme @ ("http" | "https"), Some(tls)) => {
                    return Err(format!("host [{shown}] says {scheme}, but [ssl_enabled] is {tls}"));
                }
                (other, _) => return Err(format!("host [{shown}] says {other}, not http or https")),
            }
            let authority = text.split("://").nth(1).unwrap_or_default();
            let authority = authority.split('/').next().unwrap_or_default();
            let behind = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
            let behind = behind.rsplit_once('@').map_or(behind, |(_, behind)| behind);
            if !behind.contains(':') {
                // The port of the data API rather than the scheme's.
                let _ = url.set_port(Some(PORT));
            }
            let path = match (&self.bulk_path, &self.path) {
                (Some(bulk), _) => bulk.clone(),
                (None, Some(path)) => format!("{}/_bulk", path.trim_end_matches('/')),
                (None, None) => format!("{}/_bulk", url.path().trim_end_matches('/')),
            };
            url.set_path(&path);
            if !self.parameters.is_empty() {
                let parameters = self.parameters.iter().map(|(name, value)| (name, value.expose()));
                url.query_pairs_mut().extend_pairs(parameters);
            }
            addresses.push(url);
        }
        Ok(addresses)
    }

    /// Makes the client.
    pub(super) fn client(&self) -> Result<Client, String> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if self.gzip.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let builder = Client::builder()
            .default_headers(headers)
            .timeout(self.timeout)
            .connect_timeout(self.timeout)
            .redirect(reqwest::redirect::Policy::none());
        self.tls.http_client(builder, self.proxy.as_ref())
    }
}

fn authorization(options: &mut Options) -> Option<HeaderValue> {
    let (user, password, key) = (options.text("user"), options.text("password"), options.text("api_key"));
    if let Some((at, kind)) = options.take("auth_type") {
        // The plugin of OpenSearch nests credentials; only basic ones do without a service of Amazon's.
        let basic = match &kind {
            crate::Setting::Hash(members) => members.clone(),
            _ => Vec::new(),
        };
        let get =
            |name: &str| basic.iter().find(|(have, _)| have == name).and_then(|(_, value)| value.as_text());
        return match (get("type").as_deref(), get("user"), get("password")) {
            (Some("basic"), Some(user), Some(password)) => {
                authorization_header(options, "Basic", &format!("{user}:{password}"))
            }
            _ => {
                options.fault(at, "[auth_type] must be { type => \"basic\" user => … password => … }");
                None
            }
        };
    }
    match (user, password, key) {
        (None, None, None) => None,
        (Some(user), Some(password), None) => {
            authorization_header(options, "Basic", &format!("{user}:{password}"))
        }
        (None, None, Some(key)) => authorization_header(options, "ApiKey", &key),
        (Some(user), None, None) => {
            // As in Logstash, which sends none then.
            tracing::warn!(user, "an output has a [user] without a [password]: it sends no credentials");
            None
        }
        _ => {
            options.fault_here("give [user] and [password], or [api_key]");
            None
        }
    }
}
