//! Mail, over TLS with the server's certificate verified: a text and the same in HTML.
//!
//! The key of the notification is in `Message-ID` and in `Idempotency-Key`. Where the server takes a mail for some recipients only, they have it,
//! and it is tried again for those for whom it may be taken later, and for no other. An address that is none keeps the mail from nobody.

use millrace_rules::cut;
use std::collections::HashSet;

use lettre::Address;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, TlsParameters};
use serde_json::{Map, Value};

use super::smtp::{Encryption, Outcome, Server};
use super::{Failure, SendResult, compute};
use crate::NotifierState;
use crate::config::{Smtp, SmtpTls};
use crate::error::{Error, Result};
use crate::hash;
use crate::message::Message;
use crate::outbox::value_of;
use millrace_rules::template::html;

/// Recipients of a notification; those beyond get none, which is told.
const MAX_RECIPIENTS: usize = 1_000;
/// Bytes of an address with its name.
const MAX_ADDRESS: usize = 1_000;
/// Addresses that are told which are none.
const MAX_TOLD: usize = 10;
/// Fields of an alert that the HTML shows.
const MAX_FIELDS: usize = 50;
/// Bytes of the value of one.
const MAX_VALUE: usize = 500;

pub(crate) struct Mailer {
    server: Server,
    from: Mailbox,
    /// Domain behind the key in `Message-ID`.
    domain: String,
}

impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer")
            .field("host", &self.server.host)
            .field("from", &self.from)
            .finish_non_exhaustive()
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
        let encryption = match tls {
            SmtpTls::StartTls => Encryption::StartTls(parameters()?),
            SmtpTls::Implicit => Encryption::Implicit(parameters()?),
            SmtpTls::None => Encryption::None,
        };
        let credentials = credentials.map(|(user, password)| Credentials::new(user, password));
        let domain = from.email.domain().to_owned();
        Ok(Self { server: Server { host, port, encryption, credentials }, from, domain })
    }

    pub(crate) async fn send(
        &self,
        shared: &NotifierState,
        options: &Map<String, Value>,
        message: Message,
    ) -> SendResult {
        let (options, from, domain) = (options.clone(), self.from.clone(), self.domain.clone());
        let served = message.served.clone();
        let PreparedMail { from, to, mail, notes } =
            compute(shared, move || build(&options, &message, from, &domain).map_err(Failure::permanent))
                .await?;
        let (before, to): (Vec<Address>, Vec<Address>) =
            to.into_iter().partition(|address| served.contains(&mark(address)));
        if to.is_empty() {
            return Ok(None);
        }
        let outcome = self.server.send(&from, &to, &mail).await;
        mail_result(before, &to, outcome, notes)
    }
}

/// Returns the mark of a recipient who has a mail already.
fn mark(address: &Address) -> String {
    hash(&[&address.to_string().to_lowercase()])[..16].to_owned()
}

/// Decides the fate of a mail; `before` are the recipients that had it.
fn mail_result(before: Vec<Address>, to: &[Address], outcome: Outcome, notes: Vec<String>) -> SendResult {
    let Outcome { took, later, never, failure } = outcome;
    let name = |refused: &[(Address, String)]| {
        let refused: Vec<String> =
            refused.iter().map(|(address, reason)| format!("{address}: {reason}")).collect();
        cut(&refused.join("; "), 1_000).to_owned()
    };
    let got = before.len() + took.len();
    let mut parts = Vec::new();
    if got > 0 || !never.is_empty() || !later.is_empty() {
        parts.push(format!("{got} recipients got it"));
    }
    if !never.is_empty() {
        parts.push(format!("refused were {}", name(&never)));
    }
    if !later.is_empty() {
        parts.push(format!("not yet taken was it for {}", name(&later)));
    }
    let is_about_all = took.is_empty() && failure.is_some();
    let settled = took.len() + never.len() == to.len();
    let served = before.iter().chain(&took).map(mark).collect();
    match failure {
        // Nobody got anything this time, and not because of one of them.
        Some(failure) if got == 0 => return Err(failure),
        Some(failure) => parts.push(failure.reason),
        None => {}
    }
    parts.extend(notes.iter().cloned());
    let reason = parts.join("; ");
    if !settled {
        return Err(Failure { served, of_recipients: !is_about_all, ..Failure::passing(reason) });
    }
    match got {
        0 => Err(Failure::permanent(reason)),
        _ if never.is_empty() && notes.is_empty() => Ok(None),
        _ => Ok(Some(reason)),
    }
}

/// The certificates of a file, one by one.
fn pems(text: &[u8]) -> Vec<Vec<u8>> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(text);
    let pems = text.split_inclusive(END).filter(|pem| pem.contains("-----BEGIN CERTIFICATE-----"));
    pems.map(|pem| pem.trim().as_bytes().to_vec()).collect()
}

/// A mail, ready to be sent.
#[derive(Debug)]
struct PreparedMail {
    from: Address,
    /// At least one, each once.
    to: Vec<Address>,
    mail: Vec<u8>,
    /// Remarks that the result reports.
    notes: Vec<String>,
}

/// Texts as mailboxes: those that are none are told.
fn mailboxes(texts: &[String], notes: &mut Vec<String>) -> Vec<Mailbox> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for text in texts.iter().filter(|text| seen.insert(text.as_str())) {
        let mailbox = Some(text).filter(|text| text.len() <= MAX_ADDRESS).and_then(|text| text.parse().ok());
        match mailbox {
            Some(mailbox) => found.push(mailbox),
            None if notes.len() < MAX_TOLD => {
                notes.push(format!("[{}] is no address of mail", cut(text, 100)));
            }
            None => {}
        }
    }
    found
}

/// The recipients that events name.
fn of_events(message: &Message, field: &str, notes: &mut Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for item in &message.items {
        let value = value_of(&item.alert["match_body"], field);
        match serde_json::from_str::<Vec<String>>(&value) {
            Ok(several) => found.extend(several),
            Err(_) => found.push(value),
        }
    }
    found.retain(|address| !address.trim().is_empty());
    if found.len() > MAX_RECIPIENTS {
        notes.push(format!("{} recipients beyond {MAX_RECIPIENTS} get none", found.len() - MAX_RECIPIENTS));
        found.truncate(MAX_RECIPIENTS);
    }
    found
}

fn build(
    options: &Map<String, Value>,
    message: &Message,
    own: Mailbox,
    domain: &str,
) -> std::result::Result<PreparedMail, String> {
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let mut notes = Vec::new();
    let whole = |addresses: Vec<String>| match text("email_add_domain") {
        Some(domain) => addresses.iter().map(|address| with_domain(address, domain)).collect(),
        None => addresses,
    };
    let mut to = match text("email_from_field") {
        Some(field) => {
            let found = whole(of_events(message, field, &mut notes));
            mailboxes(&found, &mut notes)
        }
        None => Vec::new(),
    };
    // Where no alert names one, those of the rule get it.
    if to.is_empty() {
        to = mailboxes(&whole(list(options, "email")), &mut notes);
    }
    to.sort_by_cached_key(|mailbox| mailbox.email.to_string());
    let (mut cc, mut bcc) =
        (mailboxes(&list(options, "cc"), &mut notes), mailboxes(&list(options, "bcc"), &mut notes));
    let all = to.len() + cc.len() + bcc.len();
    if all > MAX_RECIPIENTS {
        notes.push(format!("{} recipients beyond {MAX_RECIPIENTS} get none", all - MAX_RECIPIENTS));
        to.truncate(MAX_RECIPIENTS);
        cc.truncate(MAX_RECIPIENTS - to.len());
        bcc.truncate(MAX_RECIPIENTS - to.len() - cc.len());
    }
    let from = mailboxes(&list(options, "from_addr"), &mut notes).pop().unwrap_or(own);
    let mut mail = lettre::Message::builder()
        .from(from.clone())
        .subject(&message.subject)
        .message_id(Some(format!("<{}@{domain}>", message.key)));
    for mailbox in to {
        mail = mail.to(mailbox);
    }
    for mailbox in cc {
        mail = mail.cc(mailbox);
    }
    for mailbox in bcc {
        mail = mail.bcc(mailbox);
    }
    if let Some(mailbox) = mailboxes(&list(options, "email_reply_to"), &mut notes).pop() {
        mail = mail.reply_to(mailbox);
    }
    let key = HeaderName::new_from_ascii_str("Idempotency-Key");
    mail = mail.raw_header(HeaderValue::new(key, message.key.clone()));
    let generated = HeaderName::new_from_ascii_str("Auto-Submitted");
    mail = mail.raw_header(HeaderValue::new(generated, "auto-generated".to_owned()));
    let built = match text("email_format") {
        Some("text") => mail.singlepart(SinglePart::plain(message.text.clone())),
        _ => mail.multipart(MultiPart::alternative_plain_html(message.text.clone(), as_html(message))),
    };
    let because =
        |error| [vec![format!("no mail can be made of it: {error}")], notes.clone()].concat().join("; ");
    let built = built.map_err(because)?;
    let mut seen = HashSet::new();
    let to = built.envelope().to().iter().filter(|address| seen.insert(mark(address))).cloned().collect();
    Ok(PreparedMail { from: from.email, to, mail: built.formatted(), notes })
}

/// The message in HTML: the text of an alert, and the fields of its event. Nothing of it is taken as HTML.
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
        let text = String::from_utf8(mail.mail).unwrap().replace("=\r\n", "");
        assert!(
            text.contains("Message-ID: <k1@example.com>\r\n") && text.contains("Idempotency-Key: k1\r\n"),
            "{text}"
        );
        assert!(text.contains("To: b@c.org, ops@example.com\r\n") && !text.contains("d@e.org"), "{text}");
        assert!(
            !text.contains("\nBcc:") && text.contains("&lt;b&gt;") && text.contains("text/html"),
            "{text}"
        );
        assert_eq!(mail.to.len(), 3);
        let own = built(json!({"email": ["b@c.org"], "email_from_field": "owner", "email_format": "text"}))
            .unwrap();
        assert_eq!(own.to, ["ann@example.com".parse::<Address>().unwrap()]);
        assert!(built(json!({"email": ["a@b\nc"]})).is_err());
        let options = json!({"email": ["a@b@c"]});
        assert!(check(options.as_object().unwrap()).is_err());
    }
    #[test]
    fn an_address_that_is_none_keeps_the_mail_from_nobody() {
        let built = |owner: Value| {
            let alert = json!({"alert_subject": "s", "match_body": {"owner": owner}});
            let item = Item { key: "k".to_owned(), alert };
            let message = Message::new("k".to_owned(), Kind::Alert, 50, vec![item]);
            let options = json!({"email": ["soc@example.com"], "email_from_field": "owner", "cc": ["cc@example.com", "CC@example.com"]});
            build(options.as_object().unwrap(), &message, "a@example.com".parse().unwrap(), "example.com")
                .unwrap()
        };
        let to = |built: &PreparedMail| built.to.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (owner, first, notes) in [
            (json!("ann@example.com"), "ann@example.com", 0),
            (json!("not an address"), "soc@example.com", 1),
            (json!(["x", "ann@example.com"]), "ann@example.com", 1),
            (json!(null), "soc@example.com", 0),
            (json!({"a": 1}), "soc@example.com", 1),
        ] {
            let built = built(owner.clone());
            assert_eq!(
                (to(&built), built.notes.len()),
                (vec![first.to_owned(), "cc@example.com".to_owned()], notes),
                "{owner}"
            );
        }
        let many: Vec<String> = (0..1_010).map(|n| format!("u{n}@example.com")).collect();
        let built = built(json!(many));
        assert_eq!(built.to.len(), MAX_RECIPIENTS);
        assert!(built.notes[0].starts_with("10 recipients beyond 1000"), "{:?}", built.notes);
        assert!(built.notes[1].starts_with("2 recipients beyond 1000"), "{:?}", built.notes);
    }

    #[test]
    fn those_who_have_a_mail_are_told_apart_from_the_rest() {
        let address = |name: &str| format!("{name}@example.com").parse::<Address>().unwrap();
        let refused = |name: &str| vec![(address(name), "450 later".to_owned())];
        let to = [address("a"), address("b")];
        let partly = Outcome { took: vec![address("a")], later: refused("b"), ..Outcome::default() };
        let failure = mail_result(Vec::new(), &to, partly, Vec::new()).unwrap_err();
        assert!(!failure.permanent && failure.of_recipients, "{failure:?}");
        assert_eq!(failure.served, [mark(&address("A"))]);
        let rest = Outcome { took: vec![address("b")], ..Outcome::default() };
        assert_eq!(mail_result(vec![address("a")], &to[1..], rest, Vec::new()), Ok(None));
        let never = Outcome { never: refused("b"), ..Outcome::default() };
        let said = mail_result(vec![address("a")], &to[1..], never, Vec::new()).unwrap().unwrap();
        assert!(said.starts_with("1 recipients got it; refused were b@example.com"), "{said}");
        let never = Outcome { never: [refused("a"), refused("b")].concat(), ..Outcome::default() };
        assert!(mail_result(Vec::new(), &to, never, Vec::new()).unwrap_err().permanent);
        // The second part of many recipients did not go: the first one has it.
        let broken = || Some(Failure::permanent("552 too large"));
        let half = Outcome { took: vec![address("a")], failure: broken(), ..Outcome::default() };
        let failure = mail_result(Vec::new(), &to, half, Vec::new()).unwrap_err();
        assert_eq!((failure.permanent, failure.served.len()), (false, 1));
        let none = Outcome { failure: broken(), ..Outcome::default() };
        assert!(mail_result(Vec::new(), &to, none, Vec::new()).unwrap_err().permanent);
    }
}
