package sandboxbench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"temper/sandbox"
	"temper/tools/bench/loadgen"
)

// unitKind says how the calls of a unit are made.
type unitKind int

const (
	unitSingle  unitKind = iota // one call
	unitBatch                   // calls of one request
	unitSession                 // cells that count, some of which are stopped and leave no trace
	unitAbuse                   // cells of one that abuses its session
)

// unit is a piece of the soak that every tenant plays.
type unit struct {
	number int
	kind   unitKind
	calls  []dealt
}

// dealt is a call of a unit: an attack, or an honest program by its number.
type dealt struct {
	attack string
	honest int
}

// dealer draws units: the same for a seed and a number, whatever was dealt before.
type dealer struct {
	seed    uint64
	hostile float64
}

// Sizes of units.
const (
	batchCalls   = 16
	sessionCells = 6
	abuseCells   = 4
)

// unit draws one. Of the calls a third stands alone, and about as many each are in
// batches and in sessions.
func (d dealer) unit(number int) unit {
	draw := rand.New(rand.NewPCG(d.seed, uint64(number)))
	u := unit{number: number}
	// The share of the abusers is such that their cells are a fifth of the hostile calls.
	const meanCalls = 0.70 + 0.06*batchCalls + 0.24*sessionCells
	abuse := d.hostile / 5 * meanCalls / abuseCells
	switch x := draw.Float64(); {
	case x < abuse:
		u.kind = unitAbuse
	case x < abuse+0.06:
		u.kind = unitBatch
	case x < abuse+0.30:
		u.kind = unitSession
	}
	size := map[unitKind]int{unitSingle: 1, unitBatch: batchCalls, unitSession: sessionCells, unitAbuse: abuseCells}[u.kind]
	attacks := loadgen.Attacks()
	for range size {
		c := dealt{honest: draw.IntN(len(honestPrograms("")))}
		hostile := draw.Float64() < d.hostile*0.8
		switch {
		case u.kind == unitAbuse:
			c.attack = abuses()[draw.IntN(len(abuses()))].Name
			if draw.IntN(2) == 0 {
				c.attack = attacks[draw.IntN(len(attacks))].Name
			}
		case hostile && u.kind == unitSession:
			c.attack = stopped()[draw.IntN(len(stopped()))].Name
		case hostile:
			c.attack = attacks[draw.IntN(len(attacks))].Name
		}
		u.calls = append(u.calls, c)
	}
	return u
}

// call is the call at a place of the unit as a tenant makes it: the ids and the names
// of sessions are those of every tenant, the answer is the tenant's own.
func (u unit) call(tenant string, leg, place int) loadgen.Call {
	c := loadgen.Call{ID: fmt.Sprintf("c-%d-%d-%d", leg, u.number, place), Run: tenant}
	if u.kind == unitSession || u.kind == unitAbuse {
		c.Session = fmt.Sprintf("s-%d-%d", leg, u.number)
	}
	own := fmt.Sprintf("%s:%d:%d:%d", tenant, leg, u.number, place)
	switch {
	case u.calls[place].attack != "":
		c.Program = attack(u.calls[place].attack)
	case u.kind == unitSession:
		c.Program = u.cell(own, place)
	default:
		c.Program = honestPrograms(own)[u.calls[place].honest]
	}
	return c
}

// cell counts the honest cells before it: one that was run twice, or was lost, is seen
// in the next answers.
func (u unit) cell(own string, place int) loadgen.Program {
	before := 0
	for _, c := range u.calls[:place] {
		if c.attack == "" {
			before++
		}
	}
	code := "n += 1"
	if before == 0 {
		code = "n = 0"
	}
	return loadgen.Program{Name: "cell", Code: fmt.Sprintf("%s\nprint(%q, n)", code, own), Want: fmt.Sprintf("%s %d", own, before)}
}

func attack(name string) loadgen.Program {
	for _, list := range [][]loadgen.Program{loadgen.Attacks(), stopped(), abuses()} {
		for _, p := range list {
			if p.Name == name {
				return p
			}
		}
	}
	panic("no attack is called " + name) // the dealer draws from these lists
}

// honestPrograms print what no other call prints, by different ways.
func honestPrograms(own string) []loadgen.Program {
	program := func(name, code string) loadgen.Program {
		return loadgen.Program{Name: name, Code: strings.ReplaceAll(code, "OWN", fmt.Sprintf("%q", own)), Want: own}
	}
	input := program("input", "print(input())")
	input.Stdin = own + "\n"
	long := program("long", "print(OWN * 400)")
	long.Want = strings.Repeat(own, 400)
	return []loadgen.Program{
		program("print", "print(OWN)"), program("print again", "print(OWN)"), program("print once more", "print(OWN)"), input, long,
		program("file", "with open('/tmp/own', 'w') as f: f.write(OWN)\nprint(open('/tmp/own').read())"),
		program("thread", "import threading\nt = threading.Thread(target=print, args=(OWN,))\nt.start(); t.join()"),
		program("sleep", "import time\ntime.sleep(.05)\nprint(OWN)"),
		program("compute", "n = sum(i * i for i in range(20000))\nprint(OWN if n == 2666466670000 else n)"),
		program("lock", "import fcntl\nwith open('/tmp/l', 'w') as f:\n    fcntl.lockf(f, fcntl.LOCK_EX)\n    print(OWN)"),
		program("memory", "x = bytearray(b'x') * (8 << 20)\nprint(OWN if len(x) == 8 << 20 else 0)"),
		program("raises and catches", "import json\ntry: [][1]\nexcept IndexError: print(json.loads(json.dumps(OWN)))"),
	}
}

// stopped are cells that a limit or their own end stops: a session goes on without them.
func stopped() []loadgen.Program {
	limits := sandbox.Limits{Wall: 500 * time.Millisecond, CPU: 200 * time.Millisecond, Output: 64 << 10}
	list := []loadgen.Program{
		{Name: "cell spins", Code: "n = -1000\nwhile True: pass"},
		{Name: "cell sleeps", Code: "n = -1000\nimport time\ntime.sleep(60)"},
		{Name: "cell floods", Code: "n = -1000\nwhile True: print('x' * 10000)"},
		{Name: "cell exits", Code: "n = -1000\nimport os\nos._exit(0)"},
		{Name: "cell crashes", Code: "n = -1000\nimport ctypes\nctypes.string_at(0)"},
	}
	for i := range list {
		list[i].Limits, list[i].AnyEnd = limits, true
	}
	return list
}

// abuses are cells that stay in their session, and take what they can.
func abuses() []loadgen.Program {
	list := []loadgen.Program{
		{Name: "abuse threads", Code: "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"},
		{Name: "abuse spinners", Code: "import threading\ndef f():\n    while True: pass\nfor _ in range(20): threading.Thread(target=f, daemon=True).start()"},
		{Name: "abuse memory", Code: "keep = bytearray(b'x') * (48 << 20)"},
		{Name: "abuse disk", Code: "with open('/tmp/fill%d' % id(object()), 'wb') as f: f.write(bytes(24 << 20))"},
		{Name: "abuse timers", Code: "import signal\nsignal.signal(14, lambda *_: open('/tmp/bell', 'a').write('x' * 4096))\nsignal.setitimer(0, 1e-3, 1e-3)"},
		{Name: "abuse input", Code: "import os\nos.set_blocking(0, False)\nos.closerange(0, 64)"},
		{Name: "abuse builtins", Code: "import builtins\nfor n in ('len', 'str', 'open', 'repr', 'compile', 'exec'): setattr(builtins, n, None)"},
		{Name: "abuse history", Code: "import time\ntime.sleep(.3) # " + strings.Repeat("x", 20000)},
	}
	for i := range list {
		list[i].AnyEnd = true
		list[i].Limits = sandbox.Limits{Wall: 500 * time.Millisecond, CPU: 200 * time.Millisecond, Output: 64 << 10}
	}
	return list
}
