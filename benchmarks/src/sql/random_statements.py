#!/usr/bin/env python3
"""Asks random statements of Millrace and of DuckDB, over the same rows, and compares the answers.

    cargo build --release -p millrace-server
    python3 -m venv venv && venv/bin/pip install duckdb adbc-driver-flightsql adbc-driver-manager
    venv/bin/python benchmarks/src/sql/random_statements.py --server target/release/millrace --statements 10000

The rows have nulls in every column but the key, stand in several segments, and some of each index are deleted. Statements have subqueries in
every position, correlated ones too, common table expressions, set operations, joins of up to three sources, groups with grouping sets, and
windows with frames. Rows are compared as a set with duplicates, and in order where the statement orders by all columns; numbers to a relative
1e-9, or to an absolute one near zero. Prints each difference with its statement and its seed, which `--seed` takes; a difference, or more than
one statement in a hundred that either of both refuses, ends the program with code 1.
"""

import collections
import datetime
import json
import random
import sys

import duckdb

from beside_duckdb import arguments, same_numbers, serving

INTEGER, DOUBLE, STRING, DATE, BOOLEAN = "integer", "double", "string", "date", "boolean"
COLUMNS = {"id": INTEGER, "k": INTEGER, "n": INTEGER, "x": DOUBLE, "g": STRING, "s": STRING, "d": DATE, "f": BOOLEAN}
FIELDS = {INTEGER: "long", DOUBLE: "double", STRING: "keyword", DATE: "date", BOOLEAN: "boolean"}
KINDS = {INTEGER: "BIGINT", DOUBLE: "DOUBLE", STRING: "VARCHAR", DATE: "TIMESTAMP", BOOLEAN: "BOOLEAN"}
TABLES = {"a": 240, "b": 120, "c": 40}
WORDS = ["ash", "birch", "cedar", "elm", "fir", "oak", "pine", "yew", "aspen", "alder"]
SEGMENTS = 4


# ---- rows ---------------------------------------------------------------------------------------


def row(key, random):
    values = {
        "k": random.randrange(12),
        "n": random.randrange(-1000, 1000),
        "x": random.randrange(-400, 400) / 4,
        "g": random.choice(WORDS[:4]),
        "s": random.choice(WORDS) + str(random.randrange(5)),
        "d": datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=random.randrange(2000)),
        "f": random.random() < 0.5,
    }
    return {"id": key} | {name: None if random.random() < 0.12 else value for name, value in values.items()}


def load(client, tables):
    """Writes the rows of each table in several segments, and deletes every seventh."""
    for name, rows in tables.items():
        properties = {column: {"type": FIELDS[kind]} for column, kind in COLUMNS.items()}
        client.ask("PUT", f"/{name}", {"mappings": {"dynamic": "strict", "properties": properties}})
        for part in range(SEGMENTS):
            for values in rows[part::SEGMENTS]:
                document = {
                    column: value.isoformat() + "Z" if isinstance(value, datetime.datetime) else value
                    for column, value in values.items()
                    if value is not None
                }
                client.ask("PUT", f"/{name}/_doc/{values['id']}", document)
            client.ask("POST", f"/{name}/_flush")
        for values in rows[::7]:
            client.ask("DELETE", f"/{name}/_doc/{values['id']}")
        client.ask("POST", f"/{name}/_refresh")


def rows_of_duckdb(tables):
    database = duckdb.connect()
    database.execute("SET threads = 1")
    for name, rows in tables.items():
        database.execute(f"CREATE TABLE {name} ({', '.join(f'{column} {KINDS[kind]}' for column, kind in COLUMNS.items())})")
        kept = [list(values.values()) for at, values in enumerate(rows) if at % 7]
        database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(COLUMNS))})", kept)
    return database


# ---- statements ---------------------------------------------------------------------------------


class Statements:
    """A generator of statements. A source is a list of (alias, columns by name); a scope is the sources that an expression may name."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0

    def chance(self, share):
        return self.random.random() < share

    def one(self, *choices):
        return self.random.choice(choices)

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    # -- expressions

    def columns(self, scope, kind):
        return [f"{alias}.{column}" for alias, columns in scope for column, of in columns.items() if of == kind]

    def literal(self, kind):
        if kind == INTEGER:
            return str(self.random.randrange(-20, 20))
        if kind == DOUBLE:
            return f"{self.random.randrange(-400, 400) / 4:.2f}"
        if kind == STRING:
            return f"'{self.random.choice(WORDS)}'"
        if kind == BOOLEAN:
            return self.one("TRUE", "FALSE")
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=self.random.randrange(80))
        return f"TIMESTAMP '{day} {self.random.randrange(24):02}:00:00'"

    def leaf(self, scope, kind):
        columns = self.columns(scope, kind)
        return self.random.choice(columns) if columns and self.chance(0.85) else self.literal(kind)

    def value(self, scope, kind, depth):
        if depth <= 0 or self.chance(0.45):
            return self.leaf(scope, kind)
        part = lambda of=kind: self.value(scope, of, depth - 1)  # noqa: E731
        choices = [
            lambda: f"CASE WHEN {self.condition(scope, depth - 1)} THEN {part()} ELSE {part()} END",
            lambda: f"COALESCE({part()}, {part()})",
            lambda: f"NULLIF({part()}, {part()})",
            lambda: self.scalar_subquery(scope, kind, depth - 1),
        ]
        if kind == INTEGER:
            choices += [lambda: f"({part()} {self.one('+', '-')} {part()})", lambda: f"ABS({part()})", lambda: f"LENGTH({part(STRING)})"]
        if kind == DOUBLE:
            choices += [lambda: f"({part()} {self.one('+', '-')} {part()})", lambda: f"ABS({part()})", lambda: f"FLOOR({part()})"]
        if kind == STRING:
            choices += [lambda: f"LOWER({part()})", lambda: f"CONCAT({self.leaf_column(scope, kind)}, '-')"]
        return self.random.choice(choices)()

    def leaf_column(self, scope, kind):
        return f"COALESCE({self.leaf(scope, kind)}, 'none')"

    def scalar_subquery(self, scope, kind, depth):
        source, inside = self.table()
        where = self.where_of_subquery(scope, inside, depth)
        if kind == INTEGER:
            shown = self.one("count(*)", f"max({self.leaf(inside, kind)})", f"count({self.leaf(inside, STRING)})")
        elif kind == DOUBLE:
            shown = f"{self.one('min', 'max', 'avg', 'sum')}({self.leaf(inside, kind)})"
        elif kind == BOOLEAN:
            return self.leaf(scope, kind)
        else:
            shown = f"{self.one('min', 'max')}({self.leaf(inside, kind)})"
        return f"(SELECT {shown} FROM {source}{where})"

    def where_of_subquery(self, scope, inside, depth):
        """The condition of a subquery: half of them correlated by an equality."""
        conditions = []
        if scope and self.chance(0.5):
            kind = self.one(INTEGER, INTEGER, STRING)
            outer, inner = self.columns(scope, kind), self.columns(inside, kind)
            if outer and inner:
                conditions.append(f"{self.random.choice(inner)} = {self.random.choice(outer)}")
        if self.chance(0.6):
            conditions.append(self.condition(inside, depth))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def condition(self, scope, depth):
        kind = self.one(INTEGER, INTEGER, DOUBLE, STRING, DATE)
        value = lambda: self.value(scope, kind, depth - 1)  # noqa: E731
        choices = [
            lambda: f"{value()} {self.one('=', '<>', '<', '<=', '>', '>=')} {value()}",
            lambda: f"{value()} {self.one('=', '<', '>=')} {self.literal(kind)}",
            lambda: f"{self.leaf(scope, kind)} {self.one('', 'NOT ')}BETWEEN {self.literal(kind)} AND {self.literal(kind)}",
            lambda: f"{value()} {self.one('', 'NOT ')}IN ({self.literal(kind)}, {self.literal(kind)}, {self.one('NULL', self.literal(kind))})",
            lambda: f"{value()} IS {self.one('', 'NOT ')}NULL",
            lambda: f"{self.leaf(scope, STRING)} {self.one('', 'NOT ')}LIKE '{self.one('a%', '%e%', '_i%', '%k1', 'oak_')}'",
        ]
        if depth > 0:
            choices += [
                lambda: f"({self.condition(scope, depth - 1)} {self.one('AND', 'OR')} {self.condition(scope, depth - 1)})",
                lambda: f"NOT ({self.condition(scope, depth - 1)})",
                lambda: self.membership(scope, kind, depth),
                lambda: self.exists(scope, depth),
                lambda: f"{value()} {self.one('<', '>', '=')} {self.scalar_subquery(scope, kind, depth - 1)}",
            ]
        return self.random.choice(choices)()

    def membership(self, scope, kind, depth):
        source, inside = self.table()
        where = self.where_of_subquery(scope, inside, depth - 1)
        columns = self.columns(inside, kind)
        subquery = f"(SELECT {self.random.choice(columns)} FROM {source}{where})"
        test = self.one("IN", "NOT IN", "= ANY", "<> ALL", "< ANY", ">= ALL")
        return f"{self.leaf(scope, kind)} {test} {subquery}"

    def exists(self, scope, depth):
        source, inside = self.table()
        return f"{self.one('', 'NOT ')}EXISTS (SELECT 1 FROM {source}{self.where_of_subquery(scope, inside, depth - 1)})"

    # -- sources

    def table(self):
        alias = self.name("t")
        return f"{self.one(*TABLES)} {alias}", [(alias, COLUMNS)]

    def source(self, depth, shared):
        """An index, a common table expression or a derived table, with its scope."""
        alias = self.name("t")
        if shared and self.chance(0.6):
            name, columns = self.random.choice(shared)
            return f"{name} {alias}", [(alias, columns)]
        if depth > 0 and self.chance(0.25):
            text, columns = self.select(depth - 1, shared)
            return f"({text}) {alias}", [(alias, columns)]
        return f"{self.one(*TABLES)} {alias}", [(alias, COLUMNS)]

    def sources(self, depth, shared):
        text, scope = self.source(depth, shared)
        for _ in range(self.one(0, 0, 0, 1, 1, 2)):
            other, added = self.source(depth, shared)
            kind = self.one(INTEGER, STRING)
            left, right = self.columns(scope, kind), self.columns(added, kind)
            if not left or not right:
                continue
            on = f"{self.random.choice(left)} = {self.random.choice(right)}"
            if self.chance(0.3):
                on += f" AND {self.condition(scope + added, 0)}"
            text += f" {self.one('JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN', 'JOIN')} {other} ON {on}"
            scope = scope + added
        return text, scope

    # -- selects

    def select(self, depth, shared=()):
        """A SELECT and the columns that it shows."""
        shape = self.one("plain", "plain", "groups", "windows", "sets") if depth > 0 else self.one("plain", "groups")
        return getattr(self, shape)(depth, list(shared))

    def where(self, scope, depth):
        return f" WHERE {self.condition(scope, depth)}" if self.chance(0.7) else ""

    def plain(self, depth, shared):
        text, scope = self.sources(depth, shared)
        kinds = [self.one(INTEGER, INTEGER, DOUBLE, STRING, STRING, DATE) for _ in range(self.one(1, 2, 3))]
        columns = {self.name("c"): kind for kind in kinds}
        shown = ", ".join(f"{self.value(scope, kind, depth)} AS {name}" for name, kind in columns.items())
        return f"SELECT {self.one('', '', 'DISTINCT ')}{shown} FROM {text}{self.where(scope, depth)}", columns

    def aggregate(self, scope, depth):
        kind = self.one(INTEGER, DOUBLE)
        value = self.value(scope, kind, min(depth, 1))
        shown = self.one(
            (INTEGER, "count(*)"),
            (INTEGER, f"count({value})"),
            (INTEGER, f"count(DISTINCT {self.leaf(scope, STRING)})"),
            (kind, f"sum({value})"),
            (kind, f"{self.one('min', 'max')}({value})"),
            (DOUBLE, f"avg({value})"),
            (STRING, f"{self.one('min', 'max')}({self.leaf(scope, STRING)})"),
            (INTEGER, f"sum(CASE WHEN {self.condition(scope, 0)} THEN 1 ELSE 0 END)"),
        )
        return shown

    def groups(self, depth, shared):
        text, scope = self.sources(depth, shared)
        keys = [(self.name("c"), kind) for kind in self.random.choices([INTEGER, STRING, DATE], k=self.one(0, 1, 1, 2))]
        keys = [(name, kind, self.random.choice(columns)) for name, kind in keys if (columns := self.columns(scope, kind))]
        columns = {name: kind for name, kind, _ in keys}
        shown = [f"{key} AS {name}" for name, _, key in keys]
        for _ in range(self.one(1, 2)):
            kind, value = self.aggregate(scope, depth)
            name = self.name("c")
            columns[name] = kind
            shown.append(f"{value} AS {name}")
        statement = f"SELECT {', '.join(shown)} FROM {text}{self.where(scope, depth)}"
        named = list(dict.fromkeys(key for _, _, key in keys))
        if named:
            sets = f"GROUPING SETS (({', '.join(named)}), ({named[0]}), ())"
            plain = ", ".join(named)
            statement += f" GROUP BY {self.one(plain, plain, plain, f'ROLLUP ({plain})', f'CUBE ({plain})', sets)}"
        if self.chance(0.3):
            having = self.one("count(*) > 2", f"max({self.leaf(scope, INTEGER)}) > {self.literal(INTEGER)}")
            statement += f" HAVING {having}"
        return statement, columns

    def windows(self, depth, shared):
        # The key of an index orders its rows in one way only.
        alias = self.name("t")
        table, scope = self.one(*TABLES), [(alias, COLUMNS)]
        columns = {self.name("c"): INTEGER}
        shown = [f"{alias}.id AS {next(iter(columns))}"]
        partition = self.one("", f"PARTITION BY {alias}.g ", f"PARTITION BY {alias}.k ")
        order = f"ORDER BY {self.one('', f'{alias}.n NULLS FIRST, ', f'{alias}.d DESC NULLS LAST, ')}{alias}.id"
        bounds = ["UNBOUNDED PRECEDING", "3 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING"]
        for _ in range(self.one(1, 2)):
            first, last = sorted(self.random.sample(range(len(bounds)), 2))
            frame = f" ROWS BETWEEN {bounds[first]} AND {bounds[last]}"
            kind, call, framed = self.one(
                (INTEGER, "row_number()", False),
                (INTEGER, "rank()", False),
                (INTEGER, "dense_rank()", False),
                (INTEGER, f"ntile({self.one(2, 3, 7)})", False),
                (DOUBLE, self.one("percent_rank()", "cume_dist()"), False),
                (INTEGER, f"{self.one('lag', 'lead')}({alias}.n, {self.one(1, 2)})", False),
                (STRING, f"{self.one('first_value', 'last_value')}({alias}.s)", True),
                (INTEGER, f"nth_value({alias}.n, 2)", True),
                (DOUBLE, f"{self.one('sum', 'min', 'max', 'avg')}({alias}.x)", True),
                (INTEGER, f"count({self.one('*', f'{alias}.g')})", True),
            )
            name = self.name("c")
            columns[name] = kind
            shown.append(f"{call} OVER ({partition}{order}{frame if framed else ''}) AS {name}")
        return f"SELECT {', '.join(shown)} FROM {table} {alias}{self.where(scope, depth)}", columns

    def sets(self, depth, shared):
        kinds = [self.one(INTEGER, STRING) for _ in range(self.one(1, 2))]
        names = {self.name("c"): kind for kind in kinds}
        parts = []
        for _ in range(self.one(2, 2, 3)):
            text, scope = self.sources(depth - 1, shared)
            shown = ", ".join(f"{self.leaf(scope, kind)} AS {name}" for name, kind in names.items())
            parts.append(f"SELECT {shown} FROM {text}{self.where(scope, depth - 1)}")
        # One operator a statement: they bind differently.
        return f" {self.one('UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT')} ".join(parts), names

    def statement(self):
        """A statement and if its rows have an order."""
        self.names = 0
        shared, text = [], ""
        if self.chance(0.3):
            definitions = []
            for _ in range(self.one(1, 2)):
                name = self.name("w")
                inner, columns = self.select(1, shared)
                definitions.append(f"{name} AS ({inner})")
                shared.append((name, columns))
            text = f"WITH {', '.join(definitions)} "
        body, columns = self.select(2, shared)
        text += body
        is_ordered = self.chance(0.4)
        if is_ordered:
            text += " ORDER BY " + ", ".join(f"{name} {self.one('ASC', 'DESC')} NULLS {self.one('FIRST', 'LAST')}" for name in columns)
            if self.chance(0.6):
                text += f" LIMIT {self.one(1, 5, 20)}{self.one('', f' OFFSET {self.one(1, 3)}')}"
        return text, is_ordered


# ---- answers ------------------------------------------------------------------------------------


def plain(value):
    """A value as both systems are compared by: instants as texts, whole numbers as doubles."""
    if isinstance(value, datetime.datetime):
        text = value.isoformat(sep=" ")
        return text[:-3] if value.microsecond else text
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return float(value)


def key(values):
    return json.dumps([float(f"{value:.9g}") + 0.0 if isinstance(value, float) else value for value in values])


def same(left, right):
    if isinstance(left, float) and isinstance(right, float):
        return same_numbers(left, right, near_zero=1e-9)
    return left == right


def equal(left, right, is_ordered):
    if len(left) != len(right):
        return False
    if not is_ordered:
        left, right = sorted(left, key=key), sorted(right, key=key)
    return all(len(one) == len(other) and all(map(same, one, other)) for one, other in zip(left, right))


def main():
    parser = arguments(__doc__, "target/benchmarks/random-statements")
    parser.add_argument("--statements", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first statement")
    args = parser.parse_args()
    if args.keep:
        sys.exit("--keep: the rows are made anew in each run")
    # The seed is that of statements alone: the rows are the same in every run.
    rows = random.Random(1)
    tables = {name: [row(at, rows) for at in range(count)] for name, count in TABLES.items()}
    database = rows_of_duckdb(tables)
    outcomes, refusals = collections.Counter(), collections.Counter()
    with serving(args, lambda client, _arrow: load(client, tables)) as client:
        for seed in range(args.seed, args.seed + args.statements):
            text, is_ordered = Statements(seed).statement()
            try:
                expected = [[plain(value) for value in values] for values in database.execute(text).fetchall()]
            except duckdb.Error as error:
                outcomes["not taken by DuckDB"] += 1
                refusals[f"DuckDB: {str(error).splitlines()[0][:120]}"] += 1
                continue
            try:
                answer = [[plain(value) for value in values] for values in client.rows(text)]
            except RuntimeError as error:
                outcomes["refused"] += 1
                refusals[str(error)[:400]] += 1
                if refusals[str(error)[:400]] == 1:
                    print(f"refused, seed {seed}: {text}\n  {error}", flush=True)
                continue
            if equal(answer, expected, is_ordered):
                outcomes["equal"] += 1
                outcomes["equal, with rows"] += bool(expected)
            else:
                outcomes["different"] += 1
                missing = [values for values in expected if values not in answer][:3]
                foreign = [values for values in answer if values not in expected][:3]
                print(f"different, seed {seed}: {text}\n  {len(answer)} rows, {len(expected)} expected; missing {missing}, foreign {foreign}", flush=True)
    for refusal, count in refusals.most_common(20):
        print(f"{count:6} {refusal}")
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    refused = max(outcomes["refused"], outcomes["not taken by DuckDB"])
    if outcomes["different"] or refused * 100 > args.statements:
        sys.exit(1)


if __name__ == "__main__":
    main()
