"""Predictions from a profile of one worker, against data-parallel training over shaped links.

    predict_shaped.py TIDEMILL --nets mlp,gpt --workers 2,4 --rates 100,1000 [--compute paced|real]

For each network: `tidemill profile` of one worker, alone. For each number of workers and rate: namespaces on a switch,
`tidemill probe` between them, `tidemill predict --workers N --links FILE`, and torch's DistributedDataParallel over
gloo there. Prints a row a cell and the mean absolute error; exit status 1 where it is above --within (8%).

Paced networks run before all others on the machine (SCHED_FIFO), as they need little of it. Real compute counts only as far
as the machine was quiet: a cell during which others used more than half a processor is measured again, and left out when
that does not help.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import shaped

HERE = os.path.dirname(os.path.abspath(__file__))
FOREIGN_MAX = 0.5
TRIES = 3


def load():
    """Processor seconds that the whole machine has used."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def used_by(processes):
    seconds = 0.0
    for process in processes:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def variables():
    return dict(os.environ, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", PYTHONPATH=HERE)


def before_others(given):
    """Paced networks need little of the processors, but at once: what others do there is not what is measured."""
    return ["chrt", "--fifo", "1"] if given.compute == "paced" or given.alone else []


def profile(given, net, folder):
    path = os.path.join(folder, f"{net}.tmprofile")
    words = [given.tidemill, "profile", "-q", "--name", net, "-o", path, "--iterations", str(given.profile_steps), "--"]
    words += [sys.executable, os.path.join(HERE, "train.py"), net, "--batch", str(given.batch)]
    if given.compute == "paced":
        words.append("--paced")
    subprocess.run([*before_others(given), *words], check=True, stdout=subprocess.DEVNULL, env=variables())
    return path


def predict(given, path, workers, links):
    words = [given.tidemill, "predict", "--profile", path, "--workers", str(workers), "--per-host", str(workers)]
    words += ["--links", links, "--json"]
    answer = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)["predictions"][0]
    return answer["step_ms"]["mean"]


def probe(given, links, workers, folder, certificates):
    """Probes from host 0; the others answer."""
    path = os.path.join(folder, "links.csv")
    servers = []
    try:
        for host in range(1, workers):
            words = [*before_others(given), given.tidemill, "probe", "--serve", f"{links.address(host)}:7070", "--tls", certificates]
            servers.append(links.start(host, words, stdout=subprocess.PIPE, text=True))
            servers[-1].stdout.readline()
        words = [*before_others(given), given.tidemill, "probe", "-q", "--json", "--tls", certificates]
        words += ["--duration", given.probe, "-o", path]
        words += [f"{links.address(host)}:7070" for host in range(1, workers)]
        if links.start(0, words, stdout=subprocess.DEVNULL).wait() != 0:
            raise RuntimeError("the probe failed")
    finally:
        for server in servers:
            server.terminate()
            server.wait()
            server.stdout.close()
    return path


class Job:
    """Workers of a data-parallel job, one in each namespace."""

    def __init__(self, given, links, net, workers):
        store = f"tcp://{links.address(0)}:29500"
        words = [*before_others(given), sys.executable, os.path.join(HERE, "ddp_worker.py"), net, given.compute]
        words.append(str(given.batch))
        self.workers = [
            links.start(rank, [*words, str(rank), str(workers), store], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL if not given.verbose else None, text=True, env=variables())
            for rank in range(workers)
        ]  # fmt: skip
        for worker in self.workers:
            if worker.stdout.readline().strip() != "ready":
                raise RuntimeError("a worker did not start")

    def run(self, warmup, iterations):
        """Times in ms, and how many processors others used meanwhile."""
        before, own, busy = os.times().elapsed, used_by(self.workers), load()
        for worker in self.workers:
            worker.stdin.write(f"run {warmup} {iterations}\n")
            worker.stdin.flush()
        times = json.loads(self.workers[0].stdout.readline())
        foreign = (load() - busy) - (used_by(self.workers) - own)
        return times, foreign / max(os.times().elapsed - before, 1e-3)

    def end(self):
        for worker in self.workers:
            with worker.stdin, worker.stdout:
                try:
                    worker.stdin.write("end\n")
                    worker.stdin.flush()
                except BrokenPipeError:
                    pass
            try:
                worker.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def measure(job, iterations, alone):
    """Median time, and how many processors others used; with SCHED_FIFO they are not in the way."""
    best = None
    for _ in range(TRIES):
        times, foreign = job.run(2, iterations)
        if best is None or foreign < best[1]:
            best = (statistics.median(times), 0.0 if alone else foreign)
        if best[1] < FOREIGN_MAX:
            break
    return best


def cells(given, folder):
    certificates = os.path.join(folder, "certificates")
    subprocess.run([given.tidemill, "probe", "-q", "--make-credential", certificates], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    profiles = {net: profile(given, net, folder) for net in given.nets}
    for workers in given.workers:
        with shaped.Links(workers) as links:
            links.shape(given.rates[0])
            probed = {}
            for rate in given.rates:
                links.shape(rate)
                probed[rate] = os.path.join(folder, f"links-{workers}-{rate}.csv")
                os.replace(probe(given, links, workers, folder, certificates), probed[rate])
            for net in given.nets:
                job = Job(given, links, net, workers)
                try:
                    for rate in given.rates:
                        links.shape(rate)
                        measured, foreign = measure(job, given.iterations, bool(before_others(given)))
                        yield net, workers, rate, measured, foreign, predict(given, profiles[net], workers, probed[rate])
                finally:
                    job.end()


def main():
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser()
    parser.add_argument("tidemill")
    parser.add_argument("--nets", type=lambda text: text.split(","), default=["mlp", "cnn", "gpt"])
    parser.add_argument("--workers", type=numbers, default=[2, 4])
    parser.add_argument("--rates", type=numbers, default=[50, 100, 250, 500, 1000])
    parser.add_argument("--compute", choices=["paced", "real"], default="paced")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--profile-steps", type=int, default=40)
    parser.add_argument("--probe", default="1s", help="how long each test of the probe takes")
    parser.add_argument("--within", type=float, default=8.0, help="percent")
    parser.add_argument("--alone", action="store_true", help="real compute, too, goes before all others: they will stand still")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    why = shaped.are_possible()
    if why is not None:
        print(f"skipped: {why}")
        return 77
    errors, left_out = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for net, workers, rate, measured, foreign, predicted in cells(given, folder):
            quiet = foreign < FOREIGN_MAX
            error = 100 * (predicted / measured - 1)
            print(f"{net:4} {workers} workers {rate:5} Mbit/s: measured {measured:7.1f} ms, predicted {predicted:7.1f} ms, "
                  f"{error:+5.1f}%{'' if quiet else f'  (left out: others used {foreign:.1f} processors)'}", flush=True)  # fmt: skip
            errors += [abs(error)] if quiet else []
            left_out += not quiet
    if len(errors) < left_out or not errors:
        print(f"skipped: the machine is busy ({left_out} of {left_out + len(errors)} cells left out)")
        return 77
    mape = statistics.mean(errors)
    print(f"MAPE {mape:.1f}% over {len(errors)} cells ({left_out} left out), {given.compute} compute")
    return 0 if mape <= given.within else 1


if __name__ == "__main__":
    sys.exit(main())
