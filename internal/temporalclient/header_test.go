package temporalclient

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"temper/workflows"
)

// listener notes which workflows are asked for, and how the header names them.
type listener struct {
	workflowservice.UnimplementedWorkflowServiceServer
	asking  sync.Mutex
	ids     []string
	headers []string
}

func (l *listener) DescribeWorkflowExecution(ctx context.Context, r *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.ids = append(l.ids, r.GetExecution().GetWorkflowId())
	l.headers = append(l.headers, metadata.ValueFromIncomingContext(ctx, resourceHeader)...)
	return &workflowservice.DescribeWorkflowExecutionResponse{}, nil
}

// TestEveryIDCrossesTheWire, also one that no header can hold.
func TestEveryIDCrossesTheWire(t *testing.T) {
	l := &listener{}
	c := serve(t, l)
	ids := []string{"rl/a b", "rl/größe", "日本"}
	for _, id := range ids {
		if _, err := workflows.Describe(t.Context(), c, id, ""); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	want := []string{"workflow:rl/a b", "workflow:rl%2Fgr%C3%B6%C3%9Fe", "workflow:%E6%97%A5%E6%9C%AC"}
	if !slices.Equal(l.ids, ids) || !slices.Equal(l.headers, want) {
		t.Errorf("the server was asked for %q with headers %q, want headers %q", l.ids, l.headers, want)
	}
}

// serve starts a server and connects to it.
func serve(t *testing.T, s workflowservice.WorkflowServiceServer) client.Client {
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
	c, err := Dial(t.Context(), Config{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
