"""Counts the ingest pipelines of Filebeat's modules that a server accepts, with the reasons of the others.

    python3 benchmarks/src/module_pipelines.py --server URL --user NAME:PASSWORD --beats DIR

DIR is a source tree of Beats, such as that of the Go module github.com/elastic/beats/v7. Templates of Go are filled in as by a
module with its defaults. Processors that Filebeat leaves out for a server of version 7.10 are left out here, too. Needs PyYAML.
"""

import argparse
import base64
import collections
import json
import pathlib
import re
import urllib.error
import urllib.request

import yaml

# Filebeat deletes them for servers before 7.12 and 7.13 (filebeat/fileset/compatibility.go).
LEFT_OUT = {"community_id", "network_direction", "registered_domain", "uri_parts"}


def read(path):
    """Reads a pipeline; `None` where the file is another."""
    text = path.read_text(errors="replace")
    text = re.sub(r"\{<\s*(if|end|else)[^>]*>\}", "", text)
    text = re.sub(r'\{<\s*IngestPipeline\s+"([^"]*)"\s*>\}', r"\1", text)
    text = re.sub(r"\{<\s*\.log_level\s*>\}", "7", text)
    text = re.sub(r"\{<[^>]*>\}", "x", text)
    definition = yaml.safe_load(text)
    return definition if isinstance(definition, dict) and "processors" in definition else None


def adapt(processors):
    def stays(processor):
        name, options = next(iter(processor.items()))
        inner = options.get("processor") if name == "foreach" and isinstance(options, dict) else None
        return name not in LEFT_OUT and not (inner and next(iter(inner)) in LEFT_OUT)

    return [processor for processor in processors if stays(processor)]


def put(arguments, definition):
    """Puts a pipeline; returns `None`, or the reason of its refusal."""
    request = urllib.request.Request(
        arguments.server.rstrip("/") + "/_ingest/pipeline/module",
        json.dumps(definition, default=str).encode(),
        {
            "content-type": "application/json",
            "authorization": "Basic " + base64.b64encode(arguments.user.encode()).decode(),
        },
        method="PUT",
    )
    try:
        urllib.request.urlopen(request, timeout=60).read()
        return None
    except urllib.error.HTTPError as refusal:
        error = json.loads(refusal.read())["error"]
        return error.get("caused_by", error)["reason"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://localhost:9200")
    parser.add_argument("--user", required=True)
    parser.add_argument("--beats", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    accepted, reasons = collections.Counter(), collections.defaultdict(list)
    paths = sorted(path for end in ("yml", "json") for path in arguments.beats.glob(f"**/ingest/*.{end}"))
    for path in paths:
        name = str(path.relative_to(arguments.beats))
        if "testing" in name or "_meta/test" in name:
            continue
        definition = read(path)
        if definition is None:
            continue
        definition["processors"] = adapt(definition["processors"])
        reason = put(arguments, definition)
        accepted[reason is None] += 1
        if reason is not None:
            reasons[reason[:400]].append("/".join(path.parts[-4:-2]))
    print(f"accepted {accepted[True]} of {accepted.total()}")
    for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(names):4} {reason}: {', '.join(sorted(set(names)))}")


if __name__ == "__main__":
    main()
