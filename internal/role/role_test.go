package role_test

import (
	"slices"
	"testing"

	"temper/internal/role"
)

// TestTable: names are unique, a role of temper is started by its name, and each port has a label that its job uses.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range role.All() {
		if seen[r.Name] || r.Name == "" || r.Does == "" {
			t.Errorf("row %+v: want a name of its own and what it does", r)
		}
		seen[r.Name] = true
		if r.Program == "temper" && (len(r.Command) == 0 || r.Command[len(r.Command)-1] != r.Name) {
			t.Errorf("%s is started by %q, want its name", r.Name, r.Command)
		}
		if r.Job == nil {
			continue
		}
		labels := []string{""}
		for _, p := range r.Job.Ports {
			labels = append(labels, p.Label)
			if (p.Key == "") != (p.Number == 0) {
				t.Errorf("%s: port %+v: want a key and a number, or neither", r.Name, p)
			}
		}
		if !slices.Contains(labels, r.Job.Serves) || !slices.Contains(labels[1:], r.Job.CheckPort) {
			t.Errorf("%s: serves %q and is checked at %q, its ports are %q", r.Name, r.Job.Serves, r.Job.CheckPort, labels[1:])
		}
	}
	if want := []string{role.Trainer, role.Rollout, role.Engine}; !slices.Equal(role.PerRun(), want) {
		t.Errorf("runs may have %q, want %q", role.PerRun(), want)
	}
	if _, ok := role.Find("worker"); ok {
		t.Error("there is a role worker")
	}
}
