"""The README's commands do what the README says: each `sh` block runs in a fresh copy of the tree, in order, on what the blocks before it built and installed. So do those
of docs/tutorial.md after them, in one shell.

`./quickstart` runs for 25 seconds and must end with the lines that the README shows; `./tests/run` is what runs this. Installing goes below a DESTDIR.
The jars of Apache Kafka are those that the other tests have fetched."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = SOURCE / "build" / "readme"
TREE, INSTALLED = WORK / "tree", WORK / "installed"
SECONDS_MAX = 600  # of one block: the first builds everything


def copy_of_the_tree():
    shutil.rmtree(WORK, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if (SOURCE / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, TREE / name)
    jars = SOURCE / "build/kafka/lib"
    jars.mkdir(parents=True, exist_ok=True)
    (TREE / "build/kafka").mkdir(parents=True)
    (TREE / "build/kafka/lib").symlink_to(jars)


def run(block):
    begin = time.monotonic()
    words = re.sub(r"^\./quickstart", "./quickstart --seconds 25", re.sub(r"^\./tests/run.*\n", "", block, flags=re.M), flags=re.M)
    environment = {**os.environ, "DESTDIR": str(INSTALLED), "PATH": f"{INSTALLED}/usr/local/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euxo", "pipefail", "-c", words], cwd=TREE, env=environment, timeout=SECONDS_MAX, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"exit {done.returncode} of\n{block}\n{done.stdout[-4000:]}"
    print(f"ok {block.splitlines()[0].split('#')[0].strip()} .. ({time.monotonic() - begin:.1f} s)", flush=True)
    return done.stdout


def tutorial():
    """Runs all commands of the tutorial in one shell, with another port. Processes that the commands started are ended in any case."""
    words = "".join(re.findall(r"^```sh\n(.*?)^```$", (SOURCE / "docs/tutorial.md").read_text(), re.S | re.M))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        words = words.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace(">news.yaml\ncat ", f">news.yaml\nsed -i s/:8080/:{port}/ news.yaml\ncat ")
    begin, local = time.monotonic(), INSTALLED / "usr/local"
    environment = {**os.environ, "PATH": f"{local}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{local}/lib", "PKG_CONFIG_PATH": f"{local}/lib/pkgconfig"}
    log = WORK / "tutorial.log"
    with open(log, "w") as output:
        shell = subprocess.Popen(["bash", "-euxo", "pipefail", "-c", words], cwd=TREE, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                 start_new_session=True)
    try:
        shell.wait(SECONDS_MAX)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    output = log.read_text()
    assert shell.returncode == 0, f"exit {shell.returncode} of docs/tutorial.md\n{output[-4000:]}"
    lines = output.splitlines()
    assert any("event=change what=" in line for line in lines) and any(line.startswith("verified: timeline 1 epoch") for line in lines), lines[-20:]
    assert any(line.startswith("made topic=impressions partitions=2") for line in lines) and "<title>news · Freshet</title>" in output, "topic and page"
    print(f"ok docs/tutorial.md ({time.monotonic() - begin:.1f} s)", flush=True)


def form(line):
    """Returns a line of output without its numbers; `…` stands for what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?", "N", line)


def main():
    blocks = re.findall(r"```(sh|)\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)
    commands = [text for language, text in blocks if language == "sh"]
    promised = next(text for language, text in blocks if not language and text.startswith("verified:"))
    assert len(commands) == 3 and commands[0].startswith("./quickstart"), "the README has other blocks than this script knows"
    copy_of_the_tree()
    try:
        output = {block: run(block) for block in commands}
        tutorial()
    finally:
        for node in (TREE / "build/kafka/nodes").glob("*"):
            subprocess.run([TREE / "tests/kafka/stop", node.name], timeout=60)
    lines = {form(line) for line in output[commands[0]].splitlines()}
    for line in promised.splitlines():
        assert form(line) in lines, f"the quick start does not say: {line}"
    said = output[commands[0]].splitlines()
    steps = said[said.index("next:") + 1:][:3]
    assert [word in step for word, step in zip(("quickstart --keep", "freshetd init", "cpack"), steps)] == [True] * 3, steps
    verified = output[commands[2]].splitlines()
    assert any(line.startswith("verified: timeline 1 epoch") for line in verified), verified[-20:]
    shutil.rmtree(WORK)
    print(f"{len(commands) + 1} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
