"""The run that power_cut.py and flips.py disturb: samples in files, trained in lockstep under power_shim.c; and what becomes of a folder that was made from its records."""
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import samples  # noqa: E402
from harness import *  # noqa: E402,F403
from power_disk import Disk, Records  # noqa: E402

ATTEMPTS = 8  # a run of a second may be too short for a third savepoint or snapshot, which removes the first one
REMOVED = ("savepoint", "snapshot")
CONFIG = SOURCE / "tests/fault/power.yaml"
SHIM = BUILD / "tests/fault/libpower_shim.so"
FILES, FILE_SAMPLES, LONG = 3, 400, 2080  # one record makes an epoch that goes around the page cache
SECONDS = 600  # the longest that a command may take
SKIPPED = {"LOG", "LOG.old"}  # RocksDB's own, written by stdio


def write_files(folder, seed):
    """Writes files of samples, each with a feature of its own; the second file has a long record in its middle."""
    rng, paths, count = random.Random(seed), [], 0

    def sample():
        nonlocal count
        count += 1
        user, item = int(rng.paretovariate(0.6)) % 900, int(rng.paretovariate(0.7)) % 300
        return {"t": 1700000000000 + count * 200, "y": {"click": int(rng.random() < (0.2 if item % 3 else 0.6))},
                "f": {"sample": count, "user_id": user, "item_id": f"i{item}", "shop_id": item % 40, "history": [f"i{rng.randrange(300)}"], "price": rng.random() * 20,
                      "age": 40 + 12 * rng.gauss(0, 1)}}

    for number in range(FILES):
        lines = []
        for line in range(FILE_SAMPLES):
            lines.append(samples.encode(sample(), "json"))
            if number == 1 and line == FILE_SAMPLES // 2:
                lines += samples.records([{"shared": {}, "items": [sample()]} for _ in range(LONG)], "block", "json", LONG)
        paths.append(folder / f"samples{number}.jsonl")
        paths[-1].write_bytes(b"\n".join(lines) + b"\n")
    return paths, count


def last_line(text):
    return (text.strip().splitlines() or [""])[-1]


def process(*command, env=None):
    """Runs a command; returns its exit status and what it wrote on both streams."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout.decode(errors="replace")


def freshet(*arguments):
    return process(BUILD / "tool/freshet", *arguments)


def private_hash(state):
    """Returns (the private hash, ""), or (None, the text of the tool) where the tool refuses."""
    status, text = freshet("dump", "--state-dir", state, "--private")
    return (json.loads(last_line(text))["hash"], "") if status == 0 else (None, text)


class Run:
    """The undisturbed run, below `folder`."""

    def __init__(self, folder, seed=1):
        self.folder, self.disk_path, self.log = folder.resolve(), folder.resolve() / "disk", folder.resolve() / "changes"
        self.files, self.n_samples = write_files(self.folder, seed)
        for _ in range(ATTEMPTS):
            self.text = self.record()
            if all(self.removed(component) for component in REMOVED):
                break
        self.hash, refused = private_hash(self.disk_path / "state")
        assert self.hash, refused
        self.records = Records(self.log)
        self.check_ledger()
        self.check_records()

    def record(self):
        """Trains and records what changes on the disk; returns the daemon's text."""
        shutil.rmtree(self.disk_path, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.disk_path.mkdir()
        status, text = self.train(self.disk_path / "state", env={"LD_PRELOAD": str(SHIM), "FRESHET_POWER_ROOT": str(self.disk_path),
                                                                 "FRESHET_POWER_LOG": str(self.log)})
        assert status == 0, text[-3000:]
        return text

    def removed(self, component):
        return re.search(rf" component={component} event=removed ", self.text) is not None

    def train(self, state, sets=(), arguments=(), env=None):
        """Trains to the end of the files, with a topic that no other run uses; returns exit status and text."""
        with Broker() as broker:
            sets = [f"ingest.brokers={broker.address}", f"state_dir={state}", f"ingest.files=[{', '.join(map(str, self.files))}]", *sets]
            return process(BUILD / "daemon/freshetd", "--config", CONFIG, *(word for item in sets for word in ("--set", item)), *arguments, env=env)

    def check_ledger(self):
        """Checks that every sample was counted once."""
        rows = [json.loads(line) for line in freshet("dump", "--state-dir", self.disk_path / "state", "--private")[1].splitlines()
                if line.startswith('{"table":"ledger"')]
        assert len(rows) == self.n_samples and all(row["show"] == 1 for row in rows), f"{len(rows)} of {self.n_samples} samples in the ledger"

    def check_records(self):
        """Checks that replaying the records gives the folder as it is: the shim saw every change."""
        for component in REMOVED:
            assert self.removed(component), f"no {component} was removed in {ATTEMPTS} runs: nothing is tried of how removals are ordered"
        disk, made = Disk(self.records), self.folder / "made"
        disk.until(len(self.records))
        assert not disk.emptied, f"{len(disk.emptied)} removed before the folder's new name was synced; first {disk.emptied[0]}"
        disk.image(made, "all", None)
        assert tree(made) == tree(self.disk_path), tree(made).keys() ^ tree(self.disk_path).keys() or "the bytes of a file differ"
        shutil.rmtree(made)


def tree(folder):
    """Returns path -> bytes of every file, None for a folder; RocksDB's LOG files are left out."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))
            if not path.name.startswith("LOG") or "cold" not in path.parts}
