package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"temper/internal/proc"
)

// spin uses the processor for so long.
func spin(t *testing.T, d time.Duration) {
	t.Helper()
	for begun, span := time.Now(), proc.NewMeter(0).Begin(); span.End().Process < d; {
		if time.Since(begun) > time.Minute {
			t.Fatal("no processor time within a minute")
		}
	}
}

// TestASpanCountsThisProcessAndTheMachine: all cores together worked or were idle for as
// long as the span lasted. The bounds are wide: a hypervisor takes its part.
func TestASpanCountsThisProcessAndTheMachine(t *testing.T) {
	span := proc.NewMeter(0).Begin()
	spin(t, 300*time.Millisecond)
	got := span.End()
	if got.Process < 300*time.Millisecond || got.Process > time.Duration(got.Cores)*got.Wall {
		t.Errorf("the process took %v of %v on %d cores, want at least what it has spun", got.Process, got.Wall, got.Cores)
	}
	if got.Machine < 250*time.Millisecond {
		t.Errorf("the machine took %v, and this process alone %v", got.Machine, got.Process)
	}
	if all, most := got.Machine+got.Idle, time.Duration(got.Cores)*(got.Wall+50*time.Millisecond); all > most {
		t.Errorf("%v of work and %v idle in %v of %d cores", got.Machine, got.Idle, got.Wall, got.Cores)
	}
	if got.Worker == "" || got.Sandbox != 0 {
		t.Errorf("span %+v", got)
	}
}

// TestASpanCountsTheSandbox of the supervisor, with children that have ended, and no other
// child.
func TestASpanCountsTheSandbox(t *testing.T) {
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy.sh")
	const work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
	if err := os.WriteFile(busy, []byte("/bin/sh -c '"+work+"'\necho done\nread wait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func(name string) (end func()) {
		// The first word after the program is the role.
		if err := os.Symlink(busy, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", name)
		cmd.Dir = dir
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil || inErr != nil || outErr != nil {
			t.Fatal(err, inErr, outErr)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	span := proc.NewMeter(os.Getpid()).Begin()
	endOther := begin("trainer")
	defer endOther()
	if got := span.End().Sandbox; got != 0 {
		t.Errorf("%v of a sandbox that there is not", got)
	}
	end := begin("sandbox")
	defer end()
	if got := span.End().Sandbox; got < 20*time.Millisecond {
		t.Errorf("the sandbox took %v, want the time of its program", got)
	}
}

func TestNoMeterMeasuresNothing(t *testing.T) {
	var m *proc.Meter
	if got := m.Begin().End(); got != nil {
		t.Errorf("measured %+v", got)
	}
}
