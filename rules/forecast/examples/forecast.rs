//! Forecasts series: for comparing with other programs.
//!
//! Each line of the input is `{"algorithm", "samples": [number or null, …], "predictions", "id", "threshold"}`; each line of the
//! output is `{"forecast": […], "rmse", "rmse_normalized", "overall_efficiency", "slope", "intercept", "reaches"}`, or
//! `{"error": …}`.

use std::io::{self, BufRead, Write};

use millrace_forecast::{Algorithm, Series, seed, train};
use serde_json::{Value, json};

fn forecast(line: &str) -> Result<Value, String> {
    let input: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let name = input["algorithm"].as_str().unwrap_or_default();
    let algorithm = Algorithm::named(name).ok_or("no such algorithm")?;
    let samples = input["samples"].as_array().ok_or("no samples")?;
    let series =
        Series::new(samples.iter().map(Value::as_f64).collect()).map_err(|error| error.to_string())?;
    let predictions = input["predictions"].as_u64().unwrap_or(1) as usize;
    let seed = seed(input["id"].as_str().unwrap_or_default());
    let trained = train(algorithm, &series, predictions, seed).map_err(|error| error.to_string())?;
    let forecast = trained.forecast(predictions).map_err(|error| error.to_string())?;
    let (score, line) = (trained.score(), trained.line());
    Ok(json!({
        "forecast": forecast,
        "rmse": score.rmse,
        "rmse_normalized": score.rmse_normalized,
        "overall_efficiency": score.overall_efficiency,
        "slope": line.map(|line| line.slope),
        "intercept": line.map(|line| line.intercept),
        "reaches": input["threshold"].as_f64().and_then(|level| trained.reaches(level)),
    }))
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = forecast(&line?).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
