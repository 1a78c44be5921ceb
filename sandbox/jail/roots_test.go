package jail_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// environment is a virtual environment in somebody's home, into which a project was
// installed with a path file and another one with an import hook.
type environment struct {
	python            string
	project, editable string
}

func newEnvironment(t *testing.T) environment {
	t.Helper()
	home := filepath.Join(t.TempDir(), "alice")
	e := environment{
		python:  filepath.Join(home, "work", ".venv", "bin", "python3"),
		project: filepath.Join(home, "work", "project"), editable: filepath.Join(home, "work", "editable"),
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-I", "-c",
		"import os, sys; print(os.path.realpath(sys.executable), 'python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	base, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	site := filepath.Join(home, "work", ".venv", "lib", version, "site-packages")
	for path, text := range map[string]string{
		e.project + "/proj.py":       "",
		e.project + "/.env":          "SECRET",
		e.project + "/.git/config":   "SECRET",
		e.editable + "/other.py":     "",
		site + "/proj.pth":           e.project + "\n",
		site + "/__editable__.x.pth": "import __editable___x_finder\n",
		site + "/__editable___x_finder.py": "import sys\nMAPPING = {'other': '" + e.editable + "'}\n" +
			"class Finder:\n    def find_spec(*_): return None\nsys.meta_path.append(Finder)\n",
		site + "/installed/__init__.py":                      "",
		site + "/installed/.env":                             "SECRET",
		site + "/installed/.git/config":                      "SECRET",
		site + "/installed/.libs/lib.so":                     "library",
		filepath.Join(home, "work", ".venv") + "/pyvenv.cfg": "home = " + filepath.Dir(base) + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(e.python), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, e.python); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestOnlyTheInstallationIsInside: folders that path files and editable installs name
// are left out and named in the report, dot files among packages are hidden, and no
// path inside names the user in whose home the interpreter is.
func TestOnlyTheInstallationIsInside(t *testing.T) {
	e := newEnvironment(t)
	j, in := open(t, jail.Config{Python: e.python})
	needLayer(t, j, "root")
	if diff := cmp.Diff([]string{e.editable, e.project}, j.Report().LeftOut); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if lines := j.Report().Hidden(); len(lines) != 2 || !strings.Contains(lines[1], "pip install "+e.project) {
		t.Errorf("for the operator: %q", lines)
	}
	res := run(t, in, sandbox.Request{Code: `import os, sys, sysconfig
import installed
for name in ('proj', 'other'):
    try: __import__(name); print('imported', name)
    except ImportError: pass
here = os.path.dirname(installed.__file__)
print(here[here.rindex('/') + 1:], open(here + '/.libs/lib.so').read())
for name in ('.env', '.git/config'):
    try: print(repr(open(here + '/' + name).read()))
    except OSError as e: print(e.errno in (2, 13))
names = [name for top, dirs, files in os.walk('/') for name in dirs + files]
print('alice' in names, 'project' in names, 'proj.py' in names)
print([p for p in sys.path + [sys.executable, sys.prefix, os.__file__] + list(sysconfig.get_paths().values()) if 'alice' in p])`})
	want := "installed library\nTrue\nTrue\nFalse False False\n[]\n"
	if res.Stdout != want {
		t.Errorf("got %q %s, want %q", res.Stdout, res.Stderr, want)
	}
}

// TestInterpreterOfAUserIsShownElsewhere: the folder in which an interpreter was built
// does not show, and what is compiled into it still works.
func TestInterpreterOfAUserIsShownElsewhere(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := exec.CommandContext(t.Context(), python, "-I", "-c", "import sys; print(sys.base_prefix, end='')").Output()
	if err != nil {
		t.Fatal(err)
	}
	j, in := open(t, jail.Config{Python: python})
	needLayer(t, j, "root")
	res := run(t, in, sandbox.Request{Code: "import os, sys, ctypes, decimal, unicodedata\nprint(sys.prefix, sorted(os.listdir('/')))"})
	shown, _, _ := strings.Cut(res.Stdout, " ")
	system := strings.HasPrefix(string(prefix), "/usr")
	if system != (shown == string(prefix)) || strings.Contains(res.Stdout, "root") || strings.Contains(res.Stdout, "home") {
		t.Errorf("an interpreter of %s is shown as %s %s", prefix, res.Stdout, res.Stderr)
	}
}
