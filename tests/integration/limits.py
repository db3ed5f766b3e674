"""A start under each limit of a process (docs/commands.md, "Exit codes"): it ends with Freshet's own line, which names what is short, and with the exit code of its class,
never with the abort of a library, and it never waits. There is no broker, because the start must find what is short before it needs one.

Cases: descriptors, threads, address space, size of files, state_dir that cannot be, a disk that is full, one processor, more memory than there is, signals.
"""
import concurrent.futures
import pathlib
import resource
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"
MIB = 1 << 20


def limit(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


class Cases:
    def __init__(self, work):
        self.work = work
        self.starts = 0

    def start(self, state=None, sets=(), arguments=(), before=None, env=None, config=CONFIG, brokers=True):
        """Runs freshetd with a broker that is not there, or without one; its standard error goes to a file."""
        self.starts += 1
        state = state or self.work.path / f"state{self.starts}"
        log = self.work.path / f"{self.starts}.log"
        command = [harness.BUILD / "daemon/freshetd", "--config", config, *arguments]
        for item in ("metrics.listen=127.0.0.1:0", f"state_dir={state}", *(["ingest.brokers=127.0.0.1:9"] if brokers else []), *sets):
            command += ["--set", item]
        process = subprocess.Popen([*map(str, command)], stderr=open(log, "wb"), stdout=subprocess.DEVNULL, preexec_fn=before, env={**os.environ, **(env or {})})
        return process, log

    def ends(self, code, *words, **options):
        """Expects that the process ends by itself with the code, and that its line `stopped` has the words."""
        process, log = self.start(**options)
        try:
            got = process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
        text = log.read_text()
        assert got == code, f"exit {got}, expected {code}:\n{text[-2000:]}"
        line = [line for line in text.splitlines() if " event=stopped " in line][-1:]
        assert line and f" code={code} " in line[0] and all(word in line[0] for word in words), (words, text[-2000:])

    def recovers(self, **options):
        """Starts the daemon, waits until it has recovered, and kills it. Returns the log."""
        process, log = self.start(**options)
        try:
            wait_until(lambda: "event=recovered" in log.read_text() or process.poll() is not None, "recovered")
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
        return log.read_text()

    def too_few_descriptors_are_named_with_the_number(self):
        for n in (8, 20, 60, 100):
            self.ends(3, "status=limit", "at least 128 are needed", f"its limit of {n} ", "LimitNOFILE", before=limit(resource.RLIMIT_NOFILE, n))
        self.recovers(before=limit(resource.RLIMIT_NOFILE, 160))

    def too_few_threads_are_named_with_the_number(self):
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests/integration/libthread_shim.so")}
        for n in (0, 4, 12, 30):  # 0: OpenBLAS gets no threads before main
            self.ends(75, "status=no_memory", "the process needs", "and could start", "ulimit -u", "pids.max", "lower `threads`", env={**shim, "FRESHET_THREADS_ALIVE": str(n)})
        before_main = os.cpu_count() - 1  # OpenBLAS's threads
        self.recovers(env={**shim, "FRESHET_THREADS_ALIVE": str(self.needed_threads(shim) + before_main + 1)})  # and the thread `log`

    def a_thread_that_is_refused_later_ends_with_a_line_too(self):
        """A start checks that it can have all of its threads; later each of them is refused once."""
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests/integration/libthread_shim.so")}
        asked = 1 + self.needed_threads(shim)

        def refuse(number):
            process, log = self.start(env={**shim, "FRESHET_THREADS_NOT": str(number)})
            try:  # a Kafka client can run without one of its threads
                wait_until(lambda: process.poll() is not None or re.search("event=(recovered|stopped)", log.read_text()), "an end or a recovery")
                ended = process.poll()
                return number, ended, log.read_text()
            finally:
                process.kill()
                process.wait()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(refuse, range(asked + 1, asked + 33, 4)))
        for number, ended, text in ends:
            said = re.search(r"event=stopped code=(\d+) ", text)
            assert not said or said.group(1) in ("1", "75"), (number, text[-2000:])
            assert ended is None or said and said.group(1) == str(ended), (number, ended, text[-2000:])
        assert sum("event=stopped" in text for _, _, text in ends) >= 3, "no thread of a start was refused"

    def needed_threads(self, shim):
        """Returns what a start that gets none says it needs."""
        process, log = self.start(env={**shim, "FRESHET_THREADS_ALIVE": "1"})
        process.wait(PATIENCE)
        return int(re.search(r"needs (\d+) threads", log.read_text()).group(1))

    def too_little_address_space_is_named(self):
        one = {"OPENBLAS_NUM_THREADS": "1"}  # OpenBLAS 0.3.29 asks for its buffers before main, again and again if they are refused
        for kind, sizes in ((resource.RLIMIT_AS, (256, 300, 500)), (resource.RLIMIT_DATA, (150, 300, 500))):
            for mib in sizes:
                self.ends(3, "status=limit", "memory_limit is 536870912B", "ulimit -v", env=one, before=limit(kind, mib * MIB))
        self.ends(75, "status=no_memory", "memory for their stacks", env=one, sets=["memory_limit=16MiB"], before=limit(resource.RLIMIT_AS, 300 * MIB))

    def files_that_may_not_grow_are_named(self):
        for size in (8192, 300_000):  # the log is a file, too
            self.ends(3, "status=limit", "File too large", "ulimit -f", before=limit(resource.RLIMIT_FSIZE, size))

    def a_file_that_may_not_grow_any_more_is_for_an_operator(self):
        samples = self.work.path / "samples.jsonl"
        samples.write_text("".join('{"t":%d,"y":{"click":%d},"f":{"sample":%d,"user_id":%d,"price":1}}\n' % (1700000000000 + i, i % 2, i, i % 50) for i in range(20000)))
        config = self.work.path / "files.yaml"
        config.write_text(re.sub(r"^ingest: .*$", "ingest: {format: json, batch_wait: 5ms, files: [%s]}" % samples, CONFIG.read_text(), flags=re.M))
        # the journal; the cold store, whose files are larger than those of the journal
        for size, sets in ((1 << 20, ()), (700_000, ("unfolded_max=256KiB",))):
            options = {"config": config, "brokers": False, "arguments": ("--until", "end"), "sets": ("epoch=50ms", *sets)}
            state = self.work.path / f"grown{size}"
            self.ends(3, "status=limit", "File too large", "ulimit -f", state=state, before=limit(resource.RLIMIT_FSIZE, size), **options)
            process, log = self.start(state=state, **options)
            assert process.wait(PATIENCE) == 0 and "samples=20000" in log.read_text(), log.read_text()[-2000:]

    def a_state_dir_that_cannot_be_is_for_an_operator(self):
        file = self.work.path / "file"
        file.touch()
        self.ends(3, "is not a directory", state=file)
        self.ends(3, "is not a directory", state=file / "below")
        self.ends(3, "File name too long", "use a shorter path", state=self.work.path / ("a" * 300))
        self.ends(3, "cannot create directory", state="/proc/freshet")
        (self.work.path / "dangling").symlink_to(self.work.path / "nowhere")
        (self.work.path / "loop").symlink_to("loop")
        for name in ("dangling", "loop"):
            self.ends(3, "status=mismatch", "is a link that leads nowhere", state=self.work.path / name)

    def a_start_on_a_full_disk_says_to_make_room(self):
        disk, first = self.work.path / "disk", self.work.path / "first"
        self.recovers(state=first)
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True).returncode != 0:
            print("SKIP: a start on a full disk: a tmpfs cannot be mounted here")
            return
        try:
            shutil.copytree(first, disk / "old")
            for left in (0, 20_000, 400_000):
                for name in ("old", "new"):
                    room = os.statvfs(disk)
                    with open(disk / "filler", "wb") as filler:
                        os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize - left)
                    self.ends(75, "status=no_space", "free space", state=disk / name)
                    (disk / "filler").unlink()
            self.recovers(state=disk / "old")
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            self.ends(3, "Read-only file system", state=disk / "old")
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    def workers_and_memory_are_what_the_process_may_use(self):
        one = {min(os.sched_getaffinity(0))}
        text = self.recovers(before=lambda: os.sched_setaffinity(0, one), sets=["memory_limit=4TiB"])
        assert re.search(r"event=machine processors=1 online=\d+ allowed=1 ", text) and " threads=1 " in text, text
        assert "memory_limit: 4398046511104B, but " in text, text
        done = subprocess.run([harness.BUILD / "daemon/freshetd", "--config", CONFIG, "--check", "--set", "memory_limit=4TiB"], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0 and "memory_limit: 4398046511104B, but " in done.stdout, done

    def signals_that_ask_for_nothing_are_ignored(self):
        process, log = self.start()
        try:
            wait_until(lambda: "event=recovered" in log.read_text(), "recovered")
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGPIPE,
                           signal.SIGXFSZ, signal.SIGTTOU, signal.SIGRTMIN + 3):
                process.send_signal(number)
            process.send_signal(signal.SIGQUIT)  # the signals above arrived before this one
            wait_until(lambda: "event=drain why=signal" in log.read_text() or process.poll() is not None, "a drain")
            assert process.poll() is None, f"exit {process.poll()}: {log.read_text()[-2000:]}"
        finally:
            process.kill()
            process.wait()

    def run(self):
        names = [n for n in vars(Cases) if not n.startswith("_") and n not in ("start", "ends", "recovers", "needed_threads", "run")]
        run_cases(self, names)


with Workspace() as test_work:
    Cases(test_work).run()
