package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"temper/internal/inference"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// directory is a source that counts how often it was closed.
type directory struct {
	find   tensor.Lookup
	closed int
}

func (d *directory) Stored(name string) (tensor.Stored, error) {
	t, ok := d.find(name)
	if !ok {
		return t, fmt.Errorf("no %s here", name)
	}
	return t, nil
}

func (d *directory) Close() error {
	d.closed++
	return nil
}

// TestLoadFromEqualsLoadTensors: a source gives what its values give, and is closed once,
// also where its weights are refused.
func TestLoadFromEqualsLoadTensors(t *testing.T) {
	cfg := ci()
	weights, err := model.InitialTensors(cfg, 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, graph := range []bool{false, true} {
		e := start(t, engine.Config{Model: cfg, Slots: 2, Graph: graph})
		if err := e.LoadTensors(t.Context(), weights, 7); err != nil {
			t.Fatal(err)
		}
		req := inference.Request{Tokens: prompt(1, 20), MaxTokens: 12, Temperature: 1, Seed: 5, Version: -1}
		want := generate(t, e, req)
		d := &directory{find: tensor.StoredByName(weights)}
		if err := e.LoadFrom(t.Context(), d, 8); err != nil {
			t.Fatal(err)
		}
		got := generate(t, e, req)
		want.Version = got.Version
		bitEqual(t, fmt.Sprintf("weights of a source, graph %v", graph), got, want)
		broken := &directory{find: func(string) (tensor.Stored, bool) { return tensor.Stored{}, false }}
		if err := e.LoadFrom(t.Context(), broken, 9); err == nil || !strings.Contains(err.Error(), "no lm_head.weight here") && !strings.Contains(err.Error(), "no model.norm.weight here") {
			t.Errorf("error %v, want all weights that are missing", err)
		}
		old := &directory{find: d.find}
		if err := e.LoadFrom(t.Context(), old, 8); err != nil && !errors.Is(err, inference.ErrStaleVersion) {
			t.Errorf("the version that is served: %v", err)
		}
		e.Close()
		for name, s := range map[string]*directory{"source": d, "broken source": broken, "source of the version that is served": old} {
			if s.closed != 1 {
				t.Errorf("graph %v: the %s was closed %d times", graph, name, s.closed)
			}
		}
	}
}
