package spec_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/config"
	"temper/internal/role"
	"temper/jobs/spec"
)

const good = `
name: temper
store: s3://runs/temper
roles:
  trainer: {count: 1}
`

// TestExamples: the files that operators begin with are right.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*cluster*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples %q (%v), want two", files, err)
	}
	for _, file := range files {
		if _, err := spec.Load(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestEveryProblemAtOnce: one reading names every mistake with its place and what to do.
func TestEveryProblemAtOnce(t *testing.T) {
	_, err := spec.Parse("c.yaml", []byte(`
name: Temper Cluster
data: relative
stor: s3://x
tls: maybe
ports: {gateway: 7233, temporal: 7233, objectstore: 0}
gpus: {device: "8 gpus", count: 2}
roles:
  control: {count: 0}
  sandbox: {count: 3, max: 2, driver: podman, memory: 1KiB, priority: 101}
  trainer: {count: -1, env: {AWS_SECRET_ACCESS_KEY: x}}
  temporal: {count: 2}
  rollout: {driver: raw_exec, user: nobody, drain: 2h}
  gateway: {driver: docker}
`))
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error %v, want problems", err)
	}
	text := err.Error()
	for _, want := range []string{
		`c.yaml:2:1: name: is "Temper Cluster", want 1 to 32 lower-case letters`,
		`data: is "relative", want the absolute path`,
		`c.yaml:4:1: stor: unknown key; did you mean store?`,
		`tls: want true or false, have "maybe"`,
		"ports.gateway: is 7233, the port of ports.temporal: want another number",
		"ports.objectstore: is 0, want 1 to 65535",
		`gpus.device: is "8 gpus", want vendor/type`,
		"roles.control.count: is 0: nothing would serve workflows; want at least 1",
		"roles.sandbox.max: is 2, want at least count (3)",
		`roles.sandbox.driver: is "podman", want exec, raw_exec or docker`,
		"roles.sandbox.memory: is 1KiB, want at least 10MiB",
		"roles.sandbox.priority: is 101, want 1 to 100",
		"roles.trainer.count: is -1, want 0 to 1000",
		"roles.trainer.env: AWS_SECRET_ACCESS_KEY looks like a secret",
		"roles.temporal.count: is 2: one instance owns its folder",
		`roles.rollout.user: is "nobody": raw_exec runs as the user of Nomad's agent`,
		"roles.rollout.drain: is 2h0m0s, want 0s to 30m0s",
		"roles.gateway.driver: is docker, and programs.image names no image",
		"store: is empty: name one",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line like %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n") + 1; n != len(problems) {
		t.Errorf("%d lines for %d problems", n, len(problems))
	}
}

// TestOneProblemEach: rules that need a good file around them.
func TestOneProblemEach(t *testing.T) {
	for name, c := range map[string]struct{ old, with, want string }{
		"good":             {"", "", ""},
		"store of up":      {"s3://runs/temper", "s3d://127.0.0.1:9000", "store: s3d:// is the server of temper up"},
		"two stores":       {"trainer: {count: 1}", "objectstore: {count: 1}", "roles.objectstore.count: is 1 beside the store"},
		"secret in store":  {"s3://runs", "s3://me:hunter2@runs", "holds a user or a password"},
		"folder, many":     {"store: s3://runs/temper", "store: file:///x\ntls: true", "store: is a folder of one machine"},
		"no temporal":      {"trainer: {count: 1}", "temporal: {count: 0}", "roles.temporal.count: is 0: nothing would serve Temporal"},
		"two temporals":    {"store:", "temporal_address: t:7233\nstore:", "roles.temporal.count: is 1 beside temporal_address t:7233"},
		"bad temporal":     {"store:", "temporal_address: t\nstore:", `temporal_address: is "t", want host:port`},
		"gpus of what":     {"store:", "gpus: {count: 8}\nstore:", "gpus.count: is 8, and gpus.device does not say of what"},
		"gpus, none":       {"store:", "gpus: {device: amd/gpu, count: 0}\nstore:", "gpus.count: is 0 for each trainer"},
		"model, no plugin": {"store:", "gpus: {device: amd/gpu/X, count: 1, plugin: false}\nstore:", "a node's meta names no model"},
		"exec as root":     {"trainer: {count: 1}", "trainer: {count: 1, driver: exec, user: root}", "roles.trainer.user: is root, which clients of Nomad refuse for exec"},
		"postgres":         {"store:", "postgres: postgres://temper@db:5432/temporal\nstore:", ""},
		"no postgres":      {"store:", "postgres: db:5432\nstore:", `postgres: is "db:5432"; want postgres://user@host:port/database`},
		"secret postgres":  {"store:", "postgres: postgres://temper:hunter2@db/temporal\nstore:", "postgres: holds a password"},
		"own postgres":     {"trainer: {count: 1}", "postgres: {count: 1}", ""},
		"two postgres":     {"roles:", "postgres: postgres://temper@db/temporal\nroles:\n  postgres: {count: 1}", "roles.postgres.count: is 1 beside the key postgres"},
		"idle postgres":    {"roles:", "temporal_address: t:7233\nroles:\n  temporal: {count: 0}\n  postgres: {count: 1}", "roles.postgres.count: is 1 beside temporal_address"},
		"image, postgres":  {"trainer: {count: 1}", "postgres: {count: 1, driver: docker}\nprograms: {image: x}", "roles.postgres.driver: is docker, and programs.image has no Postgres"},
		"no pause":         {"store:", "placement: {nomad: 'http://127.0.0.1:4646', scale_down_after: 0s}\nstore:", "placement.scale_down_after: is 0s, want more than 0s"},
		"old name":         {"store:", "placement: {calm: 5m}\nstore:", "placement.calm: unknown key: it is called scale_down_after now"},
		"role of a folder": {"store: s3://runs/temper", "store: file:///x\nstore_role: arn:x", `store_role: is set, and store is "file:///x": want one that begins with s3://`},
		"no audience":      {"store:", "store_role: arn:x\nstore_audience: ''\nstore:", "store_audience: is empty"},
		"stated twice":     {"store:", "name: a\nstore:", `mapping key "name" already defined`},
	} {
		_, err := spec.Parse("c.yaml", []byte(strings.Replace(good, c.old, c.with, 1)))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case c.want != "" && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error repeats a password: %v", name, err)
		}
	}
}

// TestFolderOfTheFile: job files of the operator lie beside the cluster's file.
func TestFolderOfTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte(good+"  gateway: {file: my.nomad.hcl}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := spec.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Roles.Gateway.File, filepath.Join(dir, "my.nomad.hcl")); diff != "" {
		t.Errorf("job file (-got +want):\n%s", diff)
	}
	if c.Roles.Sandbox.Max != c.Roles.Sandbox.Count {
		t.Errorf("max is %d for a fixed count of %d", c.Roles.Sandbox.Max, c.Roles.Sandbox.Count)
	}
}

// TestYAML: the form that a control worker gets is the cluster itself.
func TestYAML(t *testing.T) {
	odd, err := spec.Parse("c.yaml", []byte(good+"  control: {env: {A: \"{{ x }}: ${B} 'c' \\\"d\\\" #\", N: \"1\"}, drain: 1m30s, memory: 12345678}\n"))
	if err != nil {
		t.Fatal(err)
	}
	clusters := []spec.Cluster{odd}
	for _, name := range []string{"single.cluster.yaml", "cluster.example.yaml"} {
		c, err := spec.Load("../../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		clusters = append(clusters, c)
	}
	for _, c := range clusters {
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := spec.Parse("again", text)
		if err != nil {
			t.Fatalf("%v of\n%s", err, text)
		}
		if diff := cmp.Diff(again, c, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("read again (-got +want):\n%s", diff)
		}
	}
}

// TestPlacementProblems: what keeps a control worker from placing runs is said before it starts.
func TestPlacementProblems(t *testing.T) {
	for text, want := range map[string]string{
		"{token: true}":                                    "placement.nomad: is empty, and token or scale is set",
		"{nomad: 127.0.0.1:4646}":                          `placement.nomad: is "127.0.0.1:4646", want http://host:port`,
		"{nomad: 'http://a:b@c'}":                          "placement.nomad: ",
		"{nomad: 'http://a:1', scale: [trainer]}":          `placement.scale[0]: is "trainer", want sandbox or control`,
		"{nomad: 'http://a:1', scale: [sandbox]}":          "placement.scale[0]: is sandbox, whose max is not above its count (1): set roles.sandbox.max",
		"{nomad: 'http://a:1', scale: [control, control]}": "placement.scale[1]: is control, which is named twice",
	} {
		if _, err := spec.Parse("c.yaml", []byte(good+"placement: "+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestRolesHaveSettings: each role with a job in the table has one section of the file, and each section a role.
func TestRolesHaveSettings(t *testing.T) {
	c := spec.Default()
	for _, r := range c.Named() {
		if r.Role == nil {
			t.Errorf("role %s has no field in spec.Roles", r.Name)
		}
	}
	if fields, rows := reflect.TypeFor[spec.Roles]().NumField(), len(role.Jobs()); fields != rows {
		t.Errorf("%d fields of spec.Roles, %d rows with a job", fields, rows)
	}
}
