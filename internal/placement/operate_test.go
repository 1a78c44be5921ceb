package placement_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"temper/internal/placement"
	"temper/internal/placement/placementtest"
)

func gangOf(run string, epoch, engines int) placement.Decision {
	whole := map[string]int{"amd/gpu": 8}
	spec := placement.Spec{Trainer: &placement.Group{Count: 1, Devices: whole}, Engine: &placement.Group{Count: engines, Devices: whole}}
	return placement.Decision{Do: placement.Start, Run: run, Epoch: epoch, Jobs: spec.Jobs(run, epoch, 3)}
}

// TestStartAllOrNothing, also when answers are lost on the way.
func TestStartAllOrNothing(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(3)...)
	s := &placement.Service{Backend: f}
	f.Flaw(placementtest.Flaws{LoseAnswers: 1})
	if _, err := s.Start(t.Context(), gangOf("a", 1, 1)); err == nil {
		t.Fatal("a lost answer is no error that is retried")
	}
	if out, err := s.Start(t.Context(), gangOf("a", 1, 1)); err != nil || out.Refused != "" {
		t.Fatalf("%+v, %v", out, err)
	}
	out, err := s.Start(t.Context(), gangOf("b", 1, 1))
	if err != nil || !strings.Contains(out.Refused, "no room for job engine-b") {
		t.Fatalf("%+v, %v", out, err)
	}
	nodes, err := f.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		for _, m := range n.Instances {
			if strings.HasSuffix(m.Job, "-b") {
				t.Errorf("half a gang is left: %+v", m)
			}
		}
	}
	if out, err := s.Stop(t.Context(), gangOf("a", 1, 1)); err != nil || out.Refused != "" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := s.Start(t.Context(), gangOf("b", 1, 2)); err != nil || out.Refused != "" {
		t.Errorf("after a has left: %+v, %v", out, err)
	}
}

// TestObserve leaves out what the caller knows.
func TestObserve(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(2)...)
	s := &placement.Service{
		Backend: f,
		Loads:   func(context.Context) []placement.Load { return []placement.Load{{Job: "sandbox", Busy: 3}} },
		Runs: func(_ context.Context, holders []string) (open, ended []string, err error) {
			return []string{"rl/a", "rl/b"}, holders, nil
		},
	}
	first, err := s.Observe(t.Context(), placement.ObserveInput{FindRuns: true, Holders: []string{"rl/x"}})
	if err != nil || len(first.Nodes) != 2 || first.Settings == nil || len(first.Open) != 2 || len(first.Ended) != 1 || first.Loads[0].Busy != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := s.Observe(t.Context(), placement.ObserveInput{Known: first.Digest})
	if err != nil || again.Nodes != nil || again.Settings != nil || again.Open != nil || again.Digest != first.Digest {
		t.Errorf("unchanged: %+v, %v", again, err)
	}
	f.LoseNode("node-001")
	if changed, err := s.Observe(t.Context(), placement.ObserveInput{Known: first.Digest}); err != nil || len(changed.Nodes) != 2 {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	f.Flaw(placementtest.Flaws{Away: true})
	if _, err := s.Observe(t.Context(), placement.ObserveInput{}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("away: %v", err)
	}
}

// TestRefusals are outcomes, so that nobody repeats them for ever.
func TestRefusals(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(1)...)
	f.AddService("sandbox", 1, 1, 3)
	s := &placement.Service{Backend: f}
	for _, to := range []placement.Scaling{{Job: "nobody"}, {Job: "sandbox", From: 1, To: 9}, {Job: "sandbox", From: 2, To: 3}} {
		if out, err := s.Scale(t.Context(), to); err != nil || out.Refused == "" {
			t.Errorf("%s: %+v, %v", to, out, err)
		}
	}
	if out, err := s.Move(t.Context(), placement.Decision{Do: placement.CloseNode, Node: "nobody"}); err != nil || out.Refused == "" {
		t.Errorf("%+v, %v", out, err)
	}
	wrong := placement.Settings{Policy: placement.Policy{LossGrace: time.Millisecond}, Rules: []placement.Rule{{Job: "a", Kind: "slots", Most: 1}, {Job: "a", Kind: "slots", Most: 1}}}.Check()
	if len(wrong) != 2 {
		t.Errorf("wrong settings: %q", wrong)
	}
}
