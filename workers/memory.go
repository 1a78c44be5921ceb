package workers

import (
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"temper/trainer"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/loss"
)

// limitMemory makes the Go backend refuse a step that cannot fit into the memory
// that this process may use. Other devices have separate memory. Where the
// system does not say how much memory there is, nothing is refused.
func limitMemory(c *trainer.Config, minibatches int, limit int64) {
	if name, _, _ := strings.Cut(c.Backend, ":"); name == "" || name == "go" {
		c.MemoryLimit, c.StepBytes = limit, stepBytes(*c, minibatches)
	}
}

// savedBytes is what a save copies of each parameter: its weight and two moments.
// The memory of the copy is kept for the next save.
const savedBytes = 12

// stepBytes estimates the memory of passes on the Go backend, in a step of so many
// updates, with the copy of a save beside them.
func stepBytes(of trainer.Config, minibatches int) trainer.StepBytes {
	m, l := of.Model, of.Loss
	return func(rows, length, passes int, accumulate bool) (int64, error) {
		c := estimate.Config{
			Model: m, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: rows, Length: length, Passes: passes, Remat: of.Remat, Accumulate: accumulate,
			Packed: of.Pack, Reference: l.KL.Coefficient > 0, SeveralUpdates: minibatches > 1,
			LogitsChunk: loss.ChunkSize(l.MaxLogits, rows*length, m.VocabSize),
		}
		c.Model.MaxPositionEmbeddings = max(m.MaxPositionEmbeddings, length) // rows are padded beyond it
		r, err := estimate.Estimate(c)
		return r.Peak + savedBytes*int64(m.NumParameters()), err
	}
}

// memoryLimit returns the memory in bytes that this process may use: the machine's memory,
// or the smaller limit of a control group of either version. It is 0 if the system does not
// report it. root is the file system from "/" on.
func memoryLimit(root fs.FS) int64 {
	limit := machineMemory(root)
	for _, g := range memoryGroups(root) {
		if g.limit > 0 && (limit == 0 || g.limit < limit) {
			limit = g.limit
		}
	}
	return limit
}

// availableMemory is what this process may still take, by the machine and by its control
// groups, where files in memory count as taken and pages that the kernel only caches do
// not. It is 0 where the system does not say.
func availableMemory(root fs.FS) int64 {
	free, machine := memoryField(root, "MemAvailable:"), machineMemory(root)
	for _, g := range memoryGroups(root) {
		if g.limit > 0 && g.limit < machine {
			free = min(free, g.limit-g.used+g.cached)
		}
	}
	return max(0, free)
}

// memoryGroup is the memory of a control group and all below it, in bytes; limit is 0
// where there is none.
type memoryGroup struct{ limit, used, cached int64 }

// memoryGroups are the control groups of this process, of version 2 or 1, from its own up
// to the root.
func memoryGroups(root fs.FS) []memoryGroup {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil // no control groups
	}
	var out []memoryGroup
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // id:controllers:path
		if len(parts) != 3 || parts[1] != "" && parts[1] != "memory" {
			continue
		}
		mount, limit, used, cached := "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		if parts[1] == "memory" {
			mount, limit, used, cached = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			at := path.Join(mount, dir)
			out = append(out, memoryGroup{
				limit: readBytes(root, path.Join(at, limit)), used: readBytes(root, path.Join(at, used)),
				cached: fieldOf(root, path.Join(at, "memory.stat"), cached, 1),
			})
			if dir == "/" {
				break
			}
		}
	}
	return out
}

// machineMemory is the memory of the machine, 0 where the system does not say.
func machineMemory(root fs.FS) int64 { return memoryField(root, "MemTotal:") }

// memoryField reads a field of /proc/meminfo in bytes; 0 for none.
func memoryField(root fs.FS, name string) int64 { return fieldOf(root, "proc/meminfo", name, 1<<10) }

// fieldOf reads a number behind a name in a file of lines, in a unit; 0 for none.
func fieldOf(root fs.FS, file, name string, unit int64) int64 {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0
		}
		return n * unit
	}
	return 0
}

// readBytes reads a file of one number; 0 for "max", a missing file and anything else.
func readBytes(root fs.FS, name string) int64 {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
