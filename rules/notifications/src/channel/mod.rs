//! Channels that send: a file a kind of channel.
//!
//! [`Channels::send`] has a deadline of its own whatever the other side does; what it answers says what is to become of the
//! notification. Neither reasons nor logs have secrets in them: of addresses the host is told.

pub(crate) mod command;
pub(crate) mod email;
mod smtp;
mod webhook;

use std::time::Duration;

use millrace_rules::definition::notification::{Channel, Method, Secret};
use millrace_runtime::Priority;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::NotifierState;
use crate::config::Config;
use crate::error::Result;
use crate::message::Message;

/// Time that a notification may take, for any channel.
const DEADLINE: Duration = Duration::from_secs(75);
/// Bytes of a part of a secret from which on it tells something: a path may be a slash.
const LEAST_HIDDEN: usize = 6;

/// Why a notification was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// `true` if it will be the same next time.
    pub(crate) permanent: bool,
    /// The reason, without secrets.
    pub(crate) reason: String,
    /// Recipients that have it nevertheless, and are not to get it again: those of [`Message::served`].
    pub(crate) served: Vec<String>,
    /// `true` if the channel works, and only some recipients do not.
    pub(crate) of_recipients: bool,
}

impl Failure {
    /// Returns a failure that may pass: the notification is tried again.
    pub(crate) fn passing(reason: impl Into<String>) -> Self {
        Self { permanent: false, reason: reason.into(), served: Vec::new(), of_recipients: false }
    }

    /// Returns a failure that stays.
    pub(crate) fn permanent(reason: impl Into<String>) -> Self {
        Self { permanent: true, ..Self::passing(reason) }
    }
}

/// Result of a sent notification: nothing, or a remark about it.
pub(crate) type SendResult = std::result::Result<Option<String>, Failure>;

/// Clients of all channels.
#[derive(Debug)]
pub(crate) struct Channels {
    webhook: webhook::Webhook,
    email: Option<email::Mailer>,
    command: command::Commands,
}

/// Options with secrets in the place of their names, and the hosts to which each of these may be sent.
pub(crate) struct ResolvedOptions {
    options: Map<String, Value>,
    /// Paths of secrets: an option, or one and a member of it.
    secrets: Vec<Vec<String>>,
    hosts: Vec<Vec<String>>,
}

impl ResolvedOptions {
    /// Returns whether there is a secret at a path of the options.
    fn is_secret(&self, path: &[&str]) -> bool {
        self.secrets.iter().any(|secret| secret.iter().eq(path))
    }

    /// Returns the texts that a receiver's answer may reveal: the secrets, and where one is a URL its path and query.
    fn hidden(&self) -> Vec<String> {
        let mut hidden = Vec::new();
        for path in &self.secrets {
            let Some((first, rest)) = path.split_first() else { continue };
            let option = self.options.get(first);
            let value = rest.iter().fold(option, |value, member| value.and_then(|value| value.get(member)));
            let Some(value) = value.and_then(Value::as_str) else { continue };
            if let Ok(url) = reqwest::Url::parse(value) {
                hidden.extend(url.query().map(str::to_owned));
                hidden.push(url.path().to_owned());
            }
            // A header has a word before it.
            hidden.extend(value.rsplit(' ').next().map(str::to_owned));
            hidden.push(value.to_owned());
        }
        hidden.retain(|text| text.len() >= LEAST_HIDDEN);
        // The longer ones first: they have shorter ones in them.
        hidden.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        hidden.dedup();
        hidden
    }

    #[cfg(test)]
    fn of_test(options: Value, secret: &[&str]) -> Self {
        let Value::Object(options) = options else { panic!("{options} is no object") };
        let secrets = vec![secret.iter().map(|&part| part.to_owned()).collect()];
        Self { options, secrets, hosts: Vec::new() }
    }
}

impl Channels {
    /// Reads certificates, on a thread that may wait.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub(crate) async fn new(config: &Config) -> Result<Self> {
        let config = config.clone();
        let made = tokio::task::spawn_blocking(move || {
            let authorities = match &config.authorities {
                None => Vec::new(),
                Some(path) => std::fs::read(path).map_err(|error| {
                    crate::Error::Config(format!("authorities: [{}]: {error}", path.display()))
                })?,
            };
            let email = config.smtp.clone().map(|smtp| email::Mailer::new(smtp, &authorities)).transpose()?;
            let webhook = webhook::Webhook::new(config.allow.clone(), &authorities)?;
            Ok(Self { webhook, email, command: command::Commands::new(config.commands.clone()) })
        });
        made.await.unwrap_or_else(|error| Err(crate::Error::Internal(error.to_string())))
    }

    /// Sends a notification through a channel.
    pub(crate) async fn send(
        &self,
        shared: &NotifierState,
        channel: &Channel,
        message: Message,
    ) -> SendResult {
        // A program that waits for others has not begun: its time runs from then on.
        let turn = match channel.method {
            Method::Command => Some(self.command.turn().await?),
            _ => None,
        };
        let sending = self.send_in_time(shared, channel, message, turn);
        let late = |_| Err(Failure::passing(format!("it took longer than {} s", DEADLINE.as_secs())));
        tokio::time::timeout(DEADLINE, sending).await.unwrap_or_else(late)
    }

    async fn send_in_time(
        &self,
        shared: &NotifierState,
        channel: &Channel,
        message: Message,
        turn: Option<OwnedSemaphorePermit>,
    ) -> SendResult {
        let resolved = resolve(shared, &channel.options).await?;
        match channel.method {
            Method::Email => self.mailer()?.send(shared, &resolved.options, message).await,
            Method::User => {
                let options = addresses(shared, &resolved.options)?;
                self.mailer()?.send(shared, &options, message).await
            }
            Method::Command => {
                let turn = turn.ok_or_else(|| Failure::passing("the program has no turn"))?;
                self.command.run(shared, resolved.options, message, turn).await
            }
            Method::Webhook => self.webhook.send(shared, None, resolved, message).await,
            Method::Template(template) => self.webhook.send(shared, Some(template), resolved, message).await,
        }
    }

    fn mailer(&self) -> std::result::Result<&email::Mailer, Failure> {
        let none = || {
            Failure::passing(
                "no mail is sent: notifications.smtp.host and notifications.smtp.from are not set",
            )
        };
        self.email.as_ref().ok_or_else(none)
    }
}

/// Puts secrets in the place of their names.
async fn resolve(
    shared: &NotifierState,
    options: &Map<String, Value>,
) -> std::result::Result<ResolvedOptions, Failure> {
    let mut resolved = ResolvedOptions { options: options.clone(), secrets: Vec::new(), hosts: Vec::new() };
    let mut named: Vec<(Vec<&str>, Secret)> = Vec::new();
    for (name, value) in options {
        if let Some(secret) = Secret::read(value) {
            named.push((vec![name], secret));
        } else if let (Value::Object(members), "http_post_headers") = (value, name.as_str()) {
            let secrets = members.iter().filter_map(|(header, value)| Some((header, Secret::read(value)?)));
            named.extend(secrets.map(|(header, secret)| (vec![name.as_str(), header.as_str()], secret)));
        }
    }
    for (path, secret) in named {
        let opened = shared.secrets.open(&secret.name).await.map_err(Failure::passing)?;
        let mut place = resolved.options.get_mut(path[0]);
        if let Some(inner) = path.get(1) {
            place = place.and_then(|members| members.get_mut(*inner));
        }
        if let Some(place) = place {
            *place = Value::from(format!("{}{}", secret.prefix, opened.value));
        }
        // One that was stored when hosts need not be named could be sent anywhere by whoever may save a rule.
        if opened.hosts.is_empty() {
            return Err(Failure::passing(format!(
                "secret [{name}] does not say where it may be sent: store it again with `hosts`, PUT /api/alert/secret/{name}",
                name = secret.name
            )));
        }
        resolved.hosts.push(opened.hosts);
        resolved.secrets.push(path.into_iter().map(str::to_owned).collect());
    }
    Ok(resolved)
}

/// The addresses of accounts, as options of mail.
fn addresses(
    shared: &NotifierState,
    options: &Map<String, Value>,
) -> std::result::Result<Map<String, Value>, Failure> {
    let names =
        options.get("users").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut addresses = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        match shared
            .accounts
            .user(name)
            .filter(|account| account.user.enabled)
            .and_then(|account| account.user.email.clone())
        {
            Some(address) => addresses.push(Value::from(address)),
            None => missing.push(name),
        }
    }
    if addresses.is_empty() {
        return Err(Failure::passing(format!(
            "no user [{}] with an address of mail is enabled",
            missing.join(", ")
        )));
    }
    let mut mail = Map::new();
    mail.insert("email".to_owned(), Value::Array(addresses));
    Ok(mail)
}

/// Runs what takes time on a compute thread, behind what others wait for.
pub(crate) async fn compute<T: Send + 'static>(
    shared: &NotifierState,
    work: impl FnOnce() -> std::result::Result<T, Failure> + Send + 'static,
) -> std::result::Result<T, Failure> {
    let done = shared.engine.compute().run(Priority::Background, move || Ok(work())).await;
    done.unwrap_or_else(|error| Err(Failure::passing(error.to_string())))
}
