//! `syslog`: events as messages of RFC 3164 or RFC 5424, over UDP, TCP or TLS.
//!
//! Each message ends with a line feed. Line feeds within a message are written as `\n`, so that no event makes two messages.

use std::sync::Arc;
use std::time::Duration;

use super::socket::{Encode, Socket, Transport, port};
use crate::codec::{self, Codec};
use crate::output::Output;
use crate::syslog_names::{SYSLOG_FACILITIES, SYSLOG_SEVERITIES};
use crate::{Event, Fault, Options, Setting, Template, tls};

/// Priority of an event that has none: a notice of a user.
const PRIORITY: u32 = 13;
/// Greatest priority.
const MAX_PRIORITY: u32 = 191;
/// Most bytes of a field in the head of a message.
const MAX_FIELD: usize = 255;

/// Makes messages of events.
#[derive(Debug)]
struct SyslogEncoder {
    is_rfc5424: bool,
    priority: Priority,
    host: Template,
    app: Template,
    process: Template,
    id: Template,
    /// Time in the form of the protocol.
    time: Template,
    message: MessageSource,
}

/// Source of the priority.
#[derive(Debug)]
enum Priority {
    /// Names of facility and severity.
    Labels { facility: Template, severity: Template },
    /// A number.
    Number(Template),
}

/// Source of the text.
#[derive(Debug)]
enum MessageSource {
    Template(Template),
    Codec(Arc<dyn Codec>),
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let o = &mut options;
    let host = o.required_text("host");
    let port = port(o, None);
    let protocol = o.one_of("protocol", &["tcp", "udp", "ssl-tcp"]).unwrap_or("udp");
    let is_rfc5424 = o.one_of("rfc", &["rfc3164", "rfc5424"]) == Some("rfc5424");
    let template = |o: &mut Options, name: &'static str, default: &str| {
        o.template(name).unwrap_or_else(|| Template::parse(default))
    };
    let (facility, severity) = (template(o, "facility", "user-level"), template(o, "severity", "notice"));
    let number = template(o, "priority", "%{syslog_pri}");
    let priority = match o.boolean("use_labels").unwrap_or(true) {
        true => Priority::Labels { facility, severity },
        false => Priority::Number(number),
    };
    let (source, app) = (template(o, "sourcehost", "%{host}"), template(o, "appname", "LOGSTASH"));
    let (process, id) = (template(o, "procid", "-"), template(o, "msgid", "-"));
    let text = template(o, "message", "%{message}");
    let has_codec = o.given().any(|(name, setting)| {
        name == "codec" && !matches!(setting, Setting::Text(codec) if codec == "plain")
    });
    let codec = codec::take(o, "plain");
    let pause = o.float("reconnect_interval").filter(|seconds| (0.001..=3600.0).contains(seconds));
    for name in ["ssl_crl", "ssl_crl_check_all"] {
        if let Some((at, _)) = o.take(name) {
            let instead =
                "revocation lists are not read; give [ssl_cacert] the authorities that are still trusted";
            o.fault(at, format!("option [{name}] is not supported: {instead}"));
        }
    }
    if protocol == "ssl-tcp" {
        o.set_missing("ssl_enabled", Setting::Text("true".to_owned()));
        // As in Logstash, a server is not checked unless the configuration says so.
        o.set_missing("ssl_verify", Setting::Text("false".to_owned()));
    }
    let tls = tls::Client::take_for_stream(o);
    let transport = match protocol {
        "udp" => Ok(Transport::udp()),
        _ => Transport::tcp(&host, port, tls.as_ref()),
    };
    let transport = transport.map_err(|fault| o.fault_here(fault)).ok();
    options.finish()?;
    let codec = codec?;
    // Its fault was the options'.
    let transport = transport.ok_or_else(Vec::new)?;
    let time = if is_rfc5424 { "%{+YYYY-MM-dd'T'HH:mm:ss.SSSZZ}" } else { "%{+MMM dd HH:mm:ss}" };
    let encoder = SyslogEncoder {
        is_rfc5424,
        priority,
        host: source,
        app,
        process,
        id,
        time: Template::parse(time),
        message: if has_codec { MessageSource::Codec(codec) } else { MessageSource::Template(text) },
    };
    let first_pause = Duration::from_secs_f64(pause.unwrap_or(1.0));
    Ok(Output::Sink(Arc::new(Socket::new("syslog", (host, port), Arc::new(encoder), transport, first_pause))))
}

impl Priority {
    fn of(&self, event: &Event) -> u32 {
        let number_of = |labels: &[&str], label: &Template, default: u32| {
            let label = label.render(event);
            let at = labels.iter().position(|known| known.eq_ignore_ascii_case(&label));
            at.and_then(|at| u32::try_from(at).ok()).unwrap_or(default)
        };
        match self {
            Self::Labels { facility, severity } => {
                let facility = number_of(&SYSLOG_FACILITIES, facility, PRIORITY / 8);
                facility * 8 + number_of(&SYSLOG_SEVERITIES, severity, PRIORITY % 8)
            }
            Self::Number(number) => {
                let number = number.render(event).trim().parse().ok();
                number.filter(|number| *number <= MAX_PRIORITY).unwrap_or(PRIORITY)
            }
        }
    }
}

/// Returns a field of the head: it has no spaces, and an empty one is `-`.
fn head_field(template: &Template, event: &Event) -> String {
    let text = template.render(event);
    let end = text.floor_char_boundary(MAX_FIELD);
    let text = text.get(..end).unwrap_or_default();
    let field: String = text
        .chars()
        .map(|letter| if letter.is_whitespace() || letter.is_control() { '_' } else { letter })
        .collect();
    if field.is_empty() { "-".to_owned() } else { field }
}

impl Encode for SyslogEncoder {
    fn codec(&self) -> Option<&Arc<dyn Codec>> {
        match &self.message {
            MessageSource::Template(_) => None,
            MessageSource::Codec(codec) => Some(codec),
        }
    }

    fn encode(&self, event: &Event, messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let text = match &self.message {
            MessageSource::Template(template) => template.render(event).into_bytes(),
            MessageSource::Codec(codec) => {
                let mut text = Vec::with_capacity(256);
                codec.try_encode(event, &mut text)?;
                text
            }
        };
        let field = |template| head_field(template, event);
        let (priority, time) = (self.priority.of(event), self.time.render(event));
        let (host, app, process) = (field(&self.host), field(&self.app), field(&self.process));
        let head = match self.is_rfc5424 {
            true => format!("<{priority}>1 {time} {host} {app} {process} {} - ", field(&self.id)),
            false => format!("<{priority}>{time} {host} {app}[{process}]: "),
        };
        let mut message = head.into_bytes();
        message.reserve(text.len() + 1);
        let mut bytes = text.trim_ascii_end().iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\r' if bytes.peek() == Some(&b'\n') => {}
                b'\n' => message.extend_from_slice(b"\\n"),
                byte => message.push(byte),
            }
        }
        message.push(b'\n');
        messages.push(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::UdpSocket;
    use tokio::sync::watch;

    use super::*;
    use crate::input::testing::{OptionValue, options};
    use crate::output::OrderTicket;

    fn event() -> Event {
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        for (name, value) in
            [("host", "web 1"), ("message", "a\r\nb\nc \n"), ("level", "error"), ("pri", "34")]
        {
            event.fields_mut().insert(name.to_owned(), json!(value));
        }
        event
    }

    async fn sent(given: &[(&str, OptionValue)]) -> String {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = peer.local_addr().unwrap().port().to_string();
        let address: [(&str, OptionValue); 2] = [("host", "127.0.0.1".into()), ("port", port.into())];
        let Output::Sink(sink) = build(options("syslog", &[&address[..], given].concat())).unwrap() else {
            panic!("it is a sink")
        };
        let events = [(Arc::new(event()), None)];
        let running = watch::Sender::new(false);
        sink.send(&events, running.subscribe(), OrderTicket::new().0).await.unwrap();
        let mut buffer = vec![0; 1024];
        let read = peer.recv(&mut buffer).await.unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    #[tokio::test]
    async fn events_become_messages_of_both_forms() {
        let given = [("facility", "daemon".into()), ("severity", "%{level}".into()), ("procid", "7".into())];
        assert_eq!(sent(&given).await, "<27>Jan 01 00:00:00 web_1 LOGSTASH[7]: a\\nb\\nc\n");
        let given = [
            ("rfc", "rfc5424".into()),
            ("use_labels", "false".into()),
            ("priority", "%{pri}".into()),
            ("appname", "".into()),
            ("message", "%{level}".into()),
        ];
        assert_eq!(sent(&given).await, "<34>1 1970-01-01T00:00:00.000+00:00 web_1 - - - - error\n");
        let given = [("codec", "json".into()), ("use_labels", "false".into())];
        let message = sent(&given).await;
        assert!(message.starts_with("<13>Jan 01 ") && message.contains("\"level\":\"error\""), "{message}");
    }

    #[test]
    fn wrong_options_are_named() {
        let faults =
            build(options("syslog", &[("protocol", "tls".into()), ("ssl_crl", "/x".into())])).unwrap_err();
        for expected in ["needs the option [host]", "needs the option [port]", "[protocol]", "[ssl_crl]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
