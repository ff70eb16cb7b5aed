"""Everything that can go wrong with a cloud's API, one thing at a time, on a cloud for tests: a small run (the test program of the common suite, as
a drive: src/cloud/test/vm_suite.h) must rent two VMs, not one more, and leave nothing.

    vm_points.py CLOUD BUILD FOLDER [full]     CLOUD: aws, gcp, azure; FOLDER has cloud.env

  - each call with each fault: busy (and Retry-After is honoured), failing, credentials that have ended, cut off, an answer that is lost, late,
    half, or a request that is carried out twice
  - a failure that the cloud keeps by the request's token (a fleet without a VM, an operation that ended in an error): asked for with another
  - a refusal that no waiting mends: the run ends with words, and leaves nothing
  - lists that lag behind: what was made is not named for some seconds, what has ended still is
  - a clock that is wrong by hours
  - VMs whose time is over and whom nobody ends (Google Cloud; the others' end themselves: tests/aws, tests/azure_full)
  - kill -9 at each call, before it is carried out and after, and at each file that is written or removed, before and after: then another
    program of the same run goes on (no second fleet), or `tidemill cloud clean` finds all by tags, with no state folder at hand

Prints what failed, and a tally."""
import json, os, re, shutil, subprocess, sys, tempfile, time, urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_proxy

cloud, build, folder = sys.argv[1:4]
full = "full" in sys.argv[4:]
xml = "<Response><Errors><Error><Code>{}</Code><Message>planted</Message></Error></Errors></Response>".format
google = lambda status, reason: json.dumps({"error": {"code": status, "message": "planted", "errors": [{"reason": reason}]}})  # noqa: E731
azure = lambda code: json.dumps({"error": {"code": code, "message": "planted"}})  # noqa: E731
empty_fleet = ("<CreateFleetResponse><fleetId>fleet-1</fleetId><errorSet><item><errorCode>{}</errorCode><errorMessage>planted</errorMessage>"
               "</item></errorSet></CreateFleetResponse>").format
WAYS = {how: {"how": how} for how in ("cut", "lost", "slow", "half", "twice")}
ABOUT = {
    "aws": {
        "program": "test_aws_suite", "variable": "TIDEMILL_TEST_EC2", "control": "AWS_ENDPOINT_URL", "left": ("beside", '{"groups": [], "templates": []}'),
        "calls": [f"Action={a}&" for a in (
            "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "DescribeSecurityGroups", "DescribeVpcs", "DescribeInstanceTypeOfferings",
            "CreateLaunchTemplate", "CreateFleet", "DescribeInstances", "TerminateInstances", "DeleteLaunchTemplate", "DeleteSecurityGroup",
            "DescribeLaunchTemplates", "DescribeSpotPriceHistory")] + ["HEAD /.*program-", "PUT /.*program-"],
        "more": {"Action=RunInstances&": {"TIDEMILL_TEST_ZONE": "us-east-1a"}, "Action=DescribeImages&": {"TIDEMILL_TEST_IMAGE": "ami-0a1b2c3d", "TIDEMILL_TEST_DISK_GB": "20"}},
        "faults": {"busy": {"status": 503, "body": xml("RequestLimitExceeded"), "retry_after_s": 2},
                   "throttled": {"status": 503, "body": xml("EC2ThrottledException")}, "unavailable": {"status": 503, "body": xml("Unavailable")},
                   "failing": {"status": 500, "body": xml("InternalError")}, "expired": {"status": 400, "body": xml("RequestExpired")}, **WAYS},
        "lag": {"match": "Action=TerminateInstances&", "status": 400, "body": xml("InvalidInstanceID.NotFound")},
        "stop": {"match": "Action=CreateFleet&", "status": 403, "body": xml("UnauthorizedOperation"), "times": 9},
        "kept": [{"match": "Action=CreateFleet&", "status": 200, "kept": True, "body": empty_fleet(c)} for c in ("RequestLimitExceeded", "InternalError")],
        "words": "emit policy", "short": "CreateFleet"},
    "gcp": {
        "program": "test_gcp_suite", "variable": "TIDEMILL_TEST_GCP", "control": "GCP_FAKE", "left": None,
        "calls": ["POST /token", "GET /compute/v1/projects/[^/]+/zones ", r"POST .*/instances\?", "POST .*/wait", "GET .*/instances/tm-",
                  "aggregated/instances", "aggregated/operations", "DELETE /compute.*/instances/", "POST .*/global/firewalls", "DELETE .*/global/firewalls/", "GET /storage.*program-", "POST /upload.*program-"],
        "faults": {"busy": {"status": 503, "body": google(503, "backendError"), "retry_after_s": 2},
                   "throttled": {"status": 403, "body": google(403, "rateLimitExceeded")}, "failing": {"status": 500, "body": google(500, "internalError")},
                   "expired": {"status": 401, "body": google(401, "authError")}, **WAYS},
        "lag": {"match": "GET .*/instances/tm-", "status": 404, "body": google(404, "notFound")},
        "stop": {"match": r"POST .*/instances\?", "status": 403, "body": google(403, "forbidden"), "times": 9},
        "refuse": ["RESOURCE_OPERATION_RATE_EXCEEDED", "INTERNAL_ERROR"],  # the fake keeps an operation by its requestId
        "words": "emit policy", "short": "POST /compute/v1/projects/tide-project/zones/Z/instances"},
    "azure": {
        "program": "test_azure_suite", "variable": "TIDEMILL_TEST_AZURE", "control": "AZURE_RESOURCE_MANAGER_ENDPOINT", "left": ("left", "0"),
        "calls": ["POST .*/oauth2/v2.0/token", "GET .*/resourcegroups/tidemill[?]", "GET .*/virtualNetworks/", "PUT .*/publicIPAddresses/", "PUT .*/networkInterfaces/",
                  "PUT .*/virtualMachines/", r"GET .*/virtualMachines\?", r"GET .*/networkInterfaces\?", r"GET .*/disks\?", r"GET .*/publicIPAddresses\?",
                  "DELETE .*/virtualMachines/", "GET .*/networkSecurityGroups/", "PUT .*/networkSecurityGroups/", "DELETE .*/networkSecurityGroups/",
                  "PUT .*/applicationSecurityGroups/", "DELETE .*/applicationSecurityGroups/", "GET /api/retail", "HEAD /.*program-", "PUT /.*program-"],
        "more": {"GET .*/operations/": {"TIDEMILL_TEST_STAY_S": "3"}},  # asked for when Retry-After is over
        "faults": {"busy": {"status": 429, "body": azure("TooManyRequests"), "retry_after_s": 2}, "failing": {"status": 500, "body": azure("InternalServerError")},
                   "unavailable": {"status": 503, "body": azure("ServiceUnavailable")}, "another": {"status": 409, "body": azure("AnotherOperationInProgress")},
                   "expired": {"status": 401, "body": azure("ExpiredAuthenticationToken")}, **WAYS},
        "lag": {"match": "GET .*/virtualMachines/tm-", "status": 404, "body": azure("ResourceNotFound")},
        "stop": {"match": "PUT .*/virtualMachines/", "status": 403, "body": azure("AuthorizationFailed"), "times": 9},
        "words": "emit policy", "short": "PUT /subscriptions/5ab/resourceGroups/tidemill/providers/Microsoft.Compute/virtualMachines/VM"},
}
about = ABOUT[cloud]
proxy, variables = fault_proxy.through(folder)
passed, failed, run = 0, 0, [os.getpid() * 1000]
base = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "XDG_", "TIDEMILL_TEST_"))}
work = tempfile.mkdtemp(dir=folder)
base.update(HOME=work, GCE_METADATA_HOST="127.0.0.1:1", **variables)
slow = 240


def ask(path):
    with urllib.request.urlopen(f"{variables[about['control']]}/tidemill/{path}", timeout=30) as f:
        return f.read().decode().strip()


def order(path, words):
    urllib.request.urlopen(f"{variables[about['control']]}/tidemill/{path}", json.dumps(words).encode(), timeout=30).close()


def left(limit_s=0):
    """What is left that costs, or was made beside VMs, after so long at most; "": nothing."""
    end = time.monotonic() + limit_s
    while (said := left_now()) and time.monotonic() < end:
        time.sleep(0.05)
    return said


def left_now():
    said = [] if ask("alive") == "0" else [f"{ask('alive')} VMs"]
    if about["left"] and ask(about["left"][0]) != about["left"][1]:
        said.append(ask(about["left"][0]))
    return ", ".join(said)


class Drive:
    newest = None

    def __init__(self):
        Drive.newest = self
        run[0] += 1
        self.run, self.folder = run[0], f"{work}/{run[0]}"
        os.mkdir(self.folder)
        self.ever = int(ask("ever"))

    def go(self, kill=None, **more):
        """Gives its status; -9: it was killed."""
        with open(self.folder + "/err", "a") as err:
            p = subprocess.Popen([f"{build}/unit/{about['program']}"], stdout=err, stderr=err, stdin=subprocess.DEVNULL,
                                 env={**base, about["variable"]: "tide", "TIDEMILL_TEST_DRIVE": self.folder, "TIDEMILL_TEST_RUN": str(self.run), **more})
            if kill:
                kill["pid"] = p.pid
            try:
                return p.wait(slow)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                return 124

    def leave_half_notes(self):
        """A file that was being written when the program was killed has another name, and stays."""
        notes = f"{self.folder}/{cloud}"
        for name in os.listdir(notes) if os.path.isdir(notes) else ():
            if re.fullmatch("tm-[0-9a-f]{16}-[0-9a-f]{16}", name):
                shutil.copy(f"{notes}/{name}", f"{notes}/{name}.new-1-0123456789abcdef")

    def words(self):
        with open(self.folder + "/err") as f:
            said = f.read()
        return said

    def rented(self):
        return int(ask("ever")) - self.ever

    def was_here(self):
        return os.path.exists(self.folder + "/here")


def tell(name, why):
    global passed, failed
    if why:
        failed += 1
        if os.environ.get("VM_POINTS_KEEP") and Drive.newest:  # what it said, for whoever looks into it
            subprocess.run(["cp", "-r", Drive.newest.folder, os.environ["VM_POINTS_KEEP"]])
        print(f"FAILED {cloud}: {name}: {why}", flush=True)
    else:
        passed += 1
    proxy.reset()


def last(drive):
    lines = [line for line in drive.words().splitlines() if "drive:" in line or "ERROR" in line or "LINE" in line]
    return " | ".join(lines[-3:])


def judge(drive, status, rents=2):
    if status != 0:
        return f"status {status}: {last(drive)}"
    if drive.rented() != rents:
        return f"{drive.rented()} VMs were rented"
    if cloud in ("azure", "gcp") and ask("open") != "[]":
        return f"others reach {ask('open')}"
    return left()


def clean():
    """As somebody who has nothing but the account."""
    empty = tempfile.mkdtemp(dir=work)
    p = subprocess.run([f"{build}/tidemill", "cloud", "clean", cloud, "-y", "--json"], capture_output=True, text=True, timeout=120,
                       env={**base, "HOME": empty, **({"AWS_REGION": "us-east-1"} if cloud == "aws" else {})})
    return "" if p.returncode == 0 else f"cloud clean: status {p.returncode}: {p.stderr[-300:]}"


def is_never_said(call, name):
    """Who asks for a token is never told that a token has ended, nor in the API's own words that it asks too often; nor does who signs with the
    key of a storage account have a token that could end, and operations in progress are the Resource Manager's."""
    blobs = cloud == "azure" and "program-" in call
    return ("token" in call and name in ("expired", "throttled", "another")) or (blobs and name in ("expired", "another"))


def fault_points():
    for call in [*about["calls"], *about.get("more", ())]:  # those that are made only where something is said
        for name, fault in about["faults"].items():
            if is_never_said(call, name):
                continue
            drive = Drive()
            proxy.plant(call, **fault)
            why = judge(drive, drive.go(**about.get("more", {}).get(call, {})))
            if not why and cloud == "gcp" and f"tidemill-{drive.run:016x}" in ask("rules"):
                why = "its firewall rule is left"
            if not why and proxy.unused():
                why = "the call was not made"
            if not why and proxy.hasty:
                why = f"asked again before Retry-After: {proxy.hasty}"
            tell(f"{call} {name}", why)
    drive = Drive()
    proxy.plant(about["calls"][5], how="hang", seconds=130)
    tell("no answer at all", judge(drive, drive.go()))


def stop_point():
    drive = Drive()
    proxy.plant(**about["stop"])
    status = drive.go()
    why = "" if status == 3 and about["words"] in drive.words() else f"status {status}: {last(drive)}"
    tell("a refusal that no waiting mends", why or (f"{drive.rented()} VMs were rented" if drive.rented() else left()))


def kept_points():
    for fault in about.get("kept", ()):
        drive = Drive()
        proxy.plant(**fault)
        why = judge(drive, drive.go())
        tell(f"kept by its token: {fault['body']}", why or ("the call was not made" if proxy.unused() else ""))
    for code in about.get("refuse", ()):
        drive = Drive()
        order("refuse", {"code": code})
        tell(f"kept by its token: {code}", judge(drive, drive.go()))
        order("calm", {})


def lag_points():
    for seconds in (3, 8) if full else (2,):
        drive = Drive()
        proxy.stale_s = seconds
        tell(f"lists that are {seconds} s old", judge(drive, drive.go()))
    drive = Drive()
    proxy.plant(**about["lag"])
    tell("not known everywhere yet", judge(drive, drive.go()))


def clock_points():
    for skew_s in (-7200, 7200) if full else (-7200,):
        drive = Drive()
        proxy.check_clock = True
        status = drive.go(TIDEMILL_TEST_SKEW_S=str(skew_s))
        asked = proxy.refused_clocks > 0
        tell(f"a clock that is {skew_s} s off", judge(drive, status) or ("" if asked else "no clock was refused"))


def life_point():
    """Google deletes a VM whose time is over (maxRunDuration), whoever is there to see it."""
    drive = Drive()
    drive.go(kill=proxy.kill_at(about["short"], "after"), TIDEMILL_TEST_LIFE_S="30")
    there = ask("alive")
    tell("its time is over, and nobody is there", f"{there} VMs were rented" if there == "0" else left(90))


def after_kill(drive, name, resume):
    """A program of this run was killed: another goes on, or `cloud clean` finds the rest."""
    here, began = drive.was_here(), drive.rented()
    proxy.reset()
    if not resume:
        why = clean() or left(10)  # ending takes the cloud a while
        return tell(name + ", cleaned", why)
    drive.leave_half_notes()
    status = drive.go()
    # who was killed after all were there may have ended some already, and then two come again
    good = drive.rented() == 2 or (here and drive.rented() <= 4)
    tell(name + ", resumed", f"status {status}: {last(drive)}" if status != 0 else
         f"{drive.rented()} VMs were rented, {began} before it was killed" if not good else left())


def kill_call(number, when, resume, name=""):
    drive = Drive()
    status = drive.go(kill=proxy.kill_at(number, when))
    if status == 0:  # it made fewer calls this time
        return tell(f"kill -9 {when} call {number}, which was not made", left() if full else "it was not made")
    after_kill(drive, f"kill -9 {when} call {number} {name}", resume)


def kill_file(number, after, resume):
    drive = Drive()
    status = drive.go(TIDEMILL_TEST_KILL=f"{number}{'+' if after else ''}")
    if status == 0:
        return tell(f"kill -9 at file {number}, which was not written", left())
    after_kill(drive, f"kill -9 {'after' if after else 'before'} file {number}", resume)


def calls_of_a_drive():
    drive = Drive()
    why = judge(drive, drive.go())
    calls = list(proxy.calls)
    files = int((re.findall(r"files (\d+)", drive.words()) or ["0"])[-1])
    tell("nothing goes wrong", why)
    return calls, files


def kill_points():
    if not full:
        kill_call(about["short"], "after", True)
        kill_call(about["short"], "before", False)
        return kill_file(3, False, True)
    calls, files = calls_of_a_drive()
    for number, name in enumerate(calls, 1):
        for when in ("before", "after"):
            kill_call(number, when, (number % 2 == 0) == (when == "before"), name)
    for number in range(1, files + 1):
        for after in (False, True):
            kill_file(number, after, (number % 2 == 0) == after)


began = time.monotonic()
kill_points()
if full:
    kept_points()
    stop_point()
    if cloud == "gcp":
        life_point()
    lag_points()
    clock_points()
    fault_points()
print(f"{cloud}: {passed} passed, {failed} failed in {time.monotonic() - began:.0f} s")
print(f"tally {passed} {failed} 0")
sys.exit(failed > 0)
