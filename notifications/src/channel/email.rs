//! Mail, over TLS with the server's certificate verified: a text and the same in HTML.
//!
//! The key of the notification is in `Message-ID` and in `Idempotency-Key`. A server that takes mail for some recipients only gets it
//! for each of them alone.

use std::time::Duration;

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use serde_json::{Map, Value};

use super::{Failure, Sent, compute};
use crate::Shared;
use crate::config::{Smtp, SmtpTls};
use crate::error::{Error, Result};
use crate::message::{Message, cut};
use crate::outbox::value_of;
use crate::template::html;

/// How long an answer of the server may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Recipients of a mail.
const MAX_RECIPIENTS: usize = 200;
/// Fields of an alert that the HTML shows.
const MAX_FIELDS: usize = 50;
/// Bytes of the value of one.
const MAX_VALUE: usize = 500;

pub(crate) struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    host: String,
    /// What stands behind the key in `Message-ID`.
    domain: String,
}

impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer").field("host", &self.host).field("from", &self.from).finish_non_exhaustive()
    }
}

/// Checks addresses that are written in a rule.
pub(crate) fn check(options: &Map<String, Value>) -> Result<()> {
    for name in ["email", "cc", "bcc", "from_addr", "email_reply_to"] {
        for address in list(options, name) {
            let whole = match options.get("email_add_domain").and_then(Value::as_str) {
                Some(domain) if name == "email" => with_domain(&address, domain),
                _ => address,
            };
            if whole.parse::<Mailbox>().is_err() {
                return Err(Error::invalid(name, format!("[{}] is no address of mail", cut(&whole, 100))));
            }
        }
    }
    Ok(())
}

fn list(options: &Map<String, Value>, name: &str) -> Vec<String> {
    match options.get(name) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn with_domain(address: &str, domain: &str) -> String {
    if address.contains('@') {
        address.to_owned()
    } else {
        format!("{address}@{}", domain.trim_start_matches('@'))
    }
}

impl Mailer {
    pub(crate) fn new(smtp: Smtp, authorities: &[u8]) -> Result<Self> {
        let Smtp { host, port, tls, credentials, from } = smtp;
        let wrong = |error: &dyn std::fmt::Display| Error::Config(format!("smtp: {error}"));
        let from: Mailbox = from
            .parse()
            .map_err(|error| Error::Config(format!("smtp.from: [{from}] is no address of mail: {error}")))?;
        let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if tls == SmtpTls::None && !local {
            return Err(Error::Config(format!(
                "smtp.tls: [none] is for a server on this machine, and [{host}] is none"
            )));
        }
        let parameters = || {
            let mut parameters = TlsParameters::builder(host.clone());
            for pem in pems(authorities) {
                parameters = parameters
                    .add_root_certificate(Certificate::from_pem(&pem).map_err(|error| wrong(&error))?);
            }
            parameters.build().map_err(|error| wrong(&error))
        };
        let tls = match tls {
            SmtpTls::StartTls => Tls::Required(parameters()?),
            SmtpTls::Implicit => Tls::Wrapper(parameters()?),
            SmtpTls::None => Tls::None,
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&host)
            .port(port)
            .tls(tls)
            .timeout(Some(TIMEOUT));
        if let Some((user, password)) = credentials {
            builder = builder.credentials(Credentials::new(user, password));
        }
        let domain = from.email.domain().to_owned();
        Ok(Self { transport: builder.build(), from, host, domain })
    }

    pub(crate) async fn send(&self, shared: &Shared, options: &Map<String, Value>, message: Message) -> Sent {
        let (options, from, domain) = (options.clone(), self.from.clone(), self.domain.clone());
        let (envelope, bytes) = compute(shared, move || {
            let mail = build(&options, &message, from, &domain).map_err(Failure::permanent)?;
            Ok((mail.envelope().clone(), mail.formatted()))
        })
        .await?;
        let error = match self.transport.send_raw(&envelope, &bytes).await {
            Ok(_) => return Ok(None),
            Err(error) => error,
        };
        let recipients = envelope.to();
        if !error.is_permanent() || recipients.len() < 2 {
            return Err(self.failure(&error));
        }
        self.send_to_each(&envelope, &bytes).await
    }

    /// Sends to each recipient alone, where the server refused them together.
    async fn send_to_each(&self, envelope: &lettre::address::Envelope, bytes: &[u8]) -> Sent {
        let (mut took, mut refused, mut passing) = (0, Vec::new(), None);
        for recipient in envelope.to() {
            let alone = lettre::address::Envelope::new(envelope.from().cloned(), vec![recipient.clone()]);
            let alone = alone.map_err(|error| Failure::permanent(error.to_string()))?;
            match self.transport.send_raw(&alone, bytes).await {
                Ok(_) => took += 1,
                Err(error) => {
                    let failure = self.failure(&error);
                    if !failure.permanent {
                        passing = Some(failure.clone());
                    }
                    refused.push(format!("{recipient}: {}", failure.reason));
                }
            }
        }
        let told = format!("{took} recipients got it; refused were {}", cut(&refused.join("; "), 1_000));
        match (took, passing) {
            // Those who have it know it by its key.
            (_, Some(passing)) => Err(passing),
            (0, None) => Err(Failure::permanent(told)),
            _ => Ok((!refused.is_empty()).then_some(told)),
        }
    }

    fn failure(&self, error: &lettre::transport::smtp::Error) -> Failure {
        let mut reason = error.to_string();
        if let Some(source) = std::error::Error::source(error) {
            reason = format!("{reason}: {source}");
        }
        let reason = format!("server of mail [{}]: {}", self.host, cut(&reason, 300));
        // A refused login is mended in the configuration.
        let login = error.status().is_some_and(|code| matches!(u16::from(code), 530 | 534 | 535 | 538));
        if error.is_permanent() && !login { Failure::permanent(reason) } else { Failure::passing(reason) }
    }
}

/// The certificates of a file, one by one.
fn pems(text: &[u8]) -> Vec<Vec<u8>> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(text);
    let pems = text.split_inclusive(END).filter(|pem| pem.contains("-----BEGIN CERTIFICATE-----"));
    pems.map(|pem| pem.trim().as_bytes().to_vec()).collect()
}

fn build(
    options: &Map<String, Value>,
    message: &Message,
    from: Mailbox,
    domain: &str,
) -> std::result::Result<lettre::Message, String> {
    let parse = |address: &str| -> std::result::Result<Mailbox, String> {
        address.parse().map_err(|_| format!("[{}] is no address of mail", cut(address, 100)))
    };
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let mut to = list(options, "email");
    if let Some(field) = text("email_from_field") {
        let found: Vec<String> = message
            .items
            .iter()
            .map(|item| value_of(&item.alert["match_body"], field))
            .filter(|found| !found.is_empty())
            .collect();
        // Where no alert has the field, those of the rule get it.
        if !found.is_empty() {
            to = found;
        }
    }
    to.sort();
    to.dedup();
    if let Some(domain) = text("email_add_domain") {
        to = to.iter().map(|address| with_domain(address, domain)).collect();
    }
    let (cc, bcc) = (list(options, "cc"), list(options, "bcc"));
    if to.len() + cc.len() + bcc.len() > MAX_RECIPIENTS {
        return Err(format!("a mail has at most {MAX_RECIPIENTS} recipients"));
    }
    let from = text("from_addr").map(parse).transpose()?.unwrap_or(from);
    let mut mail = lettre::Message::builder()
        .from(from)
        .subject(&message.subject)
        .message_id(Some(format!("<{}@{domain}>", message.key)));
    for address in &to {
        mail = mail.to(parse(address)?);
    }
    for address in &cc {
        mail = mail.cc(parse(address)?);
    }
    for address in &bcc {
        mail = mail.bcc(parse(address)?);
    }
    if let Some(address) = text("email_reply_to") {
        mail = mail.reply_to(parse(address)?);
    }
    let key = HeaderName::new_from_ascii_str("Idempotency-Key");
    mail = mail.raw_header(HeaderValue::new(key, message.key.clone()));
    let generated = HeaderName::new_from_ascii_str("Auto-Submitted");
    mail = mail.raw_header(HeaderValue::new(generated, "auto-generated".to_owned()));
    let built = match text("email_format") {
        Some("text") => mail.singlepart(SinglePart::plain(message.text.clone())),
        _ => mail.multipart(MultiPart::alternative_plain_html(message.text.clone(), as_html(message))),
    };
    built.map_err(|error| format!("no mail can be made of it: {error}"))
}

/// The message in HTML: what an alert says, and the fields of its event. Nothing of it is taken as HTML.
fn as_html(message: &Message) -> String {
    let mut out = format!(
        "<!DOCTYPE html><html><body style=\"font-family:sans-serif\"><h2>{}</h2><p>{}</p><pre style=\"white-space:pre-wrap\">{}</pre>",
        html(&message.subject),
        html(&format!("{} · {}", message.rule_name, message.time)),
        html(&message.text),
    );
    if let [item] = message.items.as_slice()
        && let Some(fields) = item.alert["match_body"].as_object()
    {
        out.push_str("<table cellpadding=\"4\" style=\"border-collapse:collapse\">");
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let row =
                format!("<tr><td><b>{}</b></td><td>{}</td></tr>", html(name), html(cut(&value, MAX_VALUE)));
            out.push_str(&row);
        }
        out.push_str("</table>");
    }
    out.push_str("</body></html>");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Item, Kind};

    #[test]
    fn a_mail_has_a_text_and_html_that_nothing_of_an_alert_can_break() {
        let alert = json!({"@timestamp": "t", "rule_name": "r", "alert_subject": "s\r\nBcc: evil@example.com", "alert_text": "<b>",
            "match_body": {"<i>": "\"&", "owner": "ann@example.com"}});
        let message =
            Message::new("k1".to_owned(), Kind::Alert, 50, vec![Item { key: "k1".to_owned(), alert }]);
        let from: Mailbox = "Millrace <alerts@example.com>".parse().unwrap();
        let built =
            |options: Value| build(options.as_object().unwrap(), &message, from.clone(), "example.com");
        let mail = built(
            json!({"email": ["ops", "b@c.org"], "email_add_domain": "@example.com", "bcc": ["d@e.org"]}),
        )
        .unwrap();
        let text = String::from_utf8(mail.formatted()).unwrap().replace("=\r\n", "");
        assert!(
            text.contains("Message-ID: <k1@example.com>\r\n") && text.contains("Idempotency-Key: k1\r\n"),
            "{text}"
        );
        assert!(text.contains("To: b@c.org, ops@example.com\r\n") && !text.contains("d@e.org"), "{text}");
        assert!(
            !text.contains("\nBcc:") && text.contains("&lt;b&gt;") && text.contains("text/html"),
            "{text}"
        );
        assert_eq!(mail.envelope().to().len(), 3);
        let own = built(json!({"email": ["b@c.org"], "email_from_field": "owner", "email_format": "text"}))
            .unwrap();
        assert_eq!(own.envelope().to()[0].to_string(), "ann@example.com");
        assert!(built(json!({"email": ["a@b\nc"]})).is_err());
        let options = json!({"email": ["a@b@c"]});
        assert!(check(options.as_object().unwrap()).is_err());
    }
}
