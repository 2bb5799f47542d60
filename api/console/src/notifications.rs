//! Follow-up of alerts: the status that people set, tests of the channels of rules, and the secrets that channels need.

use millrace_alerting::AlertStatus;
use millrace_saved_objects::object;
use serde_json::{Value, json};

use super::alerts::{body, done, refuse_rest, taken, tested};
use super::error::{from_alerting, from_notifications, invalid};
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{Request, Response};
use crate::{Api, Console};

/// Sets the status of an alert.
pub(crate) async fn status(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let mut members = object("body", body(request)?)?;
    let named = taken(&mut members, "status").ok_or_else(|| invalid("status", "is missing"))?;
    let status = named.as_str().and_then(AlertStatus::named);
    let status = status.ok_or_else(|| invalid("status", "is none of New, Ongoing, False, Solved"))?;
    let note = match taken(&mut members, "note") {
        None => None,
        Some(Value::String(note)) => Some(note),
        Some(_) => return Err(invalid("note", "must be a string")),
    };
    refuse_rest(&members)?;
    console.alerting()?.set_status(api.session.principal(), id, status, note).await.map_err(from_alerting)?;
    Ok(Response::json(200, done(id, &format!("the alert is {}", status.name()))))
}

/// Sends a sample through the channels of a rule.
pub(crate) async fn test(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let mut members = object("body", body(request)?)?;
    let tested = tested(&mut members)?;
    let alert = taken(&mut members, "alert");
    refuse_rest(&members)?;
    let tested = console.alerting()?.notify_test(api.session.principal(), tested, alert).await;
    let tested = tested.map_err(from_alerting)?;
    let failed = tested.iter().filter(|tested| tested.error.is_some()).count();
    let message = match (tested.len(), failed) {
        (0, _) => "the rule has no channels".to_owned(),
        (all, 0) => format!("sent by {all} of {all} channels"),
        (all, failed) => format!("sent by {} of {all} channels", all - failed),
    };
    let channels = tested.into_iter().map(|tested| {
        json!({
            "method": tested.method,
            "sent": tested.error.is_none(),
            "error": tested.error,
            "note": tested.note,
            "took": tested.took_ms,
        })
    });
    let channels: Vec<Value> = channels.collect();
    Ok(Response::json(200, json!({ "status": failed == 0, "message": message, "channels": channels })))
}

/// Lists secrets, without what they hide.
pub(crate) async fn secrets(console: &Console, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let secrets = console.notifications()?.secrets().await.map_err(from_notifications)?;
    Ok(Response::raw_json(200, items(&request.allowance, &secrets, Value::clone)?))
}

/// Stores a secret.
pub(crate) async fn put_secret(
    console: &Console,
    api: &Api,
    request: &Request,
    name: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let mut members = object("body", body(request)?)?;
    let Some(Value::String(value)) = taken(&mut members, "value") else {
        return Err(invalid("value", "is missing, or no string"));
    };
    let hosts = match taken(&mut members, "hosts") {
        None => Vec::new(),
        Some(Value::Array(hosts)) if hosts.iter().all(Value::is_string) => {
            hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(_) => return Err(invalid("hosts", "must be a list of strings")),
    };
    refuse_rest(&members)?;
    let by = api.session.principal().name().to_owned();
    let created = console.notifications()?.put_secret(name, &value, hosts, &by).await;
    let created = created.map_err(from_notifications)?;
    let message = if created { "the secret is stored" } else { "the secret is replaced" };
    Ok(Response::json(200, done(name, message)))
}

/// Removes a secret.
pub(crate) async fn delete_secret(
    console: &Console,
    request: &Request,
    name: &str,
) -> Result<Response, Error> {
    request.finish()?;
    match console.notifications()?.delete_secret(name).await.map_err(from_notifications)? {
        true => Ok(Response::json(200, done(name, "the secret is deleted"))),
        false => Err(Error::new(404, "resource_not_found_exception", format!("no such secret [{name}]"))),
    }
}
