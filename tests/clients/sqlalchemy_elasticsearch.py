"""SQLAlchemy with `elasticsearch+http`, as Superset has it: tables, columns, statements over `_sql`."""

import datetime
import logging
import urllib.parse

import sql_index
from es.elastic.api import connect
from sqlalchemy import MetaData, Table, create_engine, exc, func, inspect, select, text
from sql_index import EMPTY, INDEX
from target import COUNT, PASSWORD, REFUSED, URL, USER, call, expect

logging.disable(logging.WARNING)
address = urllib.parse.urlsplit(URL)
login = f"{USER}:{urllib.parse.quote(PASSWORD)}@" if USER else ""
sql_index.make()
engine = create_engine(f"elasticsearch+http://{login}{address.netloc}/")
with engine.connect() as connection:

    def rows(statement, **values):
        return [tuple(row) for row in connection.execute(text(statement), values).fetchall()]

    # 1. The server has a version, and one schema.
    assert engine.dialect.server_version_info > (7,), engine.dialect.server_version_info
    about = inspect(engine)
    expect(about.get_schema_names(), ["default"], "schemas")
    # 2. Tables with rows, and aliases as views.
    assert INDEX in about.get_table_names() and EMPTY not in about.get_table_names(), about.get_table_names()
    assert "client-sql-alias" in about.get_view_names(), about.get_view_names()
    # 3. Columns with their types.
    types = {column["name"]: str(column["type"]) for column in about.get_columns(INDEX)}
    expected = {"@timestamp": "DATETIME", "message": "VARCHAR", "host": "VARCHAR", "status": "INTEGER", "bytes": "BIGINT"}
    expect({name: types.get(name) for name in expected}, expected, "types")
    # 4. A statement without a table.
    expect(rows("SELECT 1"), [(1,)], "SELECT 1")
    # 5. A table that SQLAlchemy knows from the server alone.
    table = Table(INDEX, MetaData(schema="default"), autoload_with=engine)
    statement = select(table.c.host, func.count("*").label("many")).group_by(table.c.host).order_by(table.c.host)
    found = [tuple(row) for row in connection.execute(statement).fetchall()]
    expect(found, [("web-0", 84), ("web-1", 83), ("web-2", 83)], "groups")
    # 6. Conditions and an order, by values that are escaped.
    statement = select(table.c.bytes).where(table.c.host == "web-1", table.c.status < 500).order_by(table.c.bytes.desc()).limit(3)
    found = [row[0] for row in connection.execute(statement).fetchall()]
    expect(found, [n * 1_000_003 for n in (247, 244, 241)], "the largest")
    # 7. Names in double quotes, and aliases with spaces.
    expect(rows(f'SELECT "host" AS "the host" FROM "{INDEX}" WHERE "bytes" = 0'), [("web-0",)], "quoted names")
    # 8. Times.
    moment = rows(f'SELECT "@timestamp" FROM "{INDEX}" WHERE bytes = :b', b=2_000_006)[0][0]
    expect(moment, datetime.datetime(2024, 5, 3, 12, 2, 0, 2_000, datetime.timezone.utc), "a time")
    # 9. Buckets of time and conditions on it, as Superset writes them.
    day = 'HISTOGRAM("@timestamp", INTERVAL 1 DAY)'
    since = "\"@timestamp\" >= CAST('2024-05-27T00:00:00' AS DATETIME)"
    found = rows(f'SELECT {day} AS __timestamp, COUNT(*) AS count FROM "default"."{INDEX}" WHERE {since} GROUP BY {day} ORDER BY count DESC')
    expect(sorted((row[0].day, row[1]) for row in found), [(27, 8), (28, 8)], "days")
    # 10. Full text and the relevance.
    found = rows(f"SELECT bytes, SCORE() FROM \"{INDEX}\" WHERE MATCH(message, 'refused') ORDER BY SCORE() DESC")
    assert len(found) == REFUSED and all(row[1] > 0 for row in found), f"{len(found)} hits"
    # 11. Floats, booleans and addresses.
    found = rows(f"SELECT seconds, ok, source_ip FROM \"{INDEX}\" WHERE bytes = 1000003")
    expect(found, [(0.125, True, "10.0.1.1")], "values")
    # 12. An error is one of the database.
    try:
        rows(f'SELECT nothing FROM "{INDEX}"')
        raise AssertionError("an unknown column is taken")
    except exc.ProgrammingError as error:
        assert "nothing" in str(error), error
    # 13. A table that is not there.
    try:
        rows('SELECT * FROM "client-sql-nowhere"')
        raise AssertionError("a missing index is taken")
    except exc.ProgrammingError as error:
        assert "client-sql-nowhere" in str(error), error
# 14. Pages.
port = address.port or 9200
with connect(address.hostname, port, scheme=address.scheme, user=USER or None, password=PASSWORD or None, fetch_size=40) as cursor:
    found = cursor.execute(f'SELECT bytes FROM "{INDEX}"').fetchall()
    expect(sorted(row[0] for row in found), [n * 1_000_003 for n in range(COUNT)], "all pages")
# 15. A field with several values is refused, unless the request takes the first.
call("PUT", f"/{INDEX}/_doc/more?refresh=true", {"host": ["web-8", "web-9"], "bytes": -1})
query = {"query": f'SELECT host FROM "{INDEX}" WHERE bytes < 0'}
status, answer = call("POST", "/_sql", query)
assert status == 400 and "field_multi_value_leniency" in answer["error"]["reason"], answer
status, answer = call("POST", "/_sql", {**query, "field_multi_value_leniency": True})
expect(answer["rows"], [["web-8"]], "the first value")
sql_index.remove()
