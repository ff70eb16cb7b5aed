"""Google Cloud for tests, on one port: Compute Engine, Cloud Storage (JSON API and signed URLs), OAuth's token endpoint, the
metadata server's tokens, signBlob, capacity advice, and the price list of Cloud Billing. Its shape is proven by Google's own clients (tests/gcp/prove.py); what is inserted is read as
Google's client reads it, and a JSON Web Token or a signed URL as google-auth and the public key say.

    fake_gcp.py FOLDER [--bucket NAME] [--host ADDRESS] [--hypervisor]

Writes FOLDER/cloud.env when it is ready, as `export` lines, with FOLDER/key.json (a service account's key) and FOLDER/user.json
(a login). Ends with its standard input. Beside Google's calls there are
  - POST /tidemill/fail {"match": TEXT, "times": N, "status": S, "body": JSON, "headers": {...}, "how": "answer"|"cut"|"lost"}:
    the next N requests whose "METHOD PATH?QUERY" holds TEXT are answered so, cut off, or carried out and not answered; with "after": A
    not the first A of them
  - POST /tidemill/refuse {"zone": Z, "code": C, "times": N}: the next N inserts there end in an operation with this error
  - POST /tidemill/lose {"address": A}: the machine of this instance has failed; /tidemill/preempt {"address": A}: it is preempted
  - POST /tidemill/together {"deletes": N}: the next deletions end when N were asked for, and not before
  - POST /tidemill/obtain {"zone": Z, "share": S}: what the capacity advisor says of a zone (0.9 without); /tidemill/price
    {"sku": WORDS, "nanos": N}: another price of the SKUs whose description has these words
  - POST /tidemill/calm: nothing that was planted happens any more
  - POST /tidemill/expire: no token that was given is good any more
  - POST /tidemill/subject {"token": T}: this word of another identity provider is good; GET /subject gives it, to who says so in a header.
    GET /tidemill/exchanged: what tokens were asked for by, without secrets
  - GET /tidemill/alive, /tidemill/ever (instances there were), /tidemill/rules (of the firewall), /tidemill/calls, /tidemill/keys/PREFIX, /tidemill/instances,
    /tidemill/themselves: how many VMs were deleted by the token of their own service account
  - with --hypervisor instances boot: GET /tidemill/vms, POST /tidemill/notice {"seconds": S}, POST /tidemill/crash
"""
import argparse, base64, hashlib, json, os, re, secrets, sys, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("--bucket", default="tide")
p.add_argument("--host", default="127.0.0.1")
p.add_argument("--hypervisor", action="store_true")
p.add_argument("--op-seconds", type=float, default=0.1)
args = p.parse_args()

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.auth import jwt
from google.cloud import compute_v1

PROJECT = "tide-project"
EMAIL = f"renter@{PROJECT}.iam.gserviceaccount.com"
ZONES = ["us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a"]
lock = threading.RLock()
changed = threading.Condition(lock)
instances, operations, requests, tokens, disks = {}, {}, {}, {}, {}
token_of, by_themselves = {}, []  # tokens that a VM's metadata server gave; VMs that were deleted with one of their own
faults, refusals, calls, made, used, open_vms = [], [], {}, [], [], []
exchanged, subjects, whose = [], [], {}  # what tokens were asked for by; words of another provider; whose a token is
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/tide"
FEDERATED = "principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/subject/tide"
unlabelled = [0]  # instances of runs whose disk has other labels
held, together = [], [1]  # deletions that end only when so many were asked for
buckets, uploads = {args.bucket: {}}, {}
number = [1000]
hypervisor = None
key = rsa.generate_private_key(65537, 2048)
public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def stamp(at=None):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime(at or time.time()))


def next_number():
    with lock:
        number[0] += 1
        return number[0]


class Refused(Exception):
    def __init__(self, status, reason, words):
        self.status = status
        self.body = {"error": {"code": status, "message": words, "errors": [{"message": words, "domain": "global", "reason": reason}]}}


# ---- compute ----
class Instance:
    """One of ours, as the API shows it and as a machine boots it."""

    def __init__(self, zone, body):
        n = next_number()
        self.zone, self.name, self.body, self.status, self.number = zone, body["name"], body, "PROVISIONING", n
        self.id = f"{zone}/{body['name']}"
        self.address = f"10.1.{n // 250 % 250}.{n % 250 + 2}"
        self.created, self.ended, self.taken = time.time(), None, False
        items = {i["key"]: i["value"] for i in body.get("metadata", {}).get("items", [])}
        self.data = items.get("startup-script", "")
        scheduling = body.get("scheduling", {})
        self.spot = scheduling.get("provisioningModel") == "SPOT"
        self.deleted_when_taken = scheduling.get("instanceTerminationAction") == "DELETE"
        self.life_s = int(scheduling.get("maxRunDuration", {}).get("seconds", 0))

    def running(self):
        return self.status in ("STAGING", "RUNNING")

    def link(self):
        return f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}/instances/{self.name}"

    def shown(self):
        out = dict(self.body, kind="compute#instance", id=str(self.number), status=self.status, creationTimestamp=stamp(self.created),
                   zone=f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}", selfLink=self.link(), labelFingerprint="x")
        kind = self.body["machineType"].split("/")[-1]
        out["machineType"] = f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}/machineTypes/{kind}"
        if self.status == "RUNNING":
            out["lastStartTimestamp"] = stamp(self.created)
        out["networkInterfaces"] = [dict(n, networkIP=self.address, name=f"nic{i}") for i, n in
                                    enumerate(self.body["networkInterfaces"])]
        return out


def operation(zone, kind, instance, done=True, errors=()):
    n = next_number()
    name = f"operation-{n}"
    op = {"kind": "compute#operation", "id": str(n), "name": name, "operationType": kind, "targetLink": instance.link(),
          "targetId": str(instance.number), "status": "DONE" if done else "RUNNING", "progress": 100 if done else 0,
          "insertTime": stamp(), "startTime": stamp(), "user": EMAIL,
          "zone": f"{url}/compute/v1/projects/{PROJECT}/zones/{zone}",
          "selfLink": f"{url}/compute/v1/projects/{PROJECT}/zones/{zone}/operations/{name}"}
    if done:
        op["endTime"] = stamp()
    with lock:
        operations[(zone, name)] = op
    return op


def finish(op, errors=()):
    with changed:
        op.update(status="DONE", progress=100, endTime=stamp())
        if errors:
            op["error"] = {"errors": [{"code": c, "message": m} for c, m in errors]}
            op["httpErrorStatusCode"], op["httpErrorMessage"] = 503, "SERVICE UNAVAILABLE"
        changed.notify_all()


def later(seconds, do, *a):
    t = threading.Timer(seconds, do, a)
    t.daemon = True
    t.start()


def check_body(body):
    try:
        compute_v1.Instance.from_json(json.dumps(body), ignore_unknown_fields=False)
    except Exception as e:
        raise Refused(400, "invalid", f"Invalid JSON payload received. {e}")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", body.get("name", "")):
        raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{body.get('name')}'.")
    for k, v in body.get("labels", {}).items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", k) or not re.fullmatch(r"[a-z0-9_-]{0,63}", v):
            raise Refused(400, "invalid", f"Invalid value for field 'resource.labels': '{k}={v}'.")
    s = body.get("scheduling", {})
    seconds = int(s.get("maxRunDuration", {}).get("seconds", 3600))
    if not 30 <= seconds <= 120 * 86400:
        raise Refused(400, "invalid", "Invalid value for field 'resource.scheduling.maxRunDuration'")
    spot = s.get("provisioningModel") == "SPOT"
    if spot and s.get("automaticRestart", True):
        raise Refused(400, "invalid", "Scheduling must have automatic restart be false when provisioning model is SPOT.")
    if s.get("instanceTerminationAction") and not (spot or "maxRunDuration" in s):
        raise Refused(400, "invalid", "You cannot specify a termination action for a VM instance that has the standard provisioning model")
    if body.get("guestAccelerators") and s.get("onHostMaintenance") != "TERMINATE":
        raise Refused(400, "badRequest", "Instances with guest accelerators do not support live migration.")
    if not body.get("machineType") or not body.get("disks") or not body.get("networkInterfaces"):
        raise Refused(400, "required", "Required field 'resource' not specified")
    for item in body.get("metadata", {}).get("items", []):
        if len(item["value"]) > 262144:
            raise Refused(413, "metadataTooLarge", "Metadata value is too large")


def insert(zone, q, body):
    check_body(body)
    request = q.get("requestId")
    if request is not None:
        try:
            assert uuid.UUID(request).int != 0
        except (ValueError, AssertionError):
            raise Refused(400, "invalid", "Invalid value for field 'requestId'")
    with lock:
        if request and request in requests:
            return requests[request]
        if (zone, body["name"]) in instances:
            raise Refused(409, "alreadyExists", f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{body['name']}' already exists")
        instance = Instance(zone, body)
        instances[(zone, instance.name)] = instance
        of_run = body.get("labels", {}).keys() & {"tidemill-token", "tidemill-coordinator"}
        unlabelled[0] += bool(of_run) and body["disks"][0].get("initializeParams", {}).get("labels") != body["labels"]
        op = operation(zone, "insert", instance, done=False)
        if request:
            requests[request] = op
        refused = next((r for r in refusals if r.get("zone", zone) == zone and r["times"] > 0), None)
        if refused:
            refused["times"] -= 1
        else:
            made.append(instance.id)
            used.append(instance)
            if body.get("labels", {}).keys() & {"tidemill-run", "tidemill-coordinator"} and not is_closed(instance):
                open_vms.append(instance.id)

    def end():
        with lock:
            if refused:
                instances.pop((zone, instance.name), None)
                return finish(op, [(refused["code"], f"{refused['code']}: planted in zone {zone}")])
            if instance.status == "PROVISIONING":
                instance.status = "RUNNING"
            finish(op)
    later(args.op_seconds, end)
    return op


class Disk:
    """One that somebody made by itself, or that its VM left."""

    def __init__(self, zone, body):
        self.zone, self.name, self.body, self.number, self.created = zone, body["name"], body, next_number(), time.time()

    def link(self):
        return f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}/disks/{self.name}"

    def shown(self, users=()):
        return dict(self.body, kind="compute#disk", id=str(self.number), status="READY", creationTimestamp=stamp(self.created), selfLink=self.link(),
                    zone=f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}", sizeGb=str(self.body.get("sizeGb", 50)),
                    type=f"{url}/compute/v1/projects/{PROJECT}/zones/{self.zone}/diskTypes/pd-balanced", **({"users": list(users)} if users else {}))


def disk_of(instance):
    """The boot disk has the name of its VM; while that is made, no VM uses it."""
    words = instance.body["disks"][0].get("initializeParams", {})
    disk = Disk(instance.zone, {"name": instance.name, "labels": words.get("labels", {}), "sizeGb": words.get("diskSizeGb", 50)})
    return disk.shown([] if instance.status == "PROVISIONING" else [instance.link()])


def change_disk(method, zone, name, body):
    with lock:
        if method == "POST":
            disk = disks[(zone, body["name"])] = Disk(zone, body)
            return operation(zone, "insert", disk)
        if (zone, name) not in disks:
            no(f"zones/{zone}/disks/{name}")
        return operation(zone, "delete", disks.pop((zone, name)))


def delete(zone, name, token):
    with lock:
        instance = instances.get((zone, name))
        if instance is None:
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' was not found")
        instance.status = "STOPPING"
        if token_of.get(token) == instance.id:
            by_themselves.append(instance.id)
        op = operation(zone, "delete", instance, done=False)

    def end():
        with lock:
            instances.pop((zone, name), None)
            instance.ended = instance.ended or time.time()
            finish(op)
    with lock:
        held.append(end)
        if len(held) >= together[0]:
            for one in held:
                later(args.op_seconds, one)
            held.clear()
            together[0] = 1
    return op


def ended(instance, kind):
    """The cloud ends it, or it ends itself."""
    with lock:
        operation(instance.zone, kind, instance)
        instance.ended, instance.taken = instance.ended or time.time(), kind == "compute.instances.preempted"
        gone = kind == "compute.instances.preempted" and instance.deleted_when_taken
        instance.status = "STOPPING" if gone else "TERMINATED"
    if gone:
        later(args.op_seconds, lambda: instances.pop((instance.zone, instance.name), None))


def watch_lives():
    while True:
        time.sleep(0.2)
        for i in list(instances.values()):
            if i.life_s and time.time() > i.created + i.life_s and i.running():
                operation(i.zone, "delete", i)
                i.ended = time.time()
                instances.pop((i.zone, i.name), None)


def passes(text, item):
    """The filters that Tidemill and Google's examples use."""
    if not text:
        return True
    for part in re.split(r"\s+AND\s+", text):
        m = re.fullmatch(r'\(?\s*([A-Za-z.\-_]+?)\s*(=|:|eq)\s*"?([^"()]*)"?\s*\)?', part)
        if not m:
            raise Refused(400, "invalid", f"Invalid value for field 'filter': '{text}'")
        at = item
        for step in m[1].split(".", 1):
            at = at.get(step) if isinstance(at, dict) else None
        if at is None or (m[3] != "*" and str(at) != m[3]):
            return False
    return True


def paged(items, q, most, name):
    """A page of what is sorted by name; its token is the last name before the next."""
    after = base64.b64decode(q.get("pageToken", "")).decode()
    left = [i for i in items if name(i) > after]
    most = min(int(q.get("maxResults", most)), most)
    more = {"nextPageToken": base64.b64encode(name(left[most - 1]).encode()).decode()} if most < len(left) else {}
    return left[:most], more


def listed(kind, zone, q):
    with lock:
        store = {"instances": [i.shown() for k, i in sorted(instances.items()) if zone in (None, k[0])],
                 "disks": [d.shown() for k, d in sorted(disks.items()) if zone in (None, k[0])]
                 + [disk_of(i) for k, i in sorted(instances.items()) if zone in (None, k[0])],
                 "operations": [dict(o) for k, o in sorted(operations.items()) if zone in (None, k[0])]}[kind]
    found = [i for i in store if passes(q.get("filter"), i)]
    page, more = paged(found, q, 500, lambda i: i["selfLink"])
    out = {"kind": f"compute#{kind}List", "id": f"projects/{PROJECT}/{kind}", "selfLink": url, **more}
    if zone:
        return dict(out, items=page)
    items = {}
    for z in ZONES:
        here = [i for i in page if i["zone"].endswith("/" + z)]
        items[f"zones/{z}"] = {kind: here} if here else {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}
    return dict(out, kind=f"compute#{kind}AggregatedList", items=items)


# ---- the market ----
obtainable = {}


def advise(region, body):
    """advice.capacity; the question is read as Google's client reads it."""
    ask = compute_v1.CapacityAdviceRequest.from_json(json.dumps(body), ignore_unknown_fields=False)
    zones = [z.zone.rsplit("/", 1)[-1] for z in ask.distribution_policy.zones] or [z for z in ZONES if z.startswith(region)]
    kinds = [t for s in ask.instance_flexibility_policy.instance_selections.values() for t in s.machine_types]
    if ask.instance_properties.scheduling.provisioning_model != "SPOT" or ask.size < 1 or not kinds:
        raise Refused(400, "invalid", "Invalid value for field 'instanceProperties.scheduling.provisioningModel'")
    if ask.distribution_policy.target_shape != "ANY_SINGLE_ZONE" or any(z not in ZONES or z[:-2] != region for z in zones):
        raise Refused(400, "invalid", "Invalid value for field 'distributionPolicy'")
    best = max(zones, key=lambda z: obtainable.get(z, 0.9))
    return {"recommendations": [{"scores": {"obtainability": obtainable.get(best, 0.9), "estimatedUptime": "3600s"},
                                 "shards": [{"zone": f"{url}/compute/v1/projects/{PROJECT}/zones/{best}", "machineType": kinds[0],
                                             "provisioningModel": "SPOT", "instanceCount": ask.size}]}]}


def sku(about, group, usage, regions, unit, nanos, units="0"):
    name = hashlib.sha256((about + usage).encode()).hexdigest()[:12].upper()
    name = "-".join((name[:4], name[4:8], name[8:]))
    return {"name": f"services/6F81-5844-456A/skus/{name}", "skuId": name, "description": about, "serviceProviderName": "Google",
            "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
            "serviceRegions": regions, "geoTaxonomy": {"type": "REGIONAL", "regions": regions}, "pricingInfo": [
                {"summary": "", "currencyConversionRate": 1, "effectiveTime": "2026-11-01T00:00:00Z", "pricingExpression": {
                    "usageUnit": unit, "displayQuantity": 1, "baseUnit": "s", "baseUnitConversionFactor": 3600,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}]}}]}


US, EU = ["us-central1", "us-east1"], ["europe-west4"]
skus = [sku("N1 Predefined Instance Core running in Americas", "N1Standard", "OnDemand", US, "h", 31611000),
        sku("Spot Preemptible N1 Predefined Instance Core running in Americas", "N1Standard", "Preemptible", US, "h", 10000000),
        sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", "N1Standard", "Preemptible", US, "GiBy.h", 1000000),
        sku("Spot Preemptible N1 Predefined Instance Core running in Netherlands", "N1Standard", "Preemptible", EU, "h", 90000000),
        sku("Spot Preemptible N1 Custom Instance Core running in Americas", "CPU", "Preemptible", US, "h", 70000000),
        sku("Nvidia Tesla V100 GPU running in Americas", "GPU", "OnDemand", US, "h", 480000000, "2"),
        sku("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Americas", "GPU", "Preemptible", US, "h", 250000000, "1"),
        sku("Spot Preemptible G2 Instance Core running in Americas", "CPU", "Preemptible", US, "h", 10000000),
        sku("Spot Preemptible G2 Instance Ram running in Americas", "RAM", "Preemptible", US, "GiBy.h", 1000000),
        sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "GPU", "Preemptible", US, "h", 200000000),
        sku("Storage PD Capacity", "PDStandard", "OnDemand", US, "GiBy.mo", 40000000)]


def billing(path, q):
    if path != "/v1/services/6F81-5844-456A/skus":
        raise Refused(404, "notFound", "Requested entity was not found.")
    start, most = int(q.get("pageToken") or 0), min(int(q.get("pageSize", 5000)), 4)
    more = str(start + most) if start + most < len(skus) else ""
    return {"skus": skus[start:start + most], "nextPageToken": more}


def wait(zone, name):
    with changed:
        op = operations.get((zone, name))
        if op is None:
            raise Refused(404, "notFound", "The operation was not found")
        changed.wait_for(lambda: op["status"] == "DONE", timeout=10)
        return dict(op)


firewalls = {}


def firewall(method, name, body):
    """Rules: made, listed, removed; what is made is read as Google's client reads it."""
    from google.cloud import compute_v1
    done = {"kind": "compute#operation", "name": "operation-f", "status": "DONE", "operationType": method.lower()}
    with changed:
        if method == "POST":
            rule = body
            compute_v1.Firewall.from_json(json.dumps(rule), ignore_unknown_fields=False)
            if rule["name"] in firewalls:
                raise Refused(409, "alreadyExists", "The resource already exists")
            firewalls[rule["name"]] = rule
            return done
        if method == "DELETE":
            if firewalls.pop(name, None) is None:
                raise Refused(404, "notFound", "The resource was not found")
            return done
        return {"kind": "compute#firewallList", "items": list(firewalls.values())}


def is_door(rule):
    """By which people reach a coordinator, and nothing else."""
    return (rule["name"].endswith("-api") and rule["targetTags"] == [rule["name"]] and rule["sourceRanges"] != ["0.0.0.0/0"]
            and rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["7443"]}])


def is_closed(instance):
    """Only those with its tag reach it: of the rules that Google puts into a network (65534) none comes before one that denies the rest."""
    tags = set(instance.body.get("tags", {}).get("items", []))
    mine = sorted((r for r in firewalls.values() if tags & set(r.get("targetTags", []))), key=lambda r: r.get("priority", 1000))
    rest = next((r for r in mine if r.get("denied") == [{"IPProtocol": "all"}] and r.get("sourceRanges") == ["0.0.0.0/0"]), None)
    before = [r for r in (mine[:mine.index(rest)] if rest else []) if not is_door(r)]
    own = {t for t in tags if not t.endswith("-api")}
    return bool(rest and rest["priority"] < 65534 and before and all(set(r.get("sourceTags", [])) == own for r in before))


def compute(method, path, q, body, token):
    m = re.fullmatch(r"/projects/([^/]+)(/.*)?", path)
    if not m or m[1] not in (PROJECT, "deeplearning-platform-release", "debian-cloud"):
        raise Refused(404, "notFound", f"The resource '{path}' was not found")
    rest = m[2] or ""
    if rest == "":
        return {"kind": "compute#project", "name": PROJECT, "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 8.0, "usage": 0.0}]}
    if rest == "/aggregated/instances":
        return listed("instances", None, q)
    if rest == "/aggregated/disks":
        return listed("disks", None, q)
    if (m2 := re.fullmatch(r"/zones/([^/]+)/disks(?:/([^/]+))?", rest)) and method in ("POST", "DELETE"):
        return change_disk(method, m2[1], m2[2], body)
    if rest == "/aggregated/operations":
        return listed("operations", None, q)
    if rest == "/zones":
        return {"kind": "compute#zoneList", "items": [{"name": z, "status": "UP", "region": f"{url}/regions/{z[:-2]}"} for z in ZONES]}
    if (m2 := re.fullmatch(r"/regions/([^/]+)/advice/capacity", rest)) and method == "POST":
        return advise(m2[1], body)
    if m2 := re.fullmatch(r"/regions/([^/]+)", rest):
        quotas = [{"metric": c, "limit": v, "usage": 0.0} for c, v in (("PREEMPTIBLE_NVIDIA_V100_GPUS", 4.0), ("NVIDIA_V100_GPUS", 0.0),
                                                                      ("CPUS", 72.0), ("PREEMPTIBLE_CPUS", 0.0))]
        return {"kind": "compute#region", "name": m2[1], "status": "UP", "quotas": quotas}
    if m2 := re.fullmatch(r"/global/images/family/([^/]+)", rest):
        if "nowhere" in m2[1]:
            raise Refused(404, "notFound", f"The resource '{path}' was not found")
        return {"kind": "compute#image", "name": f"{m2[1]}-v20261101", "family": m2[1], "status": "READY", "diskSizeGb": "50",
                "selfLink": f"{url}/compute/v1/projects/{m[1]}/global/images/{m2[1]}-v20261101"}
    if m2 := re.fullmatch(r"/global/firewalls(?:/([^/]+))?", rest):
        return firewall(method, m2[1], body)
    if m2 := re.fullmatch(r"/global/networks/([^/]+)", rest):
        return {"kind": "compute#network", "name": m2[1], "autoCreateSubnetworks": True, "subnetworks": [url]}
    m2 = re.fullmatch(r"/zones/([^/]+)/(instances|operations)(?:/([^/]+))?(?:/(wait))?", rest)
    if not m2 or m2[1] not in ZONES:
        raise Refused(404, "notFound", f"The resource '{path}' was not found")
    zone, kind, name = m2[1], m2[2], m2[3]
    if kind == "operations":
        return wait(zone, name) if m2[4] else listed(kind, zone, q) if name is None else dict(operations.get((zone, name)) or no(path))
    if method == "POST" and name is None:
        return insert(zone, q, body)
    if method == "DELETE":
        return delete(zone, name, token)
    if name is None:
        return listed(kind, zone, q)
    return (instances.get((zone, name)) or no(path)).shown()


def no(path):
    raise Refused(404, "notFound", f"The resource '{path}' was not found")


# ---- storage ----
def store_object(bucket, name, data, q):
    with lock:
        held = bucket_of(bucket)
        old = held.get(name)
        check_generation(old, q)
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        held[name] = {"data": data, "generation": str(int(time.time() * 1e6) * 1000 + next_number() % 1000), "md5": base64.b64encode(digest).decode()}
        return shown_object(bucket, name)


def bucket_of(bucket):
    if bucket not in buckets:
        raise Refused(404, "notFound", "The specified bucket does not exist.")
    return buckets[bucket]


def check_generation(old, q):
    want = q.get("ifGenerationMatch")
    if want is not None and want != (old["generation"] if old else "0"):
        raise Refused(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")


def object_of(bucket, name, q):
    found = bucket_of(bucket).get(name)
    if found is None or q.get("generation", found["generation"]) != found["generation"]:
        raise Refused(404, "notFound", f"No such object: {bucket}/{name}")
    return found


def crc32c(data):
    import google_crc32c
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def shown_object(bucket, name):
    o = buckets[bucket][name]
    return {"kind": "storage#object", "id": f"{bucket}/{name}/{o['generation']}", "name": name, "bucket": bucket,
            "generation": o["generation"], "metageneration": "1", "size": str(len(o["data"])), "md5Hash": o["md5"],
            "crc32c": crc32c(o["data"]), "etag": "CJ" + o["generation"], "timeCreated": "2026-11-17T00:00:00.000Z",
            "updated": "2026-11-17T00:00:00.000Z", "storageClass": "STANDARD",
            "selfLink": f"{url}/storage/v1/b/{bucket}/o/{quote(name, safe='')}",
            "mediaLink": f"{url}/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"}


def list_objects(bucket, q):
    prefix, delimiter = q.get("prefix", ""), q.get("delimiter")
    with lock:
        names = sorted(n for n in bucket_of(bucket) if n.startswith(prefix))
    folders = []
    if delimiter:
        cut = {n: n[:n.index(delimiter, len(prefix)) + 1] for n in names if delimiter in n[len(prefix):]}
        folders, names = sorted(set(cut.values())), [n for n in names if n not in cut]
    page, more = paged(names, q, 100, lambda n: n)
    return {"kind": "storage#objects", "items": [shown_object(bucket, n) for n in page], "prefixes": folders, **more}


def compose(bucket, name, q, body):
    parts = body["sourceObjects"]
    if not 1 <= len(parts) <= 32:
        raise Refused(400, "invalid", "The number of source components provided must be between 1 and 32")
    data = b"".join(object_of(bucket, part["name"], {"generation": str(part["generation"])} if part.get("generation") else {})["data"] for part in parts)
    return store_object(bucket, name, data, q)


def storage(handler, method, path, q, body):
    m = re.fullmatch(r"/b(?:/([^/]+))?(?:/o(?:/([^/]+))?(/compose)?|(/iam/testPermissions))?", path)
    if not m:
        raise Refused(404, "notFound", "Not Found")
    bucket, name = m[1], unquote(m[2]) if m[2] else None
    if m[4]:
        bucket_of(bucket)
        return {"kind": "storage#testIamPermissionsResponse", "permissions": handler.all_of("permissions")}
    if bucket is None and method == "POST":
        buckets.setdefault(json.loads(body)["name"], {})
        return {"kind": "storage#bucket", "name": json.loads(body)["name"]}
    if name is None and "/o" not in path[len("/b/" + bucket):]:
        bucket_of(bucket)
        return {"kind": "storage#bucket", "name": bucket, "location": "US", "storageClass": "STANDARD"}
    if name is None:
        return list_objects(bucket, q)
    if m[3]:
        return compose(bucket, name, q, json.loads(body))
    if method == "DELETE":
        with lock:
            check_generation(object_of(bucket, name, q), q)
            del buckets[bucket][name]
        return None
    object_of(bucket, name, q)
    return shown_object(bucket, name)


def upload(handler, path, q, body):
    bucket = re.fullmatch(r"/b/([^/]+)/o", path)[1]
    bucket_of(bucket)
    kind = q.get("uploadType")
    if kind == "media":
        return store_object(bucket, q["name"], body, q)
    if kind == "multipart":
        mark = re.search(rb'boundary="?([^";]+)', handler.headers["Content-Type"].encode())[1]
        parts = [part.split(b"\r\n\r\n", 1) for part in body.split(b"--" + mark)[1:-1]]
        about = json.loads(parts[0][1])
        return store_object(bucket, about.get("name", q.get("name")), parts[1][1][:-2], q)
    if kind == "resumable" and "upload_id" not in q:
        about = json.loads(body or b"{}")
        name = secrets.token_hex(8)
        uploads[name] = {"bucket": bucket, "name": about.get("name", q.get("name")), "q": q, "data": b""}
        return handler.answer(200, b"{}", {"Location": f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={name}"})
    held = uploads.get(q.get("upload_id"))
    if held is None:
        raise Refused(404, "notFound", "Not Found")
    held["data"] += body
    total = handler.headers.get("Content-Range", "bytes */*").split("/")[1]
    if total == "*" or len(held["data"]) < int(total):
        return handler.answer(308, b"", {"Range": f"bytes=0-{len(held['data']) - 1}"})
    uploads.pop(q["upload_id"])
    return store_object(held["bucket"], held["name"], held["data"], held["q"])


def media(handler, bucket, name, q):
    o = object_of(bucket, name, q)
    data, status, headers = o["data"], 200, {"x-goog-generation": o["generation"], "ETag": "CJ" + o["generation"],
                                             "x-goog-hash": f"crc32c={crc32c(o['data'])},md5={o['md5']}", "x-goog-stored-content-length": str(len(o["data"]))}
    if m := re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", "")):
        first, last = int(m[1]), min(int(m[2] or len(data)), len(data) - 1)
        if first >= len(data):
            raise Refused(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
        status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{len(data)}"
        data = data[first:last + 1]
    handler.answer(status, data, headers, "application/octet-stream")


def signed(handler, method, raw_path, query, body):
    q = dict(parse_qsl(query))
    signature = q.pop("X-Goog-Signature", "")
    canonical = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(q.items()))
    request = "\n".join([method, raw_path, canonical, "host:" + handler.headers["Host"], "", "host", "UNSIGNED-PAYLOAD"])
    email, scope = q["X-Goog-Credential"].split("/", 1)
    to_sign = "\n".join(["GOOG4-RSA-SHA256", q["X-Goog-Date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    import calendar
    begun = calendar.timegm(time.strptime(q["X-Goog-Date"], "%Y%m%dT%H%M%SZ"))
    try:
        assert email == EMAIL and begun - 900 < time.time() < begun + int(q["X-Goog-Expires"]) and int(q["X-Goog-Expires"]) <= 604800
        key.public_key().verify(bytes.fromhex(signature), to_sign.encode(), padding.PKCS1v15(), hashes.SHA256())
    except Exception:
        return handler.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    bucket, name = unquote(raw_path)[1:].split("/", 1)
    if method == "PUT":
        store_object(bucket, name, body, {})
        return handler.answer(200, b"")
    try:
        media(handler, bucket, name, {})
    except Refused:
        handler.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")


# ---- tokens ----
def new_token(instance=None):
    token = "ya29." + secrets.token_urlsafe(60)
    tokens[token] = time.time() + 3600
    if instance:
        token_of[token] = instance.id
    return {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}


def exchange(handler, body):
    """sts.googleapis.com/v1/token: the word of another identity provider for a token."""
    form = dict(parse_qsl(body.decode()))
    exchanged.append({k: v for k, v in sorted(form.items()) if k != "subject_token"} | {"by": handler.headers.get("Authorization", "")})
    if form.get("audience") != AUDIENCE or form.get("requested_token_type") != "urn:ietf:params:oauth:token-type:access_token":
        return 400, {"error": "invalid_request", "error_description": "Invalid value for \"audience\"."}
    if form.get("subject_token") not in subjects:
        return 400, {"error": "invalid_grant", "error_description": "The audience in ID Token does not match the expected audience."}
    said = new_token()
    whose[said["access_token"]] = FEDERATED
    return 200, dict(said, issued_token_type="urn:ietf:params:oauth:token-type:access_token")


def impersonate(path, body, token):
    """projects/-/serviceAccounts/EMAIL:generateAccessToken: for a login, or a federated identity."""
    order = json.loads(body)
    exchanged.append(dict(order, account=unquote(path)))
    if unquote(path) != f"/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken" or whose.get(token) not in ("user", FEDERATED):
        raise Refused(403, "forbidden", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource")
    given = new_token()["access_token"]
    whose[given] = "impersonated"
    return {"accessToken": given,
            "expireTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + int(order["lifetime"][:-1])))}


def give_token(body):
    form = dict(parse_qsl(body.decode()))
    if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer":
        try:
            claims = jwt.decode(form["assertion"], certs=public, audience="https://oauth2.googleapis.com/token")
            assert claims["iss"] == EMAIL and "cloud-platform" in claims["scope"]
        except Exception as e:
            return 400, {"error": "invalid_grant", "error_description": str(e)}
        return 200, new_token()
    good = form == {"grant_type": "refresh_token", "client_id": "an id", "client_secret": "hush/hush", "refresh_token": "1//again"}
    if not good:
        return 400, {"error": "invalid_grant"}
    said = new_token()
    whose[said["access_token"]] = "user"
    return 200, said


def check_token(handler):
    given = handler.headers.get("Authorization", "")
    if tokens.get(given[7:], 0) < time.time() or not given.startswith("Bearer "):
        raise Refused(401, "authError", "Request had invalid authentication credentials. Expected OAuth 2 access token")


def sign_blob(path, body, token):
    if whose.get(token) == "impersonated":
        raise Refused(403, "forbidden", "the account itself may not sign: who asks in its name may")
    if unquote(path) != f"/projects/-/serviceAccounts/{EMAIL}:signBlob":
        raise Refused(403, "forbidden", "Permission 'iam.serviceAccounts.signBlob' denied on resource")
    data = base64.b64decode(json.loads(body)["payload"])
    return {"keyId": "1", "signedBlob": base64.b64encode(key.sign(data, padding.PKCS1v15(), hashes.SHA256())).decode()}


# ---- what a test asks ----
def bill(order):
    """What Google would ask at {"usd_h": PRICE} for all that a job used: each second, 60 at least, nothing for a spot VM that is preempted
    in its first minute."""
    usd = 0.0
    for i in used:
        if i.body.get("labels", {}).get("tidemill-job") == order["job"]:
            long = (i.ended or time.time()) - i.created
            usd += 0 if i.spot and i.taken and long < 60 else max(60, long) / 3600 * order["usd_h"]
    return {"usd": usd}


def control(path, body):
    order = json.loads(body or b"{}")
    if path == "/tidemill/fail":
        with lock:
            faults.append(dict({"times": 1}, **order))
    elif path == "/tidemill/refuse":
        with lock:
            refusals.append(dict({"times": 1}, **order))
    elif path == "/tidemill/together":
        together[0] = order["deletes"]
    elif path == "/tidemill/calm":
        with lock:
            faults.clear()
            refusals.clear()
    elif path == "/tidemill/expire":
        tokens.clear()
    elif path == "/tidemill/subject":
        subjects.append(order["token"])
    elif path == "/tidemill/exchanged":
        return json.dumps(exchanged)
    elif path == "/tidemill/obtain":
        obtainable[order["zone"]] = order["share"]
    elif path == "/tidemill/price":
        for one in skus:
            if order["sku"] in one["description"]:
                one["pricingInfo"][-1]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = order["nanos"]
    elif path in ("/tidemill/lose", "/tidemill/preempt"):
        for i in list(instances.values()):
            if i.address == order["address"]:
                ended(i, "compute.instances." + ("hostError" if path.endswith("lose") else "preempted"))
    elif path == "/tidemill/alive":
        return str(sum("tidemill-job" in i.body.get("labels", {}) for i in instances.values())) + "\n"
    elif path == "/tidemill/rules":
        return ",".join(sorted(firewalls))
    elif path == "/tidemill/themselves":
        return f"{len(set(by_themselves))}\n"
    elif path == "/tidemill/unlabelled":
        return f"{unlabelled[0]}\n"
    elif path == "/tidemill/open":
        return json.dumps(open_vms)
    elif path == "/tidemill/bill":
        return json.dumps(bill(order))
    elif path == "/tidemill/ever":
        return f"{len(made)}\n"
    elif path == "/tidemill/calls":
        return json.dumps(calls)
    elif path == "/tidemill/instances":
        return json.dumps([i.shown() for i in instances.values()])
    elif path.startswith("/tidemill/keys/"):
        return "".join(n + "\n" for n in sorted(buckets[args.bucket]) if n.startswith(path[len("/tidemill/keys/"):]))
    elif hypervisor:
        return json.dumps(hypervisor.control(path, order)) + "\n"
    return "{}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, data, headers=(), kind="application/json; charset=UTF-8"):
        if self.lost:
            return self.cut()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", kind)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            if self.command != "HEAD":
                self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def cut(self):
        import socket
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def all_of(self, name):
        return [v for k, v in parse_qsl(urlsplit(self.path).query) if k == name]

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            out = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def planted(self, line):
        with lock:
            for f in faults:
                if f["match"] not in line or f["times"] <= 0:
                    continue
                if f.get("after", 0) > 0:
                    f["after"] -= 1
                    continue
                f["times"] -= 1
                return f
        return None

    def route(self, path, query, q, body):
        if path == "/token":
            status, said = give_token(body)
            return self.answer(status, json.dumps(said).encode())
        if path == "/sts/v1/token":
            status, said = exchange(self, body)
            return self.answer(status, json.dumps(said).encode())
        if path == "/subject":
            good = self.headers.get("X-Ask") == "kindly"
            return self.answer(200 if good else 403, json.dumps({"value": subjects[-1]}).encode() if good else b"")
        if path.startswith("/computeMetadata/v1/"):
            return self.metadata(path[len("/computeMetadata/v1/"):])
        if "X-Goog-Signature=" in query:
            return signed(self, self.command, path, query, body)
        check_token(self)
        if path.startswith("/compute/v1/"):
            said = compute(self.command, path[len("/compute/v1"):], q, json.loads(body or b"{}"), self.headers["Authorization"][7:])
        elif path.startswith("/upload/storage/v1/"):
            said = upload(self, path[len("/upload/storage/v1"):], q, body)
            if said is None:
                return
        elif path.startswith(("/storage/v1/", "/download/storage/v1/")):
            inner = path[path.index("/storage/v1") + len("/storage/v1"):]
            if q.get("alt") == "media":
                m = re.fullmatch(r"/b/([^/]+)/o/([^/]+)", inner)
                return media(self, m[1], unquote(m[2]), q)
            said = storage(self, self.command, inner, q, body)
            if said is None:
                return self.answer(204, b"")
        elif path.startswith("/v1/services/"):
            said = billing(path, q)
        elif path.endswith(":signBlob"):
            said = sign_blob(path[len("/v1"):], body, self.headers["Authorization"][7:])
        elif path.endswith(":generateAccessToken"):
            said = impersonate(path, body, self.headers["Authorization"][7:])
        elif path.endswith(":testIamPermissions"):
            said = {"permissions": json.loads(body)["permissions"]}
        else:
            raise Refused(404, "notFound", f"{path}: no such service")
        self.answer(200, json.dumps(said).encode())

    def metadata(self, path):
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.answer(403, b"")
        said = {"instance/service-accounts/default/token": json.dumps(new_token()), "instance/service-accounts/default/email": EMAIL,
                "project/project-id": PROJECT, "instance/zone": f"projects/1/zones/{ZONES[0]}"}.get(path)
        self.answer(200 if said else 404, (said or "").encode(), {"Metadata-Flavor": "Google"})

    def serve(self):
        self.lost = False
        at = urlsplit(self.path)
        path, body = at.path, self.body()
        if path.startswith("/tidemill/"):
            return self.answer(200, control(path, body).encode())
        q = dict(parse_qsl(at.query, keep_blank_values=True))
        kind = re.sub(r"/(b|o|instances|operations|zones|regions)/[^/]+", r"/\1/X", path)
        with lock:
            calls[f"{self.command} {kind}"] = calls.get(f"{self.command} {kind}", 0) + 1
        fault = self.planted(f"{self.command} {self.path}")
        if fault and fault.get("how") == "cut":
            return self.cut()
        if fault and fault.get("how") != "lost":
            return self.answer(fault["status"], json.dumps(fault.get("body", {})).encode(), fault.get("headers", {}))
        self.lost = bool(fault)
        try:
            self.route(path, at.query, q, body)
        except Refused as e:
            self.answer(e.status, json.dumps(e.body).encode())
        except Exception as e:  # a test must see it
            print("fake:", self.command, self.path, repr(e), flush=True)
            self.answer(500, b"{}")

    def handle(self):
        try:
            super().handle()
        except ConnectionResetError:  # who asked has died
            pass

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = serve

    def log_message(self, *a):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


server = Server((args.host, 0), Handler)
url = f"http://{args.host}:{server.server_port}"
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Thread(target=watch_lives, daemon=True).start()
if args.hypervisor:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, here + "/../clouds"]
    from gcp_machines import GcpMachines
    hypervisor = GcpMachines(instances, ended, new_token)
pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
with open(args.folder + "/key.json", "w") as f:
    json.dump({"type": "service_account", "project_id": PROJECT, "private_key_id": "k1", "private_key": pem, "client_email": EMAIL,
               "client_id": "1", "token_uri": url + "/token"}, f)
with open(args.folder + "/user.json", "w") as f:
    json.dump({"type": "authorized_user", "client_id": "an id", "client_secret": "hush/hush", "refresh_token": "1//again",
               "quota_project_id": PROJECT, "token_uri": url + "/token"}, f)
account = f"{url}/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"
federated = {"type": "external_account", "audience": AUDIENCE, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": url + "/sts/v1/token",
             "credential_source": {"file": args.folder + "/subject"}}
by_url = {"url": url + "/subject", "headers": {"X-Ask": "kindly"}, "format": {"type": "json", "subject_token_field_name": "value"}}
with open(args.folder + "/user.json") as f:
    login = json.load(f)
for name, words in (
        ("impersonated", {"type": "impersonated_service_account", "service_account_impersonation_url": account, "source_credentials": login, "delegates": []}),
        ("federated", federated),
        ("federated-as", dict(federated, service_account_impersonation_url=account, service_account_impersonation={"token_lifetime_seconds": 1800})),
        ("federated-url", dict(federated, credential_source=by_url, client_id="pool-client", client_secret="pool-hush"))):
    with open(f"{args.folder}/{name}.json", "w") as f:
        json.dump(words, f)
with open(args.folder + "/cloud.tmp", "w") as f:
    f.write(f"export GCP_FAKE={url}\nexport GOOGLE_APPLICATION_CREDENTIALS={args.folder}/key.json\nexport STORAGE_EMULATOR_HOST={url}\n"
            f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE={url}/compute/v1/\n"
            f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS={url}/\n"
            f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER={url}/\n"
            f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING={url}/\n")
os.rename(args.folder + "/cloud.tmp", args.folder + "/cloud.env")
sys.stdin.read()
if hypervisor:
    hypervisor.close()
