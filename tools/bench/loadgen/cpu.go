package loadgen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"temper/tools/bench/meter"
)

// CPU names the process trees and cgroups whose processor time is that of a
// service. The zero value measures nothing.
//
// A tree counts each process with the children that it has waited for. Only a
// cgroup sees what leaves a tree: a child of a process that ignores SIGCHLD, a
// daemon, a helper that was started elsewhere.
type CPU struct {
	PIDs    []int
	Cgroups []string
	// Own is true for what this process does itself: its own time, the load's among
	// it, and that of the children that it has waited for.
	Own bool
}

// ParseCPU reads a list of process ids and of cgroup folders.
func ParseCPU(list []string) (CPU, error) {
	var c CPU
	for _, item := range list {
		if strings.HasPrefix(item, "/") {
			c.Cgroups = append(c.Cgroups, item)
			continue
		}
		pid, err := strconv.Atoi(item)
		if err != nil || pid < 1 {
			return CPU{}, fmt.Errorf("%q is neither a process id nor the absolute path of a cgroup", item)
		}
		c.PIDs = append(c.PIDs, pid)
	}
	if _, err := c.Used(); err != nil {
		return CPU{}, err
	}
	return c, nil
}

// Known is true when there is something to measure.
func (c CPU) Known() bool { return c.Own || len(c.PIDs)+len(c.Cgroups) > 0 }

// Used is the processor time so far.
func (c CPU) Used() (time.Duration, error) {
	var sum time.Duration
	if c.Own {
		sum = meter.OwnCPU() + meter.ChildrenCPU()
	}
	if len(c.PIDs) > 0 {
		all := meter.Processes()
		for _, pid := range c.PIDs {
			members := meter.Tree(all, pid)
			if len(members) == 0 {
				return 0, fmt.Errorf("processor time of process %d: no such process", pid)
			}
			for _, p := range members {
				sum += p.CPU
			}
		}
	}
	for _, dir := range c.Cgroups {
		used, err := cgroupCPU(dir)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// cgroupCPU reads cpuacct.usage of version 1 or cpu.stat of version 2.
func cgroupCPU(dir string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")) //nolint:gosec // the caller names it
	if err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(ns), err
	}
	text, err = os.ReadFile(filepath.Join(dir, "cpu.stat")) //nolint:gosec // the caller names it
	if err != nil {
		return 0, fmt.Errorf("processor time of cgroup %s: neither cpuacct.usage nor cpu.stat", dir)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("processor time of cgroup %s: no usage_usec in cpu.stat", dir)
}

// Measure runs load on target and adds the service's processor time.
func Measure(ctx context.Context, target Target, load Load, cpu CPU) (Figures, error) {
	before, err := cpu.Used()
	if err != nil {
		return Figures{}, err
	}
	f, err := Run(ctx, target, load)
	if err != nil {
		return f, err
	}
	after, err := cpu.Used()
	if good := f.Calls - f.Failed; err == nil && good > 0 {
		f.CPU = (after - before) / time.Duration(good)
	}
	return f, err
}

// Quiet waits until the service uses less than a twentieth of a core, so that what
// one load leaves behind is not in the figures of the next. Without a known service
// it waits for patience, and it never waits longer.
func Quiet(ctx context.Context, cpu CPU, patience time.Duration) error {
	const look = 500 * time.Millisecond
	if !cpu.Known() {
		Rest(ctx, patience)
		return ctx.Err()
	}
	last, err := cpu.Used()
	for waited := time.Duration(0); err == nil && waited < patience; waited += look {
		Rest(ctx, look)
		var now time.Duration
		if now, err = cpu.Used(); now-last < look/20 {
			break
		}
		last = now
	}
	return errors.Join(err, ctx.Err())
}
