// Package failpoint kills this process at a named point of the code, so that
// tests and the chaos harness can ask what a crash there leaves behind. Which
// points are armed is decided once, by the environment; in a service that names
// none, Hit is one atomic load.
//
// TEMPER_FAILPOINTS lists the armed points, separated by commas:
//
//	checkpoint/before-manifest=kill     at the first hit
//	sampling/after-group=kill@3         at the third hit in one process
//
// TEMPER_FAILPOINTS_DIR is the folder in which a point leaves <name>.json before
// it kills. A point whose file is there does not kill again: a service that was
// restarted passes it.
package failpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Environment variables; see the package comment.
const (
	EnvPoints = "TEMPER_FAILPOINTS"
	EnvDir    = "TEMPER_FAILPOINTS_DIR"
)

// point is an armed fail point.
type point struct {
	name Point
	at   int64 // hit that kills, from 1
	hits atomic.Int64
}

// table is the armed points of a process.
type table struct {
	dir    string
	points map[Point]*point
	// die ends the process; it does not return.
	die func()
}

// armed is the table of this process, nil when no point is armed.
var armed = sync.OnceValue(func() *table {
	points := os.Getenv(EnvPoints)
	if points == "" {
		return nil
	}
	t, err := parse(points, os.Getenv(EnvDir))
	if err != nil {
		panic(err) // Check tells it in one line before any role starts
	}
	return t
})

// Hit kills this process when the point is armed and it is its turn.
func Hit(name Point) {
	if t := armed(); t != nil {
		t.hit(name)
	}
}

// Check reports what is wrong with the environment, all at once.
func Check() error {
	_, err := parse(os.Getenv(EnvPoints), os.Getenv(EnvDir))
	return err
}

func parse(points, dir string) (*table, error) {
	t := &table{dir: dir, points: map[Point]*point{}, die: die}
	if points == "" {
		return t, nil
	}
	var wrong []error
	if dir == "" {
		wrong = append(wrong, fmt.Errorf("%s is not set: name the folder in which points leave their marks", EnvDir))
	}
	for _, text := range strings.Split(points, ",") {
		p, err := parsePoint(text)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		t.points[p.name] = p
	}
	return t, errors.Join(wrong...)
}

func parsePoint(text string) (*point, error) {
	name, action, ok := strings.Cut(strings.TrimSpace(text), "=")
	if _, known := Points()[Point(name)]; !known {
		return nil, fmt.Errorf("%s: no fail point %q", EnvPoints, name)
	}
	action, count, counted := strings.Cut(action, "@")
	at := int64(1)
	if counted {
		var err error
		if at, err = strconv.ParseInt(count, 10, 64); err != nil || at < 1 {
			return nil, fmt.Errorf("%s: %s: %q is no number of a hit, want 1 or more", EnvPoints, name, count)
		}
	}
	if !ok || action != "kill" {
		return nil, fmt.Errorf("%s: %q: want %s=kill or %s=kill@N", EnvPoints, text, name, name)
	}
	return &point{name: Point(name), at: at}, nil
}

func (t *table) hit(name Point) {
	p := t.points[name]
	if p == nil || p.hits.Add(1) < p.at {
		return
	}
	if t.mark(p) {
		t.die()
	}
}

// Mark is the trace of a point that was hit.
type Mark struct {
	Point Point     `json:"point"`
	Role  string    `json:"role"` // first argument of the process
	PID   int       `json:"pid"`
	Time  time.Time `json:"time"`
}

// mark reports whether this process is the first at the point, and so is to die.
func (t *table) mark(p *point) bool {
	m := Mark{Point: p.name, PID: os.Getpid(), Time: time.Now()}
	if len(os.Args) > 1 {
		m.Role = os.Args[1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers
	}
	f, err := os.OpenFile(markPath(t.dir, p.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false
	}
	if err != nil {
		panic(fmt.Errorf("fail point %s: %w", p.name, err))
	}
	if _, err := f.Write(data); err != nil {
		panic(fmt.Errorf("fail point %s: %w", p.name, err))
	}
	_ = f.Close() // what was written stays when the process dies
	return true
}

func markPath(dir string, name Point) string {
	return filepath.Join(dir, strings.ReplaceAll(string(name), "/", ".")+".json")
}

// Reached reports whether a point has left its mark in a folder.
func Reached(dir string, name Point) bool {
	_, err := os.Stat(markPath(dir, name))
	return err == nil
}

// die is kill -9: nothing of this process runs after it.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // cannot fail for one's own process
	select {}
}
