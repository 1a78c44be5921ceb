package jobs

import (
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/spec"
)

// gpuPort is reserved by a trainer that uses the GPUs of a node without a device plugin, so
// that a second trainer does not fit.
const gpuPort = 7990

// addDevices asks for the GPUs of the cluster's trainers.
func addDevices(b Build, g *api.TaskGroup) {
	gpus := b.GPUs
	if gpus.Device == "" {
		return
	}
	vendor, _, _ := strings.Cut(gpus.Device, "/")
	if gpus.Plugin {
		d := &api.RequestedDevice{Name: gpus.Device, Count: new(uint64(gpus.Count))} //nolint:gosec // 1 to 64
		if gpus.MinMemory > 0 {
			d.Constraints = []*api.Constraint{{LTarget: "${device.attr.memory}", Operand: ">=", RTarget: strconv.FormatInt(int64(gpus.MinMemory)>>20, 10) + " MiB"}}
		}
		g.Tasks[0].Resources.Devices = []*api.RequestedDevice{d}
		return
	}
	g.Constraints = append(g.Constraints,
		&api.Constraint{LTarget: "${meta.gpu_vendor}", Operand: "=", RTarget: vendor},
		&api.Constraint{LTarget: "${meta.gpu_count}", Operand: ">=", RTarget: strconv.Itoa(gpus.Count)},
	)
	g.Networks[0].ReservedPorts = append(g.Networks[0].ReservedPorts, api.Port{Label: "gpus", Value: gpuPort})
	if b.Roles.Trainer.Driver == spec.Docker && vendor == "amd" {
		g.Tasks[0].Config["devices"] = []map[string]string{{"host_path": "/dev/kfd"}, {"host_path": "/dev/dri"}}
		g.Tasks[0].Config["group_add"] = []string{"video", "render"}
	}
}
