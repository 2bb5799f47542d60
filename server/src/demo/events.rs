//! Events of a small company's web servers, logins and firewall, the same for the same seed.
//!
//! Most of it is everyday traffic. Two things are hidden in it for the questions to find, both by
//! [`ATTACKER`]: a port scan, and later a password attack on SSH that succeeds for [`VICTIM`].
//! Hands [`Event`]s to the feed.

use chrono::{DateTime, SecondsFormat};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

/// Source of the attack (a documentation address).
pub(super) const ATTACKER: &str = "203.0.113.66";
/// User whose password the attack finds.
pub(super) const VICTIM: &str = "deploy";
/// The host that it enters.
pub(super) const TARGET: &str = "bastion-1";

/// One document and where it goes.
#[derive(Debug)]
pub(super) struct Event {
    /// Index name.
    pub(super) index: &'static str,
    /// The document.
    pub(super) document: Value,
}

/// The indices and the bodies that create them.
pub(super) fn indices() -> [(&'static str, Value); 3] {
    let settings = json!({"number_of_shards": 1, "number_of_replicas": 0});
    let keyword = json!({"type": "keyword", "ignore_above": 1024});
    let source = json!({"properties": {"ip": {"type": "ip"}, "port": {"type": "integer"}}});
    let text = json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 1024}}});
    let body = |properties: Value| {
        let mut all = json!({
            "@timestamp": {"type": "date"},
            "message": {"type": "text"},
            "host": {"properties": {"name": keyword}},
            "source": source,
            "event": {"properties": {"action": keyword, "outcome": keyword}},
        });
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), properties) {
            all.extend(more);
        }
        json!({"settings": settings, "mappings": {"dynamic": "strict", "properties": all}})
    };
    [
        (
            "demo-web",
            body(json!({
                "http": {"properties": {
                    "method": keyword,
                    "status": {"type": "integer"},
                    "bytes": {"type": "long"},
                }},
                "url": {"properties": {"path": text}},
                "user_agent": text,
                "duration_ms": {"type": "float"},
            })),
        ),
        (
            "demo-auth",
            body(
                json!({"user": {"properties": {"name": keyword}}, "process": {"properties": {"name": keyword}}}),
            ),
        ),
        (
            "demo-firewall",
            body(json!({
                "destination": source,
                "network": {"properties": {"transport": keyword, "bytes": {"type": "long"}}},
                "rule": keyword,
            })),
        ),
    ]
}

const PATHS: [&str; 14] = [
    "/",
    "/products",
    "/products/red-kettle",
    "/products/garden-bench",
    "/cart",
    "/checkout",
    "/api/v1/orders",
    "/api/v1/stock",
    "/search",
    "/static/app.js",
    "/static/site.css",
    "/images/logo.png",
    "/account/login",
    "/health",
];
const PROBES: [&str; 6] =
    ["/wp-login.php", "/.env", "/admin/config.php", "/.git/HEAD", "/phpmyadmin/", "/cgi-bin/test"];
const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "curl/8.7.1",
    "PricesBot/2.1 (+https://prices.example/bot)",
];
const USERS: [&str; 8] = ["alice", "bob", "carol", "dave", "erin", "frank", "deploy", "backup"];
const GUESSED: [&str; 8] = ["root", "admin", "test", "oracle", "postgres", "ubuntu", "git", "deploy"];
const COMMANDS: [&str; 4] = [
    "/usr/bin/systemctl restart shop",
    "/usr/bin/apt-get update",
    "/usr/bin/journalctl -u shop",
    "/usr/bin/less /var/log/syslog",
];
const SERVICES: [u32; 6] = [443, 80, 22, 53, 25, 3306];

/// An endless supply of at most `total` events in the order of their time.
#[derive(Debug)]
pub(super) struct Events {
    random: StdRng,
    next: u64,
    total: u64,
    start_ms: i64,
    span_ms: i64,
}

impl Events {
    /// Spreads `total` events over the `span_ms` before `end_ms`.
    pub(super) fn new(seed: u64, total: u64, end_ms: i64, span_ms: i64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), next: 0, total, start_ms: end_ms - span_ms, span_ms }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        // The product of two uniform numbers favours the front, as traffic does.
        let skewed = self.random.random::<f64>() * self.random.random::<f64>();
        from[((skewed * from.len() as f64) as usize).min(from.len() - 1)]
    }

    fn client(&mut self) -> String {
        let (a, b) = (self.pick(&[198_u8, 192, 100, 172]), self.random.random_range(1..40_u8));
        format!("{a}.51.{b}.{}", self.random.random_range(1..255_u8))
    }

    fn web(&mut self, time: String) -> Event {
        let probing = self.random.random_bool(0.02);
        let (client, path) = if probing {
            (ATTACKER.to_owned(), self.pick(&PROBES))
        } else {
            (self.client(), self.pick(&PATHS))
        };
        let roll: f64 = self.random.random();
        let status = match (probing, path) {
            (true, _) => 404,
            (_, "/account/login") if roll < 0.2 => 401,
            (_, "/api/v1/orders" | "/checkout") if roll < 0.03 => 503,
            _ if roll < 0.002 => 500,
            _ if roll < 0.05 => 304,
            _ => 200,
        };
        let method = if matches!(path, "/checkout" | "/api/v1/orders") { "POST" } else { "GET" };
        let bytes = if status == 200 { self.random.random_range(300..60_000_u32) } else { 162 };
        let duration =
            self.random.random_range(1..400_u32) as f64 / 4.0 + if status == 503 { 2000.0 } else { 0.0 };
        let agent = self.pick(&AGENTS);
        let host = format!("web-{}", self.random.random_range(1..4_u8));
        Event {
            index: "demo-web",
            document: json!({
                "@timestamp": time,
                "message": format!("{client} \"{method} {path} HTTP/1.1\" {status} {bytes} \"{agent}\""),
                "host": {"name": host},
                "source": {"ip": client},
                "http": {"method": method, "status": status, "bytes": bytes},
                "url": {"path": path},
                "user_agent": agent,
                "duration_ms": duration,
            }),
        }
    }

    fn login(&mut self, time: String, user: &str, client: &str, host: &str, success: bool) -> Event {
        let port = self.random.random_range(32_768..61_000_u32);
        let (word, outcome) = if success { ("Accepted", "success") } else { ("Failed", "failure") };
        Event {
            index: "demo-auth",
            document: json!({
                "@timestamp": time,
                "message": format!("{word} password for {user} from {client} port {port} ssh2"),
                "host": {"name": host},
                "source": {"ip": client, "port": port},
                "user": {"name": user},
                "process": {"name": "sshd"},
                "event": {"action": "login", "outcome": outcome},
            }),
        }
    }

    fn sudo(&mut self, time: String, user: &str, host: &str, command: &str) -> Event {
        Event {
            index: "demo-auth",
            document: json!({
                "@timestamp": time,
                "message": format!("{user} : TTY=pts/0 ; PWD=/home/{user} ; USER=root ; COMMAND={command}"),
                "host": {"name": host},
                "user": {"name": user},
                "process": {"name": "sudo"},
                "event": {"action": "command", "outcome": "success"},
            }),
        }
    }

    fn auth(&mut self, time: String) -> Event {
        let user = self.pick(&USERS);
        let host = self.pick(&["web-1", "web-2", TARGET, "db-1"]);
        if self.random.random_bool(0.3) {
            let command = self.pick(&COMMANDS);
            return self.sudo(time, user, host, command);
        }
        let client =
            format!("10.1.{}.{}", self.random.random_range(0..4_u8), self.random.random_range(1..255_u8));
        let success = self.random.random_bool(0.96);
        self.login(time, user, &client, host, success)
    }

    fn firewall(&mut self, time: String, scanned_port: Option<u32>) -> Event {
        let (client, port, allowed) = match scanned_port {
            Some(port) => (ATTACKER.to_owned(), port, false),
            None => {
                let port = self.pick(&SERVICES);
                (self.client(), port, port < 100 || self.random.random_bool(0.7))
            }
        };
        let (action, rule) = if allowed { ("allow", "allow-public") } else { ("deny", "default-deny") };
        let transport = if port == 53 { "udp" } else { "tcp" };
        let bytes = if allowed { self.random.random_range(200..90_000_u32) } else { 60 };
        Event {
            index: "demo-firewall",
            document: json!({
                "@timestamp": time,
                "message": format!("{action} {transport} {client} -> 192.0.2.10:{port} rule {rule}"),
                "host": {"name": "fw-1"},
                "source": {"ip": client, "port": self.random.random_range(1_024..65_000_u32)},
                "destination": {"ip": "192.0.2.10", "port": port},
                "network": {"transport": transport, "bytes": bytes},
                "rule": rule,
                "event": {"action": action, "outcome": if allowed { "success" } else { "failure" }},
            }),
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.next >= self.total {
            return None;
        }
        let position = self.next;
        self.next += 1;
        let share = position as f64 / self.total as f64;
        let time_ms = self.start_ms + (self.span_ms as f64 * share) as i64;
        let time = DateTime::from_timestamp_millis(time_ms)
            .unwrap_or_default()
            .to_rfc3339_opts(SecondsFormat::Millis, true);
        // The attack is at fixed shares of the run, so that every total shows it.
        let breach = self.total * 74 / 100;
        if position == breach {
            return Some(self.login(time, VICTIM, ATTACKER, TARGET, true));
        }
        if position == breach + 1 {
            return Some(self.sudo(time, VICTIM, TARGET, "/bin/cat /etc/shadow"));
        }
        let busy = self.random.random_bool(0.8);
        Some(match share {
            0.66..0.69 if busy => {
                let port = 1 + (position % 10_000) as u32;
                self.firewall(time, Some(port))
            }
            0.70..0.74 if busy => {
                let user = self.pick(&GUESSED);
                self.login(time, user, ATTACKER, TARGET, false)
            }
            _ => match self.random.random_range(0..100_u8) {
                0..60 => self.web(time),
                60..75 => self.auth(time),
                _ => self.firewall(time, None),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(seed: u64, total: u64) -> Vec<String> {
        Events::new(seed, total, 1_700_000_000_000, 86_400_000)
            .map(|event| format!("{} {}", event.index, event.document))
            .collect()
    }

    #[test]
    fn the_seed_decides_the_events() {
        assert_eq!(texts(7, 500), texts(7, 500));
        assert_ne!(texts(7, 500), texts(8, 500));
        assert_eq!(texts(7, 500).len(), 500);
    }

    #[test]
    fn the_attack_is_in_every_run() {
        for total in [100, 1_000, 10_000] {
            let events = texts(1, total);
            let accepted = format!("Accepted password for {VICTIM} from {ATTACKER}");
            let failed = format!("from {ATTACKER}");
            assert_eq!(events.iter().filter(|event| event.contains(&accepted)).count(), 1);
            assert!(events.iter().any(|event| event.contains("Failed") && event.contains(&failed)));
            assert!(events.iter().any(|event| event.contains("/etc/shadow")));
        }
    }

    #[test]
    fn every_field_is_mapped() {
        let mappings: std::collections::HashMap<_, _> = indices()
            .into_iter()
            .map(|(name, body)| (name, body["mappings"]["properties"].clone()))
            .collect();
        for event in Events::new(3, 2_000, 1_700_000_000_000, 3_600_000) {
            check(&event.document, &mappings[event.index]);
        }
        fn check(document: &Value, properties: &Value) {
            for (name, value) in document.as_object().unwrap() {
                let mapped = &properties[name.as_str()];
                assert!(!mapped.is_null(), "{name} is not mapped");
                if value.is_object() {
                    check(value, &mapped["properties"]);
                }
            }
        }
    }
}
