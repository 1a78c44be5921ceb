package jail_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestTogetherAboveTheMemoryOfTheJail runs programs that are each within their own
// limit and together above that of the jail: the kernel kills some of them, says
// so, and spares the zygote and a small neighbour.
func TestTogetherAboveTheMemoryOfTheJail(t *testing.T) {
	j, in := open(t, jail.Config{TotalMemory: 320 << 20})
	if j.OOMKills() < 0 {
		needLayer(t, j, "cgroup")
	}
	pids := fmt.Sprint(in.PIDs())
	limits := sandbox.Limits{Wall: 5 * time.Second, CPU: 5 * time.Second, Memory: 256 << 20}
	const hogs = 4
	statuses := make([]sandbox.Status, hogs)
	var all sync.WaitGroup
	var small sandbox.Result
	for i := range hogs {
		all.Go(func() {
			statuses[i] = run(t, in, sandbox.Request{Code: "import time\nx = bytearray(b'x') * (150 << 20)\ntime.sleep(1)", Limits: limits}).Status
		})
	}
	all.Go(func() {
		small = run(t, in, sandbox.Request{Code: "import time\ntime.sleep(1)\nprint('here')", Limits: limits})
	})
	all.Wait()
	count := make(map[sandbox.Status]int)
	for _, s := range statuses {
		count[s]++
	}
	killed := count[sandbox.StatusMemoryLimit]
	if killed == 0 || killed+count[sandbox.StatusOK] != hogs {
		t.Errorf("got %v, want memory_limit at least once and ok otherwise", statuses)
	}
	if got := j.OOMKills(); got != killed {
		t.Errorf("the kernel counts %d kills, %d programs were answered memory_limit", got, killed)
	}
	if small.Stdout != "here\n" {
		t.Errorf("the neighbour: %+v", small)
	}
	if got := fmt.Sprint(in.PIDs()); got != pids {
		t.Errorf("zygotes %s became %s", pids, got)
	}
}
