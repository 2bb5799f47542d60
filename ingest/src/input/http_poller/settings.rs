//! Options of `http_poller`.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Url};
use serde_json::Value;

use crate::codec::{self, Codec};
use crate::event::{Additions, METADATA, SharedValue};
use crate::http_client::HttpClientOptions;
use crate::input::timer::Timer;
use crate::{EcsCompatibility, Event, Fault, FieldReference, Options, Secret, Setting};

/// Seconds that a request may take where nothing is said.
const REQUEST_TIMEOUT: i64 = 60;

/// Settings of the input.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) urls: Vec<(String, PolledUrl)>,
    pub(super) timer: Timer,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) target: Option<FieldReference>,
    pub(super) metadata_target: Option<FieldReference>,
    /// `true` if the target is the input's own field.
    pub(super) is_own_target: bool,
    pub(super) ecs: EcsCompatibility,
    client_options: HttpClientOptions,
    timeout: Duration,
    connect_timeout: Duration,
}

/// Description of a request and its answer, which the events of the answer get.
#[derive(Debug)]
pub(super) enum MetadataAddition {
    /// Events share their metadata.
    Shared(Box<Additions>),
    /// A field has it as it is written.
    Field(FieldReference, SharedValue),
    None,
}

impl MetadataAddition {
    /// Gives it to an event.
    pub(super) fn add_to(&mut self, event: &mut Event) {
        match self {
            Self::Shared(additions) => additions.add_metadata(event),
            // A field that is something else stays.
            Self::Field(target, value) => drop(event.set_written(target, value)),
            Self::None => {}
        }
    }
}

/// A request that is sent in each run.
#[derive(Clone, Debug)]
pub(super) struct PolledUrl {
    method: Method,
    url: Url,
    headers: HeaderMap,
    credentials: Option<(String, Secret)>,
    body: Option<Secret>,
    /// Time that the request may take, where it is not that of all.
    timeout: Option<Duration>,
}

impl PolledUrl {
    /// Makes the request.
    pub(super) fn request(&self, client: &Client) -> RequestBuilder {
        let mut request = client.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password.expose()));
        }
        if let Some(timeout) = self.timeout {
            request = request.timeout(timeout);
        }
        match &self.body {
            Some(body) => request.body(body.expose().to_owned()),
            None => request,
        }
    }

    /// Describes the request, without what may be secret.
    pub(super) fn describe(&self) -> Value {
        let mut url = self.url.clone();
        // An address without a host has no credentials to hide.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        url.set_query(None);
        serde_json::json!({ "method": self.method.as_str().to_ascii_lowercase(), "url": url.as_str() })
    }
}

impl Settings {
    /// Takes all options.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) fn take(mut options: Options) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        let user = o.text("user");
        let password = o.secret("password");
        let credentials = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => {
                o.fault_here("options [user] and [password] need each other");
                None
            }
        };
        let urls = urls(o, credentials.as_ref());
        let timer = Timer::take(o);
        if timer.is_none() {
            o.fault_here("[http_poller] needs the option [schedule]");
        }
        let codec = codec::take(o, "json");
        let target = o.field("target");
        let ecs = o.ecs_compatibility();
        let metadata_target = o.field("metadata_target");
        let is_own_target = metadata_target.is_none();
        let own_target = ecs.select("[@metadata][http_poller]", "[@metadata][input][http_poller]");
        let metadata_target = metadata_target.or_else(|| FieldReference::parse(own_target).ok());
        o.rename("cacert", "ssl_certificate_authorities");
        let seconds = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        let timeout = seconds(o.integer("request_timeout", 1..=86_400).unwrap_or(REQUEST_TIMEOUT));
        let connect_timeout = seconds(o.integer("connect_timeout", 1..=86_400).unwrap_or(10));
        let client_options = HttpClientOptions::take(o);
        options.finish()?;
        Ok(Self {
            urls,
            timer: timer.unwrap_or(Timer::Once(Duration::ZERO)),
            codec: codec?,
            target,
            metadata_target,
            is_own_target,
            ecs,
            client_options,
            timeout,
            connect_timeout,
        })
    }

    /// Returns the addition of a description.
    pub(super) fn metadata_addition(&self, description: Value) -> MetadataAddition {
        let Some(target) = &self.metadata_target else { return MetadataAddition::None };
        let path: Vec<&str> = target.path().iter().map(String::as_str).collect();
        match path.first() {
            Some(&METADATA) => {
                MetadataAddition::Shared(Box::new(Additions::default().at(&path, description)))
            }
            _ => MetadataAddition::Field(target.clone(), SharedValue::from(description)),
        }
    }

    /// Makes the client.
    pub(super) fn client(&self) -> Result<Client, String> {
        let redirects = reqwest::redirect::Policy::limited(10);
        self.client_options.client((self.timeout, self.connect_timeout), redirects)
    }
}

fn urls(options: &mut Options, credentials: Option<&(String, Secret)>) -> Vec<(String, PolledUrl)> {
    let at = options.at();
    let given = options.hash("urls");
    if given.is_empty() {
        options.fault_here("[http_poller] needs the option [urls]");
    }
    let mut urls = Vec::new();
    for (name, setting) in given {
        match polled(&setting, credentials) {
            Ok(url) => urls.push((name, url)),
            Err(problem) => options.fault(at, format!("[{name}] of [urls]: {problem}")),
        }
    }
    urls
}

fn polled(setting: &Setting, credentials: Option<&(String, Secret)>) -> Result<PolledUrl, String> {
    let members: &[(String, Setting)] = match setting {
        Setting::Hash(members) => members,
        _ => &[],
    };
    let find = |name: &str| members.iter().find(|(have, _)| have == name).map(|(_, value)| value);
    let text = |name: &str| find(name).and_then(Setting::as_text);
    if let Some((name, _)) = members.iter().find(|(name, _)| {
        !["url", "method", "headers", "user", "password", "body", "query", "request_timeout", "auth"]
            .contains(&name.as_str())
    }) {
        return Err(format!("there is no option [{name}]"));
    }
    let address = setting.as_text().or_else(|| text("url")).ok_or("it needs an address")?;
    let mut url = Url::parse(&address)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| {
            // A password may be before the last `@`.
            let shown = address.rsplit_once('@').map_or(address.as_str(), |(_, shown)| shown);
            format!("[{shown}] is not an address of http or https")
        })?;
    let timeout = match find("request_timeout") {
        None => None,
        Some(given) => {
            let seconds = given.as_text().and_then(|text| text.parse().ok());
            let seconds = seconds.filter(|seconds| (1..=86_400).contains(seconds));
            Some(Duration::from_secs(seconds.ok_or("[request_timeout] must be a number from 1 to 86400")?))
        }
    };
    if let Some(Setting::Hash(query)) = find("query") {
        let pairs = query.iter().filter_map(|(name, value)| Some((name, value.as_text()?)));
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let method = text("method").unwrap_or_else(|| "get".to_owned()).to_ascii_uppercase();
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("[{method}] is no method"))?;
    let mut headers = HeaderMap::new();
    if let Some(Setting::Hash(given)) = find("headers") {
        for (name, value) in given {
            let value = value.as_text().unwrap_or_default();
            match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                _ => return Err(format!("[{name}] of [headers] is not a header")),
            }
        }
    }
    let own = match find("auth") {
        Some(Setting::Hash(auth)) => {
            let find = |name: &str| {
                auth.iter().find(|(have, _)| have == name).and_then(|(_, value)| value.as_text())
            };
            find("user").zip(find("password").or_else(|| find("pass")))
        }
        _ => text("user").zip(text("password")),
    };
    let credentials =
        own.map(|(user, password)| (user, Secret::new(password))).or_else(|| credentials.cloned());
    Ok(PolledUrl { method, url, headers, credentials, body: text("body").map(Secret::new), timeout })
}
