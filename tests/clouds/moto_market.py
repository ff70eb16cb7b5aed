"""What moto's EC2 lacks of a market: spot prices that move, capacity that some places do not have, placement scores, fleets
that choose a place by them and say who had none, and groups that stay while their members do."""
import threading, time

lock = threading.Lock()
BASE_USD_H = 0.92
ZONES = "abcdef"
began = time.time()
history = []  # (time, type, zone, price), by time
refused = {}  # (type, zone) -> code
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


def control(path, order):
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
    """As DescribeSpotPriceHistory: changes since StartTime, and the price that was in force then."""
    start = time_of(form["StartTime"][0]) if "StartTime" in form else began - 86400
    items = ""
    for t in listed(form, "InstanceType"):
        for z in (region + c for c in ZONES):
            with lock:
                changes = [(at, p) for at, i, hz, p in history if i == t and hz in (z, "*") and at > start]
            for at, p in [*reversed(changes), (min(start, time.time()), price(t, z, start))]:
                items += (f"<item><instanceType>{t}</instanceType><productDescription>Linux/UNIX</productDescription>"
                          f"<spotPrice>{p:.6f}</spotPrice><timestamp>{text_of(at)}</timestamp>"
                          f"<availabilityZone>{z}</availabilityZone></item>")
    return f"<R><spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken/></R>"


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
                key_name=None, subnet_id=None, fleet_id=self.id, tags=spec.tag_specifications, lifecycle="spot")
            made.instances[0].lifecycle = "spot"
            self.on_demand_instances.append({"id": made.id, "instance": made.instances[0], "launch_spec": spec})
        self.fulfilled_capacity += len(self.on_demand_instances)
        return []

    Fleet.create_spot_requests = create_spot_requests


def is_group_held(backend, group):
    return any(i.state != "terminated" and any(g.id == group for g in i.security_groups) for i in backend.all_instances())
