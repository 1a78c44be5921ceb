package archtest_test

// A layer may import itself and what is below it.
const (
	vocabulary  = iota // L0: nouns and pure logic, no I/O
	ports              // L1: interfaces to the world, with their conformance suites
	adapters           // L2: disk, network, kernel, devices, and what drives them
	durable            // L3: Temporal workflows and activities
	composition        // L4: builds the objects and runs them
)

// row places the packages of a pattern: a path below the module root, where a
// final "/..." stands for anything below it. The longest matching pattern wins.
type row struct {
	pattern string
	layer   int
	// ours, when not nil, are the only packages of this module it may import.
	ours []string
	// stdOnly forbids other modules.
	stdOnly bool
	reason  string
}

var none = []string{}

// packages is the layer table of the architecture.
var packages = []row{
	{pattern: "internal/rl", layer: vocabulary, ours: []string{"sandbox/status"}, stdOnly: true, reason: "the nouns are shared by everybody; a tool call ends as the sandbox says, and there is one list of its words"},
	{pattern: "internal/run/record", layer: vocabulary, ours: []string{"internal/rl", "sandbox/status"}, reason: "a stored form is a function of trajectories"},
	{pattern: "internal/grpo", layer: vocabulary, ours: []string{"internal/rl"}, stdOnly: true, reason: "the algorithm is pure functions of the nouns"},
	{pattern: "internal/inference/scheduler", layer: vocabulary, ours: none, stdOnly: true, reason: "events go in and decisions come out: a simulator and a fleet run the same code"},
	{pattern: "internal/fault", layer: vocabulary, ours: none, stdOnly: true, reason: "any package may say that no retry helps, and none needs Temporal for it"},
	{pattern: "internal/series", layer: vocabulary},
	{pattern: "internal/rules", layer: vocabulary, ours: []string{"internal/config", "internal/rl", "internal/series"}, reason: "alerts, ends of stages and gates are functions of figures"},
	{pattern: "internal/tool/pyfile", layer: vocabulary, ours: none, stdOnly: true, reason: "a file of the user's is read as text, where there may be no sandbox"},
	{pattern: "internal/tool/builtin", layer: vocabulary, ours: none, stdOnly: true, reason: "what a tool returns is a function of its arguments"},
	{pattern: "internal/answer", layer: vocabulary, ours: none, stdOnly: true, reason: "a verdict is a function of two texts"},
	{pattern: "internal/reward", layer: vocabulary, ours: []string{"internal/answer", "internal/rl", "internal/tool/pyfile"}, reason: "a verdict is a function of a response and a key"},
	{pattern: "internal/chat/tokenizer", layer: vocabulary},
	{pattern: "internal/chat", layer: vocabulary},
	{pattern: "internal/chat/jinja", layer: vocabulary, ours: none, stdOnly: true, reason: "templates are hostile, so what they reach is this package alone"},
	{pattern: "internal/env", layer: vocabulary},
	{pattern: "internal/config", layer: vocabulary},
	{pattern: "internal/config/docgen", layer: adapters, reason: "it reads source files and writes documents"},
	{pattern: "internal/proc/failpoint", layer: vocabulary, ours: none, stdOnly: true, reason: "any package may name a place where a crash must not matter"},
	{pattern: "internal/proc/testbin", layer: vocabulary, ours: none, stdOnly: true, reason: "it builds the programs and knows none of them"},
	{pattern: "internal/role", layer: vocabulary, ours: none, stdOnly: true, reason: "whatever starts, serves or lists roles reads one table"},
	{pattern: "internal/proc/buildinfo", layer: vocabulary, ours: none, stdOnly: true, reason: "every role prints it first"},
	{pattern: "internal/archtest", layer: vocabulary, ours: none, stdOnly: true, reason: "the judge is no party"},

	{pattern: "internal/blob", layer: ports, stdOnly: true, reason: "a port is not bound to a driver"},
	{pattern: "internal/blob/blobtest", layer: ports, ours: []string{"internal/blob"}, reason: "a suite that knows a driver tests that driver only"},
	{pattern: "internal/inference", layer: ports, stdOnly: true, reason: "a port is not bound to an engine"},
	{pattern: "internal/inference/inferencetest", layer: ports},
	{pattern: "internal/tool", layer: ports},
	{pattern: "internal/placement", layer: ports, ours: []string{"internal/role"}, stdOnly: true, reason: "a port is not bound to a scheduler"},
	{pattern: "internal/placement/placementtest", layer: ports, ours: []string{"internal/placement"}, stdOnly: true, reason: "a suite that knows a scheduler tests that scheduler only"},
	{pattern: "sandbox", layer: ports, ours: []string{"sandbox/status"}, stdOnly: true, reason: "the sandbox is a product of its own and runs beside hostile code"},
	{pattern: "sandbox/status", layer: vocabulary, ours: none, stdOnly: true, reason: "sandbox and internal/rl share these words, and neither may import the other"},

	{pattern: "sandbox/...", layer: adapters, ours: []string{"sandbox/..."}, reason: "the sandbox is a product of its own and runs beside hostile code"},
	{pattern: "internal/blob/...", layer: adapters},
	{pattern: "internal/inference/...", layer: adapters},
	{pattern: "internal/inference/remote", layer: adapters, ours: []string{"internal/blob", "internal/inference", "internal/rl"}, reason: "it serves any engine and knows no device and no run"},
	{pattern: "internal/inference/lease", layer: adapters, ours: []string{"internal/blob"}, reason: "who lives is judged by leases alone"},
	{pattern: "internal/run/artifact", layer: adapters},
	{pattern: "internal/run/chain", layer: adapters, ours: []string{"internal/run/artifact", "internal/blob", "internal/proc/buildinfo", "internal/rl"}, reason: "what checks a run knows none of the programs that made it"},
	{pattern: "internal/dataset", layer: adapters},
	{pattern: "internal/dataset/...", layer: adapters},
	{pattern: "internal/dataset/rows", layer: adapters, ours: none, reason: "a row is JSON, whatever it means"},
	{pattern: "internal/dataset/layout", layer: adapters, ours: []string{"internal/chat", "internal/chat/jinja", "internal/tool/builtin"}, reason: "a row becomes ours without a file"},
	{pattern: "internal/openai", layer: adapters, ours: []string{"internal/chat", "internal/chat/jinja", "internal/inference", "internal/rl", "internal/chat/tokenizer"}, reason: "an API over any engine knows no device and no run"},
	{pattern: "internal/evaluate", layer: adapters},
	{pattern: "internal/openai/chatclient", layer: adapters, ours: []string{"internal/chat", "internal/chat/jinja", "internal/rl", "internal/tool", "internal/tool/builtin", "sandbox", "sandbox/status"}, reason: "it speaks to any server and knows no engine and no run"},
	{pattern: "internal/rollout", layer: adapters},
	{pattern: "internal/run", layer: adapters},
	{pattern: "internal/proc", layer: adapters, ours: []string{"internal/series"}, reason: "it runs and measures any process and knows no role"},
	{pattern: "internal/run/setup", layer: adapters},
	{pattern: "internal/run/modeldir", layer: adapters},
	{pattern: "internal/run/runtest", layer: adapters, reason: "tests of all that works on a run share its doubles"},
	{pattern: "internal/history", layer: adapters},
	{pattern: "internal/export", layer: adapters},
	{pattern: "internal/learner", layer: adapters},
	{pattern: "internal/sampling", layer: adapters},
	{pattern: "internal/run/retrain", layer: adapters},
	{pattern: "internal/run/ablation", layer: adapters},
	{pattern: "internal/run/replay", layer: adapters},
	{pattern: "trainer", layer: adapters},
	{pattern: "trainer/...", layer: adapters},
	{pattern: "trainer/model", layer: adapters, ours: []string{"internal/config", "internal/rl", "trainer/weights/tensor"}, stdOnly: true, reason: "a network is described without a device"},
	{pattern: "trainer/xla/plugin", layer: adapters, ours: none, stdOnly: true, reason: "what is installed is decided by names and hashes, without a device"},
	{pattern: "trainer/weights/tensor", layer: adapters, ours: none, stdOnly: true, reason: "ports hand weights on without a network"},
	{pattern: "trainer/packing", layer: adapters, ours: []string{"internal/config", "internal/rl"}, stdOnly: true, reason: "which tokens meet in a pass is decided without a device"},
	{pattern: "deploy/prometheus", layer: vocabulary, ours: none, stdOnly: true, reason: "it is a file that a job takes along"},
	{pattern: "jobs", layer: adapters, ours: []string{"deploy/prometheus", "internal/config", "internal/placement", "internal/role", "jobs/spec"}, reason: "a job is a function of the cluster's file"},
	{pattern: "jobs/spec", layer: adapters, ours: []string{"internal/config", "internal/role"}, stdOnly: true, reason: "the operator's file is judged without a scheduler"},
	{pattern: "jobs/...", layer: adapters},
	{pattern: "jobs/nomad", layer: adapters, ours: none, reason: "it connects to a scheduler and knows no job"},

	{pattern: "activities", layer: durable, ours: []string{"internal/blob", "internal/rules", "internal/fault", "internal/run", "internal/run/setup", "internal/learner", "internal/sampling", "internal/run/retrain", "internal/run/ablation", "internal/run/replay", "internal/placement"}, reason: "activities are a border: what they do is done by packages without Temporal, and none of them knows a device"},
	{pattern: "workflows", layer: durable},
	{pattern: "internal/temporalclient", layer: durable},

	{pattern: "internal/cli", layer: composition},
	{pattern: "internal/onestep", layer: composition},
	{pattern: "internal/service", layer: composition},
	{pattern: "internal/service/runclient", layer: composition},
	{pattern: "workers", layer: composition},
	{pattern: "ui", layer: composition},
	{pattern: "cmd/...", layer: composition},
}

// home says which packages may import a path; with "/..." it covers what is below,
// and the path itself unless that has a row of its own.
type home struct {
	path   string
	only   []string
	reason string
	// testsToo is false where test files may import the path anywhere.
	testsToo bool
}

// homes keeps each dependency where it can be replaced.
var homes = []home{
	{"github.com/gomlx/...", []string{"trainer/..."}, "one place knows about tensors and devices", true},
	{"github.com/hashicorp/nomad/...", []string{"jobs", "jobs/..."}, "one place knows about the cluster", true},
	{"github.com/aws/...", []string{"internal/blob/..."}, "an SDK stays in its driver", true},
	{"github.com/minio/...", []string{"internal/blob/..."}, "an SDK stays in its driver", true},
	{"go.temporal.io/server/...", nil, "the server lives in a module of its own, tools/temporald", true},
	{"github.com/temporalio/ui-server/...", nil, "the UI lives in a module of its own, tools/temporald", true},
	{"go.temporal.io/...", []string{"workflows", "activities", "workers", "internal/service/runclient", "internal/temporalclient", "cmd/..."}, "what does the work can run without Temporal", true},
	{"github.com/spf13/...", []string{"cmd/...", "internal/cli"}, "flags end at the command", true},
	{"github.com/lmittmann/...", []string{"internal/cli"}, "libraries log through slog", true},
	{"github.com/klauspost/...", []string{"internal/run/record", "internal/dataset/rows"}, "one package knows the stored form of trajectories, and one the pages of Parquet", true},
	{"github.com/goccy/go-yaml/...", []string{"internal/config"}, "one strict decoder of configurations", true},
	{"github.com/parquet-go/...", []string{"internal/dataset/rows"}, "one package knows the forms of files", false},
	{"github.com/prometheus/...", []string{"workers", "sandbox/...", "internal/openai"}, "roles export series; what they count does not know how. Servers of an API export what its clients expect", true},
	{"github.com/elastic/...", []string{"sandbox/..."}, "seccomp is the jail's business", true},
	{"temper/tools/...", nil, "the product links no instrument and no tool", true},
	{"temper/trainer", []string{"workers", "trainer/..."}, "who trains a run holds the port internal/learner.Learner, whatever implements it", false},
	{"temper/internal/proc/testbin", nil, "programs are built by tests alone", false},
	{"temper/jobs/nomadtest", nil, "agents are started by tests alone", false},
	{"temper/internal/run/runtest", nil, "it stands in for a run in tests alone", false},
	{"temper/internal/run/artifact", []string{"internal/history", "internal/run/...", "internal/learner", "internal/sampling"},
		"a run's keys are known to the packages that write it, and to internal/history, which everything else reads through", false},
	{"log", nil, "log/slog is the one logger", true},
	{"math/rand", nil, "draws come from rl.Seed", true},
	{"testing/...", []string{"internal/blob/blobtest", "internal/inference/inferencetest", "internal/run/runtest", "internal/placement/placementtest", "jobs/nomadtest", "sandbox/sandboxtest", "trainer/xla/xlatest"}, "only conformance suites and doubles are test code outside test files", false},
	{"github.com/google/go-cmp/...", []string{"internal/blob/blobtest", "internal/inference/inferencetest", "sandbox/sandboxtest"}, "comparison is for tests", false},
	{"pgregory.net/...", nil, "properties are for tests", false},
	{"github.com/santhosh-tekuri/...", nil, "the schema of configurations is checked in tests", false},
	{"go.yaml.in/...", nil, "a second reader of YAML is for tests", false},
	{"go.uber.org/goleak", nil, "leaks are looked for in tests", false},
}

// maker says which packages may call a constructor outside of tests.
type maker struct {
	pkg, name string
	only      []string
	reason    string
}

// makers keeps each thing that owns a device or much memory where its limits are set.
var makers = []maker{
	{"temper/trainer", "New", []string{"workers", "trainer/..."}, "only workers builds learners: it sets their memory limit"},
	{"temper/trainer/engine", "New", []string{"workers", "trainer/..."}, "only workers builds engines: it counts them and sets their slots"},
}
