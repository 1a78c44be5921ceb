package chaos

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// await waits until the process of a member is as wanted.
func await(t *testing.T, k *keeper, what string, is func(pid int) bool) int {
	t.Helper()
	for range 1000 {
		if pid := k.running(); is(pid) {
			return pid
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: not %s, process %d", k.Name, what, k.running())
	return 0
}

// TestFleetKeepsWhoIsWanted: a killed member is back, one that left stays away until
// it joins, and nobody is left at the end.
func TestFleetKeepsWhoIsWanted(t *testing.T) {
	sleep := func() (*exec.Cmd, error) { return exec.Command("sleep", "600"), nil }
	f := launch([]Member{{Name: "a", Command: sleep, Server: true}, {Name: "b", Command: sleep, Later: true}})
	a, err := f.keeper("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.keeper("b")
	if err != nil {
		t.Fatal(err)
	}
	runs := func(pid int) bool { return pid != 0 }
	first := await(t, a, "running", runs)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, a, "running again", func(pid int) bool { return pid != 0 && pid != first })
	if b.running() != 0 {
		t.Error("a member that joins later runs")
	}
	b.want(true, false)
	await(t, b, "running", runs)
	b.want(false, false)
	b.signal(syscall.SIGTERM)
	await(t, b, "gone", func(pid int) bool { return pid == 0 })
	time.Sleep(2 * restartPause)
	if b.running() != 0 {
		t.Error("a member that left is back")
	}
	b.want(true, false)
	await(t, b, "back", runs)
	f.stop()
	if a.running()+b.running() != 0 || f.broken() != nil {
		t.Errorf("after the end: %d and %d run, %v", a.running(), b.running(), f.broken())
	}
	if _, err := f.keeper("c"); err == nil {
		t.Error("a member that nobody has")
	}
}

// TestMemberThatCannotStart is an error of the harness.
func TestMemberThatCannotStart(t *testing.T) {
	f := launch([]Member{{Name: "a", Command: func() (*exec.Cmd, error) { return exec.Command("/nowhere"), nil }}})
	for range 1000 {
		if f.broken() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	f.stop()
	if f.broken() == nil {
		t.Error("no error")
	}
}
