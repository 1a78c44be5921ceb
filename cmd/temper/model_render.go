package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
)

// maxRenderInput is the longest request of `temper model render`, in bytes.
const maxRenderInput = 64 << 20

// renderFlags choose what `temper model render` prints.
type renderFlags struct {
	ids      bool
	check    bool
	template string
	builtin  string
	date     string
}

// modelRenderCommand renders a conversation by a checkpoint's chat template.
func modelRenderCommand() *cobra.Command {
	var f renderFlags
	cmd := &cobra.Command{
		Use:   "render DIR",
		Short: "Render messages and tools by a checkpoint's chat template",
		Long: `Render reads one JSON object from standard input,
  {"messages": [...], "tools": [...], "add_generation_prompt": true, ...}
and prints the text that the chat template in DIR makes of it, byte for byte as
apply_chat_template does. Further members are variables of the template, such as
enable_thinking. The template is chat_template.jinja or the chat_template of
tokenizer_config.json.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return renderModel(cmd.InOrStdin(), cmd.OutOrStdout(), args[0], f)
		},
	}
	cmd.Flags().BoolVar(&f.ids, "ids", false, "print the token ids of DIR's tokenizer as a JSON array instead of the text")
	cmd.Flags().BoolVar(&f.check, "check-append-only", false, "print nothing and fail where the template changes what it rendered for fewer messages")
	cmd.Flags().StringVar(&f.template, "template", "", "name of the template where tokenizer_config.json holds several")
	cmd.Flags().StringVar(&f.builtin, "format", "", "render by a built-in format instead: rstar2 or rstar2-released")
	cmd.Flags().StringVar(&f.date, "date", "", "day (2006-01-02) for templates that print one; they fail without it")
	return cmd
}

func renderModel(in io.Reader, out io.Writer, dir string, f renderFlags) error {
	data, err := io.ReadAll(io.LimitReader(in, maxRenderInput+1))
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	if len(data) > maxRenderInput {
		return cli.Usagef("standard input is longer than %d bytes", maxRenderInput)
	}
	req, err := chat.ParseRequest(data)
	if err != nil {
		return cli.Usage(err)
	}
	if f.date != "" {
		if req.Now, err = time.Parse(time.DateOnly, f.date); err != nil {
			return cli.Usagef("--date %s: want a day as 2006-01-02", f.date)
		}
	}
	tmpl, err := renderTemplate(dir, f, req.Tools != nil)
	if err != nil {
		return cli.Usage(err)
	}
	var tok *tokenizer.Tokenizer
	if f.ids || f.check {
		if tok, err = tokenizer.Load(filepath.Join(dir, "tokenizer.json")); err != nil {
			return cli.Usage(err)
		}
	}
	if f.check {
		if err := chat.CheckAppendOnly(tmpl, tok, req); err != nil {
			return cli.Usage(err)
		}
		return nil
	}
	rendered, err := tmpl.Render(req)
	if err != nil {
		return cli.Usage(err)
	}
	if f.ids {
		return json.NewEncoder(out).Encode(append([]int32{}, tok.EncodeSpecial(rendered.Text)...))
	}
	_, err = io.WriteString(out, rendered.Text)
	return err
}

func renderTemplate(dir string, f renderFlags, withTools bool) (*chat.Template, error) {
	if f.builtin != "" {
		return chat.Builtin(f.builtin)
	}
	return chat.LoadTemplate(dir, f.template, withTools)
}
