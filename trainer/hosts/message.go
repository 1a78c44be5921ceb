package hosts

import (
	"fmt"

	"temper/internal/config"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/packing"
	"temper/trainer/passes"
)

// protocol is the number of the form of messages.
const protocol = 1

// kind is the kind of a message.
type kind string

// The kinds, with their senders.
const (
	kindHello   kind = "hello"   // host: its identity
	kindWelcome kind = "welcome" // hub: its rank
	kindRefused kind = "refused" // hub: the reason for not accepting it
	kindSetup   kind = "setup"   // hub: the settings of a run's trainer
	kindWeights kind = "weights" // hub: the weights, one tensor each
	kindReady   kind = "ready"   // host: the request with this number is done
	kindPass    kind = "pass"    // hub: make a pass over these inputs
	kindResult  kind = "result"  // host: the results of a pass
	kindFailed  kind = "failed"  // host: the reason why a request failed
	kindBeat    kind = "beat"    // both: a sign of life
)

// message is the JSON part of a frame; its kind decides which fields are set.
type message struct {
	Kind kind `json:"kind"`
	// Seq numbers the requests of the hub; an answer has the number of its request.
	Seq uint64 `json:"seq,omitempty"`
	// Reason of refused and failed.
	Reason string `json:"reason,omitempty"`

	Hello   *hello         `json:"hello,omitempty"`
	Rank    int            `json:"rank,omitempty"`
	Setup   *setup         `json:"setup,omitempty"`
	Trained []string       `json:"trained,omitempty"`
	Pass    passes.Program `json:"pass"`
	// Shape of the pass.
	Shape packing.Shape `json:"shape"`
	Parts []part        `json:"parts,omitempty"`
}

// hello is the first message of a host.
type hello struct {
	Protocol int    `json:"protocol"`
	Token    string `json:"token,omitempty"`
	Identity
}

// Identity describes a process: the properties that decide its bits, and its capacity.
type Identity struct {
	// Name is only for display.
	Name string `json:"name"`
	// Build and Backend must equal the hub's.
	Build   string `json:"build"`
	Backend string `json:"backend"`
	// Lanes is the number of concurrent passes; a hub has none.
	Lanes int `json:"lanes,omitempty"`
}

// setup holds the settings of the trainer of a run.
type setup struct {
	Run string `json:"run"`
	// Epoch of the lease with which the trainer holds the run.
	Epoch int64 `json:"epoch"`
	// Kernels of the hub under the run's choice. Device is the line of device.Bits, which
	// decides the bits of a device other than the Go backend.
	Kernels     kernels.Kernels `json:"kernels"`
	Device      string          `json:"device,omitempty"`
	Network     model.Config    `json:"network"`
	Options     graphs.Options  `json:"options"`
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

// config returns the settings for the passes of a host.
func (s setup) config(backend string) passes.Config {
	return passes.Config{
		Backend: backend, Kernels: s.Kernels.Choice, Network: s.Network, Options: s.Options, Loss: s.Loss, Entropies: s.Entropies, Temperature: s.Temperature,
	}
}

// maxBytes bounds the tensors of a frame for a network: its weights, or the inputs of a
// pass over long rows.
func maxBytes(network model.Config) int64 { return 4*int64(network.NumParameters()) + 1<<28 }

// refuse returns the reason why a host may not work for a hub, "" for none.
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

// maxLanes bounds the number of concurrent passes that a host may claim.
const maxLanes = 1024
