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

// Status is a cluster at a glance.
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
	// Devices are those in working order by their kind, and Taken those that are held.
	Devices map[string]int `json:"devices,omitempty"`
	Taken   map[string]int `json:"taken,omitempty"`
	// CPU and Memory are MHz and MiB: held and all.
	CPU    [2]int64 `json:"cpu_mhz"`
	Memory [2]int64 `json:"memory_mib"`
	// Ours is the number of our processes there.
	Ours int `json:"processes"`
}

// JobStatus is one job.
type JobStatus struct {
	ID    string `json:"id"`
	Run   string `json:"run,omitempty"`
	Build string `json:"build"`
	// Running of Wanted instances.
	Running int `json:"running"`
	Wanted  int `json:"wanted"`
	// Note says what is wrong: stopped, why an instance is missing.
	Note string `json:"note,omitempty"`
}

// Status looks at the cluster. It takes as many calls for 500 jobs as for one, unless some are
// not well.
func (f *Fleet) Status(ctx context.Context) (Status, error) {
	there, err := f.ours(ctx)
	if err != nil {
		return Status{}, err
	}
	held, err := f.holdings(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{Places: map[string][]string{}}
	room := held.room()
	for _, n := range room.Nodes() {
		s.Nodes = append(s.Nodes, nodeStatus(n, held.allocs, there))
	}
	running := map[string]int{}
	newest := map[string]*api.AllocationListStub{}
	for _, a := range held.allocs {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			running[a.JobID]++
		}
		if last := newest[a.JobID]; last == nil || a.CreateIndex > last.CreateIndex {
			newest[a.JobID] = a
		}
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		stub := there[id]
		if stub.ParentID != "" {
			continue
		}
		j := JobStatus{ID: id, Run: stub.Meta[jobs.MetaRun], Build: stub.Meta[jobs.MetaBuild], Running: running[id]}
		switch {
		case stub.Stop:
			j.Note = "stopped"
		default:
			if err := (observer{f}).wanted(ctx, stub, &j, room, newest[id]); err != nil {
				return s, err
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
	if err := (observer{f}).places(ctx, &s); err != nil {
		return s, err
	}
	return s, observer{f}.scalings(ctx, &s)
}

// observer fills in what a status says.
type observer struct{ *Fleet }

// wanted finds out how many instances there should be, and why some are not there. A job
// whose summary has nothing open and nothing that failed, which may be waiting for its next try, is not asked about any further.
func (f observer) wanted(ctx context.Context, stub *api.JobListStub, j *JobStatus, room *jobs.Room, newest *api.AllocationListStub) error {
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
	job, _, err := f.nomad.Jobs().Info(stub.ID, nomad.Query(ctx))
	if err != nil {
		return f.nomad.Fail("read job "+stub.ID, err)
	}
	j.Wanted = 0
	for _, g := range job.TaskGroups {
		count := nomad.Deref(g.Count)
		j.Wanted += count
		lacking := *g
		lacking.Count = new(max(0, count-j.Running))
		if newest != nil && !lives(newest) || newest == nil {
			if missing, why := room.Place(job, &lacking); missing > 0 {
				j.Note = strings.Join(why, "; ")
			}
		}
	}
	if j.Note == "" && newest != nil && j.Running < j.Wanted {
		j.Note = condition(newest)
	}
	return nil
}

func nodeStatus(n jobs.NodeRoom, allocs []*api.AllocationListStub, ours map[string]*api.JobListStub) NodeStatus {
	s := NodeStatus{Name: n.Name, Pool: n.NodePool, State: n.State(), Devices: n.AllDevices, Taken: n.TakenDevices, CPU: n.CPU, Memory: n.Memory}
	for _, a := range allocs {
		if a.NodeID == n.ID && lives(a) && ours[a.JobID] != nil {
			s.Ours++
		}
	}
	return s
}

// places are the addresses of our services.
func (f observer) places(ctx context.Context, s *Status) error {
	for _, row := range role.Jobs() {
		if !row.Job.Listed {
			continue
		}
		found, _, err := f.nomad.Services().Get(f.build.ID(row.Name), nomad.Query(ctx))
		if err != nil {
			return f.nomad.Fail("find service "+f.build.ID(row.Name), err)
		}
		for _, r := range found {
			s.Places[row.Name] = append(s.Places[row.Name], fmt.Sprintf("%s:%d", r.Address, r.Port))
		}
		slices.Sort(s.Places[row.Name])
	}
	return nil
}

// scalings are the last changes of counts.
func (f observer) scalings(ctx context.Context, s *Status) error {
	for _, j := range s.Jobs {
		if j.Note == "stopped" || j.Run != "" {
			continue
		}
		state, _, err := f.nomad.Jobs().ScaleStatus(j.ID, nomad.Query(ctx))
		if err != nil {
			return f.nomad.Fail("read the scaling of "+j.ID, err)
		}
		for name, g := range state.TaskGroups {
			for i, e := range g.Events {
				if e.Count == nil || i == 3 {
					break
				}
				s.Scalings = append(s.Scalings, fmt.Sprintf("%s %s %d -> %d: %s", time.Unix(0, int64(e.Time)).UTC().Format(time.DateTime), f.build.Name+"-"+name, e.PreviousCount, *e.Count, e.Message))
			}
		}
	}
	slices.Sort(s.Scalings)
	return nil
}

// Print shows the status to a person.
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
