package temporalclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"temper/internal/temporalclient"
	"temper/workflows"
)

// flow is a workflow of the fake server.
type flow struct {
	kind, parent string
	paused       bool
	// deaf ignores what it is told.
	deaf bool
	gate *workflows.Freeze
	told int
}

// server is as much of Temporal as a watcher sees.
type server struct {
	client.Client

	mu    sync.Mutex
	flows map[string]*flow
	lists int
}

var pausedAt = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newServer() *server {
	return &server{flows: map[string]*flow{
		"retrain/n": {kind: workflows.TypeRetrain},
		"rl/n":      {kind: workflows.TypeRun, parent: "retrain/n"},
		"rl/n/s":    {kind: workflows.TypeStage, parent: "rl/n"},
		"rl/other":  {kind: workflows.TypeRun},
	}}
}

func (s *server) WorkflowService() workflowservice.WorkflowServiceClient { return service{s: s} }

func (s *server) info(id string) *workflow.WorkflowExecutionInfo {
	f := s.flows[id]
	info := &workflow.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id}, Type: &commonpb.WorkflowType{Name: f.kind}, Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING,
	}
	if f.paused {
		info.Status = enums.WORKFLOW_EXECUTION_STATUS_PAUSED
	}
	if f.parent != "" {
		info.ParentExecution = &commonpb.WorkflowExecution{WorkflowId: f.parent}
	}
	return info
}

func (s *server) ListWorkflow(_ context.Context, in *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	out := &workflowservice.ListWorkflowExecutionsResponse{}
	for id, f := range s.flows {
		if f.paused == strings.Contains(in.Query, "'Paused'") {
			out.Executions = append(out.Executions, s.info(id))
		}
	}
	return out, nil
}

func (s *server) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flows[id]
	if f == nil {
		return nil, serviceerror.NewNotFound(id)
	}
	out := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: s.info(id)}
	if f.paused {
		out.WorkflowExtendedInfo = &workflow.WorkflowExecutionExtendedInfo{
			PauseInfo: &workflow.WorkflowExecutionPauseInfo{Identity: "ann", Reason: "look", PausedTime: timestamppb.New(pausedAt)},
		}
	}
	for child, c := range s.flows {
		if c.parent == id {
			out.PendingChildren = append(out.PendingChildren, &workflow.PendingChildExecutionInfo{WorkflowId: child})
		}
	}
	return out, nil
}

func (s *server) QueryWorkflow(_ context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flows[id]
	if f.paused || f.kind == workflows.TypeRetrain {
		return nil, fmt.Errorf("query of %s rejected", id)
	}
	return answer{workflows.RunStatus{Frozen: f.gate}}, nil
}

func (s *server) SignalWorkflow(_ context.Context, id, _, name string, arg any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(arg)
	if err != nil || name != "freeze" {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	var news struct{ Freeze *workflows.Freeze }
	if err := json.Unmarshal(data, &news); err != nil {
		return err
	}
	f := s.flows[id]
	if f.told++; !f.deaf {
		f.gate = news.Freeze
	}
	return nil
}

// service is the server below its client.
type service struct {
	workflowservice.WorkflowServiceClient
	s *server
}

func (v service) UnpauseWorkflowExecution(_ context.Context, in *workflowservice.UnpauseWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.UnpauseWorkflowExecutionResponse, error) {
	v.s.set(in.WorkflowId, func(f *flow) { f.paused = false })
	return &workflowservice.UnpauseWorkflowExecutionResponse{}, nil
}

func (s *server) set(id string, change func(*flow)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.flows[id])
}

type answer struct{ status workflows.RunStatus }

func (answer) HasValue() bool { return true }
func (a answer) Get(into any) error {
	*into.(*workflows.RunStatus) = a.status //nolint:forcetypeassert // what is asked here
	return nil
}

// gates are what holds each workflow: the id of what is paused, with "^" where it is below.
func (s *server) gates() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for id, f := range s.flows {
		if f.gate != nil {
			out[id] = f.gate.Workflow
			if f.gate.Below {
				out[id] += "^"
			}
		}
	}
	return out
}

// looks lets a watcher look so often, one that knows of nothing from before.
func looks(t *testing.T, s *server, n int) {
	t.Helper()
	w := temporalclient.NewWatch(s, slog.New(slog.DiscardHandler))
	for range n {
		if err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGatesFollowTheServer: what is below a pause is held, what is above it says so,
// other runs go on, and the end of the pause is seen by a process that did not see its
// beginning.
func TestGatesFollowTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		paused []string
		want   map[string]string
	}{
		"nothing":               {nil, map[string]string{}},
		"the run":               {[]string{"rl/n"}, map[string]string{"rl/n/s": "rl/n"}},
		"the stage":             {[]string{"rl/n/s"}, map[string]string{"rl/n": "rl/n/s^"}},
		"the re-training":       {[]string{"retrain/n"}, map[string]string{"rl/n": "retrain/n", "rl/n/s": "retrain/n"}},
		"run and stage":         {[]string{"rl/n", "rl/n/s"}, map[string]string{}},
		"re-training and stage": {[]string{"retrain/n", "rl/n/s"}, map[string]string{"rl/n": "retrain/n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			for _, id := range tt.paused {
				s.set(id, func(f *flow) { f.paused = true })
			}
			looks(t, s, 3)
			if diff := cmp.Diff(tt.want, s.gates()); diff != "" {
				t.Errorf("gates (-want +got):\n%s", diff)
			}
			for id, f := range s.flows {
				if f.told > 1 {
					t.Errorf("%s was told %d times", id, f.told)
				}
			}
			for _, id := range tt.paused {
				s.set(id, func(f *flow) { f.paused = false })
			}
			looks(t, s, 1)
			if got := s.gates(); len(got) != 0 {
				t.Errorf("gates after the pause: %v", got)
			}
		})
	}
}

// TestGateThatDoesNotListen is told a few times and no more: each is an event.
func TestGateThatDoesNotListen(t *testing.T) {
	s := newServer()
	s.set("rl/n", func(f *flow) { f.paused = true })
	s.set("rl/n/s", func(f *flow) { f.deaf = true })
	looks(t, s, 20)
	if got := s.flows["rl/n/s"].told; got != 3 {
		t.Errorf("told %d times, want 3", got)
	}
}

// TestNothingPausedCostsOneRequest for each look, once it is known that nothing is held.
func TestNothingPausedCostsOneRequest(t *testing.T) {
	s := newServer()
	w := temporalclient.NewWatch(s, slog.New(slog.DiscardHandler))
	for range 10 {
		if err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.lists != 11 { // and one search
		t.Errorf("%d lists for ten looks, want 11", s.lists)
	}
}

// TestLift takes back every pause that keeps a run from going on, and tells the gates.
func TestLift(t *testing.T) {
	s := newServer()
	for _, id := range []string{"retrain/n", "rl/n/s"} {
		s.set(id, func(f *flow) { f.paused = true })
	}
	looks(t, s, 1)
	lifted, err := temporalclient.Lift(t.Context(), s, "default", "n", "ben", "looked")
	if err != nil || len(lifted) != 2 || lifted[0].By != "ann" {
		t.Errorf("lifted %v (%v), want both", lifted, err)
	}
	if got := s.gates(); len(got) != 0 {
		t.Errorf("gates afterwards: %v", got)
	}
	if lifted, err = temporalclient.Lift(t.Context(), s, "default", "n", "ben", ""); err != nil || len(lifted) != 0 {
		t.Errorf("again: %v (%v), want nothing", lifted, err)
	}
}
