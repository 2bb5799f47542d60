//! A server that commands of the shell ask over HTTP.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{Client, IntoUrl, Method, RequestBuilder};
use serde_json::Value;

/// A running server and who asks it.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    /// Its URL, without a slash at the end.
    pub(crate) url: String,
    credentials: Option<(String, String)>,
}

impl Remote {
    /// Prepares requests by a `USER[:PASSWORD]`, whose password may be in MILLRACE_PASSWORD instead. `timeout` is for the
    /// connection and for each part of an answer.
    pub(crate) fn new(url: &str, user: Option<&str>, insecure_tls: bool, timeout: Duration) -> Result<Self> {
        let client = Client::builder()
            .danger_accept_invalid_certs(insecure_tls)
            .connect_timeout(timeout)
            .read_timeout(timeout)
            .build()
            .context("cannot set up the HTTP client")?;
        let url = url.trim_end_matches('/').to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            bail!("`{url}` is not an http:// or https:// URL");
        }
        let credentials = match user {
            None => None,
            Some(user) => Some(match user.split_once(':') {
                Some((name, password)) => (name.to_owned(), password.to_owned()),
                None => {
                    let password = std::env::var("MILLRACE_PASSWORD").map_err(|_| {
                        anyhow!("give the password as --user {user}:… or in MILLRACE_PASSWORD")
                    })?;
                    (user.to_owned(), password)
                }
            }),
        };
        Ok(Self { client, url, credentials })
    }

    /// Begins a request with the credentials.
    pub(crate) fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        let request = self.client.request(method, url);
        match &self.credentials {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }
}

/// Reads why a request was refused.
pub(crate) fn refusal(text: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let error = answer.get("error")?;
    let member = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let reason = member("reason")?;
    Some(match member("details") {
        Some(details) => format!("{reason}: {details}"),
        None => reason.to_owned(),
    })
}
