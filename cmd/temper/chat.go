package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/openai/chatclient"
	"temper/internal/tool/builtin"
	"temper/workers"
)

// ChatKeyKey is the variable of the environment with the key for a server of --url.
const ChatKeyKey = "TEMPER_CHAT_KEY" //nolint:gosec // a name

// chatting holds the flags of a chat.
type chatting struct {
	workers.Talk
	modelFlags
	question string
	system   string
	fixture  string
	asJSON   bool
	maxTurns int
}

func chatCommand(p *config.Process) *cobra.Command {
	c := &chatting{Talk: workers.Talk{Options: workers.ModelOptions{Slots: 1}, Process: p}}
	cmd := &cobra.Command{
		Use: "chat", Short: "Talk with a model whose tools run in the sandbox", Args: cobra.NoArgs,
		Long: `Talks with a model: a directory in Hugging Face layout, a run, or whatever a server of OpenAI's API has.
What the model says appears as it comes, with each call of a tool and its result. Calls run in a sandbox
that this command starts, or in that of --sandbox.

With --prompt it answers one question: exit status 0 with an answer, 1 without one. Else it is a talk: ` + "\n" +
			`/exit ends, /reset forgets, a \ at the end of a line lets another one follow, ctrl-c cuts an answer and
ctrl-d ends.`,
	}
	c.flags(cmd)
	cli.PythonFlag(cmd.Flags(), p)
	temperature := cmd.Flags().Float64("temperature", 0, "divides the logits, 0 takes the most likely token; the model's own by default")
	seed := cmd.Flags().Int64("seed", 0, "of the draws; a new one for each turn by default")
	cmd.MarkFlagsMutuallyExclusive("model", "url")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.check(cmd); err != nil {
			return err
		}
		if cmd.Flags().Changed("temperature") {
			c.Client.Temperature = temperature
		}
		if cmd.Flags().Changed("seed") {
			c.Client.Seed = seed
		}
		ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if cmd.Flags().Changed("prompt") {
			ctx = cmd.Context() // ctrl-c ends it
		}
		defer c.Close()
		talk, err := c.open(cmd.Context(), cmd) // ctrl-c ends that, too: there is no answer yet to cut
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
	c.modelFlags.add(f)
	f.StringVar(&c.Options.Backend, "backend", "", "device that computes; the Go backend by default")
	f.IntVar(&c.Options.MaxContext, "max-context", 0, "tokens of the whole talk; what the model allows by default")
	f.StringVar(&c.URL, "url", "", "server of OpenAI's API instead, such as http://127.0.0.1:8000; its key is "+ChatKeyKey)
	f.StringVar(&c.Client.Model, "name", "", "model of that server; its first one by default")
	f.StringVar(&c.question, "prompt", "", "answer this question and end")
	f.BoolVar(&c.asJSON, "json", false, "with --prompt, print one record")
	f.StringVar(&c.system, "system", "", "system message; that of the model's template by default")
	f.StringSliceVar(&c.Tools, "tool", nil, "tools that the model may call; those of the run, or "+builtin.Python+", by default")
	f.BoolVar(&c.NoTools, "no-tools", false, "let the model call none")
	f.StringVar(&c.fixture, "fixture", "", "file of Python code that runs before each call")
	f.IntVar(&c.maxTurns, "max-turns", 10, "turns of one answer")
	f.IntVar(&c.Client.MaxTokens, "max-tokens", 0, "tokens of one turn; what fits by default")
}

// check finds what is wrong with the flags alone.
func (c *chatting) check(cmd *cobra.Command) error {
	var wrong []error
	if c.model == "" && c.URL == "" {
		wrong = append(wrong, errors.New("--model or --url is missing: a directory, the id of a run, or a server"))
	}
	if c.maxTurns < 1 || c.Client.MaxTokens < 0 || c.Options.MaxContext < 0 {
		wrong = append(wrong, fmt.Errorf("--max-turns %d, --max-tokens %d, --max-context %d: want at least 1, 0 and 0", c.maxTurns, c.Client.MaxTokens, c.Options.MaxContext))
	}
	if c.asJSON && !cmd.Flags().Changed("prompt") {
		wrong = append(wrong, errors.New("--json is for --prompt"))
	}
	if c.NoTools && (len(c.Tools) > 0 || c.fixture != "") {
		wrong = append(wrong, errors.New("--no-tools excludes --tool and --fixture"))
	}
	wrong = append(wrong, onlyOne(cmd, "step", "policy-version"))
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// open opens the model and its tools.
func (c *chatting) open(ctx context.Context, cmd *cobra.Command) (*chatclient.Conversation, error) {
	c.Model, c.Source, c.Key, c.Sandbox = c.model, c.source, os.Getenv(ChatKeyKey), cmd.Flags().Changed("sandbox")
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	var fixture []byte
	if c.fixture != "" {
		var err error
		if fixture, err = os.ReadFile(c.fixture); err != nil {
			return nil, cli.Usagef("--fixture: %w", err)
		}
	}
	tools, err := c.OpenTools(ctx, string(fixture))
	if err != nil {
		return nil, err
	}
	return chatclient.New(&c.Client, tools, c.system, c.maxTurns)
}

// chatRecord is the answer to one question, for programs.
type chatRecord struct {
	Model  string                `json:"model"`
	Prompt string                `json:"prompt"`
	Answer string                `json:"answer"`
	Finish string                `json:"finish"`
	Turns  int                   `json:"turns"`
	Calls  []chatclient.Executed `json:"calls"`
	Usage  chatclient.Usage      `json:"usage"`
}

// once answers one question.
func (c *chatting) once(ctx context.Context, talk *chatclient.Conversation, out io.Writer) error {
	printer := chatclient.NewPrinter(out, colours(out))
	show := printer.Show
	if c.asJSON {
		show = func(chatclient.Delta) error { return nil }
	}
	answer, err := talk.Ask(ctx, c.question, show)
	if err != nil {
		_ = printer.End() // the error says more
		return err
	}
	if c.asJSON {
		calls := append([]chatclient.Executed{}, answer.Results...)
		err = cli.PrintJSON(out, chatRecord{c.Client.Model, c.question, answer.Content, answer.Finish, len(answer.Turns), calls, answer.Usage})
	} else {
		err = printer.End()
	}
	if err == nil && answer.Finish != chatclient.FinishStop {
		err = errors.New(chatclient.Ended(answer.Finish))
	}
	return err
}

// talk answers what comes in.
func (c *chatting) talk(ctx context.Context, talk *chatclient.Conversation, in io.Reader, out io.Writer) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	console := chatclient.Console{In: in, Out: out, Printer: chatclient.NewPrinter(out, colours(out)), Interrupts: interrupts}
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
