package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/spec"
)

// frame holds the common parts of the jobs of one cluster, and turns a process into a job.
type frame struct {
	name, home, version string
	nomad               spec.Nomad
	programs            spec.Programs
	data                string
	tls                 bool
}

func newFrame(b Build) frame {
	return frame{name: b.Name, home: b.Home(), version: b.Version, nomad: b.Nomad, programs: b.Programs, data: b.Data, tls: b.TLS}
}

// job returns a service with count instances of the process.
func (f frame) job(p process) *api.Job {
	j := &api.Job{
		ID: new(p.id), Name: new(p.id), Type: new(api.JobTypeService), Priority: new(p.settings.Priority),
		Region: new(f.nomad.Region), Namespace: new(f.nomad.Namespace), Datacenters: slices.Clone(f.nomad.Datacenters),
		Meta: map[string]string{MetaCluster: f.name, MetaRole: p.name, MetaBuild: f.version, MetaHome: f.home},
	}
	if p.settings.Pool != "" {
		j.NodePool = new(p.settings.Pool)
	}
	g := f.group(p)
	if p.adjust != nil {
		p.adjust(g)
	}
	j.TaskGroups = []*api.TaskGroup{g}
	return j
}

func (f frame) group(p process) *api.TaskGroup {
	g := &api.TaskGroup{
		Name: new(p.name), Count: new(p.settings.Count),
		// Nomad restarts a failed process on its node, then on others, for ever.
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
			HealthyDeadline: new(healthyDeadline), ProgressDeadline: new(2*healthyDeadline + p.settings.Drain + exitGrace), AutoRevert: new(true),
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
	if p.settings.Max > p.settings.Count {
		g.Scaling = &api.ScalingPolicy{Min: new(int64(p.settings.Count)), Max: new(int64(p.settings.Max)), Enabled: new(true), Policy: map[string]any{}}
	}
	if f.mounts(p) {
		g.Volumes = map[string]*api.VolumeRequest{"data": {Name: "data", Type: "host", Source: f.name}}
	}
	g.Services = f.services(p)
	g.Tasks = []*api.Task{f.task(p)}
	return g
}

// mounts reports whether a process reaches its folder only through a volume. A program
// under raw_exec sees the whole file system of the node.
func (f frame) mounts(p process) bool { return p.folder != "" && p.settings.Driver != spec.RawExec }

const (
	// diskMB holds the logs of a task, which take up to diskMB/2 together.
	diskMB = 300
	// healthyDeadline is how long an instance may take to become healthy.
	healthyDeadline = 5 * time.Minute
)

// services returns the services by which other jobs, and Nomad's checks, find the
// processes.
func (f frame) services(p process) []*api.Service {
	var out []*api.Service
	if p.serve != "" {
		s := f.newService(p, p.service, p.serve)
		s.Tags = []string{"role=" + p.name}
		if p.check != nil && p.check.PortLabel == p.serve {
			s.Checks = []api.ServiceCheck{*p.check}
		}
		out = append(out, s)
	}
	if p.check != nil && p.check.PortLabel != p.serve {
		s := f.newService(p, p.service+healthSuffix, p.check.PortLabel)
		s.Address = loopback
		s.Tags = []string{"role=" + p.name, "metrics"}
		s.Checks = []api.ServiceCheck{*p.check}
		out = append(out, s)
	}
	return out
}

func (f frame) newService(p process, name, port string) *api.Service {
	s := &api.Service{Name: name, PortLabel: port, Provider: "nomad", Meta: map[string]string{MetaCluster: f.name, MetaRole: p.name}}
	if !f.tls {
		s.Address = loopback
	}
	return s
}

func (f frame) task(p process) *api.Task {
	t := &api.Task{
		Name: p.name, Driver: string(p.settings.Driver), User: p.settings.User, Env: map[string]string{},
		KillSignal: cmp.Or(p.signal, "SIGTERM"), KillTimeout: new(p.settings.Drain + exitGrace),
		LogConfig: &api.LogConfig{MaxFiles: new(5), MaxFileSizeMB: new(diskMB / 10 / 2)},
		Resources: &api.Resources{MemoryMB: new(int(p.settings.Memory >> 20))},
	}
	if p.settings.Cores > 0 {
		t.Resources.Cores = new(p.settings.Cores)
	} else {
		t.Resources.CPU = new(p.settings.CPU)
	}
	if len(p.needs) > 0 {
		t.Env[PlacesKey] = "${NOMAD_TASK_DIR}/" + filePlaces
	}
	maps.Copy(t.Env, p.env)
	maps.Copy(t.Env, p.settings.Env)
	args := slices.Concat(p.args, p.settings.Args)
	switch p.settings.Driver {
	case spec.Docker:
		t.Config = map[string]any{"image": f.programs.Image, "network_mode": "host", "entrypoint": []string{"tini", "--"}, "args": append([]string{p.program}, args...)}
	case spec.Exec, spec.RawExec:
		t.Config = map[string]any{"command": cmp.Or(p.systemProgram, path.Join(f.programs.Folder, p.program)), "args": args}
	}
	if f.mounts(p) {
		t.VolumeMounts = []*api.VolumeMount{{Volume: new("data"), Destination: new(f.data), ReadOnly: new(false)}}
	}
	t.Templates, t.Identities = templates(p), p.identities
	return t
}

// exitGrace lies between the end of a drain and the kill, so that a running save can
// finish.
const exitGrace = 5 * time.Second

// templates give a process its secrets and the addresses of other roles, which are not in
// its job.
func templates(p process) []*api.Template {
	var out []*api.Template
	variable := p.variable
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
		// Servers read these files again when they change.
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
		// A role waits for its servers when it starts, and reconnects by itself; one that
		// does not fails its health check and restarts with the new addresses.
		out = append(out, &api.Template{EmbeddedTmpl: new(text.String()), DestPath: new("local/" + filePlaces), Envvars: new(true), ChangeMode: new("noop")})
	}
	return out
}

// literal returns a template that renders text unchanged.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }
