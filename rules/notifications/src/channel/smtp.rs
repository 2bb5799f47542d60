//! Handing a mail to its server, which says of each recipient whether it takes the mail for him: one that it does not take keeps it from no other.
//!
//! A transaction is for so many recipients at most; those beyond have one of their own on the same connection. A server that is slow
//! is asked for as long as there is time: the recipients that are left get the mail with the next attempt.

use millrace_rules::cut;
use millrace_runtime::Instant;
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use tokio::time::timeout_at;

use super::Failure;

/// Time that an answer of the server may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time for naming recipients to it, and time for all: less than a notification may take.
const NAMING: Duration = Duration::from_secs(30);
const ALL: Duration = Duration::from_secs(70);
/// Time that the end of a connection may take.
const PARTING: Duration = Duration::from_secs(1);
/// Recipients of a transaction.
const MAX_RECIPIENTS: usize = 200;

/// Encryption of the connection.
pub(crate) enum Encryption {
    StartTls(TlsParameters),
    Implicit(TlsParameters),
    None,
}

/// A server of mail.
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) encryption: Encryption,
    pub(crate) credentials: Option<Credentials>,
}

/// Outcome for recipients.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// They have it.
    pub(crate) took: Vec<Address>,
    /// The server may take it for them later.
    pub(crate) later: Vec<(Address, String)>,
    /// It never will.
    pub(crate) never: Vec<(Address, String)>,
    /// Why it went no further, where that was not because of a recipient.
    pub(crate) failure: Option<Failure>,
}

/// Deadlines of a delivery.
#[derive(Clone, Copy)]
struct Times {
    naming: Instant,
    all: Instant,
}

impl Server {
    /// Sends a mail to recipients.
    pub(crate) async fn send(&self, from: &Address, to: &[Address], mail: &[u8]) -> Outcome {
        let now = Instant::now();
        let times = Times { naming: now + NAMING, all: now + ALL };
        let mut outcome = Outcome::default();
        let mut connection = match self.connect(times).await {
            Ok(connection) => connection,
            Err(failure) => {
                outcome.failure = Some(failure);
                return outcome;
            }
        };
        for (at, some) in to.chunks(MAX_RECIPIENTS).enumerate() {
            let begun =
                if at == 0 { Ok(()) } else { self.step(times, connection.command(Rset)).await.map(drop) };
            let went = match begun {
                Ok(()) => self.transact(&mut connection, from, some, mail, times, &mut outcome).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = went {
                outcome.failure = Some(failure);
                break;
            }
        }
        let _ = tokio::time::timeout(PARTING, connection.quit()).await;
        outcome
    }

    /// Opens a connection. Whatever a server has against it may be mended.
    async fn connect(&self, times: Times) -> Result<AsyncSmtpConnection, Failure> {
        self.begin(times).await.map_err(passing)
    }

    async fn begin(&self, times: Times) -> Result<AsyncSmtpConnection, Failure> {
        let name = ClientId::default();
        let implicit = match &self.encryption {
            Encryption::Implicit(parameters) => Some(parameters.clone()),
            _ => None,
        };
        let server = (self.host.as_str(), self.port);
        let connecting = AsyncSmtpConnection::connect_tokio1(server, Some(TIMEOUT), &name, implicit, None);
        let mut connection = self.step(times, connecting).await?;
        if let Encryption::StartTls(parameters) = &self.encryption {
            self.step(times, connection.starttls(parameters.clone(), &name)).await?;
        }
        if let Some(credentials) = &self.credentials {
            self.step(times, connection.auth(DEFAULT_MECHANISMS, credentials)).await?;
        }
        Ok(connection)
    }

    async fn transact(
        &self,
        connection: &mut AsyncSmtpConnection,
        from: &Address,
        to: &[Address],
        mail: &[u8],
        times: Times,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let info = connection.server_info();
        let takes_utf8 = info.supports_feature(Extension::SmtpUtfEight);
        let is_utf8 = |address: &Address| !address.to_string().is_ascii();
        let mut parameters = Vec::new();
        if takes_utf8 && (is_utf8(from) || to.iter().any(is_utf8)) {
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !mail.is_ascii() && info.supports_feature(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let begun = self.step(times, connection.command(Mail::new(Some(from.clone()), parameters))).await;
        begun.map_err(passing)?;
        let mut taken = Vec::new();
        for recipient in to {
            if is_utf8(recipient) && !takes_utf8 {
                let reason = "the server takes no addresses with letters beyond ASCII".to_owned();
                outcome.never.push((recipient.clone(), reason));
                continue;
            }
            if Instant::now() >= times.naming {
                outcome.later.push((recipient.clone(), "the server is too slow".to_owned()));
                continue;
            }
            let named =
                tokio::time::timeout(TIMEOUT, connection.command(Rcpt::new(recipient.clone(), Vec::new())));
            match named.await.map_err(|_| self.late())? {
                Ok(_) => taken.push(recipient.clone()),
                Err(error) if error.status().is_some() => {
                    let Failure { permanent, reason, .. } = self.failure(&error);
                    let refused = if permanent { &mut outcome.never } else { &mut outcome.later };
                    refused.push((recipient.clone(), reason));
                }
                Err(error) => return Err(self.failure(&error)),
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        self.step(times, connection.command(Data)).await?;
        let sent = timeout_at(times.all, connection.message(mail)).await.map_err(|_| self.late())?;
        sent.map_err(|error| self.failure(&error))?;
        outcome.took.append(&mut taken);
        Ok(())
    }

    /// Waits for an answer, for as long as there is time.
    async fn step<T>(
        &self,
        times: Times,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let until = times.all.min(Instant::now() + TIMEOUT);
        let answered = timeout_at(until, answer).await.map_err(|_| self.late())?;
        answered.map_err(|error| self.failure(&error))
    }

    fn late(&self) -> Failure {
        Failure::passing(format!("server of mail [{}] did not answer in time", self.host))
    }

    fn failure(&self, error: &Error) -> Failure {
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

/// A failure of the session: not of the mail, nor of one who is to get it.
fn passing(failure: Failure) -> Failure {
    Failure { permanent: false, ..failure }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Takes mail for all but those who are busy or gone; returns the port, and what it was told by one client.
    async fn server() -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let talk = async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream.write_all(b"220 test\r\n").await.unwrap();
            let (mut told, mut is_text) = (Vec::new(), false);
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return told;
                }
                let line = line.trim_end().to_owned();
                let answer = match line.split([' ', ':']).next().unwrap() {
                    "." => "250 taken\r\n",
                    _ if is_text => continue,
                    "EHLO" => "250-test\r\n250 8BITMIME\r\n",
                    "RCPT" if line.contains("busy") => "450 not now\r\n",
                    "RCPT" if line.contains("gone") => "550 nobody\r\n",
                    "DATA" => "354 go on\r\n",
                    _ => "250 ok\r\n",
                };
                is_text = line == "DATA";
                told.push(line);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        (port, tokio::spawn(talk))
    }

    #[tokio::test]
    async fn a_server_that_refuses_the_session_is_tried_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"554 you are on a list\r\n").await.unwrap();
        });
        let server =
            Server { host: "127.0.0.1".to_owned(), port, encryption: Encryption::None, credentials: None };
        let address = "a@example.com".parse::<Address>().unwrap();
        let outcome = server.send(&address, std::slice::from_ref(&address), b"text").await;
        assert!(outcome.failure.is_some_and(|failure| !failure.permanent));
    }

    #[tokio::test]
    async fn one_recipient_keeps_the_mail_from_no_other() {
        let (port, told) = server().await;
        let server =
            Server { host: "127.0.0.1".to_owned(), port, encryption: Encryption::None, credentials: None };
        let address = |name: &str| format!("{name}@example.com").parse::<Address>().unwrap();
        let mut to = vec![address("busy"), address("gone"), address("ünï")];
        to.extend((0..300).map(|n| address(&format!("u{n}"))));
        let outcome = server.send(&address("from"), &to, b"Subject: s\r\n\r\ntext\r\n").await;
        assert_eq!(outcome.failure, None);
        assert_eq!((outcome.took.len(), outcome.later.len(), outcome.never.len()), (300, 1, 2));
        assert_eq!(outcome.later[0].0, address("busy"));
        let told = told.await.unwrap();
        let count = |word: &str| told.iter().filter(|line| line.starts_with(word)).count();
        assert_eq!((count("MAIL"), count("RCPT"), count("."), count("RSET")), (2, 302, 2, 1));
    }
}
