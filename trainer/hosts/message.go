package hosts

import (
	"fmt"

	"temper/internal/config"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/packing"
	"temper/trainer/passes"
	"temper/trainer/qwen3"
)

// protocol is the number of the form of messages.
const protocol = 1

// kind says what a message means.
type kind string

// The kinds, with who sends them.
const (
	kindHello   kind = "hello"   // member: who it is
	kindWelcome kind = "welcome" // hub: its rank
	kindRefused kind = "refused" // hub: why it may not join
	kindSetup   kind = "setup"   // hub: the settings of a run's trainer
	kindWeights kind = "weights" // hub: the weights, one tensor each
	kindReady   kind = "ready"   // member: it has done what the number of the message asked
	kindPass    kind = "pass"    // hub: make a pass over these inputs
	kindResult  kind = "result"  // member: what the pass yields
	kindFailed  kind = "failed"  // member: why it could not
	kindBeat    kind = "beat"    // both: I live
)

// message is what a frame says; which fields count depends on the kind.
type message struct {
	Kind kind `json:"kind"`
	// Seq numbers what the hub asks; the answer has the same number.
	Seq uint64 `json:"seq,omitempty"`
	// Reason of refused and failed.
	Reason string `json:"reason,omitempty"`

	Hello   *hello         `json:"hello,omitempty"`
	Rank    int            `json:"rank,omitempty"`
	Setup   *setup         `json:"setup,omitempty"`
	Trained []string       `json:"trained,omitempty"`
	Pass    passes.Program `json:"pass"`
	// Shape is that of the pass.
	Shape packing.Shape `json:"shape"`
	Parts []part        `json:"parts,omitempty"`
}

// hello is how a member introduces itself.
type hello struct {
	Protocol int    `json:"protocol"`
	Token    string `json:"token,omitempty"`
	Identity
}

// Identity is what decides the bits of a process and how much it can do.
type Identity struct {
	// Name is for people.
	Name string `json:"name"`
	// Build and Backend must be those of the hub.
	Build   string `json:"build"`
	Backend string `json:"backend"`
	// Lanes is how many passes it makes at a time; a hub has none.
	Lanes int `json:"lanes,omitempty"`
}

// setup are the settings of a run's trainer, and whose it is.
type setup struct {
	Run string `json:"run"`
	// Epoch of the lease with which the trainer holds the run.
	Epoch int64 `json:"epoch"`
	// Kernels are those of the hub under the run's choice, and Device is what decides bits
	// on a device that is not the Go backend; see device.Bits.
	Kernels     kernels.Kernels `json:"kernels"`
	Device      string          `json:"device,omitempty"`
	Network     qwen3.Config    `json:"network"`
	Options     qwen3.Options   `json:"options"`
	Loss        config.Loss     `json:"loss"`
	Entropies   bool            `json:"entropies,omitempty"`
	Temperature float64         `json:"temperature"`
}

func setupOf(run string, epoch int64, c passes.Config) (*setup, error) {
	bits, err := device.Bits(c.Backend)
	if err != nil {
		return nil, err
	}
	return &setup{
		Run: run, Epoch: epoch, Kernels: kernels.Describe(c.Kernels), Device: bits,
		Network: c.Network, Options: c.Options, Loss: c.Loss, Entropies: c.Entropies, Temperature: c.Temperature,
	}, nil
}

// config are the settings for the passes of a member.
func (s setup) config(backend string) passes.Config {
	return passes.Config{
		Backend: backend, Kernels: s.Kernels.Choice, Network: s.Network, Options: s.Options, Loss: s.Loss, Entropies: s.Entropies, Temperature: s.Temperature,
	}
}

// maxBytes bounds the tensors of a frame for a network: its weights, or the inputs of a
// pass over long rows.
func maxBytes(network qwen3.Config) int64 { return 4*int64(network.NumParameters()) + 1<<28 }

// refuse says why a member may not work with a hub; "" where it may.
func (h hello) refuse(hub Identity) string {
	switch {
	case h.Protocol != protocol:
		return fmt.Sprintf("protocol %d, the trainer speaks %d: start the same temper on all hosts", h.Protocol, protocol)
	case h.Build != hub.Build:
		return fmt.Sprintf("build %s, the trainer is %s: start the same temper on all hosts", h.Build, hub.Build)
	case h.Backend != hub.Backend:
		return fmt.Sprintf("backend %s, the trainer computes on %s", h.Backend, hub.Backend)
	case h.Lanes < 1 || h.Lanes > maxLanes:
		return fmt.Sprintf("%d lanes, want 1 to %d", h.Lanes, maxLanes)
	}
	return ""
}

// maxLanes bounds what a member claims to do at a time.
const maxLanes = 1024
