//! Receivers of notifications, in the process of the test: of webhooks, and of mail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Answer of a webhook receiver to a request that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Status(u16),
    /// It ends without a word.
    Dies,
    /// It answers nothing for so long, then that all is well.
    After(Duration),
    /// It answers with another address.
    Elsewhere,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn key(&self) -> &str {
        self.header("idempotency-key").unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// A receiver of webhooks.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Receiver {
    /// Starts one; `answer` says what it does with each request, by its number.
    pub(crate) async fn start(
        answer: impl Fn(usize, &ReceivedRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::default());
        let this = Self { address, got };
        let (got, answer, number) = (Arc::clone(&this.got), Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (got, answer, number) = (Arc::clone(&got), Arc::clone(&answer), Arc::clone(&number));
                tokio::spawn(async move { serve(stream, &got, &*answer, &number).await });
            }
        });
        this
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn got(&self) -> Vec<ReceivedRequest> {
        self.got.lock().clone()
    }

    /// Returns the number of different keys that it knows.
    pub(crate) fn keys(&self) -> usize {
        let got = self.got.lock();
        got.iter().map(ReceivedRequest::key).collect::<std::collections::BTreeSet<_>>().len()
    }
}

async fn serve(
    stream: TcpStream,
    got: &Mutex<Vec<ReceivedRequest>>,
    answer: &(dyn Fn(usize, &ReceivedRequest) -> Answer + Send + Sync),
    number: &AtomicUsize,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .map(|(_, value)| value.parse().unwrap());
        let mut body = vec![0; length.unwrap_or(0)];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let request = ReceivedRequest { path, headers, body: String::from_utf8(body).unwrap() };
        let answer = answer(number.fetch_add(1, Ordering::Relaxed), &request);
        got.lock().push(request);
        let status = match answer {
            Answer::Status(status) => status,
            Answer::Dies => return,
            Answer::After(wait) => {
                tokio::time::sleep(wait).await;
                200
            }
            Answer::Elsewhere => 302,
        };
        let answer =
            format!("HTTP/1.1 {status} OK\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 3\r\n\r\nwhy");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A mail.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    pub(crate) to: Vec<String>,
    pub(crate) text: String,
    pub(crate) encrypted: bool,
}

impl Mail {
    pub(crate) fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        self.text.lines().find_map(|line| line.strip_prefix(start.as_str())).unwrap_or_default()
    }
}

/// A server of mail that refuses the first mails.
#[derive(Clone)]
pub(crate) struct MailServer {
    pub(crate) port: u16,
    got: Arc<Mutex<Vec<Mail>>>,
    refusals: Arc<AtomicUsize>,
}

impl MailServer {
    /// Starts one that answers so many mails with 451; with TLS it has STARTTLS.
    pub(crate) async fn start(refusals: usize, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            got: Arc::default(),
            refusals: Arc::new(AtomicUsize::new(refusals)),
        };
        let server = this.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move { server.greet(stream, tls).await });
            }
        });
        this
    }

    pub(crate) fn got(&self) -> Vec<Mail> {
        self.got.lock().clone()
    }

    async fn greet(&self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) {
        let mut stream = BufReader::new(stream);
        if stream.write_all(b"220 test\r\n").await.is_err() {
            return;
        }
        let starts_tls = self.talk(&mut stream, tls.is_some(), false).await;
        if let (true, Some(tls)) = (starts_tls, tls)
            && let Ok(stream) = TlsAcceptor::from(tls).accept(stream.into_inner()).await
        {
            self.talk(&mut BufReader::new(stream), false, true).await;
        }
    }

    /// Answers commands; returns whether TLS is to begin.
    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufReader<S>,
        has_tls: bool,
        encrypted: bool,
    ) -> bool {
        let mut to = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return false;
            }
            let upper = line.trim_end().to_ascii_uppercase();
            let answer = match upper.split([' ', ':']).next().unwrap_or_default() {
                "EHLO" if has_tls => "250-test\r\n250-8BITMIME\r\n250 STARTTLS\r\n",
                "EHLO" => "250-test\r\n250 8BITMIME\r\n",
                "STARTTLS" => "220 go on\r\n",
                "RCPT" if upper.contains("NOBODY@") => "550 no such user\r\n",
                "RCPT" => {
                    to.push(line.split(['<', '>']).nth(1).unwrap_or_default().to_owned());
                    "250 ok\r\n"
                }
                "DATA" => {
                    let refuses = |left: usize| left.checked_sub(1);
                    if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok() {
                        "451 not now\r\n"
                    } else {
                        let _ = stream.write_all(b"354 go on\r\n").await;
                        let mut text = String::new();
                        loop {
                            let mut line = String::new();
                            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                                return false;
                            }
                            if line == ".\r\n" {
                                break;
                            }
                            text.push_str(&line);
                        }
                        self.got.lock().push(Mail { to: std::mem::take(&mut to), text, encrypted });
                        "250 taken\r\n"
                    }
                }
                "MAIL" | "RSET" => {
                    to.clear();
                    "250 ok\r\n"
                }
                "QUIT" => "221 bye\r\n",
                _ => "500 what\r\n",
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return false;
            }
            match answer {
                "220 go on\r\n" => return true,
                "221 bye\r\n" => return false,
                _ => {}
            }
        }
    }
}
