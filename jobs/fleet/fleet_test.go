//go:build integration

package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomad"
	"temper/jobs/nomadtest"
	"temper/jobs/spec"
)

// stand in for temper: a program that answers for its health.
const program = `#!%s
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *a):
        pass
print("serves", " ".join(sys.argv[1:]), file=sys.stderr, flush=True)
host, port = sys.argv[sys.argv.index("--listen") + 1].rsplit(":", 1)
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
`

const file = `
name: %s
programs: {folder: %q}
store: %s
temporal_address: 127.0.0.1:1
roles:
  temporal: {count: 0}
  gateway: {driver: raw_exec, cpu: 50, memory: 32MiB}
  sandbox: {driver: raw_exec, cpu: 50, memory: 32MiB, max: 3}
  control: {driver: raw_exec, cpu: 50, memory: 32MiB}
`

// operator is a person at a cluster of the test.
type operator struct {
	t      *testing.T
	agents *nomadtest.Cluster
	folder string
	said   []string
}

func (o *operator) parse(text string) spec.Cluster {
	o.t.Helper()
	c, err := spec.Parse("c.yaml", []byte(text))
	if err != nil {
		o.t.Fatal(err)
	}
	return c
}

func (o *operator) fleet(c spec.Cluster, token string) *fleet.Fleet {
	o.t.Helper()
	client, err := nomad.Connect(nomad.Config{Address: o.agents.Address, Token: token})
	if err != nil {
		o.t.Fatal(err)
	}
	return fleet.New(client, c, "v1")
}

func (o *operator) apply(f *fleet.Fleet, take bool) error {
	o.t.Helper()
	plan, err := f.Plan(o.t.Context())
	if err != nil {
		return err
	}
	return f.Apply(o.t.Context(), plan, fleet.ApplyOptions{Take: take, Patience: 3 * time.Minute, Say: func(s string) { o.said = append(o.said, s) }})
}

// wants checks an error: one line with the text.
func (o *operator) wants(what string, err, kind error, text string) {
	o.t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		o.t.Errorf("%s: %v, want one line like %q", what, err, text)
	}
}

// TestOperator goes through what a person does with a cluster, and does wrong, on a real
// Nomad that asks for tokens, with the policies that we ship.
func TestOperator(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, agents: nomadtest.Start(t, nomadtest.Options{Root: "../..", ACL: true}), folder: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.folder, "temper"), fmt.Appendf(nil, program, python), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	o.agents.Bootstrap()
	o.agents.Node(nomadtest.Node{Name: "one", Meta: map[string]string{"gpu_vendor": "amd", "gpu_count": "8"}})
	c := o.parse(fmt.Sprintf(file, "shop", o.folder, "s3://runs/a"))
	o.tokens(c)
	f := o.fleet(c, o.token("operator"))
	o.firstInstall(f)
	o.strangers(f, c)
	o.others(f, c)
	o.everyday(f, c)
	o.everyFieldIsKept()
}

// token makes one with a policy of deploy/nomad/acl.
func (o *operator) token(policy string) string {
	o.t.Helper()
	rules, err := os.ReadFile(filepath.Join("../../deploy/nomad/acl", policy+".hcl"))
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.agents.API.ACLPolicies().Upsert(&api.ACLPolicy{Name: policy, Rules: string(rules)}, nil); err != nil {
		o.t.Fatal(err)
	}
	token, _, err := o.agents.API.ACLTokens().Create(&api.ACLToken{Name: policy, Type: "client", Policies: []string{policy}}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return token.SecretID
}

// tokens: without one, with an unknown one, and with one that may only look.
func (o *operator) tokens(c spec.Cluster) {
	ctx := o.t.Context()
	o.t.Setenv("NOMAD_TOKEN", "")
	_, err := o.fleet(c, "").Status(ctx)
	o.wants("no token", err, nomad.ErrDenied, "it asks for a token: set NOMAD_TOKEN")
	wrong := "11111111-2222-3333-4444-555555555555"
	o.t.Setenv("NOMAD_TOKEN", wrong)
	_, err = o.fleet(c, wrong).Status(ctx)
	o.wants("an unknown token", err, nomad.ErrDenied, "it does not know the token in NOMAD_TOKEN")
	if strings.Contains(err.Error(), wrong) {
		o.t.Errorf("the error shows the token: %v", err)
	}
	reader := o.fleet(c, o.token("reader"))
	if _, err := reader.Status(ctx); err != nil {
		o.t.Errorf("a reader may look: %v", err)
	}
	o.wants("a reader makes secrets", reader.Init(ctx, fleet.InitOptions{Say: func(string) {}}), nomad.ErrDenied, "lacks the right: deploy/nomad/acl")
	away, err := nomad.Connect(nomad.Config{Address: "http://127.0.0.1:1"})
	if err != nil {
		o.t.Fatal(err)
	}
	_, err = fleet.New(away, c, "v1").Plan(ctx)
	o.wants("no Nomad", err, nomad.ErrUnreachable, "start an agent there, or name another with NOMAD_ADDR")
}

// firstInstall: nothing is half applied, and what is applied needs nothing more.
func (o *operator) firstInstall(f *fleet.Fleet) {
	ctx := o.t.Context()
	o.wants("no secrets", o.apply(f, false), fleet.ErrNoSecrets, "nomad/jobs/shop-gateway (node_token, sandbox_token)")
	if err := f.Init(ctx, fleet.InitOptions{Say: func(string) {}}); err != nil {
		o.t.Fatal(err)
	}
	o.leftBehind("shop-control")
	if err := o.apply(f, false); err != nil {
		o.t.Fatal(err)
	}
	before := len(o.said)
	if err := o.apply(f, false); err != nil || len(o.said) != before {
		o.t.Errorf("a second apply does %q (%v)", o.said[before:], err)
	}
	plan, err := f.Plan(ctx)
	if err != nil || !plan.Empty() || len(plan.Changes) != 3 {
		o.t.Errorf("plan of a cluster that is as its file says: %+v (%v)", plan, err)
	}
	for _, finding := range f.Doctor(ctx) {
		if !finding.OK {
			o.t.Errorf("doctor: %s", finding)
		}
	}
}

// leftBehind is a job of somebody else that is stopped, and which Nomad still knows.
func (o *operator) leftBehind(id string) {
	task := api.NewTask("x", "raw_exec").SetConfig("command", "/bin/true")
	job := api.NewServiceJob(id, id, "global", 50).AddTaskGroup(api.NewTaskGroup("x", 0).AddTask(task))
	if _, _, err := o.agents.API.Jobs().Register(job, nil); err != nil {
		o.t.Fatal(err)
	}
	if _, _, err := o.agents.API.Jobs().Deregister(id, false, nil); err != nil {
		o.t.Fatal(err)
	}
}

// strangers: a job that somebody else has changed, before and after it was looked at.
func (o *operator) strangers(f *fleet.Fleet, c spec.Cluster) {
	ctx := o.t.Context()
	touch := func() {
		o.t.Helper()
		job, _, err := o.agents.API.Jobs().Info("shop-gateway", nil)
		if err != nil {
			o.t.Fatal(err)
		}
		job.Priority = new(*job.Priority + 1)
		if _, _, err := o.agents.API.Jobs().Register(job, nil); err != nil {
			o.t.Fatal(err)
		}
	}
	touch()
	o.wants("a job that somebody changed", o.apply(f, false), fleet.ErrForeign, "shop-gateway: changed by others since it was applied (Priority)")
	c.Roles.Gateway.Memory = 48 << 20
	edited := o.fleet(c, o.token("operator"))
	o.wants("an upgrade over what somebody changed", o.apply(edited, false), fleet.ErrForeign, "shop-gateway: changed by others since it was applied (Priority)")
	plan, err := edited.Plan(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	touch()
	err = edited.Apply(ctx, plan, fleet.ApplyOptions{Take: true, Patience: time.Minute, Say: func(string) {}})
	o.wants("a job that changed after the plan", err, nomad.ErrChanged, "look with temper cluster plan, then apply again (applied: none;")
	if err := o.apply(f, true); err != nil {
		o.t.Errorf("take it back: %v", err)
	}
}

// others: clusters of one name, jobs of nobody, places that do not exist.
func (o *operator) others(f *fleet.Fleet, c spec.Cluster) {
	ctx := o.t.Context()
	twin := c
	twin.Store = "s3://runs/b"
	_, err := o.fleet(twin, o.token("operator")).Plan(ctx)
	if err == nil || !strings.Contains(err.Error(), `belongs to another cluster of the name shop, whose store is "s3://runs/a" and not "s3://runs/b"`) {
		o.t.Errorf("two clusters of one name: %v", err)
	}
	lost := c
	lost.Roles.Control.Pool = "moon"
	_, err = o.fleet(lost, o.token("operator")).Plan(ctx)
	o.wants("a pool that is not there", err, nil, `roles.control.pool: there is no node pool "moon" (there are: all, default)`)
	big := c
	big.Roles.Control.Memory = 1 << 40
	o.wants("no room", o.apply(o.fleet(big, o.token("operator")), false), nil, "job shop-control: no room for 1 of 1 control: 1 of 1 nodes: lacks memory: 1048576 MiB are needed")
	gpus := o.parse(fmt.Sprintf(file, "shop", o.folder, "s3://runs/a") + "  trainer: {count: 1, driver: raw_exec}\ngpus: {device: amd/gpu, count: 8}\n")
	if err := o.fleet(gpus, o.token("operator")).Init(ctx, fleet.InitOptions{Say: func(string) {}}); err != nil {
		o.t.Fatal(err)
	}
	o.wants("an unknown device", o.apply(o.fleet(gpus, o.token("operator")), false), nil, "1 of 1 nodes: has no device amd/gpu")
	away := c
	away.Nomad.Datacenters = []string{"moon"}
	if err := o.apply(o.fleet(away, o.token("operator")), false); err == nil || !strings.Contains(err.Error(), "job shop-gateway: no room for 1 of 1 gateway: 1 of 1 nodes: in the datacenter dc1, and not in moon\n") {
		o.t.Errorf("a datacenter that is not there: %v", err)
	}
	watched := o.parse(fmt.Sprintf(file, "shop", o.folder, "s3://runs/a") + "  metrics: {count: 1, driver: exec, cpu: 50, memory: 32MiB}\n")
	if err := o.fleet(watched, o.token("operator")).Init(ctx, fleet.InitOptions{Say: func(string) {}}); err != nil {
		o.t.Fatal(err)
	}
	o.wants("a volume that is not there", o.apply(o.fleet(watched, o.token("operator")), false), nil, `no room for 1 of 1 metrics: 1 of 1 nodes: has no host_volume "shop" in its client block`)
	o.nodesThatSay(c)
	o.tooOld(c)
	own := c
	own.Roles.Gateway.File = filepath.Join(o.t.TempDir(), "own.hcl")
	for text, want := range map[string]string{
		"job \"other\" {\n group \"gateway\" {}\n}":                `describes the job "other", want "shop-gateway" for the role gateway`,
		"job \"shop-gateway\" {\n group \"gateway\" {}\n}":         `has no service "shop-gateway", by which others find the role`,
		"job \"shop-gateway\" {\n group \"x\" {}\n}":               `has no group "gateway", by which the role is found and scaled`,
		"job \"shop-gateway\" {\n group \"x\" {\n disco {}\n }\n}": `Blocks of type "disco" are not expected here`,
	} {
		if err := os.WriteFile(own.Roles.Gateway.File, []byte(text), 0o600); err != nil {
			o.t.Fatal(err)
		}
		_, err := o.fleet(own, o.token("operator")).Plan(ctx)
		o.wants("a job file of the operator's", err, nil, want)
	}
	if plan, err := f.Plan(ctx); err != nil || !plan.Empty() {
		o.t.Errorf("what was refused has left something: %+v (%v)", plan, err)
	}
}

// tooOld: a server that would drop a field is refused by the field's name.
func (o *operator) tooOld(c spec.Cluster) {
	client, err := nomad.Connect(nomad.Config{Address: o.agents.Address, Token: o.token("operator")})
	if err != nil {
		o.t.Fatal(err)
	}
	version, err := client.Version(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	c.StoreRole = "arn:aws:iam::123456789012:role/temper"
	_, err = fleet.New(client, c, "v1").Plan(o.t.Context())
	if !version.Before(nomad.Version{1, 7, 0}) {
		o.t.Logf("Nomad %s signs identities: %v", version, err)
		return
	}
	o.wants("an old server", err, fleet.ErrTooOld, "has version "+version.String()+" and would drop without an error: shop-control: TaskGroups[0].Tasks[0].Identities (Nomad 1.7.0 or newer)")
}

// nodesThatSay: without a device plugin a node's meta says what it has, and one trainer has all of it.
func (o *operator) nodesThatSay(c spec.Cluster) {
	said := func(trainers, gpus int) error {
		text := fmt.Sprintf("  trainer: {count: %d, driver: raw_exec, cpu: 50, memory: 32MiB}\ngpus: {device: amd/gpu, count: %d, plugin: false}\n", trainers, gpus)
		plan, err := o.fleet(o.parse(fmt.Sprintf(file, "shop", o.folder, c.Store)+text), o.token("operator")).Plan(o.t.Context())
		if err != nil {
			return err
		}
		for _, change := range plan.Changes {
			if len(change.NoRoom) > 0 {
				return errors.New(strings.Join(change.NoRoom, "; "))
			}
		}
		return nil
	}
	if err := said(1, 8); err != nil {
		o.t.Errorf("a node that says it has 8 GPUs: %v", err)
	}
	o.wants("more than it says", said(1, 9), nil, "trainer: 1 of 1 nodes: not ${meta.gpu_count} >= 9: set it in the meta")
	o.wants("two on one node", said(2, 8), nil, "1 of 2 trainer: 1 of 1 nodes: port 7990 is taken")
}

// everyday: scale, logs, drain, another build, down.
func (o *operator) everyday(f *fleet.Fleet, c spec.Cluster) {
	ctx := o.t.Context()
	say := func(string) {}
	if err := f.Scale(ctx, "sandbox", 2, "by a test"); err != nil {
		o.t.Fatal(err)
	}
	o.agents.Await("two sandbox nodes", func() error {
		if n := len(o.agents.Running("shop-sandbox")); n != 2 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	o.wants("scale beyond the bounds", f.Scale(ctx, "sandbox", 4, ""), nil, "4 is outside of 1 to 3")
	o.wants("scale what is fixed", f.Scale(ctx, "gateway", 2, ""), nil, "its count is fixed at 1: set roles.gateway.max")
	o.wants("scale nobody", f.Scale(ctx, "nobody", 2, ""), nomad.ErrNotExist, "there is no job shop-nobody that runs")
	if plan, err := f.Plan(ctx); err != nil || !plan.Empty() {
		o.t.Errorf("a scaled cluster is no change: %+v (%v)", plan, err)
	}
	status, err := f.Status(ctx)
	if err != nil || len(status.Nodes) != 1 || len(status.Jobs) != 3 || len(status.Scalings) == 0 || !strings.Contains(status.Scalings[len(status.Scalings)-1], "1 -> 2: by a test") {
		o.t.Errorf("status %+v (%v)", status, err)
	}
	var log strings.Builder
	if err := f.Logs(ctx, "gateway", fleet.LogOptions{Bytes: 4096}, &log); err != nil || !strings.Contains(log.String(), "serves role gateway --listen") {
		o.t.Errorf("log of the gateway: %q (%v)", log.String(), err)
	}
	o.follows(f)
	o.wants("drain nobody", f.Drain(ctx, "nobody", time.Minute, say), nomad.ErrNotExist, "node nobody: does not exist (there are: one)")
	o.leavesSlowly()
	var told []string
	if err := f.Drain(ctx, "one", time.Minute, func(line string) { told = append(told, line) }); err != nil {
		o.t.Error(err)
	}
	if !slices.ContainsFunc(told, func(line string) bool {
		return strings.Contains(line, "slow.slow[0]") && strings.Contains(line, "was told to stop before and is still there")
	}) {
		o.t.Errorf("a drain that waits for what ends slowly says %q", told)
	}
	if err := f.Undrain(ctx, "one"); err != nil {
		o.t.Error(err)
	}
	client, err := nomad.Connect(nomad.Config{Address: o.agents.Address, Token: o.token("operator")})
	if err != nil {
		o.t.Fatal(err)
	}
	if err := o.apply(fleet.New(client, c, "v2"), false); err != nil {
		o.t.Errorf("another build: %v", err)
	}
	if err := f.Down(ctx, false, say); err != nil {
		o.t.Error(err)
	}
	if left := len(o.agents.Running("shop-gateway")) + len(o.agents.Running("shop-control")) + len(o.agents.Running("shop-sandbox")); left > 0 {
		o.t.Errorf("%d processes run after down", left)
	}
}

// follows: the logs of both sandbox nodes come, each line behind the name of its instance, and that of a third one that
// begins later and ends.
func (o *operator) follows(f *fleet.Fleet) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- f.Logs(ctx, "sandbox", fleet.LogOptions{Bytes: 4096, Follow: true}, write)
		_ = write.Close() // the reader has all
	}()
	var got []string
	for scan := bufio.NewScanner(read); scan.Scan(); {
		got = append(got, scan.Text())
		switch len(got) {
		case 2, 4:
			o.agents.Await("the end of another change", func() error { return f.Scale(ctx, "sandbox", 3-len(got)/4, "by a test") })
		case 5:
			cancel()
		}
	}
	if len(got) > 2 {
		slices.Sort(got[:2])
	}
	want := [][2]string{
		{"shop-sandbox.sandbox[0] on one (", ") | serves role sandbox --listen"}, {"shop-sandbox.sandbox[1] on one (", ") | serves role sandbox --listen"},
		{"==> shop-sandbox.sandbox[2] on one (", ") begins"}, {"shop-sandbox.sandbox[2] on one (", ") | serves role sandbox --listen"},
		{"==> shop-sandbox.sandbox[2] on one (", ") has ended"},
	}
	err := <-ended
	for i, w := range want {
		if err != nil || len(got) != len(want) || !strings.HasPrefix(got[i], w[0]) || !strings.Contains(got[i], w[1]) {
			o.t.Fatalf("followed logs: %q (%v), want %q", got, err, want)
		}
	}
}

// leavesSlowly leaves a process on the node that was told to stop and takes its time.
func (o *operator) leavesSlowly() {
	task := api.NewTask("slow", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", "trap '' INT; sleep 15"})
	task.KillTimeout = new(time.Minute)
	job := api.NewServiceJob("slow", "slow", "global", 50).AddTaskGroup(api.NewTaskGroup("slow", 1).AddTask(task))
	if _, _, err := o.agents.API.Jobs().Register(job, nil); err != nil {
		o.t.Fatal(err)
	}
	o.agents.Await("a slow process", func() error {
		if n := len(o.agents.Running("slow")); n != 1 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	if _, _, err := o.agents.API.Jobs().Deregister("slow", false, nil); err != nil {
		o.t.Fatal(err)
	}
}

// everyFieldIsKept registers the jobs of the examples and compares what the server holds
// with what it was sent: a field that it does not know would be gone without a word.
func (o *operator) everyFieldIsKept() {
	for _, name := range []string{"single.cluster.yaml", "cluster.example.yaml"} {
		c, err := spec.Load(filepath.Join("../../deploy", name))
		if err != nil {
			o.t.Fatal(err)
		}
		c.Name = "kept"
		for _, j := range (jobs.Build{Cluster: c, Version: "v1"}).All() {
			for _, pool := range []string{"gpu", "core", "sandbox"} {
				if _, err := o.agents.API.NodePools().Register(&api.NodePool{Name: pool}, nil); err != nil {
					o.t.Fatal(err)
				}
			}
			if j.TaskGroups[0].Scaling == nil {
				j.TaskGroups[0].Count = new(0)
			}
			if _, _, err := o.agents.API.Jobs().Register(j, nil); err != nil {
				o.t.Fatalf("%s of %s: %v", *j.ID, name, err)
			}
			var kept any
			if _, err := o.agents.API.Raw().Query("/v1/job/"+*j.ID, &kept, nil); err != nil {
				o.t.Fatal(err)
			}
			sent, err := json.Marshal(j)
			if err != nil {
				o.t.Fatal(err)
			}
			var tree any
			if err := json.Unmarshal(sent, &tree); err != nil {
				o.t.Fatal(err)
			}
			for _, path := range dropped(tree, kept, "") {
				o.t.Errorf("%s of %s: the server has dropped %s", *j.ID, name, path)
			}
			if _, _, err := o.agents.API.Jobs().Deregister(*j.ID, true, nil); err != nil {
				o.t.Fatal(err)
			}
		}
	}
}

// dropped are the paths of values that were sent and are not there.
func dropped(sent, kept any, path string) (out []string) {
	switch s := sent.(type) {
	case map[string]any:
		k, _ := kept.(map[string]any)
		for key, inner := range s {
			if empty(inner) || key == "Count" {
				continue
			}
			if _, ok := k[key]; !ok {
				out = append(out, path+"."+key)
				continue
			}
			out = append(out, dropped(inner, k[key], path+"."+key)...)
		}
	case []any:
		k, _ := kept.([]any)
		if len(k) < len(s) {
			return []string{path}
		}
		for i := range s {
			out = append(out, dropped(s[i], k[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return out
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case bool:
		return !x
	case float64:
		return x == 0
	case map[string]any:
		return len(x) == 0
	case []any:
		return len(x) == 0
	}
	return false
}
