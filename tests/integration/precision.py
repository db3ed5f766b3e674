"""`network.precision: bf16` compared with f32 on public streams through real Kafka: progressive AUC (mean over seeds) within TOLERANCE, private state equal whatever the number
of workers, and another precision refused over a state of f32. On processors without AVX512_BF16: an error that says so, at the start and in --check."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

TOLERANCE = 0.001
SEEDS = {("adult", "mlp"): 5, ("ml", "mlp"): 3, ("criteo_2000", "mlp"): 5}
BF16 = "network.precision=bf16"


def config(stream_name, model):
    return SOURCE / f"conf/reference/{stream_name}_{model}.yaml"


class Runs:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka

    def start(self, stream_name, model, seed, precision, threads=1, suffix="", state=None):
        name = f"{stream_name}_{model}-{seed}-{precision}-{threads}{suffix}"
        state = state or self.work.path / name
        daemon = self.work.daemon(config(stream_name, model), self.work.path / f"{name}.log",
                                  [f"ingest.brokers={self.kafka.address}", f"ingest.topic={stream_name}", f"model={name}", f"state_dir={state}", f"seed={seed}",
                                   f"threads={threads}", f"export.topic={name}.delta", "ingest.lockstep.epoch_batches=4096", f"network.precision={precision}"],
                                  wait_http=False)
        return daemon, state

    def auc(self, stream_name, model, seed, precision):
        daemon, state = self.start(stream_name, model, seed, precision)
        daemon.expect_exit(0)
        tasks = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]
        shutil.rmtree(state)
        return next(iter(tasks.values()))["lifetime"]["auc"]

    def private(self, threads):
        daemon, state = self.start("criteo_2000", "mlp", 1, "bf16", threads, "-private")
        daemon.expect_exit(0)
        return json.loads(tool("dump", "--state-dir", state, "--private")[1].splitlines()[-1])["hash"], state


def check(*sets):
    command = [BUILD / "daemon/freshetd", "--config", config("adult", "mlp"), "--check"]
    for item in sets:
        command += ["--set", item]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout


def mean(values):
    return sum(values) / len(values)


def main():
    code, text = check(BF16)
    if "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
        assert code == 2 and "AVX512_BF16" in text, text
        skip("this processor has no AVX512_BF16: --check says so, training is not tested")
    assert code == 0, text
    failures = []
    with Workspace() as work, Kafka() as kafka, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = Runs(work, kafka)
        for name in sorted({name for name, _ in SEEDS}):
            tool("produce", "--brokers", kafka.address, "--topic", name, "--file", stream(name), "--partitions", "1")
        futures = {(key, precision): [pool.submit(runs.auc, *key, seed, precision) for seed in range(1, n + 1)]
                   for key, n in SEEDS.items() for precision in ("f32", "bf16")}
        for key in SEEDS:
            f32, bf16 = (mean([run.result() for run in futures[key, precision]]) for precision in ("f32", "bf16"))
            print(f"{key[0]} {key[1]}: AUC {f32:.5f} in f32, {bf16:.5f} in bf16, {bf16 - f32:+.5f}", flush=True)
            if abs(bf16 - f32) > TOLERANCE:
                failures.append(key)
        one, state = runs.private(1)
        assert one == runs.private(2)[0] == runs.private(3)[0], "private state depends on the number of workers"
        changed = work.daemon(config("criteo_2000", "mlp"), work.path / "changed.log",
                              [f"ingest.brokers={kafka.address}", f"state_dir={state}", "model=criteo_2000_mlp-1-bf16-1-private", "seed=1", "threads=1"], wait_http=False)
        assert changed.wait_exit() == 0 and 'what="network.precision: bf16 -> f32" class=training' in changed.log(), changed.log()[-2000:]
    assert not failures, f"outside: {failures}"
    print("all passed, 0 failed")


main()
