"""Inputs of pipelines under load, while the server is killed, its pipeline is reloaded, and a second server waits for the ports.

Each sender is paced to CLIENT_RATE lines a second, which a debug build takes on busy cores; 0 is as fast as the server takes them.
Lines over TCP and messages of syslog have no acknowledgement: a reload loses none of them, a kill only those that were not stored, and
none comes twice. The input of Redis loses at most the batch that it has taken off the list.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from instance import WORK, Instance, free_port, listens

RELOADS, KILLS, SECONDS = 3, 2, 1.0
RATE, LINES = int(os.environ.get("CLIENT_RATE", "1000")), 100


def definition(tcp, syslog, redis, round):
    """A pipeline whose filter differs from round to round, so that it is reloaded; its inputs stay."""
    list_input = f'redis {{ port => {redis} key => "logs" data_type => "list" type => "redis" }}' if redis else ""
    return f"""
        input {{
          tcp {{ host => "127.0.0.1" port => {tcp} codec => json type => "tcp" }}
          syslog {{ host => "127.0.0.1" port => {syslog} type => "syslog" }}
          {list_input}
        }}
        filter {{
          if [type] == "syslog" {{ mutate {{ copy => {{ "pid" => "n" }} }} mutate {{ convert => {{ "n" => "integer" }} }} }}
          mutate {{ add_field => {{ "round" => "{round}" }} }}
        }}
        output {{ opensearch {{ index => "inputs-%{{type}}" }} }}
    """


class Sender(threading.Thread):
    """Sends numbered lines at a rate, or slower where the server takes fewer, over one connection after the other."""

    def __init__(self, port, line):
        super().__init__(daemon=True)
        self.port, self.line, self.sent, self.breaks, self.stopping = port, line, 0, 0, False

    def run(self):
        while not self.stopping:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
                    stream.settimeout(30)
                    due = time.monotonic()
                    while not self.stopping:
                        lines = b"".join(self.line(self.sent + at) for at in range(LINES))
                        # What the system has taken counts as sent.
                        self.sent += LINES
                        stream.sendall(lines)
                        if RATE:
                            due += LINES / RATE
                            time.sleep(max(0, due - time.monotonic()))
            except OSError:
                self.breaks += 1
                time.sleep(0.02)

    def stop(self):
        self.stopping = True
        self.join(60)
        assert not self.is_alive(), "a sender does not end"


SENDERS = {
    "tcp": lambda number: b'{"n":%d,"text":"line of a stream"}\n' % number,
    "syslog": lambda number: b"<13>Feb  3 04:05:06 web load[%d]: line of a stream\n" % number,
}


def start_redis():
    """Starts a server of Redis, where there is one; returns its process and port."""
    program = shutil.which("redis-server")
    if not program:
        return None, 0
    port, directory = free_port(), tempfile.mkdtemp(dir=WORK)
    command = [program, "--port", str(port), "--dir", directory, "--save", "", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 30
    while not listens(port):
        assert time.monotonic() < deadline, "redis does not listen"
        time.sleep(0.05)
    return process, port


def push(port, first, count):
    """Appends numbered elements to the list."""
    with socket.create_connection(("127.0.0.1", port), 5) as stream:
        for start in range(first, first + count, 100):
            words = [b"RPUSH", b"logs"] + [b'{"n":%d}' % number for number in range(start, start + 100)]
            stream.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
            assert stream.recv(100).startswith(b":")


def once(numbers, kind):
    """Checks that no event is there twice; returns the numbers."""
    assert len(set(numbers)) == len(numbers), f"{kind}: {len(numbers) - len(set(numbers))} events are there twice"
    return set(numbers)


def reloads(server, ports):
    """Reloads the pipeline while senders send: nothing is lost."""
    senders = {kind: Sender(ports[kind], line) for kind, line in SENDERS.items()}
    for sender in senders.values():
        sender.start()
    for round in range(1, RELOADS + 1):
        time.sleep(SECONDS / 2)
        server.define("main", definition(ports["tcp"], ports["syslog"], ports["redis"], round))
        for kind in senders:
            by_round = {"size": 0, "query": {"match": {"round": str(round)}}}
            server.wait(lambda: server.search(f"inputs-{kind}", by_round)["hits"]["total"]["value"] > 0, f"round {round} of {kind}")
    for kind, sender in senders.items():
        sender.stop()
        assert sender.breaks == 0, f"{kind}: a reload broke {sender.breaks} connections"
        server.wait(lambda: server.count(f"inputs-{kind}") >= sender.sent, f"{sender.sent} events of {kind}")
        stored = once(server.numbers(f"inputs-{kind}", "n"), kind)
        assert stored == set(range(sender.sent)), f"{kind}: {sender.sent - len(stored)} events are lost"
        print(f"{kind}: {sender.sent} events over {RELOADS} reloads, none lost, none twice")
        server.call("DELETE", f"/inputs-{kind}")


def kills(server, ports):
    """Kills the server while senders send: what was stored stays, and nothing comes twice."""
    senders = {kind: Sender(ports[kind], line) for kind, line in SENDERS.items()}
    for sender in senders.values():
        sender.start()
    pushed = 0
    for _ in range(KILLS):
        if ports["redis"]:
            push(ports["redis"], pushed, 2_000)
            pushed += 2_000
        time.sleep(SECONDS / 2)
        for kind in senders:
            server.wait(lambda: server.count(f"inputs-{kind}") > 0, f"events of {kind}")
        before = {kind: set(server.numbers(f"inputs-{kind}", "n")) for kind in senders}
        server.kill()
        server.start(*(ports[kind] for kind in senders))
        for kind in senders:
            lost = before[kind] - once(server.numbers(f"inputs-{kind}", "n"), kind)
            assert not lost, f"{kind}: {len(lost)} events were found and are lost"
    time.sleep(SECONDS / 2)
    for kind, sender in senders.items():
        sender.stop()
        last = server.count(f"inputs-{kind}")
        server.wait(lambda: server.count(f"inputs-{kind}") >= max(last, 1), f"events of {kind}")
        stored = once(server.numbers(f"inputs-{kind}", "n"), kind)
        assert stored and max(stored) < sender.sent, kind
        print(f"{kind}: {len(stored)} of {sender.sent} sent events over {KILLS} kills, none twice")
    if ports["redis"]:
        # A batch has 125 elements.
        least = pushed - KILLS * 125
        server.wait(lambda: server.count("inputs-redis") >= least, f"{least} of {pushed} elements")
        stored = server.numbers("inputs-redis", "n")
        print(f"redis: {len(set(stored))} of {pushed} elements over {KILLS} kills, {len(stored) - len(set(stored))} twice")


def takes_over(server, ports):
    """A second server waits for the ports, and takes them over when the first one is gone."""
    text = definition(ports["tcp"], ports["syslog"], 0, "second")
    second = Instance("inputs-second", {"main": text})
    try:
        second.start()
        assert second.count("inputs-tcp") == 0
        server.kill()
        sender = Sender(ports["tcp"], SENDERS["tcp"])
        sender.start()
        second.wait(lambda: second.count("inputs-tcp") > 0, "events of the second server")
        time.sleep(SECONDS / 2)
        sender.stop()
        second.wait(lambda: second.count("inputs-tcp") >= sender.sent - sender.breaks * LINES, "all events of the second server")
        once(second.numbers("inputs-tcp", "n"), "tcp")
        print(f"tcp: {second.count('inputs-tcp')} events at a second server that took the port over")
    finally:
        second.remove()


def main():
    redis, redis_port = start_redis()
    ports = {"tcp": free_port(), "syslog": free_port(), "redis": redis_port}
    server = Instance(
        "inputs", {"main": definition(ports["tcp"], ports["syslog"], redis_port, 0)}, PIPELINES__RELOAD_INTERVAL="200ms"
    )
    try:
        server.start(ports["tcp"], ports["syslog"])
        reloads(server, ports)
        kills(server, ports)
        takes_over(server, ports)
    finally:
        server.remove()
        if redis:
            redis.kill()
            redis.wait()
    if not redis_port:
        print("redis: left out, the Debian package redis-server is missing")
        if os.environ.get("CI") == "true":
            sys.exit(77)


if os.environ.get("CLIENT_SERVER"):
    main()
