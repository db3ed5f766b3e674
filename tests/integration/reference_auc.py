"""Real streams through real Kafka: one pass, exact batches of 128, the `mlp` model of the reference runs; means over seeds 1-3 within
0.003 of the reference progressive AUC. Prints the table."""
import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

# AUC and log loss of the whole stream, mlp, from the data README.
REFERENCE = {"globo_200k": (0.8376, 0.4571), "ml": (0.7140, 0.6175), "adult": (0.8896, 0.3441)}
TOLERANCE = 0.003
SEEDS = (1, 2, 3)


def train(work, kafka, name, seed):
    """One pass; the numbers of its last epoch, read from the durable state."""
    state = work.path / f"{name}-{seed}"
    daemon = work.daemon(SOURCE / f"conf/reference/{name}.yaml", work.path / f"{name}-{seed}.log",
                         [f"ingest.brokers={kafka.address}", f"ingest.topic={name}", f"model={name}-{seed}", f"state_dir={state}", f"seed={seed}",
                          f"export.topic={name}-{seed}.delta", "ingest.lockstep.epoch_batches=512"], wait_http=False)
    daemon.expect_exit(0, 600)
    final = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]
    shutil.rmtree(state)
    return next(iter(final.values()))["lifetime"]


def main():
    failures = []
    with Workspace() as work, Kafka() as kafka:
        print(f"{'stream':<12}{'seeds':>8}{'AUC':>10}{'reference':>11}{'difference':>12}{'logloss':>10}{'reference':>11}")
        for name, (auc, logloss) in REFERENCE.items():
            tool("produce", "--brokers", kafka.address, "--topic", name, "--file", stream(name), "--partitions", "1")
            runs = [train(work, kafka, name, seed) for seed in SEEDS]
            mean = sum(run["auc"] for run in runs) / len(runs)
            loss = sum(run["logloss"] for run in runs) / len(runs)
            print(f"{name:<12}{'1-3':>8}{mean:>10.4f}{auc:>11.4f}{mean - auc:>+12.4f}{loss:>10.4f}{logloss:>11.4f}", flush=True)
            if abs(mean - auc) > TOLERANCE:
                failures.append(name)
    assert not failures, f"outside ±{TOLERANCE}: {failures}"
    print("3 passed, 0 failed")


main()
