package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
)

// maxTokenizeInput bounds what is read from stdin.
const maxTokenizeInput = 256 << 20

func modelTokenizeCommand() *cobra.Command {
	var decode, noSpecial bool
	cmd := &cobra.Command{
		Use:   "tokenize DIR",
		Short: "Print the token ids of stdin, or with --decode the text of ids",
		Long: `Reads text from stdin and writes its ids as one JSON array, with the tokenizer.json of DIR:
added tokens in the text are recognised, and the file's template adds its own around it, as
Hugging Face's encode does. Text is taken byte for byte: a line end at the end of stdin counts.
Bytes that are not UTF-8 are encoded as they are. With --decode reads a JSON array of ids and
writes their text, added tokens included and bytes that are not UTF-8 as U+FFFD.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&decode, "decode", false, "read a JSON array of ids, write text")
	f.BoolVar(&noSpecial, "no-special", false, "take special tokens in the text as plain text and add none around it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if decode && noSpecial {
			return cli.Usagef("--decode and --no-special exclude each other")
		}
		tok, err := tokenizer.Load(filepath.Join(args[0], "tokenizer.json"))
		if err != nil {
			return cli.Usage(err)
		}
		for _, note := range tok.Notes() {
			fmt.Fprintln(cmd.ErrOrStderr(), "temper: tokenizer.json:", note)
		}
		input, err := readTokenizeInput(cmd.InOrStdin())
		if err != nil {
			return err
		}
		if decode {
			return writeText(cmd.OutOrStdout(), tok, input)
		}
		ids := []int32{}
		if noSpecial {
			ids = append(ids, tok.Encode(string(input))...)
		} else {
			ids = append(ids, tok.PostProcess(tok.EncodeSpecial(string(input)))...)
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(ids)
	}
	return cmd
}

func readTokenizeInput(r io.Reader) ([]byte, error) {
	input, err := io.ReadAll(io.LimitReader(r, maxTokenizeInput+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	if len(input) > maxTokenizeInput {
		return nil, cli.Usagef("stdin has more than %d bytes", maxTokenizeInput)
	}
	return input, nil
}

// writeText refuses ids that no token has, all of them at once.
func writeText(w io.Writer, tok *tokenizer.Tokenizer, input []byte) error {
	var ids []int32
	if err := json.Unmarshal(input, &ids); err != nil {
		return cli.Usagef("stdin is not a JSON array of token ids: %w", err)
	}
	var unknown []error
	for i, id := range ids {
		if id < 0 || int(id) >= tok.VocabSize() {
			unknown = append(unknown, fmt.Errorf("ids[%d] is %d, want 0 to %d", i, id, tok.VocabSize()-1))
		}
	}
	if len(unknown) > 0 {
		return cli.Usage(errors.Join(unknown...))
	}
	_, err := io.WriteString(w, tok.Text(ids))
	return err
}
