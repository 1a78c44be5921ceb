package jail_test

import (
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// find collects every writable memory map and every mutable object of the code
// around a program, by way of its frames and of the garbage collector.
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
def fill(m, b):
    for i in range(min(len(m), 1 << 16)):
        try: m[i:i + 1] = bytes([b])
        except (TypeError, ValueError): return
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
		{"closed maps", find + "for m in maps:\n    try: m.close()\n    except Exception: pass", ""},
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
