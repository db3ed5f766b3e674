"""Shows that the kill test and that of several ranks can fail: copies of the source with one seeded bug each must not pass them, and must fail for the right reason.

    python3 tests/fault/seeded_bugs.py [--seed S]

A bug is an exact replacement of text; if the text is not there (any more), this test fails and must be adapted. The bugs are built one after
the other in one copy, so that the second compiles only what differs. That the source as it is passes is what tests/fault/kill_loop.py and
tests/integration/ranks.py show.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
SECONDS = 180

# name -> (file, text, text of the bug)..., then what the kill test must report about it.
KILL_BUGS = {
    "publishes before the HWM is synced": ([
        ("store/durable/append_epoch.c",
         "    pthread_mutex_lock(&durable->mark);\n    if (mark->acked < durable->hwm.acked)\n",
         "    enter_epoch(durable, prepared->file, mark, stage->timeline, &prepared->before);\n"
         "    pthread_mutex_lock(&durable->mark);\n    if (mark->acked < durable->hwm.acked)\n"),
        ("store/durable/append_epoch.c", "    enter_epoch(durable, prepared->file, mark, stage->timeline, &prepared->before);\n    fr_durable_keep(", "    fr_durable_keep("),
        # The fold lags the HWM. Otherwise recovery would catch it first, and this bug is meant for the publisher.
        ("store/durable/fold.c", ".to = durable->epoch}", ".to = durable->hwm.epoch}"),
        # The publish loop is given durable epochs only: the bug gives it the durable module, which also knows the newest one.
        ("daemon/wiring.c", "    loops->publish.freshness = loops->durable.freshness = service->freshness;\n",
         "    loops->publish.freshness = loops->durable.freshness = service->freshness;\n    loops->publish.newest = service->durable;\n"),
        ("daemon/loops/publish_loop.h", "    struct fr_freshness *freshness;\n", "    struct fr_freshness *freshness;\n    struct fr_durable *newest;\n"),
        ("daemon/loops/publish_loop.c", "    enum fr_status status = fr_publisher_step(loop->publisher, TURN_MS, err);\n",
         "    struct fr_durable_status newest;\n    fr_durable_get_status(loop->newest, &newest);\n"
         "    fr_publisher_offer(loop->publisher, newest.epoch);\n"
         "    enum fr_status status = fr_publisher_step(loop->publisher, TURN_MS, err);\n"),
    ], r"epoch \d+ is on the delta topic, the last durable one is \d+"),
    "resumes at offset + 1": ([
        ("ingest/open_streams.c", "        .next = p.offset,\n", "        .next = p.offset < 0 ? p.offset : p.offset + 1,\n"),
    ], r"delta records are not those of the uninterrupted run|private hash|not counted once"),
}
# The same for the test that several ranks hold what one process holds.
OTHER_STATE = r"(private|dense|dense_state|metrics) of \d ranks, and of one process"
RANKS_BUGS = {
    "adds the gradients of ranks as they come": ([
        ("trainer/graph/span_sums.c", "memcpy(fr_lane_arrays_push(graph->ops, &sums, join->sent->lanes[i]),", "memcpy(fr_lane_arrays_push(graph->ops, &sums, i),"),
    ], OTHER_STATE),
    "forgets to undo a refused batch at one home": ([
        ("trainer/own_rows.c", "    fr_store_undo(trainer->store);\n",
         "    if (fr_exchange_rank(trainer->ranks.exchange) != 1)\n        fr_store_undo(trainer->store);\n"),
    ], OTHER_STATE),
    "sends late rows before the step": ([
        ("store/plan.c", "plan->follows && !key->made && entry->planned == ((plan->store->plans - 1) & bits);", "false;"),
    ], OTHER_STATE),
}
BUGS = {**KILL_BUGS, **RANKS_BUGS}


def copy_source(to):
    """The tracked and the new files, without those that git ignores."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=SOURCE, check=True, stdout=subprocess.PIPE)
    for name in sorted(set(filter(None, listed.stdout.decode().split("\0")))):
        if (SOURCE / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, to / name)


def find(path, text):
    content = path.read_text()
    assert content.count(text) == 1, f"{path.name}: the text to replace is there {content.count(text)} times:\n{text}"
    return content


def replace(path, text, bug):
    path.write_text(find(path, text).replace(text, bug))


def run(command, seconds, **options):
    """Returns exit code and output. A command that takes too long is interrupted, so that it ends what it has started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
        raise AssertionError(f"{command[0]} did not end in {seconds} s:\n{output[-3000:]}") from None
    return process.returncode, output


def build(copy):
    out = copy / "build/release"  # as deep as the tree's own, so that ccache knows the files without a bug
    commands = [["cmake", "-S", copy, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=ON"],
                ["cmake", "--build", out, "--target", "freshetd", "run_ranks", "-j", str(os.cpu_count())]]
    for command in commands:
        code, output = run([str(word) for word in command], 600)
        assert code == 0, f"a copy with a seeded bug does not build:\n{output[-3000:]}"
    return out


def expect_caught(name, built, temporary, seed):
    kill_loop = [sys.executable, SOURCE / "tests/fault/kill_loop.py", "--freshetd", built / "daemon/freshetd", "--seed", str(seed)]
    ranks = [sys.executable, SOURCE / "tests/integration/ranks.py", "beside"]
    code, output = run(kill_loop if name in KILL_BUGS else ranks, SECONDS,
                       env={**os.environ, "TMPDIR": str(temporary), "FRESHET_RUN_RANKS": str(built / "tests/run_ranks")})
    assert code != 0, f"a build that {name} passes its test:\n{output[-3000:]}"
    failures = re.findall(r"^AssertionError: (.*)$", output, re.MULTILINE)
    assert failures and re.search(BUGS[name][1], failures[-1]), f"a build that {name} fails, but not for that:\n{output[-3000:]}"
    print(f"caught: {name}: {failures[-1]}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="only whether the texts to replace are there")
    arguments = parser.parse_args()
    if arguments.check:
        for path, text, _ in (bug for replacements, _ in BUGS.values() for bug in replacements):
            find(SOURCE / path, text)
        return
    (SOURCE / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="seeded-", dir=SOURCE / "build", ignore_cleanup_errors=True) as folder:
        copy, temporary = pathlib.Path(folder) / "source", pathlib.Path(folder) / "tmp"
        temporary.mkdir()
        copy_source(copy)
        for name, (replacements, _) in BUGS.items():
            for path, text, bug in replacements:
                replace(copy / path, text, bug)
            expect_caught(name, build(copy), temporary, arguments.seed)
            for path, _, _ in replacements:
                (copy / path).write_text((SOURCE / path).read_text())
    print(f"{len(BUGS)} passed, 0 failed")


main()
