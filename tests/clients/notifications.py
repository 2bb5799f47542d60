"""Mails of alerts to aiosmtpd, over STARTTLS with its certificate verified: it refuses the first ones, and each arrives under one id.

A server of its own is started for this, whose configuration names the server of mail.
"""

import email
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from aiosmtpd.controller import Controller

COUNT = 30
REFUSED = 5
work = os.path.join(os.environ["CLIENT_WORK"], "notifications")
server = os.environ.get("CLIENT_SERVER")
if not server:
    print("missing: a server to start")
    raise SystemExit(77)
os.makedirs(work, exist_ok=True)
subprocess.run(["rm", "-rf", f"{work}/data"], check=True)
subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
     "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
     "-keyout", f"{work}/key.pem", "-out", f"{work}/cert.pem"],
    check=True, capture_output=True,
)


class Receiver:
    def __init__(self):
        self.mails = []
        self.refused = 0

    async def handle_DATA(self, _server, session, envelope):
        if self.refused < REFUSED:
            self.refused += 1
            return "451 4.7.1 not now"
        assert session.ssl, "the mail came without TLS"
        self.mails.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content)))
        return "250 taken"


def serve(receiver):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{work}/cert.pem", f"{work}/key.pem")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(receiver, hostname="127.0.0.1", port=port, tls_context=context, require_starttls=True)
    controller.start()
    return controller, port


def start(port):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")},
        "MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED": "false",
        "MILLRACE_CONSOLE__LISTEN": "127.0.0.1:0",
        "MILLRACE_FLIGHT__LISTEN": "127.0.0.1:0",
        "MILLRACE_PIPELINES__LISTEN": "127.0.0.1:0",
        "MILLRACE_NOTIFICATIONS__SMTP__HOST": "localhost",
        "MILLRACE_NOTIFICATIONS__SMTP__PORT": str(port),
        "MILLRACE_NOTIFICATIONS__SMTP__FROM": "Millrace <alerts@example.com>",
        "MILLRACE_NOTIFICATIONS__AUTHORITIES": f"{work}/cert.pem",
        "MILLRACE_NOTIFICATIONS__PER_MINUTE": "6000",
    }
    process = subprocess.Popen(
        [server, "serve", "--insecure", "--listen", "127.0.0.1:0", "--data", f"{work}/data"],
        env=environment, stdout=subprocess.PIPE, stderr=open(f"{work}/server.log", "w"), text=True,
    )
    console = None
    for line in process.stdout:
        if found := re.match(r"the console is on (\S+)", line):
            console = found[1]
        if found := re.match(r"listening on (\S+)", line):
            return process, found[1], console
    raise AssertionError("the server did not start")


def post(url, body, kind="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": kind, "console-xsrf": "true"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


receiver = Receiver()
controller, port = serve(receiver)
process, url, console = start(port)
try:
    rule = {"name": "mailed", "index": "logs", "type": "any", "alert_method": "email", "email": ["soc@example.org", "duty@example.org"],
            "alert_subject": "{0} tries passwords", "alert_subject_args": ["user"]}
    post(f"{console}/api/alert/change", rule)
    lines = "".join(f'{{"index":{{"_id":"{n}"}}}}\n{{"user":"u{n}","text":"<b>ü</b>"}}\n' for n in range(COUNT))
    post(f"{url}/logs/_bulk", lines.encode(), "application/x-ndjson")
    deadline = time.monotonic() + 120
    query = {"query": {"term": {"alert_sent": True}}, "track_total_hits": True, "size": 0}
    while True:
        try:
            sent = post(f"{url}/alert/_search", query)["hits"]["total"]["value"]
        except urllib.error.HTTPError:
            sent = 0
        if sent == COUNT:
            break
        assert time.monotonic() < deadline, f"{sent} of {COUNT} alerts are sent, {len(receiver.mails)} mails are there"
        time.sleep(0.1)
finally:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    controller.stop()
assert receiver.refused == REFUSED
ids = {mail["Message-ID"] for _, mail in receiver.mails}
assert len(ids) == COUNT, f"{len(ids)} of {COUNT} ids"
for recipients, mail in receiver.mails:
    assert set(recipients) == {"soc@example.org", "duty@example.org"}
    assert re.fullmatch(r"<[0-9a-f]{40}@example\.com>", mail["Message-ID"]), mail["Message-ID"]
    assert re.fullmatch(r"u\d+ tries passwords", mail["Subject"]), mail["Subject"]
    text, html = (part.get_payload(decode=True).decode() for part in mail.get_payload())
    assert "<b>ü</b>" in text and "&lt;b&gt;ü&lt;/b&gt;" in html, (text, html)
print(f"{COUNT} alerts, {len(receiver.mails)} mails, {receiver.refused} refused at first")
