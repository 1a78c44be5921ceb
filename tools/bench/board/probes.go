package board

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"temper/sandbox"
	"temper/tools/bench/loadgen"
)

// open is what a probe prints when it gets through.
const open = "got through"

// probeStep is a harmless program that does what a hostile one would: it prints open when
// nothing keeps it from doing so.
type probeStep struct {
	name string
	code string
	// before is run first, as a call of its own.
	before string
}

// probes are what every way is asked. They concern the board's own process pid, its
// listener at port, and its folder dir outside of /tmp.
func probes(dir string, port int, nonce string) []probeStep {
	attempt := func(body string) string {
		return "import os\ntry:\n    " + body + "\nexcept BaseException as e: print('held', type(e).__name__)"
	}
	say := "; print('" + open + "')"
	return []probeStep{
		{name: "reach the network", code: attempt(fmt.Sprintf("import socket; socket.create_connection(('127.0.0.1', %d), timeout=2)", port) + say)},
		{name: "read a file of the machine", code: attempt(fmt.Sprintf("open(%q).read()", filepath.Join(dir, "secret")) + say)},
		{name: "write to the machine", code: attempt(fmt.Sprintf("open(%q, 'w').close()", filepath.Join(dir, "written")) + say)},
		{name: "see processes", code: fmt.Sprintf("import os\ntry: os.kill(%d, 0); seen = True\nexcept PermissionError: seen = True\nexcept OSError: seen = False\nprint('%s' if seen else 'held')", os.Getpid(), open)},
		{
			name: "leave a file for the next call", before: fmt.Sprintf("open('/tmp/board-%s', 'w').close()", nonce),
			code: fmt.Sprintf("import os\nprint('%s' if os.path.exists('/tmp/board-%s') else 'held')", open, nonce),
		},
		{name: "start 200 processes", code: `import os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0: time.sleep(1); os._exit(0)
        n += 1
except OSError: pass
print('` + open + `' if n == 200 else 'held')`},
		{name: "take 1.5 GiB", code: attempt("x = bytearray(b'x') * (3 << 29)" + say)},
		{name: "make a user namespace", code: attempt("import ctypes; l = ctypes.CDLL(None, use_errno=True); l.unshare(0x10000000) and 1 / 0" + say)},
	}
}

// probe asks a way all of them and returns the names of those that it held.
func probe(ctx context.Context, cfg Config, target loadgen.Target) (held []string, err error) {
	// Not the folder for temporary files: most ways have one of their own there.
	dir, err := os.MkdirTemp(filepath.Dir(cfg.Binary), "board-probe-")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinRemove(err, dir) }()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o644); err != nil { //nolint:gosec // the permissions must not be what holds
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }() // nothing is written there
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listener at %v", listener.Addr())
	}
	nonce := fmt.Sprint(time.Now().UnixNano())
	defer func() { _ = os.Remove(filepath.Join(os.TempDir(), "board-"+nonce)) }() // most ways have left none
	limits := sandbox.Limits{Wall: 10 * time.Second, CPU: 10 * time.Second, Memory: 256 << 20}
	for i, p := range probes(dir, address.Port, nonce) {
		ask := func(name, code, want string) loadgen.Outcome {
			call := loadgen.Call{ID: fmt.Sprintf("board-%s-%d-%s", nonce, i, name), Program: loadgen.Program{Code: code, Want: want, Limits: limits}}
			return target.Do(ctx, []loadgen.Call{call})[0]
		}
		if p.before != "" {
			ask("before", p.before, "")
		}
		switch o := ask("probe", p.code, open); o.Class {
		case loadgen.Good:
		case loadgen.Wrong:
			held = append(held, p.name)
		case loadgen.Lost:
			return nil, fmt.Errorf("probe %q was not answered: %s %s", p.name, o.Kind, o.Detail)
		}
	}
	return held, nil
}

func joinRemove(err error, dir string) error {
	if removed := os.RemoveAll(dir); err == nil {
		return removed
	}
	return err
}
