"""freshetd over a topic, from an empty state to the topic's end, with durability and publishing."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

from harness import BUILD, tool
from measure import Failed, Progress, cpu_of, peak_of, result, say

PROGRAM = BUILD / "daemon/freshetd"


def trained(port):
    """Samples so far; None: it does not answer (any more)."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
            return json.load(answer)["samples"]["trained"]
    except OSError:
        return None


def find_port(process, log, deadline):
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(r"event=http .*?port=(\d+)", log.read_text(errors="replace"))
        if match:
            return int(match.group(1))
        time.sleep(0.02)
    raise Failed("freshetd did not start: " + log.read_text(errors="replace")[-600:])


class Marks:
    """Clock and processor time before the first sample, at the half and at the last, by looking at /status."""

    def __init__(self, pid, samples):
        self.pid, self.samples, self.last, self.peak = pid, samples, 0, 0
        self.begin = self.middle = self.end = None

    def look(self, count):
        now = (time.monotonic(), cpu_of(self.pid))
        self.peak = peak_of(self.pid)
        if count == 0:
            self.begin = now
        if count >= self.samples // 2 and not self.middle:
            self.middle = now
        if count > self.last:
            self.last, self.end = count, now

    def pause(self):
        """Short where a mark is near."""
        share = self.last / self.samples
        return 0.01 if not 0 < share < 0.9 or 0.4 < share < 0.5 else 0.05


def watch(process, port, marks, progress, deadline):
    """Until it has ended; returns its processor time, all in."""
    while True:
        count = trained(port) if marks.last < marks.samples else None
        if count is not None:
            try:
                marks.look(count)
            except (OSError, IndexError, ValueError):
                pass  # it has just ended
            progress.at(count)
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            raise Failed("freshetd did not end in time")
        time.sleep(marks.pause())


def run(config, address, topic, samples, folder, name, threads, seconds):
    """One pass. The clock stops at the last trained sample; processor time runs on to the process's end, so that the last fold and delta count."""
    state, log_path = folder / f"{name}-state", folder / f"{name}.log"
    sets = [f"ingest.brokers={address}", f"ingest.topic={topic}", f"model={name}", f"state_dir={state}", f"threads={threads}", f"export.topic={name}.delta",
            "metrics.listen=127.0.0.1:0"]
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
    if marks.last != samples or not marks.begin:
        raise Failed(f"freshetd was seen at {marks.last} of {samples} samples" + ("" if marks.begin else ", and never before the first"))
    lifetime = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]["click"]["lifetime"]
    bytes_left = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    shutil.rmtree(state)
    say(f"{name} (freshetd): drained")
    return result(samples, (marks.begin, marks.middle, (marks.end[0], cpu)), marks.peak, lifetime["auc"], variant="", state=bytes_left)
