package workers

import (
	"errors"
	"maps"
	"testing"
	"testing/fstest"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model"
)

func TestMemoryLimit(t *testing.T) {
	const gib = 1 << 30
	machine := map[string]string{"proc/meminfo": "MemFree: 7 kB\nMemTotal:        8388608 kB\n"}
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, 0},
		"machine":          {machine, 8 * gib},
		"group without a limit": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}), 8 * gib},
		"limit of a parent": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "2147483648\n", "sys/fs/cgroup/a/b/memory.max": "3221225472\n"}), 2 * gib},
		"container": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}), gib},
		"first version": {with(machine, map[string]string{
			"proc/self/cgroup":                                  "5:cpu:/x\n4:memory:/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":        "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":      "1073741824\n",
			"sys/fs/cgroup/cpu/x/memory.limit_in_bytes":         "1\n",
			"sys/fs/cgroup/memory/elsewhere/memory.limit_bytes": "1\n"}), gib},
	} {
		if got := memoryLimit(filesOf(c.files)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func filesOf(texts map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for path, text := range texts {
		root[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// TestAvailableMemory: every control group up to the root bounds it, and what a group only
// caches of files is not taken.
func TestAvailableMemory(t *testing.T) {
	const mib = 1 << 20
	machine := map[string]string{"proc/meminfo": "MemTotal:        8388608 kB\nMemAvailable:  6291456 kB\n"}
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, 0},
		"machine":          {machine, 6144 * mib},
		"group without a limit": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "1073741824\n"}), 6144 * mib},
		"container": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "1073741824\n"}), 1024 * mib},
		"container full of cached files": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "2147483648\n",
			"sys/fs/cgroup/memory.stat": "anon 1\nshmem 536870912\ninactive_file 1073741824\n"}), 1024 * mib},
		"parent that others fill": {with(machine, map[string]string{
			"proc/self/cgroup":           "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "2147483648\n", "sys/fs/cgroup/a/memory.current": "1610612736\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "1048576\n"}), 512 * mib},
		"first version": {with(machine, map[string]string{
			"proc/self/cgroup": "4:memory:/x\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 268435456\n"}), 256 * mib},
		"more used than allowed": {with(machine, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n", "sys/fs/cgroup/memory.current": "1073745920\n"}), 0},
	} {
		if got := availableMemory(filesOf(c.files)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestStepIsCountedWithASave: the copy of the state lies in the same memory.
func TestStepIsCountedWithASave(t *testing.T) {
	c := trainer.Config{Model: smallModel()}
	with, err := stepBytes(c, 1)(4, 256, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := estimate.Estimate(estimate.Config{
		Model: c.Model, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: 4, Length: 256, Passes: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := alone.Peak + 12*int64(c.Model.NumParameters()); with != want {
		t.Errorf("%d bytes, want %d", with, want)
	}
}

func smallModel() model.Config {
	return model.Config{
		VocabSize: 512, HiddenSize: 64, IntermediateSize: 128, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 32, MaxPositionEmbeddings: 512, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}
}

// TestEverySwitchIsInTheEstimate: what a run keeps beside the pass is counted.
func TestEverySwitchIsInTheEstimate(t *testing.T) {
	plain := trainer.Config{Model: smallModel()}
	need := func(minibatches int, change func(*trainer.Config)) int64 {
		c := plain
		change(&c)
		n, err := stepBytes(c, minibatches)(4, 256, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	nothing := func(*trainer.Config) {}
	least, weights := need(1, nothing), 4*int64(plain.Model.NumParameters())
	if got := need(2, nothing); got < least+3*weights {
		t.Errorf("several updates add %d bytes, want at least the state's %d", got-least, 3*weights)
	}
	if got := need(1, func(c *trainer.Config) { c.Loss.KL.Coefficient = 0.1 }); got < least+weights {
		t.Errorf("a reference policy adds %d bytes, want at least its weights' %d", got-least, weights)
	}
	if got := need(1, func(c *trainer.Config) { c.Pack = true }); got <= least {
		t.Errorf("packing adds %d bytes", got-least)
	}
	if got := need(1, func(c *trainer.Config) { c.Remat = true }); got >= least {
		t.Errorf("recomputation adds %d bytes", got-least)
	}
}

func with(a, b map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// TestTrainerRefusesWhatDoesNotFit, by an estimate that also holds for rows
// which padding makes longer than the model's positions.
func TestTrainerRefusesWhatDoesNotFit(t *testing.T) {
	cfg := trainer.Config{MicrobatchTokens: 4096, Temperature: 1, Model: model.Config{
		VocabSize: 16, HiddenSize: 8, IntermediateSize: 16, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 4, MaxPositionEmbeddings: 20, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}}
	sample := rl.Sample{Tokens: make([]int32, 20), LossMask: make([]bool, 20)}
	sample.LossMask[19] = true
	need, err := stepBytes(cfg, 1)(1, 32, 1, false)
	if err != nil || need <= 0 {
		t.Fatalf("needs %d, error %v", need, err)
	}
	for name, c := range map[string]struct {
		backend string
		limit   int64
		refused bool
	}{
		"enough":          {"go", need, false},
		"too little":      {"go", need - 1, true},
		"by default":      {"", need - 1, true},
		"unknown":         {"go", 0, false},
		"with an option":  {"go:ops_sequential", need - 1, true},
		"device's memory": {"xla:cuda", 1, false},
	} {
		own := cfg
		own.Backend = c.backend
		limitMemory(&own, 1, c.limit)
		if c.backend == "xla:cuda" {
			if own.MemoryLimit != 0 {
				t.Errorf("%s: limit %d", name, own.MemoryLimit)
			}
			continue
		}
		tr, err := trainer.New(own)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Init(1); err != nil {
			t.Fatal(err)
		}
		_, err = tr.SFTStep(t.Context(), []rl.Sample{sample}, config.Default().SFT.Optimizer, trainer.Position{Step: 1, Total: 1})
		if errors.Is(err, trainer.ErrTooLarge) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: error %v, refused should be %v", name, err, c.refused)
		}
		tr.Close()
	}
}
