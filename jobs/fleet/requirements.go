package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// requirements checks that the servers have everything that the described jobs need.
type requirements struct {
	nomad *nomad.Client
	jobs  []*api.Job
	// runItems lists the items that the jobs of runs read from the variable runsVariable.
	runsVariable string
	runItems     []string
}

func (f *Fleet) requirements(all []*api.Job) requirements {
	return requirements{f.nomad, all, f.build.RunsVariable(), f.build.RunItems()}
}

// checkServer refuses servers that would drop a part of a job without an error.
func (r requirements) checkServer(ctx context.Context) error {
	version, err := r.nomad.Version(ctx)
	if err != nil {
		return err
	}
	var lacks []string
	if least, _ := nomad.ParseVersion(jobs.LeastVersion); version.Before(least) {
		lacks = append(lacks, "services with checks, variables and node pools (Nomad "+jobs.LeastVersion+" or newer)")
	}
	for _, j := range r.jobs {
		for _, feature := range jobs.Features(j) {
			if since, err := nomad.ParseVersion(feature.Since); err == nil && version.Before(since) {
				lacks = append(lacks, *j.ID+": "+feature.String())
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w: a server of Nomad at %s has version %s and would drop without an error: %s: upgrade the servers, or leave these out",
		ErrTooOld, r.nomad.Address(), version, strings.Join(lacks, "; "))
}

// ErrTooOld means that servers lack a feature that a job uses.
var ErrTooOld = errors.New("too old")

// checkPools finds node pools that do not exist.
func (r requirements) checkPools(ctx context.Context) error {
	pools, _, err := r.nomad.NodePools().List(nomad.Query(ctx))
	if err != nil {
		return r.nomad.Fail("list node pools", err)
	}
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	var wrong []error
	for _, j := range r.jobs {
		if pool := nomad.Deref(j.NodePool); pool != "" && !slices.Contains(names, pool) {
			wrong = append(wrong, fmt.Errorf("roles.%s.pool: there is no node pool %q (there are: %s): start clients with node_pool = %q, or make it with nomad node pool apply",
				j.Meta[jobs.MetaRole], pool, strings.Join(names, ", "), pool))
		}
	}
	return errors.Join(wrong...)
}

// checkSecrets finds items of variables without which a task would wait for ever.
func (r requirements) checkSecrets(ctx context.Context) error {
	wanted := map[string][]string{}
	for _, j := range r.jobs {
		maps.Copy(wanted, jobs.Secrets(j))
	}
	if len(r.runItems) > 0 {
		wanted[r.runsVariable] = r.runItems
	}
	var missing []string
	for path, items := range wanted {
		have, _, err := r.nomad.Variables().GetVariableItems(path, nomad.Query(ctx))
		if err != nil && !errors.Is(err, api.ErrVariablePathNotFound) {
			return r.nomad.Fail("read the variable "+path, err)
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

// ErrNoSecrets means that jobs lack secrets.
var ErrNoSecrets = errors.New("secrets are missing")
