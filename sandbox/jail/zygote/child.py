# One call: the layers around a child, and the child itself.

# Descriptors of the zygote after the control socket: those of rooms lie between the last two.
RULESET, SIGNALS, BASE, RECEIVED = 4, 5, 6, 39
BELL = 3  # of a kernel: the one descriptor it has beyond the streams
MAX_FD = 0x7FFFFFFF
CALL, KERNEL, IN_ROOM, RENEWAL = 0, 1, 2, 3  # scripts
TMP_FLAGS, TMP_OPTIONS = NOSUID | NODEV | NOEXEC | NOATIME, "size=%d,nr_inodes=%d,mode=1777"
RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_NOFILE, RLIMIT_AS = 0, 6, 7, 9


class Block:
    """The memory that the fork loop works on; see forkloop.go for its layout."""

    def __init__(self, layout):
        self.at = layout
        self.address = map_memory(layout["size"], 3)
        self.memory = view(self.address, layout["size"])
        # Children map the memory file of their call here.
        self.window = map_memory(layout["window"], 1)
        self.shared = view(self.window, layout["window"])

    def __getitem__(self, name):
        return self.address + self.at[name]

    def put(self, name, *values):
        struct.pack_into("=%dQ" % len(values), self.memory, self.at[name], *values)


def view(address, size):
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


class Jail:
    """The layers around one child, as the system calls that a child makes on its way in."""

    def __init__(self, cfg, layers):
        self.cfg, self.layers, self.nr = cfg, layers, cfg["nr"]
        self.block = Block(cfg["layout"])
        self.clone_flags = 0
        self.keep = []  # what the scripts point at
        self.names = {}  # of the layer of each step, by kind of child
        self.mapped = 0  # the step that makes the memory file visible

    def hold(self, data):
        """Returns the address of a copy of data that lives as long as the zygote."""
        buffer = ctypes.create_string_buffer(data, len(data))
        self.keep.append(buffer)
        return ctypes.addressof(buffer)

    def load_filter(self, text):
        raw = bytes.fromhex(text)
        self.filter = self.hold(struct.pack("@HP", len(raw) // 8, self.hold(raw)))

    def settle(self):
        """Does once, in the parent, what children inherit."""
        for kind, value in self.cfg["rlimits"]:
            limit_resource(kind, value)
        drop_bounding_set()
        self.layers.attempt("no_new_privs", lambda: check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs"))

    def steps(self, kernel=False, room=False):
        """The system calls in the order in which they have to be made, each with the
        layer that it belongs to, its arguments and the mask of those given by address."""
        nr, block, cfg = self.nr, self.block, self.cfg
        yield "", nr["rt_sigprocmask"], (2, self.hold(bytes(8)), 0, 8), 0
        yield "", nr["setsid"], (), 0
        # A packet brings the memory file, then the streams: see call.go and kernel.go.
        if kernel:
            places = ((1, 0), (2, 1), (3, 2), (4, BELL))
        else:
            places = ((1, 1), (2, 2), (3, 0))
        for come, go in places:
            optional = 0 if kernel or go else block.at["may_fail"]  # standard input
            yield "", nr["dup2"], (RECEIVED + come, go), optional
        # MAP_SHARED at a fixed address, to read and write.
        yield "", nr["mmap"], (block.window, block.at["window"], 3, 0x11, RECEIVED, 0), 0
        if room:
            yield "call_namespaces", nr["setns"], (block["room"], NEWNS), 1
            yield "call_namespaces", nr["setns"], (block["room"] + 8, NEWIPC), 1
        else:
            yield "tmpfs", nr["mount"], self.tmpfs(), 0
        yield "landlock", nr["landlock_restrict_self"], (RULESET, 0), 0
        # The ruleset is a descriptor too: descriptors go once it has been used.
        yield "", nr["close_range"], (BELL + 1 if kernel else 3, MAX_FD, 0), 0
        limits = [(RLIMIT_AS, block["memory"]), (RLIMIT_CPU, block["cpu"])]
        for kind, value in ((RLIMIT_NOFILE, cfg["open_files"]), (RLIMIT_NPROC, cfg["threads"])):
            if value:
                limits.append((kind, self.hold(struct.pack("=QQ", value, value))))
        for kind, limit in limits:
            yield "rlimits", nr["prlimit64"], (0, kind, limit, 0), 0
        uid = block["uid"]
        yield "uid", nr["setgroups"], (0, 0), 0
        yield "uid", nr["setresgid"], (uid, uid, uid), 0b111
        yield "uid", nr["setresuid"], (uid, uid, uid), 0b111
        caps = self.hold(struct.pack("=II", 0x20080522, 0)), self.hold(bytes(24))
        yield "capabilities", nr["capset"], caps, 0
        yield "parent_death", nr["prctl"], (1, 9), 0
        yield "", nr["chdir"], (self.hold(b"/tmp\0"),), 0
        yield "seccomp", nr["seccomp"], (1, 0, self.filter), 0

    def tmpfs(self):
        """The arguments of the mount of a private /tmp."""
        options = TMP_OPTIONS % (self.cfg["tmp_bytes"], self.cfg["tmp_inodes"])
        kind = self.hold(b"tmpfs\0")
        return kind, self.hold(b"/tmp\0"), kind, TMP_FLAGS, self.hold(cstr(options) + b"\0")

    def renewal(self):
        """The system calls by which a helper gives the room that it is in a new /tmp."""
        nr, tmp = self.nr, self.block["tmp"]
        yield "", nr["umount2"], (tmp, 2), 0  # MNT_DETACH
        yield "", nr["mount"], self.tmpfs(), 0
        yield "", nr["utimensat"], (-100, tmp, self.hold(bytes(32)), 0), 0

    def script(self, kind):
        """Returns the address of the steps of a kind of child whose layers hold, as the fork
        loop reads them."""
        words, names = [], []
        steps = self.renewal() if kind == RENEWAL else self.steps(kind == KERNEL, kind == IN_ROOM)
        for layer, number, args, mask in steps:
            if layer and not self.layers.on(layer):
                continue
            if number == self.nr["mmap"]:
                self.mapped = len(names)
            names.append(layer or "descriptors")
            words += [number, mask, *args] + [0] * (6 - len(args))
        self.names[kind] = names
        return self.hold(struct.pack("=%dq" % (len(words) + 1), *words, -1))

    def arm(self):
        """Fills the block, now that it is known which layers hold."""
        block = self.block
        tid = ctypes.c_void_p()
        child_tid = 0x01200000  # CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID
        if libc.prctl(40, ctypes.byref(tid), 0, 0, 0) < 0:  # PR_GET_TID_ADDRESS
            child_tid = 0
        block.put("control", CTL)
        block.put("signals", SIGNALS)
        block.put("flags", self.clone_flags | child_tid | 17)  # SIGCHLD
        block.put("tid", tid.value or 0)
        block.put("received", RECEIVED)
        block.put("scripts", self.script(CALL), self.script(KERNEL), self.script(IN_ROOM))
        block.put("short", self.clone_flags & NEWPID | child_tid | 17)
        block.put("renew", self.script(RENEWAL))
        block.put("base", BASE)
        block.put("tmp", struct.unpack("=Q", b"/tmp".ljust(8, b"\0"))[0])
        struct.pack_into("=ihhihh", block.memory, block.at["poll"], CTL, 1, 0, SIGNALS, 1, 0)
        iovec = self.hold(struct.pack("=QQ", block["packet"], block.at["packet_size"]))
        block.put("message", 0, 0, iovec, 1, block["rights"], block.at["rights_size"], 0)

    def give_up(self, failure):
        """Tells the owner which layer could not be entered."""
        step, code = failure >> 16, failure & 0xFFFF
        kind = struct.unpack_from("=Q", self.block.memory, self.block.at["lent"])[0]
        if step > self.mapped:
            note = (self.names[kind][step] + ": " + os.strerror(code)).encode()
            STAGE.pack_into(self.block.shared, 0, 3, len(note))
            self.block.shared[STAGE.size : STAGE.size + len(note)] = note
        os._exit(70)


# The memory file begins with how far the child has come; see wire.go for the rest.
STAGE = struct.Struct("<II")
HEADER = struct.Struct("<IIIIII")  # stage, then fixture, code, place of the record, limit of the value, preamble
BEGUN = struct.Struct("<Q")  # takes the place of both lengths: when the program began


UNMAP = libc["munmap"]  # a function of its own, whose arguments need no objects
UNMAP.argtypes = ctypes.c_void_p, ctypes.c_size_t


def child(shared, window, command=None, leave=os._exit):
    """The forked child: never returns, not even where a program replaces os._exit."""
    status = 70
    own, getpid = os.getpid(), os.getpid
    try:
        _, fixture_len, code_len, result_at, limit, preamble_len = HEADER.unpack_from(shared, 0)
        at = HEADER.size
        fixture = bytes(shared[at : at + fixture_len])
        at += fixture_len
        code = bytes(shared[at : at + code_len])
        at += code_len
        preamble = bytes(shared[at : at + preamble_len])
        BEGUN.pack_into(shared, 4, time.monotonic_ns())

        def seal(stage):
            """Says how far the child has come and takes the page that says so out of the
            program's reach, so that no program can claim that the jail or its fixture failed."""
            shared[0] = stage
            UNMAP(window, result_at)

        if fixture:
            shared[0] = 4  # until it has run
        else:
            seal(1)
        if command:
            exec_python(command, code)
        gc.enable()
        result = run_program(code.decode("utf-8", "replace"), fixture.decode("utf-8", "replace"), seal, preamble)
        if getpid() == own:  # or a process that the program has made comes to its end
            record = result.pack(limit)
            shared[result_at : result_at + len(record)] = record
        status = result.code
    finally:
        leave(status)


def exec_python(command, code):
    """The baseline of a benchmark: a fresh interpreter inside the same layers."""
    os.execve(command[0], command + ["-c", code], dict(os.environ))
