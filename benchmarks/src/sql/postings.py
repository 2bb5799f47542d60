#!/usr/bin/env python3
"""Times what SQL answers from postings, by scores and over nested events, beside DuckDB or beside the same search.

    cargo build --release -p millrace-server
    python3 -m venv venv && venv/bin/pip install duckdb numpy pyarrow adbc-driver-flightsql adbc-driver-manager
    venv/bin/python benchmarks/src/sql/postings.py --server target/release/millrace

Makes three indices: `events`, events of the shape that JSONBench has, for its five queries; `texts`, messages of words whose frequency falls by
rank, in 10,000 groups; `keys`, 50 million rows with a key each, beside `wanted`, a thousand of the keys. Prints medians in milliseconds, warm,
and the ratio to what stands beside it, with the goal of each. DuckDB reads the Parquet files that Millrace wrote.
"""

import sys
import time

import numpy
import pyarrow as pa

from beside_duckdb import arguments, database, serving, timed, view, write

KEYWORD, DATE, TEXT = {"type": "keyword"}, {"type": "date"}, {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
COLLECTIONS = ["like", "post", "repost", "follow", "block", "profile", "listitem", "postgate", "threadgate", "list"]
SHARES = [0.55, 0.17, 0.12, 0.11, 0.02, 0.01, 0.008, 0.006, 0.004, 0.002]
CHUNK = 50_000
COMMITS = "kind = 'commit' AND operation = 'create'"
SPAN = {"millrace": "timestampdiff(MICROSECOND, min(time), max(time))", "duckdb": "date_diff('microsecond', min(time), max(time))"}
JSONBENCH = [
    ("events of each collection", "SELECT collection AS event, count(*) AS n FROM events GROUP BY collection ORDER BY n DESC"),
    (
        "their users",
        f"SELECT collection AS event, count(*) AS n, count(DISTINCT did) AS users FROM events WHERE {COMMITS} GROUP BY collection ORDER BY n DESC",
    ),
    (
        "hours of posts, reposts and likes",
        f"SELECT collection AS event, hour(time) AS h, count(*) AS n FROM events WHERE {COMMITS} AND collection IN ('app.bsky.feed.post', "
        "'app.bsky.feed.repost', 'app.bsky.feed.like') GROUP BY collection, hour(time) ORDER BY h, event",
    ),
    (
        "first users that posted",
        f"SELECT did, min(time) AS first FROM events WHERE {COMMITS} AND collection = 'app.bsky.feed.post' GROUP BY did ORDER BY first, did LIMIT 3",
    ),
    (
        "users of the longest activity",
        f"SELECT did, {{span}} AS span FROM events WHERE {COMMITS} AND collection = 'app.bsky.feed.post' GROUP BY did ORDER BY span DESC, did LIMIT 3",
    ),
]


def batches(schema, rows, columns):
    """A reader of chunks, each made by the random generator of its number."""

    def chunks():
        for first in range(0, rows, CHUNK):
            count = min(CHUNK, rows - first)
            yield pa.record_batch(columns(numpy.random.default_rng(first), first, count), schema=schema)

    return pa.RecordBatchReader.from_batches(schema, chunks())


def events(rows):
    names = pa.array([f"app.bsky.feed.{name}" for name in COLLECTIONS])
    kinds, operations = pa.array(["commit", "identity", "account"]), pa.array(["create", "delete", "update"])
    schema = pa.schema(
        [("did", pa.string()), ("kind", pa.string()), ("operation", pa.string()), ("collection", pa.string()), ("time", pa.timestamp("ms"))]
    )

    def columns(random, first, count):
        users = (random.pareto(0.8, count) * 1_000).astype(numpy.int64) % (rows // 5)
        return [
            pa.array([f"did:plc:{user * 2_654_435_761 % 2**40:012x}yqtuobjqihl" for user in users]),
            kinds.take(pa.array(random.choice(3, count, p=[0.99, 0.007, 0.003]))),
            operations.take(pa.array(random.choice(3, count, p=[0.93, 0.065, 0.005]))),
            names.take(pa.array(random.choice(len(COLLECTIONS), count, p=SHARES))),
            pa.array(1_732_206_349_000 + (first + numpy.arange(count)) * 3, pa.timestamp("ms")),
        ]

    return {name: KEYWORD for name in ("did", "kind", "operation", "collection")} | {"time": DATE}, batches(schema, rows, columns)


def texts(rows):
    schema = pa.schema([("message", pa.string()), ("groups", pa.string())])
    words = numpy.array(["log", *(f"word{rank}" for rank in range(1, 50_000))])

    def columns(random, first, count):
        drawn = words[numpy.minimum(random.zipf(1.2, (count, 6)), len(words) - 1)]
        return [
            pa.array([f"log {' '.join(row)} {first + number}" for number, row in enumerate(drawn)]),
            pa.array([f"group{number}" for number in random.integers(0, 10_000, count)]),
        ]

    return {"message": TEXT, "groups": KEYWORD}, batches(schema, rows, columns)


def keys(rows, step=1):
    schema = pa.schema([("id", pa.string())])

    def columns(_, first, count):
        # Keys of neighbours differ widely, as hashes do.
        return [pa.array([f"{number * step * 2_654_435_761 % 2**48:012x}" for number in range(first, first + count)])]

    return {"id": KEYWORD}, batches(schema, rows, columns)


def load(client, arrow, args):
    made = {
        "events": (args.events, events(args.events)),
        "texts": (args.texts, texts(args.texts)),
        "keys": (args.keys, keys(args.keys)),
        "wanted": (1_000, keys(1_000, args.keys // 1_000)),
    }
    for name, (rows, (properties, reader)) in made.items():
        begin = time.perf_counter()
        write(client, arrow, name, properties, reader, rows)
        client.ask("POST", f"/{name}/_forcemerge?max_num_segments=4")
        print(f"{name}: {rows} rows in {time.perf_counter() - begin:.1f} s", flush=True)


def print_line(name, ours, theirs, goal):
    print(f"{name:<44} {ours:10.1f} {theirs:10.1f} {ours / theirs:7.3f}  {goal}", flush=True)


def compare(client, peer, iterations):
    print(f"{'statement':<44} {'millrace':>10} {'beside':>10} {'ratio':>7}  goal")
    totals, wrong = [0.0, 0.0], 0
    for name, sql in JSONBENCH:
        asked = {engine: sql.format(span=SPAN[engine]) for engine in ("millrace", "duckdb")}
        ours, took = timed(lambda: client.rows(asked["millrace"]), iterations)
        theirs, beside = timed(lambda: peer.execute(asked["duckdb"]).fetchall(), iterations)
        totals = [totals[0] + took, totals[1] + beside]
        equal = [[str(cell)[:19] for cell in row] for row in ours] == [[str(cell)[:19] for cell in row] for row in theirs]
        wrong += not equal
        print_line(name + ("" if equal else " DIFFERS"), took, beside, "")
        if not equal:
            print(f"  {ours[:3]} {theirs[:3]}")
    print_line("JSONBench, total, beside DuckDB", *totals, "at most 1")
    for word in ("word3", "word300", "word30000"):
        counts = "SELECT count(*) FROM texts WHERE {}"
        ours, took = timed(lambda: client.rows(counts.format(f"match(message, '{word}')")), iterations)
        theirs, beside = timed(lambda: client.rows(counts.format(f"message LIKE '% {word} %'")), iterations)
        wrong += ours != theirs
        print_line(f"match of {word} beside LIKE", took, beside, "at most 0.1" if ours == theirs else f"DIFFERS {ours} {theirs}")
    for text in ("word3", "word3 word300"):
        sql = f"SELECT message FROM texts WHERE match(message, '{text}') ORDER BY _score DESC LIMIT 10"
        search = {"size": 10, "_source": ["message"], "query": {"match": {"message": text}}}
        took = timed(lambda: client.rows(sql), iterations * 5)[1]
        beside = timed(lambda: client.ask("POST", "/texts/_search?request_cache=false", search), iterations * 5)[1]
        print_line(f"ten best of {text} beside _search", took, beside, "at most 1.5")
    semi = "SELECT count(*) FROM keys k WHERE k.id IN (SELECT w.id FROM wanted w)"
    ours, took = timed(lambda: client.rows(semi), iterations)
    theirs, beside = timed(lambda: peer.execute(semi).fetchall(), iterations)
    wrong += ours[0][0] != theirs[0][0]
    print_line("semi-join of 1,000 keys", took, beside, "under 20 ms" if ours[0][0] == theirs[0][0] else "DIFFERS")
    best = (
        "SELECT groups, message FROM (SELECT groups, message, row_number() OVER (PARTITION BY groups ORDER BY _score DESC) AS r FROM texts "
        "WHERE match(message, 'log')) t WHERE r <= 3"
    )
    counted = f"SELECT count(*) FROM ({best}) b"
    ours, took = timed(lambda: client.rows(counted), iterations)
    print_line(f"three best of each group: {ours[0][0]} rows", took, 1_000.0, "under 1,000 ms")
    return wrong


def main():
    parser = arguments(__doc__, "target/benchmarks/sql")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--texts", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=50_000_000)
    args = parser.parse_args()
    with serving(args, lambda client, arrow: load(client, arrow, args)) as client:
        peer = database()
        for name in ("events", "keys", "wanted"):
            view(peer, client, args.directory, name)
        wrong = compare(client, peer, args.iterations)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
