"""Damage: bits, bytes, sectors and ends of the files of a state at rest, of its savepoints and of its snapshots.

The state is that of power_cut.py's run (power_run.py) at a moment near its end, with epochs that are not folded. Each time one file is damaged. Then

- a state: `freshet dump --private` gives the hash of the sound state or refuses; freshetd trains to the end of the files, with the private hash of the
  undisturbed run, or ends with exit 3 and a text that names the file or its folder;
- a savepoint: the same for a state that begins from it (--restore);
- a snapshot: `freshet snapshot --check` refuses it and names the file; a damaged CURRENT counts as none, or names a snapshot that is whole.

Anything else fails: another result, another exit status, a signal, a refusal that names nothing.

    build/venv/bin/python tests/fault/flips.py [--flips N] [--seed S] [--only FLIP] [--workers N]

What fails is kept. With --only just one flip of the N is made, and kept.
"""
import argparse
import collections
import concurrent.futures

from power_run import *  # noqa: E402,F403

BEGIN = 0.8  # the share of the records after which the state is taken
MARK_BYTES = 8192  # of the file hwm (docs/formats/state.md)
QUIET = ["savepoint.every=0s", "snapshot.every=0s"]
EXACT, REFUSED = "exact", "refused"
SOUND = {EXACT, REFUSED}


def kind_of(path):
    """The kind of a file of a state: its path below the state, without numbers."""
    return re.sub(r"\d+", "N", str(path).replace("auto-", "").replace("power-", ""))


def damaged(data, rng):
    """Returns how the bytes were damaged, where, and the damaged bytes."""
    data, how, at = bytearray(data), rng.choice(("bit", "bit", "byte", "end", "sector", "more")), rng.randrange(len(data))
    sound = bytes(data)
    while bytes(data) == sound:
        if how == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif how == "byte":
            data[at] = rng.randrange(256)
        elif how == "end":
            del data[at:]
        elif how == "sector":
            begin = at // 512 * 512
            size = len(data[begin:begin + 512])
            data[begin:begin + 512] = bytes(size) if any(data[begin:begin + size]) else b"\xff" * size
        else:
            data += data[-64:]
    return how, at, bytes(data)


class Flips:
    def __init__(self, run, arguments):
        self.run, self.arguments, self.base = run, arguments, run.folder / "base"
        disk = Disk(run.records)
        at = int(BEGIN * len(run.records))
        disk.until(at)
        self.state = self.base / "state"
        while True:
            # A state is at rest after a sync of the mark: before the sync, the journal may hold an epoch that only the rule of the lost copy counts.
            while run.records[at - 1][0] != "E" or len(getattr(disk.nodes[run.records[at - 1][1]], "data", b"")) != MARK_BYTES:
                at += 1
                disk.until(at)
            shutil.rmtree(self.base, ignore_errors=True)
            disk.image(self.base, "all", None)
            if self.has_all():
                break
            at += 1
            disk.until(at)
        self.hashes = {}
        self.hash_of(self.state)
        self.kinds = {}
        for path in sorted(self.state.rglob("*")):
            if path.is_file() and path.stat().st_size and path.name not in SKIPPED and ".part" not in str(path):
                self.kinds.setdefault(kind_of(path.relative_to(self.state)), []).append(path.relative_to(self.state))
        for savepoint in self.state.glob("savepoints/*"):
            self.hash_of(savepoint)

    def has_all(self):
        return (self.state / "snapshots/CURRENT").exists() and list(self.state.glob("savepoints/*/hwm")) and list(self.state.glob("journal/*"))

    def hash_of(self, directory):
        """The private hash of a sound directory."""
        if directory not in self.hashes:
            self.hashes[directory], refused = private_hash(directory)
            assert self.hashes[directory], refused
        return self.hashes[directory]

    # ---- outcomes ----

    @staticmethod
    def refusal(path, status, text):
        """Returns REFUSED, or what is wrong with the way in which the program ended."""
        if status != 3:
            return f"exit {status}" if status > 0 else f"signal {-status}"
        problem = next((line for line in reversed(text.splitlines()) if "level=error" in line or "level=fatal" in line), last_line(text))
        return REFUSED if path.name in problem or f"/{path.parent.name}" in problem else "refused, not named"

    def trained(self, path, state, arguments=()):
        status, text = self.run.train(state, QUIET, arguments)
        if status != 0:
            return self.refusal(path, status, text), text
        got, refused = private_hash(state)
        return (EXACT if got == self.run.hash else "SILENT"), f"private hash {got}; {refused}"

    def dumped(self, damaged_directory, sound_directory):
        """Returns whether the tool refuses the damaged directory, or finds in it what the sound one holds."""
        got, refused = private_hash(damaged_directory)
        return got is None and "freshet dump: " in refused or got == self.hashes[sound_directory]

    def of_state(self, place, path):
        if not self.dumped(place / "state", self.state):
            return "SILENT dump", ""
        return self.trained(path, place / "state")

    def of_savepoint(self, place, path):
        name = path.parts[1]
        if not self.dumped(place / "state/savepoints" / name, self.state / "savepoints" / name):
            return "SILENT dump", ""
        return self.trained(path, place / "new", ["--restore", place / "state/savepoints" / name])

    def of_snapshot(self, place, path):
        if path.name == "CURRENT":
            status, text = freshet("snapshot", "--state-dir", place / "state", "--list")
            current = re.findall(r'^snapshot dir="?([^" ]+)"? .* current=true$', text, re.M)
            if status == 0 and not current:
                return REFUSED, text
            return (EXACT if status == 0 and freshet("snapshot", "--check", current[0])[0] == 0 else f"exit {status}"), text
        status, text = freshet("snapshot", "--check", place / "state/snapshots" / path.parts[1])
        if status == 0:
            return "SILENT check", text
        return (REFUSED if status == 1 and path.name in text else f"exit {status}, not named"), text

    # ---- flips ----

    def draw(self, number):
        """(kind, path, how, where, bytes) of a flip: each kind of file in turn."""
        kinds = sorted(self.kinds)
        rng = random.Random(f"{self.arguments.seed} {number}")
        kind = kinds[number % len(kinds)]
        path = rng.choice(self.kinds[kind])
        return kind, path, *damaged((self.state / path).read_bytes(), rng)

    def flip(self, number, path, data):
        place, area = self.run.folder / f"flip{number}", path.parts[0]
        if area in ("savepoints", "snapshots"):
            part = pathlib.Path(area) if path.name == "CURRENT" else pathlib.Path(*path.parts[:2])
            shutil.copytree(self.state / part, place / "state" / part)
        else:
            shutil.copytree(self.state, place / "state", ignore=shutil.ignore_patterns("savepoints", "snapshots"))
        (place / "state" / path).write_bytes(data)
        result, text = {"savepoints": self.of_savepoint, "snapshots": self.of_snapshot}.get(area, self.of_state)(place, path)
        if result in SOUND and self.arguments.only is None:
            shutil.rmtree(place)
        return result, text

    def all(self):
        counts, failures = {}, []

        def work(number):
            kind, path, how, where, data = self.draw(number)
            result, text = self.flip(number, path, data)
            counts.setdefault(kind, collections.Counter())[result] += 1
            if result not in SOUND or self.arguments.only is not None:
                failures.append(number)
                print(f"FAIL flip {number}: {result}: {path}, {how} at {where}: {text[-600:]}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(self.arguments.workers) as pool:
            only = self.arguments.only
            for job in [pool.submit(work, number) for number in (range(self.arguments.flips) if only is None else [only])]:
                job.result()
        for kind in sorted(counts):
            print(f"  {kind}: {', '.join(f'{n} {result}' for result, n in sorted(counts[kind].items()))}")
        for area in ("state", "savepoints", "snapshots"):
            total = sum((n for kind, n in counts.items() if kind.split("/")[0] == area or area == "state" and kind.split("/")[0] not in ("savepoints", "snapshots")),
                        collections.Counter())
            print(f"{area}: {sum(total.values())} flips: {', '.join(f'{n} {result}' for result, n in sorted(total.items()))}")
        return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with Workspace() as work:
        run = Run(work.path, arguments.seed)
        failures = Flips(run, arguments).all()
        assert not failures, f"{len(failures)} flips failed"
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
