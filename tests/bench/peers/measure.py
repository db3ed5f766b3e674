"""What both sides are measured with: clock, processor time, peak memory, AUC, children that end."""
import json
import os
import subprocess
import sys
import time

import numpy as np

BEGIN = time.monotonic()
TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A run that gave no result; its row says why, and the other runs continue."""


def say(text):
    print(f"[{time.monotonic() - BEGIN:7.1f} s] {text}", file=sys.stderr, flush=True)


class Progress:
    """A line every few seconds."""

    def __init__(self, name, total):
        self.name, self.total, self.next = name, total, time.monotonic() + 5

    def at(self, samples):
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 5
            say(f"{self.name}: {samples:,} of {self.total:,} samples")


def cpu_of(pid):
    """User and system seconds of a process, its ended children included."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def own_cpu():
    return sum(os.times()[:4])


def peak_of(pid="self"):
    """Bytes of the largest resident set so far."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def auc(scores, labels):
    """Ties count half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = labels > 0.5
    n = int(positive.sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(labels) - n)))


def result(samples, marks, peak, score, **more):
    """marks: (clock, processor seconds) at the first sample, at the half, at the last."""
    (begin, cpu0), (middle, cpu1), (end, cpu2) = marks
    return {"samples": samples, "seconds": end - begin, "cpu": cpu2 - cpu0, "half_seconds": end - middle, "half_cpu": cpu2 - cpu1, "peak": peak, "auc": score,
            **more}


def child(arguments, seconds, env=None, started=None, python=sys.executable):
    """Runs a Python program of this folder; the JSON of its last line. It ends with its children, however it ends."""
    process = subprocess.Popen([python, "-W", "ignore", *map(str, arguments)], stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    try:
        if started:
            started(process.pid)
        out = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {seconds} s")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0 or not out.strip():
        raise Failed(f"{os.path.basename(str(arguments[0]))} exited with {process.returncode}")
    answer = json.loads(out.strip().splitlines()[-1])
    if "failed" in answer:
        raise Failed(answer["failed"])
    return answer


class Busy:
    """One process that wants a core all the time."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
