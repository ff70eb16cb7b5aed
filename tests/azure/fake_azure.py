"""A fake of Azure for tests: its Resource Manager (VMs, interfaces, disks, addresses, networks, groups, operations), its tokens,
and its retail prices. tests/azure/prove.py drives it with Microsoft's own clients.

Use: fake_azure.py FOLDER [--host H] [--azurite PROGRAM] [--hypervisor]
Writes FOLDER/cloud.env, and ends with its standard input. A test orders at /tidemill/...: fail, vms, alive, ever, lose, notice, left,
open, price.
"""
import argparse, base64, hmac, http.client, json, os, re, secrets, subprocess, sys, threading, time, uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--azurite")
parser.add_argument("--hypervisor", action="store_true")
args = parser.parse_args()
SUBSCRIPTION, TENANT, CLIENT, SECRET = "5ab", "ten", "app", secrets.token_hex(8)
WORD = "a.federated.word"  # of another identity provider, which the application believes
PAGE, DELAY_S = 2, 0.3
lock = threading.RLock()
resources, operations, tokens, faults, denied = {}, {}, {}, [], []
made_vms, open_vms, used, delegated, deallocated, moved = [], [], [], [], [], {}  # moved: prices that held until then
hypervisor = None


class Refused(Exception):
    def __init__(self, status, code, message, headers=()):
        super().__init__(code)
        self.status, self.body, self.headers = status, {"error": {"code": code, "message": message}}, headers


def new_token(seconds=3600):
    token = secrets.token_urlsafe(24)
    tokens[token] = time.time() + seconds
    return token


def kind_of(path):
    return path.lower().split("/providers/")[-1].rsplit("/", 1)[0]


def all_of(kind, group=None):
    return [r for k, r in resources.items() if kind_of(k) == kind.lower() and (not group or f"/resourcegroups/{group.lower()}/" in k)]


class Instance:
    """A VM as a machine boots it."""

    def __init__(self, vm):
        self.vm, self.id, self.name = vm, vm["id"].lower() + vm["properties"]["vmId"], vm["name"]
        self.spot = vm["properties"].get("priority") == "Spot"
        self.data = base64.b64decode(vm["_data"]).decode()
        nic = resources[vm["properties"]["networkProfile"]["networkInterfaces"][0]["id"].lower()]
        self.address = nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]

    def running(self):
        return resources.get(self.vm["id"].lower()) is self.vm and self.vm["properties"]["provisioningState"] in (
            "Creating", "Succeeded") and not self.vm["_stopped"]


addresses = iter(f"10.{a}.{b}.{c}" for a in range(1, 255) for b in range(256) for c in range(2, 255))


def put(path, body, headers):
    kind, key, name = kind_of(path), path.lower(), path.rsplit("/", 1)[1]
    old = resources.get(key)
    if "/securityrules/" in key:
        return put_rule(path, body)
    if kind.startswith("/subscriptions"):  # a resource group
        resources[key] = made = {"id": path, "name": name, "location": body["location"], "tags": body.get("tags", {}),
                                 "properties": {"provisioningState": "Succeeded"}}
        return (200 if old else 201), made
    group = re.match("(/subscriptions/[^/]+/resourcegroups/[^/]+)/", key).group(1)
    if group not in resources:
        raise Refused(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
    if "location" not in body:
        raise Refused(400, "LocationRequired", "The location property is required for this definition.")
    made = {"id": path, "name": name, "type": kind, **{k: body[k] for k in ("location", "tags", "zones", "sku", "identity") if k in body},
            "properties": json.loads(json.dumps(body.get("properties", {})))}
    p = made["properties"]
    p["provisioningState"] = "Succeeded"
    if kind == "microsoft.network/networkinterfaces":
        for known in groups_of(made):
            if known not in resources:
                raise Refused(400, "InvalidResourceReference", f"Resource {known} referenced by resource {path} was not found.")
        for one in p["ipConfigurations"]:
            if "id" not in one["properties"].get("subnet", {}):
                raise Refused(400, "InvalidRequestFormat", "no subnet")
            before = old and old["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
            one["properties"]["privateIPAddress"] = before or next(addresses)
            public = one["properties"].get("publicIPAddress")
            if public and public["id"].lower() not in resources:
                raise Refused(400, "InvalidResourceReference", "no such address")
            if public:
                resources[public["id"].lower()]["properties"]["ipConfiguration"] = {"id": path + "/ipConfigurations/one"}
        if old and "virtualMachine" in old["properties"]:
            p["virtualMachine"] = old["properties"]["virtualMachine"]
    if kind == "microsoft.compute/virtualmachines":
        return put_vm(key, made, old, headers)
    if kind == "microsoft.network/publicipaddresses" and p.get("publicIPAllocationMethod") == "Static":
        p["ipAddress"] = old["properties"]["ipAddress"] if old else next(addresses).replace("10.", "203.", 1)
    resources[key] = made
    return (200 if old else 201), made


def put_rule(path, body):
    """A rule of a security group, beside those that it was made with."""
    group = resources.get(path.lower().rsplit("/securityrules/", 1)[0])
    if not group:
        raise Refused(404, "ResourceNotFound", "no such security group")
    made = {"id": path, "name": path.rsplit("/", 1)[1], "properties": {**body["properties"], "provisioningState": "Succeeded"}}
    rules = group["properties"].setdefault("securityRules", [])
    if any(r["properties"]["priority"] == made["properties"]["priority"] and r["name"] != made["name"] for r in rules):
        raise Refused(400, "SecurityRuleConflict", "rules have the same priority and direction")
    rules[:] = [r for r in rules if r["name"] != made["name"]] + [made]
    return 200, made


def groups_of(nic):
    """Ids of the security groups that an interface names."""
    named = [nic["properties"].get("networkSecurityGroup")]
    for one in nic["properties"].get("ipConfigurations", []):
        named += one["properties"].get("applicationSecurityGroups", [])
    return {g["id"].lower() for g in named if g}


def is_closed(nic):
    """Only those of its own application security group reach it."""
    rules = resources.get(nic["properties"].get("networkSecurityGroup", {}).get("id", "").lower(), {"properties": {}})["properties"].get("securityRules", [])
    own = {g["id"].lower() for one in nic["properties"]["ipConfigurations"] for g in one["properties"].get("applicationSecurityGroups", [])}
    for rule in sorted((r["properties"] for r in rules if r["properties"]["direction"] == "Inbound"), key=lambda r: r["priority"]):
        if rule.get("destinationPortRange") == "7443" and rule["protocol"] == "Tcp" and rule["sourceAddressPrefix"] not in ("*", "Internet"):
            continue  # where people reach a coordinator
        if rule["access"] == "Deny" and rule["protocol"] == rule["sourceAddressPrefix"] == rule["destinationPortRange"] == "*":
            return bool(own)
        if {g["id"].lower() for g in rule.get("sourceApplicationSecurityGroups", [])} != own:
            return False
    return False


def group_users(key):
    """Who keeps a security group from going."""
    nics = [r["id"] for r in all_of("Microsoft.Network/networkInterfaces") if key in groups_of(r)]
    rules = [r["id"] for r in all_of("Microsoft.Network/networkSecurityGroups") if any(
        g["id"].lower() == key for rule in r["properties"].get("securityRules", []) for end in ("source", "destination")
        for g in rule["properties"].get(end + "ApplicationSecurityGroups", []))]
    return nics + rules


def put_vm(key, made, old, headers):
    p = made["properties"]
    data = p["osProfile"].pop("customData", "")
    if not p["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"].startswith("ssh-rsa AAAAB3NzaC1yc2EA"):
        raise Refused(400, "InvalidParameter", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.")
    if len(base64.b64decode(data, validate=True)) > 65535:
        raise Refused(400, "InvalidParameter", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
    if old:
        if old["_data"] != data:
            raise Refused(409, "PropertyChangeNotAllowed", "Changing property 'osProfile.customData' is not allowed.")
        return 200, old
    if p.get("priority") == "Spot" and p.get("billingProfile", {}).get("maxPrice") != -1:
        raise Refused(409, "SpotPriceGreaterThanProvidedMaxPrice", "Unable to perform operation since the provided max price is lower.")
    nic = resources.get(p["networkProfile"]["networkInterfaces"][0]["id"].lower())
    if not nic:
        raise Refused(400, "InvalidParameter", "no such interface")
    nic["properties"]["virtualMachine"] = {"id": made["id"]}
    disk = p["storageProfile"]["osDisk"]
    disk_path = made["id"].rsplit("/providers/", 1)[0] + "/providers/Microsoft.Compute/disks/" + disk["name"]
    resources[disk_path.lower()] = {"id": disk_path, "name": disk["name"], "location": made["location"], "tags": made.get("tags", {}),
                                    "properties": {"provisioningState": "Succeeded", "diskState": "Attached", "diskSizeGB": 30}}
    disk["managedDisk"] = {"id": disk_path}
    p.update(provisioningState="Creating", vmId=str(uuid.uuid4()), timeCreated=datetime.now(timezone.utc).isoformat())
    made.update(_data=data, _stopped=False, _began=time.time())
    made_vms.append(made["name"])
    used.append(made)
    open_vms.extend(made["name"] for nic in p["networkProfile"]["networkInterfaces"] if not is_closed(resources[nic["id"].lower()]))
    resources[key] = made
    failed = next((f for f in faults if f["how"] == "async" and f["times"] > 0), None)
    if failed:
        failed["times"] -= 1
    operation(headers, lambda: done_vm(key, made, failed), failed)
    return 201, made


def done_vm(key, made, failed):
    if resources.get(key) is made and made["properties"]["provisioningState"] == "Creating":
        made["properties"]["provisioningState"] = "Failed" if failed else "Succeeded"
    return failed and {"code": failed["code"], "message": "planted: it failed after it was accepted"}


def operation(headers, work, slow=None):
    name = str(uuid.uuid4())
    operations[name] = {"at": time.time() + DELAY_S, "work": work, "done": None}
    url = f"{endpoint}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/operations/{name}?p={'x' * 64}&api-version=1"
    headers += [("Azure-AsyncOperation", url), ("Location", url + "&monitor=true"), ("Retry-After", "1")]


def settle():
    """Operations whose time has come are done."""
    for op in list(operations.values()):
        if op["done"] is None and time.time() >= op["at"]:
            error = op["work"]()
            op["done"] = {"status": "Failed", "error": error} if error else {"status": "Succeeded"}


def remove_vm(vm):
    if resources.pop(vm["id"].lower(), None):
        vm["_ended"] = time.time()
    for nic in vm["properties"]["networkProfile"]["networkInterfaces"]:
        known = resources.get(nic["id"].lower())
        if known:
            known["properties"].pop("virtualMachine", None)
        if known and nic["properties"].get("deleteOption") == "Delete":
            remove_nic(known)
    disk = vm["properties"]["storageProfile"]["osDisk"]
    if disk.get("deleteOption") == "Delete":
        resources.pop(disk["managedDisk"]["id"].lower(), None)


def evict(vm):
    """As its evictionPolicy says: without one, or with Deallocate, it stays, with a disk that costs."""
    if vm["properties"].get("evictionPolicy") == "Delete" or vm["properties"].get("priority") != "Spot":
        return remove_vm(vm)
    vm["_stopped"] = "deallocated"
    deallocated.append(vm["name"])


def remove_nic(nic):
    resources.pop(nic["id"].lower(), None)
    for one in nic["properties"]["ipConfigurations"]:
        public = one["properties"].get("publicIPAddress")
        if public and public.get("properties", {}).get("deleteOption") == "Delete":
            resources.pop(public["id"].lower(), None)


def delete(path, headers):
    known = resources.get(path.lower())
    if not known:
        return 204, None
    kind = kind_of(path)
    if kind == "microsoft.network/networkinterfaces" and "virtualMachine" in known["properties"]:
        raise Refused(400, "NicInUse", f"Network Interface {path} is used by existing resource")
    if kind.endswith("securitygroups") and group_users(path.lower()):
        raise Refused(400, "InUse" + path.split("/")[-2][:1].upper() + path.split("/")[-2][1:-1] + "CannotBeDeleted",
                      f"{path} cannot be deleted because it is in use by the following resources: {group_users(path.lower())}")
    if kind == "microsoft.compute/virtualmachines":
        known["properties"]["provisioningState"] = "Deleting"
        operation(headers, lambda: remove_vm(known))
        return 202, None
    resources.pop(path.lower())
    if kind == "microsoft.network/networkinterfaces":  # deleteOption of its address is for VMs: it stays, and is nobody's
        for one in known["properties"]["ipConfigurations"]:
            public = resources.get(one["properties"].get("publicIPAddress", {}).get("id", "").lower())
            if public:
                public["properties"].pop("ipConfiguration", None)
    if kind == "microsoft.network/publicipaddresses" and "ipConfiguration" in known["properties"]:
        resources[path.lower()] = known
        raise Refused(400, "PublicIPAddressCannotBeDeleted", f"Public IP address {path} can not be deleted since it is still allocated")
    return 200, None


def shown(r, status=False):
    r = {k: v for k, v in r.items() if not k.startswith("_")}
    if status:
        known = resources[r["id"].lower()]
        power = known["_stopped"] or "running"
        r = {**r, "properties": {**r["properties"], "instanceView": {"statuses": [
            {"code": "ProvisioningState/succeeded"}, {"code": "PowerState/" + power, "level": "Info"}]}}}
    return r


def get(path, query):
    at = path.lower()
    if "/operations/" in at:
        op = operations.get(at.rsplit("/", 1)[1])
        if not op:
            raise Refused(404, "NotFound", "no such operation")
        if "monitor" in query:
            return (202 if op["done"] is None else 200), {}
        return 200, {"name": at.rsplit("/", 1)[1], **(op["done"] or {"status": "InProgress"})}
    if at.endswith("/usages"):
        return 200, {"value": [{"currentValue": 4, "limit": 100, "unit": "Count", "name": {"value": "lowPriorityCores", "localizedValue": "Total Regional Low-priority vCPUs"}},
                               {"currentValue": 100, "limit": 100, "unit": "Count", "name": {"value": "standardNCASv3_T4Family", "localizedValue": "NCasT4_v3"}}]}
    if at.endswith("/microsoft.authorization/permissions"):
        return 200, {"value": [{"actions": ["*/read", "Microsoft.Compute/*", "Microsoft.Network/*", "Microsoft.Resources/subscriptions/resourceGroups/*",
                                            "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"], "notActions": denied}]}
    if at in resources:
        return 200, shown(resources[at], query.get("$expand") == ["instanceView"])
    m = re.fullmatch(r"/subscriptions/[^/]+(?:/resourcegroups/([^/]+))?/providers/([^/]+/[^/]+)", at)
    if m:
        if m.group(1) and f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{m.group(1)}" not in resources:
            raise Refused(404, "ResourceGroupNotFound", "no such group")
        found = sorted(all_of(m.group(2), m.group(1)), key=lambda r: r["name"])
        start = int(query.get("$skiptoken", ["0"])[0])
        answer = {"value": [shown(r, "statusOnly" in query) for r in found[start:start + PAGE]]}
        if len(found) > start + PAGE:
            answer["nextLink"] = f"{endpoint}{path}?api-version=1&$skiptoken={start + PAGE}" + ("&statusOnly=true" if "statusOnly" in query else "")
        return 200, answer
    if re.fullmatch(r"/subscriptions/[^/]+", at) and at.endswith("/" + SUBSCRIPTION):
        return 200, {"subscriptionId": SUBSCRIPTION, "displayName": "a subscription for tests", "state": "Enabled"}
    if re.fullmatch(r"/subscriptions/[^/]+", at):
        raise Refused(404, "SubscriptionNotFound", "The subscription could not be found.")
    raise Refused(404, "ResourceNotFound", f"The Resource '{path}' was not found.")


def meter(size, place, price, words="", product=""):
    """A row as the Retail Prices API documents them."""
    name = size.removeprefix("Standard_").replace("_", " ") + words
    return {"currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price, "armRegionName": place,
            "location": place, "effectiveStartDate": "2026-11-01T00:00:00Z", "meterId": str(uuid.uuid4()), "meterName": name,
            "productId": "DZH", "skuId": "DZH/0", "productName": f"Virtual Machines {size} Series{product}", "skuName": name,
            "serviceName": "Virtual Machines", "serviceId": "DZH313Z7MMC8", "serviceFamily": "Compute", "unitOfMeasure": "1 Hour",
            "type": "Consumption", "isPrimaryMeterRegion": True, "armSkuName": size}


T4 = "Standard_NC4as_T4_v3"
meters = [meter(T4, "eastus", 0.526), meter(T4, "eastus", 0.3, " Low Priority"), meter(T4, "eastus", 0.2, " Spot"),
          meter(T4, "eastus", 0.15, " Spot", " Windows"), meter(T4, "westus2", 0.526), meter(T4, "westus2", 0.25, " Spot")]


def retail(query):
    """Pages of prices; what is asked for is `name eq 'value'`, with and between."""
    found = meters
    for part in query.get("$filter", [""])[0].split(" and "):
        m = re.fullmatch(r"(\w+) eq '([^']*)'", part)
        key = {"priceType": "type"}.get(m[1], m[1])
        found = [r for r in found if r[key] == m[2]]
    start = int(query.get("$skip", ["0"])[0])
    more = f"https://prices.azure.com:443/api/retail/prices?$skip={start + PAGE}" if len(found) > start + PAGE else None
    return {"BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail", "Items": found[start:start + PAGE],
            "NextPageLink": more, "Count": len(found[start:start + PAGE])}


def bill(order):
    """What Azure would ask for all spot VMs of a job: each second, at the retail price of its moment."""
    usd = 0.0
    for vm in used:
        if vm["tags"].get("tidemill:job") != order["job"]:
            continue
        begin, end = vm["_began"], vm.get("_ended", time.time())
        now = next(r["retailPrice"] for r in meters if (r["armSkuName"], r["armRegionName"], r["skuName"].endswith("Spot"), "Windows" in r["productName"])
                   == (vm["properties"]["hardwareProfile"]["vmSize"], vm["location"], True, False))
        for at, before in reversed(moved.get((vm["properties"]["hardwareProfile"]["vmSize"], vm["location"]), [])):
            if begin < at:
                usd += max(0, end - at) / 3600 * now
                end, now = min(at, end), before
        usd += (end - begin) / 3600 * now
    return {"usd": usd}


def control(path, order):
    if path == "/tidemill/bill":
        return bill(order)
    if path == "/tidemill/price":
        for row in meters:
            if (row["armSkuName"], row["armRegionName"]) == (order["size"], order["location"]) and row["skuName"].endswith("Spot") and "Windows" not in row["productName"]:
                moved.setdefault((order["size"], order["location"]), []).append((time.time(), row["retailPrice"]))
                row["retailPrice"] = row["unitPrice"] = order["usd_h"]
        return {}
    vms = all_of("Microsoft.Compute/virtualMachines")
    if path == "/tidemill/fail":
        faults.append({"how": "error", "times": 1, **order})
        return {}
    if path == "/tidemill/alive":
        return sum(v["properties"]["provisioningState"] in ("Creating", "Succeeded") for v in vms)
    if path == "/tidemill/untagged":  # what nobody owns
        return sorted(k for k, r in resources.items() if "tidemill:owner" not in r.get("tags", {}))
    if path == "/tidemill/resources":
        return sorted(resources)
    if path == "/tidemill/ever":
        return len(made_vms)
    if path == "/tidemill/left":
        return sum(len(all_of(k)) for k in ("Microsoft.Compute/virtualMachines", "Microsoft.Network/networkInterfaces",
                                            "Microsoft.Compute/disks", "Microsoft.Network/publicIPAddresses",
                                            "Microsoft.Network/networkSecurityGroups", "Microsoft.Network/applicationSecurityGroups"))
    if path == "/tidemill/delegated":  # what was asked for by URLs that a user delegation key had signed
        return delegated
    if path == "/tidemill/open":  # VMs that others than those of their group reach
        return sorted(set(open_vms))
    if path == "/tidemill/lose":
        for v in vms:
            if order["name"] in (v["name"], Instance(v).address):
                evict(v)
        return {}
    if path == "/tidemill/deallocated":  # evicted, and still there
        return sorted(set(deallocated))
    if path == "/tidemill/expire":
        tokens.clear()
        return {}
    if path == "/tidemill/faults":
        return sum(f["times"] for f in faults)
    if path == "/tidemill/deny":
        denied[:] = [order["action"]] if order else []
        return {}
    return hypervisor.control(path, order) if hypervisor else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=(), cut=False):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[:len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    def fault(self, words):
        for f in faults:
            if f["how"] != "async" and f["times"] > 0 and re.search(f["match"], words):
                f["times"] -= 1
                return f
        return None

    def act(self, at, body, headers):
        path, query = unquote(at.path), parse_qs(at.query)
        if tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer "), 0) < time.time():
            raise Refused(401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now.")
        if "api-version" not in query:
            raise Refused(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
        if self.command == "PUT":
            return put(path, body, headers)
        return delete(path, headers) if self.command == "DELETE" else get(path, query)

    def blob(self, at, raw):
        """Blobs for whoever has a token, in front of Azurite, which takes none over http: user delegation keys, as it checks them; what is signed
        by one goes there as it is, other requests by a SAS of ours."""
        query = parse_qs(at.query)
        has_token = tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer "), 0) > time.time()
        if "sig" not in query and not has_token:
            return self.answer(403, None)
        if query.get("comp") == ["userdelegationkey"]:
            start, expiry = re.search(r"<Start>(.*)</Start><Expiry>(.*)</Expiry>", raw.decode()).groups()
            said = ["oid-of-app", TENANT, start, expiry, "b", self.headers["x-ms-version"]]
            value = base64.b64encode(hmac.digest(seed(), "\n".join(said).encode(), "sha256")).decode()
            names = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion", "Value")
            words = "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, [*said, value]))
            return self.pass_on(200, [], f'<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>{words}</UserDelegationKey>'.encode())
        if "skoid" in query:
            delegated.append(f"{self.command} {at.path.rsplit('/', 1)[1]}")
        there = urlsplit(blob_endpoint)
        path = at.path.removeprefix("/blobs") + "?" + "&".join(p for p in (at.query, "" if "sig" in query else own_sas) if p)
        c = http.client.HTTPConnection(there.hostname, there.port)
        c.request(self.command, path, raw or None, {k: v for k, v in self.headers.items() if k.lower() not in ("host", "authorization", "connection")})
        got = c.getresponse()
        self.pass_on(got.status, [(k, v) for k, v in got.getheaders() if k.lower() not in ("content-length", "transfer-encoding", "connection")],
                     got.read(), got.getheader("Content-Length"))
        c.close()

    def pass_on(self, status, headers, data, length=None):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        at = urlsplit(self.path)
        if at.path.startswith("/blobs/"):
            return self.blob(at, raw)
        headers, fault = [], None
        if at.path.startswith("/tidemill/"):
            with lock:
                settle()
                return self.answer(200, control(at.path, json.loads(raw) if raw else {}))
        if at.path == "/api/retail/prices":
            return self.answer(200, retail(parse_qs(at.query)))
        if at.path.endswith("/oauth2/v2.0/token"):
            form = parse_qs(raw.decode())
            named = form.get("client_secret") == [SECRET] or (form.get("client_assertion") == [WORD] and
                form.get("client_assertion_type") == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"])
            good = form.get("client_id") == [CLIENT] and named and form["scope"][0].startswith(("https://management.azure.com/", "https://storage.azure.com/"))
            return self.answer(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": new_token()}) if good else self.answer(401, {})
        fault = self.fault(f"{self.command} {at.path}")
        if fault and fault["how"] == "error":
            return self.answer(fault["status"], {"error": {"code": fault["code"], "message": "planted"}},
                               [("Retry-After", "1")] if fault["status"] == 429 else [])
        with lock:
            settle()
            try:
                status, body = self.act(at, json.loads(raw) if raw else {}, headers)
            except Refused as e:
                status, body, headers = e.status, e.body, list(e.headers)
            body = shown(body) if body and "id" in body else body
        if fault and fault["how"] == "lost":  # done, and nobody hears of it
            self.close_connection = True
            return None
        if fault and fault["how"] == "slow":
            time.sleep(fault["seconds"])
        self.answer(status, body, headers, cut=bool(fault and fault["how"] == "cut"))

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def log_message(self, *a):
        pass


server = ThreadingHTTPServer((args.host, 0), Handler)
server.daemon_threads = True
endpoint = f"http://{args.host}:{server.server_port}"
threading.Thread(target=server.serve_forever, daemon=True).start()
storage, blobs, blob_endpoint, own_sas = "", None, "", ""


def seed():
    """What Azurite makes user delegation keys from."""
    with open(os.path.join(os.path.dirname(os.path.realpath(args.azurite)), "utils/constants.js")) as f:
        return re.search(r'USERDELEGATIONKEY_SIGNING_SEED = "([^"]*)"', f.read()).group(1).encode()


if args.azurite:
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    blobs = subprocess.Popen([args.azurite, "--blobHost", args.host, "--blobPort", "0", "--location", args.folder + "/azurite", "--silent",
                              "--skipApiVersionCheck", "--disableTelemetry"], env={**os.environ, "AZURITE_ACCOUNTS": "tide:" + key},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in blobs.stdout:
        found = re.search(r"listens on (http://[0-9.:]+)", line)
        if found:
            break
    storage = f"DefaultEndpointsProtocol=http;AccountName=tide;AccountKey={key};BlobEndpoint={found.group(1)}/tide"
    from azure.storage.blob import BlobServiceClient, generate_account_sas
    blob_endpoint = found.group(1)
    own_sas = generate_account_sas("tide", key, resource_types="sco", permission="rwdlac", expiry=datetime(2099, 1, 1, tzinfo=timezone.utc))
    BlobServiceClient.from_connection_string(storage).create_container("tide")
if args.hypervisor:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clouds"))
    from azure_machines import AzureMachines
    hypervisor = AzureMachines(lambda: [v.setdefault("_instance", Instance(v)) for v in all_of("Microsoft.Compute/virtualMachines")],
                               evict, remove_vm, new_token, lock)
with open(args.folder + "/cloud.tmp", "w") as f:
    f.write(f"export AZURE_RESOURCE_MANAGER_ENDPOINT={endpoint}\nexport AZURE_AUTHORITY_HOST={endpoint}\nexport AZURE_SUBSCRIPTION_ID={SUBSCRIPTION}\n"
            f"export AZURE_TENANT_ID={TENANT}\nexport AZURE_CLIENT_ID={CLIENT}\nexport AZURE_CLIENT_SECRET={SECRET}\n"
            f"export AZURE_RETAIL_PRICES_ENDPOINT={endpoint}\nexport AZURE_STORAGE_CONNECTION_STRING='{storage}'\n"
            f"export AZURE_BY_TOKEN='AccountName=tide;BlobEndpoint={endpoint}/blobs/tide'\n")
os.rename(args.folder + "/cloud.tmp", args.folder + "/cloud.env")
sys.stdin.read()
if hypervisor:
    hypervisor.close()
if blobs:
    blobs.terminate()
    blobs.wait()
