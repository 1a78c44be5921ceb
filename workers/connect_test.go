package workers

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/temporalclient"
)

// temporal answers the first question of every client.
type temporal struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (temporal) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

// TestRoleWaitsForAServerThatStarts, and not for one that nobody starts.
func TestRoleWaitsForAServerThatStarts(t *testing.T) {
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	p := Place{Process: config.DefaultProcess(), Log: slog.New(slog.DiscardHandler)}
	cfg := temporalclient.Config{Address: addrs[0], Logger: p.Log}
	if c, err := p.awaitServer(t.Context(), cfg); err == nil {
		c.Close()
		t.Fatal("there is a server")
	}
	g := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(g, temporal{})
	served := make(chan error, 1)
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	time.AfterFunc(time.Second, func() {
		l, err := net.Listen("tcp", addrs[0])
		if err != nil {
			served <- err
			return
		}
		served <- g.Serve(l)
	})
	p.Patience = time.Minute
	c, err := p.awaitServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
