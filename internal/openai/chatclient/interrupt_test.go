package chatclient_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"temper/internal/openai/chatclient"
)

// TestInterrupts: one cuts the answer that is under way, and the talk goes on; one at the
// prompt forgets the lines so far.
func TestInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		interrupts := make(chan os.Signal, 1)
		s := &scripted{turns: []chatclient.Turn{says("done")}}
		s.during = func(ctx context.Context, emit func(chatclient.Delta) error) error {
			if err := emit(chatclient.Delta{Content: "endless"}); err != nil {
				return err
			}
			interrupts <- os.Interrupt
			<-ctx.Done()
			return ctx.Err()
		}
		talk, err := chatclient.New(s, nil, "", 4)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		console := chatclient.Console{In: in, Out: &out, Printer: chatclient.NewPrinter(&out, false), Interrupts: interrupts}
		ended := make(chan error, 1)
		go func() { ended <- console.Run(t.Context(), talk) }()
		write := func(text string) {
			if _, err := io.WriteString(keys, text); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		write("first\n")
		s.during = nil
		write("half of a question\\\n")
		interrupts <- os.Interrupt
		synctest.Wait()
		write("second\n")
		_ = keys.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := out.String(); got != "endless\n[cut]\n\ndone\n" {
			t.Errorf("shown %q", got)
		}
		if got := s.asked[1][len(s.asked[1])-1].Content; got != "second" {
			t.Errorf("asked %q", got)
		}
	})
}
