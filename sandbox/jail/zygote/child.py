# One call: the layers around a child, and the child itself.

class Jail:
    """The layers around one child; prepared in the parent, entered in the child."""

    close_from = 3  # descriptors below stay open

    def __init__(self, cfg, layers):
        self.cfg, self.layers, self.nr = cfg, layers, cfg["nr"]
        self.ruleset = -1
        self.filter = self.keep = None
        self.unshare = 0
        self.caps = (ctypes.c_uint32 * 6)()
        self.caphead = (ctypes.c_uint32 * 2)(0x20080522, 0)

    def load_filter(self, text):
        raw = bytes.fromhex(text)
        self.keep = ctypes.create_string_buffer(raw, len(raw))
        self.filter = ctypes.create_string_buffer(
            struct.pack("@HP", len(raw) // 8, ctypes.addressof(self.keep)), 16
        )

    def settle(self):
        """Does once, in the parent, what children inherit."""
        for kind, value in self.cfg["rlimits"]:
            resource.setrlimit(kind, (value, value))
        self.tmpfs_options = cstr(
            "size=%d,nr_inodes=%d,mode=1777" % (self.cfg["tmp_bytes"], self.cfg["tmp_inodes"]))
        drop_bounding_set()
        self.layers.attempt("no_new_privs", lambda: check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs"))

    def namespaces(self):
        check(libc.unshare(self.unshare), "unshare")

    def tmpfs(self):
        flags = ctypes.c_ulong(NOSUID | NODEV | NOEXEC)
        check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", flags, self.tmpfs_options), "mount /tmp")

    def rlimits(self):
        files = self.cfg["open_files"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu, self.cpu))

    def become(self):
        uid = self.id
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    def drop_caps(self):
        check(syscall(self.nr["capset"], self.caphead, self.caps), "capset")

    def landlock(self):
        check(syscall(self.nr["landlock_restrict_self"], self.ruleset, 0), "landlock")

    def seccomp(self):
        check(syscall(self.nr["seccomp"], 1, 0, self.filter), "seccomp")

    def orphan(self):
        check(libc.prctl(1, 9, 0, 0, 0), "parent death signal")

    def close_fds(self):
        if syscall(self.nr["close_range"], self.close_from, 0x7FFFFFFF, 0) < 0:
            os.closerange(self.close_from, 1024)

    def steps(self):
        """The layers of a call in the order in which they have to be entered."""
        return [
            ("call_namespaces", self.namespaces),
            ("tmpfs", self.tmpfs),
            ("landlock", self.landlock),
            ("rlimits", self.rlimits),
            ("uid", self.become),
            ("capabilities", self.drop_caps),
            ("parent_death", self.orphan),
            ("seccomp", self.seccomp),
        ]

    def arm(self):
        """Fixes what a call has to do, now that it is known which layers hold."""
        self.todo = [action for name, action in self.steps() if self.layers.on(name)]
        # The ruleset is a descriptor too: descriptors go once it has been used.
        at = self.todo.index(self.rlimits) if self.rlimits in self.todo else len(self.todo)
        self.todo.insert(at, self.close_fds)

    def enter(self, uid, memory, cpu):
        """Enters every layer that holds; one that fails now fails the call."""
        self.id, self.memory, self.cpu = uid, memory, cpu
        os.setsid()
        for action in self.todo:
            action()
        os.chdir("/tmp")


HEADER = struct.Struct("<IIIIB")


def child(jail, call, fds):
    """The forked child: never returns."""
    _, _, uid, cpu, memory = call
    status = 70
    try:
        memfd, out, err = fds[:3]
        if len(fds) > 3:
            os.dup2(fds[3], 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        shared = mmap.mmap(memfd, 0)
        fixture_len, code_len, result_at, limit, _ = HEADER.unpack_from(shared, 0)
        at = HEADER.size
        fixture = shared[at : at + fixture_len]
        code = shared[at + fixture_len : at + fixture_len + code_len]
        try:
            jail.enter(uid, memory, cpu)
        except BaseException as error:
            note = str(error).encode()[:1024]
            shared[result_at : result_at + len(note)] = note
            shared[HEADER.size - 1] = 3
            os._exit(status)
        shared[HEADER.size - 1] = 1
        if jail.cfg["exec"]:
            exec_python(jail.cfg["exec"], code)
        gc.enable()
        result = run_program(code.decode("utf-8", "replace"), fixture.decode("utf-8", "replace"))
        record = result.pack(limit)
        shared[result_at : result_at + len(record)] = record
        shared[HEADER.size - 1] = 2
        status = result.code
    finally:
        os._exit(status)


def exec_python(command, code):
    """The baseline of a benchmark: a fresh interpreter inside the same layers."""
    os.execve(command[0], command + ["-c", code], dict(os.environ))
