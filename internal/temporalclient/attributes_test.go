package temporalclient_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"temper/internal/temporalclient"
)

// operator is the operator service of a server, as far as attributes go.
type operator struct {
	operatorservice.UnimplementedOperatorServiceServer
	// denied refuses creation; late is the number of lists that do not show yet
	// what was created.
	denied bool
	late   int

	mu    sync.Mutex
	have  temporalclient.Attributes
	added temporalclient.Attributes
}

func (o *operator) ListSearchAttributes(context.Context, *operatorservice.ListSearchAttributesRequest) (*operatorservice.ListSearchAttributesResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]enums.IndexedValueType{}
	for name, kind := range o.have {
		all[name] = kind
	}
	if o.added != nil && o.late == 0 {
		for name, kind := range o.added {
			all[name] = kind
		}
	} else if o.added != nil {
		o.late--
	}
	return &operatorservice.ListSearchAttributesResponse{CustomAttributes: all}, nil
}

func (o *operator) AddSearchAttributes(_ context.Context, in *operatorservice.AddSearchAttributesRequest) (*operatorservice.AddSearchAttributesResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.denied {
		return nil, status.Error(codes.PermissionDenied, "not for you")
	}
	o.added = in.SearchAttributes
	return &operatorservice.AddSearchAttributesResponse{}, nil
}

func dial(t *testing.T, o operatorservice.OperatorServiceServer) client.Client {
	t.Helper()
	isolate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, workflowservice.UnimplementedWorkflowServiceServer{})
	operatorservice.RegisterOperatorServiceServer(server, o)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	c, err := temporalclient.Dial(t.Context(), temporalclient.Config{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var (
	keyword = enums.INDEXED_VALUE_TYPE_KEYWORD
	integer = enums.INDEXED_VALUE_TYPE_INT
)

func wanted() temporalclient.Attributes {
	return temporalclient.Attributes{"RunID": keyword, "Step": integer}
}

func TestMissingAttributesAreCreatedAndAwaited(t *testing.T) {
	o := &operator{have: temporalclient.Attributes{"RunID": keyword}, late: 2}
	known, err := temporalclient.EnsureAttributes(t.Context(), dial(t, o), "default", wanted())
	if err != nil || !known {
		t.Fatalf("known %v, %v", known, err)
	}
	if len(o.added) != 1 || o.added["Step"] != integer {
		t.Errorf("created %v, want Step alone", o.added)
	}
	if o.late != 0 {
		t.Error("returned before the attributes could be used")
	}
}

func TestKnownAttributesAreLeftAlone(t *testing.T) {
	o := &operator{have: wanted(), denied: true}
	known, err := temporalclient.EnsureAttributes(t.Context(), dial(t, o), "default", wanted())
	if err != nil || !known {
		t.Errorf("known %v, %v; want true: nothing had to be created", known, err)
	}
}

func TestServerThatRefusesIsNoError(t *testing.T) {
	for name, o := range map[string]operatorservice.OperatorServiceServer{
		"creation denied": &operator{denied: true},
		"no such service": operatorservice.UnimplementedOperatorServiceServer{},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := temporalclient.EnsureAttributes(t.Context(), dial(t, o), "default", wanted())
			if err != nil || known {
				t.Errorf("known %v, %v; want false and no error", known, err)
			}
		})
	}
}

func TestAttributeOfAnotherTypeIsAnError(t *testing.T) {
	o := &operator{have: temporalclient.Attributes{"RunID": keyword, "Step": keyword}}
	_, err := temporalclient.EnsureAttributes(t.Context(), dial(t, o), "default", wanted())
	if err == nil || !strings.Contains(err.Error(), "search attribute Step of namespace default is a Keyword, want Int") {
		t.Errorf("error %v", err)
	}
}
