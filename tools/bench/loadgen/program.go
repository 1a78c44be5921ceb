package loadgen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"temper/sandbox"
)

// Program is what a call runs, and how it must end.
type Program struct {
	Name   string
	Code   string
	Stdin  string
	Limits sandbox.Limits
	// Want is the output without surrounding space; empty means any.
	Want string
	// Status is how the program ends; ok when empty.
	Status sandbox.Status
	// AnyEnd accepts every Status that is about the program: a hostile one may be
	// stopped by the layer that sees it first.
	AnyEnd bool
}

// Mix gives the program of call i of a load.
type Mix func(i int) Program

// Only is a mix of one program.
func Only(p Program) Mix { return func(int) Program { return p } }

// Trivial is the smallest call that shows an answer.
func Trivial() Program { return Program{Name: "trivial", Code: "print(1+1)", Want: "2"} }

// Sympy is a small call of a large library.
func Sympy() Program {
	return Program{
		Name: "sympy", Want: "[-2, 2]",
		Code: "import sympy\nx = sympy.Symbol('x')\nprint(sympy.solve(x**2-4, x))",
	}
}

// Numpy is a small call of a library in C.
func Numpy() Program {
	return Program{Name: "numpy", Code: "import numpy\nprint(int(round(numpy.linalg.det(2*numpy.eye(3)))))", Want: "8"}
}

// Own gives each call an output that no other call has, so that an answer that
// belongs to another call is found.
func Own(prefix string) Mix {
	return func(i int) Program {
		id := fmt.Sprintf("%s-%d", prefix, i)
		return Program{Name: "own", Code: fmt.Sprintf("print(%q)", id), Want: id}
	}
}

// friendly are programs of the standard library, of the kinds that models write.
func friendly() []Program {
	return []Program{
		{Name: "stdin", Code: "print(sum(map(int, input().split())))", Stdin: "1 2 3 4\n", Want: "10"},
		{Name: "search", Code: "print(sum(n for n in range(2, 2000) if all(n % d for d in range(2, int(n**.5) + 1))))", Want: "277050"},
		{Name: "library", Code: "import math, itertools, fractions, json\nprint(json.dumps([math.comb(10, 3), str(sum(fractions.Fraction(1, k) for k in (2, 3))), len(list(itertools.permutations('abcd')))]))", Want: `[120, "5/6", 24]`},
		{Name: "raises", Code: "values = [1, 2]\nprint(values[5])", Status: sandbox.StatusError},
		{Name: "exits", Code: "import sys\nsys.exit(3)", Status: sandbox.StatusError},
		{Name: "file", Code: "import tempfile\nwith tempfile.TemporaryFile() as f:\n    f.write(b'x' * 65536)\n    print(f.tell())", Want: "65536"},
	}
}

// Hostile returns programs that attack the service or waste what it gives, each
// with limits that end it soon.
func Hostile() []Program {
	limits := sandbox.Limits{Wall: time.Second, CPU: time.Second, Memory: 256 << 20, Output: 64 << 10}
	list := []Program{
		{Name: "fork_bomb", Code: "import os\nwhile True:\n    try: os.fork()\n    except OSError: raise SystemExit(1)"},
		{Name: "stubborn_fork_bomb", Code: "import os, time\nend = time.time() + .1\nwhile time.time() < end:\n    try: os.fork()\n    except OSError: pass"},
		{Name: "daemon", Code: "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)"},
		{Name: "memory", Code: "x = []\nwhile True: x.append(bytearray(1 << 20))"},
		{Name: "one_allocation", Code: "x = bytearray(10**11)"},
		{Name: "output", Code: "while True: print('x' * 100000)"},
		{Name: "stderr", Code: "import sys\nwhile True: sys.stderr.write('x' * 100000)"},
		{Name: "signals", Code: "import os, signal\nos.kill(-1, signal.SIGKILL)"},
		{Name: "deaf", Code: "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(60)"},
		{Name: "null", Code: "import ctypes\nctypes.string_at(0)"},
		{Name: "abort", Code: "import os\nos.abort()"},
		{Name: "recursion", Code: "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()"},
		{Name: "disk", Code: "with open('/tmp/fill', 'wb') as f:\n    while True: f.write(b'x' * (1 << 20))"},
		{Name: "inodes", Code: "import itertools\nfor n in itertools.count(): open(f'/tmp/{n}', 'w').close()"},
		{Name: "descriptors", Code: "keep = []\nwhile True: keep.append(open('/tmp/x', 'w'))"},
		{Name: "sockets", Code: "import socket\nsocket.create_connection(('127.0.0.1', 22), timeout=1)"},
		{Name: "frames", Code: "import os\nfor fd in range(3, 256):\n    try: os.write(fd, b'C' + bytes(64))\n    except OSError: pass"},
		{Name: "shared_memory", Code: "import mmap\nkeep = [mmap.mmap(-1, 16 << 20) for _ in range(64)]\nfor m in keep: m.write(b'x' * (16 << 20))"},
		{Name: "threads", Code: "import threading, time\nfor _ in range(10000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"},
		{Name: "spin", Code: "while True: pass"},
	}
	for i := range list {
		list[i].Limits, list[i].AnyEnd = limits, true
	}
	list[len(list)-1].Limits.CPU = 200 * time.Millisecond
	return list
}

// Cycle is the number of calls after which a mix repeats. Parts of a load whose
// lengths are multiples of it hold the same programs.
const Cycle = 1000

// share is a part of a mix: a number of the calls of a cycle, spread evenly over
// some programs.
type share struct {
	of       int
	programs []Program
}

// shuffled spreads the shares over a cycle; the seed decides the order.
func shuffled(seed uint64, shares ...share) Mix {
	var table []Program
	for _, s := range shares {
		for i := range s.of {
			table = append(table, s.programs[i%len(s.programs)])
		}
	}
	draw := rand.New(rand.NewPCG(seed, 0x313))
	draw.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
	return func(i int) Program { return table[i%len(table)] }
}

// Mixes are the names that NamedMix knows.
func Mixes() []string {
	return []string{"trivial", "sympy", "numpy", "stdlib", "mixed", "soak", "soak-stdlib"}
}

// NamedMix returns a mix by its name. Mixes named soak have 2 % hostile calls;
// those named stdlib need no numpy and no sympy.
func NamedMix(name string, seed uint64) (Mix, error) {
	trivial, numeric := []Program{Trivial()}, []Program{Sympy(), Numpy()}
	switch name {
	case "trivial":
		return Only(Trivial()), nil
	case "sympy":
		return Only(Sympy()), nil
	case "numpy":
		return Only(Numpy()), nil
	case "stdlib":
		return shuffled(seed, share{Cycle / 2, trivial}, share{Cycle / 2, friendly()}), nil
	case "mixed":
		return shuffled(seed, share{500, trivial}, share{200, numeric}, share{300, friendly()}), nil
	case "soak":
		return SoakMix(seed), nil
	case "soak-stdlib":
		return shuffled(seed, share{500, trivial}, share{480, friendly()}, share{20, Hostile()}), nil
	}
	for _, list := range [][]Program{Hostile(), Attacks()} {
		if i := slices.IndexFunc(list, func(p Program) bool { return p.Name == name }); i >= 0 {
			return Only(list[i]), nil
		}
	}
	return nil, fmt.Errorf("mix %q: want one of %s, or the name of a hostile program", name, strings.Join(Mixes(), ", "))
}

// SoakMix holds every kind of program, 2 % of them hostile.
func SoakMix(seed uint64) Mix {
	return shuffled(seed, share{500, []Program{Trivial()}}, share{200, []Program{Sympy(), Numpy()}},
		share{280, friendly()}, share{20, Hostile()})
}
