"""Printers for gdb: what a batch and a plan hold, in place of pointers.

    (gdb) source tool/debug/printers.py
    (gdb) print *batch          samples by role, groups, positions, and each column with its first ids
    (gdb) print *rows           each table of a plan: keys, how many have a row, and the first of them

The program must be built with types: cmake --preset release -DCMAKE_C_FLAGS_RELEASE="-O1 -g".
"""
import gdb
import gdb.printing

SHOWN = 8  # ids of a column and keys of a table
ROLES = ("train", "metrics only", "masked", "quarantined")  # enum fr_role


def elements(pointer, n):
    """The first elements of an array as Python numbers."""
    return [int(pointer[i]) for i in range(min(int(n), SHOWN))]


def listed(texts, n):
    return "[" + ", ".join(texts) + (", ..." if int(n) > SHOWN else "") + "]"


class Error:
    """struct fr_err: its text."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return self.value["text"].string()


class Buffer:
    """struct fr_buffer: its size and first bytes."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        size = int(self.value["size"])
        first = bytes(elements(self.value["data"], size)) if size else b""
        return f"{size} bytes {first!r}" + ("..." if size > SHOWN else "")


class Batch:
    """struct fr_batch."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        value, counts = self.value, [0] * len(ROLES)
        for i in range(int(value["n_samples"])):
            counts[int(value["role"][i])] += 1
        roles = ", ".join(f"{n} {role}" for n, role in zip(counts, ROLES) if n)
        end = ", the last of the stream" if value["end_of_stream"] else ""
        return f"{int(value['n_samples'])} samples ({roles or 'none'}) in {int(value['n_groups'])} groups{end}"

    def children(self):
        value = self.value
        for s in range(int(value["n_slots"])):
            column = value["columns"][s]
            entries = int(value["n_groups"] if column["shared"] else value["n_samples"])
            kind = "groups" if column["shared"] else "samples"
            if int(column["dim"]):
                text = f"dense, {int(column['dim'])} floats for each of {entries} {kind}"
            else:
                n = int(column["begin"][entries]) if int(column["begin"]) else 0
                weights = ", weighted" if int(column["weights"]) else ""
                text = f"{n} ids of {entries} {kind}{weights} " + listed([hex(k) for k in elements(column["keys"], n)], n)
            yield f"slot {s}", text
        for p in range(int(value["n_positions"])):
            at = value["positions"][p]
            yield f"position of stream {int(at['stream_index'])}", f"offset {int(at['offset'])}, item {int(at['item'])}"


class Rows:
    """struct fr_rows: the plan of a batch."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"plan of {int(self.value['n_tables'])} tables"

    def children(self):
        for t in range(int(self.value["n_tables"])):
            table = self.value["tables"][t]
            n = int(table["n_unique"])
            there = sum(int(table["rows"][u]) != 0 for u in range(n))
            served = there if int(table["served"]) == 0 else sum(int(table["served"][u]) != 0 for u in range(n))
            keys = [f"{key:#x} {'row' if int(table['rows'][u]) else 'none'}" for u, key in enumerate(elements(table["keys"], n))]
            yield (f"table {t}", f"{int(table['n_occurrences'])} ids, {n} keys, {there} with a row, {served} of them before this batch "
                   + listed(keys, n))


printers = gdb.printing.RegexpCollectionPrettyPrinter("freshet")
for name, printer in (("fr_err", Error), ("fr_buffer", Buffer), ("fr_batch", Batch), ("fr_rows", Rows)):
    printers.add_printer(name, f"^{name}$", printer)
gdb.printing.register_pretty_printer(gdb.current_objfile(), printers, replace=True)
