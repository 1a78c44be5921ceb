package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a line of /proc/PID/maps, or a part of its range.
type mapping struct {
	from, to uint64
	mode     string // rwxp
	name     string // name of its file; "" for anonymous memory
	kind     string // [heap], [stack] and the like
}

// freshKind marks new memory of the target in place of a mapping of the source.
const freshKind = "fresh"

func (m *mapping) shared() bool { return m.mode[3] == 's' }

// special reports whether a mapping belongs to the Linux kernel; those are equal
// everywhere.
func (m *mapping) special() bool { return strings.HasPrefix(m.kind, "[v") }

func (m *mapping) protection() uint64 {
	var p uint64
	for i, bit := range []uint64{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if m.mode[i] != '-' {
			p |= bit
		}
	}
	return p
}

func (t *tracee) mappings() ([]mapping, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return nil, err
	}
	var all []mapping
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("maps: %q", line)
		}
		from, to, _ := strings.Cut(fields[0], "-")
		m := mapping{mode: fields[1]}
		if m.from, err = strconv.ParseUint(from, 16, 64); err == nil {
			m.to, err = strconv.ParseUint(to, 16, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		switch {
		case len(fields) > 5 && fields[5][0] == '[':
			m.kind = fields[5]
		case m.shared() && strings.HasPrefix(fields[len(fields)-2], "/memfd:call"):
			m.name = fields[2] + " the memory of the kernel" // every kernel has a separate one
		case len(fields) > 5: // with the offset in the file, since two parts may swap
			m.name = fields[2] + strings.Join(fields[3:], " ")
		}
		if all = append(all, m); len(all) > maxMappings {
			return nil, errors.New("it has too many mappings")
		}
	}
	return all, nil
}

// heapEnd returns the end of the heap of a process, or 0 without a heap.
func heapEnd(all []mapping) uint64 {
	var end uint64
	for i := range all {
		if all[i].kind == "[heap]" {
			end = max(end, all[i].to)
		}
	}
	return end
}

// remap gives the target the mappings of the source. It returns the mappings of the source
// and the ranges where the target got new memory. Mappings that the source made since its
// start become anonymous memory of the target, even if they come from a file.
func (t *tracee) remap(source *tracee) (all, fresh []mapping, err error) {
	all, err = source.mappings()
	if err != nil {
		return nil, nil, err
	}
	have, err := t.mappings()
	if err != nil {
		return nil, nil, err
	}
	if end := heapEnd(all); end != heapEnd(have) {
		if err := t.call(unix.SYS_BRK, end); err != nil {
			return nil, nil, err
		}
		if have, err = t.mappings(); err != nil {
			return nil, nil, err
		}
	}
	var at []uint64
	for _, list := range [][]mapping{all, have} {
		for i := range list {
			at = append(at, list[i].from, list[i].to)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	restWanted, restHad := all, have
	for i := range len(at) - 1 {
		from, to := at[i], at[i+1]
		want, is := covering(&restWanted, from), covering(&restHad, from)
		renewed, err := t.adjust(from, to, want, is)
		if err != nil {
			return nil, nil, err
		}
		if renewed {
			fresh = append(fresh, mapping{from: from, to: to, mode: want.mode, name: want.name, kind: freshKind})
		}
	}
	return all, fresh, nil
}

// covering returns the mapping at an address, or nil. Callers ask for rising addresses: it
// drops the mappings below at from the list.
func covering(list *[]mapping, at uint64) *mapping {
	rest := *list
	for len(rest) > 0 && rest[0].to <= at {
		rest = rest[1:]
	}
	*list = rest
	if len(rest) == 0 || rest[0].from > at {
		return nil
	}
	return &rest[0]
}

// adjust changes the target's memory between two addresses to the mapping of the source
// there. It reports whether that is fresh memory.
func (t *tracee) adjust(from, to uint64, want, is *mapping) (fresh bool, err error) {
	switch {
	case want == nil && is == nil, want != nil && want.special(), is != nil && is.special():
		return false, nil
	case want == nil:
		return false, t.call(unix.SYS_MUNMAP, from, to-from)
	case is != nil && want.name == is.name && want.shared() == is.shared():
		if want.mode == is.mode {
			return false, nil
		}
		return false, t.call(unix.SYS_MPROTECT, from, to-from, want.protection())
	case want.shared():
		return false, errors.New("it shares memory")
	}
	flags := uint64(unix.MAP_FIXED | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS)
	if want.kind == "[stack]" {
		flags |= unix.MAP_GROWSDOWN
	}
	return true, t.call(unix.SYS_MMAP, from, to-from, want.protection(), flags, ^uint64(0), 0)
}

// Bits of an entry of /proc/PID/pagemap.
const (
	pagePresent   = 1<<63 | 1<<62 // in memory or swapped out
	pageExclusive = 1 << 56
)

// copyPages copies the pages that the source has written since its start, and all its pages
// where the target has fresh memory. Two kernels share each page that neither has written.
func (t *tracee) copyPages(source *tracee, all, fresh []mapping) error {
	c := copier{from: source, to: t, left: maxCopy, size: uint64(os.Getpagesize())}
	for _, side := range []*tracee{source, t} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", side.pid))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // only read
		c.maps = append(c.maps, file)
	}
	for i := range all {
		m := &all[i]
		if m.shared() || m.special() {
			continue
		}
		written := func(a, b uint64) bool { return (a|b)&pageExclusive != 0 && (a|b)&pagePresent != 0 }
		if err := c.stretch(m, written); err != nil {
			return err
		}
	}
	for i := range fresh {
		m := &fresh[i]
		if err := c.stretch(m, func(a, _ uint64) bool { return m.name != "" || a&pagePresent != 0 }); err != nil {
			return err
		}
	}
	return c.flush()
}

// Sizes of one copy.
const (
	maxVectors = 512
	maxAtOnce  = 1 << 20
)

// copier copies pages from one process to another. It collects the pages that the target
// may write for one system call; it writes the other pages through /proc/PID/mem.
type copier struct {
	from, to *tracee
	maps     []*os.File // pagemaps of both
	left     uint64     // bytes that may still be copied
	size     uint64     // of a page
	entries  [2][]byte
	vectors  []unix.RemoteIovec
	bytes    int
	buffer   []byte
}

// stretch copies the pages of m whose pagemap entries wanted accepts.
func (c *copier) stretch(m *mapping, wanted func(a, b uint64) bool) error {
	n := (m.to - m.from) / c.size
	for i, file := range c.maps {
		c.entries[i] = slices.Grow(c.entries[i][:0], int(8*n))[:8*n]
		clear(c.entries[i])
		if _, err := file.ReadAt(c.entries[i], int64(m.from/c.size*8)); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("pages: %w", err)
		}
	}
	u64 := binary.NativeEndian.Uint64
	for i := uint64(0); i < n; i++ {
		first := i
		for i < n && wanted(u64(c.entries[0][8*i:]), u64(c.entries[1][8*i:])) {
			i++
		}
		if i == first {
			continue
		}
		from, to := m.from+first*c.size, m.from+i*c.size
		if to-from > c.left {
			return fmt.Errorf("it has written more than %d bytes", maxCopy)
		}
		c.left -= to - from
		if err := c.run(m, from, to); err != nil {
			return err
		}
	}
	return nil
}

// run copies adjacent pages, now or together with others.
func (c *copier) run(m *mapping, from, to uint64) error {
	ofFile := m.name != "" && m.kind == freshKind
	if !ofFile && m.protection() == unix.PROT_READ|unix.PROT_WRITE && to-from <= maxAtOnce/2 {
		c.vectors = append(c.vectors, unix.RemoteIovec{Base: uintptr(from), Len: int(to - from)})
		if c.bytes += int(to - from); c.bytes > maxAtOnce/2 || len(c.vectors) == maxVectors {
			return c.flush()
		}
		return nil
	}
	buffer := make([]byte, to-from)
	// A file may end before its mapping; pages behind its end cannot be read.
	n, err := c.from.mem.ReadAt(buffer, int64(from))
	if n == 0 && err != nil {
		return nil
	}
	_, err = c.to.mem.WriteAt(buffer[:n], int64(from))
	return err
}

// flush copies the collected pages.
func (c *copier) flush() error {
	if len(c.vectors) == 0 {
		return nil
	}
	c.buffer = slices.Grow(c.buffer[:0], c.bytes)[:c.bytes]
	local := []unix.Iovec{{Base: &c.buffer[0], Len: uint64(c.bytes)}}
	n, err := unix.ProcessVMReadv(c.from.pid, local, c.vectors, 0)
	if err == nil && n == c.bytes {
		n, err = unix.ProcessVMWritev(c.to.pid, local, c.vectors, 0)
	}
	if err != nil || n != c.bytes {
		return fmt.Errorf("%d of %d bytes were copied: %w", n, c.bytes, err)
	}
	c.vectors, c.bytes = c.vectors[:0], 0
	return nil
}
