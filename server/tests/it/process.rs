//! Starts `millrace serve` on a free port, reads its ready line, talks to it and stops it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

use reqwest::{Client, ClientBuilder, Method};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A command with the environment of tests: no keys of the person who runs them.
pub(crate) fn millrace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MILLRACE_") {
            command.env_remove(name);
        }
    }
    // Many servers run at the same time here.
    command.env("MILLRACE_PIPELINES__LISTEN", "127.0.0.1:0");
    command.env("MILLRACE_CONSOLE__LISTEN", "127.0.0.1:0");
    command.env("MILLRACE_FLIGHT__LISTEN", "127.0.0.1:0");
    // Others may fill the disk of a test.
    command.env("MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED", "false");
    command.args(args);
    command
}

/// Starts an HTTP client, whose TLS is ring's as that of the server.
pub(crate) fn http_client_builder() -> ClientBuilder {
    millrace_runtime::install_crypto_provider();
    Client::builder()
}

/// Makes an HTTP client.
pub(crate) fn http_client() -> Client {
    http_client_builder().build().unwrap()
}

/// Runs a command that ends by itself; returns exit code, stdout and stderr.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A server that serves.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    /// Output up to its ready line.
    pub(crate) greeting: String,
    /// Its address.
    pub(crate) url: String,
    client: Client,
    user: Option<(String, String)>,
}

impl Server {
    /// Starts one on `data`, with more flags.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::new(millrace(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(flags))
    }

    /// Starts a prepared command and waits for its ready line.
    pub(crate) fn new(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                log.read_to_string(&mut errors).unwrap();
                panic!("the server did not start: {errors}");
            }
            greeting.push_str(&line);
            if let Some(url) = line.trim_end().strip_prefix("listening on ") {
                break url.to_owned();
            }
        };
        Self { child, log, greeting, url, client: http_client(), user: None }
    }

    /// Asks with credentials from now on.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) {
        self.user = Some((user.to_owned(), password.to_owned()));
    }

    /// Asks with another client from now on.
    pub(crate) fn ask_with(&mut self, client: Client) {
        self.client = client;
    }

    /// Sends a request; returns status and JSON answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<String>) -> (u16, Value) {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(body.into());
        if let Some((user, password)) = &self.user {
            request = request.basic_auth(user, Some(password));
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Posts a search and returns its answer.
    pub(crate) async fn search(&self, index: &str, body: &Value) -> Value {
        let (status, answer) = self.call(Method::POST, &format!("/{index}/_search"), body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads its log up to a line with this text.
    pub(crate) fn until_logged(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "ended without logging [{text}]");
        }
    }

    /// Waits for the end; returns the exit status and what it logged.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap(), log)
    }

    /// Ends it as a unit would: SIGTERM, exit code 0.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        let (status, log) = self.wait();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
