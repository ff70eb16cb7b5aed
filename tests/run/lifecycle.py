"""A run that is stopped, or killed, and resumed again and again at random moments must come to an end, and to the bits of
one that was left alone; its bill never falls, and the summary says what the record says.

    lifecycle.py TIDEMILL ENGINE TIMES [WAYS]        ENGINE: gpt, paced, torch or lines; WAYS: of stop, kill, slow (stop)

`lines`: as torch, with one worker that writes a line for each micro-batch: what is told as committed and rolled back is compared
with what was really done.

`slow`: agents stand still when the job is stopped (torch: workers take their time to end), so that the coordinator is gone
before its instances are. SEED=n draws other moments. Prints "tally PASSED FAILED SKIPPED" and what went wrong."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 300
JOBS = {
    "gpt": """name: again
model:
  gpt: {layers: 4, hidden: 32, heads: 2, ctx: 32, dropout: 0.1}
data: kjv-new-testament
batch: 12
micro_batch: 1
steps: STEPS
seed: 3
fleet: {limit: 2, memory: 800kB}
""",
    "paced": """name: again
engine: paced
cloud: local
model: gpt2-124m
batch: 16
micro_batch: 1
steps: STEPS
fleet: {limit: 4, speed: 40}
""",
}


class Trouble(Exception):
    pass


class Case:
    def __init__(self, tidemill: Path, engine: str, times: int, folder: Path):
        self.tidemill, self.engine, self.folder = tidemill, engine, folder
        self.stride = {"gpt": 60, "paced": 12, "torch": 20, "lines": 4}[engine]
        self.steps = 3 * self.stride * (times + 2)
        self.state = folder / "state"
        self.kills = 0
        self.seen = [0.0]  # bills, in the order in which they were shown
        self.variables = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_") or k == "TIDEMILL_LIBRARY"}
        self.variables.update(HOME=str(folder), XDG_STATE_HOME=str(folder / "home"), OMP_NUM_THREADS="1")
        self.job = folder / "job.yaml"
        if engine in ("torch", "lines"):
            self.copy_example()
        else:
            self.job.write_text(JOBS[engine].replace("STEPS", str(self.steps)))

    def copy_example(self) -> None:
        """The example with other numbers, and an end that takes longer than the coordinator waits for."""
        example = ROOT / "examples" / "torch-mlp"
        script = (example / "train.py").read_text().replace("300", str(self.steps))
        end = "import atexit, time\natexit.register(time.sleep, 4)\n"
        limit = "limit: 2"
        if self.engine == "lines":
            limit, end = "limit: 1", "import time\n"
            script = script.replace("        optimizer.zero_grad()\n", "        optimizer.zero_grad()\n        time.sleep(0.04)\n"
                                    "    print('done', file=open('lines', 'a'))\n")
        (self.folder / "train.py").write_text(end + script)
        job = (example / "job.yaml").read_text().replace("300", str(self.steps)).replace("limit: 3", limit)
        self.job.write_text(job)
        self.variables["PATH"] = f"{ROOT}/build/venv/bin:{os.environ['PATH']}"
        self.variables["PYTHONPATH"] = str(ROOT / "python")
        self.variables.setdefault("TIDEMILL_LIBRARY", str(self.tidemill.parent / "libtidemill.so"))

    def call(self, *words: object) -> str:
        done = subprocess.run([str(self.tidemill), *map(str, words)], capture_output=True, text=True, env=self.variables,
                              cwd=self.folder, timeout=HANG_S, check=False)
        return done.stdout

    def start(self, state: Path, resume: bool) -> subprocess.Popen:
        words = ["run", "-y", "--no-preemptions", "--json", "--state", state, *(["--resume"] if resume else [self.job])]
        out, err = open(self.folder / "out", "w"), open(self.folder / "err", "a")
        return subprocess.Popen([str(self.tidemill), *map(str, words)], stdout=out, stderr=err, env=self.variables,
                                cwd=self.folder)

    def wait(self, run: subprocess.Popen) -> dict:
        """The summary of a run that ends in order."""
        try:
            status = run.wait(HANG_S)
        except subprocess.TimeoutExpired:
            words = self.call("status", "--state", self.state)
            run.kill()
            raise Trouble(f"the run does not end:\n{words}\n{self.tail()}") from None
        if status != 0:
            raise Trouble(f"the run ends with {status}\n{self.tail()}")
        return json.loads((self.folder / "out").read_text())

    def tail(self) -> str:
        return "\n".join((self.folder / "err").read_text().splitlines()[-30:])

    def status(self) -> dict:
        text = self.call("status", "--state", self.state, "--json")
        status = json.loads(text) if text.startswith("{") else {}
        if "bill_usd" in status:
            self.seen.append(float(status["bill_usd"]))
        return status

    def committed(self) -> int:
        return self.status().get("steps", {}).get("committed", 0)

    def until(self, run: subprocess.Popen, step: int) -> None:
        end = time.monotonic() + HANG_S
        while run.poll() is None and self.committed() < step:
            if time.monotonic() > end:
                run.kill()
                raise Trouble(f"step {step} is not reached\n{self.tail()}")

    def agents(self, run: subprocess.Popen) -> list:
        found = []
        for at in Path("/proc").iterdir():
            try:
                parent = int((at / "stat").read_text().rsplit(")", 1)[1].split()[1]) if at.name.isdigit() else 0
                if parent == run.pid and b"agent" in (at / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(at.name))
            except (OSError, ValueError):
                pass  # it has just ended
        return found

    def events(self) -> list:
        return json.loads(self.call("events", "--state", self.state, "--all", "--json"))["events"]


def check_bill(case: Case, summary: dict) -> None:
    """What was shown never falls; nobody is here in the record of a run that has ended; the sum is the summary's."""
    shown = [float(x) for x in re.findall(r"(?<!it )cost \$([0-9.]+)", (case.folder / "err").read_text())]
    for bills, slack in ((case.seen, 1e-9), (shown, 0)):
        for before, after in zip(bills, bills[1:]):
            if after < before - slack:
                raise Trouble(f"the bill falls from {before} to {after}")
    last = {}
    for event in case.events():
        if event["kind"] == "instance":
            last[event["instance"]["id"]] = event["instance"]
    here = [i for i, instance in last.items() if instance["end_ms"] == 0]
    if here:
        raise Trouble(f"the run is over, and by the record instances {here} are there")
    total = sum(instance["bill_microusd"] for instance in last.values()) / 1e6
    if abs(total - summary["bill_usd"]) > 1e-6 * (1 + len(last)):
        raise Trouble(f"the summary says ${summary['bill_usd']}, the record ${total}")
    if summary["bill_usd"] < max(case.seen) - 1e-9:
        raise Trouble(f"the summary says ${summary['bill_usd']}, and ${max(case.seen)} had been shown")
    case.seen.append(summary["bill_usd"])


def check_counts(case: Case, summary: dict) -> None:
    """Committed and redone add up to what was computed: in each generation, from its base to the last step that the record
    knows of."""
    base = reached = computed = 0
    for event in case.events():
        body = event[event["kind"]]
        if event["kind"] == "generation" and body["started"]:
            computed += max(reached, body["base_step"]) - base
            base = reached = body["base_step"]
        elif event["kind"] in ("progress", "set_whole"):
            reached = max(reached, body["step"])
    computed += reached - base
    told = summary["steps_committed"] + summary["steps_rolled_back"]
    if told != computed or summary["steps_redone"] < summary["steps_rolled_back"]:
        raise Trouble(f"{computed} steps were computed by the record, but {summary['steps_committed']} are said to be "
                      f"committed, {summary['steps_rolled_back']} rolled back, {summary['steps_redone']} redone")
    if case.engine != "lines":
        return
    done = len((case.folder / "lines").read_text().splitlines()) // 8  # micro-batches
    if abs(done - told) > case.kills:  # killed between a step and the word of it
        raise Trouble(f"workers have done {done} steps, and {told} are counted after {case.kills} kills")


def interrupt(case: Case, run: subprocess.Popen, way: str) -> dict:
    agents = case.agents(run) if way == "slow" else []
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    run.send_signal(signal.SIGKILL if way == "kill" else signal.SIGINT)
    if way == "kill":
        run.wait()
        case.kills += 1
        return {}
    try:
        if run.wait(HANG_S) == -signal.SIGINT:  # before anything was begun
            return {}
    except subprocess.TimeoutExpired:
        pass  # told by wait
    summary = case.wait(run)
    check_bill(case, summary)
    check_counts(case, summary)
    return summary


def go(case: Case, times: int, ways: list, dice: random.Random) -> None:
    alone = case.wait(case.start(case.folder / "alone", False))["weights_hash"]
    (case.folder / "err").write_text("")
    (case.folder / "lines").write_text("")
    resumed = done = 0
    summary = {}
    run = case.start(case.state, False)
    while done < times and summary.get("state") != "finished":
        before = case.committed()
        if dice.random() < 0.3 and case.state.joinpath("record").exists():  # as it starts
            time.sleep(dice.uniform(0, 1.5))
        else:
            case.until(run, before + dice.randrange(1, case.stride))
            time.sleep(dice.uniform(0, 0.2))
        way = ways[done % len(ways)]
        summary = interrupt(case, run, way)
        done += 1
        print(f"# {case.engine}: {way} {done} of {times} after step {case.committed()}", flush=True)
        if summary.get("state") != "finished":
            run = case.start(case.state, True)
            resumed += 1
    if summary.get("state") != "finished":
        summary = case.wait(run)
        check_bill(case, summary)
        check_counts(case, summary)
    if summary["state"] != "finished" or summary["steps_committed"] != case.steps:
        raise Trouble(f"it ends {summary['state']} at step {summary['steps_committed']} of {case.steps}")
    if summary["weights_hash"] != alone or not alone:
        raise Trouble(f"other bits than a run that was left alone has: {summary['weights_hash']}, not {alone}")
    if resumed < min(times, 2):
        raise Trouble(f"the job was over after {resumed} times: it is too short for this machine")


def main() -> int:
    tidemill, engine, times = Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3])
    ways = sys.argv[4].split(",") if len(sys.argv) > 4 else ["stop"]
    seed = int(os.environ.get("SEED", "14"))
    folder = Path(tempfile.mkdtemp(prefix="tidemill-lifecycle-"))
    try:
        go(Case(tidemill, engine, times, folder), times, ways, random.Random(seed))
    except Trouble as trouble:
        print(f"FAILED {engine}, {','.join(ways)}, SEED={seed}: {trouble}\n(kept: {folder})\ntally 0 1 0")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print("tally 1 0 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
