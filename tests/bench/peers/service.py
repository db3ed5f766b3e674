"""freshetd over a topic, from an empty state to the topic's end, with durability and publishing."""
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

from harness import BUILD, tool
from measure import Failed, Progress, cpu_of, peak_of, result

PROGRAM = BUILD / "daemon/freshetd"


def status(port):
    """None: it does not answer (any more)."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def find_port(process, log, deadline):
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(r"event=http .*?port=(\d+)", log.read_text(errors="replace"))
        if match:
            return int(match.group(1))
        time.sleep(0.02)
    raise Failed("freshetd did not start: " + log.read_text(errors="replace")[-600:])


LOOK_SECONDS = 0.25  # between two looks at what is trained; a look costs both sides of the socket processor time


def end_of(log):
    """The clock when the last sample was trained, by the log: within 20 ms."""
    match = re.search(r"^ts=(\S+) .* event=drain why=end_of_stream", log.read_text(errors="replace"), re.M)
    if not match:
        raise Failed("the log tells no end of the stream")
    return datetime.datetime.fromisoformat(match.group(1).replace("Z", "+00:00")).timestamp() - time.time() + time.monotonic()


class Marks:
    """Clock and processor time over the samples that /status shows. It tells them once a second and at cuts, so the first mark is the last look without any
    record, and the middle one lies on the line between the looks around it."""

    def __init__(self, pid, samples):
        self.pid, self.samples, self.peak, self.begin, self.points, self.batches = pid, samples, 0, None, [], 0

    def now(self):
        return time.monotonic(), cpu_of(self.pid)

    def look(self, before, document):
        after, count = self.now(), document["samples"]["trained"]
        self.peak, self.batches = peak_of(self.pid), document["batches"]
        if document["ingest"]["records"] == 0:
            self.begin = before
        if self.begin and count > self.last():
            self.points.append((count, *after))

    def last(self):
        return self.points[-1][0] if self.points else 0

    def middle(self):
        points, half = [(0, *self.begin), *self.points], self.samples / 2
        for (n0, t0, c0), (n1, t1, c1) in zip(points, points[1:]):
            if n1 >= half:
                share = (half - n0) / (n1 - n0)
                return t0 + share * (t1 - t0), c0 + share * (c1 - c0)
        return self.begin


def watch(process, port, marks, progress, deadline):
    """Until it has ended; returns its processor time, all in."""
    looked = 0
    while True:
        try:
            before = marks.now()
            due = not marks.points or before[0] - looked >= LOOK_SECONDS
            document = status(port) if due and marks.last() < marks.samples else None
            if document:
                looked = before[0]
                marks.look(before, document)
                progress.at(marks.last())
        except (OSError, IndexError, ValueError):
            pass  # it has just ended
        pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(code)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            raise Failed("freshetd did not end in time")
        time.sleep(0.02 if marks.points else 0.005)


def run(config, source, samples, name, seed, threads, seconds, more=()):
    """One pass. The clock stops at the last trained sample; processor time runs on to the process's end, so that the last fold and delta count."""
    state, log_path = source.folder / f"{name}-state", source.folder / f"{name}.log"
    sets = [f"ingest.brokers={source.address}", f"ingest.topic={source.topic}", f"model={name}", f"state_dir={state}", f"threads={threads}", f"seed={seed}",
            f"export.topic={name}.delta", "metrics.listen=127.0.0.1:0", *more]
    command = [PROGRAM, "--config", config, "--until", "end"] + [part for item in sets for part in ("--set", item)]
    deadline = time.monotonic() + seconds
    with open(log_path, "wb") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=log)
    try:
        port, marks = find_port(process, log_path, deadline), Marks(process.pid, samples)
        cpu = watch(process, port, marks, Progress(f"{name} (freshetd)", samples), deadline)
    finally:
        if process.returncode is None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise Failed(f"freshetd exited with {process.returncode}: {log_path.read_text(errors='replace')[-600:]}")
    if not marks.begin:
        raise Failed("freshetd was not seen before its first record")
    lifetime = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]["click"]["lifetime"]
    bytes_left = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    shutil.rmtree(state)
    return result(samples, (marks.begin, marks.middle(), (end_of(log_path), cpu)), marks.peak, lifetime["auc"], variant="", state_bytes=bytes_left, batches=marks.batches)
