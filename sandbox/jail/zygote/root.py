# The zygote's own jail, built once.

def build_root(cfg):
    """Moves into a read-only root that holds only what python needs."""
    mount(None, "/", None, REC | PRIVATE)
    binds = [(place, os.open(b, os.O_PATH)) for b, place in cfg["binds"] if os.path.exists(b)]
    stage = next(d for d in ("/tmp", "/run", "/var", "/mnt") if os.path.isdir(d))
    mount("tmpfs", stage, "tmpfs", NOSUID | NODEV, "size=1m,nr_inodes=4096,mode=755")
    for path, target in cfg["symlinks"]:
        os.makedirs(os.path.dirname(stage + path), exist_ok=True)
        os.symlink(target, stage + path)
    for path, fd in binds:
        bind_one(fd, stage + path)
    for path, text in cfg["files"].items():
        os.makedirs(os.path.dirname(stage + path), exist_ok=True)
        with open(stage + path, "w") as out:
            out.write(text)
    os.makedirs(stage + "/tmp", exist_ok=True)
    hide(stage, cfg["masks"] or ())
    os.chdir(stage)
    check(syscall(cfg["nr"]["pivot_root"], b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount old root")
    os.chdir("/")
    mount(None, "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    for _, fd in binds:
        os.close(fd)


def hide(stage, paths):
    """Puts an empty file or folder that nobody may open over each path."""
    for path in paths:
        blank = stage + "/hidden"
        if os.path.isdir(stage + path):
            os.mkdir(blank, 0)
        else:
            os.close(os.open(blank, os.O_CREAT, 0))
        mount(blank, stage + path, None, BIND)
        mount(None, stage + path, None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
        (os.rmdir if os.path.isdir(blank) else os.unlink)(blank)


def arrive():
    """Reads the setup and moves into the root; returns the setup, the layers so far and
    a descriptor of this process's folder in /proc, which the root does not have."""
    os.umask(0o022)  # other users enter the folders made here, whatever the service's own mask
    layers = Layers()
    if len(sys.argv) > 3:  # started over
        state, proc = map(int, sys.argv[3:])
        with open(state) as stream:
            cfg, layers.entries = json.load(stream)
        return cfg, layers, proc
    cfg = json.loads(os.read(CTL, 1 << 20))
    proc = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    if cfg["mode"] != "plain":
        layers.attempt("pid_namespace", trial_pid)
        layers.attempt("root", lambda: build_root(cfg))
        if cfg["again"]:
            if not layers.on("root"):
                raise SystemExit("root: " + layers.entries["root"]["reason"])
            start_over(cfg, layers, proc)
    return cfg, layers, proc


def start_over(cfg, layers, proc):
    """Runs all of this again on the interpreter as the root shows it, so that no path
    in the process names the place that the interpreter has on the machine."""
    state = os.memfd_create("start", 0)
    os.write(state, json.dumps([cfg, layers.entries]).encode())
    os.lseek(state, 0, 0)
    for fd in (CTL, state, proc):
        os.set_inheritable(fd, True)
    env = dict(os.environ, LD_BIND_NOW="1")
    if cfg["loads"]:
        env["LD_LIBRARY_PATH"] = ":".join(cfg["loads"])
    os.execve(cfg["again"][0], cfg["again"] + sys.argv[1:] + [str(state), str(proc)], env)


def trial_pid():
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        check(libc.unshare(NEWPID), "unshare pid")
        check(libc.setns(fd, NEWPID), "setns pid")
    finally:
        os.close(fd)


def bind_one(fd, target):
    """Binds the open path read-only; a device node stays usable."""
    mode = os.fstat(fd).st_mode
    if mode & 0o170000 == 0o040000:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount("/proc/self/fd/%d" % fd, target, None, BIND)
    flags = os.fstatvfs(fd).f_flag & KEEP_FLAGS | RDONLY | NOSUID
    if mode & 0o170000 != 0o020000:
        flags |= NODEV
    mount(None, target, None, REMOUNT | BIND | flags)


def landlock_ruleset(nr, may_exec, executables=()):
    """A ruleset that forbids what no program needs anywhere, and to execute other files."""
    abi = syscall(nr["landlock_create_ruleset"], None, ctypes.c_size_t(0), ctypes.c_uint(1))
    check(abi, "landlock")
    execute, char, sock, fifo, block, refer, ioctl = 1, 1 << 6, 1 << 9, 1 << 10, 1 << 11, 1 << 13, 1 << 15
    fs = (0 if may_exec else execute) | char | sock | fifo | block
    fs |= (refer if abi >= 2 else 0) | (ioctl if abi >= 5 else 0)
    net = 3 if abi >= 4 else 0
    scoped = 3 if abi >= 6 else 0
    attr = struct.pack("=QQQ", fs, net, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    fd = syscall(nr["landlock_create_ruleset"], attr, ctypes.c_size_t(size), ctypes.c_uint(0))
    check(fd, "landlock")
    for path in executables:
        beneath = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", execute, beneath)
        check(syscall(nr["landlock_add_rule"], fd, 1, rule, 0), "landlock " + path)
        os.close(beneath)
    return fd


def drop_bounding_set():
    for cap in range(64):
        if libc.prctl(24, cap, 0, 0, 0) < 0:  # PR_CAPBSET_DROP
            break


def make_rooms(jail, spaces):
    """Makes namespaces with an empty /tmp ahead of the calls that will use them: see forkloop.go.

    Only where each layer holds that keeps a program from leaving a trace in a room without
    changing the time of its /tmp: with the owner's id a program could set that time back."""
    needed = "pid_namespace", "call_namespaces", "tmpfs", "uid", "capabilities", "seccomp"
    if spaces is None or not all(map(jail.layers.on, needed)):
        return
    homes = [(os.open(name, os.O_RDONLY, dir_fd=spaces), kind) for name, kind in (("mnt", NEWNS), ("ipc", NEWIPC))]
    block, at = jail.block, BASE + 1
    os.dup2(homes[0][0], BASE)
    try:
        for i in range(block.at["max_rooms"]):
            check(libc.unshare(NEWNS | NEWIPC), "unshare")
            tmp = TMP_OPTIONS % (jail.cfg["tmp_bytes"], jail.cfg["tmp_inodes"])
            mount("tmpfs", "/tmp", "tmpfs", TMP_FLAGS, tmp)
            os.utime("/tmp", (0, 0))
            place(os.open("mnt", os.O_RDONLY, dir_fd=spaces), at)
            place(os.open("ipc", os.O_RDONLY, dir_fd=spaces), at + 1)
            struct.pack_into("=3Q", block.memory, block.at["rooms"] + i * block.at["room_size"],
                             block.at["room_free"], at, at + 1)
            at += 2
            go_home(homes)
    except OSError:
        go_home(homes)  # with the rooms there are; calls without one make their own namespaces
    for fd, _ in homes:
        os.close(fd)


def go_home(homes):
    for fd, kind in homes:
        check(libc.setns(fd, kind), "setns")
