"""A folder as a power cut may leave it, made from what power_shim.c recorded.

Disk replays the records. It knows what each file and folder holds, what of it is synced, and what has changed since. image() writes the folder as one of
MODELS leaves it:

- none: what was synced, and nothing else: a file without its synced name is gone, a name without synced bytes is an empty file.
- strict: POSIX promises no more than that: of the changes since, any may be there, in any order. A rename is there or not; of a write any of its sectors of
  512 or 4096 bytes, the first of them, or nothing but the file's new size.
- ext4: names and sizes change in one order, of which a beginning is there, at least up to the last sync of anything; bytes of a file come later, in order, the
  last write torn; a write over older bytes may be there in any part.
- all: everything up to the cut.
"""
import mmap
import os
import pathlib
import struct

MODELS = ("none", "strict", "ext4", "all")
HEAD = struct.Struct("<B3xIQQQ")
SECTORS = (512, 4096)


class File:
    def __init__(self):
        self.data, self.synced, self.pending = bytearray(), bytearray(), []  # pending: [(number of the record, offset or None, bytes or size)]


class Folder:
    def __init__(self):
        self.now, self.synced, self.pending = {}, {}, []  # pending: [change of names]


class Change:
    """The names that one call removes, [(folder, name)], and the names that it adds, [(folder, name, node)]."""

    def __init__(self, number, gone, come):
        self.number, self.gone, self.come = number, gone, come
        self.folders = {id(folder): folder for folder, *_ in gone + come}.values()

    def apply(self, names, folder):
        for where, name in self.gone:
            if where is folder:
                names.pop(name, None)
        for where, name, node in self.come:
            if where is folder:
                names[name] = node


def put(data, offset, value):
    """Makes one change in the bytes of a file; with offset None, the value is the new size of the file."""
    if offset is None:
        del data[value:]
        data.extend(bytes(value - len(data)))
    else:
        data.extend(bytes(max(0, offset - len(data))))
        data[offset:offset + len(value)] = value


def written(folder, path, names_of, bytes_of, done):
    """Makes the folder's content at `path`; a file with two names is one file."""
    path.mkdir(mode=0o700)
    for name, node in names_of(folder).items():
        if isinstance(node, Folder):
            written(node, path / name, names_of, bytes_of, done)
        elif id(node) in done:
            os.link(done[id(node)], path / name)
        else:
            done[id(node)] = path / name
            (path / name).write_bytes(bytes_of(node))
            (path / name).chmod(0o600)


class Records:
    """Yields the records of the shim's file in their order: (operation, inode, a, b, data)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.places, at = [], 0
        while at < len(self.bytes):
            self.places.append(at)
            at += HEAD.size + HEAD.unpack_from(self.bytes, at)[1]
        assert at == len(self.bytes), "the log of changes ends inside a record"

    def __len__(self):
        return len(self.places)

    def __getitem__(self, number):
        at = self.places[number]
        operation, size, inode, a, b = HEAD.unpack_from(self.bytes, at)
        return chr(operation), inode, a, b, self.bytes[at + HEAD.size:at + HEAD.size + size]


class Disk:
    def __init__(self, records):
        self.records, self.number, self.root, self.nodes = records, 0, Folder(), {}
        self.syncs, self.last_sync, self.see = {}, -1, lambda data: None
        self.emptied = []  # removed from a renamed folder before the folder's new name was synced: a power cut brings back the old name, not the file

    def until(self, number):
        """Replays the records before `number`."""
        for self.number in range(self.number, number):
            operation, inode, a, b, data = self.records[self.number]
            getattr(self, "do_" + operation)(inode, a, b, data)
        self.number = number

    def place(self, path):
        """Returns (folder, name) of a path below the root."""
        *parents, name = pathlib.PurePosixPath(path.decode()).relative_to(self.root_path).parts
        folder = self.root
        for parent in parents:
            folder = folder.now[parent]
        return folder, name

    def change(self, gone, come):
        change = Change(self.number, gone, come)
        for folder in change.folders:
            change.apply(folder.now, folder)
            folder.pending.append(change)

    def write(self, inode, offset, value):
        file = self.nodes[inode]
        put(file.data, offset, value)
        file.pending.append((self.number, offset, value))

    def do_A(self, inode, a, b, data):
        self.root_path = data.decode()
        self.nodes[inode] = self.root

    def do_C(self, inode, a, b, data):
        folder, name = self.place(data)
        if name not in folder.now:
            self.nodes[inode] = File()
            self.change([], [(folder, name, self.nodes[inode])])
        elif a:
            self.write(inode, None, 0)

    def do_W(self, inode, a, b, data):
        self.write(inode, a, data)

    def do_T(self, inode, a, b, data):
        if not b or a > len(self.nodes[inode].data):
            self.write(inode, None, a)

    def do_S(self, inode, a, b, data):
        self.syncs[a] = self.number

    def do_E(self, inode, a, b, data):
        node, begun = self.nodes[inode], self.syncs.pop(a)
        self.last_sync = max(self.last_sync, begun)
        if isinstance(node, File):
            for number, offset, value in node.pending:
                if number < begun:
                    put(node.synced, offset, value)
            node.pending = [change for change in node.pending if change[0] > begun]
        else:
            for change in node.pending:
                if change.number < begun:
                    change.apply(node.synced, node)
            node.pending = [change for change in node.pending if change.number > begun]

    def do_M(self, inode, a, b, data):
        folder, name = self.place(data)
        self.nodes[inode] = Folder()
        self.change([], [(folder, name, self.nodes[inode])])

    def do_U(self, inode, a, b, data):
        parts = pathlib.PurePosixPath(data.decode()).relative_to(self.root_path).parts
        folder = self.root
        for name in parts[:-1]:
            above, folder = folder, folder.now[name]
            self.emptied += [f"{'/'.join(parts)}, of what a power cut calls {old}" for old, node in above.synced.items() if node is folder and old != name]
        self.change([self.place(data)], [])

    do_D = do_U

    def do_R(self, inode, a, b, data):
        (source, name), target = self.place(data[:a]), self.place(data[a:])
        self.change([(source, name)], [(*target, source.now[name])])

    def do_L(self, inode, a, b, data):
        (source, name), target = self.place(data[:a]), self.place(data[a:])
        self.change([], [(*target, source.now[name])])

    def do_P(self, inode, a, b, data):
        self.see(data)

    # ---- images ----

    def synced_bytes(self, *path):
        """Returns the bytes of the file at `path` that no power cut can remove any more; None if there is no such file."""
        node = self.root
        for name in path:
            node = node.synced.get(name) if isinstance(node, Folder) else None
        return bytes(node.synced) if isinstance(node, File) else None

    def image(self, path, model, rng):
        if model == "all":
            return written(self.root, path, lambda folder: folder.now, lambda file: file.data, {})
        if model == "none":
            return written(self.root, path, lambda folder: folder.synced, lambda file: file.synced, {})
        sector, chosen = rng.choice(SECTORS), {}
        if model == "strict":
            share, share_of_bytes = rng.choice((0.1, 0.5, 0.9)), rng.choice((0.1, 0.5, 0.9))

            def is_there(change):
                return chosen.setdefault(id(change), rng.random() < share)
        else:
            names_until = rng.randrange(self.last_sync, self.number + 1)

            def is_there(change):
                return change.number <= names_until

        def names_of(folder):
            names = dict(folder.synced)
            for change in folder.pending:
                if is_there(change):
                    change.apply(names, folder)
            return names

        def bytes_of(file):
            return self.strict_bytes(file, sector, share_of_bytes, rng) if model == "strict" else self.ext4_bytes(file, sector, names_until, rng)

        return written(self.root, path, names_of, bytes_of, {})

    @staticmethod
    def strict_bytes(file, sector, share, rng):
        data, how = bytearray(file.synced), rng.choice(("writes", "sectors", "beginning"))
        for _, offset, value in file.pending:
            if offset is None or how == "writes":
                if rng.random() < share:
                    put(data, offset, value)
                continue
            if rng.random() < 0.3:
                put(data, None, max(len(data), offset + len(value)))  # the size alone
            parts = sectors(offset, value, sector)
            for at, part in parts[:rng.randrange(len(parts) + 1)] if how == "beginning" else parts:
                if how == "beginning" or rng.random() < share:
                    put(data, at, part)
        return data

    @staticmethod
    def ext4_bytes(file, sector, names_until, rng):
        data, until = bytearray(file.synced), rng.randrange(len(file.pending) + 1)
        for at, (number, offset, value) in enumerate(file.pending):
            if offset is None:
                if number <= names_until:
                    put(data, offset, value)
                continue
            parts, end = sectors(offset, value, sector), len(data)
            there = parts if at < until else parts[:rng.randrange(len(parts) + 1)] if at == until else []
            for where, part in parts:
                if (where, part) in there or (where + len(part) <= end and rng.random() < 0.5):
                    put(data, where, part)
        return data


def sectors(offset, value, size):
    """The parts of a write, cut where the file's sectors end."""
    parts, at = [], 0
    while at < len(value):
        end = min(len(value), at + size - (offset + at) % size)
        parts.append((offset + at, value[at:end]))
        at = end
    return parts
