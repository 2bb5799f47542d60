"""ADBC's driver of Flight SQL: logins, statements, parameters, metadata, cancelling, ingest, frames."""

import datetime
import re
import sys
import threading

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pandas
import polars
import pyarrow
from adbc_driver_flightsql import DatabaseOptions

import flight_index
from flight_index import COUNT, HIDDEN, INDEX, OTHER, STATEMENTS, compare, document
from target import FLIGHT, PASSWORD, USER, call, expect

if not FLIGHT:
    sys.exit(77)
URI = f"grpc://{FLIGHT}"
MADE = "client-flight-made"


def connect(user=USER, password=PASSWORD):
    return flightsql.connect(URI, db_kwargs={"username": user, "password": password}, autocommit=True)


def refused(request, pattern, error=adbc_driver_manager.Error):
    try:
        request()
    except error as found:
        assert re.search(pattern, str(found)), f"{pattern!r} expected: {found}"
        return found
    raise AssertionError(f"no refusal with {pattern!r}")


def logins():
    for user, password in [(USER, "wrong"), ("nobody", PASSWORD), (USER, "")]:
        refused(lambda: connect(user, password).cursor().execute("SELECT 1"), "(?i)unauthenticated")
    refused(lambda: flightsql.connect(URI, autocommit=True).cursor().execute("SELECT 1"), "(?i)unauthenticated")

    status, made = call("POST", "/_security/api_key", {"name": "key-flight"})
    expect(status, 200, f"API key: {made}")
    header = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"ApiKey {made['encoded']}"}
    with flightsql.connect(URI, db_kwargs=header, autocommit=True) as by_key, by_key.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX}")
        expect(cursor.fetchone(), (COUNT,), "count by an API key")
    call("DELETE", "/_security/api_key", {"ids": [made["id"]]})
    refused(lambda: flightsql.connect(URI, db_kwargs=header, autocommit=True).cursor().execute("SELECT 1"), "(?i)unauthenticated")

    # A password may hold colons.
    user = {"password": "co:lon: :s", "roles": ["client-flight-reader"]}
    granted = [{"names": [INDEX, OTHER, "client-flight-ma*"], "privileges": ["read", "view_index_metadata"]}]
    expect(call("PUT", "/_security/role/client-flight-reader", {"indices": granted})[0], 200, "role")
    expect(call("PUT", "/_security/user/client-flight-reader", user)[0], 200, "user")
    with connect("client-flight-reader", user["password"]) as reader, reader.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX}")
        expect(cursor.fetchone(), (COUNT,), "count by a reader")
        refused(lambda: cursor.execute(f"SELECT * FROM {HIDDEN}"), "(?i)unauthorized|permission|no permissions|403")
        rows = pyarrow.table({"name": ["x"]})
        refused(lambda: cursor.adbc_ingest(OTHER, rows, "append"), "(?i)unauthorized|permission|403")
        refused(lambda: cursor.adbc_ingest(MADE, rows, "create"), "(?i)unauthorized|permission|403")
        found = tables(reader.adbc_get_objects(depth="tables").read_all())
        assert INDEX in found and OTHER in found, f"a reader sees {found}"
        assert HIDDEN not in found, f"a reader sees {HIDDEN}"
    call("DELETE", "/_security/user/client-flight-reader")
    call("DELETE", "/_security/role/client-flight-reader")


def statements(connection):
    with connection.cursor() as cursor:
        for statement in STATEMENTS:
            cursor.execute(statement)
            table = cursor.fetch_arrow_table()
            for column in table.schema:
                expect(pyarrow.types.is_string_view(column.type), False, f"{statement}: {column}")
            compare(statement, table)
            # The schema alone is that of the rows.
            expect(cursor.adbc_execute_schema(statement), table.schema, f"{statement}: execute_schema")
        refused(lambda: cursor.execute(f"SELECT nothing FROM {INDEX}"), "nothing")
        refused(lambda: cursor.execute("SELEC 1"), "(?i)syntax|SELEC")
        refused(lambda: cursor.execute("SELECT * FROM client-flight-nowhere"), "client-flight-nowhere")
        # No cut of 200 rows, as the other API has it.
        cursor.execute(f"SELECT number FROM {INDEX}")
        expect(sorted(row[0] for row in cursor.fetchall()), list(range(COUNT)), "all rows")


def parameters(connection):
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT number FROM {INDEX} WHERE number < ? AND word = ? AND double > ? ORDER BY number", (200, "w3", 5.5)
        )
        chosen = [d for d in map(document, range(200)) if d.get("word") == "w3" and d["double"] > 5.5]
        expect([row[0] for row in cursor.fetchall()], [d["number"] for d in chosen], "three parameters")
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX} WHERE flag = ? AND number <= ?", (True, 99))
        chosen = [d for d in map(document, range(100)) if d.get("flag")]
        expect(cursor.fetchone(), (len(chosen),), "a boolean")
        at = datetime.datetime(2024, 5, 10, tzinfo=datetime.timezone.utc)
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX} WHERE at < ?", (at,))
        chosen = [d for d in map(document, range(COUNT)) if "at" in d and d["at"] < "2024-05-10"]
        expect(cursor.fetchone(), (len(chosen),), "a timestamp")
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX} WHERE word = ?", (None,))
        expect(cursor.fetchone(), (0,), "a null")
        # A value is a value, whatever is in it.
        cursor.execute(f"SELECT COUNT(*) FROM {INDEX} WHERE word = ?", ("w1' OR '1' = '1",))
        expect(cursor.fetchone(), (0,), "quotes")
        schema = cursor.adbc_prepare(f"SELECT number FROM {INDEX} WHERE number = ? AND word = ?")
        expect(len(schema), 2, f"schema of parameters: {schema}")
        refused(lambda: cursor.execute("SELECT ?", ()).fetchall(), "(?i)parameter|placeholder")
        cursor.execute("SELECT ?", ("größer",))
        expect(cursor.fetchone(), ("größer",), "a parameter alone")


def tables(objects):
    schemas = [schema for catalog in objects.to_pylist() for schema in catalog["catalog_db_schemas"] or []]
    return {table["table_name"]: table for schema in schemas for table in schema["db_schema_tables"] or []}


def metadata(connection):
    catalogs = connection.adbc_get_objects(depth="catalogs").read_all().to_pylist()
    expect(len(catalogs), 1, f"catalogs: {catalogs}")
    schemas = connection.adbc_get_objects(depth="db_schemas").read_all().to_pylist()
    expect([catalog["catalog_name"] for catalog in schemas], [catalogs[0]["catalog_name"]], "catalogs of schemas")
    assert schemas[0]["catalog_db_schemas"], f"schemas: {schemas}"
    found = tables(connection.adbc_get_objects(depth="tables").read_all())
    assert {INDEX, OTHER, HIDDEN} <= set(found), f"tables: {sorted(found)}"
    expect(found[INDEX]["table_columns"] or [], [], "columns that were not asked for")
    found = tables(connection.adbc_get_objects(depth="all", table_name_filter="client-flight-ho%").read_all())
    expect(list(found), [OTHER], "tables by a pattern")
    columns = found[OTHER]["table_columns"]
    expect([column["column_name"] for column in columns], ["name", "rack"], "columns")
    expect([column["ordinal_position"] for column in columns], [1, 2], "places of columns")
    found = tables(
        connection.adbc_get_objects(depth="columns", table_name_filter=INDEX, column_name_filter="at").read_all()
    )
    expect([column["column_name"] for column in found[INDEX]["table_columns"]], ["at"], "columns by a name")
    kinds = connection.adbc_get_table_types()
    assert kinds and found[INDEX]["table_type"] in kinds, f"{found[INDEX]['table_type']} of {kinds}"
    found = tables(connection.adbc_get_objects(depth="tables", table_types_filter=["no such type"]).read_all())
    expect(found, {}, "tables of an unknown type")

    schema = connection.adbc_get_table_schema(OTHER)
    expect({field.name for field in schema}, {"name", "rack"}, "schema of a table")
    expect(schema.field("rack").type, pyarrow.int32(), "type of an integer")
    refused(lambda: connection.adbc_get_table_schema("client-flight-nowhere"), "NOT_FOUND")
    info = connection.adbc_get_info()
    assert "millrace" in str(info["vendor_name"]).lower() and info["vendor_version"], f"info: {info}"


def cancelling(connection):
    # Four million rows: far more than fits between server and client.
    joined = f"{INDEX} a JOIN {INDEX} b ON a.flag = b.flag JOIN {INDEX} c ON b.flag = c.flag"
    statement = f"SELECT a.text, b.text, c.number FROM {joined}"
    with connection.cursor() as cursor:
        cursor.execute(statement)
        reader = cursor.fetch_record_batch()
        reader.read_next_batch()
        threading.Timer(0.2, cursor.adbc_cancel).start()

        def drain():
            while True:
                reader.read_next_batch()

        refused(drain, "(?i)cancel", Exception)
    # One that answers nothing before its end.
    with connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        statement = f"SELECT COUNT(*), MAX(a.text) FROM {joined} JOIN {INDEX} d ON c.flag = d.flag"
        refused(lambda: cursor.execute(statement).fetchall(), "(?i)cancel", Exception)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        expect(cursor.fetchall(), [(1,)], "after cancelling")


def rows_of(index):
    call("POST", f"/{index}/_refresh")
    status, found = call("POST", f"/{index}/_search", {"size": 1000, "sort": ["number"]})
    expect(status, 200, f"search: {found}")
    return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}


def ingest(connection):
    def made(first, count):
        numbers = list(range(first, first + count))
        at = [datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=n) for n in numbers]
        return pyarrow.table(
            {
                "_id": [f"id-{n}" for n in numbers],
                "number": pyarrow.array(numbers, pyarrow.int64()),
                "text": [f"text “{n}”" if n % 3 else None for n in numbers],
                "half": pyarrow.array([n / 2 for n in numbers], pyarrow.float64()),
                "flag": [n % 2 == 0 for n in numbers],
                "at": pyarrow.array(at, pyarrow.timestamp("ms", "UTC")),
                "words": [[f"a{n}", f"b{n}"] for n in numbers],
            }
        )

    call("DELETE", f"/{MADE}")
    with connection.cursor() as cursor:
        refused(lambda: cursor.adbc_ingest(MADE, made(0, 2), "append"), f"(?i){MADE}|not found")
        expect(cursor.adbc_ingest(MADE, made(0, 10), "create"), 10, "create")
        expect(len(rows_of(MADE)), 10, "documents after create")
        refused(lambda: cursor.adbc_ingest(MADE, made(10, 2), "create"), "(?i)exists")
        expect(cursor.adbc_ingest(MADE, made(10, 5), "append"), 5, "append")
        expect(cursor.adbc_ingest(MADE, made(15, 5), "create_append"), 5, "create_append")
        found = rows_of(MADE)
        expect(sorted(found), sorted(f"id-{n}" for n in range(20)), "ids")
        expect(found["id-7"]["text"], "text “7”", "a text")
        expect(found["id-6"].get("text"), None, "a null")
        expect((found["id-7"]["half"], found["id-7"]["flag"], found["id-7"]["words"]), (3.5, False, ["a7", "b7"]), "values")
        # The same ids again are the same documents.
        expect(cursor.adbc_ingest(MADE, made(0, 20), "append"), 20, "append again")
        expect(len(rows_of(MADE)), 20, "documents after the same ids")
        cursor.execute(f"SELECT number, text, half, flag, at, words FROM {MADE} ORDER BY number LIMIT 1000")
        table = cursor.fetch_arrow_table()
        expected = made(0, 20).drop_columns("_id")
        for name in expected.column_names:
            found = table[name].to_pylist()
            expect(found, expected[name].to_pylist(), f"what was ingested, read again: {name}")
        expect(cursor.adbc_ingest(MADE, made(0, 3), "replace"), 3, "replace")
        expect(sorted(rows_of(MADE)), ["id-0", "id-1", "id-2"], "ids after replace")
        refused(lambda: cursor.adbc_ingest(MADE, made(0, 1), "append", temporary=True), "(?i)temporary")
        many = made(0, 1000)
        batches = many.to_batches(max_chunksize=100)
        reader = pyarrow.RecordBatchReader.from_batches(many.schema, batches)
        expect(cursor.adbc_ingest(MADE, reader, "replace"), 1000, "a stream of batches")
        # The driver sends nothing at all of a table without batches; one without rows is told apart.
        none = pyarrow.RecordBatch.from_pylist([], schema=many.schema)
        expect(cursor.adbc_ingest(MADE, none, "append"), 0, "no rows")

        # Without ids the server makes them.
        expect(cursor.adbc_ingest(MADE, made(0, 4).drop_columns("_id"), "replace"), 4, "replace without ids")
        expect(len(rows_of(MADE)), 4, "documents without ids")
    call("DELETE", f"/{MADE}")


def deletes():
    """Lets statements delete."""
    settings = {"transient": {"plugins.sql.delete.enabled": "true"}}
    return call("PUT", "/_plugins/_query/settings", settings)[0] == 200


def updates(connection):
    assert deletes(), "settings"
    with connection.cursor() as cursor:
        expect(cursor.adbc_ingest(MADE, pyarrow.table({"number": list(range(10))}), "replace"), 10, "ingest")
        call("POST", f"/{MADE}/_refresh")
        cursor.executemany(f"DELETE FROM {MADE} WHERE number = ?", [(3,)])
        expect(cursor.rowcount, 1, "deleted")
        call("POST", f"/{MADE}/_refresh")
        cursor.execute(f"SELECT COUNT(*) FROM {MADE}")
        expect(cursor.fetchone(), (9,), "what is left")
    call("DELETE", f"/{MADE}")
    call("PUT", "/_plugins/_query/settings", {"transient": {"plugins.sql.delete.enabled": "false"}})
    # There are no transactions, and the driver knows.
    refused(lambda: connection.adbc_connection.set_autocommit(False), "(?i)transaction|NOT_IMPLEMENTED")


def sizes(connection):
    """More rows than a message holds, and one row that is longer than what most of them hold together."""
    call("DELETE", f"/{MADE}")
    mappings = {"properties": {"number": {"type": "long"}, "text": {"type": "text", "index": False}}}
    expect(call("PUT", f"/{MADE}", {"mappings": mappings})[0], 200, "create")
    count, long = 60_000, "é" * 3_000_000
    texts = [long if n == 777 else f"a text of some length, as there are many of them: {n}" for n in range(count)]
    rows = pyarrow.table({"number": list(range(count)), "text": texts})
    with connection.cursor() as cursor:
        expect(cursor.adbc_ingest(MADE, rows.to_reader(max_chunksize=10_000), "append"), count, "rows")
        cursor.execute(f"SELECT number, text FROM {MADE}")
        reader = cursor.fetch_record_batch()
        found, batches = {}, 0
        for batch in reader:
            batches += 1
            found.update(zip(batch["number"].to_pylist(), batch["text"].to_pylist()))
        assert batches > 1, "all rows in one batch"
        expect(len(found), count, "rows read")
        wrong = [n for n in range(count) if found[n] != texts[n]]
        expect(wrong, [], "rows with another text")
        cursor.execute(f"SELECT number FROM {MADE} ORDER BY number DESC LIMIT 20000")
        expect([row[0] for row in cursor.fetchall()], list(range(count - 1, count - 20_001, -1)), "rows in order")
    call("DELETE", f"/{MADE}")


def frames(connection):
    statement = f"SELECT number, word, double, at FROM {INDEX} ORDER BY number LIMIT 1000"
    documents = [document(number) for number in range(COUNT)]
    with connection.cursor() as cursor:
        cursor.execute(statement)
        frame = cursor.fetch_df()
        expect(len(frame), COUNT, "rows of a frame of pandas")
        expect(int(frame["number"].sum()), COUNT * (COUNT - 1) // 2, "sum by pandas")
        expect(str(frame["at"].dt.tz), "UTC", "time zone in pandas")
        cursor.execute(statement)
        frame = cursor.fetch_polars()
        expect(frame["word"].to_list(), [d.get("word") for d in documents], "words in polars")
    frame = pandas.read_sql(statement, connection)
    expect(frame["double"].dropna().tolist(), [d["double"] for d in documents if "double" in d], "doubles in pandas")
    frame = polars.read_database(statement, connection)
    expect(frame["number"].sum(), COUNT * (COUNT - 1) // 2, "sum by polars")

    with connection.cursor() as cursor:
        data = {"number": [1, 2, 3], "word": ["a", None, "c"], "double": [0.5, 1.5, None]}
        expect(cursor.adbc_ingest(MADE, polars.DataFrame(data), "replace"), 3, "a frame of polars")
        expect([row.get("word") for row in rows_of(MADE).values()], ["a", None, "c"], "words of polars")
        expect(cursor.adbc_ingest(MADE, pandas.DataFrame(data), "replace"), 3, "a frame of pandas")
        expect([row.get("word") for row in rows_of(MADE).values()], ["a", None, "c"], "words of pandas")
    expect(pandas.DataFrame(data).to_sql(MADE, connection, if_exists="append", index=False), 3, "to_sql of pandas")
    expect(len(rows_of(MADE)), 6, "documents after to_sql")
    call("DELETE", f"/{MADE}")


flight_index.make()
logins()
with connect() as connection:
    for check in [statements, parameters, metadata, cancelling, ingest, sizes, updates, frames]:
        check(connection)
        print(f"  {check.__name__}")
flight_index.remove()
