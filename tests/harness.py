"""Runs the real parts for integration tests: Apache Kafka (tests/kafka), freshetd and the freshet tool.

Everything is started in a fresh temporary directory, on loopback and free ports, and ended by process id. Waiting is polling until a condition holds; no sleep
replaces an event, and the deadlines are so long that only a failing test reaches them. The build folder comes from FRESHET_BUILD (default build/release).
"""
import contextlib
import fcntl
import gc
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("FRESHET_BUILD", SOURCE / "build" / "release")).resolve()
DATA = pathlib.Path(os.environ.get("FRESHET_DATA", SOURCE.parent / "shared" / "data" / "streams"))
NODES = os.environ.get("FRESHET_NODES")  # folder of nodes that suites use one after another; tests/run makes and ends them
gc.disable()  # streams are lists of millions of objects that each collection would visit, and a suite leaves little garbage
PATIENCE = 300  # seconds; a passing test never waits so long, whatever the load
SKIP = 77


def skip(reason):
    print("SKIP:", reason)
    sys.exit(SKIP)


def wait_until(condition, what):
    """Polls condition() until its value is true, and returns the value."""
    deadline, pause = time.monotonic() + PATIENCE, 0.02
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(pause)
        pause = min(1.1 * pause, 0.05)


def run_cases(cases, names):
    """Runs the methods of `cases` with these names, or those among them that the command line names."""
    names = [name for name in names if not sys.argv[1:] or name in sys.argv[1:]]
    for name in names:
        begin = time.monotonic()
        getattr(cases, name)()
        print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{len(names)} passed, 0 failed")


class Kafka:
    """One KRaft node without topics; a context manager. If tests/run requests it (FRESHET_NODES), the node is one that an earlier suite left, emptied, because a
    JVM takes ten seconds of a core to start. With `own`, or any argument of kafka/start, the node is fresh; the suite may `stop` it and `start` it again."""

    def __init__(self, *arguments, own=False):
        self.lock = None if own or arguments or not NODES else self._borrow()
        if self.lock:
            self.address = self._emptied() or self._start("--dir", self.dir)
        else:
            self.dir = tempfile.mkdtemp(prefix="freshet-kafka-")
            self.address = self._start("--dir", self.dir, *arguments)

    def _start(self, *arguments):
        lines = subprocess.run([SOURCE / "tests/kafka/start", *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout.strip().splitlines()
        self.more = dict(line.split("=", 1) for line in lines[1:])  # with --sasl-ssl: ca, properties, plaintext
        return lines[0]

    def _borrow(self):
        """Locks the first node that no other suite uses; the lock is held until the suite ends."""
        for number in itertools.count():
            self.dir = os.path.join(NODES, str(number))
            lock = open(self.dir + ".lock", "w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                lock.close()

    def _emptied(self):
        """Returns the node's address, once the topics and groups of the previous suite are gone; None if the node does not run."""
        if not os.path.exists(os.path.join(self.dir, "address")):
            shutil.rmtree(self.dir, ignore_errors=True)
            return None
        import confluent_kafka.admin
        address = pathlib.Path(self.dir, "address").read_text().strip()
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
        groups = [group.group_id for group in admin.list_consumer_groups().result(PATIENCE).valid]
        for future in (admin.delete_consumer_groups(groups) if groups else {}).values():
            future.result(PATIENCE)

        def no_topic_is_left():
            topics = [name for name in admin.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]
            for future in (admin.delete_topics(topics) if topics else {}).values():
                future.exception(PATIENCE)  # a topic that was being deleted is unknown
            return not topics
        wait_until(no_topic_is_left, "the node's topics are deleted")
        return address

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.lock:
            self.lock.close()
            return
        subprocess.run([SOURCE / "tests/kafka/stop", self.dir], timeout=60, stdout=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def stop(self, *arguments):
        subprocess.run([SOURCE / "tests/kafka/stop", "--keep", *arguments, self.dir], check=True, timeout=120)

    def start(self):
        self._start("--dir", self.dir)

    def pid(self):
        for name in pathlib.Path(self.dir).rglob("*pid*"):
            return int(name.read_text().split()[0])
        raise AssertionError("no pid file in " + self.dir)


def tool(*arguments, check=True, timeout=600):
    """Runs `freshet ...`; returns (exit code, stdout, stderr)."""
    done = subprocess.run([BUILD / "tool/freshet", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout)
    if check and done.returncode != 0:
        raise AssertionError(f"freshet {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.returncode, done.stdout, done.stderr


class Broker:
    """`freshet broker`, to which a run from files alone publishes. That of librdkafka 2.8 makes topics for producers, and none for a daemon that reads."""

    def __enter__(self):
        self.process = subprocess.Popen([BUILD / "tool/freshet", "broker"], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait()


def last_epoch(state_dir):
    """The last durable epoch of a state that no daemon uses."""
    return int(re.search(r"\bepoch=(\d+)", tool("state", state_dir)[1]).group(1))


class Daemon:
    """freshetd with its log in a file; metrics on a free port."""

    def __init__(self, config, log, sets=(), arguments=(), env=None, wait_http=True, program=None, stderr=None):
        programs = program if isinstance(program, list) else [program or BUILD / "daemon/freshetd"]  # a list: a launcher, its arguments, the program
        command = [*programs, "--config", config, "--log", "debug", "--set", "metrics.listen=127.0.0.1:0"]
        for item in sets:
            command += ["--set", item]
        self.log_path = pathlib.Path(log)
        self.log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.elsewhere = stderr is not None  # the log goes to the caller's descriptor, not to the file
        self.process = subprocess.Popen([*map(str, command), *arguments], stderr=stderr if self.elsewhere else open(log, "ab"), stdout=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})})
        self.port = None
        if wait_http:
            wait_until(lambda: self._find_port() or self.process.poll() is not None, "http port in the log")

    def log(self):
        if self.elsewhere:
            return ""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    def _listening_port(self):
        """Finds the port of the daemon's only listening socket, by inode."""
        sockets = set()
        with contextlib.suppress(OSError):  # the process has just ended, or closed a descriptor
            sockets = {os.readlink(fd) for fd in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()}
        for fields in map(str.split, pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]):
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                self.port = int(fields[1].split(":")[1], 16)
        return self.port

    def _find_port(self):
        if self.elsewhere:
            return self._listening_port()
        match = re.search(r"event=http .*?port=(\d+)", self.log())
        if match:
            self.port = int(match.group(1))
        return self.port

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def json(self, path):
        code, text = self.get(path)
        return json.loads(text) if text else {}

    def running(self):
        return self.process.poll() is None

    def wait_exit(self, seconds=PATIENCE):
        """Waits for the exit; as long as the log grows, the daemon is slow (a sanitizer, a loaded machine), not stuck, so the wait begins again, at most six times."""
        for _ in range(6):
            written = len(self.log())
            try:
                return self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                if len(self.log()) == written:
                    break
        raise AssertionError(f"freshetd did not exit in {seconds} s; log ends:\n{self.log()[-3000:]}")

    def expect_exit(self, code, seconds=PATIENCE):
        got = self.wait_exit(seconds)
        assert got == code, f"freshetd exited {got}, expected {code}; log ends:\n{self.log()[-3000:]}"

    def drain(self, seconds=PATIENCE):
        self.process.send_signal(signal.SIGTERM)
        self.expect_exit(0, seconds)
        last = self.log().splitlines()[-1]
        assert " model=" in last and " event=drained epoch=" in last, f"the last line of a log says what was drained: {last}"

    def kill(self):
        if self.running():
            self.process.kill()
        self.process.wait()


class Workspace:
    """A temporary directory, removed at exit unless the test failed (then named in the output)."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="freshet-test-"))
        self.daemons = []
        return self

    def __exit__(self, kind, value, trace):
        for daemon in self.daemons:
            daemon.kill()
        if kind is None or kind is SystemExit:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print("files kept in", self.path)

    def daemon(self, *args, **kwargs):
        daemon = Daemon(*args, **kwargs)
        self.daemons.append(daemon)
        return daemon


def stream(name):
    """Path of a data stream, or a named skip (a failure with --require-data)."""
    path = DATA / f"{name}.jsonl.gz"
    if path.exists():
        return path
    reason = f"{path} is not there; set FRESHET_DATA to the folder of the streams"
    if os.environ.get("FRESHET_REQUIRE_DATA"):
        raise AssertionError(reason)
    skip(reason)
