package workflows_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/encoding/protojson"

	"temper/workflows"
)

// fixtures are histories recorded on a real server, see TestHistories.
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
	// Without the interceptors the same is done.
	return errors.Join(replayHistory(t, h, workflows.Interceptors()), replayHistory(t, h, nil))
}

func replayHistory(t testing.TB, h *history.History, by []interceptor.WorkerInterceptor) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: by})
	if err != nil {
		t.Fatal(err)
	}
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

// TestEverythingHasASummary: the web UI names each activity and child by what it
// is for, in every history that the present code records.
func TestEverythingHasASummary(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		h := &history.History{}
		if err := protojson.Unmarshal(data, h); err != nil {
			t.Fatal(err)
		}
		for _, e := range h.Events {
			switch e.EventType {
			case enums.EVENT_TYPE_MARKER_RECORDED:
				if e.GetMarkerRecordedEventAttributes().MarkerName == "Version" {
					continue // of the SDK's making
				}
			case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
				enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED, enums.EVENT_TYPE_TIMER_STARTED:
			default:
				continue
			}
			seen++
			if summary := string(e.GetUserMetadata().GetSummary().GetData()); len(summary) < len(`"12345"`) {
				t.Errorf("%s: event %d, %v, has summary %q", filepath.Base(file), e.EventId, e.EventType, summary)
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d events seen", seen)
	}
}

// TestReplayCatchesAChange proves that TestReplay can fail: another activity
// in the history is told from the one that the code calls.
func TestReplayCatchesAChange(t *testing.T) {
	data, err := os.ReadFile("testdata/histories/whole-steps.json")
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
