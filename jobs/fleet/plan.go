package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// Kind is the action of a plan for a job.
type Kind string

// Kinds of changes.
const (
	Same Kind = "same"
	Add  Kind = "add"
	Edit Kind = "edit"
	// Foreign is a job that others have changed since it was applied.
	Foreign Kind = "changed by others"
	// Remove is a job that the file no longer has.
	Remove Kind = "remove"
)

// Field is one difference.
type Field struct {
	Path, Old, New string
	// Forces is the effect on the processes, in Nomad's words; "" for none.
	Forces string
}

// Change is the action of a plan for one job.
type Change struct {
	Job  string
	Kind Kind
	// Fields are the differences between the existing and the wanted job.
	Fields []Field
	// Theirs holds, for Foreign, the paths of fields that others have changed since temper wrote the job.
	Theirs []string
	// NoRoom reports how many instances find no node, and why.
	NoRoom []string
	// Evicts lists allocations that would be evicted for this job.
	Evicts []string
	// Warning is a warning of Nomad.
	Warning string

	index uint64 // index of the version that was read
	job   *api.Job
	// unmet holds constraints that no node fulfils; only Nomad checks most of them.
	unmet map[string][]string // by group
}

// Plan lists all changes in the order in which they are applied.
type Plan struct{ Changes []Change }

// Empty reports whether the plan has no changes.
func (p Plan) Empty() bool {
	return !slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Kind != Same })
}

// Plan compares the file with the cluster. It changes nothing.
func (f *Fleet) Plan(ctx context.Context) (Plan, error) {
	all, err := f.Jobs(ctx)
	if err != nil {
		return Plan{}, err
	}
	required := f.requirements(all)
	if err := required.checkServer(ctx); err != nil {
		return Plan{}, err
	}
	there, err := f.ours(ctx)
	if err != nil {
		return Plan{}, err
	}
	if err := errors.Join(required.checkPools(ctx), required.checkSecrets(ctx)); err != nil {
		return Plan{}, err
	}
	p := comparison{nomad: f.nomad}
	if p.failed, err = failedDeployments(ctx, f.nomad); err != nil {
		return Plan{}, err
	}
	var plan Plan
	for _, j := range all {
		change, err := p.compare(ctx, j, there[*j.ID])
		if err != nil {
			return plan, err
		}
		plan.Changes = append(plan.Changes, change)
		delete(there, *j.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if s := there[id]; !s.Stop && s.Meta[jobs.MetaRun] == "" && s.ParentID == "" {
			plan.Changes = append(plan.Changes, Change{Job: id, Kind: Remove, index: s.JobModifyIndex})
		}
	}
	if plan.Empty() {
		return plan, nil
	}
	held, err := f.nomad.Inventory(ctx)
	if err != nil {
		return plan, err
	}
	plan.findRoom(held)
	return plan, nil
}

// comparison compares described jobs with the jobs that the servers have, one after another.
type comparison struct {
	nomad *nomad.Client
	// failed holds the newest failed deployment of each job.
	failed map[string]*api.Deployment
}

// failedDeployments returns the newest failed deployment of each job.
func failedDeployments(ctx context.Context, client *nomad.Client) (map[string]*api.Deployment, error) {
	all, _, err := client.Deployments().List(nomad.Query(ctx))
	if err != nil {
		return nil, client.Fail("list deployments", err)
	}
	out := map[string]*api.Deployment{}
	for _, d := range all {
		if last := out[d.JobID]; d.Status == api.DeploymentStatusFailed && (last == nil || d.CreateIndex > last.CreateIndex) {
			out[d.JobID] = d
		}
	}
	return out, nil
}

// attempt changes a job that Nomad has given up, so that Nomad tries it again; otherwise
// its instances would never start. The number stays while the job is the same.
func attempt(change *Change, stub *api.JobListStub, failed *api.Deployment) {
	old := stub.Meta[jobs.MetaAttempt]
	if failed == nil || failed.JobSpecModifyIndex != stub.JobModifyIndex {
		return
	}
	n, _ := strconv.Atoi(old) // 0 without a number
	change.Kind, change.job.Meta[jobs.MetaAttempt] = Edit, strconv.Itoa(n+1)
	change.Fields = []Field{{Path: "Meta[" + jobs.MetaAttempt + "]", Old: old, New: strconv.Itoa(n + 1), Forces: "try again: " + failed.StatusDescription}}
}

// compare asks the servers for the changes to one job.
func (p comparison) compare(ctx context.Context, j *api.Job, stub *api.JobListStub) (Change, error) {
	change := Change{Job: *j.ID, Kind: Add, job: j}
	live := stub != nil && !stub.Stop
	if stub != nil {
		change.index = stub.JobModifyIndex
	}
	if live {
		if err := p.keepCounts(ctx, j); err != nil {
			return change, err
		}
		if n := stub.Meta[jobs.MetaAttempt]; n != "" && stub.Meta[jobs.MetaSpec] == j.Meta[jobs.MetaSpec] {
			j.Meta[jobs.MetaAttempt] = n
		}
	}
	found, _, err := p.nomad.Jobs().Plan(j, true, nomad.Write(ctx))
	if err != nil {
		return change, p.nomad.Fail("plan job "+*j.ID, err)
	}
	change.Warning = strings.Join(strings.Fields(found.Warnings), " ")
	if found.Annotations != nil {
		for _, a := range found.Annotations.PreemptedAllocs {
			change.Evicts = append(change.Evicts, a.Name)
		}
	}
	change.unmet = unmet(found.FailedTGAllocs)
	if !live {
		change.index, err = p.vacant(ctx, *j.ID)
		return change, err
	}
	change.index, change.Fields = found.JobModifyIndex, fields(found.Diff)
	switch {
	case len(change.Fields) == 0:
		change.Kind = Same
		attempt(&change, stub, p.failed[*j.ID])
	case stub.Meta[jobs.MetaSpec] == j.Meta[jobs.MetaSpec]: // the written job is the wanted one and does not run
		change.Kind, change.Theirs = Foreign, paths(change.Fields)
	default:
		change.Kind = Edit
		if change.Theirs, err = p.foreign(ctx, stub, change.Fields); len(change.Theirs) > 0 {
			change.Kind = Foreign
		}
	}
	return change, err
}

// sameClass is Nomad's refusal of a node of the same class as one that it has checked.
const sameClass = "computed class ineligible"

// counted lists refusals that package jobs counts more exactly: the scheduler does not know
// the resources that an earlier change of the same plan releases.
var counted = []string{"missing compatible host volumes", "missing drivers", "missing devices", api.ConstraintDistinctHosts}

// unmet returns the constraints that exclude nodes, from the failed placements of the
// scheduler.
func unmet(failed map[string]*api.AllocationMetric) map[string][]string {
	out := map[string][]string{}
	for group, m := range failed {
		reasons := maps.Clone(m.ConstraintFiltered)
		alike := reasons[sameClass]
		if delete(reasons, sameClass); len(reasons) == 0 && alike > 0 {
			reasons[sameClass] = 0
		}
		for _, what := range slices.Sorted(maps.Keys(reasons)) {
			if m.NodesExhausted > 0 && slices.Contains(counted, what) {
				continue
			}
			n, text := reasons[what], what
			if len(reasons) == 1 { // all nodes of this class fail for the same reason
				n += alike
			}
			if strings.Contains(what, "${") {
				text = "not " + what
			}
			if strings.Contains(what, "${meta.") {
				text += ": set it in the meta of the node's client block"
			}
			out[group] = append(out[group], fmt.Sprintf("%d of %d nodes: %s", n, m.NodesEvaluated, text))
		}
	}
	return out
}

// keepCounts keeps the current counts of scaled groups, as far as the bounds allow.
func (p comparison) keepCounts(ctx context.Context, j *api.Job) error {
	if !slices.ContainsFunc(j.TaskGroups, func(g *api.TaskGroup) bool { return g.Scaling != nil }) {
		return nil
	}
	live, _, err := p.nomad.Jobs().Info(*j.ID, nomad.Query(ctx))
	if err != nil {
		return p.nomad.Fail("read job "+*j.ID, err)
	}
	for _, g := range j.TaskGroups {
		for _, there := range live.TaskGroups {
			if g.Scaling != nil && nomad.Deref(there.Name) == nomad.Deref(g.Name) {
				g.Count = new(int(min(max(int64(nomad.Deref(there.Count)), nomad.Deref(g.Scaling.Min)), nomad.Deref(g.Scaling.Max))))
			}
		}
	}
	return nil
}

// findRoom records which new or changed jobs find no node beside the jobs that stay.
func (p *Plan) findRoom(held nomad.Inventory) {
	var moved []string
	for _, c := range p.Changes {
		if c.Kind != Same {
			moved = append(moved, c.Job)
		}
	}
	left := free(held, moved...)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind == Same || c.job == nil {
			continue
		}
		for _, g := range c.job.TaskGroups {
			if missing, why := left.Place(c.job, g); missing > 0 {
				c.NoRoom = append(c.NoRoom, fmt.Sprintf("%d of %d %s: %s", missing, nomad.Deref(g.Count), nomad.Deref(g.Name), strings.Join(why, "; ")))
			} else if why := c.unmet[nomad.Deref(g.Name)]; len(why) > 0 {
				c.NoRoom = append(c.NoRoom, fmt.Sprintf("%s: %s", nomad.Deref(g.Name), strings.Join(why, "; ")))
			}
		}
	}
}

// free counts the free resources of the nodes beside all jobs except the named ones.
func free(held nomad.Inventory, without ...string) *jobs.Capacity {
	left := jobs.NewCapacity(held.Nodes, held.Allocs, without...)
	left.SetVolumes(held.Volumes)
	return left
}

// Print writes a plan as text.
func (p Plan) Print(out io.Writer) {
	for _, c := range p.Changes {
		fmt.Fprintf(out, "%s %s\n", mark[c.Kind], c.Job+note(c.Kind))
		if c.Kind != Add {
			for _, f := range c.Fields {
				fmt.Fprintf(out, "    %s: %q -> %q%s\n", f.Path, f.Old, f.New, parens(f.Forces))
			}
		}
		if c.Kind == Foreign {
			fmt.Fprintf(out, "    changed by others: %s\n", strings.Join(c.Theirs, ", "))
		}
		for _, line := range c.NoRoom {
			fmt.Fprintf(out, "    no room for %s\n", line)
		}
		for _, a := range c.Evicts {
			fmt.Fprintf(out, "    evicts %s\n", a)
		}
		if c.Warning != "" {
			fmt.Fprintf(out, "    %s\n", c.Warning)
		}
	}
	if p.Empty() {
		fmt.Fprintln(out, "nothing to do")
	}
}

var mark = map[Kind]string{Same: " ", Add: "+", Edit: "~", Foreign: "!", Remove: "-"}

func note(k Kind) string {
	if k == Same || k == Foreign {
		return " (" + string(k) + ")"
	}
	return ""
}

func parens(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
