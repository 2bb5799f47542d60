//! A Millrace server as a child process: started on a free port, stopped, killed, started again.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use crate::target::Target;

/// Launch options of a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// Its port.
    pub(crate) port: u16,
    /// File of its output.
    pub(crate) log: PathBuf,
    /// Environment variables beside ours.
    pub(crate) environment: Vec<(String, String)>,
    /// Password of its administrator; without one, requests need no credentials.
    pub(crate) password: Option<String>,
    /// Time that it may take to answer.
    pub(crate) timeout: Duration,
}

/// A server that runs. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Target to speak to.
    pub(crate) target: Target,
    /// Time from the start of the process to its first answer.
    pub(crate) started_in: Duration,
    log: PathBuf,
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port())
}

/// Returns the server's binary beside this program's own.
pub(crate) fn default_binary() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new(".")).join("millrace")
}

impl Launch {
    /// Describes a server below a directory, on a free port.
    pub(crate) fn new(binary: &Path, directory: &Path) -> Result<Self> {
        if !binary.is_file() {
            bail!("there is no server at {}: build it, or name it with --server", binary.display());
        }
        Ok(Self {
            binary: binary.to_owned(),
            data: directory.join("data"),
            port: free_port()?,
            log: directory.join("server.log"),
            environment: Vec::new(),
            password: None,
            timeout: Duration::from_secs(120),
        })
    }

    /// Returns the command line, for reports.
    pub(crate) fn command_line(&self) -> String {
        let environment: String = self.environment.iter().map(|(k, v)| format!("{k}={v} ")).collect();
        format!(
            "{environment}{} serve --data {} --listen 127.0.0.1:{}{}",
            self.binary.display(),
            self.data.display(),
            self.port,
            if self.password.is_none() { " --insecure" } else { "" }
        )
    }

    /// Starts the server and waits for its first answer.
    pub(crate) async fn start(&self) -> Result<Server> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let started = Instant::now();
        let access: &[&str] = if self.password.is_none() { &["--insecure"] } else { &[] };
        let child = Command::new(&self.binary)
            .arg("serve")
            .args(access)
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .env("MILLRACE_PIPELINES__LISTEN", "127.0.0.1:0")
            .env("MILLRACE_CONSOLE__LISTEN", "127.0.0.1:0")
            .env("MILLRACE_FLIGHT__LISTEN", "127.0.0.1:0")
            // Others may fill the disk.
            .env("MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED", "false")
            .envs(self.password.iter().map(|password| ("MILLRACE_ADMIN_PASSWORD", password)))
            .envs(self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let credentials = self.password.as_ref().map(|password| format!("admin:{password}"));
        let url = format!("http://127.0.0.1:{}", self.port);
        let mut target = Target::new("millrace", &url, credentials.as_deref())?;
        target.pid = Some(child.id());
        let mut server = Server { child, target, started_in: Duration::ZERO, log: self.log.clone() };
        loop {
            if server.target.ask(Method::GET, "/", &Value::Null).await.is_ok() {
                server.started_in = started.elapsed();
                return Ok(server);
            }
            if let Some(status) = server.exited()? {
                bail!("the server ended while starting ({status}): {}", server.last_words());
            }
            if started.elapsed() > self.timeout {
                bail!("the server does not answer within {:?}: {}", self.timeout, server.last_words());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Server {
    /// Returns the exit status if the process has ended.
    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends the process at once, as a power cut to the process would (`kill -9`).
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the process to end and waits for it.
    ///
    /// # Errors
    ///
    /// It does not end within a minute, or not with success.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        let asked = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]).status()?;
        if !asked.success() {
            bail!("cannot signal the server");
        }
        while start.elapsed() < Duration::from_secs(60) {
            match self.exited()? {
                Some(status) if status.success() => return Ok(start.elapsed()),
                Some(status) => bail!("the server stopped with {status}: {}", self.last_words()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        bail!("the server does not stop within a minute: {}", self.last_words())
    }

    /// Returns the end of the server's output.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(1_500)..]).into_owned();
        format!("the end of {}: {text}", self.log.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
