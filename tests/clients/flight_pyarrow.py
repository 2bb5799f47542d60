"""pyarrow.flight, which knows nothing of SQL: logins by handshake, raw descriptors, lists, schemas, streams."""

import base64
import sys

import pyarrow
import pyarrow.flight as flight

import flight_index
from flight_index import COUNT, HIDDEN, INDEX, OTHER, STATEMENTS, compare
from target import FLIGHT, PASSWORD, USER, call, expect

if not FLIGHT:
    sys.exit(77)
LOCATION = f"grpc://{FLIGHT}"


def command(name, fields):
    """A command of Flight SQL as its bytes: an `Any` around a message whose fields, by number, are strings."""

    def field(number, data):
        length, head = len(data), b""
        while length > 127:
            head, length = head + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + head + bytes([length]) + data

    message = b"".join(field(number, text.encode()) for number, text in fields.items())
    return field(1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()) + field(2, message)


def refused(error, request):
    try:
        request()
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


def headers(*pairs):
    return flight.FlightCallOptions(headers=[(name.encode(), value.encode()) for name, value in pairs])


def rows(client, info, options):
    tables = [client.do_get(endpoint.ticket, options).read_all() for endpoint in info.endpoints]
    expect(len(tables), 1, "endpoints")
    return tables[0]


def logins(client):
    one = client.list_flights
    refused(flight.FlightUnauthenticatedError, lambda: list(one()))
    refused(flight.FlightUnauthenticatedError, lambda: client.authenticate_basic_token(USER, PASSWORD + "x"))
    refused(flight.FlightUnauthenticatedError, lambda: list(one(options=headers(("authorization", "Bearer made-up")))))
    descriptor = flight.FlightDescriptor.for_command(command("CommandStatementQuery", {1: "SELECT 1"}))
    refused(flight.FlightUnauthenticatedError, lambda: client.get_flight_info(descriptor))
    # This method has errors of its own.
    refused(OSError, lambda: client.get_schema(descriptor))
    refused(flight.FlightUnauthenticatedError, lambda: client.do_get(flight.Ticket(b"ticket")).read_all())
    refused(flight.FlightUnauthenticatedError, lambda: list(client.do_action(flight.Action("CloseSession", b""))))
    refused(flight.FlightUnauthenticatedError, lambda: list(client.list_actions()))

    name, value = client.authenticate_basic_token(USER, PASSWORD)
    expect((name, value[:7]), (b"authorization", b"Bearer "), "what the handshake answers")
    assert USER.encode() not in base64.b64decode(value[7:] + b"===", validate=False), "the token tells who it is of"
    token = flight.FlightCallOptions(headers=[(name, value)])
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    status, made = call("POST", "/_security/api_key", {"name": "key-pyarrow"})
    expect(status, 200, f"API key: {made}")
    for shown in [f"Basic {basic}", f"Basic {basic.rstrip('=')}", f"ApiKey {made['encoded']}"]:
        options = headers(("authorization", shown))
        expect(rows(client, client.get_flight_info(descriptor, options), options).num_rows, 1, shown[:6])
    # A ticket is good for whom it was given to.
    info = client.get_flight_info(descriptor, options)
    refused(pyarrow.ArrowInvalid, lambda: rows(client, info, token))
    call("DELETE", "/_security/api_key", {"ids": [made["id"]]})
    return token


def descriptors(client, token):
    for statement in STATEMENTS:
        descriptor = flight.FlightDescriptor.for_command(command("CommandStatementQuery", {1: statement}))
        info = client.get_flight_info(descriptor, token)
        table = rows(client, info, token)
        compare(statement, table)
        expect(info.schema, table.schema, f"{statement}: schema of the flight")
        expect(client.get_schema(descriptor, token).schema, table.schema, f"{statement}: get_schema")

    by_path = flight.FlightDescriptor.for_path(INDEX)
    info = client.get_flight_info(by_path, token)
    table = rows(client, info, token)
    expect(table.num_rows, COUNT, "rows by a path")
    expect(client.get_schema(by_path, token).schema, table.schema, "schema by a path")
    expect(sorted(table["number"].to_pylist()), list(range(COUNT)), "numbers by a path")

    # A command that is none of Flight SQL is the text of a statement.
    by_text = flight.FlightDescriptor.for_command(f"SELECT COUNT(*) FROM {INDEX}".encode())
    expect(rows(client, client.get_flight_info(by_text, token), token).to_pylist(), [{"COUNT(*)": COUNT}], "a text")

    for descriptor in [
        flight.FlightDescriptor.for_path(INDEX, OTHER),
        flight.FlightDescriptor.for_path("client-flight-nowhere"),
        flight.FlightDescriptor.for_command(b"no command"),
        flight.FlightDescriptor.for_command(b""),
        flight.FlightDescriptor.for_command(command("CommandStatementQuery", {1: "SELEC 1"})),
        flight.FlightDescriptor.for_command(command("CommandNobodyKnows", {1: "SELECT 1"})),
    ]:
        for request in [client.get_flight_info, client.get_schema]:
            refused(Exception, lambda: request(descriptor, token))
    for ticket in [b"", b"ticket", b"\xff" * 100]:
        refused(Exception, lambda: client.do_get(flight.Ticket(ticket), token).read_all())


def lists(client, token):
    found = {}
    for info in client.list_flights(options=token):
        path = [part.decode() for part in info.descriptor.path]
        found[path[-1]] = info
    assert {INDEX, OTHER, HIDDEN} <= set(found), f"flights: {sorted(found)}"
    expect(set(found[OTHER].schema.names), {"name", "rack"}, "schema of a flight of the list")
    found = [info.descriptor.path for info in client.list_flights(OTHER.encode(), token)]
    expect(found, [[OTHER.encode()]], "flights whose names begin so")
    actions = {action.type for action in client.list_actions(token)}
    assert {"CreatePreparedStatement", "ClosePreparedStatement"} <= actions, f"actions: {sorted(actions)}"
    catalogs = flight.FlightDescriptor.for_command(command("CommandGetCatalogs", {}))
    expect(rows(client, client.get_flight_info(catalogs, token), token).column_names, ["catalog_name"], "catalogs")


def streams(client, token):
    """A stream that nobody reads to its end holds nothing up."""
    descriptor = flight.FlightDescriptor.for_command(command("CommandStatementQuery", {1: f"SELECT * FROM {INDEX}"}))
    for _ in range(20):
        info = client.get_flight_info(descriptor, token)
        reader = client.do_get(info.endpoints[0].ticket, token)
        reader.read_chunk()
        reader.cancel()
    expect(rows(client, client.get_flight_info(descriptor, token), token).num_rows, COUNT, "after streams left alone")


flight_index.make()
with flight.connect(LOCATION) as client:
    token = logins(client)
    for check in [descriptors, lists, streams]:
        check(client, token)
        print(f"  {check.__name__}")
flight_index.remove()
