"""The whole service under sanitizers on a real Kafka: a live run that is drained, a restart, a lockstep run; then a replica verifies. Then three ranks as threads of
one process (tests/ranks), live. FRESHET_BUILD is the sanitizer build; any report makes the process exit with another code than 0."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

COUNT = 60000


def main():
    with Workspace() as work, Kafka() as kafka:
        samples = work.path / "samples.jsonl"
        with open(samples, "w") as file:
            for i in range(COUNT):
                file.write(json.dumps({"t": 1700000000000 + i * 100, "y": {"click": i % 3 == 0},
                                       "f": {"sample": i, "user_id": i * i % 977, "item_id": f"i{i % 131}", "history": [f"i{i % 7}"], "price": 1.5}}) + "\n")
        tool("produce", "--brokers", kafka.address, "--topic", "kill", "--file", samples, "--partitions", 2, "--pack", 16, "--form", "array")
        config = SOURCE / "tests/integration/live.yaml"
        base = [f"ingest.brokers={kafka.address}", f"state_dir={work.path / 'live'}", "epoch=100ms", "unfolded_max=1MiB"]
        daemon = work.daemon(config, work.path / "live.log", base)
        paths = ("/healthz", "/readyz", "/auc", "/metrics", "/", "/nowhere", "/feature/user_id/1", "/status")

        def a_quarter_is_trained():
            for path in paths:  # every document is read while the owner loop writes it
                assert daemon.get(path)[0] in (200, 404, 503), f"{path}; log ends:\n{daemon.log()[-6000:]}"
            return daemon.json("/status").get("samples", {}).get("trained", 0) > COUNT / 4

        wait_until(a_quarter_is_trained, "a quarter of the samples")
        daemon.drain()
        work.daemon(config, work.path / "live.log", base, ["--until", "end"], wait_http=False).expect_exit(0)
        out = tool("verify", "--state-dir", work.path / "live", "--brokers", kafka.address, "--topic", "killed.delta")[1]
        print(out.strip().splitlines()[-1])
        work.daemon(config, work.path / "lockstep.log",
                    [f"ingest.brokers={kafka.address}", f"state_dir={work.path / 'lockstep'}", "export.topic=lockstep.delta",
                     "ingest.lockstep.records=64", "ingest.lockstep.epoch_batches=3", "ingest.batch_warmup.first=64"],
                    wait_http=False).expect_exit(0)
        out = tool("verify", "--state-dir", work.path / "lockstep", "--brokers", kafka.address, "--topic", "lockstep.delta")[1]
        print(out.strip().splitlines()[-1])
        work.daemon(config, work.path / "ranks.log", [f"ingest.brokers={kafka.address}", f"state_dir={work.path / 'ranks'}", "export.topic=ranks.delta", "scale.domains=3", "ingest.batch_warmup.first=64",
                                                      "epoch=100ms"], ["--ranks", "3", "--delay-us", "100", "--seed", "1", "--until", "end"], program=BUILD / "tests/run_ranks",
                    wait_http=False).expect_exit(0)
        ends = [json.loads(tool("dump", "--state-dir", work.path / "ranks" / f"rank-{rank}")[1].splitlines()[-1])["samples"] for rank in range(3)]
        assert ends == [COUNT] * 3, ends
        for log in work.path.glob("*.log"):
            assert "Sanitizer" not in log.read_text(), log.read_text()[-4000:]
    print("3 passed, 0 failed")


main()
