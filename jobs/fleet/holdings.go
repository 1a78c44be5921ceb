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

// free counts what the nodes have left beside all jobs but the named ones.
func (h holdings) free(without ...string) *jobs.Room {
	free := jobs.NewRoom(h.nodes, h.allocs, without...)
	free.SetVolumes(h.volumes)
	return free
}

// readHoldings lists all nodes and allocations.
func readHoldings(ctx context.Context, client *nomad.Client) (holdings, error) {
	listed, err := listNodes(ctx, client)
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
	out.allocs, _, err = client.Allocations().List(q)
	return out, client.Fail("list allocations", err)
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

// listNodes lists all nodes with their resources.
func listNodes(ctx context.Context, client *nomad.Client) ([]*listedNode, error) {
	q := nomad.Query(ctx)
	q.Params = map[string]string{"resources": "true"}
	var out []*listedNode
	_, err := client.Raw().Query("/v1/nodes", &out, q)
	return out, client.Fail("list nodes", err)
}
