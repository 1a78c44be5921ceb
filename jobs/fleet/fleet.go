// Package fleet owns what an operator does with a cluster: see what would change, apply it,
// look at it, scale, drain, and take it down. It compares the jobs of package jobs with those of
// a Nomad cluster, and changes only what belongs to the cluster of that name.
//
// Invariant: a job is written only over the version that was looked at, and one that
// somebody else has changed is left alone unless the operator says so.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// Fleet is a cluster of ours on Nomad.
type Fleet struct {
	nomad *nomad.Client
	build jobs.Build
}

// New is the cluster that a file describes, for programs of a version.
func New(client *nomad.Client, c spec.Cluster, version string) *Fleet {
	return &Fleet{nomad: client, build: jobs.Build{Cluster: c, Version: version}}
}

// Jobs are those that the file describes, with the operator's own in place of ours.
func (f *Fleet) Jobs(ctx context.Context) ([]*api.Job, error) {
	out := f.build.All()
	var wrong []error
	for i, j := range out {
		file := f.build.File(j.Meta[jobs.MetaRole])
		if file == "" {
			continue
		}
		own, err := f.read(ctx, file, j)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		out[i] = own
	}
	return out, errors.Join(wrong...)
}

// read takes a job of the operator's own for a role. The servers parse it.
func (f *Fleet) read(_ context.Context, file string, ours *api.Job) (*api.Job, error) {
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

// ours are the jobs of the cluster that are there, by their ids; those of its runs are named after
// the runs. A job of the cluster's name which another cluster or somebody else owns is an error.
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
			wrong = append(wrong, fmt.Errorf("job %s was made by somebody else: choose another name for the cluster, or stop that job", s.ID))
		}
	}
	return out, errors.Join(wrong...)
}

// inspector finds what keeps jobs from being what they are meant to be.
type inspector struct{ *Fleet }

// checkServer refuses servers that would drop a part of a job without a word.
func (f inspector) checkServer(ctx context.Context, all []*api.Job) error {
	version, err := f.nomad.Version(ctx)
	if err != nil {
		return err
	}
	var lacks []string
	if least, _ := nomad.ParseVersion(jobs.LeastVersion); version.Before(least) {
		lacks = append(lacks, "services with checks, variables and node pools (Nomad "+jobs.LeastVersion+" or newer)")
	}
	for _, j := range all {
		for _, feature := range jobs.Features(j) {
			if since, err := nomad.ParseVersion(feature.Since); err == nil && version.Before(since) {
				lacks = append(lacks, *j.ID+": "+feature.String())
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w: a server of Nomad at %s has version %s and would drop without a word: %s: upgrade the servers, or leave these out",
		ErrTooOld, f.nomad.Address(), version, strings.Join(lacks, "; "))
}

// ErrTooOld says that servers lack something that a job uses.
var ErrTooOld = errors.New("too old")

// checkPools finds node pools that do not exist.
func (f inspector) checkPools(ctx context.Context, all []*api.Job) error {
	pools, _, err := f.nomad.NodePools().List(nomad.Query(ctx))
	if err != nil {
		return f.nomad.Fail("list node pools", err)
	}
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	var wrong []error
	for _, j := range all {
		if pool := nomad.Deref(j.NodePool); pool != "" && !slices.Contains(names, pool) {
			wrong = append(wrong, fmt.Errorf("roles.%s.pool: there is no node pool %q (there are: %s): start clients with node_pool = %q, or make it with nomad node pool apply",
				j.Meta[jobs.MetaRole], pool, strings.Join(names, ", "), pool))
		}
	}
	return errors.Join(wrong...)
}

// checkSecrets finds items of variables without which a task would wait for ever.
func (f inspector) checkSecrets(ctx context.Context, all []*api.Job) error {
	wanted := map[string][]string{}
	for _, j := range all {
		maps.Copy(wanted, jobs.Secrets(j))
	}
	if items := f.build.RunItems(); len(items) > 0 {
		wanted[f.build.RunsVariable()] = items
	}
	var missing []string
	for path, items := range wanted {
		have, _, err := f.nomad.Variables().GetVariableItems(path, nomad.Query(ctx))
		if err != nil && !errors.Is(err, api.ErrVariablePathNotFound) {
			return f.nomad.Fail("read the variable "+path, err)
		}
		var lacks []string
		for _, item := range items {
			if have[item] == "" {
				lacks = append(lacks, item)
			}
		}
		if len(lacks) > 0 {
			missing = append(missing, path+" ("+strings.Join(lacks, ", ")+")")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("%w in variables of Nomad: %s: make them with temper cluster init", ErrNoSecrets, strings.Join(missing, "; "))
}

// ErrNoSecrets says that jobs lack secrets.
var ErrNoSecrets = errors.New("secrets are missing")

// Render is each job as JSON, or that of one role.
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
