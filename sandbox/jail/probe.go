package jail

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Oldest and newest supported minor versions of Python 3.
const (
	minMinor    = 9
	testedMinor = 13
)

// python describes an interpreter: where it is installed and what it loads.
type python struct {
	Executable string   `json:"executable"` // after symbolic links
	Version    [3]int   `json:"version"`
	Prefixes   []string `json:"prefixes"` // where it and its environment are installed
	Paths      []string `json:"paths"`    // the part of sys.path that belongs to the installation
	Packages   []string `json:"packages"` // folders of Paths with installed packages
	LeftOut    []string `json:"left_out"` // the rest of sys.path, and the targets of import hooks
	Libraries  []string `json:"libraries"`
	Available  []string `json:"available"` // requested modules that are installed
}

func (p python) version() string {
	return fmt.Sprintf("%d.%d.%d", p.Version[0], p.Version[1], p.Version[2])
}

// probeCode prints a python as JSON. It keeps the installed part of the path: the standard
// library and the folders that installers write to. Path files and editable installs would
// add whole project folders. It loads the extension modules that come with shared
// libraries, so that the memory map names those.
const probeCode = `
import importlib.util, json, os, site, sys, sysconfig
real = os.path.realpath
prefixes = [sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix]
library = {sysconfig.get_path(n) for n in ("stdlib", "platstdlib")}
packages = {sysconfig.get_path(n) for n in ("purelib", "platlib")} | set(site.getsitepackages(prefixes))
def below(path, roots):
    return any((real(path) + "/").startswith(real(r) + "/") for r in roots if r)
paths, left = [], []
for p in filter(None, sys.path):
    if below(p, library | packages):
        paths.append(p)
    elif os.path.isdir(p):
        left.append(p)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        left += [str(p) for p in getattr(module, "MAPPING", {}).values()]
sys.path[:] = paths
sys.meta_path[:] = [f for f in sys.meta_path if "__editable__" not in (getattr(f, "__module__", None) or "")]
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
    "executable": real(sys.executable),
    "version": list(sys.version_info[:3]),
    "prefixes": prefixes,
    "paths": paths,
    "packages": [p for p in paths if below(p, packages - library)],
    "left_out": sorted(set(left)),
    "libraries": sorted(libs),
    "available": [n for n in sys.argv[1:] if installed(n)],
}))
`

// findPython runs the interpreter name once and describes it. It looks for modules without
// importing them.
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
