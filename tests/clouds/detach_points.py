"""A program that detaches a run (`tidemill run --detach`) is killed (kill -9) at each of its calls, before it is carried out and after, on a cloud for
tests whose VMs do not boot: then the same command again must end with one VM for the coordinator, and not one more, or `tidemill cloud clean`
must find all by tags, with no state folder at hand.

    detach_points.py CLOUD BUILD FOLDER [EVERY]     CLOUD: aws, gcp, azure; FOLDER has cloud.env; only each EVERY-th point

Prints what failed, and a tally."""
import os, subprocess, sys, tempfile, threading, time, urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_proxy

cloud, build, folder = sys.argv[1:4]
every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
proxy, variables = fault_proxy.through(folder)
work = tempfile.mkdtemp(dir=folder)
base = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "XDG_", "TIDEMILL_"))}
base.update(HOME=work, GCE_METADATA_HOST="127.0.0.1:1", **variables)
identity = "/subscriptions/5ab/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/coordinator"
ABOUT = {"aws": ("AWS_ENDPOINT_URL", "s3", "p3.2xlarge", "image: ami-12345678, coordinator_profile: coordinator", {"AWS_REGION": "us-east-1"}),
         "gcp": ("GCP_FAKE", "gs", "n1-standard-8+1xV100", "reached_from: 203.0.113.7/32, coordinator_account: renter@tide-project.iam.gserviceaccount.com",
                 {"CLOUDSDK_COMPUTE_REGION": "us-central1"}),
         "azure": ("AZURE_RESOURCE_MANAGER_ENDPOINT", "az", "Standard_NC4as_T4_v3",
                   f"location: eastus, reached_from: 203.0.113.7/32, identity: {identity}, coordinator_identity: {identity}", {})}
control, scheme, kind, fleet, more = ABOUT[cloud]
base.update(more)
passed = failed = points = 0


def ask(path):
    with urllib.request.urlopen(f"{variables[control]}/tidemill/{path}", timeout=30) as f:
        return f.read().decode().strip()


class Detaching:
    """One job, in a folder and at a place of its own."""

    def __init__(self):
        global points
        points += 1
        self.folder = f"{work}/{points}"
        os.mkdir(self.folder)
        self.ever = int(ask("ever"))
        with open(self.folder + "/job.yaml", "w") as f:
            f.write(f"name: tide\nengine: paced\nmodel: parcae/resnet152\nsteps: 1000\ncloud: {cloud}\ncopies: {scheme}://tide/point-{points}\n"
                    f"fleet: {{instance: {kind}, limit: 4, {cloud}: {{{fleet}}}}}\n")

    def go(self, kill=None):
        """Until its VM is known, it was killed, or it has ended; gives its status (None: it waits for the VM's first word, and is ended), and what
        it said."""
        p = subprocess.Popen([f"{build}/tidemill", "run", "-v", self.folder + "/job.yaml", "--detach", "-y", "--anyway", "--state", self.folder + "/state"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=base)
        if kill:
            kill["pid"] = p.pid
        late = threading.Timer(240, p.kill)
        late.start()
        said = []
        for line in p.stdout:
            said.append(line)
            if "this machine may go" in line:
                p.kill()
                p.wait()
                late.cancel()
                return None, "".join(said)
        late.cancel()
        return p.wait(), "".join(said)


def clean():
    p = subprocess.run([f"{build}/tidemill", "cloud", "clean", cloud, "-y"], capture_output=True, text=True, timeout=120,
                       env={**base, "HOME": tempfile.mkdtemp(dir=work)})
    end = time.monotonic() + 20  # ending takes a cloud a while
    while ask("alive") != "0" and time.monotonic() < end:
        time.sleep(0.05)
    return "" if p.returncode == 0 and ask("alive") == "0" else f"{ask('alive')} left, cloud clean: status {p.returncode}: {p.stderr[-300:]}"


def tell(name, why):
    global passed, failed
    passed, failed = passed + (not why), failed + bool(why)
    if why:
        print(f"FAILED {cloud}: {name}: {why}", flush=True)
    proxy.reset()


def point(number, name, when, resume):
    one = Detaching()
    status, said = one.go(proxy.kill_at(number, when))
    proxy.reset()
    if status is None:  # it made fewer calls this time
        return tell(f"kill -9 {when} call {number} {name}: never came there", clean())
    why = "" if status == -9 else f"status {status}: {said[-300:]}"
    if not why and resume:
        status, said = one.go()
        good = status is None or "has this run already" in said
        why = "" if good and ask("alive") == "1" and int(ask("ever")) == one.ever + 1 else \
            f"then status {status}, {ask('alive')} VMs, {int(ask('ever')) - one.ever} rented: {said[-300:]}"
    tell(f"kill -9 {when} call {number} {name}, {'again' if resume else 'cleaned'}", clean() or why)


first = Detaching()
status, said = first.go()
calls = list(proxy.calls)
tell("nothing goes wrong", "" if status is None and ask("alive") == "1" else f"status {status}: {said[-400:]}")
clean()
proxy.reset()
at = 0
for number, name in enumerate(calls, 1):
    for when in ("before", "after"):
        at += 1
        if at % every == 0:
            point(number, name, when, (number % 2 == 0) != (when == "after"))
print(f"{cloud}: {len(calls)} calls, {passed} passed, {failed} failed")
print(f"tally {passed} {failed} 0")
sys.exit(failed > 0)
