package workers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/inference/lease"
	"temper/internal/inference/remote"
	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/internal/run"
	"temper/sandbox/httpapi"
	"temper/sandbox/server"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
)

// EngineTokenKey is the variable of the environment with the bearer token that engines
// ask for and rollout roles send.
const EngineTokenKey = "TEMPER_ENGINE_TOKEN" //nolint:gosec // a name

// EngineCAKey names the file with the authorities that signed the certificates of
// engines, where the machine does not trust them.
const EngineCAKey = "TEMPER_ENGINE_TLS_CA"

// EngineOptions configure an engine role.
type EngineOptions struct {
	Place
	// Run whose policies are served. One process serves one run.
	Run string
	// Name of the engine, unique in the run.
	Name string
	// Advertise is host:port at which rollout roles reach the engine; empty is the
	// address where it listens.
	Advertise string
	// Backend for tensors; empty is the Go backend.
	Backend string
	// Slots is the number of generations at a time.
	Slots int
	// Capacity is the number of tokens that the caches hold; 0 is room for as many whole
	// contexts as there are slots.
	Capacity int
	// Wait is how long the run may be missing from the store.
	Wait time.Duration
	// Drain is how long generations may continue after the role was told to end. Generations that
	// are left are answered with their tokens so far.
	Drain  time.Duration
	Server server.Config
	// OnReady is called when requests are answered and the engine can be found.
	OnReady func(url string)
}

// Check finds what is wrong before the engine is built.
func (o EngineOptions) Check() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Run == "" {
		add("--run: is missing: the id of the run whose policies are served")
	}
	if err := lease.CheckName(o.Name); err != nil {
		add("--name: %w", err)
	}
	if o.Slots < 1 || o.Capacity < 0 {
		add("--slots %d, --capacity %d: want at least 1 and 0", o.Slots, o.Capacity)
	}
	if o.Wait < 0 || o.Drain < 0 {
		add("--wait %v, --drain %v: want at least 0", o.Wait, o.Drain)
	}
	if err := device.Check(o.Backend); err != nil {
		add("--backend: %w", err)
	}
	errs = append(errs, checkEngineListen(o.Server), o.Server.Check(), o.checkAdvertise())
	return errors.Join(errs...)
}

// checkEngineListen refuses an address at which any stranger could use the engine.
func checkEngineListen(s server.Config) error {
	host, _, err := net.SplitHostPort(s.Listen)
	if strings.HasPrefix(s.Listen, httpapi.UnixPrefix) || err != nil || s.Token != "" || s.Insecure {
		return nil // what is wrong with the address itself is said elsewhere
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--listen %s: other machines can reach it and there is no token: set %s or --token-file, or allow it with --insecure", s.Listen, EngineTokenKey)
}

func (o EngineOptions) checkAdvertise() error {
	if o.Advertise != "" {
		if err := remote.CheckAddress(o.Advertise); err != nil {
			return fmt.Errorf("--advertise: %w", err)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(o.Server.Listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("--advertise is missing: %s is no address that a rollout role can call", o.Server.Listen)
	}
	return nil
}

// PolicyEngine serves the policies of a run to rollout roles.
func PolicyEngine(o EngineOptions) Role {
	return Role{
		Row: role.Of(role.Engine),
		Run: func(ctx context.Context, v *Vitals) error { return serveEngine(ctx, o, v) },
	}
}

func serveEngine(ctx context.Context, o EngineOptions, v *Vitals) error {
	if err := o.Check(); err != nil {
		return err
	}
	store, err := OpenStore(ctx, &o.Process)
	if err != nil {
		return err
	}
	v.Need(string(role.NeedStore), func(ctx context.Context) error { return answers(ctx, store) })
	v.Need(string(role.NeedDevice), func(context.Context) error { return device.Check(o.Backend) })
	r, err := awaitRun(ctx, store, o)
	if err != nil {
		return err
	}
	if o.Capacity > 0 && o.Capacity < r.Config.EngineContext() {
		return fmt.Errorf("--capacity: is %d tokens, and one context of run %s takes %d (model.max_context, or eval.max_context)", o.Capacity, o.Run, r.Config.EngineContext())
	}
	factory := newEngineFactory(store, o.Backend, o.Slots, o.Log)
	factory.capacity, factory.weights = o.Capacity, o.Weights
	v.Metrics.MustRegister(factory)
	e, err := factory.make(r)
	if err != nil {
		return err
	}
	defer e.Close()
	engine, ok := e.(remote.ServedEngine)
	if !ok {
		return fmt.Errorf("engine of run %s: a %T reports no status", o.Run, e)
	}
	who, err := identify(r, o.Name, o.Backend)
	if err != nil {
		return err
	}
	return (&engineServer{EngineOptions: o, store: store, vitals: v}).serve(ctx, engine, who)
}

// awaitRun loads the run, for whose preparation it waits a while.
func awaitRun(ctx context.Context, store blob.Store, o EngineOptions) (*run.Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Wait+probeTime)
	defer cancel()
	for waited := time.Duration(0); ; waited += serverPause {
		r, err := loadRun(ctx, store, o.Run)
		if err == nil || !errors.Is(err, blob.ErrNotExist) || waited >= o.Wait {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(serverPause):
		}
	}
}

// loadRun reads a run by its id. Errors: blob.ErrNotExist for one that was never opened.
func loadRun(ctx context.Context, store blob.Store, id string) (*run.Loaded, error) {
	plan, ok, err := run.StoredPlan(ctx, store, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("run %q is not in the store: %w (temper run list shows what is; --wait gives it time to begin)", id, blob.ErrNotExist)
	}
	return run.Load(ctx, store, run.Ref{RunID: id, Config: plan.Config})
}

// identify says who an engine of a run is. One that cannot say what decides its bits must
// not sample beside others.
func identify(r *run.Loaded, name, backend string) (remote.Identity, error) {
	bits, err := bitsOf(backend, r.Config)
	if err != nil {
		return remote.Identity{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return remote.Identity{
		Name: name, Run: r.Ref.RunID, Build: buildinfo.Line(), Model: modelFingerprint(r), Vocab: r.Model.VocabSize,
		Kernels: bits, Holder: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:12]),
	}, nil
}

// modelFingerprint is equal where engines take the same policies and contexts.
func modelFingerprint(r *run.Loaded) string {
	data, err := json.Marshal(struct {
		Model, MaxContext any
		Kernels           kernels.Choice
	}{r.Model, r.Config.EngineContext(), kernels.Choice(r.Config.Trainer.Kernels)})
	if err != nil { // numbers and texts always encode
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// engineServer is an engine that answers and can be found.
type engineServer struct {
	EngineOptions
	store  blob.Store
	vitals *Vitals
}

func (s *engineServer) serve(ctx context.Context, engine remote.ServedEngine, who remote.Identity) error {
	srv, err := server.New(s.Server)
	if err != nil {
		return err
	}
	defer srv.Close() //nolint:errcheck // after Serve it does nothing
	address := srv.URL()
	if s.Advertise != "" {
		address = s.Advertise
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	// The lease lives until the last generation has ended: without it no caller would wait.
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	draining := make(chan struct{})
	api := remote.NewServer(engine, who, func() { close(draining) })
	lease := &engineLease{server: s, entry: lease.Entry{Name: who.Name, Run: who.Run, Address: address, Holder: who.Holder}}
	var g errgroup.Group
	g.Go(func() error {
		defer release()
		return srv.Serve(serving, s.handler(api), server.Hooks{
			Drain:   func() { s.vitals.Drain(); api.Drain() },
			Finish:  func(ctx context.Context) error { return s.finish(ctx, api, lease) },
			Timeout: s.Drain + lastAnswers,
		})
	})
	g.Go(func() error {
		defer stop()
		return lease.keep(keeping, draining, func() {
			s.Log.Info("engine serves", "build", who.Build, "engine", who.Name, "run_id", who.Run, "address", address, "backend", s.Backend)
			s.OnReady(address)
		})
	})
	return g.Wait()
}

// lastAnswers bounds the time to answer generations that were cut.
const lastAnswers = 2 * time.Second

// finish waits for the generations under way. Those that take too long are answered with
// their tokens so far, so that another engine continues from there.
func (s *engineServer) finish(ctx context.Context, api *remote.Server, lease *engineLease) error {
	timed, cancel := context.WithTimeout(ctx, s.Drain)
	err := api.Finish(timed)
	cancel()
	if err != nil {
		api.CutAll()
		err = api.Finish(ctx)
	}
	lease.leave(ctx)
	return err
}

// handler adds health and metrics to the protocol.
func (s *engineServer) handler(api *remote.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api.Handler())
	for path, handler := range metricsHandler(s.vitals.Metrics) {
		mux.Handle(path, handler)
	}
	mux.HandleFunc("GET "+httpapi.PathHealth, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.Handle("GET "+httpapi.PathReady, s.vitals.ReadyHandler())
	return mux
}

// EngineClientOptions reads from the environment how to call engines. The token may be
// in a file.
func EngineClientOptions(tokenFile string) (remote.Options, error) {
	token, err := EngineToken(tokenFile)
	if err != nil {
		return remote.Options{}, err
	}
	tls, err := server.ClientTLS(os.Getenv(EngineCAKey), "", "")
	if err != nil {
		return remote.Options{}, fmt.Errorf("%s: %w", EngineCAKey, err)
	}
	return remote.Options{Token: token, TLS: tls}, nil
}

// EngineToken returns the token in a file, or the token of the environment where no file is named.
func EngineToken(file string) (string, error) {
	if file == "" {
		return os.Getenv(EngineTokenKey), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("--token-file %s: want one line with the token", file)
	}
	return token, nil
}

// engineLease keeps the entry of an engine in the lease.
type engineLease struct {
	server *engineServer
	entry  lease.Entry

	mu   sync.Mutex
	held *lease.Lease // nil before it was taken
}

// leaseTime bounds a change of the entry when the engine ends. A store that does not
// answer lets it expire.
const leaseTime = 3 * time.Second

// keep takes the name and renews the lease until ctx ends. An engine that lost its name
// ends: two of one name would be one for those who look.
func (l *engineLease) keep(ctx context.Context, draining <-chan struct{}, ready func()) error {
	held, err := lease.Hold(ctx, lease.Config{Store: l.server.store, Entry: l.entry})
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		return err
	}
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	ready()
	var announce sync.WaitGroup
	defer announce.Wait()
	announce.Go(func() {
		select {
		case <-draining:
			l.change(context.WithoutCancel(ctx), held.Drain)
		case <-ctx.Done():
		}
	})
	return held.Keep(ctx)
}

// leave gives the name back.
func (l *engineLease) leave(ctx context.Context) {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		l.change(ctx, held.Leave)
	}
}

func (l *engineLease) change(ctx context.Context, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	if err := do(ctx); err != nil {
		l.server.Log.Warn("entry of the engine is not changed", "engine", l.entry.Name, "err", err)
	}
}
