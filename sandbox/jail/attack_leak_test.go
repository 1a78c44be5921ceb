package jail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// search looks for a word in all memory maps and texts that the interpreter knows
// of; the word is put together so that the program itself does not hold it.
const search = find + `
word = ('SEC' + 'RET').encode()
hits = sum(bytes(m).count(word) for m in maps)
hits += sum(isinstance(o, dict) and any(word in str(v).encode() for v in list(o.values()) if isinstance(v, str)) for o in gc.get_objects())
print(len(maps) > 0, hits)`

// TestNothingOfAnEarlierCall leaves secrets of every kind, then looks for them from
// later calls, also after calls that ended by force.
func TestNothingOfAnEarlierCall(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	long := strings.Repeat("SECRET", 20000)
	secrets := []sandbox.Request{
		{Code: "'SECRET' # " + long, Fixture: "answer = 'SECRET' # " + long, Stdin: long},
		{Code: "print('" + long + "')\nraise ValueError('" + long + "')"},
		{Code: find + "for m in maps:\n    try: m[:6] = m[-6:] = b'SECRET'\n    except TypeError: pass"},
		{Code: "x = '" + long + "'\nwhile True: pass", Limits: sandbox.Limits{CPU: 50 * time.Millisecond}},
		{Code: "x = '" + long + "'\nimport ctypes; ctypes.string_at(0)"},
		{Code: "open('/tmp/SECRET', 'w').write('SECRET'); import sys; sys.secret = 'SECRET'"},
	}
	for i, secret := range secrets {
		run(t, in, secret)
		for range 2 {
			if res := run(t, in, sandbox.Request{Code: search}); !strings.HasSuffix(res.Stdout, "True 0\n") {
				t.Errorf("after secret %d: %q %s", i, res.Stdout, res.Stderr)
			}
		}
	}
	// A caller that goes away leaves its program to be killed.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := in.Run(ctx, sandbox.Request{Code: "x = '" + long + "'\nimport time; time.sleep(9)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v", err)
	}
	if res := run(t, in, sandbox.Request{Code: search}); !strings.HasSuffix(res.Stdout, "True 0\n") {
		t.Errorf("after a cancelled call: %q %s", res.Stdout, res.Stderr)
	}
}

// TestNeighboursAnswerForThemselves runs programs that forge whatever they can
// reach beside programs that only say who they are.
func TestNeighboursAnswerForThemselves(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	forger := find + "for m in maps: fill(m, 2)\nprint('forged'); os._exit(0)"
	var all sync.WaitGroup
	for worker := range 6 {
		all.Go(func() {
			for i := range 15 {
				if worker < 2 {
					run(t, in, sandbox.Request{Code: forger})
					continue
				}
				name := fmt.Sprintf("worker-%d-%d", worker, i)
				res := run(t, in, sandbox.Request{Code: fmt.Sprintf("print(%q)\nimport sys\nprint(%q, file=sys.stderr)\n%q", name, name, name)})
				if res.Stdout != name+"\n" || res.Stderr != name+"\n" || res.Value != "'"+name+"'" || res.Status != sandbox.StatusOK {
					t.Errorf("%s: got %+v", name, res)
				}
			}
		})
	}
	all.Wait()
}
