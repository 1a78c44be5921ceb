package fleet

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/nomad"
)

// Status is an overview of a cluster.
type Status struct {
	Nodes    []NodeStatus `json:"nodes"`
	Jobs     []JobStatus  `json:"jobs"`
	Scalings []string     `json:"scalings,omitempty"`
	// Places are addresses of services by their names.
	Places map[string][]string `json:"places"`
}

// NodeStatus is one node.
type NodeStatus struct {
	Name  string `json:"name"`
	Pool  string `json:"pool"`
	State string `json:"state"`
	// Devices counts the healthy devices by kind, Taken the held ones.
	Devices map[string]int `json:"devices,omitempty"`
	Taken   map[string]int `json:"taken,omitempty"`
	// CPU is in MHz and Memory in MiB: held and total.
	CPU    [2]int64 `json:"cpu_mhz"`
	Memory [2]int64 `json:"memory_mib"`
	// Ours is the number of the cluster's processes there.
	Ours int `json:"processes"`
}

// JobStatus is one job.
type JobStatus struct {
	ID    string `json:"id"`
	Run   string `json:"run,omitempty"`
	Build string `json:"build"`
	// Running of Wanted instances run.
	Running int `json:"running"`
	Wanted  int `json:"wanted"`
	// Note describes a problem: stopped, or why an instance is missing.
	Note string `json:"note,omitempty"`
}

// Status reads the state of the cluster. It makes as many calls for 500 jobs as for one,
// unless some are not healthy.
func (f *Fleet) Status(ctx context.Context) (Status, error) {
	there, err := f.ours(ctx)
	if err != nil {
		return Status{}, err
	}
	held, err := f.nomad.Inventory(ctx)
	if err != nil {
		return Status{}, err
	}
	r := statusReader{nomad: f.nomad, free: free(held), newest: map[string]*api.AllocationListStub{}}
	s := Status{Places: map[string][]string{}}
	for _, n := range r.free.Nodes() {
		s.Nodes = append(s.Nodes, nodeStatus(n, held.Allocs, there))
	}
	running := map[string]int{}
	for _, a := range held.Allocs {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			running[a.JobID]++
		}
		if last := r.newest[a.JobID]; last == nil || a.CreateIndex > last.CreateIndex {
			r.newest[a.JobID] = a
		}
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		stub := there[id]
		if stub.ParentID != "" {
			continue
		}
		j := JobStatus{ID: id, Run: stub.Meta[jobs.MetaRun], Build: stub.Meta[jobs.MetaBuild], Running: running[id]}
		if stub.Stop {
			j.Note = stopped
		} else if err := r.readJob(ctx, stub, &j); err != nil {
			return s, err
		}
		s.Jobs = append(s.Jobs, j)
	}
	if err := r.readAddresses(ctx, f.build.ID, s.Places); err != nil {
		return s, err
	}
	s.Scalings, err = r.scalings(ctx, f.build.Name, s.Jobs)
	return s, err
}

// stopped is the note of a stopped job.
const stopped = "stopped"

// statusReader reads details that the lists of nodes, jobs and allocations leave out.
type statusReader struct {
	nomad  *nomad.Client
	free   *jobs.Capacity
	newest map[string]*api.AllocationListStub // allocation, by job
}

// readJob counts the instances that a job should have, and reports why some are missing. It
// reads only the summary of a job without open or failed instances.
func (r statusReader) readJob(ctx context.Context, stub *api.JobListStub, j *JobStatus) error {
	newest := r.newest[stub.ID]
	open, ended := 0, 0
	if stub.JobSummary != nil {
		for _, g := range stub.JobSummary.Summary {
			open += g.Queued + g.Starting
			ended += g.Failed + g.Lost + g.Unknown
		}
	}
	j.Wanted = j.Running + open
	if open == 0 && ended == 0 && j.Running > 0 {
		return nil
	}
	job, _, err := r.nomad.Jobs().Info(stub.ID, nomad.Query(ctx))
	if err != nil {
		return r.nomad.Fail("read job "+stub.ID, err)
	}
	j.Wanted = 0
	for _, g := range job.TaskGroups {
		count := nomad.Deref(g.Count)
		j.Wanted += count
		lacking := *g
		lacking.Count = new(max(0, count-j.Running))
		if newest != nil && !lives(newest) || newest == nil {
			if missing, why := r.free.Place(job, &lacking); missing > 0 {
				j.Note = strings.Join(why, "; ")
			}
		}
	}
	if j.Note == "" && newest != nil && j.Running < j.Wanted {
		j.Note = condition(newest)
	}
	return nil
}

func nodeStatus(n jobs.NodeUsage, allocs []*api.AllocationListStub, ours map[string]*api.JobListStub) NodeStatus {
	s := NodeStatus{Name: n.Name, Pool: n.NodePool, State: n.State(), Devices: n.AllDevices, Taken: n.TakenDevices, CPU: n.CPU, Memory: n.Memory}
	for _, a := range allocs {
		if a.NodeID == n.ID && lives(a) && ours[a.JobID] != nil {
			s.Ours++
		}
	}
	return s
}

// readAddresses adds the addresses of the listed roles.
func (r statusReader) readAddresses(ctx context.Context, id func(role string) string, places map[string][]string) error {
	for _, row := range role.Jobs() {
		if !row.Job.Listed {
			continue
		}
		found, _, err := r.nomad.Services().Get(id(row.Name), nomad.Query(ctx))
		if err != nil {
			return r.nomad.Fail("find service "+id(row.Name), err)
		}
		for _, s := range found {
			places[row.Name] = append(places[row.Name], fmt.Sprintf("%s:%d", s.Address, s.Port))
		}
		slices.Sort(places[row.Name])
	}
	return nil
}

// shownScalings bounds the changes of a group's count in a status.
const shownScalings = 3

// scalings returns the last changes of counts as lines.
func (r statusReader) scalings(ctx context.Context, cluster string, all []JobStatus) (lines []string, err error) {
	for _, j := range all {
		if j.Note == stopped || j.Run != "" {
			continue
		}
		state, _, err := r.nomad.Jobs().ScaleStatus(j.ID, nomad.Query(ctx))
		if err != nil {
			return nil, r.nomad.Fail("read the scaling of "+j.ID, err)
		}
		for name, g := range state.TaskGroups {
			for i, e := range g.Events {
				if e.Count == nil || i == shownScalings {
					break
				}
				lines = append(lines, fmt.Sprintf("%s %s %d -> %d: %s", time.Unix(0, int64(e.Time)).UTC().Format(time.DateTime), cluster+"-"+name, e.PreviousCount, *e.Count, e.Message))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// Print writes the status as text.
func (s Status) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tPOOL\tSTATE\tDEVICES\tMHZ\tMIB\tPROCESSES")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d/%d\t%d/%d\t%d\n", n.Name, n.Pool, n.State, devices(n), n.CPU[0], n.CPU[1], n.Memory[0], n.Memory[1], n.Ours)
	}
	fmt.Fprintln(w, "\t\t\t\t\t\t")
	fmt.Fprintln(w, "JOB\tRUN\tBUILD\tRUNNING\tNOTE")
	for _, j := range s.Jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\n", j.ID, j.Run, j.Build, j.Running, j.Wanted, j.Note)
	}
	_ = w.Flush() // the writer below reports
	for _, name := range slices.Sorted(maps.Keys(s.Places)) {
		if len(s.Places[name]) > 0 {
			fmt.Fprintf(out, "%s is at %s\n", name, strings.Join(s.Places[name], ", "))
		}
	}
	for _, line := range s.Scalings {
		fmt.Fprintln(out, "scaled "+line)
	}
}

func devices(n NodeStatus) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n.Devices)) {
		parts = append(parts, fmt.Sprintf("%s %d/%d", name, n.Taken[name], n.Devices[name]))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
