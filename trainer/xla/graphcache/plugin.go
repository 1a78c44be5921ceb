package graphcache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Plugin is a library that compiles programs.
type Plugin struct {
	// Library is the path of its file.
	Library string
	// Table is its table of functions. Offset returns the offset of a function in it.
	Table  unsafe.Pointer
	Offset func(function string) (uintptr, error)
}

// source is a program with everything that decides its compiled code.
type source struct {
	format        string
	code, options []byte
	device        string // of the client
}

// compiler is the part of a plugin that compileCache needs; tests replace it.
type compiler interface {
	// compile and load return a handle of the plugin, and an error of the plugin. The caller
	// owns both.
	compile() (handle, failure unsafe.Pointer)
	load(program []byte) (unsafe.Pointer, error)
	serialize(handle unsafe.Pointer) ([]byte, error)
}

// compileCache compiles or loads each program.
type compileCache struct {
	library func() (string, error) // identifies the plugin's bytes
	open    func() (*Store, error)
	log     *slog.Logger

	mu       sync.Mutex
	inFlight map[Key]chan struct{}
	silent   bool // the log has a line that nothing is kept
}

func newCompileCache(library string) *compileCache {
	return &compileCache{
		library: sync.OnceValues(func() (string, error) { return hashFile(library) }),
		open:    openDefault, log: slog.Default(), inFlight: map[Key]chan struct{}{},
	}
}

// take answers the compilation of a program. Equal programs are compiled one after another,
// so that the second one finds the entry of the first.
func (k *compileCache) take(s source, c compiler) (handle, failure unsafe.Pointer) {
	key, store := k.keyOf(s), k.store()
	if store == nil {
		return k.compile(key, nil, c)
	}
	defer k.wait(key)()
	program, err := store.Get(key)
	if err == nil {
		begin := time.Now()
		if handle, err = c.load(program); err == nil {
			took := time.Since(begin)
			counts.add(key, func(n *Counts) { n.Loaded++; n.Loading += took })
			return handle, nil
		}
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("compiled program refused, it is compiled again", "err", err)
		counts.add(key, func(n *Counts) { n.Refused++ })
	}
	return k.compile(key, store, c)
}

// compile compiles a program and stores it.
func (k *compileCache) compile(key Key, store *Store, c compiler) (handle, failure unsafe.Pointer) {
	begin := time.Now()
	if handle, failure = c.compile(); failure != nil {
		return nil, failure
	}
	took := time.Since(begin)
	counts.add(key, func(n *Counts) { n.Compiled++; n.Compiling += took })
	if store == nil {
		return handle, nil
	}
	program, err := c.serialize(handle)
	if err == nil {
		err = store.Put(key, program)
	}
	if err != nil {
		k.warnNotKept(err)
	}
	return handle, nil
}

// store opens the folder at each program, so that a removed one is created again; nil when
// nothing is kept. A plugin with unreadable bytes has no store: it could load the programs of
// another plugin.
func (k *compileCache) store() *Store {
	_, err := k.library()
	var s *Store
	if err == nil {
		s, err = k.open()
	}
	if err != nil {
		k.warnNotKept(err)
		return nil
	}
	return s
}

// warnNotKept logs the reason once.
func (k *compileCache) warnNotKept(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.silent {
		k.log.Warn("compiled programs are not kept", "err", err)
	}
	k.silent = true
}

// wait returns when no equal program is being compiled, and marks this one.
func (k *compileCache) wait(key Key) (done func()) {
	for {
		k.mu.Lock()
		other := k.inFlight[key]
		if other == nil {
			mine := make(chan struct{})
			k.inFlight[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.inFlight, key)
				k.mu.Unlock()
				close(mine)
			}
		}
		k.mu.Unlock()
		<-other
	}
}

// keyOf returns the key of a program.
func (k *compileCache) keyOf(s source) Key {
	library, _ := k.library() // store reports the error
	parts := [][]byte{[]byte(magic), []byte(s.format), withoutName(s.code), s.options}
	for _, x := range surroundings(library, s.device) {
		parts = append(parts, []byte(x.value))
	}
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d\n", len(part))
		h.Write(part)
	}
	return Key(h.Sum(nil))
}

// flags returns XLA_FLAGS. A value without a leading dash names a file of flags, whose content
// counts.
func flags() []byte {
	value := os.Getenv("XLA_FLAGS")
	if text := strings.TrimLeft(value, " \t\r\n"); text != "" && text[0] != '-' {
		if content, err := os.ReadFile(value); err == nil { //nolint:gosec // XLA reads it, too
			return content
		}
	}
	return []byte(value)
}

// withoutName returns a program without the name of its module, which counts the graphs of the
// process and decides nothing.
func withoutName(code []byte) []byte {
	const module = "module @"
	if !bytes.HasPrefix(code, []byte(module)) {
		return code
	}
	if end := bytes.IndexAny(code[len(module):], " {\n"); end >= 0 {
		return code[len(module)+end:]
	}
	return code
}

// hostOf returns the properties of this machine that decide the machine code for a device: the
// features of the CPU, or the drivers of GPUs.
func hostOf(device string) string {
	if strings.Contains(strings.ToLower(device), "cpu") {
		return cpuFeatures()
	}
	return driversBelow("/")
}

// driversBelow returns the versions of the drivers of GPUs and of the libraries under them.
func driversBelow(root string) string {
	var out []string
	for _, name := range []string{"proc/driver/nvidia/version", "sys/module/amdgpu/version", "sys/module/amdgpu/srcversion", "opt/rocm/.info/version"} {
		if text, err := os.ReadFile(filepath.Join(root, name)); err == nil { //nolint:gosec // fixed names
			out = append(out, name+": "+string(text))
		}
	}
	return strings.Join(out, "\n")
}

// cpuFeatures returns model and features of the first processor.
var cpuFeatures = sync.OnceValue(func() string { //nolint:gochecknoglobals // of the machine
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }() // only read
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; {
		key, _, _ := strings.Cut(lines.Text(), "\t")
		switch strings.TrimSpace(key) {
		case "vendor_id", "cpu family", "model", "stepping", "flags", "Features":
			out = append(out, lines.Text())
		}
	}
	return strings.Join(out, "\n")
})

// hashFile returns the SHA-256 of a file.
func hashFile(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the library that this process has loaded
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
