"""Asks for everything that an OpenAPI document describes, and checks that the answers are as it says.

Use: walk_api.py HOST:PORT TOKEN OPENAPI.json [JOB [JOB.yaml...]]
Every operation is asked for as it is, with each parameter at its limit and beyond it, without a token, and by another
method. What changes something (scope steer) is only asked in ways that must be refused; job files are posted to whatever
takes one. WATCH_TOKEN in the environment is one that may only watch: what steers is refused to it. Prints what is wrong.
"""
import gzip
import http.client
import json
import os
import sys

address, token, file = sys.argv[1:4]
job = sys.argv[4] if len(sys.argv) > 4 else None
job_files = sys.argv[5:]
watch_token = os.environ.get("WATCH_TOKEN")
wrong = 0
asked = 0


def complain(text):
    global wrong
    wrong += 1
    print(text)


connection = http.client.HTTPConnection(address, timeout=60)  # one for all: it stays


def ask(method, target, with_token=True, headers=None, body=None):
    global asked
    asked += 1
    headers = dict(headers or {})
    if with_token:
        headers["Authorization"] = "Bearer " + token
    connection.request(method, target, body=body, headers=headers)
    answer = connection.getresponse()
    if answer.getheader("Content-Type", "").startswith("text/event-stream"):
        piece = answer.fp.readline()
        connection.close()
        return answer.status, "text/event-stream", piece
    body = answer.read()
    if answer.getheader("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    return answer.status, answer.getheader("Content-Type"), body


def check(what, responses, status, kind, body):
    """The answer is one of those that are declared."""
    declared = responses.get(str(status))
    if declared is None:
        return complain(f"{what}: answered {status}, which is not declared: {body[:200]!r}")
    if kind not in declared["content"]:
        return complain(f"{what}: {status} is {kind}, not {list(declared['content'])}")
    schema = declared["content"][kind]["schema"]
    if kind == "application/x-ndjson":
        documents = [json.loads(line) for line in body.splitlines()]
    elif kind == "application/json":
        documents = [json.loads(body)]
    else:
        return
    for document in documents:
        for remark in remarks(document, schema, ""):
            complain(f"{what}: {status}: {remark}")


KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
         "null": type(None)}


def is_of(value, kind):
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def remarks(value, schema, place):
    """What is not as the schema says. Stricter than JSON Schema: a key that is not described is wrong as well."""
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        tries = [list(remarks(value, one, place)) for one in schema["anyOf"]]
        yield from min(tries, key=len)
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(is_of(value, kind) for kind in kinds):
        yield f"{place or 'it'} is {value!r:.60}, not {' or '.join(kinds)}"
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from remarks(item, schema["items"], f"{place}[{i}]")
    elif isinstance(value, dict):
        for key in schema["required"]:
            if key not in value:
                yield f"{place} lacks {key}"
        for key, item in value.items():
            if key in schema["properties"]:
                yield from remarks(item, schema["properties"][key], f"{place}.{key}")
            elif not schema.get("additionalProperties"):
                yield f"{place}.{key} is not described"


described = json.load(open(file))
if described["openapi"].split(".")[0] != "3" or not described["paths"]:
    complain("no OpenAPI document")
for path, operations in described["paths"].items():
    place = path.replace("{job}", job or "none")
    for method, operation in operations.items():
        method = method.upper()
        responses = operation["responses"]
        good = next(status for status in responses if status.startswith("2"))
        what = f"{method} {path}"
        open_to_all = operation["security"] == []
        steers = any("steer" in scopes.get("bearer", []) for scopes in operation["security"])
        if not open_to_all:
            status, kind, body = ask(method, place, with_token=False)
            check(what + " without a token", responses, status, kind, body)
            if status != 401:
                complain(f"{what} without a token: {status}")
        if steers and watch_token:
            must = "&".join(f"{p['name']}=1" for p in operation["parameters"] if p["in"] == "query" and p.get("required"))
            status, kind, body = ask(method, place + (f"?{must}" if must else ""), with_token=False,
                                     headers={"Authorization": "Bearer " + watch_token})
            check(what + " by who may only watch", responses, status, kind, body)
            if status != 403:
                complain(f"{what} by who may only watch: {status}")
        status, kind, body = ask(method, place, headers={"Origin": "http://evil.example"})
        check(what + " from another site", responses, status, kind, body)
        if status != 403:
            complain(f"{what} from another site: {status}")
        status, kind, body = ask("PATCH", place)
        if status != 405:
            complain(f"PATCH {path}: {status}")
        if "{job}" in path:
            must = "&".join(f"{p['name']}=1" for p in operation["parameters"] if p["in"] == "query" and p.get("required"))
            status, kind, body = ask(method, path.replace("{job}", "no-such-job") + (f"?{must}" if must else ""))
            check(what + " of no job", responses, status, kind, body)
            if status != 404:
                complain(f"{what} of no job: {status}")
        status, kind, body = ask(method, place + "?no-such-parameter=1")
        check(what + " with a parameter that it does not have", responses, status, kind, body)
        if status != 400:
            complain(f"{what} with a parameter that it does not have: {status}")
        for param in operation["parameters"]:
            if param["in"] != "query":
                continue
            schema = param["schema"]
            if param.get("required"):
                status, kind, body = ask(method, place)
                check(f"{what} without {param['name']}", responses, status, kind, body)
                if status != 400:
                    complain(f"{what} without {param['name']}: {status}")
            for value in ("x", "-1", "", str(schema["minimum"] - 1), str(schema["maximum"] + 1)):
                status, kind, body = ask(method, f"{place}?{param['name']}={value}")
                check(f"{what} with {param['name']}={value}", responses, status, kind, body)
                if status != 400:
                    complain(f"{what} with {param['name']}={value}: {status}")
            if steers or param["name"] == "wait":
                continue
            for value in (schema["default"], schema["maximum"]):
                status, kind, body = ask(method, f"{place}?{param['name']}={value}")
                check(f"{what} with {param['name']}={value}", responses, status, kind, body)
                nobody = param["name"] == "instance" and value == schema["maximum"]
                if str(status) != ("404" if nobody else good):
                    complain(f"{what} with {param['name']}={value}: {status} {body[:200]!r}")
        if "application/yaml" in operation.get("requestBody", {}).get("content", {}):
            for name in job_files:
                status, kind, body = ask(method, place, body=open(name, "rb").read())
                check(f"{what} with {name}", responses, status, kind, body)
                if str(status) != good:
                    complain(f"{what} with {name}: {status} {body[:200]!r}")
        if steers or method == "DELETE" or "requestBody" in operation:
            continue
        for encoding in ("identity", "gzip"):
            status, kind, body = ask(method, place, headers={"Accept-Encoding": encoding})
            check(what, responses, status, kind, body)
            if str(status) != good:
                complain(f"{what}: {status} {body[:200]!r}")
        if "text/event-stream" in responses[good]["content"]:
            status, kind, body = ask(method, place, headers={"Accept": "text/event-stream"})
            check(what + " as a stream", responses, status, kind, body)
            if kind != "text/event-stream" or not body.startswith(b"retry: "):
                complain(f"{what} as a stream: {kind} {body!r}")
for place in ("/v1", "/v1/", "/v2/status", "/v1/status/x", "/..", "/v1/jobs/"):
    status, kind, body = ask("GET", place)
    if status not in (404,) and not (job and place in ("/v1/jobs/",)):
        complain(f"GET {place}: {status}")
if asked < 30:
    complain(f"only {asked} requests: the description has too little in it")
print(f"{asked} requests, {wrong} wrong")
sys.exit(wrong != 0)
