# The zygote's own jail, built once.

def build_root(cfg):
    """Moves into a read-only root that holds only what python needs."""
    mount(None, "/", None, REC | PRIVATE)
    binds = [(b, os.open(b, os.O_PATH)) for b in cfg["binds"] if os.path.exists(b)]
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
    os.chdir(stage)
    check(syscall(cfg["nr"]["pivot_root"], b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount old root")
    os.chdir("/")
    mount(None, "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    for _, fd in binds:
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


def landlock_ruleset(nr, may_exec):
    """A ruleset without rules: it forbids what no program needs anywhere."""
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
    return check(fd, "landlock")


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
