#!/usr/bin/env python3
"""A cloud for tests: moto's S3 and EC2 on loopback, with what moto lacks.

    moto_cloud.py FOLDER [--check-signatures] [--bucket NAME]

Writes FOLDER/cloud.env when it is ready: AWS_ENDPOINT_URL and credentials as `export` lines. Ends with its standard
input. Beside moto it has
  - RunInstances and CreateFleet that keep their promise for a ClientToken: the same token, the same instances
  - POST /tidemill/fail {"match": TEXT, "times": N, "status": S, "body": XML, "headers": {...}, "how": "answer"|"cut"}:
    the next N requests whose "METHOD PATH?QUERY BODY" holds TEXT are answered so, or cut off in the middle
  - POST /tidemill/interrupt {"region": R, "id": I}: the instance goes as a spot instance does
  - GET /tidemill/keys/PREFIX: keys of the bucket, and uploads that were not finished
  - GET /tidemill/calls: how many requests of each kind there were
"""
import argparse, json, os, socket, sys, threading
from urllib.parse import parse_qs

p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("--check-signatures", action="store_true")
p.add_argument("--bucket", default="tide")
args = p.parse_args()
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
if args.check_signatures:
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
for name in list(os.environ):
    if name.startswith("AWS_") or name.lower().endswith("_proxy"):
        del os.environ[name]

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.ec2.models import ec2_backends
from moto.ec2.utils import generic_filter  # noqa: F401 (loads the backend)
from werkzeug.serving import make_server, WSGIRequestHandler

moto = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()
faults, tokens, calls = [], {}, {}


def answer(start, status, body, headers=()):
    data = body.encode() if isinstance(body, str) else body
    start(f"{status} x", [("Content-Length", str(len(data))), *headers])
    return [data]


def control(path, body, start):
    if path == "/tidemill/calls":
        with lock:
            return answer(start, 200, json.dumps(calls))
    if path.startswith("/tidemill/keys/"):
        from moto.s3.models import s3_backends
        bucket = s3_backends["123456789012"]["aws"].buckets[args.bucket]
        prefix = path[len("/tidemill/keys/"):]
        found = [k for k in bucket.keys if k.startswith(prefix)]
        found += ["upload " + u.key_name for u in bucket.multiparts.values() if u.key_name.startswith(prefix)]
        return answer(start, 200, "".join(k + "\n" for k in found))
    order = json.loads(body or b"{}")
    if path == "/tidemill/fail":
        with lock:
            faults.append(order)
    if path == "/tidemill/interrupt":
        from moto.ec2.models.instances import StateReason
        found = ec2_backends["123456789012"][order["region"]].get_instance(order["id"])
        found.terminate()
        found._state_reason = found.state_reason = StateReason("taken back", "Server.SpotInstanceTermination")
    return answer(start, 200, "{}")


def planted(line):
    with lock:
        for f in faults:
            if f["match"] in line and f.get("times", 1) > 0:
                f["times"] = f.get("times", 1) - 1
                return f
    return None


def app(environ, start):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if length else b""
    import io
    environ["wsgi.input"] = io.BytesIO(body)
    path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
    if path.startswith("/tidemill/"):
        return control(path, body, start)
    form = parse_qs(body.decode("utf8", "replace")) if path == "/" and environ["REQUEST_METHOD"] == "POST" else {}
    action = form.get("Action", [environ["REQUEST_METHOD"]])[0]
    line = f"{environ['REQUEST_METHOD']} {path}?{query} {body[:20000].decode('latin1') if form else ''}"
    with lock:
        calls[action] = calls.get(action, 0) + 1
    fault = planted(line)
    if fault and fault.get("how") == "cut":
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer(start, 200, "")
    if fault:
        return answer(start, fault["status"], fault.get("body", ""), list(fault.get("headers", {}).items()))
    token = form.get("ClientToken", [None])[0]
    if token and action in ("RunInstances", "CreateFleet"):
        with lock:
            kept = tokens.get((action, token))
        if kept:
            return answer(start, 200, kept, [("Content-Type", "text/xml")])
        status = []
        out = b"".join(moto(environ, lambda s, h, e=None: status.extend([s, h])))
        if status[0].startswith("200"):
            with lock:
                tokens[(action, token)] = out
        start(status[0], status[1])
        return [out]
    return moto(environ, start)


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *a):
        pass


server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
import boto3
kw = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
key, secret = "test", "test"
if args.check_signatures:
    iam = boto3.client("iam", **kw)
    iam.create_user(UserName="u")
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="u", PolicyName="p", PolicyDocument=json.dumps(allow))
    made = iam.create_access_key(UserName="u")["AccessKey"]
    key, secret = made["AccessKeyId"], made["SecretAccessKey"]
boto3.client("s3", **kw).create_bucket(Bucket=args.bucket)
with open(args.folder + "/cloud.tmp", "w") as f:
    f.write(f"export AWS_ENDPOINT_URL={url}\nexport AWS_ACCESS_KEY_ID={key}\nexport AWS_SECRET_ACCESS_KEY={secret}\n"
            f"export AWS_REGION=us-east-1\nexport AWS_EC2_METADATA_DISABLED=true\n")
os.rename(args.folder + "/cloud.tmp", args.folder + "/cloud.env")
sys.stdin.read()
