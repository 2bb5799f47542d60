"""Messages of a real RabbitMQ run through a pipeline, from a queue into an index and on to an exchange, while the server and then the
broker are killed: each message is there, and at most those without an acknowledgement are there twice. The broker refuses a few copies,
which become dead letters."""

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pika

from instance import WORK, Instance, free_port, listens

MESSAGES, PREFETCH, KILLS = 10_000, 200, 3
# Of so many messages, one names a user that did not send it.
REFUSED_EVERY = 2_500
PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"

if not os.path.exists(PROGRAM) or not shutil.which("erl"):
    print("missing: the Debian package rabbitmq-server")
    sys.exit(77)


class Broker:
    """A broker on a directory and ports that stay."""

    def __init__(self):
        self.port, self.mapper, self.process = free_port(), None, None
        self.directory = os.path.join(WORK, "rabbitmq")
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        inside = lambda name: os.path.join(self.directory, name)
        for name in ("enabled_plugins", "rabbitmq.conf"):
            with open(inside(name), "w", encoding="utf-8") as file:
                file.write("[].\n" if name == "enabled_plugins" else "")
        self.environment = {
            **os.environ,
            "HOME": self.directory,
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "check@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": inside("data"),
            "RABBITMQ_LOG_BASE": inside("log"),
            "RABBITMQ_PID_FILE": inside("pid"),
            "RABBITMQ_CONFIG_FILE": inside("rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": inside("enabled_plugins"),
            # Others may fill the disk.
            "RABBITMQ_SERVER_START_ARGS": "-rabbit disk_free_limit 1000000",
        }

    def start(self):
        if not self.mapper:
            # The broker would leave a port mapper behind that it starts itself.
            self.mapper = subprocess.Popen(["epmd"], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(os.path.join(WORK, "rabbitmq.log"), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([PROGRAM], env=self.environment, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 120
        while not listens(self.port):
            assert self.process.poll() is None, "the broker ended"
            assert time.monotonic() < deadline, "the broker does not listen"
            time.sleep(0.2)

    def kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            # The virtual machine is a child of the process.
            while listens(self.port):
                time.sleep(0.05)

    def remove(self):
        self.kill()
        if self.mapper:
            self.mapper.kill()
            self.mapper.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self):
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, connection_attempts=30, retry_delay=1))

    def declare(self):
        with self.connect() as connection:
            channel = connection.channel()
            channel.exchange_declare("copies", "topic", durable=True)
            for queue in ("logs", "copies"):
                channel.queue_declare(queue, durable=True)
            channel.queue_bind("copies", "copies", "copy.#")

    def publish(self, first, count):
        """Publishes numbered messages."""
        with self.connect() as connection:
            channel = connection.channel()
            properties = pika.BasicProperties(delivery_mode=2, headers={"tenant": "one"})
            # The broker answers a transaction once the messages are safe.
            channel.tx_select()
            for number in range(first, first + count):
                user = b"other" if is_refused(number) else b"guest"
                channel.basic_publish("", "logs", b'{"n":%d,"user":"%s","text":"line of a queue"}' % (number, user), properties)
            channel.tx_commit()

    def waiting(self, queue):
        with self.connect() as connection:
            return connection.channel().queue_declare(queue, passive=True).method.message_count

    def drain(self, queue):
        """Takes all messages off a queue."""
        with self.connect() as connection:
            consumer = connection.channel().consume(queue, auto_ack=True, inactivity_timeout=1)
            return [body for _, _, body in itertools.takewhile(lambda message: message[0], consumer)]


def is_refused(number):
    return number % REFUSED_EVERY == 7


def definition(port):
    return f"""
        input {{
          rabbitmq {{
            host => "127.0.0.1" port => {port} queue => "logs" durable => true prefetch_count => {PREFETCH}
            metadata_enabled => "basic" add_field => {{ "key" => "%{{[@metadata][rabbitmq_properties][routing-key]}}" }}
          }}
        }}
        filter {{ mutate {{ add_field => {{ "tenant" => "%{{[@metadata][rabbitmq_headers][tenant]}}" }} }} }}
        output {{
          opensearch {{ index => "rabbitmq" }}
          rabbitmq {{
            host => "127.0.0.1" port => {port} exchange => "copies" exchange_type => "topic" key => "copy.%{{tenant}}"
            codec => line {{ format => "%{{n}}" }} message_properties => {{ "content_type" => "text/plain" "user_id" => "%{{user}}" }}
          }}
        }}
    """


def check(numbers, wanted, extra, what):
    missing, wrong = wanted - set(numbers), set(numbers) - wanted
    assert not missing and not wrong, f"{what}: {len(missing)} of {len(wanted)} messages are missing, {len(wrong)} should not be there"
    assert len(numbers) <= len(wanted) + extra, f"{what}: {len(numbers)} of {len(wanted)} messages"
    print(f"{what}: {len(numbers)} of {len(wanted)} messages")


def number_of(letter):
    """Reads the number of the message that became a dead letter."""
    return json.loads(base64.b64decode(letter["payload"]))["n"]


def main():
    broker, server = Broker(), None
    try:
        broker.start()
        broker.declare()
        broker.publish(0, MESSAGES)
        server = Instance("rabbitmq-server", {"main": definition(broker.port)})
        server.start()
        for kill in range(1, KILLS + 1):
            wanted = MESSAGES * kill // (KILLS + 2)
            server.wait(lambda: server.count("rabbitmq") >= wanted, f"{wanted} messages")
            server.kill()
            server.start()
        server.wait(lambda: broker.waiting("logs") == 0 and server.count("rabbitmq") >= MESSAGES, "the end of the queue")
        # The broker is killed, too; both plugins connect again.
        broker.publish(MESSAGES, MESSAGES // 2)
        server.wait(lambda: server.count("rabbitmq") >= MESSAGES + MESSAGES // 10, "messages of the second half")
        broker.kill()
        broker.start()
        everything = MESSAGES + MESSAGES // 2
        numbers = lambda: server.numbers("rabbitmq", "n")
        server.wait(lambda: len(set(numbers())) >= everything, f"{everything} messages")
        stored = list(server.sources("rabbitmq", "*"))
        assert {source["key"] for source in stored} == {"logs"} and {source["tenant"] for source in stored} == {"one"}
        refused = {number for number in range(everything) if is_refused(number)}
        copies = [int(body) for body in broker.drain("copies")]
        # A kill of the server gives back what was not acknowledged, at most the prefetch count. The broker writes acknowledgements to its
        # disk a moment later: its own kill may give back all of the second half.
        for half, begin, end, kills, again in (("first", 0, MESSAGES, KILLS, 0), ("second", MESSAGES, everything, 1, MESSAGES // 2)):
            wanted, of_half = set(range(begin, end)), lambda numbers: [number for number in numbers if begin <= number < end]
            check(of_half(source["n"] for source in stored), wanted, again + kills * PREFETCH, f"index, {half} half")
            # Messages without a confirmation are published again after a kill, and twice after a refusal.
            attempts = kills + 2 * len(wanted & refused)
            check(of_half(copies), wanted - refused, again + attempts * PREFETCH, f"exchange, {half} half")
        letters = lambda: list(server.sources(".dead-letters", "*"))
        server.wait(lambda: {number_of(letter) for letter in letters()} == refused, f"{len(refused)} dead letters")
        assert all("PRECONDITION_FAILED" in letter["reason"] for letter in letters()), letters()
    finally:
        if server:
            server.remove()
        broker.remove()


main()
