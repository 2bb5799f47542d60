//! Programs: started without a shell, out of one directory, with the alert on their input, bounded in time and output.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::{Failure, Sent, compute};
use crate::Shared;
use crate::error::{Error, Result};
use crate::message::{Message, cut};
use crate::template;

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Programs at a time.
const MOST: usize = 4;
/// Bytes of its output that are kept; the rest is read and dropped.
const MAX_OUTPUT: usize = 16 << 10;
/// Bytes of an argument.
const MAX_WORD: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct Commands {
    directory: Option<PathBuf>,
    turns: Semaphore,
}

/// Checks the program's name: one in the directory, and none beside it.
pub(crate) fn check(options: &Map<String, Value>) -> Result<()> {
    let program = options.get("command").and_then(|words| words[0].as_str()).unwrap_or_default();
    let is_name = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if program.is_empty() || !is_name || program.starts_with('.') {
        let reason = format!(
            "[{}] is no name of a program in the directory notifications.command_directory",
            cut(program, 100)
        );
        return Err(Error::invalid("command", reason));
    }
    Ok(())
}

impl Commands {
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, turns: Semaphore::new(MOST) }
    }

    pub(crate) async fn run(&self, shared: &Shared, options: Map<String, Value>, message: Message) -> Sent {
        let off = || Failure::passing("no command is started: notifications.command_directory is not set");
        let directory = self.directory.clone().ok_or_else(off)?;
        check(&options).map_err(|error| Failure::permanent(error.to_string()))?;
        let must_succeed = options.get("fail_on_non_zero_exit").and_then(Value::as_bool).unwrap_or(true);
        let key = message.key.clone();
        let (words, input) = compute(shared, move || {
            let context = minijinja::Value::from_serialize(message.context(&Map::new()));
            let words = options
                .get("command")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let words =
                words.map(|word| template::render(word, &context, MAX_WORD).map_err(Failure::permanent));
            let words = words.collect::<std::result::Result<Vec<_>, _>>()?;
            let as_text = options.get("pipe_alert_text").and_then(Value::as_bool).unwrap_or(false);
            let input = if as_text { message.text } else { message.document().to_string() };
            Ok((words, input))
        })
        .await?;
        let _turn = self.turns.acquire().await.map_err(|error| Failure::passing(error.to_string()))?;
        let started = tokio::task::spawn_blocking(move || run(&directory, &words, input, &key, must_succeed));
        started.await.unwrap_or_else(|error| Err(Failure::passing(error.to_string())))
    }
}

/// Starts a program and waits for its end.
fn run(directory: &std::path::Path, words: &[String], input: String, key: &str, must_succeed: bool) -> Sent {
    let Some((name, arguments)) = words.split_first() else {
        return Err(Failure::permanent("the command has no word"));
    };
    let mut command = Command::new(directory.join(name));
    command
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("MILLRACE_NOTIFICATION_KEY", key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure::passing(format!("program [{name}] cannot be started: {error}")))?;
    let stdin = child.stdin.take();
    // A program may end without reading, or read nothing for long: both are its own affair.
    let writing = std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(input.as_bytes());
        }
    });
    let out = child.stdout.take().map(|out| std::thread::spawn(move || beginning(out)));
    let err = child.stderr.take().map(|err| std::thread::spawn(move || beginning(err)));
    let in_time = has_ended(&child);
    // What it started and left behind would keep its pipes open. Its number is its own until it is waited for.
    if let Some(group) = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = match (in_time, child.wait()) {
        (true, Ok(status)) => Ok(status),
        (false, _) => Err(Failure::passing(format!(
            "program [{name}] was killed: it took longer than {} s",
            TIMEOUT.as_secs()
        ))),
        (_, Err(error)) => Err(Failure::passing(format!("program [{name}]: {error}"))),
    };
    let _ = writing.join();
    let read = |thread: Option<std::thread::JoinHandle<Vec<u8>>>| {
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    };
    let said = [read(out), read(err)].concat();
    let status = status?;
    if status.success() || !must_succeed {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&said);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Err(Failure::passing(format!("program [{name}] ended with {status}: {}", cut(said.trim(), 300))))
}

/// Waits until a program has ended; returns whether it has within its time.
fn has_ended(child: &Child) -> bool {
    let began = Instant::now();
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(None) if began.elapsed() < TIMEOUT => std::thread::sleep(LOOK),
            Ok(ended) => return ended.is_some(),
            Err(_) => return false,
        }
    }
}

/// Reads to the end, and keeps the beginning.
fn beginning(mut from: impl Read) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) | Err(_) => return kept,
            Ok(read) => kept.extend_from_slice(&chunk[..read.min(MAX_OUTPUT - kept.len())]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_gets_its_words_and_input_and_is_held_to_its_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("keep", "{ echo \"$1|$#|$MILLRACE_NOTIFICATION_KEY|$HOME|$#\"; cat; } > out");
        script("fails", "echo why >&2; exit 3");
        script("floods", "yes | head -c 5000000; (sleep 600 &) ; exit 0");
        let run = |words: &[&str], must: bool| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            super::run(directory.path(), &words, "input".to_owned(), "k", must)
        };
        assert_eq!(run(&["keep", "a b; $(id)"], true), Ok(None));
        let kept = std::fs::read_to_string(directory.path().join("out")).unwrap();
        assert_eq!(kept, "a b; $(id)|1|k||1\ninput");
        let failed = run(&["fails"], true).unwrap_err();
        assert!(!failed.permanent && failed.reason.ends_with("why"), "{failed:?}");
        assert_eq!(run(&["fails"], false), Ok(None));
        assert_eq!(run(&["floods"], true), Ok(None));
        assert!(run(&["missing"], true).unwrap_err().reason.contains("cannot be started"));
        for wrong in ["/bin/sh", "../sh", "", ".hidden", "a b"] {
            let options = json!({"command": [wrong]});
            assert!(check(options.as_object().unwrap()).is_err(), "{wrong}");
        }
    }
}
