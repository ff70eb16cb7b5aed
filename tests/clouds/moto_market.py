"""What moto's EC2 lacks of a market: spot prices that move, capacity that some places do not have, placement scores, fleets
that choose a place by them and say who had none, and groups that stay while their members do."""
import threading, time

lock = threading.Lock()
BASE_USD_H = 0.92
ZONES = "abcdef"
began = time.time()
history = []  # (time, type, zone, price), by time
refused = {}  # (type, zone) -> code
pages = {"last": 0, "followed": 0}  # of prices: token -> (items, from which on)
said = {}  # client token of a fleet -> [(type, zone, code)]


def text_of(at):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".000Z"


def time_of(text):
    import calendar
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def price(instance_type, zone, at=None):
    with lock:
        found = [p for t, i, z, p in history if i == instance_type and z in (zone, "*") and (at is None or t <= at)]
    return found[-1] if found else BASE_USD_H


def integral(instance_type, zone, begin, end):
    """Dollars between two times, through all prices that there were."""
    with lock:
        changes = [t for t, i, z, _ in history if i == instance_type and z in (zone, "*") and begin < t < end]
    edges = [begin, *changes, end]
    return sum((b - a) / 3600 * price(instance_type, zone, a) for a, b in zip(edges, edges[1:]))


QUOTAS = [("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 64),
          ("L-417A185B", "Running On-Demand P instances", 0), ("L-DB2E81BA", "Running On-Demand G and VT instances", 8),
          ("L-0263D0A3", "EC2-VPC Elastic IPs", 5), ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 64),
          ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 32), ("L-C4BD4855", "All P5 Spot Instance Requests", 0),
          ("L-3819A6DF", "All G and VT Spot Instance Requests", 16)]


def quotas(order):
    """ListServiceQuotas, in pages: moto knows none of EC2."""
    at = int(order.get("NextToken") or 0)
    listed = [{"ServiceCode": "ec2", "QuotaCode": c, "QuotaName": n, "Value": float(v)} for c, n, v in QUOTAS[at:at + 3]]
    return {"Quotas": listed, **({"NextToken": str(at + 3)} if at + 3 < len(QUOTAS) else {})}


def bill(order):
    """What AWS would ask for all that ours used, by its rules: each second at the price of its moment, 60 at least, nothing for
    a spot instance that it takes back within its first hour. On demand at {"on_demand": {TYPE: PRICE}}."""
    from moto.ec2.models import ec2_backends
    sums = {"spot": 0.0, "on_demand": 0.0, "coordinator": 0.0, "free": 0}
    for of in (i for b in ec2_backends["123456789012"].values() for i in b.all_instances()):
        tags = {t["key"]: t["value"] for t in of.get_tags()}
        if "tidemill:job" not in tags or order.get("job") not in (None, tags["tidemill:job"]):
            continue
        begin, end = of.tm_began, getattr(of, "tm_ended", time.time())
        long = max(60, end - begin)
        if of.lifecycle == "spot":
            taken = of.state_reason and of.state_reason.code == "Server.SpotInstanceTermination"
            sums["free"] += bool(taken and end - begin < 3600)
            if not (taken and end - begin < 3600):
                sums["spot"] += integral(of.instance_type, of.placement.zone, begin, begin + long)
        else:
            kind = "coordinator" if "tidemill:coordinator" in tags else "on_demand"
            sums[kind] += long / 3600 * order.get("on_demand", {}).get(of.instance_type, 0)
    return {**sums, "usd": sums["spot"] + sums["on_demand"] + sums["coordinator"]}


def control(path, order):
    if path == "/tidemill/bill":
        return bill(order)
    if path == "/tidemill/price_pages":
        return pages["followed"]
    if path == "/tidemill/price":  # {"type": T, "zone": Z or "*", "usd_h": P, "ago": SECONDS}
        with lock:
            history.append((time.time() - order.get("ago", 0), order["type"], order.get("zone", "*"), order["usd_h"]))
            history.sort(key=lambda h: h[0])
        return {}
    if path == "/tidemill/capacity":  # {"type": T, "zone": Z, "code": C}; no code: there is some again
        with lock:
            refused.pop((order["type"], order["zone"]), None)
            if order.get("code"):
                refused[(order["type"], order["zone"])] = order["code"]
        return {}
    return None


def listed(form, stem):
    return [v[0] for k, v in sorted(form.items()) if k.startswith(stem + ".")]


def price_history(form, region):
    """As DescribeSpotPriceHistory: changes since StartTime, and the price that was in force then; over pages."""
    token = form.get("NextToken", [""])[0]
    if token:
        with lock:
            pages["followed"] += 1
            return price_page(*pages[token])
    start = time_of(form["StartTime"][0]) if "StartTime" in form else began - 86400
    items = []
    for t in listed(form, "InstanceType"):
        for z in (region + c for c in ZONES):
            with lock:
                changes = [(at, p) for at, i, hz, p in history if i == t and hz in (z, "*") and at > start]
            for at, p in [*reversed(changes), (min(start, time.time()), price(t, z, start))]:
                items.append(f"<item><instanceType>{t}</instanceType><productDescription>Linux/UNIX</productDescription>"
                             f"<spotPrice>{p:.6f}</spotPrice><timestamp>{text_of(at)}</timestamp>"
                             f"<availabilityZone>{z}</availabilityZone></item>")
    with lock:
        return price_page(items, 0)


def price_page(items, at):
    """With the lock: two prices, and where it goes on."""
    token = ""
    if at + 2 < len(items):
        pages["last"] += 1
        token = f"page/{pages['last']}+="
        pages[token] = (items, at + 2)
    return f"<R><spotPriceHistorySet>{''.join(items[at:at + 2])}</spotPriceHistorySet><nextToken>{token}</nextToken></R>"


def scores(form, region):
    """Zones by their ids, as AWS does; those that refuse score 1."""
    items = ""
    for n, c in enumerate(ZONES):
        with lock:
            empty = any((t, region + c) in refused for t in listed(form, "InstanceType"))
        items += (f"<item><region>{region}</region><availabilityZoneId>{zone_id(region, n)}</availabilityZoneId>"
                  f"<score>{1 if empty else 9 - n}</score></item>")
    return f"<R><spotPlacementScoreSet>{items}</spotPlacementScoreSet></R>"


def zone_id(region, n):
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
    return next((z.zone_id for z in RegionsAndZonesBackend.zones[region] if z.name == region + ZONES[n]), "")


def offerings(form, region):
    """Every type that is asked for, in every zone: moto's list is old."""
    items = "".join(f"<item><instanceType>{t}</instanceType><locationType>availability-zone</locationType>"
                    f"<location>{region}{z}</location></item>" for t in listed(form, "Filter.1.Value") for z in ZONES)
    return f"<R><instanceTypeOfferingSet>{items}</instanceTypeOfferingSet></R>"


def fleet_errors(token):
    return "".join(
        f"<item><errorCode>{code}</errorCode><errorMessage>planted</errorMessage><lifecycle>spot</lifecycle>"
        f"<launchTemplateAndOverrides><overrides><instanceType>{t}</instanceType><availabilityZone>{z}</availabilityZone>"
        f"</overrides></launchTemplateAndOverrides></item>" for t, z, code in said.get(token, []))


def patch():
    """Fleets take the cheapest place that has some; what the others said is kept for the answer."""
    from moto.ec2.models.fleets import Fleet

    def create_spot_requests(self, weight):
        bad, good = [], []
        for spec in self.launch_specs:
            place = (spec.instance_type, (spec.overrides or {}).get("AvailabilityZone") or "us-east-1a")
            with lock:
                code = refused.get(place)
            (bad.append((*place, code)) if code else good.append((price(*place), place, spec)))
        token = self.launch_template_configs[0]["LaunchTemplateSpecification"]["LaunchTemplateName"]
        with lock:
            said[token] = bad
        for _, place, spec in sorted(good, key=lambda g: g[:2])[:int(weight)]:
            data = self.ec2_backend.get_launch_template_by_name(token).default_version().data
            made = self.ec2_backend.run_instances(
                image_id=spec.image_id, count=1, user_data=spec.user_data, security_group_names=[],
                security_group_ids=data.get("SecurityGroupIds", []), instance_type=spec.instance_type,
                is_instance_type_default=False, placement=place[1], region_name=self.ec2_backend.region_name,
                key_name=None, subnet_id=None, fleet_id=self.id, tags=spec.tag_specifications, lifecycle="spot",
                instance_initiated_shutdown_behavior=data.get("InstanceInitiatedShutdownBehavior"))
            made.instances[0].lifecycle = "spot"
            self.on_demand_instances.append({"id": made.id, "instance": made.instances[0], "launch_spec": spec})
        self.fulfilled_capacity += len(self.on_demand_instances)
        return []

    Fleet.create_spot_requests = create_spot_requests
    from moto.ec2.models.instances import Instance
    init, terminate = Instance.__init__, Instance.terminate

    def begin(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.tm_began = time.time()

    def end(self, *args, **kwargs):
        if self.state != "terminated":
            self.tm_ended = time.time()
        return terminate(self, *args, **kwargs)

    Instance.__init__, Instance.terminate = begin, end


def is_group_held(backend, group):
    return any(i.state != "terminated" and any(g.id == group for g in i.security_groups) for i in backend.all_instances())
