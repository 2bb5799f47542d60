"""What the clients of Arrow Flight read: an index with values of all types, statements over it, and what `_plugins/_sql`
answers to them, value for value."""

import base64
import datetime
import decimal
import json

import numpy
import pyarrow

from target import SETTINGS, call, expect

INDEX = "client-flight"
OTHER = "client-flight-hosts"
HIDDEN = "client-flight-hidden"
COUNT = 300

PROPERTIES = {
    "number": "integer",
    "text": "text",
    "word": "keyword",
    "words": "keyword",
    "long": "long",
    "longs": "long",
    "short": "short",
    "byte": "byte",
    "unsigned": "unsigned_long",
    "double": "double",
    "float": "float",
    "half": "half_float",
    "flag": "boolean",
    "at": "date",
    "nanos": "date_nanos",
    "times": "date",
    "ip": "ip",
    "host": "keyword",
}
SCALED = {"type": "scaled_float", "scaling_factor": 100}
OBJECT = {"properties": {"name": {"type": "keyword"}, "size": {"type": "long"}}}
MAPPINGS = {"properties": {**{name: {"type": kind} for name, kind in PROPERTIES.items()}, "scaled": SCALED, "object": OBJECT}}


def document(number):
    """One document; each seventh has the number alone, so that every column has nulls."""
    if number % 7 == 6:
        return {"number": number, "words": [], "longs": None}
    return {
        "number": number,
        "text": f"request number {number} was {'refused' if number % 5 == 0 else 'served'}, über “quotes”\n",
        "word": f"w{number % 11}",
        "words": [f"w{number % 3}", f"x{number % 4}"] if number % 2 else f"w{number % 3}",
        "long": (1 << 53) + number if number % 3 else -number,
        "longs": [number, number + 1, number + 2][: number % 3 + 1],
        "short": number - 150,
        "byte": number % 256 - 128,
        "unsigned": (1 << 64) - 1 - number,
        "double": number / 7,
        "float": number / 8 + 0.1,
        "half": number / 4,
        "flag": number % 2 == 0,
        "at": f"2024-05-{1 + number % 28:02}T12:{number % 60:02}:00.{number:03}Z",
        "nanos": f"2024-05-{1 + number % 28:02}T12:00:00.123456{number:03}Z",
        "times": [f"2023-01-{1 + number % 28:02}T00:00:00Z", "2023-02-01T01:02:03.004Z"],
        "ip": f"10.0.{number % 7}.{number % 250}" if number % 2 else f"2001:db8::{number:x}",
        "host": f"web-{number % 4}",
        "scaled": number / 100,
        "object": [{"name": "one"}, {"name": "two", "size": 2}] if number % 10 == 3 else {"name": f"o{number}", "size": number},
    }


def make():
    """Makes the indices anew."""
    hosts = {"properties": {"name": {"type": "keyword"}, "rack": {"type": "integer"}}}
    for index, mappings in [(INDEX, MAPPINGS), (OTHER, hosts), (HIDDEN, hosts)]:
        call("DELETE", f"/{index}")
        status, answer = call("PUT", f"/{index}", {"settings": SETTINGS, "mappings": mappings})
        expect(status, 200, f"create {index}: {answer}")
    documents = [(INDEX, document(number)) for number in range(COUNT)]
    documents += [(OTHER, {"name": f"web-{number}", "rack": number * 10}) for number in range(5)]
    documents += [(HIDDEN, {"name": "secret", "rack": 1})]
    for at, (index, source) in enumerate(documents):
        status, answer = call("POST", f"/{index}/_doc", source)
        expect(status, 201, f"index: {answer}")
        # Some rows come from files, some from memory.
        if at == COUNT * 2 // 3:
            expect(call("POST", f"/{index}/_flush")[0], 200, "flush")
    for index in [INDEX, OTHER, HIDDEN]:
        call("POST", f"/{index}/_refresh")


def remove():
    for index in [INDEX, OTHER, HIDDEN]:
        call("DELETE", f"/{index}")


STATEMENTS = [
    f"SELECT * FROM {INDEX} ORDER BY number LIMIT 1000",
    f"SELECT number, words, longs, times FROM {INDEX} ORDER BY number LIMIT 1000",
    f"SELECT number, object.name, object.size FROM {INDEX} WHERE number < 20 ORDER BY number",
    f"SELECT number, unsigned, half, float, scaled FROM {INDEX} ORDER BY number DESC LIMIT 50",
    f"SELECT nanos, at FROM {INDEX} WHERE number >= 290 ORDER BY number",
    f"SELECT number FROM {INDEX} WHERE word = 'nowhere'",
    f"SELECT number, long + 1, double * 2, -short, number / 2, number % 4 FROM {INDEX} ORDER BY number LIMIT 40",
    f"SELECT word, COUNT(*), SUM(short), AVG(double), MIN(at), MAX(unsigned) FROM {INDEX} GROUP BY word ORDER BY word",
    f"SELECT words, COUNT(*) FROM {INDEX} GROUP BY words ORDER BY words",
    f"SELECT host, COUNT(DISTINCT word) AS words FROM {INDEX} WHERE flag = true GROUP BY host HAVING COUNT(*) > 3 ORDER BY host",
    f"SELECT COUNT(*), COUNT(longs), SUM(longs), MIN(ip), MAX(text) FROM {INDEX}",
    f"SELECT a.number, a.host, b.rack FROM {INDEX} a JOIN {OTHER} b ON a.host = b.name WHERE a.number < 50 ORDER BY a.number",
    f"SELECT a.number, b.rack FROM {INDEX} a LEFT JOIN {OTHER} b ON a.word = b.name WHERE a.number < 9 ORDER BY a.number",
    f"SELECT number, text FROM {INDEX} WHERE MATCH(text, 'refused') ORDER BY number LIMIT 30",
    f"SELECT number, CAST(at AS DATE), TIME(at), YEAR(at), CAST(number AS STRING) FROM {INDEX} ORDER BY number LIMIT 30",
    f"SELECT UPPER(word), CONCAT(word, '-', host), LENGTH(text) FROM {INDEX} ORDER BY number LIMIT 30",
    f"SELECT CASE WHEN number < 5 THEN 'few' ELSE 'many' END AS size, flag, number > 3 FROM {INDEX} ORDER BY number LIMIT 12",
    "SELECT 1",
    "SELECT 1, 'a', NULL, 1.5, TRUE, 2147483648",
]


def answer(statement):
    """What `_plugins/_sql` answers: the columns' names and the rows."""
    status, found = call("POST", "/_plugins/_sql", {"query": statement})
    expect(status, 200, f"{statement}: {found}")
    return [column.get("alias", column["name"]) for column in found["schema"]], found["datarows"]


def fraction(text):
    """Cuts zeros off a fraction of a second, as SQL's answers have them."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def plain(value, kind):
    """Renders a value that a client read as SQL's answers have it."""
    if value is None:
        return None
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        values = [plain(element, kind.value_type) for element in value]
        return values if len(values) > 1 else values[0] if values else None
    if pyarrow.types.is_struct(kind):
        return {name: plain(value[name], kind.field(name).type) for name in value}
    if pyarrow.types.is_float16(kind) or pyarrow.types.is_float32(kind):
        return float(str(numpy.float32(value)))
    if isinstance(value, datetime.datetime):
        digits = getattr(value, "nanosecond", 0)
        return fraction(f"{value:%Y-%m-%d %H:%M:%S.%f}{digits:03}")
    if isinstance(value, datetime.time):
        return fraction(f"{value:%H:%M:%S.%f}")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def expected_value(cell):
    """Objects, and arrays of them, come as JSON text by Flight."""
    has_members = isinstance(cell, dict) or isinstance(cell, list) and isinstance(cell[0], dict)
    return json.dumps(cell, separators=(",", ":"), ensure_ascii=False) if has_members else cell


def compare(statement, table):
    """Compares a table that a client read with SQL's answer."""
    names, rows = answer(statement)
    expect(table.column_names, names, f"{statement}: columns")
    columns = [[plain(value.as_py(), column.type) for value in column] for column in table.columns]
    found = [list(row) for row in zip(*columns)] if columns else []
    expected = [[expected_value(cell) for cell in row] for row in rows]
    expect(len(found), len(expected), f"{statement}: rows")
    for at, (mine, theirs) in enumerate(zip(found, expected)):
        for name, one, other in zip(names, mine, theirs):
            same = one == other and isinstance(one, bool) == isinstance(other, bool)
            assert same, f"{statement}: row {at}, {name}: {one!r}, expected {other!r}"
