package jail_test

import (
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// find collects the pages of every memory map of the code around a program, by way
// of its frames and of the garbage collector.
const find = `
import gc, mmap, os, sys
maps, frames = [], []
f = sys._getframe()
while f: frames.append(f); f = f.f_back
for f in frames:
    maps += [v for v in list(f.f_locals.values()) + list(f.f_globals.values()) if isinstance(v, (mmap.mmap, memoryview))]
maps += [o for o in gc.get_objects() if isinstance(o, (mmap.mmap, memoryview))]
for o in gc.get_objects():
    if isinstance(o, dict): maps += [v for v in list(o.values()) if isinstance(v, (mmap.mmap, memoryview))]
r, w = os.pipe()
def pages(m):
    for at in range(0, len(m), 4096):
        page = memoryview(m)[at:at + 4096]
        try: os.write(w, page[:1]); os.read(r, 1)
        except OSError: continue # not mapped: the kernel notices, without a signal
        yield page
maps = [p for m in {id(m): m for m in maps}.values() for p in pages(m)]
def fill(m, b):
    try: m[:] = bytes([b]) * len(m)
    except (TypeError, ValueError): pass
`

// TestForgedOutcomes: a program may lie about its own value, error and exit code,
// but not blame the sandbox or its caller, who would then run it again or leave it
// out of the count, nor undo what the owner has decided.
func TestForgedOutcomes(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	quick := sandbox.Limits{Wall: 10 * time.Second, CPU: 300 * time.Millisecond}
	for _, c := range []struct {
		name, code string
		want       sandbox.Status // one of its own when empty
	}{
		{"zeros", find + "for m in maps: fill(m, 0)\nos._exit(0)", ""},
		{"ones", find + "for m in maps: fill(m, 1)\nos._exit(0)", ""},
		{"twos", find + "for m in maps: fill(m, 2)\nos._exit(0)", ""},
		{"threes", find + "for m in maps: fill(m, 3)\nos._exit(70)", ""},
		{"all bits", find + "for m in maps: fill(m, 255)\nos._exit(0)", ""},
		{"closed maps", find + "for m in maps:\n    try: m.release()\n    except Exception: pass", ""},
		{"fails as a fixture", `
import sys
f = sys._getframe()
while f:
    if 'FixtureError' in f.f_globals: raise f.f_globals['FixtureError']('the caller is to blame')
    f = f.f_back`, ""},
		{"kind of a failed fixture", `
import gc, sys
f = sys._getframe()
while f:
    for v in list(f.f_locals.values()):
        if hasattr(v, 'pack') and hasattr(v, 'kind'):
            v.kind = v.code = 1; v.emsg = 'the caller is to blame'
    f = f.f_back
import atexit
def late():
    for o in gc.get_referrers(*[]): pass
atexit.register(late)`, ""},
		{"refuses the jail", `
import sys
f = sys._getframe()
while f:
    for v in list(f.f_locals.values()):
        if hasattr(v, 'enter'): v.enter = lambda *a: 1 / 0
    f = f.f_back
raise SystemExit(70)`, ""},
		{"success after the time limit", find + "for m in maps: fill(m, 2)\nwhile True: pass", sandbox.StatusTimeLimit},
		{"success after a flood", find + "for m in maps: fill(m, 2)\nwhile True: os.write(1, b'x' * 9999)", sandbox.StatusOutputLimit},
		{"success after a crash", find + "for m in maps: fill(m, 2)\nimport ctypes; ctypes.string_at(0)", sandbox.StatusKilled},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, fixture := range []string{"", "x = 1"} {
				res := run(t, in, sandbox.Request{Code: c.code, Fixture: fixture, Limits: quick})
				if c.want != "" && res.Status != c.want {
					t.Errorf("fixture %q: got %s %q, want %s\n%s", fixture, res.Status, res.Reason, c.want, res.Stderr)
				}
				if res.Status == sandbox.StatusInternal || res.Status == sandbox.StatusRefused {
					t.Errorf("fixture %q: forged %s %q", fixture, res.Status, res.Reason)
				}
			}
		})
	}
}
