// Package jobs turns the file of a cluster into jobs of Nomad, with one pure function for each role. It
// owns their ids, resources, ports, services, secrets and policies. It makes no connection.
//
// Invariant: the same Cluster gives the same jobs, byte for byte, and no job holds a secret.
package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/spec"
)

// Keys of the meta of a job.
const (
	MetaCluster = "temper_cluster"
	MetaRole    = "temper_role"
	MetaBuild   = "temper_build"
	// MetaHome identifies the store of the job's cluster: two clusters of one name have two stores.
	MetaHome = "temper_home"
	// MetaSpec is the hash of the rendered job.
	MetaSpec = "temper_spec"
	// MetaAttempt counts the attempts to start the same job after Nomad gave it up. It is not
	// part of the hash.
	MetaAttempt = "temper_attempt"
	// MetaRun is the run that a job belongs to.
	MetaRun = "temper_run"
)

// Build makes the jobs of one cluster.
type Build struct {
	spec.Cluster
	// Version is the version of the programs; a new version restarts the services.
	Version string
}

// ID returns the id of a role's job, which is also the name of its service.
func (b Build) ID(role string) string { return b.Name + "-" + role }

// Home identifies the cluster among clusters of one name.
func (b Build) Home() string {
	if b.Store != "" {
		return b.Store
	}
	return "objectstore of " + b.Data
}

// All returns the jobs in the order in which they start. Each needs the jobs before it.
func (b Build) All() []*api.Job {
	var out []*api.Job
	for _, r := range b.Named() {
		if r.Count > 0 {
			out = append(out, b.Job(r.Name))
		}
	}
	return out
}

// Job returns the job of a role, even if its count is 0.
func (b Build) Job(name string) *api.Job { return seal(newFrame(b).job(describe(b, name))) }

// seal writes the hash of a job into its meta, which tells a change by temper from a change
// by others.
func seal(j *api.Job) *api.Job {
	delete(j.Meta, MetaSpec)
	text, err := json.Marshal(j)
	if err != nil {
		panic(fmt.Sprintf("job %s does not encode: %v", *j.ID, err)) // it holds only strings and numbers
	}
	sum := sha256.Sum256(text)
	j.Meta[MetaSpec] = hex.EncodeToString(sum[:8])
	return j
}

// Variable returns the path of a job's secrets; the job may read it without a policy.
func (b Build) Variable(role string) string { return "nomad/jobs/" + b.ID(role) }

// File returns the operator's job file for a role; "" for none.
func (b Build) File(role string) string {
	for _, r := range b.Named() {
		if r.Name == role {
			return r.File
		}
	}
	return ""
}

// Adopt adds the fields to an operator's job that make it part of the cluster.
func Adopt(own, ours *api.Job) *api.Job {
	own.Region, own.Namespace = ours.Region, ours.Namespace
	if own.Meta == nil {
		own.Meta = map[string]string{}
	}
	maps.Copy(own.Meta, ours.Meta)
	for _, g := range own.TaskGroups {
		if g.Count == nil { // Nomad's default
			g.Count = new(1)
			if g.Scaling != nil && g.Scaling.Min != nil {
				g.Count = new(int(*g.Scaling.Min))
			}
		}
	}
	return seal(own)
}

// Has reports whether a role of that name exists.
func (b Build) Has(role string) bool {
	return slices.ContainsFunc(b.Named(), func(r spec.Named) bool { return r.Name == role })
}
