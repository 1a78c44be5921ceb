// Package jobs turns the file of a cluster into jobs of Nomad: one pure function a role. It
// owns their ids, resources, ports, services, secrets and policies. It talks to nobody.
//
// Invariant: the same Cluster gives the same jobs, byte for byte, and no job holds a secret.
package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

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

// loopback is where everything listens that other machines must not reach.
const loopback = "127.0.0.1"

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

// All are the jobs in the order in which they start. Each needs those before it.
func (b Build) All() []*api.Job {
	var out []*api.Job
	for _, j := range []struct {
		role spec.Role
		make func() *api.Job
	}{
		{b.Roles.Postgres, b.PostgresServer}, {b.Roles.Temporal, b.Temporal}, {b.Roles.ObjectStore, b.ObjectStore}, {b.Roles.Gateway, b.Gateway}, {b.Roles.Sandbox, b.Sandbox},
		{b.Roles.Control, b.Control}, {b.Roles.Trainer, b.Trainer}, {b.Roles.Rollout, b.Rollout}, {b.Roles.UI, b.UI},
		{b.Roles.Metrics, b.Metrics},
	} {
		if j.role.Count > 0 {
			out = append(out, seal(j.make()))
		}
	}
	return out
}

// seal writes the hash of a job into its meta, by which a change of ours and one of
// somebody else are told apart.
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

// process is one task of a role, before it is a job.
type process struct {
	name string // of the role
	role spec.Role
	// command is the program, without its folder, and args follow. program is one of the node's
	// system in place of it.
	command, program string
	args             []string
	env              map[string]string
	// ports are static where they are not 0.
	ports []api.Port
	// serve is the port under which others find the role; empty for none.
	serve string
	// check is how Nomad asks whether it is well; nil for none.
	check *api.ServiceCheck
	// secrets are the items of the job's variable that become variables of the
	// environment, and files those that become files below the secrets folder.
	secrets, files map[string]string
	// texts are further files below the local folder, which hold no secret.
	texts map[string]string
	// variable is where the secrets are; empty is that of the role.
	variable string
	// needs are roles whose addresses become variables of the environment.
	needs map[string]string
	// identities are what Nomad signs for the process.
	identities []*api.WorkloadIdentity
	// signal tells the process to end; empty is SIGTERM.
	signal string
}

// form turns a process into a job.
type form struct{ Build }

// job is a service of so many processes.
func (b form) job(p process) *api.Job {
	j := &api.Job{
		ID: new(b.ID(p.name)), Name: new(b.ID(p.name)), Type: new(api.JobTypeService), Priority: new(p.role.Priority),
		Region: new(b.Nomad.Region), Namespace: new(b.Nomad.Namespace), Datacenters: slices.Clone(b.Nomad.Datacenters),
		Meta: map[string]string{MetaCluster: b.Name, MetaRole: p.name, MetaBuild: b.Version, MetaHome: b.Home()},
	}
	if p.role.Pool != "" {
		j.NodePool = new(p.role.Pool)
	}
	j.TaskGroups = []*api.TaskGroup{b.group(p)}
	return j
}

func (b form) group(p process) *api.TaskGroup {
	g := &api.TaskGroup{
		Name: new(p.name), Count: new(p.role.Count),
		// A process that fails is started again where it is, then elsewhere, for ever.
		RestartPolicy: &api.RestartPolicy{
			Attempts: new(3), Interval: new(10 * time.Minute), Delay: new(5 * time.Second), Mode: new(api.RestartPolicyModeFail),
		},
		ReschedulePolicy: &api.ReschedulePolicy{
			Attempts: new(0), Interval: new(time.Duration(0)), Delay: new(5 * time.Second), DelayFunction: new("exponential"),
			MaxDelay: new(5 * time.Minute), Unlimited: new(true),
		},
		EphemeralDisk: &api.EphemeralDisk{SizeMB: new(diskMB)},
		Update: &api.UpdateStrategy{
			MaxParallel: new(1), HealthCheck: new("checks"), MinHealthyTime: new(time.Second),
			HealthyDeadline: new(healthyDeadline), ProgressDeadline: new(2*healthyDeadline + p.role.Drain + lastWords), AutoRevert: new(true),
		},
		Networks: []*api.NetworkResource{{Mode: "host"}},
	}
	for _, port := range p.ports {
		if port.Value > 0 {
			g.Networks[0].ReservedPorts = append(g.Networks[0].ReservedPorts, port)
		} else {
			g.Networks[0].DynamicPorts = append(g.Networks[0].DynamicPorts, port)
		}
	}
	if p.role.Max > p.role.Count {
		g.Scaling = &api.ScalingPolicy{Min: new(int64(p.role.Count)), Max: new(int64(p.role.Max)), Enabled: new(true), Policy: map[string]any{}}
	}
	if b.mounts(p) {
		g.Volumes = map[string]*api.VolumeRequest{"data": {Name: "data", Type: "host", Source: b.Name}}
	}
	g.Services = b.services(p)
	g.Tasks = []*api.Task{b.task(p)}
	return g
}

// mounts reports whether a process sees the folder Data by a volume alone: what raw_exec starts sees the whole node.
func (b form) mounts(p process) bool {
	return Folder(b.Build, p.name) != "" && p.role.Driver != spec.RawExec
}

const (
	// diskMB holds the logs of a task, which are diskMB/2 together.
	diskMB = 300
	// healthyDeadline is how long an instance may take until it is well.
	healthyDeadline = 5 * time.Minute
)

// services are how others, and Nomad's own checks, find the processes.
func (b form) services(p process) []*api.Service {
	var out []*api.Service
	if p.serve != "" {
		s := b.service(p, b.ID(p.name), p.serve)
		s.Tags = []string{"role=" + p.name}
		if p.check != nil && p.check.PortLabel == p.serve {
			s.Checks = []api.ServiceCheck{*p.check}
		}
		out = append(out, s)
	}
	if p.check != nil && p.check.PortLabel != p.serve {
		s := b.service(p, b.ID(p.name)+"-health", p.check.PortLabel)
		s.Address = loopback
		s.Tags = []string{"role=" + p.name, "metrics"}
		s.Checks = []api.ServiceCheck{*p.check}
		out = append(out, s)
	}
	return out
}

func (b form) service(p process, name, port string) *api.Service {
	s := &api.Service{Name: name, PortLabel: port, Provider: "nomad", Meta: map[string]string{MetaCluster: b.Name, MetaRole: p.name}}
	if !b.TLS {
		s.Address = loopback
	}
	return s
}

// alive asks /healthz of a port, and starts the process again when there is no good answer.
func alive(port string) *api.ServiceCheck {
	return &api.ServiceCheck{
		Name: "alive", Type: "http", PortLabel: port, Path: "/healthz", Method: "GET", Interval: 5 * time.Second, Timeout: 3 * time.Second,
		CheckRestart: &api.CheckRestart{Limit: 6, Grace: new(90 * time.Second)},
	}
}

// open asks whether the port of the API takes connections.
func open() *api.ServiceCheck {
	return &api.ServiceCheck{Name: "open", Type: "tcp", PortLabel: portAPI, Interval: 2 * time.Second, Timeout: 2 * time.Second}
}

// wire says how processes reach each other.
type wire struct{ Build }

// address is where a port listens: on this machine alone unless there is TLS.
func (b wire) address(port string) string {
	if b.TLS {
		return "${NOMAD_IP_" + port + "}:${NOMAD_PORT_" + port + "}"
	}
	return loopback + ":${NOMAD_PORT_" + port + "}"
}

func (b form) task(p process) *api.Task {
	t := &api.Task{
		Name: p.name, Driver: string(p.role.Driver), User: p.role.User, Env: map[string]string{},
		KillSignal: cmp.Or(p.signal, "SIGTERM"), KillTimeout: new(p.role.Drain + lastWords),
		LogConfig: &api.LogConfig{MaxFiles: new(5), MaxFileSizeMB: new(diskMB / 10 / 2)},
		Resources: &api.Resources{MemoryMB: new(int(p.role.Memory >> 20))},
	}
	if p.role.Cores > 0 {
		t.Resources.Cores = new(p.role.Cores)
	} else {
		t.Resources.CPU = new(p.role.CPU)
	}
	if len(p.needs) > 0 {
		t.Env[PlacesKey] = "${NOMAD_TASK_DIR}/" + filePlaces
	}
	maps.Copy(t.Env, p.env)
	maps.Copy(t.Env, p.role.Env)
	args := slices.Concat(p.args, p.role.Args)
	switch p.role.Driver {
	case spec.Docker:
		t.Config = map[string]any{"image": b.Programs.Image, "network_mode": "host", "entrypoint": []string{"tini", "--"}, "args": append([]string{p.command}, args...)}
	case spec.Exec, spec.RawExec:
		t.Config = map[string]any{"command": cmp.Or(p.program, path.Join(b.Programs.Folder, p.command)), "args": args}
	}
	if b.mounts(p) {
		t.VolumeMounts = []*api.VolumeMount{{Volume: new("data"), Destination: new(b.Data), ReadOnly: new(false)}}
	}
	t.Templates, t.Identities = b.templates(p), p.identities
	return t
}

// lastWords lie between the end of a drain and the kill: a save under way may end.
const lastWords = 5 * time.Second

// templates give a process what is not in its job: secrets, and addresses of others.
func (b form) templates(p process) []*api.Template {
	var out []*api.Template
	variable := cmp.Or(p.variable, b.Variable(p.name))
	if len(p.secrets) > 0 {
		var text strings.Builder
		fmt.Fprintf(&text, "{{ with nomadVar %q }}", variable)
		for _, key := range slices.Sorted(maps.Keys(p.secrets)) {
			fmt.Fprintf(&text, "\n%s={{ .%s }}", key, p.secrets[key])
		}
		text.WriteString("\n{{ end }}\n")
		out = append(out, &api.Template{
			EmbeddedTmpl: new(text.String()), DestPath: new("secrets/tokens.env"), Envvars: new(true), ChangeMode: new("restart"), Perms: new("0600"),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		// Whoever serves reads its files again when they change.
		out = append(out, &api.Template{
			EmbeddedTmpl: new(fmt.Sprintf("{{ with nomadVar %q }}{{ .%s }}{{ end }}", variable, p.files[name])),
			DestPath:     new("secrets/" + name), ChangeMode: new("noop"), Perms: new("0600"),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(p.texts)) {
		out = append(out, &api.Template{EmbeddedTmpl: new(literal(p.texts[name])), DestPath: new("local/" + name), ChangeMode: new("noop")})
	}
	if len(p.needs) > 0 {
		var text strings.Builder
		for _, key := range slices.Sorted(maps.Keys(p.needs)) {
			text.WriteString(p.needs[key] + "\n")
		}
		// A role waits for its servers when it starts, and finds them again by itself; one that
		// does not is not alive, and starts again with the addresses of then.
		out = append(out, &api.Template{EmbeddedTmpl: new(text.String()), DestPath: new("local/" + filePlaces), Envvars: new(true), ChangeMode: new("noop")})
	}
	return out
}

// literal is a template that renders the text itself.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }

// Variable is where the secrets of a job are; the job may read it without a policy.
func (b Build) Variable(role string) string { return "nomad/jobs/" + b.ID(role) }

// PlacesKey is the variable of the environment with the file of addresses of servers, and
// PlacesMissing begins the lines in it that name servers without one: a comment to Nomad.
const (
	PlacesKey     = "TEMPER_PLACES"
	PlacesMissing = "# missing: "
	filePlaces    = "places.env"
)

// found is a line of an environment with the address of a service, or one that says that
// there is none now. form has .Address and .Port of it. The process waits for it.
func (b wire) found(key, role, form string) string {
	return fmt.Sprintf("{{ range nomadService %[1]q }}%[2]s=%[3]s\n{{ else }}%[4]s%[1]s\n{{ end }}", b.ID(role), key, form, PlacesMissing)
}

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
