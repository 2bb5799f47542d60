//! `email`: a mail for each event, over SMTP, at least once.
//!
//! A mail that the server refuses for good makes a dead letter. A server that is down, refuses the login or says "later" is tried
//! again, from the mail on that it has not taken.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use tokio::sync::watch;

use super::retry::Backoff;
use crate::codec;
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options, Template};

/// Most recipients of a mail.
const MAX_RECIPIENTS: usize = 1_000;
/// Time that the server may take for one command.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Answers of a server that wants another login, which the configuration mends.
const LOGIN: [u16; 4] = [530, 534, 535, 538];

#[derive(Debug)]
struct Email {
    mails: Arc<MailTemplate>,
    transport: AsyncSmtpTransport<Tokio1Executor>,
    host: String,
}

/// Makes mails of events.
#[derive(Debug)]
struct MailTemplate {
    from: Template,
    to: Template,
    cc: Option<Template>,
    bcc: Option<Template>,
    reply_to: Option<Template>,
    subject: Template,
    body: Template,
    html: Option<Template>,
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let o = &mut options;
    let to = Template::parse(&o.required_text("to"));
    let default = |o: &mut Options, name: &'static str, text: &str| {
        o.template(name).unwrap_or_else(|| Template::parse(text))
    };
    let mails = MailTemplate {
        from: default(o, "from", "logstash.alert@example.com"),
        to,
        cc: o.template("cc"),
        bcc: o.template("bcc"),
        reply_to: o.template("replyto"),
        subject: default(o, "subject", ""),
        body: default(o, "body", ""),
        html: o.template("htmlbody").filter(|html| !html.as_str().is_empty()),
    };
    if o.one_of("via", &["smtp", "sendmail"]) == Some("sendmail") {
        o.fault_here("[via => sendmail] is not supported: give [address] of an SMTP server");
    }
    let host = o.text("address").unwrap_or_else(|| "localhost".to_owned());
    let port = o.integer("port", 1..=65_535).and_then(|port| u16::try_from(port).ok()).unwrap_or(25);
    let user = o.text("username").filter(|user| !user.is_empty());
    let password = o.secret("password");
    let has_tls = o.boolean("use_tls").unwrap_or(false);
    let _ = (o.text("domain"), o.boolean("debug"), o.text("contenttype"));
    let _ = o.one_of("authentication", &["plain", "login"]);
    for (name, instead) in [
        ("attachments", "mails have no files; put the text into [body]"),
        ("template_file", "give [htmlbody], a format"),
    ] {
        if let Some((at, _)) = o.take(name) {
            o.fault(at, format!("option [{name}] of [email] is not supported: {instead}"));
        }
    }
    // Mails are made by templates, whatever it is.
    let _ = codec::take(o, "plain");
    let tls = match has_tls.then(|| TlsParameters::new(host.clone())).transpose() {
        Ok(parameters) => parameters.map_or(Tls::None, Tls::Required),
        Err(error) => {
            o.fault_here(format!("[address] of [email] is [{host}]: {error}"));
            Tls::None
        }
    };
    options.finish()?;
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&host)
        .port(port)
        .tls(tls)
        .timeout(Some(TIMEOUT));
    if let (Some(user), Some(password)) = (user, password) {
        transport = transport.credentials(Credentials::new(user, password.expose().to_owned()));
    }
    Ok(Output::Sink(Arc::new(Email { mails: Arc::new(mails), transport: transport.build(), host })))
}

/// Reads addresses with commas between.
fn mailboxes(template: &Template, event: &Event) -> Result<Vec<Mailbox>, String> {
    let text = template.render(event);
    let addresses = text.split(',').map(str::trim).filter(|address| !address.is_empty());
    let all = addresses.map(|address| {
        address.parse().map_err(|error| format!("[{address}] is no address of mail: {error}"))
    });
    all.collect()
}

impl MailTemplate {
    /// Makes the mail of an event.
    ///
    /// # Errors
    /// The reason why there can be none.
    fn mail(&self, event: &Event) -> Result<Message, String> {
        let optional = |template: &Option<Template>| match template {
            Some(template) => mailboxes(template, event),
            None => Ok(Vec::new()),
        };
        let (from, to) = (mailboxes(&self.from, event)?, mailboxes(&self.to, event)?);
        let (cc, bcc, reply_to) = (optional(&self.cc)?, optional(&self.bcc)?, optional(&self.reply_to)?);
        let recipients = to.len() + cc.len() + bcc.len();
        if recipients == 0 || recipients > MAX_RECIPIENTS {
            return Err(format!("the mail has {recipients} recipients, not 1 to {MAX_RECIPIENTS}"));
        }
        // A line feed would end the header.
        let subject = self.subject.render(event).replace(char::is_control, " ");
        let mut mail = Message::builder().subject(subject);
        for from in from {
            mail = mail.from(from);
        }
        for to in to {
            mail = mail.to(to);
        }
        for cc in cc {
            mail = mail.cc(cc);
        }
        for bcc in bcc {
            mail = mail.bcc(bcc);
        }
        for reply_to in reply_to {
            mail = mail.reply_to(reply_to);
        }
        let body = self.body.render(event);
        let built = match &self.html {
            None => mail.singlepart(SinglePart::plain(body)),
            Some(html) => {
                let html = html.render(event);
                match body.is_empty() {
                    true => mail.singlepart(SinglePart::html(html)),
                    false => mail.multipart(MultiPart::alternative_plain_html(body, html)),
                }
            }
        };
        built.map_err(|error| format!("no mail can be made of the event: {error}"))
    }
}

/// Returns whether the server refuses a mail for good, or takes no mail with such characters.
fn is_permanent(error: &Error, mail: &Message) -> bool {
    let is_login = error.status().is_some_and(|code| LOGIN.contains(&u16::from(code)));
    let envelope = mail.envelope();
    let mut addresses = envelope.to().iter().chain(envelope.from());
    let mut has_foreign_characters =
        || addresses.any(|address| !address.to_string().is_ascii()) || !mail.formatted().is_ascii();
    error.is_permanent() && !is_login || error.is_client() && has_foreign_characters()
}

#[async_trait]
impl Sink for Email {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let (mails, all) = (Arc::clone(&self.mails), events.to_vec());
        let made = offload(move || all.iter().map(|(event, _)| mails.mail(event)).collect::<Vec<_>>()).await;
        let mut refused = Vec::new();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for (event, mail) in made.into_iter().enumerate() {
            let mail = match mail {
                Ok(mail) => mail,
                Err(reason) => {
                    refused.push(RefusedEvent { event, reason });
                    continue;
                }
            };
            loop {
                let sent = tokio::select! {
                    biased;
                    () = stopped(&mut stopping) => return Err(SinkInterrupted),
                    sent = self.transport.send(mail.clone()) => sent,
                };
                match sent {
                    Ok(_) => {
                        backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
                        break;
                    }
                    Err(error) if is_permanent(&error, &mail) => {
                        refused.push(RefusedEvent { event, reason: format!("server of mail: {error}") });
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(%error, host = self.host, "the output email cannot send, it tries again");
                        backoff.wait(&mut stopping).await?;
                    }
                }
            }
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    /// Takes mails, but for one that it refuses for good and one that it refuses at first; returns all of them.
    async fn server(connections: usize) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut mails, mut was_busy) = (Vec::new(), false);
            for _ in 0..connections {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufReader::new(stream);
                stream.write_all(b"220 test\r\n").await.unwrap();
                let mut text: Option<String> = None;
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                        break;
                    }
                    if let Some(mail) = &mut text {
                        mail.push_str(&line);
                        if line == ".\r\n" {
                            mails.extend(text.take());
                            stream.write_all(b"250 taken\r\n").await.unwrap();
                        }
                        continue;
                    }
                    let answer = match line.split([' ', ':', '\r']).next().unwrap() {
                        "EHLO" => "250 test\r\n",
                        "RCPT" if line.contains("gone") => "550 nobody\r\n",
                        "RCPT" if line.contains("busy") && !std::mem::replace(&mut was_busy, true) => {
                            "450 later\r\n"
                        }
                        "DATA" => {
                            text = Some(String::new());
                            "354 go on\r\n"
                        }
                        "QUIT" => "221 bye\r\n",
                        _ => "250 ok\r\n",
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
            mails
        });
        (port, serving)
    }

    fn event(to: &str) -> (Arc<Event>, Option<String>) {
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("to".to_owned(), json!(to));
        event.fields_mut().insert("line".to_owned(), json!("two\nBcc: x@example.com"));
        (Arc::new(event), None)
    }

    #[tokio::test]
    async fn each_event_is_a_mail_or_a_refusal() {
        let (port, serving) = server(4).await;
        let given: [(&str, OptionValue); 6] = [
            ("address", "127.0.0.1".into()),
            ("port", port.to_string().into()),
            ("to", "%{to}".into()),
            ("from", "me@example.com".into()),
            ("subject", "of %{line}".into()),
            ("body", "for %{to}".into()),
        ];
        let Output::Sink(sink) = build(options("email", &given)).unwrap() else { panic!("it is a sink") };
        let events = [
            event("a@example.com, b@example.com"),
            event("none"),
            event("gone@example.com"),
            event("busy@example.com"),
        ];
        let running = watch::Sender::new(false);
        let refused = sink.send(&events, running.subscribe(), OrderTicket::new().0).await.unwrap();
        let numbers: Vec<usize> = refused.iter().map(|refused| refused.event).collect();
        assert_eq!(numbers, [1, 2], "{refused:?}");
        let mails = serving.await.unwrap();
        let [both, busy] = mails.as_slice() else { panic!("{mails:?}") };
        assert!(
            both.contains("a@example.com") && both.contains("for a@example.com, b@example.com"),
            "{both}"
        );
        assert!(!both.contains("\r\nBcc:") && busy.contains("for busy@example.com"), "{both} {busy}");
    }

    #[test]
    fn wrong_options_are_named() {
        let given = [("via", "sendmail".into()), ("attachments", "/etc/passwd".into())];
        let faults = build(options("email", &given)).unwrap_err();
        for expected in ["needs the option [to]", "[via => sendmail]", "[attachments]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
