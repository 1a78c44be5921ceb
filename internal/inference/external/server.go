package external

import (
	"context"
	"errors"
	"sync/atomic"

	"temper/internal/rl"
)

// server speaks with one server. Its methods may be called concurrently, except load.
type server interface {
	// generate asks once. The answer has the tokens that were sampled before an error or
	// before the end of ctx, by which the caller cancels a generation.
	generate(ctx context.Context, c call) (answer, error)
	// load makes the server hold a policy; the caller proves that it does. The folder
	// has what files asks for.
	load(ctx context.Context, p published) error
	// limits asks the server for facts that it must have; zero means that it does not say.
	limits(ctx context.Context) (limits, error)
	// status asks for what the server says of its cache.
	status(ctx context.Context) (load, error)
	// label is what the server calls a policy, which follows from our name for it.
	label(name string) string
	// needsFile reports whether the server reads a GGUF file in place of a directory.
	needsFile() bool
	address() string
	close()
}

// call is one request to a server.
type call struct {
	id          string
	session     string
	tokens      []int32
	maxTokens   int
	stop        []int32
	temperature float32
	seed        uint64
}

// answer is what a server sampled.
type answer struct {
	tokens   []int32
	logprobs []float32
	// finish is rl.FinishAbort when the server ended it before its time: it was paused,
	// or met an end token that the request does not list.
	finish rl.FinishReason
	// labels are all that the server says of the policies of the tokens.
	labels []string
	// cutStop is the stop token that the server names and leaves out of the tokens.
	cutStop *int32
}

// published is a policy in the folder.
type published struct {
	name string // of its directory
	dir  string
	file string // the GGUF, where the server needs one
}

// limits is what a server accepts.
type limits struct {
	maxContext int
}

// load is what a server says of its cache, in tokens; negative is unknown.
type load struct {
	capacity, used int64
	running        int
	waiting        int
}

// Kinds of failures. They decide what a request does next.
var (
	// errRefused means that the server will never serve this request.
	errRefused = errors.New("refused")
	// errLost means that the server is away or holds something else: it must prove itself
	// before it is asked again.
	errLost = errors.New("server lost")
	// errBusy means that the server is loaded too much.
	errBusy = errors.New("server busy")
)

// replica is a server with what this engine knows of it.
type replica struct {
	server server
	// unproven is true when the server must prove the policy before the next request.
	unproven atomic.Bool
	// proofs counts how often it did: a request that began before the last one says
	// nothing of the server now.
	proofs    atomic.Int64
	repairing atomic.Bool // a repair runs beside the requests
	running   atomic.Int64
}
