package jobs_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func load(t *testing.T, file string) jobs.Build {
	t.Helper()
	c, err := spec.Load(filepath.Join("../deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	return jobs.Build{Cluster: c, Version: "v1"}
}

// TestGolden: the jobs of both examples, byte for byte.
func TestGolden(t *testing.T) {
	for _, name := range []string{"single.cluster.yaml", "cluster.example.yaml"} {
		b := load(t, name)
		got, err := json.MarshalIndent(lean(t, b.All()), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", strings.TrimSuffix(name, ".yaml")+".golden")
		if *update {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got)+"\n", string(want)); diff != "" {
			t.Errorf("%s (-got +want; ./task golden rewrites it):\n%s", name, diff)
		}
	}
}

// lean is v without what is null or empty, for people who read the file.
func lean(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return strip(tree)
}

func strip(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for key, inner := range x {
			if inner = strip(inner); inner == nil || inner == "" || inner == false || inner == float64(0) {
				delete(x, key)
			} else {
				x[key] = inner
			}
		}
		if len(x) == 0 {
			return nil
		}
	case []any:
		for i := range x {
			x[i] = strip(x[i])
		}
		if len(x) == 0 {
			return nil
		}
	}
	return v
}

// TestNothingIsOpenWithoutTLS: what listens for other machines does so with certificates, and
// health, which has no token, never does.
func TestNothingIsOpenWithoutTLS(t *testing.T) {
	for _, name := range []string{"single.cluster.yaml", "cluster.example.yaml"} {
		b := load(t, name)
		for _, j := range b.All() {
			task := j.TaskGroups[0].Tasks[0]
			args := strings.Join(task.Config["args"].([]string), " ")
			open := strings.Contains(args, "${NOMAD_IP_")
			if open && (!b.TLS || !strings.Contains(args, "--tls-client-ca")) {
				t.Errorf("%s of %s listens for other machines without certificates: %s", *j.ID, name, args)
			}
			if strings.Contains(args, "--insecure") || strings.Contains(args, "0.0.0.0") {
				t.Errorf("%s of %s: %s", *j.ID, name, args)
			}
		}
	}
}

// TestNoJobNeedsANewServer: what every job uses is kept by the oldest server that we take.
func TestNoJobNeedsANewServer(t *testing.T) {
	for _, name := range []string{"single.cluster.yaml", "cluster.example.yaml"} {
		for _, j := range load(t, name).All() {
			if f := jobs.Features(j); len(f) > 0 {
				t.Errorf("%s of %s uses %v", *j.ID, name, f)
			}
		}
	}
	j := &api.Job{TaskGroups: []*api.TaskGroup{{Disconnect: &api.DisconnectStrategy{}, Tasks: []*api.Task{{Identities: []*api.WorkloadIdentity{{Audience: []string{"x"}}}}}}}}
	var got []string
	for _, f := range jobs.Features(j) {
		got = append(got, f.String())
	}
	want := []string{
		"TaskGroups[0].Disconnect (Nomad 1.8.0 or newer)", "TaskGroups[0].Tasks[0].Identities (Nomad 1.7.0 or newer)",
		"TaskGroups[0].Tasks[0].Identities[0].Audience (Nomad 1.7.0 or newer)",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("features (-got +want):\n%s", diff)
	}
}

// TestTemporalOnPostgres: the server goes to any node, and its password is no argument.
func TestTemporalOnPostgres(t *testing.T) {
	b := load(t, "single.cluster.yaml")
	b.Postgres = "postgres://temper@db.example.org/temporal"
	j := b.Job(role.Temporal)
	group := j.TaskGroups[0]
	args := strings.Join(group.Tasks[0].Config["args"].([]string), " ")
	if !strings.Contains(args, "--postgres "+b.Postgres) || strings.Contains(args, "--db") || len(group.Volumes) > 0 {
		t.Errorf("arguments %q, volumes %v", args, group.Volumes)
	}
	want := map[string][]string{"nomad/jobs/temper-temporal": {"postgres_password"}}
	if diff := cmp.Diff(jobs.Secrets(j), want); diff != "" {
		t.Errorf("secrets (-got +want):\n%s", diff)
	}
}

// TestOwnServers: Postgres and the dashboard stay on their machine, the object store shows a
// certificate to others, and only who needs a secret has it.
func TestOwnServers(t *testing.T) {
	b := load(t, "single.cluster.yaml")
	b.Store, b.TLS = "", true
	b.Roles.Postgres.Count, b.Roles.ObjectStore.Count, b.Roles.UI.Count = 1, 1, 1
	args := map[string]string{}
	held := map[string][]string{}
	for _, j := range b.All() {
		name := j.Meta[jobs.MetaRole]
		args[name] = strings.Join(j.TaskGroups[0].Tasks[0].Config["args"].([]string), " ")
		held[name] = jobs.Secrets(j)["nomad/jobs/temper-"+name]
	}
	for name, want := range map[string]string{
		"temporal":    "--postgres postgres://temper@127.0.0.1:5432/temporal?sslmode=disable",
		"objectstore": "--listen ${NOMAD_IP_api}:${NOMAD_PORT_api} --bucket temper --tls-cert ${NOMAD_SECRETS_DIR}/cert.pem",
		"ui":          "ui --listen 127.0.0.1:${NOMAD_PORT_ui} --health 127.0.0.1:${NOMAD_PORT_health}",
	} {
		if !strings.Contains(args[name], want) {
			t.Errorf("%s is started with %q, want %q in it", name, args[name], want)
		}
	}
	for name, want := range map[string][]string{
		"postgres": {"postgres_password"}, "temporal": {"postgres_password"}, "objectstore": {"access_key", "secret_key", "tls_cert", "tls_key"},
		"ui": {"access_key", "secret_key", "tls_ca", "ui_token"}, "control": {"access_key", "secret_key", "tls_ca"},
	} {
		if diff := cmp.Diff(held[name], want); diff != "" {
			t.Errorf("secrets of %s (-got +want):\n%s", name, diff)
		}
	}
	control := b.Job(role.Control).TaskGroups[0].Tasks[0]
	if text := templateOf(control, "local/places.env"); !strings.Contains(text, `endpoint=https://{{ .Address }}:{{ .Port }}&path_style=true&region=us-east-1&ca={{ env "NOMAD_SECRETS_DIR" }}/ca.pem`) {
		t.Errorf("control finds the store by\n%s", text)
	}
}

// templateOf is the text of a task's template.
func templateOf(task *api.Task, path string) string {
	for _, t := range task.Templates {
		if *t.DestPath == path {
			return *t.EmbeddedTmpl
		}
	}
	return ""
}

// TestMetricsHasTheAlerts: Prometheus gets the rules as they are, behind the language of templates.
func TestMetricsHasTheAlerts(t *testing.T) {
	task := load(t, "single.cluster.yaml").Job(role.Metrics).TaskGroups[0].Tasks[0]
	var out strings.Builder
	if err := template.Must(template.New("").Parse(templateOf(task, "secrets/alerts.yaml"))).Execute(&out, nil); err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile("../deploy/prometheus/alerts.yaml"); err != nil || out.String() != string(want) {
		t.Errorf("alerts (%v):\n%s", err, out.String())
	}
	if !strings.Contains(templateOf(task, "secrets/prometheus.yaml"), "rule_files: [alerts.yaml]") {
		t.Error("Prometheus reads no rules")
	}
}

// TestStoreRole: who reads the store gets an identity in place of keys, and an old server is
// refused by the name of that field.
func TestStoreRole(t *testing.T) {
	b := load(t, "cluster.example.yaml")
	b.StoreRole = "arn:aws:iam::123456789012:role/temper"
	for _, j := range b.All() {
		task := j.TaskGroups[0].Tasks[0]
		reads := slices.Contains([]string{"control", "trainer", "rollout"}, j.Meta[jobs.MetaRole])
		if (task.Env["AWS_ROLE_ARN"] == b.StoreRole) != reads || (len(task.Identities) == 1) != reads {
			t.Errorf("%s: environment %v, identities %v", *j.ID, task.Env, task.Identities)
		}
		if !reads {
			continue
		}
		if got := task.Env["AWS_WEB_IDENTITY_TOKEN_FILE"]; got != "${NOMAD_SECRETS_DIR}/nomad_store.jwt" {
			t.Errorf("%s: its token is in %q", *j.ID, got)
		}
		f := jobs.Features(j)
		if len(f) == 0 || f[0].String() != "TaskGroups[0].Tasks[0].Identities (Nomad 1.7.0 or newer)" {
			t.Errorf("%s needs %v", *j.ID, f)
		}
	}
}

// TestSecretsAreFew: each role reads what it needs and no more; the sandbox, which runs
// hostile programs, only its own token.
func TestSecretsAreFew(t *testing.T) {
	b := load(t, "single.cluster.yaml")
	got := map[string][]string{}
	for _, j := range b.All() {
		for path, items := range jobs.Secrets(j) {
			got[path] = items
		}
	}
	want := map[string][]string{
		"nomad/jobs/temper-gateway": {"node_token", "sandbox_token"},
		"nomad/jobs/temper-sandbox": {"node_token"},
		"nomad/jobs/temper-trainer": {"sandbox_token"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("secrets (-got +want):\n%s", diff)
	}
}

// TestControlGetsTheCluster: a control worker that places runs gets the file, byte for byte
// behind the language of templates, the way to Nomad and no secret of others.
func TestControlGetsTheCluster(t *testing.T) {
	b := load(t, "cluster.example.yaml")
	b.Roles.Trainer.Env = map[string]string{"ODD": "{{{ nothing }} ${X}"}
	control := b.Job(role.Control)
	task := control.TaskGroups[0].Tasks[0]
	if task.Env["NOMAD_ADDR"] != b.Placement.Nomad || !strings.Contains(strings.Join(task.Config["args"].([]string), " "), "--cluster ${NOMAD_TASK_DIR}/cluster.yaml") {
		t.Errorf("env %v, args %v", task.Env, task.Config["args"])
	}
	want := map[string][]string{"nomad/jobs/temper-control": {"nomad_token", "sandbox_token", "tls_ca", "tls_cert", "tls_key"}}
	if diff := cmp.Diff(jobs.Secrets(control), want); diff != "" {
		t.Errorf("secrets (-got +want):\n%s", diff)
	}
	read := func() (string, spec.Cluster) {
		t.Helper()
		var out strings.Builder
		if err := template.Must(template.New("").Parse(templateOf(b.Job(role.Control).TaskGroups[0].Tasks[0], "local/cluster.yaml"))).Execute(&out, nil); err != nil {
			t.Fatal(err)
		}
		c, err := spec.Parse("cluster.yaml", []byte(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), c
	}
	_, got := read()
	if diff := cmp.Diff(got, b.Cluster, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("cluster (-got +want):\n%s", diff)
	}
	// The folder of a job file is that of whoever applies: the job is the same from each machine, and its file is read.
	b.Roles.Postgres = spec.Role{Count: 1, Driver: spec.Docker, CPU: 100, Memory: 64 << 20, Priority: 50, Max: 1, File: "/home/ann/deploy/postgres.hcl"}
	b.Programs.Image, b.Cluster.Temporal = "temper:1", ""
	b.Roles.Temporal.Count, b.Roles.Temporal.Max = 1, 1
	ann, _ := read()
	b.Roles.Postgres.File = "/srv/bob/postgres.hcl"
	if bob, _ := read(); bob != ann || strings.Contains(bob, "/srv/bob") {
		t.Errorf("the job of control depends on the folder of whoever applies:\n%s", cmp.Diff(ann, bob))
	}
	if b.File("postgres") != "/srv/bob/postgres.hcl" {
		t.Errorf("the job file of postgres is now %q", b.File("postgres"))
	}
	b.Placement = spec.Placement{}
	if c := b.Job(role.Control); len(jobs.Secrets(c)) > 0 || c.TaskGroups[0].Tasks[0].Env["NOMAD_ADDR"] != "" {
		t.Error("a control worker that places nothing reaches Nomad")
	}
}

// TestRunReadsItsOwn: the job of a run reads the variable of its own name alone.
func TestRunReadsItsOwn(t *testing.T) {
	b := load(t, "cluster.example.yaml")
	j := b.Run(placement.Job{ID: "engine-a", Run: "a", Role: placement.RoleEngine, Instances: 2, Queues: placement.QueuesOf("a")})
	want := map[string][]string{"nomad/jobs/engine-a": b.RunItems()}
	if diff := cmp.Diff(jobs.Secrets(j), want); diff != "" || !slices.Contains(b.RunItems(), jobs.ItemNomadToken) {
		t.Errorf("items %q, secrets (-got +want):\n%s", b.RunItems(), diff)
	}
}

func node(name, pool string, cpu, memory int64, gpus int) *api.NodeListStub {
	n := &api.NodeListStub{
		ID: name, Name: name, NodePool: pool, Status: "ready", SchedulingEligibility: "eligible",
		Drivers: map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
		NodeResources: &api.NodeResources{
			Cpu: api.NodeCpuResources{CpuShares: cpu}, Memory: api.NodeMemoryResources{MemoryMB: memory},
			Devices: []*api.NodeDeviceResource{{Vendor: "amd", Type: "gpu", Name: "MI300X"}},
		},
	}
	for range gpus {
		n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, &api.NodeDevice{Healthy: true})
	}
	return n
}

// TestRoomSaysWhy: what Nomad does not tell, above all where devices are used up.
func TestRoomSaysWhy(t *testing.T) {
	gang := func(count int, gpus uint64) (*api.Job, *api.TaskGroup) {
		g := &api.TaskGroup{Name: new("trainer"), Count: new(count), Tasks: []*api.Task{{Driver: "raw_exec", Resources: &api.Resources{
			CPU: new(1000), MemoryMB: new(1000), Devices: []*api.RequestedDevice{{Name: "amd/gpu", Count: new(gpus)}},
		}}}}
		return &api.Job{NodePool: new("gpu")}, g
	}
	draining, down, shut := node("g4", "gpu", 9000, 9000, 8), node("g5", "gpu", 9000, 9000, 8), node("g6", "gpu", 9000, 9000, 8)
	draining.Drain, down.Status, shut.SchedulingEligibility = true, "down", "ineligible"
	nodes := []*api.NodeListStub{node("g1", "gpu", 9000, 9000, 8), node("g2", "gpu", 9000, 9000, 8), node("g3", "gpu", 9000, 900, 8), draining, down, shut, node("c1", "core", 9000, 9000, 0)}
	holds := func(node, job, status string, gpus ...string) *api.AllocationListStub {
		return &api.AllocationListStub{NodeID: node, JobID: job, ClientStatus: status, AllocatedResources: &api.AllocatedResources{
			Tasks: map[string]*api.AllocatedTaskResources{"t": {Devices: []*api.AllocatedDeviceResource{{Vendor: "amd", Type: "gpu", Name: "MI300X", DeviceIDs: gpus}}}},
		}}
	}
	allocs := []*api.AllocationListStub{
		holds("g2", "other", "running", "0", "1", "2"), holds("g1", "other", "complete", "0", "1"), holds("g1", "mine", "running", "0", "1", "2", "3"),
	}
	job, group := gang(2, 8)
	missing, why := jobs.NewCapacity(nodes, allocs, "mine").Place(job, group)
	want := []string{
		"1 of 7 nodes: has 0 of 8 amd/gpu free, and 8 are needed", "1 of 7 nodes: has 5 of 8 amd/gpu free, and 8 are needed", "1 of 7 nodes: is down",
		"1 of 7 nodes: is draining", "1 of 7 nodes: lacks memory: 1000 MiB are needed", "1 of 7 nodes: not in the node pool gpu", "1 of 7 nodes: takes nothing new (ineligible)",
	}
	if diff := cmp.Diff(why, want); diff != "" || missing != 1 {
		t.Errorf("%d missing, want 1; reasons (-got +want):\n%s", missing, diff)
	}
	job, group = gang(3, 5)
	if missing, why := jobs.NewCapacity(nodes, allocs[:1]).Place(job, group); missing != 1 {
		t.Errorf("%d of 3 instances of 5 GPUs find no room (%q), want 1: there is one node of 8 and one of 5", missing, why)
	}
	group.Tasks[0].Resources.Devices[0].Name = "nvidia/gpu"
	if _, why := jobs.NewCapacity(nodes, nil).Place(job, group); !strings.Contains(strings.Join(why, "\n"), "has no device nvidia/gpu") {
		t.Errorf("an unknown device: %q", why)
	}
	if missing, why := jobs.NewCapacity(nil, nil).Place(job, group); missing != 3 || why[0] != "the cluster has no node" {
		t.Errorf("no nodes: %d missing, %q", missing, why)
	}
}

// TestRoomKnowsPlaces: datacenters and host volumes decide where a group may be, as the scheduler reads them.
func TestRoomKnowsPlaces(t *testing.T) {
	east, west, away := node("e1", "default", 9000, 9000, 0), node("w1", "default", 9000, 9000, 0), node("w2", "default", 9000, 9000, 0)
	east.Datacenter, west.Datacenter, away.Datacenter = "eu-east-1", "eu-west-1", "eu-west-2"
	away.Status = "down"
	room := jobs.NewCapacity([]*api.NodeListStub{east, west, away}, nil)
	if missing, _ := room.Place(&api.Job{}, &api.TaskGroup{Count: new(1), Tasks: []*api.Task{{Driver: "raw_exec"}}, Volumes: map[string]*api.VolumeRequest{"data": {Type: "host", Source: "shop"}}}); missing > 0 {
		t.Error("volumes that nobody has listed are taken for missing")
	}
	room.SetVolumes(map[string][]string{"w1": {"other", "shop"}, "w2": {"shop"}})
	group := func(volume string) *api.TaskGroup {
		g := &api.TaskGroup{Count: new(1), Tasks: []*api.Task{{Driver: "raw_exec"}}}
		if volume != "" {
			g.Volumes = map[string]*api.VolumeRequest{"data": {Type: "host", Source: volume}}
		}
		return g
	}
	for _, c := range []struct {
		datacenters []string
		volume      string
		may, why    string
	}{
		{nil, "", "e1 w1", ""},
		{[]string{"*"}, "", "e1 w1", ""},
		{[]string{"eu-*-1"}, "", "e1 w1", ""},
		{[]string{"eu-west-*", "moon"}, "", "w1", ""},
		{[]string{"eu"}, "", "", "1 of 3 nodes: in the datacenter eu-east-1, and not in eu; 1 of 3 nodes: in the datacenter eu-west-1, and not in eu; 1 of 3 nodes: in the datacenter eu-west-2, and not in eu"},
		{[]string{"*-2"}, "", "", "1 of 3 nodes: in the datacenter eu-east-1, and not in *-2; 1 of 3 nodes: in the datacenter eu-west-1, and not in *-2; 1 of 3 nodes: is down"},
		{[]string{"*"}, "shop", "w1", ""},
		{[]string{"*"}, "disk", "", `2 of 3 nodes: has no host_volume "disk" in its client block; 1 of 3 nodes: is down`},
		{[]string{"*east*"}, "shop", "", `1 of 3 nodes: has no host_volume "shop" in its client block; 1 of 3 nodes: in the datacenter eu-west-1, and not in *east*; 1 of 3 nodes: in the datacenter eu-west-2, and not in *east*`},
	} {
		j, g := &api.Job{Datacenters: c.datacenters}, group(c.volume)
		if may := strings.Join(room.MayTake(j, g), " "); may != c.may {
			t.Errorf("datacenters %q, volume %q: may be on %q, want %q", c.datacenters, c.volume, may, c.may)
		}
		missing, why := room.Place(j, g)
		if got := strings.Join(why, "; "); got != c.why || (missing == 0) != (c.why == "") {
			t.Errorf("datacenters %q, volume %q: %d missing: %s; want %s", c.datacenters, c.volume, missing, got, c.why)
		}
	}
}
