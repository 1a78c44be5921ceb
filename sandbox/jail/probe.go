package jail

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Oldest and newest minor versions of Python 3 that the fork server is written for.
const (
	minMinor    = 9
	testedMinor = 13
)

// python describes an interpreter: where it lives and what it loads.
type python struct {
	Executable string   `json:"executable"` // after symbolic links
	Version    [3]int   `json:"version"`
	Paths      []string `json:"paths"` // sys.path with site packages
	Libraries  []string `json:"libraries"`
	Available  []string `json:"available"` // of the modules asked for
}

func (p python) version() string {
	return fmt.Sprintf("%d.%d.%d", p.Version[0], p.Version[1], p.Version[2])
}

// probeCode prints a python as JSON. It loads the extension modules that have
// libraries of their own, so that the memory map names them.
const probeCode = `
import importlib.util, json, os, site, sys
for name in ("ctypes", "ssl", "sqlite3", "zlib", "bz2", "lzma", "decimal", "uuid", "readline", "numpy"):
    try:
        __import__(name)
    except Exception:
        pass
libs = set()
try:
    for line in open("/proc/self/maps"):
        path = line.rstrip("\n").split(None, 5)[5:]
        if path and path[0].startswith("/") and ".so" in path[0]:
            libs.add(path[0])
except OSError:
    pass
def installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "version": list(sys.version_info[:3]),
    "paths": [p for p in sys.path if p],
    "libraries": sorted(libs),
    "available": [n for n in sys.argv[1:] if installed(n)],
}))
`

// findPython runs the interpreter name once and describes it; modules are looked
// for without being imported.
func findPython(ctx context.Context, name string, modules []string) (python, error) {
	if name == "" {
		name = "python3"
	}
	if _, err := exec.LookPath(name); err != nil {
		return python{}, fmt.Errorf("python interpreter %s: not found in PATH", name)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append([]string{"-I", "-B", "-c", probeCode}, modules...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return python{}, fmt.Errorf("python interpreter %s: %w: %s", name, err, lastLine(stderr.String()))
	}
	var py python
	if err := json.Unmarshal(out, &py); err != nil {
		return python{}, fmt.Errorf("python interpreter %s: unexpected answer: %w", name, err)
	}
	if py.Version[0] != 3 || py.Version[1] < minMinor {
		return python{}, fmt.Errorf("python interpreter %s: version %s is older than 3.%d", name, py.version(), minMinor)
	}
	return py, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		return text[i+1:]
	}
	return text
}

// tree is what the private root holds: directories and files of the machine,
// bound read-only, and the symbolic links on the way to them.
type tree struct {
	binds    []string
	symlinks [][2]string
}

// rootTree works out what py needs to run and to import.
func rootTree(py python) tree {
	t := &tree{}
	for _, dir := range py.Paths {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			t.add(dir)
		}
	}
	for _, lib := range py.Libraries {
		t.add(filepath.Dir(lib))
	}
	t.add(py.Executable)
	if loader, err := interpreterOf(py.Executable); err == nil {
		t.add(loader)
	}
	for _, path := range []string{"/etc/ld.so.cache", "/etc/alternatives", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"} {
		if _, err := os.Stat(path); err == nil {
			t.add(path)
		}
	}
	t.minimize()
	return *t
}

// add notes path, following its symbolic links one component at a time.
func (t *tree) add(path string) {
	for range 32 { // a chain of links is finite; a loop of links is given up
		link, target, ok := firstLink(path)
		if !ok {
			t.binds = append(t.binds, path)
			return
		}
		t.symlinks = append(t.symlinks, [2]string{link, target})
		rest := strings.TrimPrefix(path, link)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, rest)
	}
}

// firstLink finds the first component of path that is a symbolic link.
func firstLink(path string) (link, target string, ok bool) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		target, err := os.Readlink(path[:i])
		if err == nil {
			return path[:i], target, true
		}
	}
	return "", "", false
}

// minimize drops what another bind already contains, and duplicates.
func (t *tree) minimize() {
	slices.Sort(t.binds)
	t.binds = slices.Compact(t.binds)
	inside := func(path string) bool {
		return slices.ContainsFunc(t.binds, func(b string) bool {
			return b != path && strings.HasPrefix(path, b+"/")
		})
	}
	t.binds = slices.DeleteFunc(slices.Clone(t.binds), inside)
	slices.SortFunc(t.symlinks, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	t.symlinks = slices.Compact(t.symlinks)
	t.symlinks = slices.DeleteFunc(t.symlinks, func(l [2]string) bool { return inside(l[0]) })
}

// interpreterOf returns the dynamic loader that an executable names.
func interpreterOf(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written through it
	for _, prog := range file.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(name, 0); err != nil {
			return "", err
		}
		return string(bytes.TrimRight(name, "\x00")), nil
	}
	return "", errors.New("statically linked")
}
