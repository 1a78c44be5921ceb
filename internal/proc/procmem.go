package proc

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// Tree returns the resident bytes of the process root and its descendants.
func Tree(root int) int64 {
	parent, rss := processes()
	var sum int64
	for pid, bytes := range rss {
		if descends(pid, root, parent) {
			sum += bytes
		}
	}
	return sum
}

// processes reads the parent and the resident bytes of every visible process.
func processes() (parent map[int]int, rss map[int]int64) {
	parent, rss = map[int]int{}, map[int]int64{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return parent, rss
	}
	page := int64(os.Getpagesize())
	for _, path := range stats {
		data, err := os.ReadFile(path) //nolint:gosec // a path of /proc
		if err != nil {
			continue // the process ended meanwhile
		}
		// The name in parentheses may hold anything; fields are counted after it.
		end := bytes.LastIndexByte(data, ')')
		fields := bytes.Fields(data[end+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 22 {
			continue
		}
		ppid, err1 := strconv.Atoi(string(fields[1]))
		pages, err2 := strconv.ParseInt(string(fields[21]), 10, 64)
		if err1 == nil && err2 == nil {
			parent[pid], rss[pid] = ppid, pages*page
		}
	}
	return parent, rss
}

func descends(pid, root int, parent map[int]int) bool {
	for range 64 { // deeper trees are loops of reused ids
		if pid == root {
			return true
		}
		up, ok := parent[pid]
		if !ok || up == 0 {
			return false
		}
		pid = up
	}
	return false
}

// Peak keeps the largest figure that Watch has seen, and in File, when that is
// set, over the death of the watching process.
type Peak struct {
	File  string
	bytes atomic.Int64
}

// Bytes is the largest figure so far.
func (p *Peak) Bytes() int64 { return p.bytes.Load() }

// Watch measures the tree of root every interval until ctx is done.
func (p *Peak) Watch(ctx context.Context, root int, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	p.bytes.Store(p.stored())
	for {
		if now := Tree(root); now > p.bytes.Load() {
			p.bytes.Store(now)
			p.store(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stored is the figure of the processes that watched before; what cannot be read
// counts as nothing.
func (p *Peak) stored() int64 {
	if p.File == "" {
		return 0
	}
	data, err := os.ReadFile(p.File)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (p *Peak) store(n int64) {
	if p.File != "" {
		_ = os.WriteFile(p.File, strconv.AppendInt(nil, n, 10), 0o600) // the next process then counts from its own start
	}
}
