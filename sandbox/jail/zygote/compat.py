# What a program asks the machine for and an ordinary one has: answered, or refused in words.

NO_PROCESS = (
    "the sandbox starts no processes: use threads, such as"
    " concurrent.futures.ThreadPoolExecutor or multiprocessing.pool.ThreadPool"
)


def adapt(cfg):
    """Fits what the standard library says to what a child is and may do."""
    answer_names()
    if cfg["executables"]:
        prepare_processes(cfg)
    elif not cfg["exec"]:
        refuse_processes()


def prepare_processes(cfg):
    """Lets an interpreter that a program starts find its libraries and packages."""
    if LOADS:
        os.environ["LD_LIBRARY_PATH"] = LOADS
    os.environ["PYTHONPATH"] = ":".join(cfg["paths"])
    os.environ["MALLOC_ARENA_MAX"] = os.environ["PYTHONDONTWRITEBYTECODE"] = os.environ["PYTHONNOUSERSITE"] = "1"


def answer_names():
    """Lets the user id of a call have a name: the passwd file of the root cannot list
    the ids, of which each call has another one."""
    import pwd

    by_id, by_name = pwd.getpwuid, pwd.getpwnam

    def own():
        return pwd.struct_passwd(("sandbox", "x", os.getuid(), os.getgid(), "", "/tmp", "/bin/sh"))

    def getpwuid(uid, /):
        """Return the password database entry for the given numeric user ID."""
        return own() if uid == os.getuid() else by_id(uid)

    def getpwnam(name, /):
        """Return the password database entry for the given user name."""
        return own() if name == "sandbox" else by_name(name)

    pwd.getpwuid, pwd.getpwnam = getpwuid, getpwnam


def refuse_processes():
    """Says why a process cannot be started where the system call filter only says no."""
    import posix

    def refusal(name):
        def refuse(*_, **__):
            raise PermissionError(1, NO_PROCESS)

        refuse.__name__ = refuse.__qualname__ = name
        return refuse

    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve"):
        if hasattr(os, name):
            setattr(os, name, refusal(name))
            setattr(posix, name, getattr(os, name))

    def system(command):
        """Execute the command in a subshell."""
        os.fsencode(command)
        os.write(2, b"sh: " + NO_PROCESS.encode() + b"\n")
        return 127 << 8  # of a shell that finds no program

    os.system = posix.system = system
    # What subprocess and multiprocessing start processes with.
    stub = type(sys)("_posixsubprocess")
    stub.fork_exec = refusal("fork_exec")
    sys.modules["_posixsubprocess"] = stub
