//! Rules of a mix, all different, and the events that each of them asks for.
//!
//! Half of the rules ask for one term, a fifth for terms and ranges, a fifth for words or a phrase, a tenth have a wildcard; three of
//! ten count events of a key, the others alert at each. One event in [`EVERY`] is one that a rule asks for, and it
//! is of one rule alone. These come in pairs for the same rule and key, so that a rule that counts to two alerts at each pair.

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::shape::DocumentKind;

/// One event in so many is one that a rule asks for.
pub(super) const EVERY: u64 = 1_000;
/// Values of the key of rules that count.
const KEYS: u64 = 10;

/// Kind of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Events {
    /// Those of http_logs
    HttpLogs,
    /// Those of big5
    Big5,
    /// Both by turns, in one index
    Mixed,
}

impl Events {
    /// Returns the shapes, which come by turns.
    pub(super) fn shapes(self) -> &'static [DocumentKind] {
        match self {
            Self::HttpLogs => &[DocumentKind::HttpLogs],
            Self::Big5 => &[DocumentKind::Big5],
            Self::Mixed => &[DocumentKind::HttpLogs, DocumentKind::Big5],
        }
    }

    /// Returns the name, as on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HttpLogs => "http-logs",
            Self::Big5 => "big5",
            Self::Mixed => "mixed",
        }
    }

    /// Returns the body that creates the index: the fields of all shapes, four shards.
    pub(super) fn index_body(self) -> Value {
        let mut properties = Map::new();
        for shape in self.shapes().iter().rev() {
            let body = shape.index_body();
            properties.extend(body["mappings"]["properties"].as_object().cloned().unwrap_or_default());
        }
        json!({
            "settings": {"number_of_shards": 4, "number_of_replicas": 0},
            "mappings": {"date_detection": false, "properties": properties},
        })
    }
}

/// The rules of a number, and whose events they are asked of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) events: Events,
    pub(super) rules: u64,
}

/// An event that a rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchingEvent {
    /// Its place among these.
    pub(super) number: u64,
    pub(super) rule: u64,
    key: u64,
}

impl Mix {
    /// Returns the shape that a rule is about.
    pub(super) fn shape(&self, rule: u64) -> DocumentKind {
        let shapes = self.events.shapes();
        shapes[(rule / 10) as usize % shapes.len()]
    }

    /// Returns whether a rule counts events of a key.
    pub(super) fn is_keyed(rule: u64) -> bool {
        (rule + rule / 10) % 10 < 3
    }

    /// Tells whose the event of a number is.
    pub(super) fn wanted(&self, number: u64) -> MatchingEvent {
        let pair = number / 2;
        MatchingEvent { number, rule: pair % self.rules, key: pair / self.rules % KEYS }
    }

    /// Tells which alert an event of a number contributes to: events of a pair of a rule that counts have one.
    pub(super) fn alert(&self, number: u64) -> u64 {
        match Self::is_keyed(self.wanted(number).rule) {
            true => number | 1,
            false => number,
        }
    }

    /// Counts the alerts that the first events make that rules ask for.
    pub(super) fn alerts(&self, events: u64) -> u64 {
        let keyed = |number: &u64| Self::is_keyed(self.wanted(*number).rule);
        (0..events).filter(|number| !keyed(number) || number % 2 == 1).count() as u64
    }

    /// Makes the query of a rule.
    pub(super) fn query(&self, rule: u64) -> Value {
        match self.shape(rule) {
            DocumentKind::Big5 => big5_query(rule),
            _ => http_query(rule),
        }
    }

    /// Makes a rule over an index.
    pub(super) fn rule(&self, rule: u64, index: &str) -> Value {
        let mut body = json!({
            "name": format!("rule {rule}"), "index": index,
            "search": {"request": {"body": {"query": self.query(rule)}}},
        });
        let options = match Self::is_keyed(rule) {
            false => json!({"type": "any"}),
            true => json!({
                "type": "frequency", "num_events": 2, "timeframe": "10m",
                "query_key": if self.shape(rule) == DocumentKind::Big5 { "agent.name" } else { "size" },
            }),
        };
        if let (Value::Object(body), Value::Object(options)) = (&mut body, options) {
            body.extend(options);
        }
        body
    }

    /// Makes an event that a rule asks for of one that none does.
    pub(super) fn plant(&self, wanted: MatchingEvent, event: &[u8]) -> Result<Vec<u8>> {
        let mut event: Value = serde_json::from_slice(event).context("a generated event")?;
        let MatchingEvent { number, rule, key } = wanted;
        match self.shape(rule) {
            DocumentKind::Big5 => {
                let ranged = rule % 10 == 6;
                let stream = if ranged { "planted".to_owned() } else { stream(rule) };
                event["aws"]["cloudwatch"]["log_stream"] = stream.into();
                event["process"]["name"] = "sshd".into();
                event["cloud"]["region"] = "eu-west-1".into();
                event["metrics"]["size"] = (if ranged { 100_000 + rule } else { 2_000 }).into();
                event["log"]["file"]["path"] = format!("/var/log/planted{rule}/auth.log").into();
                event["message"] = format!("sshd[1]: marker{rule} login{rule} failed").into();
                event["agent"]["name"] = format!("ip-10-0-0-{key}").into();
                event["event"]["id"] = format!("planted-{number}").into();
            }
            _ => {
                let ranged = rule % 10 == 6;
                event["clientip"] = if ranged { "201.0.0.1".into() } else { client(rule).into() };
                event["request"] =
                    format!("POST /admin{rule}/login{rule}.php?planted-{number} HTTP/1.1").into();
                event["status"] = 404.into();
                event["size"] = (if ranged { 100_000 + rule } else { 2_000 } + key).into();
            }
        }
        Ok(event.to_string().into_bytes())
    }
}

/// Finds the number of a planted event in what an alert shows of it.
pub(super) fn planted(body: &Value) -> Option<u64> {
    let text = body["event"]["id"].as_str().or_else(|| body["request"].as_str())?;
    let (_, number) = text.split_once("planted-")?;
    number.split(' ').next()?.parse().ok()
}

fn client(rule: u64) -> String {
    format!("240.{}.{}.{}", rule >> 16 & 255, rule >> 8 & 255, rule & 255)
}

fn stream(rule: u64) -> String {
    format!("planted-{rule}")
}

fn http_query(rule: u64) -> Value {
    let own = json!({"term": {"clientip": client(rule)}});
    match rule % 10 {
        0..5 => own,
        5 => json!({"bool": {"filter": [
            {"term": {"status": 404}}, own, {"range": {"size": {"gte": rule % 1_000}}},
        ]}}),
        6 => json!({"bool": {
            "filter": [
                {"terms": {"status": [404, 500]}},
                {"range": {"size": {"gte": 100_000 + rule, "lt": 100_010 + rule}}},
            ],
            "must_not": [own],
        }}),
        7 => json!({"match": {"request": {"query": format!("admin{rule} http"), "operator": "and"}}}),
        8 => json!({"match_phrase": {"request": format!("admin{rule} login{rule}.php")}}),
        _ => json!({"wildcard": {"request.raw": format!("*/admin{rule}/*.php*")}}),
    }
}

fn big5_query(rule: u64) -> Value {
    let own = json!({"term": {"aws.cloudwatch.log_stream": stream(rule)}});
    match rule % 10 {
        0..5 => own,
        5 => json!({"bool": {"filter": [
            {"term": {"process.name": "sshd"}}, own, {"range": {"metrics.size": {"gte": rule % 1_000}}},
        ]}}),
        6 => json!({"bool": {
            "filter": [
                {"terms": {"cloud.region": ["eu-west-1", "us-east-1"]}},
                {"range": {"metrics.size": {"gte": 100_000 + rule, "lt": 100_010 + rule}}},
            ],
            "must_not": [own],
        }}),
        7 => json!({"match": {"message": {"query": format!("marker{rule} failed"), "operator": "and"}}}),
        8 => json!({"match_phrase": {"message": format!("marker{rule} login{rule}")}}),
        _ => json!({"wildcard": {"log.file.path": format!("*/planted{rule}/*.log*")}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_as_it_is_told() {
        for count in [100, 1_000, 10_000] {
            assert_eq!((0..count).filter(|rule| Mix::is_keyed(*rule)).count() as u64, count * 3 / 10);
        }
        let mix = Mix { events: Events::Mixed, rules: 100 };
        let queries: std::collections::HashSet<String> =
            (0..100).map(|rule| mix.query(rule).to_string()).collect();
        assert_eq!(queries.len(), 100);
        assert_eq!((0..100).filter(|rule| mix.query(*rule).get("term").is_some()).count(), 50);
    }

    #[test]
    fn pairs_of_a_rule_that_counts_make_one_alert() {
        let mix = Mix { events: Events::HttpLogs, rules: 100 };
        assert_eq!(mix.wanted(0).rule, mix.wanted(1).rule);
        assert_ne!(mix.wanted(1).rule, mix.wanted(2).rule);
        // 70 of 100 rules twice, 30 once.
        assert_eq!(mix.alerts(200), 170);
        let alerts: std::collections::HashSet<u64> = (0..200).map(|number| mix.alert(number)).collect();
        assert_eq!(alerts.len(), 170);
    }

    #[test]
    fn an_alert_tells_its_event() {
        let mix = Mix { events: Events::Mixed, rules: 40 };
        for number in [4, 77] {
            let wanted = mix.wanted(number);
            let shape = mix.shape(wanted.rule);
            let mut event = Vec::new();
            shape.generator(1, 10).next(&mut event);
            let event: Value = serde_json::from_slice(&mix.plant(wanted, &event).unwrap()).unwrap();
            assert_eq!(planted(&event), Some(number), "{event}");
        }
    }
}
