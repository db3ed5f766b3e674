"""`device: cuda` through real Kafka on the emulated card, which runs the kernels' own source on the processor: AUC as on the CPU, the replica verified, the same private state
after kills, after a card was lost or had no memory, with rows that expire and rows beyond gpu_memory_limit. Without a plug-in, or with one that has no code for the card, `cuda`
is an error at the start, and `auto` computes on the processor and says so in one line, /status and /metrics; freshetd links no CUDA library."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

STREAM, MODEL = "criteo_2000", "mlp"
TOLERANCE = 1e-3  # of AUC: products and sums have other orders
PLUGIN = "libfreshet_cuda.so"
SMALL = "gpu_memory_limit=512KiB"  # 26 tables share it


class Runs:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        folder = work.path / "card"
        folder.mkdir()
        self.program = folder / "freshetd"
        shutil.copy(BUILD / "daemon/freshetd", self.program)
        shutil.copy(BUILD / "tests/emulate" / PLUGIN, folder / PLUGIN)

    def start(self, name, device, program=None, sets=(), env=None):
        return self.work.daemon(SOURCE / f"conf/reference/{STREAM}_{MODEL}.yaml", self.work.path / f"{name}.log",
                                [f"ingest.brokers={self.kafka.address}", f"ingest.topic={STREAM}", f"model={name}", f"state_dir={self.work.path / name}", "threads=1",
                                 f"export.topic={name}.delta", "ingest.lockstep.epoch_batches=3", f"device={device}", *sets], wait_http=False, program=program, env=env)

    def auc(self, name):
        tasks = json.loads(tool("dump", "--state-dir", self.work.path / name, "--metrics")[1])["tasks"]
        return next(iter(tasks.values()))["lifetime"]["auc"]

    def hash(self, name):
        return json.loads(tool("dump", "--state-dir", self.work.path / name, "--private")[1].splitlines()[-1])["hash"]

    def verify(self, name):
        out = tool("verify", "--state-dir", self.work.path / name, "--brokers", self.kafka.address, "--topic", f"{name}.delta")[1]
        assert out.strip().splitlines()[-1].startswith("verified:"), out


def computes_on(daemon, name, card, reason):
    """Checks that /status and /metrics name the device that computes."""
    wait_until(lambda: daemon.port or daemon._find_port() or not daemon.running(), "http port in the log")
    wait_until(lambda: daemon.json("/status").get("device", {}).get("name"), "a device in /status")
    device = daemon.json("/status")["device"]
    assert (device["name"], device["card"]) == (name, card) and reason in device["reason"] and bool(reason) == bool(device["reason"]), device
    series = wait_until(lambda: re.findall(r"^freshet_device_info\{(.*)\} 1$", daemon.get("/metrics")[1], re.M), "the series of the device")
    assert len(series) == 1 and f'device="{name}"' in series[0] and f'card="{card}"' in series[0], series


def case_no_cuda_library_is_linked(runs):
    linked = subprocess.run(["ldd", BUILD / "daemon/freshetd"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "libc.so" in linked and not re.search(r"cuda|cublas|nvrtc", linked), linked


def case_without_a_card(runs):
    alone = runs.work.path / "alone"
    alone.mkdir()
    shutil.copy(BUILD / "daemon/freshetd", alone / "freshetd")
    refused = runs.start("refused", "cuda", alone / "freshetd")
    refused.expect_exit(2)
    assert "device: the CUDA plug-in cannot be loaded" in refused.log() and "device: cpu" in refused.log(), refused.log()[-1000:]
    absent = runs.start("absent", "cuda:7", runs.program)
    absent.expect_exit(2)
    assert "there is no card 7" in absent.log(), absent.log()[-1000:]
    plain = runs.start("plain", "auto", alone / "freshetd")
    plain.expect_exit(0)
    assert re.findall(r"event=device device=(\w+)", plain.log()) == ["cpu"], plain.log()[:2000]


def case_a_card_without_code(runs):
    no_code = {"FRESHET_EMULATED_FAILURE": "code:1"}
    refused = runs.start("old", "cuda", runs.program, env=no_code)
    refused.expect_exit(2)
    assert "has no code in the CUDA plug-in" in refused.log(), refused.log()[-1000:]
    live = runs.work.daemon(SOURCE / "tests/integration/operating.yaml", runs.work.path / "live.log",
                            [f"ingest.brokers={runs.kafka.address}", "export.create=true", f"state_dir={runs.work.path / 'live'}", "device=auto"], program=runs.program, env=no_code)
    computes_on(live, "cpu", "", "has no code in the CUDA plug-in")
    live.kill()
    assert live.log().count("has no code") == 1, live.log()[:2000]


def case_learns_as_the_cpu_does(runs):
    daemon = runs.start("card", "auto", runs.program)
    computes_on(daemon, "cuda:0", "emulated", "")
    daemon.expect_exit(0)
    assert "device=cuda:0" in daemon.log(), daemon.log()[:2000]
    runs.verify("card")
    difference = abs(runs.auc("card") - runs.auc("plain"))
    print(f"AUC {runs.auc('card'):.5f} on the emulated card, {runs.auc('plain'):.5f} on the CPU", flush=True)
    assert difference <= TOLERANCE, difference
    assert runs.hash("card") != runs.hash("plain"), "the card has not been used"


def case_kills_leave_no_trace(runs):
    for kill in range(3):
        daemon = runs.start("killed", "cuda", runs.program)
        wait_until(lambda: daemon.log().count("event=batch") > 0 or daemon.log().count("epoch=") > 2 + 2 * kill or not daemon.running(), "an epoch")
        daemon.kill()
    daemon = runs.start("killed", "cuda", runs.program)
    daemon.expect_exit(0)
    assert runs.hash("killed") == runs.hash("card"), "a kill changed the state"
    runs.verify("killed")


def case_rows_beyond_the_limit(runs):
    daemon = runs.start("small", "cuda:0", runs.program, [SMALL])
    daemon.expect_exit(0)
    assert runs.hash("small") == runs.hash("card"), "where a row is changed a number"


def case_rows_that_leave_memory(runs):
    daemon = runs.start("tiered", "cuda", runs.program, ["row_memory=300KiB", SMALL])
    wait_until(lambda: daemon.port or daemon._find_port(), "http port in the log")
    most = 0
    while daemon.running():
        most = max(most, sum(table["evictions"] for table in daemon.json("/status").get("tables", {}).values()))
    daemon.expect_exit(0)
    assert most > 0, "no row left memory"
    assert runs.hash("tiered") == runs.hash("card"), "where a row is changed a number"


def case_rows_that_expire(runs):
    sets = [f"tables.C{table}.expire.{option}" for table in range(1, 27) for option in ("rows_max=40", "every=1")]
    daemon = runs.start("expiring", "cuda", runs.program, sets)
    daemon.expect_exit(0)
    rows = int(re.search(r"event=drained .* rows=(\d+)", daemon.log())[1])
    assert rows < 26 * 200, f"{rows} rows: nothing expired"
    runs.verify("expiring")
    daemon = runs.start("expiring_killed", "cuda", runs.program, [*sets, SMALL])
    wait_until(lambda: daemon.log().count("event=epoch ") > 2 or not daemon.running(), "an epoch")
    daemon.kill()
    daemon = runs.start("expiring_killed", "cuda", runs.program, [*sets, SMALL])
    daemon.expect_exit(0)
    assert runs.hash("expiring_killed") == runs.hash("expiring"), "a kill, or where a row is, changed the state"


def case_a_batch_beyond_the_limit(runs):
    daemon = runs.start("tiny", "cuda", runs.program, ["gpu_memory_limit=1KiB"])
    daemon.expect_exit(75)
    assert "gpu_memory_limit" in daemon.log(), daemon.log()[-1000:]
    daemon = runs.start("tiny", "cuda", runs.program)
    daemon.expect_exit(0)
    assert runs.hash("tiny") == runs.hash("card"), "what was refused left a trace"


def case_a_lost_card_is_exit_75_and_a_restart_continues(runs):
    for kind, calls in (("lost", 1), ("lost", 700), ("lost", 2500), ("memory", 3), ("memory", 60)):
        name = f"{kind}{calls}"
        daemon = runs.start(name, "cuda", runs.program, env={"FRESHET_EMULATED_FAILURE": f"{kind}:{calls}"})
        daemon.expect_exit(75)
        said = "the emulated card is lost" if kind == "lost" else "memory"
        assert said in daemon.log(), daemon.log()[-1000:]
        daemon = runs.start(name, "cuda", runs.program)
        daemon.expect_exit(0)
        assert runs.hash(name) == runs.hash("card"), f"{name}: the failure changed the state"
        runs.verify(name)


def main():
    cases = [case for name, case in globals().items() if name.startswith("case_")]
    wanted = sys.argv[1:]
    with Workspace() as work, Kafka() as kafka:
        tool("produce", "--brokers", kafka.address, "--topic", STREAM, "--file", stream(STREAM), "--partitions", "1")
        runs = Runs(work, kafka)
        for case in cases:
            if not wanted or case.__name__[5:] in wanted:
                case(runs)
                print("ok", case.__name__[5:], flush=True)
    print("all passed, 0 failed")


main()
