//! `millrace snapshot`: snapshots of a running server, made, listed, restored, and repositories and their files verified.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::cli::SnapshotCommand;
use crate::exit::Failure;
use crate::logging;
use crate::remote::{Remote, refusal};
use crate::serve::runtime;

/// Time to wait for an answer: a large snapshot takes its time.
const TIMEOUT: Duration = Duration::from_secs(7 * 86_400);

/// Parameter of requests that are answered at their end.
const WAIT_FOR_COMPLETION: [(&str, &str); 1] = [("wait_for_completion", "true")];
/// Interval at which a task is asked how far it is.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) fn run(command: &SnapshotCommand) -> Result<(), Failure> {
    logging::install("warn", false);
    let server = command.server();
    let remote = Remote::new(&server.url, server.user.as_deref(), server.insecure_tls, TIMEOUT);
    let remote = remote.map_err(Failure::other)?;
    runtime(0)?.block_on(carry_out(&remote, command)).map_err(Failure::other)
}

async fn carry_out(remote: &Remote, command: &SnapshotCommand) -> Result<()> {
    match command {
        SnapshotCommand::Create {
            snapshot, indices, partial, without_global_state, with_accounts, ..
        } => {
            let mut body = json!({ "partial": partial, "include_global_state": !without_global_state });
            if let Some(indices) = indices {
                body["indices"] = indices.as_str().into();
            }
            if *with_accounts {
                body["feature_states"] = json!(["security"]);
            }
            let path = [snapshot.repository.as_str(), &snapshot.snapshot];
            let answer = ask(remote, Method::PUT, &path, &WAIT_FOR_COMPLETION, Some(body)).await?;
            report(&answer["snapshot"], "made")
        }
        SnapshotCommand::List { repository, .. } => {
            let answer = ask(remote, Method::GET, &[repository, "_all"], &[], None).await?;
            for snapshot in answer["snapshots"].as_array().into_iter().flatten() {
                let name = snapshot["snapshot"].as_str().unwrap_or_default();
                let state = snapshot["state"].as_str().unwrap_or_default();
                let indices = snapshot["indices"].as_array().map_or(0, Vec::len);
                say(format_args!("{name}\t{state}\t{indices} indices"));
            }
            Ok(())
        }
        SnapshotCommand::Restore {
            snapshot,
            indices,
            rename_pattern,
            rename_replacement,
            partial,
            with_global_state,
            with_accounts,
            ..
        } => {
            let mut body = json!({ "partial": partial, "include_global_state": with_global_state });
            if *with_accounts {
                body["feature_states"] = json!(["security"]);
            }
            for (member, text) in [
                ("indices", indices),
                ("rename_pattern", rename_pattern),
                ("rename_replacement", rename_replacement),
            ] {
                if let Some(text) = text {
                    body[member] = text.as_str().into();
                }
            }
            let path = [snapshot.repository.as_str(), &snapshot.snapshot, "_restore"];
            let answer = ask(remote, Method::POST, &path, &WAIT_FOR_COMPLETION, Some(body)).await?;
            report(&answer["snapshot"], "restored")
        }
        SnapshotCommand::Verify { repository, contents: true, snapshot, .. } => {
            verify_contents(remote, repository, snapshot.as_deref()).await
        }
        SnapshotCommand::Verify { repository, .. } => {
            ask(remote, Method::POST, &[repository, "_verify"], &[], None).await?;
            say(format_args!("{repository} works"));
            Ok(())
        }
    }
}

/// Prints the result of a snapshot or restore; shards that are missing are a failure.
fn report(snapshot: &Value, done: &str) -> Result<()> {
    let name = snapshot["snapshot"].as_str().unwrap_or_default();
    let indices = snapshot["indices"].as_array().map_or(0, Vec::len);
    say(format_args!("{name}: {indices} indices {done}"));
    let failed = snapshot["shards"]["failed"].as_u64().unwrap_or(0);
    if failed == 0 {
        return Ok(());
    }
    let reasons = snapshot["failures"].as_array().into_iter().flatten();
    let first =
        reasons.filter_map(|failure| failure["reason"].as_str()).next().unwrap_or("no reason is given");
    bail!("{failed} shards are missing: {first}")
}

/// Has the server read the files of snapshots, and shows how far it is on a terminal.
async fn verify_contents(remote: &Remote, repository: &str, snapshot: Option<&str>) -> Result<()> {
    let params: Vec<_> = snapshot.map(|snapshot| ("snapshot", snapshot)).into_iter().collect();
    let path = [repository, "_verify_integrity"];
    let style = ProgressStyle::with_template("{bytes} of {total_bytes} {wide_bar} {eta}")?;
    // It shows nothing where stderr is no terminal.
    let bar = ProgressBar::new(0).with_style(style);
    let task = format!("verify[{repository}]");
    let answer = tokio::select! {
        answer = ask(remote, Method::POST, &path, &params, None) => answer,
        never = show_progress(remote, &task, &bar) => match never {},
    };
    bar.finish_and_clear();
    let results = &answer?["results"];
    let number =
        |member: &str| results[member].as_u64().with_context(|| format!("the answer has no {member}"));
    let (snapshots, files, damaged) = (number("snapshots")?, number("files")?, number("total_anomalies")?);
    for anomaly in results["anomalies"].as_array().into_iter().flatten() {
        let text = |member: &str| anomaly[member].as_str().unwrap_or_default();
        say(format_args!("{}\t{}\t{}\t{}", text("snapshot"), text("index"), text("file"), text("reason")));
    }
    if damaged > 0 {
        bail!(
            "{damaged} files of {repository} are damaged or missing; {files} of {snapshots} snapshots were read"
        );
    }
    say(format_args!("{repository}: {files} files of {snapshots} snapshots are right"));
    Ok(())
}

/// Shows the progress of a task by its description, for as long as it is polled. A user who may not list tasks sees none.
async fn show_progress(remote: &Remote, description: &str, bar: &ProgressBar) -> Infallible {
    let params = [("detailed", "true"), ("group_by", "none"), ("actions", "cluster:admin/repository/put")];
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let Ok(listed) = ask_at(remote, Method::GET, &["_tasks"], &params, None).await else { continue };
        let tasks = listed["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let task = tasks.iter().find(|task| task["description"] == description);
        let status = task.map(|task| &task["status"]);
        if let Some((total, verified)) =
            status.and_then(|status| status["bytes"].as_u64().zip(status["verified_bytes"].as_u64()))
        {
            bar.set_length(total);
            bar.set_position(verified);
        }
    }
}

async fn ask(
    remote: &Remote,
    method: Method,
    below: &[&str],
    params: &[(&str, &str)],
    body: Option<Value>,
) -> Result<Value> {
    let path: Vec<&str> = ["_snapshot"].iter().chain(below).copied().collect();
    ask_at(remote, method, &path, params, body).await
}

async fn ask_at(
    remote: &Remote,
    method: Method,
    path: &[&str],
    params: &[(&str, &str)],
    body: Option<Value>,
) -> Result<Value> {
    let server = &remote.url;
    let not_a_url = || format!("`{server}` is not a URL of a server");
    let mut url = Url::parse(server).with_context(not_a_url)?;
    // Whatever a name has in it is encoded here.
    url.path_segments_mut().map_err(|()| anyhow!(not_a_url()))?.pop_if_empty().extend(path);
    if !params.is_empty() {
        url.query_pairs_mut().extend_pairs(params);
    }
    let mut request = remote.request(method, url);
    if let Some(body) = &body {
        request = request.json(body);
    }
    let response = request.send().await.with_context(|| format!("cannot reach {server}"))?;
    let status = response.status();
    let text = response.text().await.context("cannot read the answer")?;
    match serde_json::from_str(&text) {
        Ok(answer) if status.is_success() => Ok(answer),
        _ => Err(anyhow!("{}", refusal(&text).unwrap_or_else(|| format!("{status}: {text}")))),
    }
}

/// Writes a line to stdout; a reader that has gone away is not a failure.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
