package placement_test

import (
	"testing"

	"temper/internal/placement"
)

func TestRoom(t *testing.T) {
	node := placement.Resources{Cores: 96, MemoryMiB: 1000, Devices: map[string]int{"amd/gpu/MI300X": 6, "amd/gpu/MI308X": 2}}
	ask := placement.Resources{Cores: 8, Devices: map[string]int{"amd/gpu": 7}}
	if !node.Holds(ask) || node.Holds(placement.Resources{Devices: map[string]int{"amd/gpu/MI300X": 7}}) || node.Holds(placement.Resources{MemoryMiB: 1001}) ||
		node.Holds(placement.Resources{Devices: map[string]int{"amd/g": 1}}) || node.Holds(placement.Resources{Devices: map[string]int{"nvidia/gpu": 1}}) {
		t.Error("holds what it has not, or not what it has")
	}
	left := node.Minus(ask)
	if got := left.String(); got != "1 amd/gpu/MI308X, 88 cores, 1000 MiB" {
		t.Errorf("left is %s", got)
	}
	if got := node.String(); got != "6 amd/gpu/MI300X, 2 amd/gpu/MI308X, 96 cores, 1000 MiB" {
		t.Errorf("the node has %s now", got)
	}
	if got := left.Plus(placement.Resources{Devices: map[string]int{"amd/gpu/MI300X": 6, "amd/gpu/MI308X": 1}, Cores: 8}); got.String() != node.String() {
		t.Errorf("put back: %s", got)
	}
	if got := (placement.Resources{}).String(); got != "nothing" {
		t.Errorf("nothing is %q", got)
	}
}

func TestScalingString(t *testing.T) {
	s := placement.Scaling{Job: "sandbox", From: 1, To: 3, Reason: "1.4 of 0.7 wanted", Figures: map[string]float64{"slots": 8, "busy": 8, "waiting": 3}}
	if got, want := s.String(), "sandbox 1 -> 3: 1.4 of 0.7 wanted (busy=8, slots=8, waiting=3)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
