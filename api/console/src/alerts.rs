//! Alert rules: listed, saved, switched, silenced, run, tested.
//!
//! [`Alerting`](millrace_alerting::Alerting) knows the rules and what may be done with them; the forms of requests and answers are here. Times are written
//! in ISO 8601, as milliseconds, as `now`, or as `now-<number><unit>`. Times of a run or a test are those at which documents
//! were written.

use std::ops::Range;

use millrace_alerting::{Record, ReplaySubject, ReplayedAlerts};
use millrace_rules::{Span, Time};
use millrace_saved_objects::object;
use serde_json::{Map, Value, json};

use super::error::{from_alerting, invalid};
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{Request, Response};
use crate::{Api, Console};

/// Lists the rules that the caller may see.
pub(crate) fn list(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let rules = console.alerting()?.list(api.session.principal());
    Ok(Response::raw_json(200, items(&request.allowance, &rules, Record::value)?))
}

/// Shows a rule.
pub(crate) fn show(console: &Console, api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    Ok(Response::json(200, console.alerting()?.show(api.session.principal(), id).map_err(from_alerting)?))
}

/// Saves a rule, or tells what would become of its alerts.
pub(crate) async fn change(console: &Console, api: &Api, request: &mut Request) -> Result<Response, Error> {
    let now = api.session.clock().now_ms();
    let dry_run = request.params.take("dry_run").map(|span| before("dry_run", &span, now)).transpose()?;
    let from = request.params.take("from").map(|from| moment("from", &from.into(), now)).transpose()?;
    request.finish()?;
    if dry_run.is_some() && from.is_some() {
        return Err(invalid("from", "stands beside [dry_run]: give one of them"));
    }
    if from.is_some_and(|from| from > now) {
        return Err(invalid("from", "is to come"));
    }
    let rule = body(request)?;
    let (alerting, asker) = (console.alerting()?, api.session.principal());
    let Some(times) = dry_run else {
        let changed = match from {
            Some(from) => alerting.change_from(asker, rule, from).await,
            None => alerting.change(asker, rule).await,
        };
        let changed = changed.map_err(from_alerting)?;
        let mut answer = done(&changed.id, &changed.message);
        answer["created"] = changed.created.into();
        return Ok(Response::json(200, answer));
    };
    let difference = alerting.dry_run(asker, rule, times.clone()).await.map_err(from_alerting)?;
    request.allowance.take(difference.adds.memory().saturating_add(difference.removes.memory()))?;
    let message = format!(
        "{} alerts are added and {} removed between {} and {}; nothing is stored",
        difference.adds.count(),
        difference.removes.count(),
        Time::from_ms(times.start).iso(),
        Time::from_ms(times.end).iso(),
    );
    let mut answer = done(difference.id.as_deref().unwrap_or_default(), &message);
    if difference.id.is_none() {
        answer["id"] = Value::Null;
    }
    answer["adds"] = replayed(difference.adds);
    answer["removes"] = replayed(difference.removes);
    Ok(Response::json(200, answer))
}

/// Deletes a rule.
pub(crate) async fn delete(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    console.alerting()?.delete(api.session.principal(), id).await.map_err(from_alerting)?;
    Ok(Response::json(200, done(id, "the rule is deleted; its alerts stay")))
}

/// Enables or disables a rule.
pub(crate) async fn enable(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
    enabled: bool,
) -> Result<Response, Error> {
    request.finish()?;
    console.alerting()?.enable(api.session.principal(), id, enabled).await.map_err(from_alerting)?;
    let message = if enabled { "the rule is enabled" } else { "the rule is disabled" };
    Ok(Response::json(200, done(id, message)))
}

/// Has a rule raise no alerts for a while.
pub(crate) async fn silence(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let now = api.session.clock().now_ms();
    let mut members = object("body", body(request)?)?;
    let until = match (taken(&mut members, "until"), taken(&mut members, "duration")) {
        (Some(_), Some(_)) => return Err(invalid("duration", "stands beside [until]: give one of them")),
        (Some(until), None) => moment("until", &until, now)?,
        (None, Some(duration)) => now.saturating_add(span("duration", &duration)?),
        (None, None) => return Err(invalid("until", "is missing, and so is [duration]: give one of them")),
    };
    let key = match taken(&mut members, "key") {
        None => None,
        Some(Value::String(key)) => Some(key),
        Some(_) => return Err(invalid("key", "must be a string, as alerts show it")),
    };
    refuse_rest(&members)?;
    if until <= now {
        return Err(invalid("until", format!("[{}] is over", Time::from_ms(until).iso())));
    }
    let of = key.as_ref().map_or_else(String::new, |key| format!(" of [{key}]"));
    console.alerting()?.silence(api.session.principal(), id, key, until).await.map_err(from_alerting)?;
    let message = format!("no alerts{of} are raised until {}", Time::from_ms(until).iso());
    Ok(Response::json(200, done(id, &message)))
}

/// Evaluates a rule over what is stored, and writes the alerts.
pub(crate) async fn run(
    console: &Console,
    api: &Api,
    request: &mut Request,
    id: &str,
) -> Result<Response, Error> {
    let now = api.session.clock().now_ms();
    let mut take = |name| {
        let text = request.params.take(name);
        text.map(|text| moment(name, &text.into(), now)).transpose()
    };
    let (from, to) = (take("from")?, take("to")?);
    let notify = request.params.take_bool("notify")?.unwrap_or(false);
    request.finish()?;
    let to = to.unwrap_or_else(|| now.saturating_add(1));
    if from.is_some_and(|from| from >= to) {
        return Err(invalid("from", "is not before [to]"));
    }
    let ran = console
        .alerting()?
        .run_and_notify(api.session.principal(), id, from, to, notify)
        .await
        .map_err(from_alerting)?;
    let message = match ran.alerts {
        0 => "no alerts".to_owned(),
        1 => format!("1 alert, {} of it new", ran.created),
        alerts => format!("{alerts} alerts, {} of them new", ran.created),
    };
    let mut answer = done(id, &message);
    answer["alerts"] = ran.alerts.into();
    answer["created"] = ran.created.into();
    if !ran.problems.is_empty() {
        answer["problems"] = ran.problems.into();
    }
    Ok(Response::json(200, answer))
}

/// Tells which alerts a rule would have raised.
pub(crate) async fn test(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let now = api.session.clock().now_ms();
    let mut members = object("body", body(request)?)?;
    let tested = tested(&mut members)?;
    let from = taken(&mut members, "from").ok_or_else(|| invalid("from", "is missing"))?;
    let from = moment("from", &from, now)?;
    let to = taken(&mut members, "to").map(|to| moment("to", &to, now)).transpose()?;
    refuse_rest(&members)?;
    let times = from..to.unwrap_or_else(|| now.saturating_add(1));
    if times.is_empty() {
        return Err(invalid("from", "is not before [to]"));
    }
    let found =
        console.alerting()?.test(api.session.principal(), tested, times).await.map_err(from_alerting)?;
    request.allowance.take(found.memory())?;
    let message = format!("{} alerts; nothing is written", found.count());
    let mut answer = replayed(found);
    answer["status"] = true.into();
    answer["message"] = message.into();
    Ok(Response::json(200, answer))
}

/// Takes the rule that something is tested with.
pub(super) fn tested(members: &mut Map<String, Value>) -> Result<ReplaySubject, Error> {
    match (taken(members, "id"), taken(members, "rule")) {
        (Some(Value::String(id)), None) => Ok(ReplaySubject::Stored(id)),
        (Some(_), None) => Err(invalid("id", "must be a string")),
        (None, Some(rule)) => Ok(ReplaySubject::Written(rule)),
        (Some(_), Some(_)) => Err(invalid("rule", "stands beside [id]: give one of them")),
        (None, None) => Err(invalid("rule", "is missing, and so is [id]: give one of them")),
    }
}

/// The answer to what was done with a rule.
pub(super) fn done(id: &str, message: &str) -> Value {
    json!({ "status": true, "id": id, "message": message })
}

fn replayed(found: ReplayedAlerts) -> Value {
    let total = found.count();
    let alerts = found.alerts.into_iter().map(|alert| json!({ "_id": alert.id, "_source": alert.document }));
    let alerts: Vec<Value> = alerts.collect();
    let more = total - alerts.len() as u64;
    json!({ "total": total, "alerts": alerts, "more": more, "problems": found.problems })
}

pub(super) fn body(request: &Request) -> Result<Value, Error> {
    request.json()?.ok_or_else(|| Error::illegal_argument("request body is required"))
}

/// Takes a member; null is none.
pub(super) fn taken(members: &mut Map<String, Value>, name: &str) -> Option<Value> {
    members.shift_remove(name).filter(|value| !value.is_null())
}

pub(super) fn refuse_rest(members: &Map<String, Value>) -> Result<(), Error> {
    members.keys().next().map_or(Ok(()), |name| Err(invalid(name, "is not known here")))
}

fn span(name: &str, value: &Value) -> Result<i64, Error> {
    let span = Span::read(name, value).map_err(|error| Error::illegal_argument(error.to_string()))?;
    Ok(span.ms())
}

/// The while before now.
fn before(name: &str, text: &str, now: i64) -> Result<Range<i64>, Error> {
    Ok(now.saturating_sub(span(name, &text.into())?)..now.saturating_add(1))
}

/// A time, in milliseconds.
fn moment(name: &str, value: &Value, now: i64) -> Result<i64, Error> {
    if let Some(text) = value.as_str() {
        if text == "now" {
            return Ok(now);
        }
        if let Some(earlier) = text.strip_prefix("now-") {
            return Ok(now.saturating_sub(span(name, &earlier.into())?));
        }
    }
    let wrong = || invalid(name, "is no time: write ISO 8601, milliseconds, or now-<number><unit>");
    Time::read(value).map(Time::ms).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_or_a_while_ago() {
        let at = |value: Value| moment("from", &value, 86_400_000).map_err(|error| error.reason().to_owned());
        assert_eq!(at("now".into()), Ok(86_400_000));
        assert_eq!(at("now-1h".into()), Ok(82_800_000));
        assert_eq!(at("1970-01-01T00:00:01Z".into()), Ok(1_000));
        assert_eq!(at(5.into()), Ok(5));
        for wrong in [json!("yesterday"), json!("now-1y"), json!("now+1h"), json!([1]), json!("now-")] {
            let refused = at(wrong.clone());
            assert!(refused.as_ref().is_err_and(|reason| reason.contains("[from]")), "{wrong}: {refused:?}");
        }
    }
}
