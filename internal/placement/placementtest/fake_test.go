package placementtest_test

import (
	"errors"
	"testing"

	"temper/internal/placement"
	"temper/internal/placement/placementtest"
)

func TestFake(t *testing.T) {
	placementtest.Run(t, func(*testing.T) placementtest.Subject {
		f := placementtest.NewFake(placementtest.GPUNodes(3)...)
		f.AddService("sandbox", 1, 1, 3)
		return placementtest.Subject{Backend: f, Each: placement.Resources{Cores: 8, Devices: map[string]int{"amd/gpu": 8}}, Pool: "gpu", NumNodes: 3, Scaled: "sandbox"}
	})
}

// TestFakeFlaws: tests of what goes wrong rely on it.
func TestFakeFlaws(t *testing.T) {
	f := placementtest.NewFake(placementtest.GPUNodes(2)...)
	s := placementtest.Subject{Backend: f, Each: placement.Resources{Devices: map[string]int{"amd/gpu": 8}}}
	f.Flaw(placementtest.Flaws{LoseAnswers: 1})
	job := s.Job("a", 1, 1)
	if _, err := f.Start(t.Context(), job, 0); !errors.Is(err, placement.ErrUnavailable) {
		t.Fatalf("start whose answer is lost: %v", err)
	}
	if _, err := f.Start(t.Context(), job, 0); err != nil {
		t.Errorf("its repetition: %v", err)
	}
	state, err := f.Job(t.Context(), job.ID)
	if err != nil || state.Running() != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	lost := state.Instances[0]
	f.LoseNode(lost.Node)
	if state, _ = f.Job(t.Context(), job.ID); state.Running() != 1 || len(state.Instances) != 2 {
		t.Errorf("after the loss %+v, want the lost instance and its replacement", state)
	}
	if m, err := f.Instance(t.Context(), lost.ID); err != nil || m.State != placement.InstanceLost || m.Current() {
		t.Errorf("lost instance %+v, %v", m, err)
	}
	f.ReturnNode(lost.Node)
	f.Flaw(placementtest.Flaws{SlowStop: true})
	if err := f.Stop(t.Context(), job.ID, 1); err != nil {
		t.Fatal(err)
	}
	free := func() (n int) {
		nodes, err := f.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range nodes {
			if node.Free.Holds(s.Each) {
				n++
			}
		}
		return n
	}
	if got := free(); got != 1 {
		t.Errorf("%d nodes free while an instance ends, want 1", got)
	}
	f.EndMembers()
	if got := free(); got != 2 {
		t.Errorf("%d nodes free, want 2", got)
	}
	f.Flaw(placementtest.Flaws{Away: true})
	if _, err := f.Nodes(t.Context()); !errors.Is(err, placement.ErrUnavailable) {
		t.Errorf("a cluster that is away: %v", err)
	}
}
