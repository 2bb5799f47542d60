"""Counts events by key with ElastAlert's class `frequency`, called directly: as many events as the argument says."""

import datetime
import json
import sys
import time

from elastalert import ruletypes

events, keys = int(sys.argv[1]), int(sys.argv[2])
start = datetime.datetime(2026, 12, 10, tzinfo=datetime.timezone.utc)
rule = {
    "name": "r",
    "index": "i",
    "type": "frequency",
    "timestamp_field": "@timestamp",
    "query_key": "user",
    "num_events": 5,
    "timeframe": datetime.timedelta(seconds=60),
    "realert": datetime.timedelta(0),
}
instance = ruletypes.FrequencyRule(rule)
batches = [
    [
        {
            "@timestamp": start + datetime.timedelta(milliseconds=10 * number),
            "user": f"user-{number * 7919 % keys}",
            "n": number,
            "message": "Failed password for invalid user from 10.0.0.1 port 4711 ssh2",
        }
        for number in range(first, min(first + 500, events))
    ]
    for first in range(0, events, 500)
]
alerts, began = 0, time.monotonic()
for batch in batches:
    instance.add_data(batch)
    alerts += len(instance.matches)
    instance.matches = []
print(json.dumps({"alerts": alerts, "seconds": time.monotonic() - began}))
