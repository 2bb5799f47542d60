#!/usr/bin/env python3
"""Times `timechart` of PPL beside the same groups in DuckDB, which reads the Parquet files that Millrace wrote.

    cargo build --release -p millrace-server
    python3 -m venv venv && venv/bin/pip install duckdb numpy pyarrow adbc-driver-flightsql adbc-driver-manager
    venv/bin/python benchmarks/src/sql/timechart.py --server target/release/millrace --rows 10000000

The rows are requests of 30 days by 8 hosts. Prints medians in milliseconds, warm, and their ratio (goal: 1.2); those of Millrace have HTTP and
JSON in them. Answers are compared: a difference ends the program with code 1.
"""

import sys
import time

import numpy
import pyarrow as pa

from beside_duckdb import arguments, database, same_numbers, serving, timed, view, write

CHUNK = 50_000
HOSTS = [f"web-{number}" for number in range(8)]
START_MS, DAYS = 1_772_323_200_000, 30
PROPERTIES = {"@timestamp": {"type": "date"}, "host": {"type": "keyword"}, "bytes": {"type": "long"}, "took": {"type": "double"}}
# Each with the statement for DuckDB, in rows of the same columns.
CHARTS = [
    (
        "count by hour",
        "timechart span=1h count() as n",
        "SELECT time_bucket(INTERVAL 1 HOUR, \"@timestamp\") AS t, count(*) AS n FROM requests GROUP BY t ORDER BY t",
    ),
    (
        "average of a double by minute",
        "timechart span=1m avg(took) as a",
        "SELECT time_bucket(INTERVAL 1 MINUTE, \"@timestamp\") AS t, avg(took) AS a FROM requests GROUP BY t ORDER BY t",
    ),
    (
        "count by hour and host",
        "timechart span=1h count() as n by host",
        "SELECT time_bucket(INTERVAL 1 HOUR, \"@timestamp\") AS t, host, count(*) AS n FROM requests GROUP BY t, host ORDER BY t, host",
    ),
    (
        "sum of a long by hour and host",
        "timechart span=1h sum(bytes) as b by host",
        "SELECT time_bucket(INTERVAL 1 HOUR, \"@timestamp\") AS t, host, sum(bytes) AS b FROM requests GROUP BY t, host ORDER BY t, host",
    ),
]


def batches(rows):
    random = numpy.random.default_rng(1)
    schema = pa.schema([("@timestamp", pa.timestamp("ms")), ("host", pa.string()), ("bytes", pa.int64()), ("took", pa.float64())])

    def made():
        hosts = numpy.array(HOSTS)
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            times = START_MS + (numpy.arange(start, start + count) * (DAYS * 86_400_000) // rows)
            columns = [
                pa.array(times, pa.timestamp("ms")),
                pa.array(hosts[random.integers(len(HOSTS), size=count)]),
                pa.array(random.integers(200, 100_000, size=count)),
                pa.array(random.integers(1, 4_000, size=count) / 8),
            ]
            yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, made())


def load(client, arrow, rows):
    begin = time.perf_counter()
    write(client, arrow, "requests", PROPERTIES, batches(rows), rows)
    client.ask("POST", "/requests/_forcemerge?max_num_segments=4")
    print(f"loaded in {time.perf_counter() - begin:.1f} s", flush=True)


def plain(row):
    return [float(value) if isinstance(value, (int, float)) else str(value).removesuffix("+00:00") for value in row]


def equal(one, other):
    same = [same_numbers(a, b) if isinstance(a, float) and isinstance(b, float) else a == b for a, b in zip(one, other)]
    return len(one) == len(other) and all(same)


def main():
    parser = arguments(__doc__, "target/benchmarks/timechart")
    parser.add_argument("--rows", type=int, default=10_000_000)
    args = parser.parse_args()
    with serving(args, lambda client, arrow: load(client, arrow, args.rows)) as client:
        client.ask("PUT", "/_cluster/settings", {"transient": {"plugins.query.size_limit": 100_000}})
        peer = database()
        view(peer, client, args.directory, "requests")
        print(f"{'chart':34} {'millrace':>9} {'duckdb':>9} {'ratio':>6}")
        for name, command, sql in CHARTS:
            body = {"query": f"source=requests | {command}"}
            answer, own = timed(lambda: client.ask("POST", "/_plugins/_ppl", body)["datarows"], args.iterations)
            expected, theirs = timed(lambda: peer.execute(sql).fetchall(), args.iterations)
            answer, expected = sorted(map(plain, answer)), sorted(map(plain, expected))
            if len(answer) != len(expected) or not all(map(equal, answer, expected)):
                sys.exit(f"{name}: {len(answer)} rows, {len(expected)} expected; {answer[:2]} instead of {expected[:2]}")
            print(f"{name:34} {own:9.1f} {theirs:9.1f} {own / theirs:6.2f}", flush=True)


if __name__ == "__main__":
    main()
