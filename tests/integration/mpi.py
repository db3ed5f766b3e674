"""The exchange over MPI, by processes that mpirun starts (tests/unit/exchange/mpi_rank.c): how a job ends when a rank hangs, dies, stops or meets an error, with which
exit code, and what the others say; how much processor time ranks take that only wait, and how long an exchange takes. Nothing here needs Kafka.

Cases: no_program_of_ours_links_mpi, what_is_too_large_or_uneven_is_refused, a_stopped_rank_is_named_and_ends_the_job, a_rank_whose_owner_does_not_call_is_named,
a_killed_rank_ends_the_job, a_stop_is_the_exit_code_of_the_launcher, a_stop_ends_the_process_if_mpi_hangs, an_error_of_mpi_is_said_with_its_text,
a_rank_that_does_not_come_to_the_end_is_no_hang, ranks_bound_to_one_processor_are_told, ranks_that_wait_take_little, what_an_exchange_takes.
"""
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

RANK, PLUGIN, SHIM = BUILD / "tests/mpi_rank", BUILD / "exchange/mpi/freshet-mpi.so", BUILD / "tests/integration/libmpi_shim.so"
NEVER = "--bind-to none"
IDLE_PERCENT_MAX = 10  # of a processor; what is measured is printed


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Job:
    """mpirun with some ranks, whose output goes to a file."""

    def __init__(self, path, ranks, *arguments, binding=NEVER, **environment):
        self.output = path / f"{'-'.join(arguments)}.out"
        exported = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
        self.begin = time.monotonic()
        with open(self.output, "w") as out:
            self.process = subprocess.Popen(["mpirun", "--oversubscribe", *shlex.split(binding), "--allow-run-as-root", *exported, "-n", str(ranks), RANK, *arguments],
                                            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def text(self):
        return self.output.read_text()

    def pids(self, ranks):
        """Processes of the ranks of `loop`, once all have said so."""
        wait_until(lambda: len(re.findall(r"is process \d+\n", self.text())) == ranks, "all ranks have started")
        return {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d+) is process (\d+)\n", self.text())}

    def end(self, code):
        """Waits for the end, and checks the exit code; returns the output."""
        found = self.process.wait(PATIENCE)
        assert found == code, (found, code, self.text())
        return self.text()


class Cases:
    def __init__(self, work):
        self.path = work.path

    def job(self, *arguments, **options):
        return Job(self.path, *arguments, **options)

    def no_program_of_ours_links_mpi(self):
        for name in ("daemon/freshetd", "tool/freshet", "tests/mpi_rank"):
            needed = subprocess.run(["ldd", BUILD / name], capture_output=True, text=True, check=True).stdout
            assert "libc.so" in needed and not re.search(r"^\s*lib\w*(mpi|open-rte|open-pal)", needed, re.M), needed
        assert "libmpi" in subprocess.run(["ldd", PLUGIN], capture_output=True, text=True, check=True).stdout
        exported = subprocess.run(["nm", "-D", "--defined-only", PLUGIN], capture_output=True, text=True, check=True).stdout.split("\n")
        assert [line.split()[2] for line in exported if line] == ["fr_mpi_plugin"], exported

    def what_is_too_large_or_uneven_is_refused(self):
        for part in ("limit", "uneven"):
            text = self.job(2, part).end(0)
            assert text.count("has ended") == 2, text

    def named(self, job, ranks, missing, begin):
        """The job ends with code 75, all ranks are gone, and the others have named the one that is missing: alone, or beside one that waited for it."""
        pids = job.pids(ranks)
        text = job.end(75)
        print(f"  {time.monotonic() - begin:.1f} s from the fault to the end, with a deadline of 1 s")
        said = [reason for rank, reason in re.findall(r"rank (\d+) has status unavailable: (.*)", text) if int(rank) != missing]
        assert any(reason.startswith(f"rank {missing} has not come to exchange ") for reason in said), text
        assert all(str(missing) in re.match(r"ranks? ([\d, ]+) ha", reason)[1].split(", ") for reason in said), text
        for pid in pids.values():
            wait_until(lambda: gone(pid), f"process {pid} is gone")

    def a_stopped_rank_is_named_and_ends_the_job(self):
        job = self.job(3, "loop")
        pids = job.pids(3)
        os.kill(pids[1], signal.SIGSTOP)
        self.named(job, 3, 1, time.monotonic())

    def a_rank_whose_owner_does_not_call_is_named(self):
        job = self.job(3, "loop", "50")
        job.pids(3)
        self.named(job, 3, 1, time.monotonic())

    def a_killed_rank_ends_the_job(self):
        job = self.job(3, "loop")
        pids = job.pids(3)
        os.kill(pids[1], signal.SIGKILL)
        begin = time.monotonic()
        job.end(137)
        print(f"  {time.monotonic() - begin:.1f} s from the kill to the end")
        for pid in pids.values():
            wait_until(lambda: gone(pid), f"process {pid} is gone")

    def a_stop_is_the_exit_code_of_the_launcher(self):
        for code in (3, 75):
            text = self.job(3, "stop", str(code), LD_PRELOAD=SHIM).end(code)
            assert f"rank 2 ended the job with code {code}\n" in text and f"MPI_Abort is called with {code}\n" in text, text

    def a_stop_ends_the_process_if_mpi_hangs(self):
        text = self.job(3, "stop", "3", LD_PRELOAD=SHIM, FRESHET_MPI_HANG=1).end(3)
        assert "MPI_Abort is called with 3\n" in text, text

    def an_error_of_mpi_is_said_with_its_text(self):
        text = self.job(2, "loop", LD_PRELOAD=SHIM, FRESHET_MPI_FAIL=20).end(75)
        assert re.search(r"rank \d has status unavailable: MPI_Isend: MPI_ERR_NO_MEM: .*; look at the logs", text), text

    def a_rank_that_does_not_come_to_the_end_is_no_hang(self):
        text = self.job(2, "stay", LD_PRELOAD=SHIM).end(75)
        assert "a rank has not come to the end of the job for 1000 ms" in text and "MPI_Abort is called with 75\n" in text, text

    def ranks_bound_to_one_processor_are_told(self):
        if len(os.sched_getaffinity(0)) < 2:
            print("  not tried: there is one processor")
            return
        text = self.job(2, "limit").end(0)
        assert "workers share" not in text, text
        text = self.job(2, "limit", binding="--bind-to core").end(0)
        assert text.count("2 workers share 1 of the ") == 2 and "start mpirun with --bind-to none" in text, text

    def ranks_that_wait_take_little(self):
        text = self.job(2, "idle").end(0)
        taken = re.findall(r"(\w+): rank (\d) takes ([\d.]+) % of a processor", text)
        assert len(taken) == 4, text
        for what, rank, percent in taken:
            print(f"  {what}: rank {rank} takes {percent} % of a processor")
            assert float(percent) <= IDLE_PERCENT_MAX, text

    def what_an_exchange_takes(self):
        text = self.job(2, "times").end(0)
        taken = re.findall(r"(.*): least ([\d.]+) us, (.*)", text)
        assert len(taken) == 2, text
        for what, least, rest in taken:
            print(f"  {what}: least {least} us, {rest}")


if not PLUGIN.is_file():
    skip("the MPI plug-in is not built: tests/packages --mpi installs Open MPI")
if not re.search("Open ?(MPI|RTE)|prte", subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout):
    skip("mpirun is not that of Open MPI")
with Workspace() as test_work:
    run_cases(Cases(test_work), ["no_program_of_ours_links_mpi", "what_is_too_large_or_uneven_is_refused", "a_stopped_rank_is_named_and_ends_the_job",
                                 "a_rank_whose_owner_does_not_call_is_named", "a_killed_rank_ends_the_job", "a_stop_is_the_exit_code_of_the_launcher",
                                 "a_stop_ends_the_process_if_mpi_hangs", "an_error_of_mpi_is_said_with_its_text",
                                 "a_rank_that_does_not_come_to_the_end_is_no_hang", "ranks_bound_to_one_processor_are_told", "ranks_that_wait_take_little",
                                 "what_an_exchange_takes"])
