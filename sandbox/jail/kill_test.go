package jail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// programs are the process ids of what runs in the jail, without its zygotes.
func programs(t *testing.T, j *jail.Jail, in *jail.Interpreter) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.CgroupDirs()[0], "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && !slices.Contains(in.PIDs(), pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestKillFromOutsideIsNotMemory: what somebody on the machine kills was not above a
// limit, and the kernel's count says so.
func TestKillFromOutsideIsNotMemory(t *testing.T) {
	j, in := open(t, jail.Config{})
	if j.OOMKills() < 0 {
		needLayer(t, j, "cgroup")
	}
	k := kernel(t, in, sandbox.Request{})
	k.Close()
	for name, call := range map[string]func() (sandbox.Result, error){
		"call": func() (sandbox.Result, error) {
			return in.Run(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(5)"})
		},
		"cell": func() (sandbox.Result, error) {
			return kernel(t, in, sandbox.Request{}).Run(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(5)"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			time.AfterFunc(500*time.Millisecond, func() {
				for _, pid := range programs(t, j, in) {
					_ = unix.Kill(pid, unix.SIGKILL) // it may be gone, which the result shows
				}
			})
			res, err := call()
			if err != nil || res.Status != sandbox.StatusKilled || !strings.Contains(res.Reason, "outside") {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// TestMemoryInTmpEndsProgramsNotTheZygote: programs that are small but for what they
// hold in /tmp go before the zygote, which is larger than each of them.
func TestMemoryInTmpEndsProgramsNotTheZygote(t *testing.T) {
	j, in := open(t, jail.Config{TotalMemory: 256 << 20})
	if j.OOMKills() < 0 {
		needLayer(t, j, "cgroup")
	}
	pids := fmt.Sprint(in.PIDs())
	code := "import time\nb = b'x' * (1 << 16)\ntime.sleep(.2)\nwith open('/tmp/f', 'wb') as f:\n    for _ in range(480): f.write(b); time.sleep(.001)\ntime.sleep(1)"
	var mu sync.Mutex
	count := make(map[sandbox.Status]int)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			res := run(t, in, sandbox.Request{Code: code, Limits: sandbox.Limits{Wall: 5 * time.Second}})
			mu.Lock()
			defer mu.Unlock()
			count[res.Status]++
		})
	}
	small := run(t, in, sandbox.Request{Code: "import time\ntime.sleep(1)\nprint('here')"})
	all.Wait()
	if count[sandbox.StatusMemoryLimit] == 0 || count[sandbox.StatusMemoryLimit]+count[sandbox.StatusOK] != 16 {
		t.Errorf("got %v, want memory_limit at least once and ok otherwise", count)
	}
	if small.Stdout != "here\n" {
		t.Errorf("the neighbour: %+v", small)
	}
	if got := fmt.Sprint(in.PIDs()); got != pids {
		t.Errorf("zygotes %s became %s", pids, got)
	}
}
