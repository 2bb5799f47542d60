"""Programs that follow a file and ship its lines, while the server is killed."""

import os
import shutil
import subprocess
import time

from instance import WORK

LINES = int(os.environ.get("CLIENT_RECORDS", "10000"))


def write_lines(name):
    """Makes a directory with a file `lines.log`; returns its path."""
    directory = os.path.join(WORK, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(f"{directory}/lines.log", "w", encoding="utf-8") as file:
        file.writelines(f"line number {number} of a file that somebody follows\n" for number in range(LINES))
    return directory


def ship(server, name, command, index, texts, kills, ports, settle=0):
    """Runs a program until each line is in the index, and kills the server meanwhile. `texts` returns the lines of the index. Returns the
    number of documents after `settle` more seconds."""
    with open(os.path.join(WORK, f"{name}.log"), "w", encoding="utf-8") as log:
        shipper = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for kill in range(1, kills + 1):
                wanted = LINES * kill // (kills + 2)
                server.wait(lambda: server.count(index) >= wanted, f"{wanted} lines of {name}")
                assert shipper.poll() is None, f"the shipper ended: {log.name}"
                server.kill()
                server.start(*ports)
            server.wait(lambda: server.count(index) >= LINES and len(set(texts())) == LINES, f"{LINES} lines of {name}")
            assert shipper.poll() is None, f"the shipper ended: {log.name}"
            time.sleep(settle)
        finally:
            shipper.kill()
            shipper.wait()
    total = server.count(index)
    print(f"{name}: {total} documents of {LINES} lines over {kills} kills")
    return total
