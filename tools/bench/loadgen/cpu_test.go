package loadgen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"temper/tools/bench/loadgen"
)

// Processor time of children that have ended and been waited for must not vanish.
func TestCPUCountsReapedChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo spent; read x`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	used, err := loadgen.CPU{PIDs: []int{cmd.Process.Pid}}.Used()
	if err != nil || used < 30*time.Millisecond {
		t.Errorf("used %v, %v; want the time of the ended child", used, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // read fails at the end of input
	if _, err := (loadgen.CPU{PIDs: []int{cmd.Process.Pid}}).Used(); err == nil {
		t.Error("a process that is gone has processor time")
	}
}

func TestParseCPU(t *testing.T) {
	v1, v2, none := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(v1, "cpuacct.usage", "2000000000\n")
	write(v2, "cpu.stat", "nr_periods 0\nusage_usec 500000\nuser_usec 1\n")
	c, err := loadgen.ParseCPU([]string{v1, v2})
	if err != nil {
		t.Fatal(err)
	}
	if used, err := c.Used(); err != nil || used != 2500*time.Millisecond || !c.Known() {
		t.Errorf("used %v, %v; want 2.5s", used, err)
	}
	for _, bad := range []string{"x", "-3", none, "999999999"} {
		if _, err := loadgen.ParseCPU([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
