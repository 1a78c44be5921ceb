package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/converse"
	"temper/internal/run"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/workers"
)

// ChatKeyKey is the variable of the environment with the key for a server of --url.
const ChatKeyKey = "TEMPER_CHAT_KEY" //nolint:gosec // a name

// toolChars is how long a result of a tool may be where no run says so.
const toolChars = 4000

// chatting is what a person asks of a chat.
type chatting struct {
	asked    servedModel
	model    workers.ModelOptions
	url      string
	question string
	system   string
	fixture  string
	tools    []string
	noTools  bool
	asJSON   bool
	maxTurns int
	client   converse.Client
	closers  []func()
}

func chatCommand() *cobra.Command {
	c := &chatting{model: workers.ModelOptions{Slots: 1}}
	cmd := &cobra.Command{
		Use: "chat", Short: "Talk with a model whose tools run in the sandbox", Args: cobra.NoArgs,
		Long: `Talks with a model: a directory in Hugging Face layout, a run, or whatever a server of OpenAI's API has.
What the model says appears as it comes, with each call of a tool and its result. Calls run in a sandbox
that this command starts, or in that of --sandbox.

With --prompt it answers one question: exit status 0 with an answer, 1 without one. Else it is a talk: ` + "\n" +
			`/exit ends, /reset forgets, a \ at the end of a line lets another one follow, ctrl-c cuts an answer and
ctrl-d ends.`,
	}
	p := cli.ProcessFlags(cmd)
	c.flags(cmd)
	temperature := cmd.Flags().Float64("temperature", 0, "divides the logits, 0 takes the most likely token; the model's own by default")
	seed := cmd.Flags().Int64("seed", 0, "of the draws; a new one for each turn by default")
	cmd.MarkFlagsMutuallyExclusive("model", "url")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.check(cmd); err != nil {
			return err
		}
		if cmd.Flags().Changed("temperature") {
			c.client.Temperature = temperature
		}
		if cmd.Flags().Changed("seed") {
			c.client.Seed = seed
		}
		ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if cmd.Flags().Changed("prompt") {
			ctx = cmd.Context() // ctrl-c ends it
		}
		defer c.close()
		talk, err := c.open(cmd.Context(), cmd, p) // ctrl-c ends that, too: there is no answer yet to cut
		if err == nil {
			err = cmd.Context().Err()
		}
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("prompt") {
			return c.once(ctx, talk, cmd.OutOrStdout())
		}
		return c.talk(ctx, talk, cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return cmd
}

func (c *chatting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.asked.model, "model", "", "directory in Hugging Face layout, or the id of a run")
	f.Int64Var(&c.asked.run.policy, "policy", 0, "this published policy of the run")
	f.StringVar(&c.asked.run.step, "step", "", "the checkpoint of this step of the run")
	f.BoolVar(&c.asked.run.best, "best", false, "the checkpoint of the run with the highest reward of the step after it")
	f.StringVar(&c.model.Backend, "backend", "", "device that computes; the Go backend by default")
	f.IntVar(&c.model.MaxContext, "max-context", 0, "tokens of the whole talk; what the model allows by default")
	f.StringVar(&c.url, "url", "", "server of OpenAI's API instead, such as http://127.0.0.1:8000; its key is "+ChatKeyKey)
	f.StringVar(&c.client.Model, "name", "", "model of that server; its first one by default")
	f.StringVar(&c.question, "prompt", "", "answer this question and end")
	f.BoolVar(&c.asJSON, "json", false, "with --prompt, print one record")
	f.StringVar(&c.system, "system", "", "system message; that of the model's template by default")
	f.StringSliceVar(&c.tools, "tool", nil, "tools that the model may call; those of the run, or "+builtin.Python+", by default")
	f.BoolVar(&c.noTools, "no-tools", false, "let the model call none")
	f.StringVar(&c.fixture, "fixture", "", "file of Python code that runs before each call")
	f.IntVar(&c.maxTurns, "max-turns", 10, "turns of one answer")
	f.IntVar(&c.client.MaxTokens, "max-tokens", 0, "tokens of one turn; what fits by default")
}

// check finds what is wrong with the flags alone.
func (c *chatting) check(cmd *cobra.Command) error {
	var wrong []error
	if c.asked.model == "" && c.url == "" {
		wrong = append(wrong, errors.New("--model or --url is missing: a directory, the id of a run, or a server"))
	}
	if c.maxTurns < 1 || c.client.MaxTokens < 0 || c.model.MaxContext < 0 {
		wrong = append(wrong, fmt.Errorf("--max-turns %d, --max-tokens %d, --max-context %d: want at least 1, 0 and 0", c.maxTurns, c.client.MaxTokens, c.model.MaxContext))
	}
	if c.asJSON && !cmd.Flags().Changed("prompt") {
		wrong = append(wrong, errors.New("--json is for --prompt"))
	}
	if c.noTools && (len(c.tools) > 0 || c.fixture != "") {
		wrong = append(wrong, errors.New("--no-tools excludes --tool and --fixture"))
	}
	wrong = append(wrong, onlyOne(cmd, "step", "policy", "best"))
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

func (c *chatting) close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i]()
	}
}

// open brings up the model and the sandbox. close ends them.
func (c *chatting) open(ctx context.Context, cmd *cobra.Command, p *config.Process) (*converse.Conversation, error) {
	var rollout *config.Rollout
	var err error
	if c.url != "" {
		c.client.URL, c.client.Key, c.client.HTTP = c.url, os.Getenv(ChatKeyKey), &http.Client{}
	} else if rollout, err = c.openModel(ctx, cmd, p); err != nil {
		return nil, err
	}
	if err := c.client.Check(ctx); err != nil {
		return nil, err
	}
	var tools *converse.Tools
	if !c.noTools {
		if tools, err = c.openTools(ctx, cmd, p, rollout); err != nil {
			return nil, err
		}
	}
	return converse.New(&c.client, tools, c.system, c.maxTurns)
}

// openModel loads the model into this process. It returns how its run samples, where it
// has one.
func (c *chatting) openModel(ctx context.Context, cmd *cobra.Command, p *config.Process) (*config.Rollout, error) {
	dir, remove, err := c.asked.directory(ctx, p, cmd.Flags().Changed("policy"))
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, remove)
	c.model.Dir, c.model.Name, c.model.Log = dir, filepath.Base(filepath.Clean(c.asked.model)), slog.New(slog.DiscardHandler)
	api, name, end, err := workers.OpenModel(ctx, c.model)
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, end)
	c.client.URL, c.client.Model, c.client.HTTP = "http://model", name, &http.Client{Transport: converse.InProcess{Handler: api}}
	if c.asked.run.runID == "" {
		return nil, nil //nolint:nilnil // a directory has no run
	}
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, err
	}
	return rolloutOf(ctx, store, c.asked.run.runID)
}

// rolloutOf reads how a run samples.
func rolloutOf(ctx context.Context, store blob.Store, runID string) (*config.Rollout, error) {
	plan, ok, err := run.StoredPlan(ctx, store, runID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, cli.Usagef("run %s has no plan: it was never opened", runID)
	}
	cfg, err := run.ReadConfig(ctx, store, run.Ref{RunID: runID, Config: plan.Config})
	return &cfg.Rollout, err
}

// toolConfig says which tools the model has, as its run does where it has one. none says
// that it has none.
func (c *chatting) toolConfig(rollout *config.Rollout) (cfg converse.ToolConfig, none bool) {
	cfg = converse.ToolConfig{Names: c.tools, Name: fmt.Sprintf("chat/%d", os.Getpid()), MaxResponseChars: toolChars}
	if rollout != nil {
		cfg.MaxResponseChars, cfg.MaxCallsPerTurn = rollout.MaxToolResponseChars, rollout.MaxCallsPerTurn
		cfg.SessionTools = rollout.Tools.WithSession()
		cfg.Limits = sandbox.Limits{Wall: rollout.ToolTimeout, Memory: int64(rollout.ToolMemory)}
		if len(cfg.Names) == 0 {
			cfg.Names = rollout.Tools.Names()
		}
		if len(cfg.Names) == 0 {
			cfg.Names = chat.DefaultTools(rollout.ChatTemplate)
		}
	}
	if len(cfg.Names) == 0 {
		cfg.Names = []string{builtin.Python}
	}
	return cfg, len(cfg.Names) == 1 && cfg.Names[0] == chat.NoTools
}

// openTools makes the tools, with a sandbox of their own unless one was named.
func (c *chatting) openTools(ctx context.Context, cmd *cobra.Command, p *config.Process, rollout *config.Rollout) (*converse.Tools, error) {
	cfg, none := c.toolConfig(rollout)
	if none {
		return nil, nil //nolint:nilnil // the run has none
	}
	if c.fixture != "" {
		code, err := os.ReadFile(c.fixture)
		if err != nil {
			return nil, cli.Usagef("--fixture: %w", err)
		}
		cfg.Fixture = string(code)
	}
	var err error
	var end func()
	if cfg.Executor, end, err = openSandbox(ctx, cmd, p, 1); err != nil {
		return nil, err
	}
	c.closers = append(c.closers, end)
	tools, err := converse.NewTools(cfg)
	if err != nil {
		return nil, cli.Usage(err)
	}
	c.closers = append(c.closers, func() { tools.Close(ctx) })
	if c.client.Tools, err = tools.Schemas(); err != nil {
		return nil, err
	}
	return tools, nil
}

// openSandbox calls the sandbox that was named, or starts one for so many programs at a time.
func openSandbox(ctx context.Context, cmd *cobra.Command, p *config.Process, size int) (exec sandbox.Executor, end func(), err error) {
	if cmd.Flags().Changed("sandbox") {
		opts, err := workers.SandboxClientOptions()
		if err != nil {
			return nil, nil, cli.Usage(err)
		}
		client, err := httpapi.NewClient(p.SandboxAddress, opts)
		if err != nil {
			return nil, nil, cli.Usagef("--sandbox: %w", err)
		}
		return client, client.Close, nil
	}
	if err := cli.FindPython(p.Python); err != nil {
		return nil, nil, cli.Usage(err)
	}
	local, err := workers.StartSandbox(ctx, p.Python, size, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: %w; name one with --sandbox, or let the model call no tools with --no-tools", err)
	}
	return local, func() { _ = local.Close() }, nil
}

// chatRecord is the answer to one question, for programs.
type chatRecord struct {
	Model  string              `json:"model"`
	Prompt string              `json:"prompt"`
	Answer string              `json:"answer"`
	Finish string              `json:"finish"`
	Turns  int                 `json:"turns"`
	Calls  []converse.Executed `json:"calls"`
	Usage  converse.Usage      `json:"usage"`
}

// once answers one question.
func (c *chatting) once(ctx context.Context, talk *converse.Conversation, out io.Writer) error {
	printer := converse.NewPrinter(out, colours(out))
	show := printer.Show
	if c.asJSON {
		show = func(converse.Delta) error { return nil }
	}
	answer, err := talk.Ask(ctx, c.question, show)
	if err != nil {
		_ = printer.End() // the error says more
		return err
	}
	if c.asJSON {
		calls := append([]converse.Executed{}, answer.Results...)
		err = cli.PrintJSON(out, chatRecord{c.client.Model, c.question, answer.Content, answer.Finish, len(answer.Turns), calls, answer.Usage})
	} else {
		err = printer.End()
	}
	if err == nil && answer.Finish != converse.FinishStop {
		err = errors.New(converse.Ended(answer.Finish))
	}
	return err
}

// talk answers what comes in.
func (c *chatting) talk(ctx context.Context, talk *converse.Conversation, in io.Reader, out io.Writer) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	console := converse.Console{In: in, Out: out, Printer: converse.NewPrinter(out, colours(out)), Interrupts: interrupts}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		console.Prompt = "> "
	}
	return console.Run(ctx, talk)
}

// colours reports whether out is a terminal that shows them.
func colours(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
