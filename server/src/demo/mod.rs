//! `millrace demo`: a server, realistic events, and questions with their answers.
//!
//! [`events`] makes the documents, [`feed`] sends them, [`questions`] asks, [`webhook`] posts one more, [`alert`] shows what a
//! rule has said of them, [`detector`] what an AI rule has found.
//! The server is either one that runs already or one in this process, started as `serve` does.

mod alert;
mod detector;
mod events;
mod feed;
mod questions;
mod webhook;

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use millrace_runtime::{Clock, SystemClock};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cli::DemoArgs;
use crate::config::{Flags, Settings};
use crate::exit::Failure;
use crate::notify::Supervisor;
use crate::serve::{RunningServer, on_signal, runtime};
use crate::{environment, logging};

use alert::Watch;
use events::Events;
use feed::Target;
use webhook::Webhook;

/// Runs the demo.
pub(crate) fn run(args: DemoArgs) -> Result<(), Failure> {
    runtime(0)?.block_on(async {
        let stop = on_signal()?;
        match &args.url {
            Some(url) => {
                let password = args.password.clone();
                let credentials = password.map(|password| (args.user.clone(), password));
                let target = Target::new(url, credentials, args.insecure_tls).map_err(Failure::other)?;
                tokio::select! {
                    done = play(&args, &target, None) => done.map_err(Failure::other),
                    () = stop => Err(Failure::other(anyhow!("interrupted"))),
                }
            }
            None => in_process(&args, stop).await,
        }
    })
}

/// Starts a server, plays the demo on it, and stops it again.
async fn in_process(args: &DemoArgs, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
    let temporary = match args.data {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("millrace-demo-").tempdir().map_err(Failure::other)?),
    };
    let data = match (&args.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(directory)) => directory.path().to_owned(),
        (None, None) => return Err(Failure::other(anyhow!("no data directory"))),
    };
    // What `serve` would read, so that storage keys of the environment have effect here too.
    let flags = Flags {
        config: None,
        keys: vec![
            ("--data", "data", data.display().to_string()),
            ("demo", "listen", "127.0.0.1:0".to_owned()),
            ("demo", "pipelines.listen", "127.0.0.1:0".to_owned()),
            ("demo", "console.listen", "127.0.0.1:0".to_owned()),
            ("demo", "flight.listen", "127.0.0.1:0".to_owned()),
            ("demo", "pipelines.dir", data.join("pipelines").display().to_string()),
            ("demo", "insecure", "false".to_owned()),
        ],
    };
    let settings = Settings::load(&flags, environment()).map_err(Failure::config)?;
    let mut config = settings.config().map_err(Failure::config)?;
    config.api.tls = None;
    if args.password.is_some() {
        config.api.admin_password.clone_from(&args.password);
    }
    logging::install("warn", config.log_json);
    Webhook::define(&config.pipelines.dir).map_err(Failure::other)?;
    let known = config.api.admin_password.clone();
    let running = RunningServer::start(config, Arc::new(Supervisor::default())).await?;
    let password = running.generated_password().or(known);
    let address = running.addresses().first().copied();
    let console = running.console_addresses().first().copied();
    let webhook = Webhook::find(running.pipelines()).await;
    let (finished, finish) = oneshot::channel::<()>();
    let server: JoinHandle<Result<(), Failure>> = tokio::spawn(running.until(async move {
        let _ = finish.await;
    }));
    let ready = target(args, address, password).and_then(|target| Ok((target, webhook?)));
    let played = match ready {
        Ok((target, webhook)) => tokio::select! {
            played = play_and_stay(args, &target, DemoServer { webhook, console }) => played,
            () = stop => Ok(()),
        },
        Err(error) => Err(error),
    };
    drop(finished);
    let stopped = server.await.map_err(Failure::other)?;
    played.map_err(Failure::other)?;
    stopped
}

fn target(args: &DemoArgs, address: Option<SocketAddr>, password: Option<String>) -> Result<Target> {
    let address = address.ok_or_else(|| anyhow!("the server has no listener"))?;
    let Some(password) = password else {
        bail!("the data directory has an administrator already: give --password");
    };
    Target::new(&format!("http://{address}"), Some((args.user.clone(), password)), false)
}

/// Parts of a server that the demo starts itself: the webhook, and the address of the console.
struct DemoServer {
    webhook: Webhook,
    console: Option<SocketAddr>,
}

async fn play_and_stay(args: &DemoArgs, target: &Target, story: DemoServer) -> Result<()> {
    play(args, target, Some(story)).await?;
    if args.stay || (!args.exit && std::io::stdout().is_terminal()) {
        say(format_args!("the server stays up at {}; Ctrl-C ends it", target.url()));
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Creates the indices, feeds them, asks, and ends with the alert of the story.
async fn play(args: &DemoArgs, target: &Target, story: Option<DemoServer>) -> Result<()> {
    for (name, body) in events::indices() {
        target.create_index(name, &body).await?;
    }
    let mut watch = None;
    if let Some(console) = story.as_ref().and_then(|story| story.console) {
        watch = Some(Watch::begin(target, console).await?);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let span_ms = i64::try_from(args.span.as_millis()).context("--span is too long")?;
    let events = Events::new(args.seed, args.total, clock.now_ms(), span_ms);
    let fed = feed::run(target, events, args.total, args.rate).await?;
    say(format_args!(
        "fed {} events in {:.1} s ({:.0} a second), {} errors\n",
        fed.sent,
        fed.elapsed.as_secs_f64(),
        fed.sent as f64 / fed.elapsed.as_secs_f64().max(0.001),
        fed.errors,
    ));
    target.refresh("demo-*").await?;
    for question in questions::all() {
        say(format_args!(
            "# {}\n{}",
            question.title,
            question.curl(target.url(), &target.curl_credentials())
        ));
        let answer = target.ask(question.path, &question.body).await?;
        say(format_args!("{}", question.table(&answer)));
    }
    let console = story.as_ref().and_then(|story| story.console);
    if let Some(story) = story {
        say(format_args!("{}", story.webhook.play(target).await?));
    }
    if let Some(watch) = watch {
        say(format_args!("{}", watch.alert(target).await?));
    }
    if let Some(console) = console {
        say(format_args!("{}", detector::play(target, console).await?));
    }
    if fed.errors > 0 {
        bail!("{} events were refused; the first: {}", fed.errors, fed.first_error.unwrap_or_default());
    }
    Ok(())
}

/// Writes a line to stdout; a reader that has gone away is not a failure.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
