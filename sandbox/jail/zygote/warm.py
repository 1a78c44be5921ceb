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
        if module in sys.modules:
            for code in programs:
                run_program(code, "fixture_value = 1\n").pack(1024)
    import linecache

    linecache.clearcache()
    sys.modules.pop("__main__", None)
    EXIT_HOOKS = atexit._ncallbacks()


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


def collapse_heap(maps_fd):
    """Moves the anonymous memory into huge pages, which makes a fork cheaper."""
    spans = []
    with open(maps_fd) as maps:
        for line in maps:
            parts = line.split()
            if parts[1].startswith("rw-p") and (len(parts) < 6 or parts[5] == "[heap]"):
                lo, hi = (int(x, 16) for x in parts[0].split("-"))
                spans.append((-(-lo // HUGE) * HUGE, hi // HUGE * HUGE))
    for lo, hi in spans:
        if hi > lo:
            libc.madvise(ctypes.c_void_p(lo), ctypes.c_size_t(hi - lo), 14)
            libc.madvise(ctypes.c_void_p(lo), ctypes.c_size_t(hi - lo), 25)
