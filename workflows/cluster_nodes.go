package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"temper/internal/placement"
)

// Commands of the cluster, besides the query status. Each is an update and takes one
// NodeCommand.
const (
	// CommandDrain has the runs on a node save and go elsewhere, and empties it.
	CommandDrain = "drain"
	// CommandUndrain lets runs on a node again.
	CommandUndrain = "undrain"
)

// NodeCommand is the argument of drain and undrain.
type NodeCommand struct {
	// Node is the id or the name of a node.
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// nodeCommands carry out what people ask of nodes.
type nodeCommands struct {
	floor *placement.Admission
	// changed reports that a decision is due.
	changed func()
}

func (c nodeCommands) listen(ctx workflow.Context) error {
	if err := c.handle(ctx, CommandDrain, "Have the runs on a node save and go elsewhere, then empty it.", c.drain); err != nil {
		return err
	}
	return c.handle(ctx, CommandUndrain, "Let runs on a node again.", c.undrain)
}

func (c nodeCommands) handle(ctx workflow.Context, name, about string, do func(workflow.Context, NodeCommand) string) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, name,
		func(ctx workflow.Context, n NodeCommand) (string, error) {
			c.changed()
			return do(ctx, n), nil
		},
		workflow.UpdateHandlerOptions{Description: about, Validator: c.refuseNode})
}

func (c nodeCommands) refuseNode(n NodeCommand) error {
	if n.Node == "" {
		return errors.New(`want {"node": "name or id of a node", "reason": "..."}`)
	}
	if _, ok := c.node(n.Node); len(c.floor.Nodes) > 0 && !ok {
		return fmt.Errorf("no node %s: the cluster has %s", shorten(n.Node), shorten(strings.Join(c.nodeNames(), ", ")))
	}
	return nil
}

func (c nodeCommands) nodeNames() (names []string) {
	for _, n := range c.floor.Nodes {
		names = append(names, cmp.Or(n.Name, n.ID))
	}
	return names
}

// node finds a node by id or name.
func (c nodeCommands) node(name string) (placement.Node, bool) {
	i := slices.IndexFunc(c.floor.Nodes, func(n placement.Node) bool { return n.ID == name || n.Name == name })
	if i < 0 {
		return placement.Node{ID: name, Name: name}, false
	}
	return c.floor.Nodes[i], true
}

func (c nodeCommands) drain(ctx workflow.Context, n NodeCommand) string {
	node, _ := c.node(n.Node)
	c.floor.DrainNode(workflow.Now(ctx), node.ID, n.Reason, n.By)
	var runs []string
	for _, m := range node.Instances {
		if _, run, ok := strings.Cut(m.Job, "-"); ok && m.Current() && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return fmt.Sprintf("node %s is closed and emptied: no run is on it", node.Name)
	}
	return fmt.Sprintf("node %s is closed; when %s have come to a safe point, saved and left, it is emptied", node.Name, strings.Join(runs, ", "))
}

func (c nodeCommands) undrain(_ workflow.Context, n NodeCommand) string {
	node, _ := c.node(n.Node)
	c.floor.UndrainNode(node.ID)
	return fmt.Sprintf("node %s takes runs again", node.Name)
}
