"""Shows that the suites on the emulated card can fail: copies of kernels, and of what starts them, with one seeded bug each must not pass, for the right reason.

    python3 tests/emulate/seeded_bugs.py BUILD

BUILD is a build folder of Ninja in which the programs are built. A bug is an exact replacement of text; if the text is not there (any more), that is
a failure of this test, to be mended here.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS, GRAPH = SOURCE / "trainer/cuda", SOURCE / "trainer/graph"

# name -> (compiled file, [(file, text, text of the bug)...], program, what it has to say)
BUGS = {
    "a barrier is missing: a block's sum is read before its warps wrote theirs": (
        "losses.cu", [("kernel.h", "        shared[threadIdx.x / FR_WARP] = x;\n    fr_block_meet();\n", "        shared[threadIdx.x / FR_WARP] = x;\n")],
        "unit_parity_losses", r"logloss.*reference"),
    "a barrier is missing: a row's age is written before all lanes read it": (
        "rows.cu", [("rows.cu", "    fr_warp_meet();\n    if (age && lane == 0)\n", "    if (age && lane == 0)\n")], "unit_parity_rows", r"kind \d+, dim"),
    "floats are added by atomics: blocks add in the order they come": (
        "columns.cu", [("columns.cu", "        c.parts[at] = sum;\n    }\n}\n\nFR_KERNEL(column_join_kernel",
                        "        c.out[cell.column] += sum;\n    }\n}\n\nFR_KERNEL(column_join_kernel"),
                       ("columns.cu", "        c.out[j] = sum;\n    }\n}\n\nstatic void sum_columns", "        (void)sum;\n    }\n}\n\nstatic void sum_columns")],
        "unit_parity_layers_elements", r"gradient of input \d: row 0 differs"),
    "lanes without a column stay away from a shuffle": (
        "columns.cu", [("columns.cu", "        float mean = fr_warp_sum(sum) / (float)c.n;\n",
                        "        float mean = fr_lane() < c.n ? fr_warp_sum(sum) / (float)c.n : 0.0f;\n")],
        "unit_parity_layers_elements", r"emulation: kernel layer_norm_kernel, .* its warp meets"),
    "a join is missing: a step begins before its arena is there": (
        "device.c", [("device.c", "    if (any)\n        device->api->join_beside(device->queue);\n", "    (void)any;\n")],
        "unit_device_networks", r"FAILED|exit -11"),
    "rows are scattered before they were sent": (
        "device_rows.c", [("device_rows.c", "    if (any)\n        fr_graph_device_send(device);\n", "    (void)any;\n")], "unit_device_networks", r"FAILED|exit -11"),
    "a row that is made again keeps what the card has of its key": (
        "device_rows.c", [("device_rows.c", "if (absent || (fr_graph_device_is_made(rows, u) && !place->first))", "if (absent)")], "unit_device_made_rows", r"other bits"),
    "all parts of a row begin with the first one's numbers": (
        "rows.cu", [("rows.cu", "first_value(&part, start, part.value_offset + j)", "first_value(&part, start, j)")], "unit_device_made_rows", r"other bits"),
    "the next batch is written over the one that the step reads": (
        "device_rows.c", [("device_rows.c", "    fr_graph_device_begin_arena(device, &next->arena);\n", "    fr_graph_device_begin_arena(device, &device->now->arena);\n")],
        "unit_device_networks", r"FAILED|exit -11"),
    "a batch that was sent ahead is taken for another": (
        "device_step.c", [("device_step.c", "next->of_batch == run->batch && next->of_rows == run->rows;", "next->of_batch != NULL;")],
        "unit_trainer_pipeline", r"FAILED|exit -11"),
    "what tasks list is joined as if the parts before were full": (
        "device_index.c", [("device_index.c", "        list->n += list->counts[part];\n", "        list->n += part + 1 < fr_blocks_of(n_keys, PART_KEYS) ? PART_KEYS : list->counts[part];\n")],
        "unit_device_index", r"FAILED"),
    "a row that the next batch uses makes room for another of it": (
        "device_rows.c", [("device_rows.c", "turn != device->now->turn && turn != device->next->turn", "turn != device->now->turn")], "unit_device_networks", r"FAILED"),
    "a search ends at a hole that an erased row left": (
        "device_index.c", [("device_index.c", "        cache->index[hole] = cache->index[at];\n        hole = at;\n", "")], "unit_device_index", r"FAILED"),
    "rows that found room at the batch's turn keep the addresses that were sent ahead": (
        "device_rows.c", [("device_rows.c", "        plan->sent = false;\n", "")], "unit_device_networks", r"FAILED"),
    "a graph keeps the arguments of the step it was made of": (
        "recording.cu", [("recording.cu", "        memcpy(argument, fr_device_recorded_call(now, wanted), wanted->call_bytes);\n", "")], "unit_device_networks", r"FAILED"),
    "a wait is missing: the answer is read before it came": (
        "device_step.c", [("device_step.c", "    return fr_graph_device_wait(device);\n}\n\nstatic void measure", "    return FR_OK;\n}\n\nstatic void measure")],
        "unit_device_networks", r"FAILED"),
}


def build_and_run(build, folder, compiled, changes, program):
    source = KERNELS if compiled.endswith(".cu") else GRAPH
    for path in source.glob("*.h"):
        (folder / path.name).write_text(path.read_text())
    (folder / compiled).write_text((source / compiled).read_text())
    for name, text, bug in changes:
        content = (folder / name).read_text()
        assert content.count(text) == 1, f"{name}: the text to replace is there {content.count(text)} times:\n{text}"
        (folder / name).write_text(content.replace(text, bug))
    commands = json.loads((build / "compile_commands.json").read_text())
    entry = next(c for c in commands if pathlib.Path(c["file"]) == source / compiled)
    words = [w for w in shlex.split(entry["command"]) if w not in ("ccache", "/usr/bin/ccache")]
    words[words.index("-o") + 1] = str(folder / "bug.o")
    words[-1] = str(folder / compiled)
    subprocess.run(words, cwd=build, check=True)
    link = subprocess.run(["ninja", "-C", build, "-t", "commands", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    line = [line for line in link.splitlines() if f"-o tests/unit/{program}" in line][-1]
    words = [w for w in shlex.split(line.replace("&& :", "").lstrip(": &")) if w]
    at = words.index("-o")
    words[at + 1] = str(folder / "bug")
    words.insert(at, str(folder / "bug.o"))  # before the archives: the member with the same functions stays out
    subprocess.run(words, cwd=build, check=True)
    run = subprocess.run([folder / "bug"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return run.returncode, run.stdout


def main(build):
    failures = 0
    for name, (compiled, changes, program, said) in BUGS.items():
        with tempfile.TemporaryDirectory() as folder:
            code, output = build_and_run(build, pathlib.Path(folder), compiled, changes, program)
        found = code != 0 and re.search(said, f"{output}\nexit {code}")
        failures += not found
        print(f"{'found' if found else 'NOT FOUND'}: {name}")
        if not found:
            print(f"exit {code}\n{output[-2000:]}")
    return 1 if failures else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
