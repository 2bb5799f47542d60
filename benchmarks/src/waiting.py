#!/usr/bin/env python3
"""Sends events at a set rate past rules that wait for windows, in a server of its own, and watches how far they are behind.

    cargo build --release -p millrace-server
    python3 benchmarks/src/waiting.py --server target/release/millrace
    python3 benchmarks/src/waiting.py --seconds 60 --rules 100

A fifth of the rules each are flatline, spike, metric_aggregation, percentage_match and cardinality; three of ten have a key of 1,000 values.
An event matches one rule in a hundred. The goals: the lag does not grow, less than 1 GB resident. Needs nothing but Python.
"""

import argparse
import datetime
import pathlib
import queue
import random
import re
import statistics
import sys
import threading
import time

from ai import Client, start

GROUPS = 100
KEYS = 1000
BULK = 1000
TYPES = [
    {"type": "flatline", "threshold": 1, "timeframe": "1m"},
    {"type": "spike", "spike_height": 5, "spike_type": "both", "timeframe": "1m"},
    {"type": "metric_aggregation", "metric_agg_key": "load", "metric_agg_type": "avg", "max_threshold": 1e9, "bucket_interval": "1m"},
    {"type": "percentage_match", "match_bucket_filter": [{"term": {"status": 500}}], "max_percentage": 90, "bucket_interval": "1m"},
    {"type": "cardinality", "cardinality_field": "status", "min_cardinality": 2, "timeframe": "1m"},
]


def rule(number):
    key = {"query_key": "user"} if number % 10 < 3 else {}
    filters = [{"term": {"group": number % GROUPS}}]
    return {"name": f"waiting {number}", "index": "events", "filter": filters, "recovery": True} | TYPES[number // 10 % 5] | key


def bulk(docs):
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    line = '{"create":{}}\n{"@timestamp":"%s","group":%d,"user":"user-%d","load":%.2f,"status":%d,"message":"%s"}\n'
    text = "GET /products/red-kettle HTTP/1.1 by a browser of some length, as lines of logs are" * 2
    draw = random.random
    lines = [line % (at, draw() * GROUPS, draw() * KEYS, draw() * 100, 500 if draw() < 0.1 else 200, text) for _ in range(docs)]
    return "".join(lines).encode()


def memory(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, default=pathlib.Path("target/release/millrace"))
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("target/benchmarks/waiting"))
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=20_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=600)
    args = parser.parse_args()
    server, address, console = start(args.server, args.directory)
    try:
        data, rules = Client(address), Client(console)
        keyword = {"type": "keyword"}
        properties = {
            "@timestamp": {"type": "date"},
            "group": {"type": "integer"},
            "user": keyword,
            "load": {"type": "double"},
            "status": {"type": "integer"},
            "message": {"type": "text"},
        }
        data.ask("PUT", "/events", {"mappings": {"properties": properties}})
        saved = [rules.ask("POST", "/api/alert/change", rule(number)) for number in range(args.rules)]
        shown = f"/api/alert/show/{saved[0]['id']}"
        bodies, late, lags, most = queue.Queue(), [], [], 0.0

        def send():
            client = Client(address)
            while (due := bodies.get()) is not None:
                body = bulk(BULK)
                time.sleep(max(0, due - time.monotonic()))
                answer = client.ask("POST", "/events/_bulk?filter_path=errors", body, "application/x-ndjson")
                assert not answer["errors"]
                late.append(time.monotonic() - due)

        clients = [threading.Thread(target=send) for _ in range(4)]
        began = time.monotonic()
        for number in range(args.rate * args.seconds // BULK):
            bodies.put(began + number * BULK / args.rate)
        [bodies.put(None) for _ in clients]
        [client.start() for client in clients]
        while any(client.is_alive() for client in clients):
            record = rules.ask("GET", shown)
            lags.append(record["lag"])
            most = max(most, memory(server.pid))
            time.sleep(0.1)
        took = time.monotonic() - began
        quarter = len(lags) // 4
        cut = statistics.quantiles(lags, n=100)
        # Connections that nobody uses are closed.
        data = Client(address)
        alerts = data.ask("GET", "/alert/_count?ignore_unavailable=true")["count"]
        errors = data.ask("GET", "/alert_error/_count?ignore_unavailable=true")["count"]
        print(f"{args.rules} rules, {args.rate * args.seconds} events in {took:.1f} s; a bulk is answered {max(late):.2f} s late at most")
        print(f"lag in ms: p50 {cut[49]:.0f}, p99 {cut[98]:.0f}, most {max(lags)}")
        print(f"mean lag of the first quarter {statistics.mean(lags[:quarter]):.0f} ms, of the last {statistics.mean(lags[-quarter:]):.0f} ms")
        print(f"{alerts} alerts, {errors} errors, {most:.0f} MiB resident at most")
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
