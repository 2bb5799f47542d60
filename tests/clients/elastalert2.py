"""Rules raise the alerts that the rule classes of ElastAlert raise, called directly on the same events in order.

Both get seeded rules of each type and events with single-valued keys, `realert: 0`. What is known to differ is listed in
docs/rules.md and not generated here. It needs no server but the example `replay` of the crate `rules`
(`cargo build -p millrace-rules --example replay`), or the program that RULES_REPLAY names, and runs by itself where the
packages of requirements-elastalert2.txt are installed. RULES_CASES says how many rules are compared (400), RULES_SEED
which ones.
"""

import collections
import copy
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys

from elastalert import ruletypes
from elastalert.util import ts_to_dt

START = datetime.datetime(2026, 12, 10, tzinfo=datetime.timezone.utc)
REPLAY = pathlib.Path(
    os.environ.get("RULES_REPLAY") or pathlib.Path(__file__).resolve().parents[2] / "target/debug/examples/replay"
)
CASES = int(os.environ.get("RULES_CASES", "400"))
SEED = int(os.environ.get("RULES_SEED", "1"))
FIELDS = {"user": ["root", "admin", "guest"], "host": ["h1", "h2"], "port": ["22", "23", "80", "81", "443"]}
TYPES = ["any", "frequency", "cardinality", "blacklist", "whitelist", "change", "new_term"]


class NewTerms(ruletypes.NewTermsRule):
    """Without the search for terms that are there already."""

    def get_all_terms(self, args):
        for field in self.fields:
            self.seen_values[tuple(field) if isinstance(field, list) else field] = []


CLASSES = {
    "any": ruletypes.AnyRule,
    "frequency": ruletypes.FrequencyRule,
    "cardinality": ruletypes.CardinalityRule,
    "blacklist": ruletypes.BlacklistRule,
    "whitelist": ruletypes.WhitelistRule,
    "change": ruletypes.ChangeRule,
    "new_term": NewTerms,
}


def rule_of(rng, kind):
    rule = {"name": "r", "index": "i", "type": kind, "realert": {"seconds": 0}, "timestamp_field": "@timestamp"}
    key = rng.choice([None, "user", "account.name", ["user", "host"]])
    if kind == "change":
        key = key or "user"
    if key and kind != "new_term":
        rule["query_key"] = key
    timeframe = {"seconds": rng.randint(5, 60)}
    if kind == "frequency":
        rule |= {"num_events": rng.randint(1, 6), "timeframe": timeframe, "attach_related": rng.random() < 0.3}
    elif kind == "cardinality":
        rule |= {"cardinality_field": "port", "max_cardinality": rng.randint(0, 4), "timeframe": timeframe}
    elif kind in ("blacklist", "whitelist"):
        rule |= {"compare_key": "port", kind: ["22", "23"], "ignore_null": rng.random() < 0.5}
    elif kind == "change":
        rule |= {"compare_key": rng.choice(["port", ["port", "host"]]), "ignore_null": rng.random() < 0.5}
        if rng.random() < 0.5:
            rule["timeframe"] = timeframe
    elif kind == "new_term":
        fields = ["user", ["user", "port"], "host"]
        rule |= {"fields": rng.sample(fields, rng.randint(1, 3)), "alert_on_missing_field": rng.random() < 0.5}
        rule["terms_window_size"] = {"days": 366}
    return rule


def events_of(rng, kind):
    events, now = [], 0
    for number in range(rng.randint(20, 120)):
        now += rng.choice([0, 1, 1, 2, 5, 20])
        at = now
        # Of a late event ElastAlert has another idea where it counts values.
        if kind != "cardinality" and rng.random() < 0.15:
            at -= rng.randint(1, 40)
        # No two are exactly the timeframe apart there: such a value is still in ElastAlert's window, and not in this one.
        ms = number * 7 % 1000 if kind == "cardinality" else 0
        time = START + datetime.timedelta(seconds=at, milliseconds=ms)
        event = {"n": number, "@timestamp": time.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        for field, values in FIELDS.items():
            if rng.random() < 0.9:
                event[field] = rng.choice(values)
        if rng.random() < 0.8:
            name = rng.choice(["x", "y"])
            event |= rng.choice([{"account.name": name}, {"account": {"name": name}}])
        events.append(event)
    return events


def elastalert(rule, events):
    """Returns of each alert the place of the event that raised it, and what it shows."""
    rule = copy.deepcopy(rule)
    for option in ("timeframe", "realert"):
        if option in rule:
            rule[option] = datetime.timedelta(**rule[option])
    key = rule.get("query_key")
    if isinstance(key, list):
        rule["compound_query_key"], rule["query_key"] = key, ",".join(key)
    if "compare_key" in rule:
        compare = rule["compare_key"]
        rule["compound_compare_key"] = compare if isinstance(compare, list) else [compare]
    instance = CLASSES[rule["type"]](rule)
    # Dictionaries of the class, which all rules of a process share.
    instance.change_map, instance.occurrence_time = {}, {}
    alerts = []
    for place, event in enumerate(events):
        event = copy.deepcopy(event)
        event["@timestamp"] = ts_to_dt(event["@timestamp"])
        if isinstance(key, list):
            event[rule["query_key"]] = ", ".join(str(event.get(field)) for field in key)
        instance.add_data([event])
        alerts += [(place, match) for match in instance.matches]
        instance.matches = []
    return alerts


def shown(rule, place, match):
    """What is compared of an alert."""
    compared = {"trigger": place, "n": match["n"]}
    if rule["type"] == "change":
        compared |= {"old": match["old_value"], "new": match["new_value"]}
    if rule.get("attach_related"):
        compared["related"] = [event["n"] for event in match["related_events"]]
    # ElastAlert leaves the names of other fields in the event.
    if rule["type"] == "new_term" and len(rule["fields"]) == 1:
        for member in ("new_field", "missing_field"):
            name = match.get(member)
            compared[member] = list(name) if isinstance(name, (tuple, list)) else name
    return compared


if not REPLAY.exists():
    print(f"missing: {REPLAY}")
    sys.exit(77)
rng = random.Random(SEED)
cases = []
for number in range(CASES):
    kind = TYPES[number % len(TYPES)]
    cases.append((rule_of(rng, kind), events_of(rng, kind)))
lines = "".join(json.dumps({"rule": rule, "events": events}) + "\n" for rule, events in cases)
answer = subprocess.run([REPLAY], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
assert len(answer) == len(cases), f"{len(answer)} answers to {len(cases)} rules"
counts = collections.Counter()
for (rule, events), line in zip(cases, answer):
    found = json.loads(line)
    assert isinstance(found, list), f"{rule}: {found}"
    found = [shown(rule, alert["trigger"], alert["match_body"]) for alert in found]
    wanted = [shown(rule, place, match) for place, match in elastalert(rule, events)]
    if found != wanted:
        at = next((at for at, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), min(len(found), len(wanted)))
        print(f"{rule}\nalert {at}: {found[at:at + 1]}, ElastAlert {wanted[at:at + 1]}", file=sys.stderr)
        print("\n".join(json.dumps(event) for event in events), file=sys.stderr)
        sys.exit(1)
    counts[rule["type"]] += len(wanted)
print(f"{len(cases)} rules, equal alerts: {dict(counts)}")
assert all(counts[kind] > 0 for kind in TYPES), counts
