package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"temper/jobs"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// Finding is the result of one check.
type Finding struct {
	Name string `json:"name"`
	// OK is false when the cluster needs a change to work.
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// String returns the finding as one line.
func (f Finding) String() string {
	state := "ok     "
	if !f.OK {
		state = "missing"
	}
	return fmt.Sprintf("%s  %-12s %s", state, f.Name, f.Detail)
}

// Doctor checks all requirements of the cluster. It continues after a failed check.
func (f *Fleet) Doctor(ctx context.Context) []Finding {
	all, err := f.Jobs(ctx)
	out := []Finding{finding("jobs", err, fmt.Sprintf("%d jobs are described", len(all)))}
	version, err := f.nomad.Version(ctx)
	out = append(out, finding("servers", err, fmt.Sprintf("Nomad %s at %s", version, f.nomad.Address())))
	if err != nil {
		return out // no other check can run
	}
	required := f.requirements(all)
	out = append(out, finding("version", required.checkServer(ctx), "the servers keep every field that jobs use"))
	_, err = f.ours(ctx)
	out = append(out, finding("name", err, "no job of another cluster is called "+f.build.Name+"-..."),
		finding("pools", required.checkPools(ctx), "every node pool is there"),
		finding("secrets", required.checkSecrets(ctx), "every job has what it needs"),
		accessFinding(ctx, f.nomad, f.build.TLS))
	held, err := f.nomad.Inventory(ctx)
	if err != nil {
		return append(out, finding("nodes", err, ""))
	}
	d := diagnosis{build: f.build, jobs: all, held: held}
	return append(out, nodesFinding(held.Nodes), clocksFinding(ctx, f.nomad, held.Nodes), devicesFinding(f.build.GPUs, held.Nodes), d.roomFinding(), d.foldersFinding(),
		d.rawExecFinding())
}

func finding(name string, err error, detail string) Finding {
	if err != nil {
		return Finding{Name: name, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return Finding{Name: name, OK: true, Detail: detail}
}

// diagnosis compares the described jobs with the nodes.
type diagnosis struct {
	build jobs.Build
	jobs  []*api.Job
	held  nomad.Inventory
}

// accessFinding checks that the API requires a token.
func accessFinding(ctx context.Context, client *nomad.Client, tls bool) Finding {
	_, _, err := client.ACLTokens().Self(nomad.Query(ctx))
	var response api.UnexpectedResponseError
	switch {
	case err == nil:
		return Finding{"access", true, "the servers ask for tokens"}
	case errors.As(err, &response) && strings.Contains(response.Body(), "ACL support disabled"):
		return Finding{"access", !tls, "the servers ask for no token: all who reach them run programs as the agents' user; set acl { enabled = true }"}
	default:
		return finding("access", client.Fail("ask for the rights of the token", err), "")
	}
}

func nodesFinding(nodes []*api.NodeListStub) Finding {
	var ready, not []string
	for _, n := range nodes {
		if n.Status == api.NodeStatusReady && !n.Drain && n.SchedulingEligibility == api.NodeSchedulingEligible {
			ready = append(ready, n.Name)
		} else {
			not = append(not, n.Name)
		}
	}
	detail := fmt.Sprintf("%d ready", len(ready))
	if len(not) > 0 {
		detail += fmt.Sprintf(", %d that take nothing: %s", len(not), strings.Join(not, ", "))
	}
	return Finding{"nodes", len(ready) > 0, detail}
}

// maxSkew bounds the clock difference of a node. Stores refuse requests that are signed a
// quarter of an hour too early or too late, and leases compare times.
const maxSkew = 30 * time.Second

// maxAsked bounds the concurrent requests to nodes.
const maxAsked = 8

// clocksFinding compares the clocks of the nodes with this machine's.
func clocksFinding(ctx context.Context, client *nomad.Client, nodes []*api.NodeListStub) Finding {
	ready := slices.DeleteFunc(slices.Clone(nodes), func(n *api.NodeListStub) bool { return n.Status != api.NodeStatusReady })
	skews, answered := make([]time.Duration, len(ready)), make([]bool, len(ready))
	var asking errgroup.Group
	asking.SetLimit(maxAsked)
	for i, n := range ready { // a node that does not answer does not stop the others
		asking.Go(func() error {
			skews[i], answered[i] = clockSkewOf(ctx, client, n)
			return nil
		})
	}
	_ = asking.Wait() // no task returns an error
	var wrong, silent []string
	for i, n := range ready {
		switch {
		case !answered[i]:
			silent = append(silent, n.Name)
		case skews[i].Abs() > maxSkew:
			wrong = append(wrong, fmt.Sprintf("%s (%+v)", n.Name, skews[i]))
		}
	}
	if len(wrong) > 0 {
		return Finding{"clocks", false, fmt.Sprintf("off by more than %v from this machine: %s: set them by a time server (systemctl status systemd-timesyncd)", maxSkew, strings.Join(wrong, ", "))}
	}
	detail := fmt.Sprintf("every node is within %v of this machine", maxSkew)
	if len(silent) > 0 {
		detail = "unknown of " + strings.Join(silent, ", ")
	}
	return Finding{"clocks", true, detail}
}

// clockSkewOf returns how far the clock of a node is ahead of this machine's clock.
func clockSkewOf(ctx context.Context, client *nomad.Client, n *api.NodeListStub) (skew time.Duration, answered bool) {
	asked := time.Now()
	var s struct{ Timestamp int64 } // package api leaves this field out
	_, err := client.Raw().Query("/v1/client/stats?node_id="+n.ID, &s, nomad.Query(ctx))
	if err != nil || s.Timestamp == 0 {
		return 0, false
	}
	// An agent samples its statistics about every second, and returns the time of the last sample.
	return time.Unix(0, s.Timestamp).Sub(asked).Round(time.Second), true
}

// devicesFinding checks that nodes have the GPUs of the file.
func devicesFinding(g spec.GPUs, nodes []*api.NodeListStub) Finding {
	if g.Device == "" {
		return Finding{"devices", true, "trainers run on CPUs"}
	}
	if !g.Plugin {
		return Finding{"devices", true, "no plugin: the meta of nodes says what they have"}
	}
	with, other := 0, map[string]bool{}
	for _, n := range nodes {
		if healthyDevices(n, g.Device, other) >= g.Count {
			with++
		}
	}
	if with > 0 {
		return Finding{"devices", true, fmt.Sprintf("%d nodes have %d %s", with, g.Count, g.Device)}
	}
	var seen []string
	for name := range other {
		seen = append(seen, name)
	}
	slices.Sort(seen)
	return Finding{"devices", false, fmt.Sprintf("no node has %d healthy %s (devices there: %s): install the device plugin on the nodes, or change gpus.device", g.Count, g.Device, orNone(seen))}
}

// healthyDevices counts the healthy devices of a kind on a node, and adds other kinds to
// other.
func healthyDevices(n *api.NodeListStub, kind string, other map[string]bool) int {
	if n.NodeResources == nil {
		return 0
	}
	healthy := 0
	for _, d := range n.NodeResources.Devices {
		name := d.Vendor + "/" + d.Type + "/" + d.Name
		if !strings.HasPrefix(name+"/", kind+"/") {
			other[name] = true
			continue
		}
		for _, i := range d.Instances {
			if i.Healthy {
				healthy++
			}
		}
	}
	return healthy
}

// roomFinding checks that all jobs fit at once.
func (d diagnosis) roomFinding() Finding {
	var ids, lacks []string
	for _, j := range d.jobs {
		ids = append(ids, *j.ID)
	}
	left := free(d.held, ids...)
	for _, j := range d.jobs {
		for _, g := range j.TaskGroups {
			if missing, why := left.Place(j, g); missing > 0 {
				lacks = append(lacks, fmt.Sprintf("%d of %d %s (%s)", missing, nomad.Deref(g.Count), *j.ID, strings.Join(why, ", ")))
			}
		}
	}
	if len(lacks) > 0 {
		return Finding{"room", false, "none for " + strings.Join(lacks, "; ")}
	}
	return Finding{"room", true, "every instance has a node"}
}

// foldersFinding names roles that keep data on a node and may start on another one without
// it.
func (d diagnosis) foldersFinding() Finding {
	var wrong []string
	kept, left := 0, free(d.held)
	for _, j := range d.jobs {
		role := j.Meta[jobs.MetaRole]
		folder := jobs.Folder(d.build, role)
		if folder == "" || d.build.File(role) != "" { // an operator's job file sets its node
			continue
		}
		kept++
		for _, g := range j.TaskGroups {
			if may := left.MayTake(j, g); len(may) > 1 {
				wrong = append(wrong, fmt.Sprintf("%s keeps %s on one node, and %d may take it (%s)", role, folder, len(may), strings.Join(may, ", ")))
			}
		}
	}
	switch {
	case len(wrong) > 0:
		return Finding{"folders", false, strings.Join(wrong, "; ") + ": on another node it would begin with nothing: give it a pool of one machine"}
	case kept == 0:
		return Finding{"folders", true, "no role keeps anything on its node"}
	default:
		return Finding{"folders", true, "what roles keep on a node has one node each"}
	}
}

// rawExecFinding names nodes on which anyone who may submit jobs can start programs as
// root.
func (d diagnosis) rawExecFinding() Finding {
	pools := map[string]bool{}
	for _, r := range d.build.Named() {
		if r.Driver == spec.RawExec && r.Count > 0 {
			pools[pool(r.Pool)] = true
		}
	}
	var wrong []string
	for _, n := range d.held.Nodes {
		if driver := n.Drivers["raw_exec"]; driver != nil && driver.Detected && !pools[n.NodePool] {
			wrong = append(wrong, n.Name)
		}
	}
	if len(wrong) > 0 {
		return Finding{"raw_exec", !d.build.TLS, "on nodes where no role needs it: switch the driver off on " + strings.Join(wrong, ", ")}
	}
	return Finding{"raw_exec", true, "only where a role needs it"}
}

func pool(name string) string {
	if name == "" {
		return api.NodePoolDefault
	}
	return name
}
