"""Power cuts: folders as a power cut at any moment may leave them (power_disk.py), each opened and trained to the end.

A lockstep run from files (power.yaml: gates, expiry, little memory, an epoch that goes around the page cache, folds, savepoints and snapshots all the while)
is recorded by power_shim.c. Then, for a cut at a drawn place and a drawn model of what a disk keeps:

- the state opens at the mark that was synced or later, and not before any epoch that was given to librdkafka (P1, P3);
- every savepoint and snapshot that is listed is whole, and CURRENT names one of them, of an epoch that the state holds;
- freshetd starts and trains to the end of the files; the private hash is that of the undisturbed run, in which every sample was counted once.

    build/venv/bin/python tests/fault/power_cut.py [--images N] [--seed S] [--only IMAGE] [--workers N]

An image that fails is kept. With --only just one image of the N is made, and kept. A seed gives the samples and the draws; when folds, savepoints and
snapshots come depends on time, so another run has other records.
"""
import argparse
import collections
import concurrent.futures
import struct
import threading

import crc32c
import msgpack
from power_run import *  # noqa: E402,F403
from power_disk import MODELS

EARLY = 150  # so many of the first records are written while the state is being made
TURNS = "ERLUDMC"  # just before or after one of these a cut finds something half done
COPY_BYTES, COPY_DISTANCE = 128, 4096  # of the copies in the mark (docs/formats/state.md)


def marked(hwm):
    """Returns the epoch of the newest good copy of the mark."""
    newest = (0, 0)
    for at in (0, COPY_DISTANCE):
        copy = hwm[at:at + COPY_BYTES]
        if len(copy) == COPY_BYTES and crc32c.crc32c(copy[:-4]) == struct.unpack("<I", copy[-4:])[0]:
            newest = max(newest, struct.unpack_from("<Q8xQ", copy, 16))
    return newest[1]


def epoch_sent(message):
    """Returns the epoch of a delta record of which only the first bytes are given."""
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False)
    unpacker.feed(message)
    for _ in range(unpacker.read_map_header()):
        if unpacker.unpack() == b"e":
            return unpacker.unpack()
        unpacker.skip()
    raise AssertionError(f"no epoch in {message!r}")


def listed(kind, state):
    """Returns [(directory, epoch, is it CURRENT?)] of the savepoints or snapshots of a state."""
    status, text = freshet(kind, "--state-dir", state, "--list")
    assert status == 0, text
    return [(pathlib.Path(m[0]), int(m[1]), m[2] == " current=true")
            for m in re.findall(rf'^{kind} dir="?([^" ]+)"? timeline=\d+ epoch=(\d+) .*?( current=true)?$', text, re.M)]


class Image:
    """One cut: `path`/state is what it left."""

    def __init__(self, path, model, cut, mark, sent):
        self.path, self.model, self.cut, self.mark, self.sent = path, model, cut, mark, sent

    def judge(self, run):
        """Returns the epoch that the state opens at and what lies next to the state; an assertion fails where it is not what it must be."""
        state = self.path / "state"
        status, text = freshet("state", state)
        if status != 0:
            assert "(no hwm)" in text and self.mark is None and not self.sent, f"mark {self.mark}, sent {self.sent}: {text}"
            epoch = None
        else:
            epoch = int(re.search(r"\bepoch=(\d+)", text).group(1))
            assert epoch >= (self.mark or 0) and epoch >= self.sent, f"opens at {epoch}, the mark says {self.mark}, sent was {self.sent}"
        savepoints, snapshots = (listed(kind, state) if (state / f"{kind}s").is_dir() else [] for kind in ("savepoint", "snapshot"))
        for directory, _, _ in savepoints:
            status, text = freshet("state", directory, "--images")
            assert status == 0 and "checks passed=true checked=chain,cold,sections,ledger,images" in text, text
        for directory, _, _ in snapshots:
            status, text = freshet("snapshot", "--check", directory)
            assert status == 0 and "checks passed=true" in text, text
        current = [which for _, which, is_current in snapshots if is_current]
        if (state / "snapshots/CURRENT").exists():
            assert len(current) == 1 and current[0] <= epoch, f"CURRENT: {current} of {snapshots}, the state holds {epoch}"
        status, text = run.train(state)
        assert status == 0, text[-3000:]
        assert "level=error" not in text and "_failed" not in text, "\n".join(line for line in text.splitlines() if "level=error" in line or "_failed" in line)
        got, refused = private_hash(state)
        assert got == run.hash, f"private hash {got}, undisturbed {run.hash}; {refused}"
        return epoch is None, len(savepoints), len(snapshots), epoch is not None and self.mark is not None and epoch > self.mark


class Cuts:
    def __init__(self, run, arguments):
        self.run, self.arguments, self.rng = run, arguments, random.Random(arguments.seed)
        self.places = [number for number in range(1, len(run.records)) if run.records[number][0] != "P"]
        self.turns = [number for number in self.places if run.records[number][0] in TURNS]
        self.room = threading.Semaphore(arguments.workers + 1)  # at most one more image than workers, since images take room

    def draw(self):
        """[(cut, model)], ascending; a tenth of the cuts is in the making of the state, nearly half of the others at a turn."""
        cuts = []
        for number in range(self.arguments.images):
            if number % 10 == 0:
                cut = self.rng.randrange(1, EARLY)
            elif number % 2:
                cut = self.rng.choice(self.turns) + self.rng.randrange(2)
            else:
                cut = self.rng.choice(self.places)
            cuts.append((cut, self.rng.choice(MODELS) if number % 3 else "strict"))
        return sorted(cuts)

    def images(self):
        disk, sent = Disk(self.run.records), [0]
        disk.see = lambda message: sent.append(max(sent[-1], epoch_sent(message)))
        for number, (cut, model) in enumerate(self.draw()):
            disk.until(cut)
            if self.arguments.only not in (None, number):
                continue
            self.room.acquire()
            path, hwm = self.run.folder / f"image{number}", disk.synced_bytes("state", "hwm")
            disk.image(path, model, random.Random(f"{self.arguments.seed} {number}"))
            yield number, Image(path, model, cut, None if hwm is None else marked(hwm), sent[-1])

    def judge(self, number, image):
        try:
            return image.judge(self.run), None
        except Exception as error:  # reported with the others
            return None, f"image {number} ({image.path}), {image.model} at record {image.cut}: {error}"
        finally:
            self.room.release()

    def all(self):
        counts, failures = collections.Counter(), []

        def judged(model, path, answer):
            facts, failure = answer
            counts[model] += 1
            if failure:
                print("FAIL", failure, flush=True)
                failures.append(failure)
                return
            for what, n in zip(("new states", "savepoints", "snapshots", "opened beyond the mark"), facts):
                counts[what] += n
            if self.arguments.only is None:
                shutil.rmtree(path)

        def work(number, image):
            judged(image.model, image.path, self.judge(number, image))

        with concurrent.futures.ThreadPoolExecutor(self.arguments.workers) as pool:
            jobs = [pool.submit(work, number, image) for number, image in self.images()]
            for job in jobs:
                job.result()
        images = sum(counts[model] for model in MODELS)
        print(f"{images} images ({', '.join(f'{model} {counts[model]}' for model in MODELS)}): {images - len(failures)} as undisturbed, {len(failures)} not; "
              f"{counts['new states']} before the state was there, {counts['opened beyond the mark']} opened beyond the synced mark, "
              f"{counts['savepoints']} savepoints and {counts['snapshots']} snapshots whole")
        return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with Workspace() as work:
        run = Run(work.path, arguments.seed)
        print(f"{run.n_samples} samples, private hash {run.hash}; {len(run.records)} records of {run.log.stat().st_size} bytes", flush=True)
        failures = Cuts(run, arguments).all()
        assert not failures, f"{len(failures)} images failed"
        assert arguments.only is None, "kept, as asked"
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
