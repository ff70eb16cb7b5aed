"""Is what python/tidemill/skypilot.py does what the installed SkyPilot knows? Offline, in a home of its own.

Every call is bound to the signature of the SDK's own function; tasks are made by sky.Task.from_yaml_config; records are SkyPilot's
own models; and, with a catalogue (../shared), its optimizer chooses and its dry run goes through, for spot and on demand, for a
SkyPilot user's own task.  Use: accept.py DRIVER MANAGED-JOB [CATALOGUES]"""
import importlib.util
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types

done = 0


def ok(name, value):
    global done
    if not value:
        raise SystemExit(f"FAILED skypilot: {name}")
    done += 1


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TASK = {"name": "mine", "num_nodes": 4, "resources": {"accelerators": "T4:1", "infra": "aws", "job_recovery": "EAGER_NEXT_REGION"},
        "envs": {"EPOCHS": "3"}, "setup": "pip list", "workdir": ".", "run": "python train.py"}


class Recorder:
    """SkyPilot, with the calls that would need its API server bound and written down instead of done."""

    def __init__(self, sky, answers):
        self.sky, self.answers, self.calls = sky, answers, []

    def __getattr__(self, name):
        real = getattr(self.sky, name)
        if name not in ("launch", "exec", "cancel", "status", "down", "api_status", "api_cancel", "job_status", "get"):
            return real

        def call(*args, **named):
            bound = inspect.signature(real).bind(*args, **named)
            self.calls.append((name, bound.arguments))
            return self.answers.get(name)

        return call


def record_of(responses, status_lib, name, status, **more):
    return responses.StatusResponse(name=name, launched_at=1, status=getattr(status_lib.ClusterStatus, status), autostop=-1, to_down=True,
                                    cluster_hash="h", cluster_ever_up=True, user_hash="u", user_name="n", workspace="default",
                                    is_managed=False, nodes=1, region="us-east-1", **more)


def check_calls(driver, sky, folder):
    from sky.schemas.api import responses
    from sky.server.requests import payloads
    from sky.utils import status_lib
    records = [record_of(responses, status_lib, "tm-a-1", "UP"), record_of(responses, status_lib, "tm-a-2", "INIT"),
               record_of(responses, status_lib, "tm-a-3", "INIT", init_kind=status_lib.INIT_KIND_UNHEALTHY, init_status_reason="gone"),
               record_of(responses, status_lib, "tm-a-4", "STOPPED"), record_of(responses, status_lib, "other", "UP")]
    request = payloads.RequestPayload(request_id="r", name="sky.launch", entrypoint="", request_body="{}", status="PENDING", created_at=1,
                                      user_id="u", return_value="null", error="null", pid=None, schedule_type="long",
                                      cluster_name="tm-a-5")
    both = Recorder(sky, {"get": records, "api_status": [request], "status": "id"})
    found = {row["name"]: row["phase"] for row in driver.rows(both, "tm-a-")}
    ok("a list of SkyPilot's own records", found == {"tm-a-1": "running", "tm-a-2": "pending", "tm-a-3": "ended", "tm-a-4": "ended",
                                                     "tm-a-5": "pending"})
    ok("and of no others", all(row["name"].startswith("tm-a-") for row in driver.rows(both, "tm-a-")))
    ok("a cluster goes", driver.delete(both, "tm-a-5") == {"outcome": "done"})
    ok("with its launch", [c for c, _ in both.calls[-2:]] == ["api_cancel", "down"])
    ok("one that is not there is gone", driver.delete(Recorder(sky, {"get": [], "api_status": []}), "tm-a-9") == {"outcome": "gone"})
    ticket = os.path.join(folder, "ticket")
    for market in ("spot", "on-demand"):
        with open(ticket, "w", encoding="utf-8") as file:
            file.write("tmt1_word\n")
        call = Recorder(sky, {"launch": "id"})
        ok("a cluster is launched", driver.create(call, "tm-a-6", os.path.join(folder, "task.yaml"), folder, sys.executable, market,
                                                  ticket) == {"outcome": "done"})
        ok("the ticket's file is gone", not os.path.exists(ticket))
        (name, arguments), = call.calls
        task = arguments["task"]
        ok("as a task of SkyPilot's", name == "launch" and isinstance(task, sky.Task) and task.num_nodes == 1)
        ok("that goes down by itself", arguments["down"] is True and arguments["idle_minutes_to_autostop"] > 0)
        ok("in the market asked for", all(r.use_spot == (market == "spot") for r in task.resources))
        ok("with an agent that joins", "tidemill agent" in task.run and task.secrets["TIDEMILL_TICKET"] is not None)
        ok("and the program", task.file_mounts["~/.tidemill-agent/tidemill"] == sys.executable)
        ok("whose ticket is not shown", "tmt1_word" not in str(task.to_yaml_config(use_user_specified_yaml=False, redact_secrets=True)
                                                              if "redact_secrets" in inspect.signature(task.to_yaml_config).parameters
                                                              else ""))


def check_ends(driver, sky):
    """At a run's end its list says of each cluster that is up whether the last job on it, the agent, has ended."""
    from sky.schemas.api import responses
    from sky.skylet import job_lib
    from sky.utils import status_lib
    status = job_lib.JobStatus
    jobs = {"tm-a-1": status.SUCCEEDED, "tm-a-2": status.RUNNING, "tm-a-3": status.FAILED, "tm-a-4": None}
    records = [record_of(responses, status_lib, name, "UP") for name in jobs]

    class Ending(Recorder):
        def __getattr__(self, name):
            real = super().__getattr__(name)
            if name == "job_status":
                return lambda *a, **k: (real(*a, **k), a[0])[1]
            if name == "get":
                return lambda asked: {3: jobs[asked]} if asked in jobs else records
            return real

    found = {row["name"]: (row["phase"], row.get("status")) for row in driver.rows(Ending(sky, {"api_status": [], "status": "id"}), "tm-a-", "ends")}
    ok("agents that have ended", found == {"tm-a-1": ("ended", 0), "tm-a-2": ("running", None), "tm-a-3": ("ended", 1),
                                           "tm-a-4": ("running", None)})
    call = Recorder(sky, {"get": records, "api_status": [], "status": "id"})
    driver.rows(call, "tm-a-")
    ok("are not asked for before", "job_status" not in [name for name, _ in call.calls])


def check_notices(driver, sky, home):
    """The agent of a cluster is told whose notices to read, by what SkyPilot says of the cluster's cloud there."""
    from sky.skylet import constants
    ok("a cluster knows its cloud", constants.SKYPILOT_NODE_IPS == "SKYPILOT_NODE_IPS" and "SKYPILOT_CLUSTER_INFO" in driver.RUN)
    folder = os.path.join(home, ".tidemill-agent")
    os.makedirs(folder)
    with open(os.path.join(folder, "tidemill"), "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\necho "$@"\n')
    for cloud, notice in ((sky.AWS(), "aws"), (sky.GCP(), "gcp"), (sky.Azure(), "azure"), (sky.Kubernetes(), "none"), (sky.Lambda(), "none")):
        info = json.dumps({"cluster_name": "tm-a-1", "cloud": str(cloud), "region": "r", "zone": None})
        said = subprocess.run(["bash", "-c", driver.RUN], capture_output=True, text=True, check=True, env={
            **os.environ, "SKYPILOT_CLUSTER_INFO": info, "SKYPILOT_NODE_IPS": "10.0.0.1\n"}).stdout.split()
        ok(f"notices of {cloud}", said == ["agent", "--host", "10.0.0.1", "--notice", notice])


def check_adoption(driver, sky, folder):
    """A cluster that is there gets another agent: the jobs on it are cancelled, then one is run, without a launch."""
    ticket = os.path.join(folder, "ticket")
    with open(ticket, "w", encoding="utf-8") as file:
        file.write("tmt1_other")
    call = Recorder(sky, {"cancel": "a", "exec": "b"})
    ok("a cluster is adopted", driver.adopt(call, "tm-a-7", os.path.join(folder, "task.yaml"), folder, sys.executable, "spot",
                                            ticket) == {"outcome": "done"})
    ok("one order after the other", [(name, list(arguments.values())[0]) for name, arguments in call.calls if name != "exec"] ==
       [("cancel", "tm-a-7"), ("get", "a"), ("get", "b")] and [name for name, _ in call.calls][2] == "exec")
    ok("all jobs end", call.calls[0][1]["all"] is True)
    task = call.calls[2][1]["task"]
    ok("an agent starts", call.calls[2][1]["cluster_name"] == "tm-a-7" and "tidemill agent" in task.run)
    ok("with the new ticket", "tmt1_other" in str(task.secrets["TIDEMILL_TICKET"].get_secret_value()
                                                   if hasattr(task.secrets["TIDEMILL_TICKET"], "get_secret_value")
                                                   else task.secrets["TIDEMILL_TICKET"]))
    doc = " ".join(inspect.getdoc(sky.exec).split())
    ok("nothing is provisioned, set up or brought for it", "All other steps (provisioning, setup commands, file mounts syncing) are skipped" in doc)

    class Gone(Recorder):
        def __getattr__(self, name):
            if name == "get":
                raise sky.exceptions.ClusterDoesNotExist("tm-a-7")
            return super().__getattr__(name)

    with open(ticket, "w", encoding="utf-8") as file:
        file.write("tmt1_other")
    ok("one that is not there is gone", driver.adopt(Gone(sky, {}), "tm-a-7", os.path.join(folder, "task.yaml"), folder, sys.executable,
                                                     "spot", ticket) == {"outcome": "gone"})


def check_one_by_one(sky):
    """Why each instance is a cluster of its own (doc/where-it-runs.md): if one of these fails, that is to be thought over."""
    import sky.backends.cloud_vm_ray_backend as backend
    import sky.provision
    words = lambda function: " ".join(inspect.getdoc(function).split())
    ok("a cluster can grow", "supports both scaling up" in words(sky.launch).lower())
    ok("it cannot shrink while a job runs", "Scale-down requires no running jobs on the cluster" in words(sky.launch))
    resize = backend.CloudVmRayBackend._handle_resize_pre_provision  # pylint: disable=protected-access
    ok("nor without ending workers that nobody has named", "checks that no jobs are running, then terminates excess worker nodes" in words(resize))
    ok("no call ends one node of a cluster", set(inspect.signature(sky.provision.terminate_instances).parameters) ==
       {"provider_name", "cluster_name_on_cloud", "provider_config", "worker_only"})
    ok("nor does the SDK's", not any("node" in name for name in inspect.signature(sky.down).parameters))


CHOICES = {"any of several": {"any_of": [{"infra": "aws", "use_spot": False}, {"infra": "aws", "use_spot": True}, {"infra": "gcp"}]},
           "several in order": {"use_spot": True, "ordered": [{"infra": "aws/us-east-1", "use_spot": True},
                                                              {"infra": "aws/us-east-1", "use_spot": False}]}}


def check_markets(driver, sky, folder):
    """A user's choices may each name a market; the decision's counts, in all of them."""
    for name, choice in CHOICES.items():
        for market in ("spot", "on-demand"):
            document = {**TASK, "resources": {"accelerators": "T4:1", **choice}}
            task = sky.Task.from_yaml_config(driver.task_config(document, "tm-a-7", folder, sys.executable, market, "tmt1_word"))
            ok(f"{name}, {market}", task.resources and all(r.use_spot == (market == "spot") for r in task.resources))
            ok(f"{name}, {market}: each once", len(task.resources) == (2 if "any_of" in choice else 1))
        ok(f"{name}: the user's document stays as it is", any(e.get("use_spot") for e in list(choice.values())[-1]))


POOLS = ({"instance": "g4dn.xlarge", "infra": "aws/us-west-2/usw2-az1", "market": "spot"},
         {"instance": "g4dn.12xlarge", "infra": "aws/us-east-1", "market": "on-demand"})


def pool_config(driver, pool, folder):
    """Of a job whose own resources say other things."""
    document = {**TASK, "resources": {"accelerators": "A100:8", "infra": "gcp", "cpus": "8+", "disk_size": 300,
                                      "any_of": [{"infra": "azure"}, {"use_spot": True}]}}
    return driver.task_config(document, "tm-a-p1-8", folder, sys.executable, pool["market"], "tmt1_word", pool["instance"], pool["infra"])


def check_pools(driver, sky, folder):
    """A pool says where a cluster is and what; the rest is the job's."""
    for pool in POOLS:
        resources = list(sky.Task.from_yaml_config(pool_config(driver, pool, folder)).resources)
        ok(f"{pool['instance']}: one choice", len(resources) == 1)
        ok(f"{pool['instance']}: of the pool", resources[0].instance_type == pool["instance"] and resources[0].region in pool["infra"]
           and str(resources[0].zone or "") in pool["infra"] and resources[0].use_spot == (pool["market"] == "spot"))
        ok(f"{pool['instance']}: with the job's disk", resources[0].disk_size == 300)
    on_gcp = driver.task_config(TASK, "tm-a-p1-9", folder, sys.executable, "spot", "tmt1_word", "n1-standard-8+2xT4", "gcp/us-central1")
    resources = list(sky.Task.from_yaml_config(on_gcp).resources)[0]
    ok("a host of GCP with GPUs beside", resources.instance_type == "n1-standard-8" and resources.accelerators == {"T4": 2})
    anywhere = driver.task_config(TASK, "tm-a-p1-9", folder, sys.executable, "spot", "tmt1_word", "g4dn.xlarge", "")
    ok("without a place it is the job's", anywhere["resources"]["infra"] == "aws")


def managed_config(driver, sky, path, folder, market):
    """Of a user's managed job: SkyPilot takes its file as it stands, and the task of a cluster that is made of it."""
    import yaml
    theirs = sky.Task.from_yaml(path)
    ok("SkyPilot takes the managed job", theirs.num_nodes == 3 and len(theirs.resources) == 2 and
       all(r.job_recovery["strategy"] == "EAGER_NEXT_REGION" and r.use_spot for r in theirs.resources))
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    config = driver.task_config(document, "tm-a-p1-7", folder, sys.executable, market, "tmt1_word", "", "")
    task = sky.Task.from_yaml_config(dict(config))
    ok("and a cluster's task of it", task.num_nodes == 1 and {r.region for r in task.resources} == {"us-east-1", "us-west-2"} and
       all(r.disk_size == 100 and r.use_spot == (market == "spot") for r in task.resources) and task.setup == theirs.setup)
    return config


def check_choice(driver, sky, catalogues, managed, folder, home):
    oracle = load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../oracle/skypilot/accept.py"), "oracle")
    oracle.put_catalogues(catalogues, home, {"us-east-1", "us-west-2"})
    oracle.put_aws_lists(home, ("us-east-1", "us-west-2"))
    check_pools(driver, sky, folder)
    import sky.check
    import sky.execution
    import sky.optimizer
    from sky.backends.cloud_vm_ray_backend import CloudVmRayBackend
    clouds = [sky.clouds.AWS()]
    sky.check.get_cached_enabled_clouds_or_refresh = lambda *a, **k: clouds  # as if it had credentials
    configs = [("g4dn.", market, driver.task_config(TASK, "tm-a-7", folder, sys.executable, market, "tmt1_word"))
               for market in ("spot", "on-demand")]
    configs += [(pool["instance"], pool["market"], pool_config(driver, pool, folder)) for pool in POOLS]
    configs += [("g4dn.", market, managed_config(driver, sky, managed, folder, market)) for market in ("spot", "on-demand")]
    for machine, market, config in configs:
        task = sky.Task.from_yaml_config(config)
        with sky.Dag() as dag:
            dag.add(task)
        sky.optimizer.Optimizer.optimize(dag, quiet=True)
        best = task.best_resources
        if shutil.which("rsync"):
            ok("its dry run goes through", oracle.dry_run(sky, sky.Task.from_yaml_config(dict(config)), home))
        else:
            print("skipped: SkyPilot's dry run (needs rsync)", file=sys.stderr)
        handle = types.SimpleNamespace(launched_resources=best, launched_nodes=1, cluster_name="tm-a-7")
        again = sky.Task.from_yaml_config(dict(config))
        ok("a cluster that it has chosen takes the task once more", CloudVmRayBackend().check_resources_fit_cluster(handle, again))
        ok("SkyPilot's optimizer chooses", best.instance_type.startswith(machine) and best.use_spot == (market == "spot"))


def main():
    driver = load(sys.argv[1], "driver")
    managed = os.path.abspath(sys.argv[2])
    catalogues = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, SKYPILOT_DISABLE_USAGE_COLLECTION="1")
        folder = os.path.join(home, "job")
        os.makedirs(folder)
        out, sys.stdout = sys.stdout, io.StringIO()  # SkyPilot prints progress
        import sky
        import yaml
        with open(os.path.join(folder, "task.yaml"), "w", encoding="utf-8") as file:
            yaml.safe_dump(TASK, file)
        os.chdir(folder)
        check_calls(driver, sky, folder)
        check_notices(driver, sky, home)
        check_ends(driver, sky)
        check_adoption(driver, sky, folder)
        check_one_by_one(sky)
        check_markets(driver, sky, folder)
        if catalogues:
            check_choice(driver, sky, catalogues, managed, folder, home)
        sys.stdout = out
    print(f"skypilot: {done} things are as SkyPilot {sky.__version__} has them")


main()
