package chatclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Console is where a person talks with a model.
type Console struct {
	In io.Reader
	// Printer shows the answers, and Prompt stands before a question; "" for none.
	Printer *Printer
	Prompt  string
	Out     io.Writer
	// Interrupts cut the answer that is under way.
	Interrupts <-chan os.Signal
}

// maxQuestion bounds one question.
const maxQuestion = 1 << 20

const help = "/exit ends, /reset forgets the talk; a \\ at the end of a line lets another one follow; ctrl-c cuts an answer, ctrl-d ends"

// read is one line, or the end of the input.
type read struct {
	line string
	err  error
}

// Run asks each line of input until the input or ctx ends. It reports a question that fails
// and continues.
func (k *Console) Run(ctx context.Context, c *Conversation) error {
	lines := make(chan read)
	done := make(chan struct{})
	defer close(done)
	go k.readLines(lines, done) // a read of a terminal cannot be ended: it stays until the process ends
	var question strings.Builder
	for {
		if err := k.showPrompt(question.Len() > 0); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.Interrupts:
			question.Reset()
			if _, err := io.WriteString(k.Out, "\n"); err != nil {
				return err
			}
		case in := <-lines:
			if in.err != nil {
				return k.endOfInput(in.err)
			}
			if more, ok := strings.CutSuffix(in.line, `\`); ok && question.Len() < maxQuestion {
				question.WriteString(more + "\n")
				continue
			}
			text := strings.TrimSpace(question.String() + in.line)
			question.Reset()
			if ended, err := k.take(ctx, c, text); ended || err != nil {
				return err
			}
		}
	}
}

// showPrompt asks for a line; open reports whether the line continues a question.
func (k *Console) showPrompt(open bool) error {
	prompt := k.Prompt
	if open && prompt != "" {
		prompt = "... "
	}
	_, err := io.WriteString(k.Out, prompt)
	return err
}

// endOfInput ends the line of the prompt.
func (k *Console) endOfInput(err error) error {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if k.Prompt == "" {
		return err
	}
	_, writeErr := io.WriteString(k.Out, "\n")
	return errors.Join(err, writeErr)
}

// readLines hands on the lines of the input.
func (k *Console) readLines(lines chan<- read, done <-chan struct{}) {
	scanner := bufio.NewScanner(k.In)
	scanner.Buffer(make([]byte, 0, 1<<16), maxQuestion)
	for scanner.Scan() {
		select {
		case lines <- read{line: scanner.Text()}:
		case <-done:
			return
		}
	}
	err := scanner.Err()
	if err == nil {
		err = io.EOF
	}
	select {
	case lines <- read{err: err}:
	case <-done:
	}
}

// take does what a line says. It reports whether the talk has ended.
func (k *Console) take(ctx context.Context, c *Conversation, text string) (ended bool, err error) {
	switch {
	case text == "":
		return false, nil
	case text == "/exit" || text == "/quit":
		return true, nil
	case text == "/reset":
		c.Reset(ctx)
		return false, k.Printer.Note("the talk begins anew")
	case strings.HasPrefix(text, "/") && !strings.ContainsAny(text, " \n"):
		return false, k.Printer.Note(help)
	}
	return false, k.ask(ctx, c, text)
}

// ask answers one question, until an interrupt cuts it.
func (k *Console) ask(ctx context.Context, c *Conversation, text string) error {
	asking, cut := context.WithCancel(ctx)
	defer cut()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-k.Interrupts:
			cut()
		case <-asking.Done():
		}
	}()
	answer, err := c.Ask(asking, text, k.Printer.Show)
	cut()
	<-watched
	note := ""
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case answer.Finish == FinishCut:
		note = "cut"
	case err != nil:
		note = err.Error()
	case answer.Finish != FinishStop:
		note = Ended(answer.Finish)
	}
	if note != "" {
		return k.Printer.Note(note)
	}
	return k.Printer.End()
}

// Ended says in words why an answer ended that is not whole.
func Ended(finish string) string {
	switch finish {
	case FinishLength:
		return "the answer met the limit of tokens"
	case FinishMaxTurns:
		return "no answer within the limit of turns"
	}
	return fmt.Sprintf("the answer ended with %q", finish)
}
