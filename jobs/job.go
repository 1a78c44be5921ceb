// Package jobs turns the file of a cluster into jobs of Nomad: one pure function a role. It
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
	// MetaHome says which store the cluster of the job uses: two clusters of one name have two.
	MetaHome = "temper_home"
	// MetaSpec is the hash of the job as it was rendered.
	MetaSpec = "temper_spec"
	// MetaAttempt counts how often the same job was tried again after Nomad gave it up. It is not
	// part of the hash.
	MetaAttempt = "temper_attempt"
	// MetaRun is the run that a job belongs to.
	MetaRun = "temper_run"
)

// Build makes the jobs of one cluster.
type Build struct {
	spec.Cluster
	// Version of the programs; a new one rolls the services over.
	Version string
}

// ID is the id of a role's job, and the name of its service.
func (b Build) ID(role string) string { return b.Name + "-" + role }

// Home tells clusters of one name apart.
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

// Job returns the job of a role, whatever its count.
func (b Build) Job(name string) *api.Job { return seal(newFrame(b).job(describe(b, name))) }

// seal writes the hash of a job into its meta, which tells a change of ours from a change by others.
func seal(j *api.Job) *api.Job {
	delete(j.Meta, MetaSpec)
	text, err := json.Marshal(j)
	if err != nil {
		panic(fmt.Sprintf("job %s does not encode: %v", *j.ID, err)) // it consists of texts and numbers
	}
	sum := sha256.Sum256(text)
	j.Meta[MetaSpec] = hex.EncodeToString(sum[:8])
	return j
}

// Variable is where the secrets of a job are; the job may read it without a policy.
func (b Build) Variable(role string) string { return "nomad/jobs/" + b.ID(role) }

// File is the operator's own job file for a role; "" for none.
func (b Build) File(role string) string {
	for _, r := range b.Named() {
		if r.Name == role {
			return r.File
		}
	}
	return ""
}

// Adopt gives a job of the operator's own what makes it part of the cluster.
func Adopt(own, ours *api.Job) *api.Job {
	own.Region, own.Namespace = ours.Region, ours.Namespace
	if own.Meta == nil {
		own.Meta = map[string]string{}
	}
	maps.Copy(own.Meta, ours.Meta)
	for _, g := range own.TaskGroups {
		if g.Count == nil { // as Nomad reads it
			g.Count = new(1)
			if g.Scaling != nil && g.Scaling.Min != nil {
				g.Count = new(int(*g.Scaling.Min))
			}
		}
	}
	return seal(own)
}

// Has reports whether there is a role of that name.
func (b Build) Has(role string) bool {
	return slices.ContainsFunc(b.Named(), func(r spec.Named) bool { return r.Name == role })
}
