//! Check of a rule's channels. Errors under any configuration refuse the rule; missing permissions of this configuration are
//! reported with the rule.

use millrace_rules::definition::Definition;
use millrace_rules::definition::notification::{Channel, Method};
use reqwest::Url;
use serde_json::Value;

use crate::NotifierState;
use crate::channel::{command, email};
use crate::error::{Error, Result};
use millrace_rules::template;

pub(crate) fn check(shared: &NotifierState, definition: &Definition) -> Result<()> {
    let notification = &definition.notification;
    if let Some(escalation) = &notification.escalation {
        users(shared, "escalate_users", escalation.users.iter().map(String::as_str))?;
    }
    for channel in &notification.channels {
        self::channel(shared, channel)?;
    }
    Ok(())
}

/// Checks that accounts are there, and can be mailed.
fn users<'a>(shared: &NotifierState, field: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    for name in names {
        if shared.accounts.user(name).is_none_or(|account| account.user.email.is_none()) {
            return Err(Error::invalid(field, format!("there is no user [{name}] with an address of mail")));
        }
    }
    Ok(())
}

fn channel(shared: &NotifierState, channel: &Channel) -> Result<()> {
    let options = &channel.options;
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let template =
        |name: &str, text: &str| template::check(text).map_err(|reason| Error::invalid(name, reason));
    match channel.method {
        Method::User => {
            let names = options.get("users").and_then(Value::as_array).into_iter().flatten();
            users(shared, "users", names.filter_map(Value::as_str))?;
        }
        Method::Email => email::check(options)?,
        Method::Command => {
            for word in options
                .get("command")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                template("command", word)?;
            }
            command::check(options)?;
        }
        Method::Webhook => {
            if let Some(url) = text("http_post_url") {
                template("http_post_url", url)?;
                if !url.contains("{{") {
                    let read = url
                        .parse::<Url>()
                        .map_err(|error| Error::invalid("http_post_url", error.to_string()))?;
                    if !matches!(read.scheme(), "http" | "https")
                        || !read.username().is_empty()
                        || read.password().is_some()
                    {
                        return Err(Error::invalid(
                            "http_post_url",
                            "is no address of https or http, without a user in it",
                        ));
                    }
                }
            }
            if let Some(body) = text("webhook_body") {
                template("webhook_body", body)?;
            }
            let headers = options.get("http_post_headers").and_then(Value::as_object).into_iter().flatten();
            for (name, value) in headers {
                if let Some(value) = value.as_str() {
                    template(name, value)?;
                }
            }
        }
        // Their templates are ours.
        Method::Template(_) => {}
    }
    Ok(())
}

/// Tells why a channel cannot send as the server is configured.
pub(crate) fn warning(shared: &NotifierState, channel: &Channel) -> Option<String> {
    let config = &shared.config;
    match channel.method {
        Method::Email | Method::User => {
            let reason = "no mail is sent: set notifications.smtp.host and notifications.smtp.from in the server's configuration";
            config.smtp.is_none().then(|| reason.to_owned())
        }
        Method::Command => {
            let reason =
                "no command is started: set notifications.command_directory in the server's configuration";
            config.commands.is_none().then(|| reason.to_owned())
        }
        Method::Webhook | Method::Template(_) if config.allow.is_empty() => Some(
            "nothing is sent: notifications.allow in the server's configuration names no target".to_owned(),
        ),
        Method::Webhook => {
            let url = channel.options.get("http_post_url").and_then(Value::as_str)?;
            let url = url.parse::<Url>().ok()?;
            config.allow.check(&url).err().map(|reason| format!("nothing is sent: {reason}"))
        }
        Method::Template(_) => None,
    }
}
