package fleet

import (
	"context"
	"maps"
	"net"
	"slices"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// holdings are all nodes and allocations with their resources.
type holdings struct {
	nodes  []*api.NodeListStub
	allocs []*api.AllocationListStub
	// volumes are the names of the host volumes of nodes, by their ids.
	volumes map[string][]string
}

// room counts what the nodes have left beside all jobs but those named.
func (h holdings) room(without ...string) *jobs.Room {
	room := jobs.NewRoom(h.nodes, h.allocs, without...)
	room.SetVolumes(h.volumes)
	return room
}

func (f *Fleet) holdings(ctx context.Context) (holdings, error) {
	listed, err := f.listNodes(ctx)
	if err != nil {
		return holdings{}, err
	}
	out := holdings{volumes: map[string][]string{}}
	for _, n := range listed {
		out.nodes = append(out.nodes, n.stub())
		out.volumes[n.ID] = slices.Collect(maps.Keys(n.HostVolumes))
	}
	q := nomad.Query(ctx)
	q.Namespace, q.Params = "*", map[string]string{"resources": "true"}
	out.allocs, _, err = f.nomad.Allocations().List(q)
	return out, f.nomad.Fail("list allocations", err)
}

// listedNode is a node in the list of all, with what package api leaves out of it.
type listedNode struct {
	api.NodeListStub
	// HostVolumes are known by their names.
	HostVolumes   map[string]struct{}
	NodeResources *struct {
		api.NodeResources
		NodeNetworks []struct{ Addresses []struct{ Address string } }
	}
}

// stub is the node as package api knows it.
func (n *listedNode) stub() *api.NodeListStub {
	if n.NodeResources != nil {
		n.NodeListStub.NodeResources = &n.NodeResources.NodeResources
	}
	return &n.NodeListStub
}

// addresses are those at which others reach a node: that of its agent, and those of its networks, which its processes
// have.
func (n *listedNode) addresses() (out []net.IP) {
	texts := []string{n.Address}
	if n.NodeResources != nil {
		for _, network := range n.NodeResources.Networks {
			texts = append(texts, network.IP)
		}
		for _, network := range n.NodeResources.NodeNetworks {
			for _, a := range network.Addresses {
				texts = append(texts, a.Address)
			}
		}
	}
	for _, text := range texts {
		if ip := net.ParseIP(text); ip != nil {
			out = append(out, ip)
		}
	}
	return out
}

// listNodes are all nodes with their resources.
func (f *Fleet) listNodes(ctx context.Context) ([]*listedNode, error) {
	q := nomad.Query(ctx)
	q.Params = map[string]string{"resources": "true"}
	var out []*listedNode
	_, err := f.nomad.Raw().Query("/v1/nodes", &out, q)
	return out, f.nomad.Fail("list nodes", err)
}
