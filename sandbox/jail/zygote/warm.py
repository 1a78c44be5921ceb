# What a zygote holds ready before it forks: modules, streams, filled caches.

def preload(names):
    """Imports what programs usually import; returns what could not be."""
    missing = []
    register = os.register_at_fork
    # Modules such as random reseed themselves in each child, which costs time and
    # makes programs differ from run to run.
    os.register_at_fork = lambda **_: None
    for name in names:
        try:
            __import__(name)
        except Exception:
            missing.append(name)
    os.register_at_fork = register
    if "random" in sys.modules:
        sys.modules["random"].seed(0)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)
    return missing


def add_site_builtins():
    """What the site module would have added and programs do use."""
    import _sitebuiltins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def open_streams():
    """Text streams on fds 0-2, made once; a child only replaces the descriptors."""
    import io

    r, w = os.pipe()  # a pipe, so that nothing caches a seek position
    for fd, end in ((0, r), (1, w)):
        os.dup2(end, fd)

    def text(fd, mode, errors):
        raw = io.FileIO(fd, mode, closefd=False)
        buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        return io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=mode == "w")

    sys.stdin = sys.__stdin__ = text(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = text(1, "w", "surrogateescape")
    log = os.dup(2)
    os.dup2(w, 2)
    sys.stderr = sys.__stderr__ = text(2, "w", "backslashreplace")
    os.dup2(log, 2)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for fd in (r, w, log, null):
        os.close(fd)


def warm_up():
    """Runs typical programs once, so that a child finds every cache filled."""
    global EXIT_HOOKS
    import atexit

    for module, programs in WARM.items():
        for _ in range(30 if module in sys.modules and module == "builtins" else module in sys.modules):
            for code in programs:
                run_program(code, "fixture_value = 1\n").pack(1024)
    import marshal

    head, rest = WRAPPED
    packed = len(head).to_bytes(4, "little") + marshal.dumps(compile(head, MAIN, "exec", 0, True))
    for _ in range(10):
        run_program(head + rest, "", None, packed).pack(1024)
    import linecache

    linecache.clearcache()
    sys.modules.pop("__main__", None)
    EXIT_HOOKS = atexit._ncallbacks()


# A program in base64 behind a preamble that runs it, as clients of Code-Judge send them.
WRAPPED = (
    """import os, base64, sys, ast, traceback, linecache
from typing import Any, Optional
from types import CodeType
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

class Failed(Exception):
    def __init__(self, err: Exception, text: str):
        super().__init__(f"{type(err).__name__}: {err}")

class Runner:
    def __init__(self):
        self.space = {"__name__": "__main__", "__builtins__": __builtins__}

    def parts(self, text: str) -> tuple[str, Optional[str]]:
        \"\"\"Cuts off a last expression.\"\"\"
        last = ast.parse(text).body[-1]
        lines = text.splitlines()
        if isinstance(last, ast.Expr):
            return "\\n".join(lines[: last.lineno - 1]), "\\n".join(lines[last.lineno - 1 :])
        return text, None

    def run(self, text: str, quiet: bool) -> None:
        body, last = self.parts(text)
        with redirect_stdout(StringIO() if quiet else sys.stdout), redirect_stderr(sys.stderr):
            exec(compile(body, "<string>", "exec"), self.space)
            if last and eval(compile(last, "<string>", "eval"), self.space) is not None:
                print("value")
""",
    'text = base64.b64decode("eCA9IDEKcHJpbnQoeCk=".encode()).decode()\nRunner().run(text, False)\n',
)

WARM = {
    "builtins": (
        "print(1+1)\n",
        "x = [i*i for i in range(3)]\nx\n",
        "def f():\n    return 1/0\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    print(e)\n",
        "import math\nmath.sqrt(2)\n",
        "class A:\n    pass\nprint(f'{1.5:.2f}', sorted({3: 1}.items()))\n",
        "1/0\n",
        "x = (\n",
    ),
    "numpy": (
        "import numpy as np\nprint(np.linalg.det(np.eye(3)), np.arange(6).reshape(2, 3).sum(axis=0))\n",
        "import numpy as np\nnp.random.default_rng(0).normal(size=3)\n",
    ),
    "sympy": (
        "from sympy import *\nx, y = symbols('x y')\nprint(solve(x**2 - 4, x), solve([x + y - 3, x - y - 1], [x, y]))\n",
        "from sympy import *\nx = symbols('x')\nprint(integrate(x*sin(x), x), diff(exp(x)*x, x), limit(sin(x)/x, x, 0))\n",
        "from sympy import *\nx = symbols('x')\nprint(factor(x**3 - 1), expand((x + 1)**4), simplify(sin(x)**2 + cos(x)**2))\n",
        "from sympy import *\nprint(Matrix([[1, 2], [3, 4]]).inv(), Rational(1, 3) + 1, N(pi, 20), latex(sqrt(2)))\n",
        "from sympy import *\nprint(factorint(360), isprime(97), gcd(12, 18), binomial(10, 3), nsimplify(0.5))\n",
    ),
}


def make_immortal():
    """Gives every object that lives now a reference count that is never written.

    A child that counted references to modules, functions and types would copy the
    pages that hold them. Python has known such counts since 3.12 (PEP 683).
    """
    if sys.version_info < (3, 12):
        return
    count = 3 << 30 if sys.version_info >= (3, 14) else (1 << 32) - 1
    seen, reached = set(), gc.get_objects()
    while reached:
        known = reached
        reached = []
        for item in known:
            if id(item) not in seen:
                seen.add(id(item))
                reached.append(item)
        reached = gc.get_referents(*reached) + hidden(reached)
    for address in seen:
        word = ctypes.c_uint32.from_address(address)
        if word.value < 1 << 31:
            word.value = count


def hidden(items):
    """What the collector does not see: names, constants of code, keys that are text.
    All of it must be held by the items: what is made on the way would be gone later."""
    found = []
    for item in items:
        if type(item) is dict:
            found += item
        elif type(item) is CODE:
            found += item.co_consts + item.co_names + item.co_varnames + item.co_freevars + item.co_cellvars
            found += (item.co_consts, item.co_names, item.co_name, item.co_qualname, item.co_filename)
        elif issubclass(type(item), type) and TYPE_FLAGS(item) & 1 << 9:  # made by a class statement
            found += (TYPE_NAME(item), TYPE_QUALNAME(item))
    return found


TYPE_FLAGS, TYPE_NAME, TYPE_QUALNAME = (
    type.__dict__[name].__get__ for name in ("__flags__", "__name__", "__qualname__"))
CODE = type(hidden.__code__)
REHEARSALS = ("print(1+1)", "x = 1\nprint(x)\nx\n", "def f(n):\n    return n\nprint(f(2))\n")


def rehearse(jail, turns):
    """Does what a child does, in the zygote, as the last thing before the first fork.

    What a child would write into shared pages is written now: caches of types, code that
    adapts to what it meets. And what a child allocates lies where this did."""
    window, shared = jail.block.window, jail.block.shared
    size = jail.block.at["window"]
    command, jail.cfg["exec"] = jail.cfg["exec"], None
    for turn in range(turns):
        code = REHEARSALS[turn % len(REHEARSALS)].encode()
        scratch = map_memory(size, 3)
        jail.block.window, jail.block.shared = scratch, view(scratch, size)
        HEADER.pack_into(jail.block.shared, 0, 0, 0, len(code), 4096, 1024, 0)
        jail.block.shared[HEADER.size : HEADER.size + len(code)] = code
        enter(jail, 0, abs)
        libc.munmap(ctypes.c_void_p(scratch), ctypes.c_size_t(size))
    jail.block.window, jail.block.shared = window, shared
    jail.cfg["exec"] = command
    sys.modules.pop("__main__", None)
    gc.disable()


def gather():
    """Puts the code of a call side by side: code that meets more than one type counts
    that in itself, and each function would cost a child a page."""
    parts = (enter, child, run_program, execute, divide, split, finish_threads, flush, scrub, cut, Outcome.pack)
    for part in parts:
        part.__code__ = part.__code__.replace()


POOL, POOL_HEAD = (16 if sys.version_info >= (3, 10) else 4) << 10, 48  # of the allocator of small objects
FILLERS = []


def fill_gaps():
    """Uses up the free places between the objects of the zygote.

    What a child allocates would else land in such places all over the heap, and the
    child would copy a page for each. Now it comes from fresh memory, side by side.
    """
    for size in range(48, 513, 16):
        fill_pools(size)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    top = libc.malloc(ctypes.c_size_t(100 << 10))
    libc.free(top)
    for size in [1 << shift for shift in range(16, 9, -1)] + list(range(1008, 15, -16)):
        for _ in range(4096):
            if libc.malloc(ctypes.c_size_t(size)) >= top:
                break


def fill_pools(size):
    """Allocates objects of a size until every pool for it is full to the last place."""
    room = size - bytes.__basicsize__
    capacity = (POOL - POOL_HEAD) // size
    pool, run = -1, 0
    for _ in range(64 * capacity):
        item = bytes(room)
        FILLERS.append(item)
        at = id(item) // POOL
        run = run + 1 if at == pool else 1
        pool = at
        if run == capacity:
            return
