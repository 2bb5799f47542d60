"""Measures the time in which the input `beats` acknowledges windows of real Filebeats, which follow growing files.

    go build -C tests/clients/filebeat -o /tmp/filebeat .
    python3 benchmarks/src/filebeat.py --server BINARY --filebeat /tmp/filebeat [--shippers N] [--rate LINES] [--seconds S] [--directory DIR]

A proxy before the server reads the frames of the protocol. A time counts from the last byte of a window until its acknowledgement passes
the proxy. Filebeats, proxy and server run on the same cores.
"""

import argparse
import asyncio
import collections
import os
import shutil
import struct
import subprocess
import time

from inputs import INDEX, Server, free_port

BATCH = 2_048


async def pass_windows(source, sink, pending):
    """Passes frames of a shipper on, and notes when each window has been read whole."""
    events = left = 0
    while True:
        frame = await source.readexactly(2)
        if frame == b"2W":
            head = await source.readexactly(4)
            (events,) = struct.unpack(">I", head)
            left, frame = events, frame + head
        elif frame == b"2C":
            head = await source.readexactly(4)
            frame += head + await source.readexactly(struct.unpack(">I", head)[0])
            left = 0
        elif frame == b"2J":
            head = await source.readexactly(8)
            frame += head + await source.readexactly(struct.unpack(">I", head[4:])[0])
            left -= 1
        else:
            raise ValueError(f"a frame of the kind {frame}")
        sink.write(frame)
        await sink.drain()
        if frame[:2] != b"2W" and left == 0:
            pending.append((events, time.monotonic()))


async def pass_answers(source, sink, pending, times):
    """Passes acknowledgements on, and notes the times of windows."""
    while True:
        frame = await source.readexactly(6)
        (sequence,) = struct.unpack(">I", frame[2:])
        # Signs of life have lower numbers.
        if pending and sequence >= pending[0][0]:
            times.append((time.monotonic() - pending.popleft()[1]) * 1_000)
        sink.write(frame)
        await sink.drain()


async def relay(shipper, port, times):
    reader, writer = shipper
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
    pending = collections.deque()
    try:
        ways = pass_windows(reader, server_writer, pending), pass_answers(server_reader, writer, pending, times)
        await asyncio.gather(*ways)
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()
        server_writer.close()


async def append(path, rate, seconds):
    """Appends lines to a file, a tenth of a second's at once."""
    with open(path, "w", encoding="utf-8") as file:
        begin, count = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            due = int((time.monotonic() - begin) * rate)
            file.writelines(f'10.0.0.{number % 256} - - "GET /page{number} HTTP/1.1" 200 {number % 4_000}\n' for number in range(count, due))
            file.flush()
            count = due
            await asyncio.sleep(0.1)
        return count


def start_shipper(binary, directory, port):
    os.makedirs(directory)
    with open(f"{directory}/filebeat.yml", "w", encoding="utf-8") as file:
        file.write(f"""
path.home: "{directory}"
filebeat.inputs: [{{ type: filestream, id: lines, paths: ["{directory}/lines.log"] }}]
output.logstash: {{ hosts: ["127.0.0.1:{port}"], bulk_max_size: {BATCH} }}
logging.level: error
""")
    command = [binary, "run", "-c", f"{directory}/filebeat.yml", "--strict.perms=false"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def watch_delay(delays):
    """Notes by how much the proxy itself is late, in milliseconds."""
    while True:
        due = time.monotonic() + 0.01
        await asyncio.sleep(0.01)
        delays.append((time.monotonic() - due) * 1_000)


async def measure(options, server, port):
    """Returns the times of all windows and the delays of the proxy in milliseconds, and the number of lines."""
    times, delays, proxy_port = [], [], free_port()
    watching = asyncio.create_task(watch_delay(delays))
    handle = lambda *shipper: relay(shipper, port, times)
    proxy = await asyncio.start_server(handle, "127.0.0.1", proxy_port)
    directories = [os.path.join(options.directory, f"filebeat-{number}") for number in range(options.shippers)]
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    shippers = [start_shipper(options.filebeat, directory, proxy_port) for directory in directories]
    try:
        writers = [append(f"{directory}/lines.log", options.rate, options.seconds) for directory in directories]
        lines = sum(await asyncio.gather(*writers))
        await asyncio.to_thread(server.wait, lambda: server.stored() >= lines)
    finally:
        for shipper in shippers:
            shipper.kill()
            shipper.wait()
        proxy.close()
        watching.cancel()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    return times, delays, lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="target/release/millrace")
    parser.add_argument("--filebeat", required=True)
    parser.add_argument("--shippers", type=int, default=2)
    parser.add_argument("--rate", type=int, default=5_000, help="lines a second of each shipper")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--directory", default="/dev/shm/filebeat-bench")
    options = parser.parse_args()
    port = free_port()
    pipeline = f'input {{ beats {{ host => "127.0.0.1" port => {port} }} }} output {{ opensearch {{ index => "{INDEX}" }} }}'
    server = Server(options.server, options.directory, pipeline)
    try:
        times, delays, lines = asyncio.run(measure(options, server, port))
    finally:
        server.stop()
    print(f"{options.shippers} Filebeats, {lines} lines, {len(times)} windows")
    for name, values in ("acknowledged after", times), ("of that, a timer of the proxy is late by", delays):
        values.sort()
        at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
        print(f"{name}: p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, at most {values[-1]:.1f} ms")


if __name__ == "__main__":
    main()
