// Package spec owns the file of an operator that describes a cluster
// (cluster.yaml): its keys, their defaults and their validation. It knows no
// scheduler and makes no connection.
//
// Invariant: a Cluster that Load returns without an error can be turned into jobs.
package spec

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"temper/internal/config"
	"temper/internal/role"
)

// Driver is the method by which a node starts a process.
type Driver string

// The drivers of tasks.
const (
	// Exec starts a program in a private folder, as an ordinary user.
	Exec Driver = "exec"
	// RawExec starts a program as the agent's user, without isolation.
	RawExec Driver = "raw_exec"
	// Docker starts the image.
	Docker Driver = "docker"
)

// Cluster describes one installation on Nomad.
type Cluster struct {
	// Name begins the id of every job, service and variable.
	Name string `yaml:"name"`
	// Nomad selects where jobs run.
	Nomad Nomad `yaml:"nomad"`
	// Programs describes the programs on the nodes.
	Programs Programs `yaml:"programs"`
	// Data is the folder on a node for data that outlives an allocation: databases and objects.
	Data string `yaml:"data"`
	// Store is the URL of the store; empty means the job objectstore.
	Store string `yaml:"store"`
	// StoreRole is the role that processes assume at the store with an identity that Nomad signs, in place of
	// keys, such as arn:aws:iam::123456789012:role/temper. Servers from 1.7.
	StoreRole string `yaml:"store_role"`
	// StoreAudience is the audience of such an identity.
	StoreAudience string `yaml:"store_audience"`
	// Temporal is host:port of a Temporal server outside the cluster; empty means the job temporal.
	Temporal string `yaml:"temporal_address"`
	// Postgres is the database of the cluster's Temporal, as postgres://user@host:port/database; empty means
	// the job postgres, or without that job a file below Data. The password is a secret of the job.
	Postgres string `yaml:"postgres"`
	// TLS opens ports to other machines: all servers speak TLS with the certificates of
	// `temper cluster init` and require a token or a certificate. Without it, all servers listen
	// on the loopback address of one machine.
	TLS bool `yaml:"tls"`
	// Ports holds the ports that clients name; Nomad chooses all others.
	Ports Ports `yaml:"ports"`
	// GPUs describes the GPUs of a trainer's node.
	GPUs GPUs `yaml:"gpus"`
	// Placement lets runs have dedicated workers.
	Placement Placement `yaml:"placement"`
	// Roles are the jobs.
	Roles Roles `yaml:"roles"`
}

// Placement describes how the service itself reaches Nomad to start and stop the jobs of
// runs.
type Placement struct {
	// Nomad is the URL at which each node reaches its agent; empty means that runs have no dedicated workers.
	Nomad string `yaml:"nomad"`
	// Token states that the agents require a token: `temper cluster init` takes one for the
	// control worker, and one for the workers of runs.
	Token bool `yaml:"token"`
	// Scale lists the roles that grow and shrink with their load, between their count and max.
	Scale []string `yaml:"scale"`
	// ScaleDownAfter is how long such a role must have more instances than its load needs before one of its
	// instances ends, and again before each further one.
	ScaleDownAfter time.Duration `yaml:"scale_down_after" was:"calm"`
}

// On reports whether runs may have dedicated workers.
func (p Placement) On() bool { return p.Nomad != "" }

// Nomad selects where jobs run.
type Nomad struct {
	Region      string   `yaml:"region"`
	Namespace   string   `yaml:"namespace"`
	Datacenters []string `yaml:"datacenters"`
}

// Programs describes the programs on the nodes.
type Programs struct {
	// Folder holds temper, temporald and s3d on every node, for exec and raw_exec.
	Folder string `yaml:"folder"`
	// Postgres is the folder with initdb and postgres, for the job postgres; empty means the newest
	// version in Debian's folder.
	Postgres string `yaml:"postgres"`
	// Image is the container image, for docker.
	Image string `yaml:"image"`
	// Python is the interpreter that sandbox nodes run.
	Python string `yaml:"python"`
}

// Ports are static; they are open on the nodes that run the job.
type Ports struct {
	Postgres    int `yaml:"postgres"`
	Temporal    int `yaml:"temporal"`
	TemporalUI  int `yaml:"temporal_ui"`
	ObjectStore int `yaml:"objectstore"`
	Gateway     int `yaml:"gateway"`
	UI          int `yaml:"ui"`
	Prometheus  int `yaml:"prometheus"`
}

// GPUs describes the GPUs that a trainer gets on its node.
type GPUs struct {
	// Device is the kind that a device plugin of the nodes announces, such as amd/gpu or
	// amd/gpu/MI300X; empty for trainers on CPUs.
	Device string `yaml:"device"`
	// Count is the number for each trainer.
	Count int `yaml:"count"`
	// Plugin states that the nodes have a device plugin. Without one, their meta lists their GPUs
	// (gpu_vendor, gpu_count), and each trainer has a node for itself.
	Plugin bool `yaml:"plugin"`
	// MinMemory is the required memory of each GPU; 0 requires none.
	MinMemory config.Bytes `yaml:"min_memory"`
}

// Roles are the jobs of a cluster: a field for each row with a job in the table of roles, which has the defaults.
type Roles struct {
	Postgres    Role `yaml:"postgres"`
	Temporal    Role `yaml:"temporal"`
	ObjectStore Role `yaml:"objectstore"`
	Control     Role `yaml:"control"`
	Gateway     Role `yaml:"gateway"`
	Sandbox     Role `yaml:"sandbox"`
	// Trainer is the shared pool, and the template for the trainers of single runs.
	Trainer Role `yaml:"trainer"`
	// Rollout is the job of processes that sample; with a count of 0, trainers also sample.
	Rollout Role `yaml:"rollout"`
	// UI is the dashboard.
	UI      Role `yaml:"ui"`
	Metrics Role `yaml:"metrics"`
}

// Role is one job.
type Role struct {
	// Count is the number of its instances; 0 leaves the job out.
	Count int `yaml:"count"`
	// Max bounds its scaling; 0 means Count, which is then fixed.
	Max int `yaml:"max"`
	// Pool is the node pool; empty is "default".
	Pool   string `yaml:"pool"`
	Driver Driver `yaml:"driver"`
	// User is the user of the process, for exec; empty means the user of Nomad's agent.
	User string `yaml:"user"`
	// CPU is a share of the processors in MHz, Cores a number of reserved cores; set one of them.
	CPU    int          `yaml:"cpu"`
	Cores  int          `yaml:"cores"`
	Memory config.Bytes `yaml:"memory"`
	// Priority decides which job is placed first, and which may be evicted: 1 to 100.
	Priority int `yaml:"priority"`
	// Drain is how long an instance may continue after the stop signal.
	Drain time.Duration `yaml:"drain"`
	// Args are further flags of its command.
	Args []string `yaml:"args"`
	// Env holds further environment variables. No secrets: every reader of the
	// job sees them.
	Env map[string]string `yaml:"env"`
	// File is the operator's job file in HCL or JSON, which replaces the generated job. A
	// relative path counts from the folder of the cluster's file.
	File string `yaml:"file"`
}

// Default returns a cluster without a name, with the defaults of every other key.
func Default() Cluster {
	c := Cluster{
		Nomad:    Nomad{Region: "global", Namespace: "default", Datacenters: []string{"*"}},
		Programs: Programs{Folder: "/usr/local/bin", Python: "python3"},
		Data:     "/var/lib/temper", StoreAudience: "sts.amazonaws.com",
		GPUs:      GPUs{Plugin: true},
		Placement: Placement{ScaleDownAfter: 5 * time.Minute},
	}
	for _, r := range c.Named() {
		j := r.Row.Job
		*r.Role = Role{Count: j.Count, Driver: Driver(j.Driver), Priority: j.Priority, CPU: j.MHz, Memory: config.Bytes(j.Memory), Drain: defaultDrain}
		for _, p := range j.Ports {
			if p.Key != "" {
				*c.port(p.Key) = p.Number
			}
		}
	}
	return c
}

const defaultDrain = 10 * time.Second

// Load reads the file of a cluster. The error is config.Problems when its content is
// invalid, and lists every problem.
func Load(path string) (Cluster, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return Cluster{}, fmt.Errorf("cluster: %w", err)
	}
	c, err := Parse(path, data)
	if err != nil {
		return c, err
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return c, err
	}
	for _, r := range c.Named() {
		if r.File != "" && !filepath.IsAbs(r.File) {
			r.File = filepath.Join(folder, r.File)
		}
	}
	return c, nil
}

// Parse reads the text of a file.
func Parse(name string, data []byte) (Cluster, error) {
	c := Default()
	err := config.Decode(name, data, &c, func() config.Problems {
		c.fill()
		return c.problems()
	})
	return c, err
}

// YAML returns the cluster with all defaults filled in, in a form that Parse reads.
func (c Cluster) YAML() ([]byte, error) {
	text, err := config.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return text, nil
}

// fill sets the defaults that depend on other keys.
func (c *Cluster) fill() {
	for _, r := range c.Named() {
		if r.Cores > 0 {
			r.CPU = 0
		}
		r.Max = cmp.Or(r.Max, r.Count)
	}
}

// Named is a role with its row in the table of roles and its settings.
type Named struct {
	role.Row
	*Role
}

// Named returns the roles in the order in which they start. Their settings point into c.
func (c *Cluster) Named() []Named {
	settings := map[string]*Role{}
	for key, v := range keys[Role](&c.Roles) {
		settings[key] = v
	}
	var out []Named
	for _, row := range role.Jobs() {
		out = append(out, Named{row, settings[row.Name]})
	}
	return out
}

// Of returns the settings of a role that has a job.
func (c *Cluster) Of(name string) Role {
	for _, r := range c.Named() {
		if r.Name == name {
			return *r.Role
		}
	}
	panic("role " + name + " has no settings")
}

// Port returns the number of a port by its key below ports; 0 for a port without a key.
func (c *Cluster) Port(key string) int {
	if key == "" {
		return 0
	}
	return *c.port(key)
}

// port returns the field of a key below ports.
func (c *Cluster) port(key string) *int {
	for k, v := range keys[int](&c.Ports) {
		if k == key {
			return v
		}
	}
	panic("ports." + key + " is no key")
}

// keys iterates over the fields of a section, which have one type, by their keys.
func keys[T any](section any) iter.Seq2[string, *T] {
	v := reflect.ValueOf(section).Elem()
	return func(yield func(string, *T) bool) {
		for i := range v.NumField() {
			if !yield(v.Type().Field(i).Tag.Get("yaml"), v.Field(i).Addr().Interface().(*T)) {
				return
			}
		}
	}
}
