//! `exec`: events of the output of a program, which a shell starts by a schedule.
//!
//! A pipeline with this input runs any program as the server's user. It is refused unless the process allows it
//! ([`allow_programs`]): the server does where its configuration says so.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::chunks::{BodySource, ChunkedDecoding};
use super::timer::Timer;
use super::{Context, Input, InputError, additions, host_name, stopped};
use crate::codec::{self, Codec, Events};
use crate::event::{Additions, METADATA};
use crate::offload::offload;
use crate::{EcsCompatibility, Event, Fault, FieldReference, Options};

/// Longest output in bytes; the program is ended where it writes more.
const MAX_OUTPUT: u64 = 64 << 20;
/// Variables that programs get; others may hold secrets of the server.
const VARIABLES: [&str; 7] = ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TZ", "USER"];

/// `true` once programs are allowed.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Allows inputs to start programs, in this process and for good.
pub fn allow_programs() {
    ALLOWED.store(true, Ordering::Relaxed);
}

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Exec {
    command: String,
    timer: Timer,
    codec: Arc<dyn Codec>,
    target: Option<FieldReference>,
    ecs: EcsCompatibility,
    host: String,
}

/// Process group of the running program, so that the input can end it.
#[derive(Clone, Debug, Default)]
struct RunningProgram(Arc<Mutex<ProgramState>>);

#[derive(Clone, Copy, Debug, Default)]
enum ProgramState {
    #[default]
    Starting,
    Running(Pid),
    Ended,
    /// It is to end as soon as it has started.
    Stopped,
}

/// Outcome of a run.
struct RunOutput {
    bytes: Vec<u8>,
    exit_code: Option<i32>,
    took: Duration,
    is_cut: bool,
}

impl Exec {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options, or programs are not allowed.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        if !ALLOWED.load(Ordering::Relaxed) {
            o.fault_here(
                "[exec] is off, for it runs any program as the server's user: set [pipelines.exec] of the server to true",
            );
        }
        let command = o.required_text("command");
        let interval = o.integer("interval", 1..=366 * 86_400);
        let schedule = Timer::take(o);
        let timer = match (interval, schedule) {
            (Some(seconds), None) => Timer::Every(Duration::from_secs(seconds.unsigned_abs())),
            (None, Some(timer)) => timer,
            (None, None) => {
                o.fault_here("[exec] needs one of the options [interval, schedule]");
                Timer::Once(Duration::ZERO)
            }
            (Some(_), Some(timer)) => {
                o.fault_here("options [interval] and [schedule] of [exec] exclude each other");
                timer
            }
        };
        let target = o.field("target");
        let ecs = o.ecs_compatibility();
        let codec = codec::take(o, "plain");
        options.finish()?;
        Ok(Self { command, timer, codec: codec?, target, ecs, host: host_name() })
    }

    /// Returns what the events of an output get.
    fn additions(&self, output: &RunOutput) -> Additions {
        let (host, command) = (self.host.as_str(), self.command.as_str());
        if !self.ecs.is_enabled() {
            return additions()
                .member("host", host)
                .member("command", command)
                .metadata("exit_status", output.exit_code)
                .metadata("duration", output.took.as_secs_f64());
        }
        let nanoseconds = u64::try_from(output.took.as_nanos()).unwrap_or(u64::MAX);
        additions()
            .at(&["host", "name"], host)
            .at(&["process", "command_line"], command)
            .at(&["process", "exit_code"], output.exit_code)
            .at(&[METADATA, "input", "exec", "process", "elapsed_time"], nanoseconds)
    }

    /// Hands the events of an output on; returns `false` when the input is to stop.
    async fn send(&self, output: RunOutput, context: &Context) -> bool {
        let (mut additions, target) = (self.additions(&output), self.target.clone());
        let complete = move |event: &mut Event| {
            if let Some(target) = &target {
                let fields = std::mem::take(event.fields_mut());
                let _ = event.set(target, Value::Object(fields));
            }
            additions.add_to(event);
        };
        let mut decoder = self.codec.decoder();
        let decode = move |events: &mut Events| {
            decoder.decode(&output.bytes, events);
            decoder.finish(events);
        };
        match ChunkedDecoding::start(context, BodySource::Unrepeatable, complete, decode).await {
            Some(decoding) => decoding.send().await.is_some(),
            None => false,
        }
    }
}

impl RunningProgram {
    /// Takes note of the program; returns `false` where it is to end at once.
    fn started(&self, group: Pid) -> bool {
        let mut state = self.0.lock();
        let goes_on = !matches!(*state, ProgramState::Stopped);
        *state = ProgramState::Running(group);
        goes_on
    }

    fn ended(&self) {
        *self.0.lock() = ProgramState::Ended;
    }

    /// Ends the program and what it has started.
    fn stop(&self) {
        let mut state = self.0.lock();
        match *state {
            ProgramState::Running(group) => {
                // It may have ended by itself.
                let _ = kill_process_group(group, Signal::KILL);
            }
            ProgramState::Starting => *state = ProgramState::Stopped,
            ProgramState::Ended | ProgramState::Stopped => {}
        }
    }
}

/// Ends a program with its input, also where that is dropped while the program runs.
struct ProgramGuard(RunningProgram);

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a command; the calling thread waits.
fn run(command: &str, running: &RunningProgram) -> std::io::Result<RunOutput> {
    let began = Instant::now();
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if group.is_none_or(|group| !running.started(group)) {
        running.stop();
    }
    let mut bytes = Vec::new();
    let read = match child.stdout.take() {
        Some(output) => output.take(MAX_OUTPUT + 1).read_to_end(&mut bytes),
        None => Ok(0),
    };
    let is_cut = bytes.len() as u64 > MAX_OUTPUT;
    if is_cut || read.is_err() {
        running.stop();
    }
    let status = child.wait();
    running.ended();
    read?;
    bytes.truncate(usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX));
    Ok(RunOutput { bytes, exit_code: status?.code(), took: began.elapsed(), is_cut })
}

#[async_trait]
impl Input for Exec {
    fn identity(&self) -> String {
        format!("exec {}", self.command)
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let mut stopping = context.stopping.clone();
        let mut number = 0;
        while self.timer.wait(number, &mut stopping).await {
            number += 1;
            let program = RunningProgram::default();
            let (command, running) = (self.command.clone(), program.clone());
            let _guard = ProgramGuard(program);
            let output = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                output = offload(move || run(&command, &running)) => output,
            };
            let output = output.map_err(|error| InputError(format!("cannot run the command: {error}")))?;
            if output.is_cut {
                tracing::warn!(max = MAX_OUTPUT, "the output of a program is cut");
            }
            if !self.send(output, &context).await {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{OptionValue, Pipeline, options};

    fn exec(command: &str, given: &[(&str, OptionValue)]) -> Exec {
        allow_programs();
        let all = [&[("command", command.into())], given].concat();
        Exec::new(options("exec", &all)).unwrap()
    }

    #[tokio::test]
    async fn the_output_of_a_program_becomes_events() {
        // No test changes the variable.
        assert!(std::env::var_os("CARGO").is_some());
        let command = r#"printf '%s\n' one "two $CARGO"; exit 3"#;
        let input = exec(command, &[("schedule", [("in", "0s")].into()), ("codec", "line".into())]);
        let mut pipeline = Pipeline::new(4);
        let run = input.run(pipeline.context());
        let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
        ended.unwrap();
        assert_eq!(pipeline.messages(), ["one", "two "], "the environment is not the server's");
        let event = &pipeline.events[0];
        assert_eq!(event.fields()["command"], command);
        assert_eq!(event.metadata()["exit_status"], 3);
        assert!(event.metadata()["duration"].is_f64());
    }

    #[tokio::test]
    async fn a_large_output_takes_no_more_memory_than_is_reserved() {
        let given = [("schedule", [("in", "0s")].into()), ("codec", "line".into())];
        let input = exec("yes '' | head -n 5000", &given);
        let mut pipeline = Pipeline::new(1);
        pipeline.budget = crate::budget::Budget::new(4 << 20);
        let (budget, mut most) = (pipeline.budget.clone(), 0);
        let run = input.run(pipeline.context());
        let take = async {
            while pipeline.take().await.is_some() {
                most = most.max(budget.used());
            }
        };
        let (ended, ()) = tokio::join!(run, take);
        ended.unwrap();
        assert_eq!(pipeline.events.len(), 5_000);
        assert!(most <= 1 << 20, "{most}");
    }

    #[tokio::test]
    async fn a_stop_ends_the_program_and_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let command = format!("sleep 1000 & echo $! > '{}'; wait", file.display());
        let input = exec(&command, &[("interval", "3600".into())]);
        let mut pipeline = Pipeline::new(4);
        let context = pipeline.context();
        let running = tokio::spawn(async move { input.run(context).await });
        let pid = loop {
            match std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<i32>().ok()) {
                Some(pid) => break Pid::from_raw(pid).unwrap(),
                None => tokio::task::yield_now().await,
            }
        };
        pipeline.stop.send_replace(true);
        running.await.unwrap().unwrap();
        while rustix::process::test_kill_process(pid).is_ok() {
            // A zombie counts as there until its parent's parent takes note of it.
            let state =
                std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            if state.rsplit(')').next().is_some_and(|state| state.trim_start().starts_with('Z')) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn options_are_checked() {
        allow_programs();
        let faults =
            Exec::new(options("exec", &[("schedule", "x".into()), ("interval", "0".into())])).unwrap_err();
        for expected in ["option [command]", "[interval]", "[schedule]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
