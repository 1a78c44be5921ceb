package devicebench

import (
	"fmt"
	"slices"

	"temper/trainer/device"
)

// Size says how large the measured networks are.
type Size string

// The sizes. Small is for a CPU, where what is tried is the instrument itself.
const (
	Small Size = "small"
	Large Size = "large"
)

// Cases are the measurements on a backend that drives so many devices.
func Cases(backend string, devices int, size Size) []Case {
	model, larger, rows, tokens, long, slots, rounds := "0.6b", "1.7b", 8, 1024, []int{8192, 12288}, 64, 5
	if size == Small { // as large as 1m and 5m. Four devices have two key and value heads each: with one, the CPU plugin has no product of bfloat16
		model, larger = "d128,L4,H8,KV8,E16,ff384,V1024", "d256,L6,H8,KV4,ff768,V1024"
		rows, tokens, long, slots, rounds = 8, 256, []int{2048}, 16, 2
	}
	var out []Case
	add := func(c Case) {
		c.Backend, c.Rounds = backend, rounds
		c.Peer = c.Peer && (size == Large || c.Compute == "float32") // PyTorch compiles for minutes on a CPU
		out = append(out, c)
	}
	meshes := Meshes(devices)
	for _, mesh := range append([]string{""}, meshes...) {
		add(Case{Work: Check, Mesh: mesh})
	}
	for _, number := range []string{"float32", "bfloat16"} {
		add(Case{Work: Train, Model: model, Rows: rows, Tokens: tokens, Compute: number, Peer: true})
	}
	for _, n := range long {
		add(Case{Work: Train, Model: model, Rows: 1, Tokens: n, Compute: "bfloat16", Peer: true})
	}
	add(Case{Work: Train, Model: larger, Rows: max(1, rows/4), Tokens: tokens, Compute: "bfloat16", Peer: true})
	for _, mesh := range meshes {
		add(Case{Work: Train, Model: model, Mesh: mesh, Rows: rows, Tokens: tokens, Compute: "bfloat16"})
	}
	for _, n := range []int{1, slots} {
		add(Case{Work: Decode, Model: model, Slots: n})
	}
	return out
}

// Meshes are those that use all devices: the data axis, the model axis and both. The model
// axis is bounded by what the heads of the measured networks divide.
func Meshes(devices int) []string {
	const most = 8
	var out []string
	for _, m := range []device.Mesh{{Data: devices, Model: 1}, {Data: devices / 2, Model: 2}, {Data: 1, Model: devices}} {
		text := fmt.Sprintf("data=%d,model=%d", m.Data, m.Model)
		if m.NumDevices() == devices && m.Several() && m.Model <= most && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
