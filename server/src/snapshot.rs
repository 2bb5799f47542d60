//! `millrace snapshot`: snapshots of a running server, made, listed, restored, and repositories verified.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::cli::SnapshotCommand;
use crate::exit::Failure;
use crate::logging;
use crate::remote::{Remote, refusal};
use crate::serve::runtime;

/// Time to wait for an answer: a large snapshot takes its time.
const TIMEOUT: Duration = Duration::from_secs(7 * 86_400);

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
            let answer = ask(remote, Method::PUT, &path, true, Some(body)).await?;
            report(&answer["snapshot"], "made")
        }
        SnapshotCommand::List { repository, .. } => {
            let answer = ask(remote, Method::GET, &[repository, "_all"], false, None).await?;
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
            let answer = ask(remote, Method::POST, &path, true, Some(body)).await?;
            report(&answer["snapshot"], "restored")
        }
        SnapshotCommand::Verify { repository, .. } => {
            ask(remote, Method::POST, &[repository, "_verify"], false, None).await?;
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

async fn ask(
    remote: &Remote,
    method: Method,
    below: &[&str],
    waits: bool,
    body: Option<Value>,
) -> Result<Value> {
    let server = &remote.url;
    let not_a_url = || format!("`{server}` is not a URL of a server");
    let mut url = Url::parse(server).with_context(not_a_url)?;
    // Whatever a name has in it is encoded here.
    url.path_segments_mut()
        .map_err(|()| anyhow!(not_a_url()))?
        .pop_if_empty()
        .push("_snapshot")
        .extend(below);
    if waits {
        url.query_pairs_mut().append_pair("wait_for_completion", "true");
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
