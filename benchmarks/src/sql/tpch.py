#!/usr/bin/env python3
"""Asks the 22 queries of TPC-H of Millrace and of DuckDB, which reads the Parquet files that Millrace wrote.

    cargo build --release -p millrace-server
    python3 -m venv venv && venv/bin/pip install duckdb pyarrow tpchgen-cli adbc-driver-flightsql adbc-driver-manager
    venv/bin/python benchmarks/src/sql/tpch.py --server target/release/millrace --scale 1

Prints the median of each query in milliseconds, of both, warm, and their ratio; then the totals. Answers are compared row by row, numbers to a
relative 1e-9; a difference ends the program with code 1. Decimal columns are doubles in both.
"""

import pathlib
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

from beside_duckdb import arguments, database, same_numbers, serving, timed, view, write

TABLES = ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"]
STATEMENTS = pathlib.Path(__file__).with_name("tpch.sql")


def field_type(kind):
    """The type of a field for a column: numbers by their width, texts as keywords, days as dates."""
    if pa.types.is_integer(kind):
        return "long" if kind.bit_width == 64 else "integer"
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return "double"
    return "date" if pa.types.is_temporal(kind) else "keyword"


def plain(column):
    """The column as the index has it: doubles for decimals, milliseconds for days, texts of 32-bit offsets."""
    if pa.types.is_decimal(column.type):
        return column.cast(pa.float64())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.timestamp("ms"))
    return column if pa.types.is_integer(column.type) else column.cast(pa.string())


def load(client, arrow, args):
    generator = pathlib.Path(sys.executable).with_name("tpchgen-cli")
    tables = args.directory / "tables"
    subprocess.run([generator, "parquet", "--scale-factor", str(args.scale), "--output-dir", tables], check=True)
    begin = time.perf_counter()
    for name in TABLES:
        table = pq.read_table(tables / f"{name}.parquet")
        properties = {field.name: {"type": field_type(field.type)} for field in table.schema}
        table = pa.table({field.name: plain(table.column(field.name)) for field in table.schema})
        write(client, arrow, name, properties, table.to_reader(max_chunksize=50_000), table.num_rows)
        client.ask("POST", f"/{name}/_forcemerge?max_num_segments=4")
    print(f"loaded in {time.perf_counter() - begin:.1f} s")


def same(left, right):
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return same_numbers(left, right, near_zero=1e-12)
    return str(left)[:19] == str(right)[:19] if "-" in str(left) else left == right


def statements(scale):
    """The statements with their names."""
    text = STATEMENTS.read_text().replace("{fraction}", f"{0.0001 / scale:.10f}")
    parts = [part.partition("\n") for part in text.split("-- ")[1:]]
    return [(name, sql.strip().rstrip(";")) for name, _, sql in parts]


def main():
    parser = arguments(__doc__, "target/benchmarks/tpch")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 6 million rows of lineitem")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of statements")
    args = parser.parse_args()
    with serving(args, lambda client, arrow: load(client, arrow, args)) as client:
        peer = database()
        for name in TABLES:
            view(peer, client, args.directory, name)
        print(f"{'statement':<40} {'millrace':>10} {'duckdb':>10} {'ratio':>7}")
        totals, wrong = [0.0, 0.0], 0
        for name, sql in statements(args.scale):
            if args.only and int(name.split(":")[0]) not in args.only:
                continue
            theirs, beside = timed(lambda: peer.execute(sql).fetchall(), args.iterations)
            try:
                ours, median = timed(lambda: client.rows(sql), args.iterations)
            except RuntimeError as error:
                print(f"{name:<40} {error}")
                wrong += 1
                continue
            totals[0] += median
            totals[1] += beside
            equal = len(ours) == len(theirs) and all(same(a, b) for x, y in zip(ours, theirs) for a, b in zip(x, y))
            wrong += not equal
            print(f"{name:<40} {median:10.1f} {beside:10.1f} {median / beside:7.2f}{'' if equal else '  DIFFERENT ANSWERS'}", flush=True)
            if not equal:
                print(f"  {len(ours)} and {len(theirs)} rows: {ours[:2]} {theirs[:2]}")
        print(f"{'total':<40} {totals[0]:10.1f} {totals[1]:10.1f} {totals[0] / max(totals[1], 1e-9):7.2f}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
