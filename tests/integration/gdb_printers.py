"""gdb shows what a batch and a plan hold (tool/debug/printers.py): a unit test that has both is stopped, and what gdb prints is compared."""
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BUILD, SOURCE, skip  # noqa: E402

CASE = "samples_that_do_not_train_look_up_only"  # of unit_store_plan: two samples, ids 1 2 and 1 3, and a row of id 1 only
EXPECTED = [
    "2 samples (1 metrics only, 1 masked) in 2 groups",
    "slot 0 = 4 ids of 2 samples [0x1, 0x2, 0x1, 0x3]",
    "plan of 1 tables",
    "4 ids, 3 keys, 1 with a row, 1 of them before this batch [0x1 row, 0x2 none, 0x3 none]",
    "= refused: no such topic",
]


def main():
    if not shutil.which("gdb"):
        skip("no gdb: install Debian's package gdb")
    commands = ["set breakpoint pending off", f"source {SOURCE}/tool/debug/printers.py", f"set environment FR_TEST_CASE {CASE}", f"break {CASE}", "run",
                "break fr_store_find", "continue", "up", "print b->batch", "print *w.rows",
                'print (struct fr_err){FR_E_NOT_FOUND, "refused: no such topic"}']
    arguments = [part for command in commands for part in ("-ex", command)]
    done = subprocess.run(["gdb", "-nx", "-batch", *arguments, BUILD / "tests/unit/unit_store_plan"], capture_output=True, text=True, timeout=120)
    output = done.stdout + done.stderr
    if "ptrace: Operation not permitted" in output:
        skip("gdb may not run programs here")
    for text in EXPECTED:
        assert text in output, f"gdb does not print {text!r}:\n{output}"
    print("gdb prints a batch and its plan")


if __name__ == "__main__":
    main()
