//! Forecasts series with intervals, for comparing with other programs (`benchmarks/src/anomaly.py`).
//!
//! Each line of the input is `{"forecaster", "samples": [number or null, …], "seasonality", "steps", "seed"}`; each line of the output is
//! `{"mean", "lower80", "upper80", "lower95", "upper95", "description", "seasonality"}`, or `{"error": …}`.

use std::io::{self, BufRead, Write};

use millrace_forecast::{ForecastInterval, Forecaster, Series};
use serde_json::{Value, json};

fn forecast(line: &str) -> Result<Value, String> {
    let input: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let forecaster = Forecaster::named(input["forecaster"].as_str().unwrap_or_default());
    let forecaster = forecaster.ok_or("no such forecaster")?;
    let samples = input["samples"].as_array().ok_or("no samples")?;
    let series =
        Series::new(samples.iter().map(Value::as_f64).collect()).map_err(|error| error.to_string())?;
    let seasonality = input["seasonality"].as_u64().map(|season| season as usize);
    let seed = input["seed"].as_u64().unwrap_or_default();
    let model = forecaster.train(&series, seasonality, seed).map_err(|error| error.to_string())?;
    let steps = input["steps"].as_u64().unwrap_or(1) as usize;
    let intervals = model.forecast(steps).map_err(|error| error.to_string())?;
    let column = |field: fn(&ForecastInterval) -> f64| intervals.iter().map(field).collect::<Vec<f64>>();
    Ok(json!({
        "mean": column(|one| one.mean),
        "lower80": column(|one| one.lower80),
        "upper80": column(|one| one.upper80),
        "lower95": column(|one| one.lower95),
        "upper95": column(|one| one.upper95),
        "description": model.description(),
        "seasonality": model.seasonality(),
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
