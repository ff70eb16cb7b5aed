#!/usr/bin/env python3
"""A cloud for tests: moto's S3 and EC2 on loopback, with what moto lacks.

    moto_cloud.py FOLDER [--check-signatures] [--bucket NAME] [--host ADDRESS] [--hypervisor]

Writes FOLDER/cloud.env when it is ready: AWS_ENDPOINT_URL and credentials as `export` lines. Ends with its standard
input. Beside moto it has
  - RunInstances and CreateFleet that keep their promise for a ClientToken: the same token, the same instances; with other
    words it is refused
  - presigned URLs whose signature and time are checked: tampered with or too old, they are refused
  - user data of more than 16 KB is refused, and what rents a VM without what keeps it safe: metadata of version 2 only, hop limit
    1, an end by shutting down, and job, owner and time limit in the tags of VM and volume (but what is tagged `other`: another's)
  - unfinished uploads are listed in pages of 2
  - a market (moto_market.py): POST /tidemill/price, /tidemill/capacity; groups that stay while they have members
  - POST /tidemill/bill {"on_demand": {TYPE: PRICE}, "job": NAME}: what AWS would ask for all that ours used, by its rules
  - GET /tidemill/beside: security groups of ours, and launch templates
  - POST /tidemill/fail {"match": TEXT, "times": N, "status": S, "body": XML, "headers": {...}, "how": "answer"|"cut"|"lost"|"slow"|"half"|"twice"}:
    the next N requests whose "METHOD PATH?QUERY BODY" holds TEXT are answered so, or cut off in the middle; lost: what they
    rent is rented, and the answer does not come; slow: after "seconds"; half: half of the answer; twice: done twice.
    With "region": only requests to that one
  - POST /tidemill/user POLICY: a user who may do what this document allows (moto judges actions, no conditions); its key and secret
  - POST /tidemill/interrupt {"region": R, "id": I}: the instance goes as a spot instance does
  - POST /tidemill/lose {"address": A}: the instance of this private address has failed
  - GET /tidemill/keys/PREFIX: keys of the bucket, and uploads that were not finished
  - GET /tidemill/gets: the keys that were fetched, more than their first byte
  - GET /tidemill/straight: what came by presigned URLs since this was asked last: lines of address, method, key, part (0: whole)
  - GET /tidemill/signed: how many parts of copy sets were put by credentials
  - POST /tidemill/kill {"call": N or NAME, "when": "before"|"after", "pid": FILE}: kill -9 of the process in this file, at the N-th request
    from now on, or the first of this name (an action, or "PUT /PATH..."), before it is carried out or after that, and without an answer;
    GET /tidemill/killed: what it was, "": not yet; GET /tidemill/named: the requests since then, by their names, in order
  - GET /tidemill/calls: how many requests of each kind there were
  - POST /tidemill/web {"token": T}: who brings this word of an identity provider may assume roles; GET /tidemill/assumed: what was
    asked of the token service, without that word
  - GET /tidemill/alive: how many instances that are tagged as ours have not ended; /tidemill/ever: how many there were
  - with --hypervisor (tests/aws/hypervisor.py) instances boot: GET /tidemill/vms, POST /tidemill/notice {"seconds": S},
    POST /tidemill/crash
"""
import argparse, base64, calendar, hashlib, hmac, html, json, os, socket, sys, threading, time
from urllib.parse import parse_qs, parse_qsl, quote, unquote

p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("--check-signatures", action="store_true")
p.add_argument("--bucket", default="tide")
p.add_argument("--host", default="127.0.0.1")
p.add_argument("--hypervisor", action="store_true")
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import moto_market
moto_market.patch()
moto = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()
faults, tokens, calls, gets, straight, signed = [], {}, {}, [], [], []
assumed, web_tokens = [], set()
kill, named = {}, []  # who is to be killed, and when; what was asked since that was said
key, secret = "test", "test"
hypervisor = None


IMAGE, ROOT_DEVICE = "ami-0a1b2c3d", "/dev/xvda"  # one that is there, with a root device as Amazon Linux has it


def refusal(code, words):
    return f"<Response><Errors><Error><Code>{code}</Code><Message>{words}</Message></Error></Errors></Response>"


def tags_of(form, stem, resource):
    """Of a request: tags of what it makes of this kind."""
    out = {}
    for n in range(1, 9):
        if form.get(f"{stem}TagSpecification.{n}.ResourceType") != [resource]:
            continue
        for k in range(1, 51):
            at = f"{stem}TagSpecification.{n}.Tag.{k}."
            if at + "Key" in form:
                out[form[at + "Key"][0]] = form.get(at + "Value", [""])[0]
    return out


def unsafe(form, action):
    """What a request that rents a VM, or makes a template of one, leaves out; "": nothing."""
    stem = {"RunInstances": "", "CreateLaunchTemplate": "LaunchTemplateData."}.get(action)
    if stem is None or "DryRun" in form:
        return ""
    vm = tags_of(form, stem, "instance")
    if "other" in vm:
        return ""
    for name, value in (("InstanceInitiatedShutdownBehavior", "terminate"), ("MetadataOptions.HttpTokens", "required"),
                        ("MetadataOptions.HttpPutResponseHopLimit", "1")):
        if form.get(stem + name) != [value]:
            return f"{name} is {form.get(stem + name)}, not {value}"
    for what, tags in (("instance", vm), ("volume", tags_of(form, stem, "volume"))):
        lacking = [t for t in ("tidemill:job", "tidemill:owner", "tidemill:until") if not tags.get(t)]
        if lacking:
            return f"the {what} has no tag {' and '.join(lacking)}"
        if calendar.timegm(time.strptime(tags["tidemill:until"][:19], "%Y-%m-%dT%H:%M:%S")) < time.time() - 60:
            return f"the {what} has lived longer than it may: {tags['tidemill:until']}"
    return ""


def uploads_page(query):
    """ListMultipartUploads, two on a page: moto lists all."""
    from moto.s3.models import s3_backends
    q = dict(parse_qsl(query, keep_blank_values=True))
    after = (q.get("key-marker", ""), q.get("upload-id-marker", ""))
    there = s3_backends["123456789012"]["aws"].buckets[args.bucket].multiparts.values()
    found = sorted((u.key_name, u.id) for u in there if u.key_name.startswith(q.get("prefix", "")))
    found = [u for u in found if u > after]
    items = "".join(f"<Upload><Key>{html.escape(k)}</Key><UploadId>{html.escape(u)}</UploadId></Upload>" for k, u in found[:2])
    more = len(found) > 2
    last = f"<NextKeyMarker>{html.escape(found[1][0])}</NextKeyMarker><NextUploadIdMarker>{html.escape(found[1][1])}</NextUploadIdMarker>" if more else ""
    return f"<ListMultipartUploadsResult><Bucket>{args.bucket}</Bucket><IsTruncated>{str(more).lower()}</IsTruncated>{last}{items}</ListMultipartUploadsResult>"


def is_presigned(environ, raw_path, query):
    q = dict(parse_qsl(query))
    given = q.pop("X-Amz-Signature", "")
    if not all(n in q for n in ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires")):
        return False
    begun = calendar.timegm(time.strptime(q["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    scope = q["X-Amz-Credential"].split("/", 1)[1]
    canonical = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(q.items()))
    request = "\n".join([environ["REQUEST_METHOD"], raw_path, canonical, "host:" + environ["HTTP_HOST"], "", "host",
                         "UNSIGNED-PAYLOAD"])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", q["X-Amz-Date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    k = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        k = hmac.new(k, part.encode(), "sha256").digest()
    good = hmac.compare_digest(hmac.new(k, to_sign.encode(), "sha256").hexdigest(), given)
    return good and begun - 900 < time.time() < begun + int(q["X-Amz-Expires"])


def presigned(environ, query, body, start):
    from moto.s3.models import s3_backends
    raw_path = environ["REQUEST_URI"].split("?")[0]
    if not is_presigned(environ, raw_path, query):
        return answer(start, 403, "<Error><Code>SignatureDoesNotMatch</Code></Error>")
    bucket, name = unquote(raw_path)[1:].split("/", 1)
    store = s3_backends["123456789012"]["aws"]
    words = dict(parse_qsl(query))
    with lock:
        straight.append(f"{environ['REMOTE_ADDR']} {environ['REQUEST_METHOD']} {name} {words.get('partNumber', 0)}")
    if environ["REQUEST_METHOD"] == "PUT" and "uploadId" in words:
        try:
            key = store.upload_part(bucket, words["uploadId"], int(words["partNumber"]), body)
        except Exception:  # it was aborted
            return answer(start, 404, "<Error><Code>NoSuchUpload</Code></Error>")
        return answer(start, 200, "", [("ETag", key.etag)])
    if environ["REQUEST_METHOD"] == "PUT":
        return answer(start, 200, "", [("ETag", store.put_object(bucket, name, body).etag)])
    found = store.get_object(bucket, name)
    if not found:
        return answer(start, 404, "<Error><Code>NoSuchKey</Code></Error>")
    ranged = environ.get("HTTP_RANGE", "")
    if not ranged:
        return answer(start, 200, found.value)
    first, last = (int(n) for n in ranged.removeprefix("bytes=").split("-"))
    if first >= len(found.value):
        return answer(start, 416, "<Error><Code>InvalidRange</Code></Error>")
    part = found.value[first:last + 1]
    return answer(start, 206, part, [("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(found.value)}")])


def answer(start, status, body, headers=()):
    data = body.encode() if isinstance(body, str) else body
    start(f"{status} x", [("Content-Length", str(len(data))), *headers])
    return [data]


def control(path, body, start):
    if path == "/tidemill/gets":  # keys that were got from their first byte on, more than that byte
        with lock:
            return answer(start, 200, ",".join(gets))
    if path == "/tidemill/straight":
        with lock:
            said = "".join(s + "\n" for s in straight)
            straight.clear()
        return answer(start, 200, said)
    if path == "/tidemill/signed":
        with lock:
            return answer(start, 200, f"{len(signed)}\n")
    if path == "/tidemill/calls":
        with lock:
            return answer(start, 200, json.dumps(calls))
    if path == "/tidemill/killed":
        return answer(start, 200, kill.get("done", ""))
    if path == "/tidemill/named":
        with lock:
            return answer(start, 200, "\n".join(named))
    if path == "/tidemill/assumed":
        with lock:
            return answer(start, 200, json.dumps(assumed))
    if path.startswith("/tidemill/keys/"):
        from moto.s3.models import s3_backends
        bucket = s3_backends["123456789012"]["aws"].buckets[args.bucket]
        prefix = path[len("/tidemill/keys/"):]
        found = [k for k in bucket.keys if k.startswith(prefix)]
        found += ["upload " + u.key_name for u in bucket.multiparts.values() if u.key_name.startswith(prefix)]
        return answer(start, 200, "".join(k + "\n" for k in found))
    order = json.loads(body or b"{}")
    if path in ("/tidemill/alive", "/tidemill/ever"):
        ours = [i for backend in ec2_backends["123456789012"].values() for i in backend.all_instances()
                if any(t["key"] == "tidemill:job" for t in i.get_tags())]
        alive = [i for i in ours if i.state not in ("shutting-down", "terminated")]  # one that is stopped still has its disk
        return answer(start, 200, f"{len(alive if path == '/tidemill/alive' else ours)}\n")
    if hypervisor:
        said = hypervisor.control(path, order)
        if said is not None:
            return answer(start, 200, json.dumps(said) + "\n")
    said = moto_market.control(path, order)
    if said is not None:
        return answer(start, 200, json.dumps(said) + "\n")
    if path == "/tidemill/beside":
        backends = ec2_backends["123456789012"].values()
        groups = [g.name for b in backends for g in b.describe_security_groups() if g.name.startswith("tidemill-")]
        templates = [t.name for b in backends for t in b.describe_launch_templates()]
        return answer(start, 200, json.dumps({"groups": groups, "templates": templates}) + "\n")
    if path == "/tidemill/user":
        from moto.iam.models import iam_backends
        users = iam_backends["123456789012"]["aws"]
        name = f"user{len(users.users)}"
        users.create_user(region_name="us-east-1", user_name=name)
        users.put_user_policy(name, "p", json.dumps(order))
        made = users.create_access_key(name)
        return answer(start, 200, f"{made.access_key_id} {made.secret_access_key}\n")
    if path == "/tidemill/fail":
        with lock:
            faults.append(order)
    if path == "/tidemill/heal":  # no fault any more
        with lock:
            faults.clear()
    if path == "/tidemill/kill":
        with lock:
            kill.clear()
            kill.update(order, done="")
            named.clear()
    if path == "/tidemill/web":
        web_tokens.add(order["token"])
    if path == "/tidemill/lose":
        from moto.ec2.models.instances import StateReason
        for found in ec2_backends["123456789012"]["us-east-1"].all_instances():
            if found.private_ip == order["address"] and found.state == "running":
                found.terminate()
                found._state_reason = found.state_reason = StateReason("it failed", "Server.InternalError")
    if path == "/tidemill/interrupt":
        from moto.ec2.models.instances import StateReason
        found = ec2_backends["123456789012"][order["region"]].get_instance(order["id"])
        found.terminate()
        found._state_reason = found.state_reason = StateReason("taken back", "Server.SpotInstanceTermination")
    return answer(start, 200, "{}")


def by_web_identity(form, environ, start):
    """AssumeRoleWithWebIdentity, which nobody signs: moto would ask for a signature, and takes any word."""
    from moto.sts.models import sts_backends
    one = {k: v[0] for k, v in form.items()}
    if environ.get("HTTP_AUTHORIZATION"):
        return answer(start, 400, refusal("TidemillTests.Signed", "this request is not signed"))
    if one.get("WebIdentityToken") not in web_tokens:
        return answer(start, 400, f"<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>No OpenIDConnect provider found</Message></Error></ErrorResponse>")
    role = sts_backends["123456789012"]["aws"].assume_role_with_web_identity(
        region_name="us-east-1", role_session_name=one["RoleSessionName"], role_arn=one["RoleArn"], policy=None,
        duration=int(one.get("DurationSeconds", 3600)), external_id=None)
    ends = role.expiration if isinstance(role.expiration, str) else role.expiration.strftime("%Y-%m-%dT%H:%M:%SZ")
    return answer(start, 200, '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
                  f"<Credentials><SessionToken>{role.session_token}</SessionToken><SecretAccessKey>{role.secret_access_key}</SecretAccessKey>"
                  f"<Expiration>{ends}</Expiration><AccessKeyId>{role.access_key_id}</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"
                  "</AssumeRoleWithWebIdentityResponse>", [("Content-Type", "text/xml")])


def planted(line, region):
    with lock:
        for f in faults:
            if f["match"] in line and f.get("region", region) == region and f.get("times", 1) > 0:
                f["times"] = f.get("times", 1) - 1
                return f
    return None


def region_of(environ):
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split("/")
    return scope[2] if len(scope) > 2 else "us-east-1"


def crippled(environ, start, how):
    """Half of the answer, and the end; or the request is done twice, as a proxy may, and the second answer counts."""
    import io
    body = environ["wsgi.input"].read()
    outs = []
    for _ in range(2 if how == "twice" else 1):
        status = []
        environ["wsgi.input"] = io.BytesIO(body)
        outs.append((b"".join(app(environ, lambda s, h, e=None: status.extend([s, h]))), status))
    out, status = outs[-1]
    start(status[0], [(k, v) for k, v in status[1] if k.lower() != "content-length"] + [("Content-Length", str(len(out)))])
    return [out] if how == "twice" else [out[:len(out) // 2], cut(environ)]


def cut(environ):
    environ["werkzeug.socket"].shutdown(socket.SHUT_WR)
    return b""


def app(environ, start):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if length else b""
    import io
    environ["wsgi.input"] = io.BytesIO(body)
    path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
    if path.startswith("/tidemill/"):
        return control(path, body, start)
    if environ.get("HTTP_X_AMZ_TARGET", "").endswith("ListServiceQuotas"):
        return answer(start, 200, json.dumps(moto_market.quotas(json.loads(body))))
    form = parse_qs(body.decode("utf8", "replace")) if path == "/" and environ["REQUEST_METHOD"] == "POST" else {}
    action = form.get("Action", [environ["REQUEST_METHOD"]])[0]
    line = f"{environ['REQUEST_METHOD']} {path}?{query} {body[:20000].decode('latin1') if form else ''}"
    with lock:
        calls[action] = calls.get(action, 0) + 1
        ranged = environ.get("HTTP_RANGE", "bytes=0-1")
        if action == "GET" and ranged.startswith("bytes=0-") and ranged != "bytes=0-0" and len(gets) < 10000:
            gets.append(path)
    fault = planted(line, region_of(environ))
    if fault and fault.get("how") == "cut":
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer(start, 200, "")
    if fault and fault.get("how") == "slow":
        time.sleep(fault.get("seconds", 2))
        fault = None
    if fault and fault.get("how") in ("half", "twice"):
        return crippled(environ, start, fault["how"])
    if fault and fault.get("how") != "lost":
        return answer(start, fault["status"], fault.get("body", ""), list(fault.get("headers", {}).items()))
    if action.startswith("AssumeRole"):
        assumed.append({"region": region_of(environ)} | {k: v[0] for k, v in form.items() if k != "WebIdentityToken"})
    if action == "AssumeRoleWithWebIdentity":
        return by_web_identity(form, environ, start)
    if "X-Amz-Signature=" in query:
        return presigned(environ, query, body, start)
    if action == "PUT" and "/layer-" in path:
        with lock:
            signed.append(path)
    region = region_of(environ)
    if action == "DescribeSpotPriceHistory":
        return answer(start, 200, moto_market.price_history(form, region))
    if action == "DescribeImages" and form.get("ImageId.1") == [IMAGE]:
        return answer(start, 200, f"<DescribeImagesResponse><imagesSet><item><imageId>{IMAGE}</imageId><name>one</name><imageState>available</imageState>"
                      f"<rootDeviceName>{ROOT_DEVICE}</rootDeviceName></item></imagesSet></DescribeImagesResponse>")
    device = form.get("BlockDeviceMapping.1.DeviceName", form.get("LaunchTemplateData.BlockDeviceMapping.1.DeviceName", [ROOT_DEVICE]))[0]
    if device != ROOT_DEVICE:  # AWS would give the VM a second disk
        return answer(start, 400, refusal("InvalidBlockDeviceMapping", f"the root device of {IMAGE} is {ROOT_DEVICE}, not {device}"))
    if action == "DescribeInstanceTypeOfferings":
        return answer(start, 200, moto_market.offerings(form, region))
    if action == "GetSpotPlacementScores":
        return answer(start, 200, moto_market.scores(form, region))
    if action == "DeleteSecurityGroup" and moto_market.is_group_held(ec2_backends["123456789012"][region], form["GroupId"][0]):
        return answer(start, 400, refusal("DependencyViolation", "the group has members"))
    lacking = unsafe(form, action)
    if lacking:
        return answer(start, 400, refusal("TidemillTests.Unsafe", lacking))
    token = form.get("ClientToken", [None])[0]
    if token and action in ("RunInstances", "CreateFleet", "CreateLaunchTemplate"):
        with lock:
            words, kept = tokens.get((action, token), (None, None))
        if kept and words != body:
            return answer(start, 400, refusal("IdempotentParameterMismatch", "the token was used with other parameters"))
        if kept:
            return answer(start, 200, kept, [("Content-Type", "text/xml")])
        data = form.get("UserData", form.get("LaunchTemplateData.UserData", [""]))
        if len(base64.b64decode(data[0])) > 16384:
            return answer(start, 400, refusal("InvalidParameterValue", "User data is limited to 16384 bytes"))
        status = []
        out = b"".join(moto(environ, lambda s, h, e=None: status.extend([s, h])))
        if action == "CreateFleet":
            out = out.replace(b"</CreateFleetResponse>", f"<errorSet>{moto_market.fleet_errors(token)}</errorSet>"
                              "</CreateFleetResponse>".encode())
            status[1] = [(k, v) for k, v in status[1] if k.lower() != "content-length"] + [("Content-Length", str(len(out)))]
        if status[0].startswith("200"):
            with lock:
                tokens[(action, token)] = (body, out)
        if fault:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(status[0], status[1])
        return [out]
    if action == "GET" and path == f"/{args.bucket}/" and "uploads" in dict(parse_qsl(query, keep_blank_values=True)):
        status = []
        out = b"".join(moto(environ, lambda s, h, e=None: status.extend([s, h])))
        if not status[0].startswith("200"):  # whoever may not ask
            start(*status)
            return [out]
        return answer(start, 200, uploads_page(query))
    out = moto(environ, start)
    if fault:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return out


def name_of(environ, body):
    """EC2's action; of S3 the method and the key, without what differs from run to run."""
    import re
    if body.startswith(b"Action="):
        return parse_qs(body.decode("latin1"))["Action"][0]
    return environ["REQUEST_METHOD"] + " " + re.sub(r"[0-9a-f]{8,}|[0-9]+", "N", environ["PATH_INFO"])


def killing(environ, start):
    """Requests of VMs are not the program's: they come from other addresses."""
    if not kill or environ["PATH_INFO"].startswith("/tidemill/") or environ["REMOTE_ADDR"] not in (args.host, "127.0.0.1"):
        return app(environ, start)
    import io, signal
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    name = name_of(environ, body)
    with lock:
        named.append(name)
        due = not kill["done"] and (kill["call"] == len(named) if isinstance(kill["call"], int) else name.startswith(kill["call"]))
        if due:
            kill["done"] = f"{len(named)} {name}"
    if not due:
        return app(environ, start)
    if kill["when"] == "after":
        b"".join(app(environ, lambda s, h, e=None: None))
    with open(kill["pid"]) as f:
        os.kill(int(f.read()), signal.SIGKILL)
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return answer(start, 200, "")


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *a):
        pass


server = make_server(args.host, 0, killing, threaded=True, request_handler=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://{args.host}:{server.server_port}"
import boto3
kw = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
if args.check_signatures:
    iam = boto3.client("iam", **kw)
    iam.create_user(UserName="u")
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="u", PolicyName="p", PolicyDocument=json.dumps(allow))
    made = iam.create_access_key(UserName="u")["AccessKey"]
    key, secret = made["AccessKeyId"], made["SecretAccessKey"]
boto3.client("s3", **kw).create_bucket(Bucket=args.bucket)
from moto.iam.models import iam_backends
iam_backends["123456789012"]["aws"].create_instance_profile(name="coordinator", path="/", role_names=[], tags=[])
if args.hypervisor:
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../aws"))
    from hypervisor import Hypervisor
    hypervisor = Hypervisor(ec2_backends, keys=(key, secret))
with open(args.folder + "/cloud.tmp", "w") as f:
    f.write(f"export AWS_ENDPOINT_URL={url}\nexport AWS_ACCESS_KEY_ID={key}\nexport AWS_SECRET_ACCESS_KEY={secret}\n"
            f"export AWS_REGION=us-east-1\nexport AWS_EC2_METADATA_DISABLED=true\n")
os.rename(args.folder + "/cloud.tmp", args.folder + "/cloud.env")
sys.stdin.read()
if hypervisor:
    hypervisor.close()
