package temporalclient

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
)

// server has one open workflow with the activities in pending, and notes what is failed.
type server struct {
	workflowservice.UnimplementedWorkflowServiceServer
	pending []*workflowpb.PendingActivityInfo

	mu         sync.Mutex
	failed     []string // by id
	identities []string // of those who asked
}

func (s *server) ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	open := &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: "w", RunId: "r"}}
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflowpb.WorkflowExecutionInfo{open}}, nil
}

func (s *server) DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &workflowservice.DescribeWorkflowExecutionResponse{PendingActivities: s.pending}, nil
}

func (s *server) RespondActivityTaskFailedById(_ context.Context, r *workflowservice.RespondActivityTaskFailedByIdRequest) (*workflowservice.RespondActivityTaskFailedByIdResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, r.GetWorkflowId()+"/"+r.GetActivityId()+" "+r.GetFailure().GetApplicationFailureInfo().GetType())
	s.identities = append(s.identities, r.GetIdentity())
	return &workflowservice.RespondActivityTaskFailedByIdResponse{}, nil
}

// serve returns a client of the server.
func serve(t *testing.T, s workflowservice.WorkflowServiceServer, held *Held) client.Client {
	t.Helper()
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "absent.toml"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	c, err := Dial(t.Context(), Config{Address: l.Addr().String(), Held: held})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestTasksThatNobodyNotedAreGivenBack: the server says who has them.
func TestTasksThatNobodyNotedAreGivenBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "trainer")
	var lists []*Held
	for range 3 {
		h, err := Hold(folder)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, h)
	}
	living, dead, heir := lists[0], lists[1], lists[2]
	activity := func(id string, state enums.PendingActivityState, worker string) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{ActivityId: id, State: state, LastWorkerIdentity: worker}
	}
	started, waiting := enums.PENDING_ACTIVITY_STATE_STARTED, enums.PENDING_ACTIVITY_STATE_SCHEDULED
	s := &server{pending: []*workflowpb.PendingActivityInfo{
		activity("lost", started, identity(dead.dir)),
		activity("to be tried again", waiting, identity(dead.dir)),
		activity("in good hands", started, identity(living.dir)),
		activity("elsewhere", started, "7@other"),
	}}
	if err := dead.lock.Close(); err != nil { // the kernel does so when it dies
		t.Fatal(err)
	}
	given := heir.GiveBack(t.Context(), serve(t, s, heir), "default")
	if given != (GivenBack{Workers: 1, Unnoted: 1}) || !slices.Equal(s.failed, []string{"w/lost " + ErrTypeWorkerDied}) {
		t.Errorf("gave back %+v, failed %q", given, s.failed)
	}
	if want := identity(heir.dir); !slices.Equal(s.identities, []string{want}) {
		t.Errorf("identity %q, want %q: a later heir could not tell who died", s.identities, want)
	}
	if _, err := os.Stat(dead.dir); err == nil {
		t.Error("the list of the dead stays")
	}
	for n := 0; n < 2; { // and is asked again, for what its list of workflows did not have yet
		time.Sleep(10 * time.Millisecond)
		s.mu.Lock()
		n = len(s.failed)
		s.mu.Unlock()
	}
	for _, h := range []*Held{heir, living} { // a file that nobody keeps would be closed before, and its lock lost
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOrderlyEndLosesNoTask: an activity that the server gave to a poll while the
// process stopped to poll is given back, by itself and by its successor.
func TestOrderlyEndLosesNoTask(t *testing.T) {
	folder := t.TempDir()
	ends, err := Hold(folder)
	if err != nil {
		t.Fatal(err)
	}
	started := enums.PENDING_ACTIVITY_STATE_STARTED
	s := &server{}
	ends.GiveBack(t.Context(), serve(t, s, ends), "default")
	s.mu.Lock()
	s.pending = []*workflowpb.PendingActivityInfo{
		{ActivityId: "lost", State: started, LastWorkerIdentity: identity(ends.dir)},
		{ActivityId: "of another", State: started, LastWorkerIdentity: "7@other"},
	}
	s.mu.Unlock()
	if err := ends.Close(); err != nil {
		t.Fatal(err)
	}
	lost := "w/lost " + ErrTypeWorkerDied
	s.mu.Lock()
	if len(s.failed) == 0 || slices.ContainsFunc(s.failed, func(id string) bool { return id != lost }) {
		t.Errorf("gave back %q, want %q alone", s.failed, lost)
	}
	s.failed = nil
	s.mu.Unlock()
	heir, err := Hold(folder)
	if err != nil {
		t.Fatal(err)
	}
	if given := heir.GiveBack(t.Context(), serve(t, s, heir), "default"); given != (GivenBack{Workers: 1, Unnoted: 1}) {
		t.Errorf("the successor gave back %+v", given)
	}
	if _, err := os.Stat(ends.dir); err == nil {
		t.Error("the list of the process that ended stays")
	}
	if err := heir.Close(); err != nil {
		t.Error(err)
	}
}

// TestSiblingGivesBack: a process that dies and has no successor leaves its tasks to
// those beside it, which started long before.
func TestSiblingGivesBack(t *testing.T) {
	folder := t.TempDir()
	sibling, err := Hold(folder)
	if err != nil {
		t.Fatal(err)
	}
	dies, err := Hold(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{pending: []*workflowpb.PendingActivityInfo{
		{ActivityId: "a", State: enums.PENDING_ACTIVITY_STATE_STARTED, LastWorkerIdentity: identity(dies.dir)},
	}}
	if given := sibling.GiveBack(t.Context(), serve(t, s, sibling), "default"); given != (GivenBack{}) {
		t.Fatalf("gave back %+v while all live", given)
	}
	if err := dies.lock.Close(); err != nil { // the kernel does so when it dies
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		failed := slices.Clone(s.failed)
		s.mu.Unlock()
		if len(failed) > 0 {
			break
		}
		if time.Since(began) > 20*siblingPause {
			t.Fatal("the task of the dead stays with it")
		}
	}
	if _, err := os.Stat(sibling.dir); err != nil {
		t.Errorf("the list of the living: %v", err)
	}
	if err := sibling.Close(); err != nil {
		t.Error(err)
	}
}

// TestNobodyTakesANewProcessForDead: its folder is never there without its lock.
func TestNobodyTakesANewProcessForDead(t *testing.T) {
	folder := t.TempDir()
	looking, stop := context.WithCancel(t.Context())
	var looker sync.WaitGroup
	looker.Go(func() {
		for looking.Err() == nil {
			dirs, err := filepath.Glob(filepath.Join(folder, "*-*"))
			if err != nil {
				t.Error(err)
			}
			for _, dir := range dirs {
				if lock, err := lockFile(filepath.Join(dir, heldLock)); err == nil {
					t.Errorf("%s is there without an owner", dir)
					_ = lock.Close() // nothing was written
				}
			}
		}
	})
	for range 200 {
		h, err := Hold(folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() }) // a temporary folder
	}
	stop()
	looker.Wait()
}
