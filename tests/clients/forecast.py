"""Forecasts are those that statsmodels and scikit-learn make by the definitions in docs/ai.md.

Compared are moving averages, Holt's method, lines and regressions on lags, with their scores, over statsmodels' own series (co2,
sunspots, nile) and planted ones, whole and by windows of their ends, to a relative 1e-9 of the series' size. Forests cannot
be the same as another program's: theirs are compared with themselves over processes, and with the naive forecast. It needs no server
but the example `forecast` of the crate (`cargo build -p millrace-forecast --example forecast`), or the program that
FORECAST_EXAMPLE names, and runs by itself where the packages of requirements-forecast.txt are installed.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import statsmodels.api as sm
from sklearn.linear_model import LinearRegression
from statsmodels.tsa.holtwinters import Holt, SimpleExpSmoothing

EXAMPLE = pathlib.Path(
    os.environ.get("FORECAST_EXAMPLE") or pathlib.Path(__file__).resolve().parents[2] / "target/debug/examples/forecast"
)
RELATIVE = 1e-9


def line(x):
    """Slope and intercept of the least squares."""
    fit = sm.OLS(x, np.column_stack([np.arange(len(x)), np.ones(len(x))])).fit(method="qr")
    return fit.params[0], fit.params[1]


def without_line(x, ahead, model):
    slope, intercept = line(x)
    left = model(x - (slope * np.arange(len(x)) + intercept), ahead)
    return left + slope * np.arange(len(x), len(x) + ahead) + intercept


def sma(x, ahead):
    window = list(x)
    for _ in range(ahead):
        window.append(math.fsum(window[-len(x) :]) / len(x))
    return np.array(window[len(x) :])


def gma(x, ahead):
    fit = SimpleExpSmoothing(x, initialization_method="known", initial_level=x[0])
    return fit.fit(smoothing_level=2 / (len(x) + 1), optimized=False).forecast(ahead)


def gmal(x, ahead):
    # The level is that of the first sample: what is smoothed begins with the second.
    fit = Holt(x[1:], initialization_method="known", initial_level=x[0], initial_trend=x[1] - x[0])
    weight = 2 / (len(x) + 1)
    return fit.fit(smoothing_level=weight, smoothing_trend=weight, optimized=False).forecast(ahead)


def tl(x, ahead):
    slope, intercept = line(x)
    return slope * np.arange(len(x), len(x) + ahead) + intercept


def rows(x, lags, places):
    return np.array([x[at - lags : at][::-1] for at in places]), np.array([x[at] for at in places])


def lrs(x, ahead):
    count = len(x)
    most = min(24, count // 4)
    split = count - max(1, count // 5)
    chosen, least = 1, math.inf
    for lags in range(1, most + 1):
        inputs, wanted = rows(x, most, range(most, split))
        fit = LinearRegression().fit(inputs[:, :lags], wanted)
        inputs, wanted = rows(x, lags, range(split, count))
        error = math.sqrt(np.mean((fit.predict(inputs) - wanted) ** 2))
        if error < least - 1e-9 * np.std(x):
            chosen, least = lags, error
    fit = LinearRegression().fit(*rows(x, chosen, range(chosen, count)))
    known = list(x)
    for _ in range(ahead):
        known.append(fit.intercept_ + float(np.dot(fit.coef_, known[-chosen:][::-1])))
    return np.array(known[count:])


MODELS = {
    "SMA": sma,
    "GMA": gma,
    "GMAL": gmal,
    "SMAL": lambda x, ahead: without_line(x, ahead, sma),
    "TL": tl,
    "LRS": lrs,
    "LRST": lambda x, ahead: without_line(x, ahead, lrs),
}


def filled(samples):
    """Gaps on the line between their neighbours; behind the last one as it is."""
    places = [at for at, value in enumerate(samples) if value is not None]
    return np.interp(np.arange(len(samples)), places, [samples[at] for at in places])


def score(model, samples, ahead):
    held_out = min(len(samples) // 5, max(ahead, 10))
    if not held_out or len(samples) - held_out < 8:
        return None
    split = len(samples) - held_out
    told = model(filled(samples[:split]), held_out)
    pairs = [(a, b) for a, b in zip(told, samples[split:]) if b is not None]
    there = np.array([b for _, b in pairs])
    squared = np.mean([(a - b) ** 2 for a, b in pairs])
    every = [value for value in samples if value is not None]
    return {
        "rmse": math.sqrt(squared),
        "rmse_normalized": math.sqrt(squared) / (max(every) - min(every)),
        "overall_efficiency": 1 - squared / np.var(there) if np.var(there) > 0 else None,
    }


def run(requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    answer = subprocess.run([EXAMPLE], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(answer) == len(requests), f"{len(answer)} answers to {len(requests)} requests"
    return [json.loads(line) for line in answer]


def series():
    rng = np.random.default_rng(1)
    co2 = sm.datasets.co2.load_pandas().data["co2"]
    yield "co2", [None if math.isnan(value) else float(value) for value in co2]
    yield "sunspots", [float(value) for value in sm.datasets.sunspots.load_pandas().data["SUNACTIVITY"]]
    yield "nile", [float(value) for value in sm.datasets.nile.load_pandas().data["volume"]]
    time = np.arange(600)
    yield "season", list(100 + 10 * np.sin(time * math.tau / 24) + rng.normal(size=600))
    yield "trend", list(1e6 + 3.5 * time + rng.normal(size=600) * 5)
    yield "steps", list(np.cumsum(rng.normal(size=600)))
    yield "small", list(1e-6 * rng.normal(size=200))
    counts = rng.poisson(20, size=400).astype(float)
    yield "gaps", [None if 0 < at and rng.random() < 0.1 else float(value) for at, value in enumerate(counts)]


if not EXAMPLE.exists():
    print(f"missing: {EXAMPLE}")
    sys.exit(77)
requests, expected = [], []
for name, samples in series():
    for count in (8, 9, 31, 60, 100, len(samples)):
        window = samples[-min(count, len(samples)) :]
        while window[0] is None:
            window = window[1:]
        if len(window) < 8:
            continue
        for algorithm, model in MODELS.items():
            ahead = 24
            requests.append({"algorithm": algorithm, "samples": window, "predictions": ahead})
            expected.append((name, model(filled(window), ahead), score(model, window, ahead)))
worst = {}
for request, (name, wanted, scored), found in zip(requests, expected, run(requests)):
    algorithm, count = request["algorithm"], len(request["samples"])
    assert "error" not in found, f"{algorithm} of {name}: {found}"
    size = np.max(np.abs([value for value in request["samples"] if value is not None]))
    off = np.max(np.abs(np.array(found["forecast"]) - wanted)) / max(size, np.max(np.abs(wanted)))
    for part, of in (scored or {}).items():
        assert (of is None) == (found[part] is None), f"{algorithm} of {name}: {found} {scored}"
        if of is not None:
            off = max(off, abs(found[part] - of) / (size if part == "rmse" else max(1, abs(of))))
    worst[algorithm] = max(worst.get(algorithm, 0), off)
    assert off <= RELATIVE, f"{algorithm} of {name}, {count} samples: off by {off}\n{found['forecast']}\n{list(wanted)}\n{scored} {found}"
print(f"{len(requests)} forecasts; off by at most", {name: f"{off:.1e}" for name, off in worst.items()})

# A line that comes to a level.
[found] = run([{"algorithm": "TL", "samples": [1.0, 2.0, 3.0, 4.0], "predictions": 1, "threshold": 6.5}])
assert abs(found["reaches"] - 2.5) < 1e-9, found

# Forests: the same in each process, and better than the last sample where there is a season and a new level.
rng = np.random.default_rng(2)
time = np.arange(600 + 48)
planted = 100 + 10 * np.sin(time * math.tau / 24) + rng.normal(size=len(time)) + 40 * (time > 300)
request = {"algorithm": "RFRS", "samples": list(planted[:600]), "predictions": 48, "id": "a"}
[first], [second] = run([request]), run([request])
assert first == second
[other] = run([request | {"id": "b"}])
assert other["forecast"] != first["forecast"]
error = math.sqrt(np.mean((np.array(first["forecast"]) - planted[600:]) ** 2))
naive = math.sqrt(np.mean((planted[599] - planted[600:]) ** 2))
print(f"RFRS: RMSE {error:.2f}, naive {naive:.2f}")
assert error <= 0.8 * naive
