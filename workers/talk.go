package workers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/openai/chatclient"
	"temper/internal/run/modeldir"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// MaxToolChars limits a result of a tool if no run sets a limit.
const MaxToolChars = 4000

// Talk opens a model, and the tools that it may call, for a command that talks with it.
type Talk struct {
	// Model is a model directory or the id of a run, of which Source chooses a policy. With
	// a URL, a server of OpenAI's API with the key Key has the model instead.
	Model    string
	Source   modeldir.Source
	URL, Key string
	Options  ModelOptions
	Client   chatclient.Client // speaks to the model once Open has returned
	Tools    []string          // the tools by name; by default those of the run, or Python
	NoTools  bool
	Process  *config.Process
	// Sandbox says that the process names the sandbox that runs the tools; otherwise the
	// talk starts its own.
	Sandbox bool

	rollout *config.Rollout
	closers []func()
}

// Close ends the model and the sandbox.
func (t *Talk) Close() {
	for i := len(t.closers) - 1; i >= 0; i-- {
		t.closers[i]()
	}
}

// Rollout says how the run of the model samples; nil for a model of no run.
func (t *Talk) Rollout() *config.Rollout { return t.rollout }

// Open loads the model into this process, or connects to its server.
func (t *Talk) Open(ctx context.Context) error {
	if t.URL != "" {
		t.Client.URL, t.Client.Key, t.Client.HTTP = t.URL, t.Key, &http.Client{}
		return t.Client.Check(ctx)
	}
	open := func(ctx context.Context) (blob.Store, error) { return OpenStore(ctx, t.Process) }
	model, err := modeldir.Open(ctx, t.Model, t.Source, open)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, model.Close)
	t.rollout = model.Rollout
	t.Options.Dir, t.Options.Name, t.Options.Log = model.Dir, filepath.Base(filepath.Clean(t.Model)), slog.New(slog.DiscardHandler)
	api, name, end, err := OpenModel(ctx, t.Options)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, end)
	t.Client.URL, t.Client.Model, t.Client.HTTP = "http://model", name, &http.Client{Transport: chatclient.InProcess{Handler: api}}
	return t.Client.Check(ctx)
}

// ToolConfig says which tools the model has, and opens a sandbox for size programs at a
// time. ok is false if the model has no tools.
func (t *Talk) ToolConfig(ctx context.Context, size int) (cfg chatclient.ToolConfig, ok bool, err error) {
	cfg = chatclient.ToolConfig{Names: t.Tools, Name: fmt.Sprintf("chat/%d", os.Getpid()), MaxResponseChars: MaxToolChars}
	if r := t.rollout; r != nil {
		cfg.MaxResponseChars, cfg.MaxCallsPerTurn = r.MaxToolResponseChars, r.MaxCallsPerTurn
		cfg.SessionTools = r.Tools.WithSession()
		cfg.Limits = sandbox.Limits{Wall: r.ToolTimeout, Memory: int64(r.ToolMemory)}
		if len(cfg.Names) == 0 {
			cfg.Names = r.Tools.Names()
		}
		if len(cfg.Names) == 0 {
			cfg.Names = chat.DefaultTools(r.ChatTemplate)
		}
	}
	if len(cfg.Names) == 0 {
		cfg.Names = []string{builtin.Python}
	}
	if t.NoTools || len(cfg.Names) == 1 && cfg.Names[0] == chat.NoTools {
		return cfg, false, nil
	}
	executor, end, err := OpenSandbox(ctx, t.Process, t.Sandbox, size)
	if err != nil {
		return cfg, false, err
	}
	t.closers = append(t.closers, end)
	cfg.Executor = executor
	return cfg, true, nil
}

// OpenTools opens the tools for one talk; fixture is Python code that runs before each
// call. It returns nil if the model has no tools.
func (t *Talk) OpenTools(ctx context.Context, fixture string) (*chatclient.Tools, error) {
	cfg, ok, err := t.ToolConfig(ctx, 1)
	if err != nil || !ok {
		return nil, err
	}
	cfg.Fixture = fixture
	tools, err := chatclient.NewTools(cfg)
	if err != nil {
		return nil, cli.Usage(err)
	}
	t.closers = append(t.closers, func() { tools.Close(ctx) })
	t.Client.Tools, err = tools.Schemas()
	return tools, err
}

// OpenSandbox connects to the sandbox of p if named says that a person named it, else it
// starts one in this process for size programs at a time; 0 is one for each core. A named
// sandbox that does not answer is replaced if no token for it is set: the token of
// temper up is known to its own processes alone.
func OpenSandbox(ctx context.Context, p *config.Process, named bool, size int) (*httpapi.Client, func(), error) {
	if named {
		client, err := dialSandbox(ctx, p)
		if err == nil {
			return client, client.Close, nil
		}
		if os.Getenv(SandboxTokenKey) != "" {
			return nil, nil, err
		}
	}
	if err := cli.FindPython(p.Python); err != nil {
		return nil, nil, cli.Usage(err)
	}
	if size == 0 {
		size = runtime.NumCPU()
	}
	local, err := StartSandbox(ctx, p.Python, size, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: %w; name one with --sandbox", err)
	}
	return local.Client, func() { _ = local.Close() }, nil // a sandbox that was killed changes no answer
}

// dialSandbox connects to the sandbox of p and runs an empty program.
func dialSandbox(ctx context.Context, p *config.Process) (*httpapi.Client, error) {
	options, err := SandboxClientOptions()
	if err != nil {
		return nil, cli.Usage(err)
	}
	client, err := httpapi.NewClient(p.SandboxAddress, options)
	if err != nil {
		return nil, cli.Usagef("--sandbox: %w", err)
	}
	if _, err := client.Execute(ctx, sandbox.Request{Code: "pass"}); err != nil {
		client.Close()
		return nil, fmt.Errorf("sandbox at %s: %w", p.SandboxAddress, err)
	}
	return client, nil
}
