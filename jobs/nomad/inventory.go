package nomad

import (
	"context"
	"maps"
	"net"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// Inventory holds all nodes and allocations of a cluster with their resources.
type Inventory struct {
	Nodes  []*api.NodeListStub
	Allocs []*api.AllocationListStub
	// Volumes holds the names of the nodes' host volumes, by node id.
	Volumes map[string][]string
}

// Inventory lists all nodes and allocations.
func (c *Client) Inventory(ctx context.Context) (Inventory, error) {
	listed, err := c.listNodes(ctx)
	if err != nil {
		return Inventory{}, err
	}
	out := Inventory{Volumes: map[string][]string{}}
	for _, n := range listed {
		out.Nodes = append(out.Nodes, n.stub())
		out.Volumes[n.ID] = slices.Collect(maps.Keys(n.HostVolumes))
	}
	q := Query(ctx)
	q.Namespace, q.Params = "*", map[string]string{"resources": "true"}
	out.Allocs, _, err = c.Allocations().List(q)
	return out, c.Fail("list allocations", err)
}

// NodeAddresses returns the addresses of all nodes, and the loopback address.
func (c *Client) NodeAddresses(ctx context.Context) ([]net.IP, error) {
	nodes, err := c.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, n := range nodes {
		for _, ip := range n.addresses() {
			if !slices.ContainsFunc(out, ip.Equal) {
				out = append(out, ip)
			}
		}
	}
	return out, nil
}

// listedNode is a node of a list, with the fields that package api leaves out.
type listedNode struct {
	api.NodeListStub
	// HostVolumes holds the host volumes by name.
	HostVolumes   map[string]struct{}
	NodeResources *struct {
		api.NodeResources
		NodeNetworks []struct{ Addresses []struct{ Address string } }
	}
}

// stub returns the node as the type of package api.
func (n *listedNode) stub() *api.NodeListStub {
	if n.NodeResources != nil {
		n.NodeListStub.NodeResources = &n.NodeResources.NodeResources
	}
	return &n.NodeListStub
}

// addresses returns the addresses of a node's agent and of the networks of its processes.
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
func (c *Client) listNodes(ctx context.Context) ([]*listedNode, error) {
	q := Query(ctx)
	q.Params = map[string]string{"resources": "true"}
	var out []*listedNode
	_, err := c.Raw().Query("/v1/nodes", &out, q)
	return out, c.Fail("list nodes", err)
}
