//! Lists when schedules come: for comparing with other programs.
//!
//! Each line of the input is `{"schedule", "from", "to"}`, times in seconds; each line of the output is the list of the times between the
//! two, or `{"error": …}`.

use std::io::{self, BufRead, Write};

use millrace_schedule::{Fields, Schedule};
use serde_json::{Value, json};

fn times(line: &str) -> Result<Value, String> {
    let input: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let schedule = Schedule::parse(input["schedule"].as_str().unwrap_or_default(), Fields::FiveOrSix)?;
    let time = |name: &str| input[name].as_i64().ok_or_else(|| format!("[{name}] is missing"));
    let (mut at, to) = (time("from")? * 1000, time("to")? * 1000);
    let mut times = Vec::new();
    while let Some(next) = schedule.after(at).filter(|next| *next < to) {
        times.push(next / 1000);
        at = next;
    }
    Ok(json!(times))
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = times(&line?).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
