//! Programs: started without a shell, out of one directory, with the alert on their input, bounded in time and output.
//!
//! One thread waits for a program, and reads and writes what it can without waiting: who has left the program's group and keeps its pipes
//! open, as a service does, holds nothing up.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use millrace_rules::cut;
use millrace_runtime::Instant;
use rustix::fd::AsFd;
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Failure, SendResult, compute};
use crate::NotifierState;
use crate::error::{Error, Result};
use crate::message::Message;
use millrace_rules::template;

/// Time that a program may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two checks for its end.
const LOOK: Duration = Duration::from_millis(10);
/// Longest wait until one more may be started, which is that for some that take as long as they may: waiting notifications are in
/// flight, and their number is bounded.
const TURN_WAIT: Duration = Duration::from_secs(120);
/// Programs at a time.
const MOST: usize = 4;
/// Bytes of its output that are kept; the rest is read and dropped.
const MAX_OUTPUT: usize = 16 << 10;
/// Bytes that are read at a time, and that are read of it once it has ended.
const CHUNK: usize = 64 << 10;
const MAX_REST: usize = 1 << 20;
/// Bytes of an argument.
const MAX_WORD: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct Commands {
    directory: Option<PathBuf>,
    turns: Arc<Semaphore>,
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
        Self { directory, turns: Arc::new(Semaphore::new(MOST)) }
    }

    /// Waits until one more program may be started.
    pub(crate) async fn turn(&self) -> std::result::Result<OwnedSemaphorePermit, Failure> {
        let turn = tokio::time::timeout(TURN_WAIT, Arc::clone(&self.turns).acquire_owned()).await;
        let taken = || Failure::passing(format!("[{MOST}] other commands run, which are as many as may"));
        turn.map_err(|_| taken())?.map_err(|error| Failure::passing(error.to_string()))
    }

    /// Starts a program, and waits for its end. The turn lasts as long as the program, also where nobody waits any more.
    pub(crate) async fn run(
        &self,
        shared: &NotifierState,
        options: Map<String, Value>,
        message: Message,
        turn: OwnedSemaphorePermit,
    ) -> SendResult {
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
        let started = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            run(&directory, &words, &input, &key, must_succeed)
        });
        started.await.unwrap_or_else(|error| Err(Failure::passing(error.to_string())))
    }
}

/// Starts a program and waits for its end.
fn run(
    directory: &std::path::Path,
    words: &[String],
    input: &str,
    key: &str,
    must_succeed: bool,
) -> SendResult {
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
    let mut child = command.spawn().map_err(|error| {
        let reason = format!("program [{name}] cannot be started: {error}");
        match error.kind() {
            // Words that no program can be given, with a NUL in them or too long.
            ErrorKind::InvalidInput | ErrorKind::ArgumentListTooLong => Failure::permanent(reason),
            _ => Failure::passing(reason),
        }
    })?;
    let mut pipes = Pipes::new(&mut child, input.as_bytes());
    let in_time = has_ended(&child, &mut pipes);
    // What it started and left behind. Its number is its own until it is waited for.
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
    let said = pipes.rest();
    let status = status?;
    if status.success() || !must_succeed {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&said);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Err(Failure::passing(format!("program [{name}] ended with {status}: {}", cut(said.trim(), 300))))
}

/// Waits until a program has ended; returns whether it has within its time.
fn has_ended(child: &Child, pipes: &mut Pipes<'_>) -> bool {
    let began = Instant::now();
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(None) if began.elapsed() < TIMEOUT => {
                if !pipes.step() {
                    std::thread::sleep(LOOK);
                }
            }
            Ok(ended) => return ended.is_some(),
            Err(_) => return false,
        }
    }
}

/// The ends of a program's pipes that are here; none of them is waited for.
struct Pipes<'a> {
    input: Option<(std::process::ChildStdin, &'a [u8])>,
    out: Output<std::process::ChildStdout>,
    err: Output<std::process::ChildStderr>,
}

/// Output of a program: read to its end, while its beginning is kept.
struct Output<R> {
    from: Option<R>,
    kept: Vec<u8>,
}

impl<'a> Pipes<'a> {
    fn new(child: &mut Child, input: &'a [u8]) -> Self {
        // One that could be waited for is closed instead.
        fn no_wait<P: AsFd>(pipe: Option<P>) -> Option<P> {
            pipe.filter(|pipe| ioctl_fionbio(pipe, true).is_ok())
        }
        Self {
            input: no_wait(child.stdin.take()).map(|stdin| (stdin, input)),
            out: Output { from: no_wait(child.stdout.take()), kept: Vec::new() },
            err: Output { from: no_wait(child.stderr.take()), kept: Vec::new() },
        }
    }

    /// Writes and reads a piece; returns whether there was one.
    fn step(&mut self) -> bool {
        self.write() | (self.out.read() > 0) | (self.err.read() > 0)
    }

    /// A program may end without reading, or read nothing for long: both are its own affair.
    fn write(&mut self) -> bool {
        let Some((stdin, left)) = &mut self.input else { return false };
        match stdin.write(left) {
            Ok(written) if written > 0 && written < left.len() => *left = &left[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => self.input = None,
        }
        true
    }

    /// Reads what is there once it has ended; returns what it said.
    fn rest(mut self) -> Vec<u8> {
        fn rest(output: &mut Output<impl Read>) {
            let mut all = 0;
            while all < MAX_REST {
                match output.read() {
                    0 => break,
                    read => all += read,
                }
            }
        }
        rest(&mut self.out);
        rest(&mut self.err);
        [self.out.kept, self.err.kept].concat()
    }
}

impl<R: Read> Output<R> {
    /// Reads a piece; returns its bytes.
    fn read(&mut self) -> usize {
        let Some(from) = &mut self.from else { return 0 };
        let mut piece = [0; CHUNK];
        match from.read(&mut piece) {
            Ok(0) => self.from = None,
            Ok(read) => {
                let kept = read.min(MAX_OUTPUT - self.kept.len());
                self.kept.extend_from_slice(&piece[..kept]);
                return read;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.from = None,
        }
        0
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
        script("serves", "setsid sleep 20 & exit 0");
        script("counts", "exit $(($(wc -c) % 251))");
        let run_with = |input: &str, words: &[&str], must: bool| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            super::run(directory.path(), &words, input, "k", must)
        };
        let run = |words: &[&str], must: bool| run_with("input", words, must);
        assert_eq!(run(&["keep", "a b; $(id)"], true), Ok(None));
        let kept = std::fs::read_to_string(directory.path().join("out")).unwrap();
        assert_eq!(kept, "a b; $(id)|1|k||1\ninput");
        let failed = run(&["fails"], true).unwrap_err();
        assert!(!failed.permanent && failed.reason.ends_with("why"), "{failed:?}");
        assert_eq!(run(&["fails"], false), Ok(None));
        assert_eq!(run(&["floods"], true), Ok(None));
        // Who has left its group and holds its pipes is not waited for.
        let began = Instant::now();
        assert_eq!(run(&["serves"], true), Ok(None));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let long = "x".repeat(251 * 4_000);
        assert_eq!(run_with(&long, &["counts"], true), Ok(None));
        assert!(run(&["keep", "a\0b"], true).unwrap_err().permanent);
        assert!(run(&["missing"], true).unwrap_err().reason.contains("cannot be started"));
        for wrong in ["/bin/sh", "../sh", "", ".hidden", "a b"] {
            let options = json!({"command": [wrong]});
            assert!(check(options.as_object().unwrap()).is_err(), "{wrong}");
        }
    }
}
