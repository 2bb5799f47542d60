#!/usr/bin/env python3
"""Has a server draw the picture of docs/ai.md: python3 docs/ai-picture.py SERVER-BINARY. Needs nothing but Python."""

import http.client
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

HOUR = 3_600_000
XSRF = {"content-type": "application/json", "console-xsrf": "true"}


def ask(address, method, path, body=None, kind="application/json"):
    connection = http.client.HTTPConnection(address, timeout=60)
    text = body if isinstance(body, (str, type(None))) else json.dumps(body)
    connection.request(method, path, text, XSRF | {"content-type": kind})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status >= 300:
        sys.exit(f"{method} {path}: {answer.status} {data[:500]!r}")
    return data.decode()


def main():
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {f"MILLRACE_{part}__LISTEN": "127.0.0.1:0" for part in ("PIPELINES", "CONSOLE", "FLIGHT")}
        environment["MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED"] = "false"
        command = [sys.argv[1], "serve", "--insecure", "--data", directory, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            console = data = None
            for line in server.stdout:
                if found := re.search(r"the console is on http://(\S+)", line):
                    console = found[1]
                if found := re.search(r"listening on http://(\S+)", line):
                    data = found[1]
                    break
            rng = random.Random(1)
            start = int(time.time() * 1000) // HOUR * HOUR
            mapping = {"mappings": {"properties": {"@timestamp": {"type": "date"}, "system.load": {"type": "double"}}}}
            ask(data, "PUT", "/metrics", mapping)
            lines = []
            for ago in range(1, 337):
                at = start - ago * HOUR
                load = 2.5 + 1.5 * math.sin(at / HOUR % 24 / 24 * math.tau - 1.8) + rng.gauss(0, 0.25) + (336 - ago) * 0.002
                lines.append('{"create":{}}\n' + json.dumps({"@timestamp": at + 1000, "system": {"load": round(load, 3)}}) + "\n")
            ask(data, "POST", "/metrics/_bulk?refresh=true", "".join(lines), "application/x-ndjson")
            pattern = {"attributes": {"title": "metrics", "timeFieldName": "@timestamp"}}
            ask(console, "POST", "/api/saved_objects/index-pattern/metrics", pattern)
            source = json.dumps({"index": "metrics", "query": {"language": "kuery", "query": ""}, "filter": []})
            search = {"attributes": {"title": "load", "kibanaSavedObjectMeta": {"searchSourceJSON": source}}}
            ask(console, "POST", "/api/saved_objects/search/load", search)
            rule = {
                "model_name": "load", "algorithm_type": "LRS", "search": "search:load", "label_field": {"field": "system.load"},
                "value_type": "avg", "time_frame": "1 hour", "max_probes": 336, "max_predictions": 24, "threshold": 5,
                "automatic_cron": "5 * * * *", "automatic_enable": False, "automatic": False, "start_date": "now",
                "multiply_by_field": "none", "multiply_by_values": [],
            }
            id = json.loads(ask(console, "PUT", "/api/ai/create", rule))["id"]
            print(ask(console, "GET", f"/api/ai/run/{id}"))
            # Without a moment in which predictions are not found yet.
            ask(data, "POST", "/intelligence/_refresh")
            picture = ask(console, "GET", f"/api/ai/plot/{id}")
            (pathlib.Path(__file__).parent / "ai.svg").write_text(picture)
        finally:
            server.terminate()
            server.wait(60)


main()
