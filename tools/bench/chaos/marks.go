package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"temper/internal/proc/failpoint"
)

// marks watches the folder in which fail points say that they were reached.
type marks struct {
	dir  string
	seen map[string]bool
}

// mark is a fail point that ended its process.
type mark struct {
	point  string
	victim string
	pid    int
	at     time.Time
}

func newMarks(dir string) *marks { return &marks{dir: dir, seen: map[string]bool{}} }

// poll returns the marks since the last call.
func (m *marks) poll() []mark {
	if m.dir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "*.json"))
	if err != nil {
		return nil // the pattern is right
	}
	var out []mark
	for _, file := range files {
		if m.seen[file] {
			continue
		}
		data, err := os.ReadFile(file) //nolint:gosec // the folder is the harness's own
		var v failpoint.Mark
		if err != nil || json.Unmarshal(data, &v) != nil {
			continue
		}
		m.seen[file] = true
		out = append(out, mark{point: string(v.Point), victim: v.Role, pid: v.PID, at: v.Time})
	}
	return out
}
