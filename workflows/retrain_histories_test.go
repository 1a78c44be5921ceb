//go:build integration

package workflows_test

import (
	"testing"

	"temper/workflows"
)

// TestRetrainHistories plays the shapes of a re-training; see TestHistories.
func TestRetrainHistories(t *testing.T) {
	c := dialServer(t)
	for name, data := range map[string]string{"retrain-whole": "new", "retrain-nothing": "old"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			defer serve(t, c, w)()
			r := recorder{T: t, c: c, w: w}
			id := "retrain/" + uniqueRun(t, name)
			r.awaitClosed(start(r, c, id, workflows.TypeRetrain, `{"id": "nightly", "data": ["`+data+`"]}`))
			r.keep(name, id)
			if got, want := w.count("judge"), map[string]int{"new": 1, "old": 0}[data]; got != want {
				t.Errorf("%d judgements, want %d", got, want)
			}
		})
	}
}
