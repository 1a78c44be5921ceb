package workflows_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/encoding/protojson"

	"temper/workflows"
)

// fixtures are histories recorded on a real server; see TestHistories.
func fixtures(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/histories/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded histories: %v", err)
	}
	return files
}

func replay(t *testing.T, data []byte) error {
	t.Helper()
	h := &history.History{}
	if err := protojson.Unmarshal(data, h); err != nil {
		t.Fatal(err)
	}
	replayer := worker.NewWorkflowReplayer()
	workflows.Register(replayer)
	return replayer.ReplayWorkflowHistory(nil, h)
}

// TestReplay: running workflows survive an upgrade to the present code.
func TestReplay(t *testing.T) {
	for _, file := range fixtures(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := replay(t, data); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReplayCatchesAChange proves that TestReplay can fail: another activity
// in the history is told from the one that the code calls.
func TestReplayCatchesAChange(t *testing.T) {
	data, err := os.ReadFile("testdata/histories/whole-step.json")
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(data, []byte(`"SampleGroups"`), []byte(`"SampleAll"`))
	if bytes.Equal(changed, data) {
		t.Fatal("the recorded step samples nothing")
	}
	if err := replay(t, changed); err == nil {
		t.Error("a renamed activity was not noticed")
	}
}
