package archtest_test

import (
	"slices"
	"strings"
	"testing"
)

// The rules are tried on imports that must be caught, so that an empty list of
// problems means something.
func TestCheckCatches(t *testing.T) {
	for _, tt := range []struct {
		name string
		edge edge
		want string // part of the problem; "" = allowed
	}{
		{"a layer that looks up", edge{pkg: "internal/series", path: "temper/internal/blob"}, "layer 0 must not import layer 1"},
		{"a layer that looks down", edge{pkg: "workflows", path: "temper/internal/rl"}, ""},
		{"a layer that looks sideways", edge{pkg: "trainer/engine", path: "temper/trainer/model"}, ""},
		{"a workflow that composes", edge{pkg: "workflows", path: "temper/workers"}, "layer 3 must not import layer 4"},
		{"an activity that trains", edge{pkg: "activities", path: "temper/trainer/checkpoint"}, "activities are a border"},
		{"a session that knows the trainer", edge{pkg: "internal/learner", path: "temper/trainer"}, "holds the port"},
		{"tensors outside the trainer", edge{pkg: "activities", path: "github.com/gomlx/gomlx/core/tensors"}, "only trainer/..."},
		{"tensors in a test outside the trainer", edge{pkg: "activities", path: "github.com/gomlx/gomlx/core/tensors", inTest: true}, "only trainer/..."},
		{"tensors in the trainer", edge{pkg: "trainer/loss", path: "github.com/gomlx/gomlx/core/graph"}, ""},
		{"tensors in the root of the trainer", edge{pkg: "trainer", path: "github.com/gomlx/compute"}, ""},
		{"Temporal below its layer", edge{pkg: "internal/rollout", path: "go.temporal.io/sdk/activity"}, "can run without Temporal"},
		{"the server in this module", edge{pkg: "cmd/temper", path: "go.temporal.io/server/temporal"}, "only nobody"},
		{"an SDK in the port", edge{pkg: "internal/inference", path: "github.com/aws/aws-sdk-go-v2/service/s3"}, "stays in its driver"},
		{"an SDK in a driver", edge{pkg: "internal/blob/s3blob", path: "github.com/aws/aws-sdk-go-v2/service/s3"}, ""},
		{"the cluster outside jobs", edge{pkg: "cmd/temper", path: "github.com/hashicorp/nomad/api"}, "only jobs, jobs/..."},
		{"the sandbox with our nouns", edge{pkg: "sandbox/pool", path: "temper/internal/rl"}, "product of its own"},
		{"the sandbox with itself", edge{pkg: "sandbox/pool", path: "temper/sandbox"}, ""},
		{"the sandbox vocabulary with an adapter", edge{pkg: "sandbox", path: "temper/sandbox/jail"}, "product of its own"},
		{"the sandbox vocabulary with a module", edge{pkg: "sandbox", path: "golang.org/x/sys/unix"}, "standard library only"},
		{"the algorithm with more than the nouns", edge{pkg: "internal/grpo", path: "temper/internal/config"}, "pure functions"},
		{"the algorithm with the nouns", edge{pkg: "internal/grpo", path: "temper/internal/rl"}, ""},
		{"the nouns with a module", edge{pkg: "internal/rl", path: "github.com/google/uuid"}, "standard library only"},
		{"a command that reads the keys of a run", edge{pkg: "cmd/temper", path: "temper/internal/run/artifact"}, "reads through (only internal/history"},
		{"a test that puts a run into a store", edge{pkg: "cmd/temper", path: "temper/internal/run/artifact", inTest: true}, ""},
		{"history with the keys of a run", edge{pkg: "internal/history", path: "temper/internal/run/artifact"}, ""},
		{"testing in a binary", edge{pkg: "internal/rollout", path: "testing"}, "only conformance suites"},
		{"testing in a suite", edge{pkg: "internal/blob/blobtest", path: "testing/fstest"}, ""},
		{"testing in a test", edge{pkg: "internal/rollout", path: "testing", inTest: true}, ""},
		{"an instrument in the command", edge{pkg: "cmd/temper", path: "temper/tools/bench"}, "links no instrument"},
		{"an instrument in a test of the command", edge{pkg: "cmd/temper", path: "temper/tools/bench/chaos", inTest: true}, "links no instrument"},
		{"built programs outside tests", edge{pkg: "cmd/temper", path: "temper/internal/proc/testbin"}, "only nobody"},
		{"doubles outside tests", edge{pkg: "workers", path: "temper/internal/run/runtest"}, "only nobody"},
		{"the client of runs with Temporal", edge{pkg: "internal/service/runclient", path: "go.temporal.io/sdk/client"}, ""},
		{"the service with Temporal", edge{pkg: "internal/service", path: "go.temporal.io/sdk/client"}, "can run without Temporal"},
		{"a model with a device", edge{pkg: "trainer/model", path: "temper/trainer/device"}, "described without a device"},
		{"a model with its weights", edge{pkg: "trainer/model", path: "temper/trainer/weights/tensor"}, ""},
		{"rules with the store", edge{pkg: "internal/rules", path: "temper/internal/blob"}, "functions of figures"},
		{"a draw without a seed", edge{pkg: "internal/env", path: "math/rand"}, "rl.Seed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.edge.violation(packages, homes)
			if got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s imports %s: problem %q, want %q", tt.edge.pkg, tt.edge.path, got, tt.want)
			}
		})
	}
}

func TestCheckKeepsTheTableComplete(t *testing.T) {
	rows := []row{{pattern: "a"}, {pattern: "b/..."}, {pattern: "gone"}, {pattern: "a"}}
	got := check(nil, []string{"a", "b/c", "new"}, rows, nil)
	want := []string{
		"new has no row in internal/archtest/table_test.go: add one with its layer",
		`row "gone" of internal/archtest/table_test.go matches no package: remove it`,
		`row "a" stands twice in internal/archtest/table_test.go`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}
