"""Vowpal Wabbit as the peer of logistic regression: its own driver (a parsing and a learning thread) over a cache file, by the module of the PyPI package.

    peer_vw.py cache TEXT CACHE BITS | run CACHE VARIANT SAMPLES BITS [PREDICTIONS]
"""
import json
import os
import sys
import threading
import time

from measure import cpu_of, own_cpu, peak_of, result

COMMON = ["--quiet", "--loss_function", "logistic"]
VARIANTS = {
    "ftrl": ["--ftrl", "--ftrl_alpha", "0.1", "--ftrl_beta", "1", "--l1", "0", "--l2", "0"],  # the rule of lr.yaml
    "sgd": [],  # its own default: adaptive, normalized, invariant
}


class Half(threading.Thread):
    """Sees from outside (the driver holds Python's lock) when another process has read its cache file to the half."""

    def __init__(self, pid, path):
        super().__init__(daemon=True)
        self.pid, self.path, self.mark, self.stop = pid, os.path.realpath(path), None, False

    def run(self):
        half, fd = os.path.getsize(self.path) // 2, None
        while self.mark is None and not self.stop:
            try:
                if fd is None:
                    fd = next((name for name in os.listdir(f"/proc/{self.pid}/fd") if os.path.realpath(f"/proc/{self.pid}/fd/{name}") == self.path), None)
                if fd is not None:
                    with open(f"/proc/{self.pid}/fdinfo/{fd}") as file:
                        if int(file.readline().split()[1]) >= half:
                            self.mark = (time.monotonic(), cpu_of(self.pid))
            except OSError:
                fd = None
            time.sleep(0.002)


def halved(answer, half):
    """The answer of `run` with what was seen of its second half; its clock is every process's."""
    half.stop = True
    half.join()
    if half.mark:
        answer["half_seconds"], answer["half_cpu"] = answer["end"][0] - half.mark[0], answer["end"][1] - half.mark[1]
    return answer


def drive(arguments):
    import pylibvw
    learner = pylibvw.vw(arguments)
    begin = (time.monotonic(), own_cpu())
    learner.run_parser()
    end = (time.monotonic(), own_cpu())
    peak = peak_of()
    learner.finish()
    return begin, end, peak


def main():
    if sys.argv[1] == "cache":
        drive(COMMON + ["-d", sys.argv[2], "--cache_file", sys.argv[3], "--noop", "-b", sys.argv[4]])
        print("{}")
        return
    cache, variant, samples, bits = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    predictions = ["-p", sys.argv[6]] if len(sys.argv) > 6 else []
    begin, end, peak = drive(COMMON + VARIANTS[variant] + ["-d", cache, "--cache_file", cache, "-b", bits] + predictions)
    print(json.dumps(result(samples, (begin, begin, end), peak, None, variant=variant, end=end)))


if __name__ == "__main__":
    main()
