package plugin

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Backend is a backend of this program or a plugin on this machine.
type Backend struct {
	Name    string   `json:"name"`
	Build   string   `json:"build"`
	Path    string   `json:"path,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Backends lists the Go backend, the installed plugins, and plugins that could be installed.
func Backends() []Backend {
	out := []Backend{{Name: "go", Build: "in this program"}}
	seen := map[string]bool{}
	for _, p := range List() {
		seen[p.Name] = true
		b := Backend{Name: "xla:" + p.Name, Build: "of unknown origin", Path: p.Path}
		pin, pinned := PinOf(p.Name)
		if in, err := Describe(p.Path); err == nil {
			b.Build = in.Package + " " + in.Version
			if pinned == nil && in.WheelSHA256 != pin.SHA256 {
				b.Build += ", not the one that this program was tried with (" + pin.Package + " " + pin.Version + ")"
			}
			if Verify(p.Path) != nil {
				b.Build += ", changed since it was installed: install it again"
			}
		}
		if needs, err := Needs(p.Path, pin.Opened); err != nil {
			b.Build += ", " + err.Error()
		} else {
			b.Missing = Missing(needs)
		}
		out = append(out, b)
	}
	for _, name := range Names() {
		if !seen[name] {
			out = append(out, Backend{Name: "xla:" + name, Build: "not installed (temper backend install " + name + ")"})
		}
	}
	return out
}

// PrintBackends prints backends as a table.
func PrintBackends(out io.Writer, all []Backend) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BACKEND\tBUILD\tMISSING\tPATH")
	for _, b := range all {
		missing := "-"
		if len(b.Missing) > 0 {
			missing = strings.Join(b.Missing, ",")
		}
		path := b.Path
		if path == "" {
			path = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, b.Build, missing, path)
	}
	return w.Flush()
}

// PrintNeeds lists libraries of the system, one to a line.
func PrintNeeds(out io.Writer, needs []Library) {
	for _, l := range needs {
		where := l.Path
		if where == "" {
			where = "MISSING"
		}
		if l.By != "" && l.Path != "" {
			continue // the system resolves the needs of its libraries, if it has them
		}
		if l.Opened {
			where += " (opened when it works)"
		}
		if l.By != "" {
			where += " (for " + l.By + ")"
		}
		fmt.Fprintf(out, "  needs %-32s %s\n", l.Name, where)
	}
}

// BackendName is the shortest name under which a plugin is found.
func BackendName(name, path string) string {
	if found, err := Find(name); err == nil && found == path {
		return "xla:" + name
	}
	return "xla:" + path
}
