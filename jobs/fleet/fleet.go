// Package fleet owns the operations on a cluster: plan changes, apply them,
// show its status, scale, drain, and take it down. It compares the jobs of package jobs with the jobs of
// a Nomad cluster, and changes only the jobs of the cluster's name.
//
// Invariant: a job is written only over the version that was read, and a job that others
// have changed is not overwritten unless the operator asks for it.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// Fleet is one cluster of the service on Nomad.
type Fleet struct {
	nomad *nomad.Client
	build jobs.Build
}

// New returns the cluster that a file describes, for one version of the programs.
func New(client *nomad.Client, c spec.Cluster, version string) *Fleet {
	return &Fleet{nomad: client, build: jobs.Build{Cluster: c, Version: version}}
}

// Jobs returns the jobs that the file describes; an operator's job file replaces the job of
// its role.
func (f *Fleet) Jobs(ctx context.Context) ([]*api.Job, error) {
	out := f.build.All()
	var wrong []error
	for i, j := range out {
		file := f.build.File(j.Meta[jobs.MetaRole])
		if file == "" {
			continue
		}
		own, err := f.readJob(file, j)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		out[i] = own
	}
	return out, errors.Join(wrong...)
}

// readJob reads the operator's job file for a role. The servers parse it.
func (f *Fleet) readJob(file string, ours *api.Job) (*api.Job, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	own, err := f.nomad.Jobs().ParseHCLOpts(&api.JobsParseRequest{JobHCL: string(text)})
	if err != nil {
		return nil, f.nomad.Fail("parse "+file, err)
	}
	role := ours.Meta[jobs.MetaRole]
	if own.ID == nil || *own.ID != *ours.ID {
		return nil, fmt.Errorf("%s: describes the job %q, want %q for the role %s", file, nomad.Deref(own.ID), *ours.ID, role)
	}
	if !slices.ContainsFunc(own.TaskGroups, func(g *api.TaskGroup) bool { return nomad.Deref(g.Name) == role }) {
		return nil, fmt.Errorf("%s: has no group %q, by which the role is found and scaled", file, role)
	}
	if !offers(own, *ours.ID) && offers(ours, *ours.ID) {
		return nil, fmt.Errorf("%s: has no service %q, by which others find the role", file, *ours.ID)
	}
	return jobs.Adopt(own, ours), nil
}

// offers reports whether a job has a service of that name.
func offers(j *api.Job, name string) bool {
	return slices.ContainsFunc(j.TaskGroups, func(g *api.TaskGroup) bool {
		return slices.ContainsFunc(g.Services, func(s *api.Service) bool { return s.Name == name })
	})
}

// ours returns the cluster's jobs on the servers, by their ids; the jobs of its runs have
// the names of the runs. A job with the cluster's name that belongs to another cluster or
// owner is an error.
func (f *Fleet) ours(ctx context.Context) (map[string]*api.JobListStub, error) {
	q := nomad.Query(ctx)
	q.Params = map[string]string{"meta": "true"}
	stubs, _, err := f.nomad.Jobs().List(q)
	if err != nil {
		return nil, f.nomad.Fail("list jobs", err)
	}
	wanted := map[string]bool{}
	for _, j := range f.build.All() {
		wanted[*j.ID] = true
	}
	out := map[string]*api.JobListStub{}
	var wrong []error
	for _, s := range stubs {
		switch {
		case s.Meta[jobs.MetaCluster] == f.build.Name && s.Meta[jobs.MetaHome] == f.build.Home():
			out[s.ID] = s
		case s.Stop || s.Meta[jobs.MetaCluster] != "" && s.Meta[jobs.MetaCluster] != f.build.Name:
		case s.Meta[jobs.MetaCluster] == f.build.Name:
			wrong = append(wrong, fmt.Errorf("job %s belongs to another cluster of the name %s, whose store is %q and not %q: choose another name, or take that one down with its own file",
				s.ID, f.build.Name, s.Meta[jobs.MetaHome], f.build.Home()))
		case wanted[s.ID]:
			wrong = append(wrong, fmt.Errorf("job %s was not made by temper: choose another name for the cluster, or stop that job", s.ID))
		}
	}
	return out, errors.Join(wrong...)
}

// Render returns each job as JSON, or the job of one role.
func (f *Fleet) Render(ctx context.Context, role ...string) ([]json.RawMessage, error) {
	all, err := f.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	var out []json.RawMessage
	for _, j := range all {
		if len(role) > 0 && j.Meta[jobs.MetaRole] != role[0] && *j.ID != role[0] {
			continue
		}
		text, err := json.Marshal(map[string]*api.Job{"Job": j})
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("job %s: %w in the file, or its count is 0", strings.Join(role, " "), nomad.ErrNotExist)
	}
	return out, nil
}
