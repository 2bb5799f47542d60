#!/usr/bin/env python3
"""Checks detectors through a whole server: planted anomalies, and the lag and cost of scoring beside ingest.

    cargo build --release -p millrace-server
    python3 benchmarks/src/detectors.py --server target/release/millrace --only planted,speed

`planted` writes a day of requests, as of a web server, with odd minutes and odd requests among them. The goal is a precision and a recall of
0.9 within one bucket, and a picture that marks them. `speed` has ten detectors of eight fields score requests that arrive at a set rate. The
goals are a lag of the 99th hundredth below a second, ingest of other documents that is at most 15 % slower, and 500 MB of memory at most.
Each figure is printed with its goal; a figure that misses its goal ends the script with 1. Needs nothing but Python.
"""

import argparse
import bisect
import datetime
import json
import math
import os
import pathlib
import random
import re
import sys
import threading
import time

from ai import BATCH, MINUTE, Client, start

FAILED = []
FIELDS = [f"f{number}" for number in range(8)]
NDJSON = "application/x-ndjson"


def report(name, value, goal, passed):
    print(f"{'ok  ' if passed else 'MISS'} {name}: {value} (goal {goal})", flush=True)
    if not passed:
        FAILED.append(name)


def detector(name, index, model_type, **members):
    body = {
        "name": name,
        "index": index,
        "query": {"match_all": {}},
        "time_field": "@timestamp",
        "time_frame": "1 day",
        "value_type": "avg",
        "model_type": model_type,
        "automatic_cron": "0 0 1 1 *",
        "automatic_enable": True,
        "automatic": True,
        "multiply_by_field": "none",
        "multiply_by_values": [],
    }
    return body | members


def write(data, index, documents):
    for first in range(0, len(documents), BATCH):
        lines = ('{"create":{}}\n' + json.dumps(document) + "\n" for document in documents[first : first + BATCH])
        answer = data.ask("POST", f"/{index}/_bulk?filter_path=errors", "".join(lines).encode(), NDJSON)
        assert not answer["errors"]
    data.ask("POST", f"/{index}/_refresh")


def search(data, index, **body):
    return data.ask("POST", f"/{index}/_search", {"size": 10_000} | body)["hits"]["hits"]


def request(numbers, at, kind="usual"):
    """A request of a web server: usual, slow, or one of a scan, which is quick, large and refused."""
    took = numbers.lognormvariate(3, 0.3) * (8 if kind == "slow" else 1)
    size = numbers.lognormvariate(8, 0.5)
    if kind == "scan":
        took, size = numbers.uniform(0.5, 1), numbers.uniform(4e5, 6e5)
    status = 403 if kind == "scan" else numbers.choice([200] * 19 + [404])
    path = f"/images/{numbers.randrange(200)}.gif"
    return {"@timestamp": at, "took": round(took, 2), "bytes": int(size), "status": status, "request": f"GET {path}"}


def judge(name, found, planted, apart):
    """Compares what is flagged with what is planted, both numbers of buckets or of documents."""
    near = lambda one, others: any(one + step in others for step in range(-apart, apart + 1))
    precision = sum(near(one, planted) for one in found) / max(1, len(found))
    recall = sum(near(one, found) for one in planted) / len(planted)
    shown = f"precision {precision:.2f}, recall {recall:.2f} of {len(planted)}"
    report(name, shown, ">= 0.9 both", min(precision, recall) >= 0.9)
    if min(precision, recall) < 0.9:
        print(f"     found {sorted(found)[:50]}, planted {sorted(planted)[:50]}")


def check_planted(data, console):
    properties = {"@timestamp": {"type": "date"}, "took": {"type": "double"}, "bytes": {"type": "long"}, "status": {"type": "short"}}
    properties["request"] = {"type": "text"}
    data.ask("PUT", "/requests", {"mappings": {"properties": properties}})
    numbers = random.Random(4)
    now = int(time.time() * 1000) // MINUTE * MINUTE
    first = now - 1440 * MINUTE
    # Odd minutes of the last hours, none near another, and at no regular distance: bursts, outages, and slow answers.
    minutes = numbers.sample(range(700, 1435, 7), 18)
    odd = {minute: ("burst", "outage", "slow")[place % 3] for place, minute in enumerate(minutes)}
    documents = []
    for minute in range(1440):
        rate = 80 + 30 * math.sin(minute / 1440 * math.tau)
        kind = odd.get(minute, "usual")
        count = round(numbers.gauss(rate, math.sqrt(rate)) * {"burst": 5, "outage": 0}.get(kind, 1))
        at = first + minute * MINUTE
        documents += [request(numbers, at + numbers.randrange(MINUTE), kind) for _ in range(max(1, count))]
    write(data, "requests", documents)
    minute_of = lambda text: (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000 - first) // MINUTE
    for value_type, kinds in (("count", ("burst", "outage")), ("avg", ("slow",))):
        planted = {minute for minute, kind in odd.items() if kind in kinds}
        name = f"{value_type} of took"
        share = len(planted) / 1296
        body = detector(name, "requests", "univariate", field="took", value_type=value_type, contamination=share, automatic=False)
        id = console.ask("POST", "/api/ai/change", body)["id"]
        message = console.ask("GET", f"/api/ai/run/{id}")["message"]
        data.ask("POST", "/requests-univariate-*/_refresh")
        query = {"bool": {"filter": [{"term": {"ai.rule_uid": id}}, {"term": {"ai.anomaly_flag": True}}]}}
        hits = search(data, "requests-univariate-*", query=query)
        found = {int(minute_of(hit["_source"]["@timestamp"])) for hit in hits}
        print(f"     {message}")
        judge(f"odd minutes by {name}", found, planted, 1)
        picture = console.connection
        picture.request("GET", f"/api/ai/plot/{id}")
        drawn = picture.getresponse().read().decode()
        marks = drawn.count("<polygon")
        report(f"picture of {name}, marks", marks, f">= {len(found)}", "anomalies" in drawn and marks >= len(found))
    # Requests that arrive are scored one by one: a scan among them, and as many in the window.
    share = 0.01
    window = [request(numbers, now - numbers.randrange(1, 600) * MINUTE, "scan") for _ in range(int(len(documents) * share))]
    write(data, "requests", window)
    # The slow answers of before are odd, too.
    slow = sum(document["took"] > 80 for document in documents) / len(documents)
    body = detector("requests", "requests", "multivariate", fields=["took", "bytes", "status"], contamination=share + slow)
    id = console.ask("POST", "/api/ai/change", body)["id"]
    print(f"     {console.ask('GET', f'/api/ai/run/{id}')['message']}")
    arriving = [request(numbers, now, "scan" if number % 100 == 50 else "usual") | {"number": number} for number in range(6000)]
    write(data, "requests", arriving)
    while console.ask("GET", f"/api/ai/show/{id}")["_source"]["scored_documents"] < len(arriving):
        time.sleep(0.1)
    data.ask("POST", "/requests-multivariate-*/_refresh")
    hits = search(data, "requests-multivariate-*", query={"term": {"ai.anomaly_flag": True}}, _source=["source_id"])
    flagged = {hit["_source"]["source_id"] for hit in hits}
    hits = search(data, "requests", query={"exists": {"field": "number"}}, _source=["number"])
    found = {hit["_source"]["number"] for hit in hits if hit["_id"] in flagged}
    judge("odd requests", found, {number for number in range(6000) if number % 100 == 50}, 0)
    console.ask("DELETE", f"/api/ai/delete/{id}")


def rows(numbers, count, at):
    lines = []
    for _ in range(count):
        members = ",".join(f'"{field}":{numbers.gauss(100, 10):.3f}' for field in FIELDS)
        lines.append('{"create":{}}\n{"@timestamp":%d,%s}\n' % (at - numbers.randrange(3_600_000), members))
    return "".join(lines).encode()


class Feed(threading.Thread):
    """Sends bulks to an index, at a rate of documents a second or as fast as the server takes them."""

    def __init__(self, address, index, bodies, size, rate=None):
        super().__init__(daemon=True)
        self.client, self.path, self.bodies, self.size, self.rate = Client(address), f"/{index}/_bulk?filter_path=errors", bodies, size, rate
        self.stopped = threading.Event()
        # Times at which so many documents were acknowledged.
        self.times, self.counts = [time.monotonic()], [0]

    def run(self):
        begin, number = time.monotonic(), 0
        while not self.stopped.is_set():
            if self.rate and (ahead := begin + number * self.size / self.rate - time.monotonic()) > 0:
                time.sleep(ahead)
            self.client.ask("POST", self.path, self.bodies[number % len(self.bodies)], NDJSON)
            number += 1
            self.times.append(time.monotonic())
            self.counts.append(number * self.size)

    def stop(self):
        self.stopped.set()
        self.join()
        return self.counts[-1] / (self.times[-1] - self.times[0])


def resident(server):
    text = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def processor(server):
    """Processor seconds of all threads of the server."""
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rsplit(")")[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_speed(server, address, console, args):
    data, numbers = Client(address), random.Random(2)
    properties = {"@timestamp": {"type": "date"}} | {field: {"type": "double"} for field in FIELDS}
    now = int(time.time() * 1000)
    for index in ("rows", "beside"):
        data.ask("PUT", f"/{index}", {"mappings": {"properties": properties}, "settings": {"index.refresh_interval": "30s"}})
    bodies = [rows(numbers, 500, now) for _ in range(40)]
    for body in bodies:
        data.ask("POST", "/rows/_bulk?filter_path=errors", body, NDJSON)
    data.ask("POST", "/rows/_refresh")

    def ingest(seconds):
        feed = Feed(address, "beside", bodies, 500)
        feed.start()
        time.sleep(seconds)
        return feed.stop()

    ingest(3)
    for rate in args.rates:
        # The same documents arrive both times, the second time with detectors that score them.
        feed = Feed(address, "rows", bodies, 500, rate)
        feed.start()
        used = processor(server)
        alone = ingest(args.seconds)
        used_alone = processor(server) - used
        feed.stop()
        before = resident(server)
        ids = [
            console.ask("POST", "/api/ai/change", detector(f"rows {rate} {number}", "rows", "multivariate", fields=FIELDS, random_state=number))["id"]
            for number in range(args.detectors)
        ]
        for id in ids:
            console.ask("GET", f"/api/ai/run/{id}")
        feed = Feed(address, "rows", bodies, 500, rate)
        feed.start()
        lags, peak, stopped = [], [before], threading.Event()

        def watch():
            client = Client(console.address)
            while not stopped.is_set():
                shown = [client.ask("GET", f"/api/ai/show/{id}")["_source"].get("scored_documents", 0) for id in (ids[0], ids[-1])]
                now, scored = time.monotonic(), min(shown)
                place = bisect.bisect_right(feed.counts, scored)
                lags.append(now - feed.times[place] if place < len(feed.counts) else 0.0)
                peak.append(resident(server))
                time.sleep(0.05)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        used = processor(server)
        beside = ingest(args.seconds)
        used_beside = processor(server) - used
        sent = feed.stop()
        stopped.set()
        watcher.join()
        lag = sorted(lags)[int(len(lags) * 0.99)]
        of = f"{args.detectors} detectors, {rate} documents a second ({sent:.0f} sent)"
        report(f"{of}, lag p99 of {len(lags)} looks, seconds", f"{lag:.2f} (p50 {sorted(lags)[len(lags) // 2]:.2f})", "< 1", lag < 1)
        slower = 1 - beside / alone
        report(f"{of}, ingest beside, {alone:.0f}/s alone and {beside:.0f}/s, slower", f"{slower:.1%}", "<= 15 %", slower <= 0.15)
        # What a document costs alone, it costs beside detectors, too.
        cost = max(0.0, used_beside - used_alone * beside / alone) / (rate * args.detectors * args.seconds)
        print(f"     processor: {used_alone / args.seconds:.2f} cores alone, {used_beside / args.seconds:.2f} beside; {cost * 1e6:.1f} us a result")
        report(f"{of}, memory, MB (before {before:.0f})", round(max(peak)), "< 500", max(peak) < 500)
        for id in ids:
            console.ask("DELETE", f"/api/ai/delete/{id}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, default=pathlib.Path("target/release/millrace"))
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("target/benchmarks/detectors"))
    parser.add_argument("--only", default="planted,speed")
    parser.add_argument("--detectors", type=int, default=10)
    parser.add_argument("--rates", type=lambda text: [int(rate) for rate in text.split(",")], default=[2_000, 20_000])
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    wanted = set(args.only.split(","))
    server, address, site = start(args.server, args.directory)
    try:
        console = Client(site)
        console.address = site
        if "planted" in wanted:
            check_planted(Client(address), console)
        if "speed" in wanted:
            check_speed(server, address, console, args)
    finally:
        server.terminate()
        server.wait(60)
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
