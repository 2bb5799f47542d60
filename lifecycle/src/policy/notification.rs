//! The action `notification`, and `error_notification` of a policy: a message to a webhook.
//!
//! A policy gives the address itself, as a text or as the name of a secret. Which hosts may be reached is the server's configuration.

use serde_json::{Map, Value, json};

use super::parse::{invalid, members, text};
use super::shrink::parse_template;
use crate::error::Result;

/// Destination and text of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyNotification {
    /// Options of the webhook, by their names in rules.
    pub webhook: Map<String, Value>,
    /// Template of the text.
    pub text: String,
}

/// Reads the parameters.
///
/// # Errors
/// [`crate::Error::Invalid`] with the member.
pub(super) fn parse_notification(params: &Map<String, Value>) -> Result<PolicyNotification> {
    let (mut webhook, mut source) = (None, None);
    for (key, value) in params {
        match key.as_str() {
            "destination" => webhook = Some(parse_destination(value)?),
            "message_template" => source = Some(parse_template(key, value)?),
            "channel" => return refuse_channel(),
            other => return invalid(format!("Invalid field: [{other}] found in notification.")),
        }
    }
    match (webhook, source) {
        (Some(webhook), Some(text)) => Ok(PolicyNotification { webhook, text }),
        _ => invalid("a notification has [destination] and [message_template]"),
    }
}

/// Refuses a channel by its id: this server stores none.
///
/// # Errors
/// [`crate::Error::Invalid`], always; its text names what to write instead.
pub(crate) fn refuse_channel<T>() -> Result<T> {
    invalid(
        "[channel] of a notification is not supported, as this server stores no channels: write a [destination] with \
         [custom_webhook], [slack] or [chime] and their [url] instead, such as {\"slack\": {\"url\": {\"secret\": \"name\"}}}",
    )
}

/// Reads a destination into the options of a webhook.
///
/// # Errors
/// [`crate::Error::Invalid`] with the member.
pub(crate) fn parse_destination(value: &Value) -> Result<Map<String, Value>> {
    let mut webhook: Option<Map<String, Value>> = None;
    for (key, value) in members("destination", value)? {
        // The body is a template of notifications, which sees the message as `text`.
        let body = match key.as_str() {
            "custom_webhook" => "{{ text }}",
            "slack" => "{\"text\": {{ text | tojson }}}",
            "chime" => "{\"Content\": {{ text | tojson }}}",
            "name" | "id" | "last_update_time" => continue,
            other => return invalid(format!("Invalid field: [{other}] found in [destination].")),
        };
        if webhook.is_some() {
            return invalid("[destination] has one of [custom_webhook, slack, chime]");
        }
        let mut options = parse_webhook(value)?;
        options.insert("webhook_body".to_owned(), body.into());
        webhook = Some(options);
    }
    webhook.map_or_else(|| invalid("[destination] has one of [custom_webhook, slack, chime]"), Ok)
}

fn parse_webhook(value: &Value) -> Result<Map<String, Value>> {
    let mut options = Map::new();
    for (key, value) in members("destination", value)? {
        match key.as_str() {
            "url" => {
                options.insert("http_post_url".to_owned(), parse_value(key, value)?);
            }
            "method" if value.is_null() => {}
            "method" => match text(key, value)? {
                method @ ("POST" | "PUT") => {
                    options.insert("webhook_method".to_owned(), method.into());
                }
                other => return invalid(format!("[method] is [{other}], not POST or PUT")),
            },
            "header_params" if value.is_null() => {}
            "header_params" => {
                let mut headers = Map::new();
                for (name, value) in members(key, value)? {
                    headers.insert(name.clone(), parse_value(name, value)?);
                }
                options.insert("http_post_headers".to_owned(), headers.into());
            }
            other => return invalid(format!("Invalid field: [{other}] found in [destination].")),
        }
    }
    match options.contains_key("http_post_url") {
        true => Ok(options),
        false => invalid("[destination] must have a [url]: a text, or {\"secret\": \"name\"}"),
    }
}

/// Reads a text without templates of its own, or the name of a secret.
fn parse_value(field: &str, value: &Value) -> Result<Value> {
    if let Some(secret) = value.get("secret") {
        let mut named = json!({ "secret": text(field, secret)? });
        for (key, value) in members(field, value)? {
            match key.as_str() {
                "secret" => {}
                "prefix" => named["prefix"] = value.as_str().unwrap_or_default().into(),
                other => return invalid(format!("Invalid field: [{other}] found in [{field}].")),
            }
        }
        return Ok(named);
    }
    let given = text(field, value)?;
    match given.contains("{{") || given.contains("{%") {
        true => invalid(format!("[{field}] must be a text without braces, but is [{given}]")),
        false => Ok(given.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_become_options_of_a_webhook() {
        let parse = |body: Value| parse_notification(body.as_object().unwrap());
        let parsed = parse(json!({
            "destination": {"slack": {"url": {"secret": "slack-soc"}}},
            "message_template": {"source": "{{ctx.index}} goes"},
        }));
        let parsed = parsed.unwrap();
        assert_eq!(parsed.webhook["http_post_url"], json!({"secret": "slack-soc"}));
        assert_eq!(parsed.text, "{{ctx.index}} goes");
        let parsed = parse(json!({
            "destination": {"custom_webhook": {
                "url": "https://example.com/x", "method": "PUT", "header_params": {"Content-Type": "application/json"},
            }},
            "message_template": {"source": "x"},
        }));
        let parsed = parsed.unwrap();
        assert_eq!(parsed.webhook["webhook_method"], "PUT");
        let message = json!({"source": "x"});
        for (body, needle) in [
            (json!({"message_template": message}), "[destination]"),
            (json!({"channel": {"id": "c"}, "message_template": message}), "[channel]"),
            (json!({"destination": {"pager": {}}, "message_template": message}), "[pager]"),
            (json!({"destination": {"slack": {}}, "message_template": message}), "[url]"),
            (
                json!({"destination": {"slack": {"url": "https://{{ x }}"}}, "message_template": message}),
                "braces",
            ),
            (json!({"destination": {"slack": {"url": "https://a"}}}), "[message_template]"),
        ] {
            let error = parse(body).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
