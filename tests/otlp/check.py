"""Checks what a receiver got: one trace, each span once, in the shape of the protocol (by its own schema, where
opentelemetry-proto is installed: prints "schema" then). Use: check.py GOT EVENTS"""
import base64
import json
import sys

requests = [json.loads(line) for line in open(sys.argv[1])]
events = json.load(open(sys.argv[2]))
events = events["events"] if isinstance(events, dict) else events
spans = []
for r in requests:
    assert r["path"] == "/v1/traces" and r["headers"]["Content-Type"] == "application/json", r
    assert r["headers"].get("x-tenant") == "mill", r["headers"]
    for resource in r["body"]["resourceSpans"]:
        names = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
        assert names["service.name"] == "training", names
        for scope in resource["scopeSpans"]:
            spans += scope["spans"]
assert len(requests) >= 1 and spans, requests
assert len({s["traceId"] for s in spans}) == 1
assert len({s["spanId"] for s in spans}) == len(spans), "a span twice"
runs = [s for s in spans if s["name"].startswith("run ")]
assert len(runs) == 1 and runs[0]["name"] == "run traced" and "parentSpanId" not in runs[0], runs
assert all(s["parentSpanId"] == runs[0]["spanId"] for s in spans if s is not runs[0])
assert all(int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]) for s in spans)
started = [e["generation"]["generation"] & 0xFFFFFFFF for e in events if e["kind"] == "generation" and e["generation"]["started"]]
told = [s["name"] for s in spans if s["name"].startswith("generation ")]
assert sorted(told) == sorted(f"generation {n}" for n in started), (told, started)
try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError:
    sys.exit(0)
for r in requests:
    body = json.loads(json.dumps(r["body"]))
    for resource in body["resourceSpans"]:  # OTLP's JSON has these in hexadecimal, protobuf's own in base 64
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    json_format.ParseDict(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)
print("schema")
