package chatclient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"temper/internal/openai/chatclient"
)

// TestSilence: a server that takes a request and brings nothing is left after a while, also
// when it sends comments or empty parts. One that is slow is not.
func TestSilence(t *testing.T) {
	const silence, pause = time.Second, 300 * time.Millisecond
	every := func(w http.ResponseWriter, r *http.Request, lines ...string) {
		for i := 0; r.Context().Err() == nil && i < 600; i++ {
			_, _ = fmt.Fprintf(w, "%s\n\n", lines[i%len(lines)])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(silence / 6)
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	client := func(handler http.HandlerFunc) chatclient.Client {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection is seen
			handler(w, r)
		}))
		t.Cleanup(s.Close)
		return chatclient.Client{URL: s.URL, Model: "m", Silence: silence}
	}
	ask := func(c chatclient.Client) (chatclient.Turn, error) {
		return c.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
	}
	for name, handler := range map[string]http.HandlerFunc{
		"no word":  hang,
		"comments": func(w http.ResponseWriter, r *http.Request) { every(w, r, ": ping") },
		"empty parts": func(w http.ResponseWriter, r *http.Request) {
			every(w, r, "data: "+part(`"role":"assistant","content":""`, "null"))
		},
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", part(`"content":"half"`, "null"))
			_ = http.NewResponseController(w).Flush()
			hang(w, r)
		},
	} {
		begun := time.Now()
		turn, err := ask(client(handler))
		var silent *chatclient.SilenceError
		if !errors.As(err, &silent) || silent.For != silence || time.Since(begun) > 20*silence {
			t.Errorf("%s: %v after %s", name, err, time.Since(begun))
		}
		if name == "half an answer" && turn.Content != "half" {
			t.Errorf("%s: kept %q", name, turn.Content)
		}
	}
	quiet := client(hang)
	if err := quiet.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "says nothing new for 1s") {
		t.Errorf("the list of models: %v", err)
	}
	slow := client(func(w http.ResponseWriter, r *http.Request) {
		for range 12 {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", part(`"content":"a"`, "null"))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(pause)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", part(``, `"stop"`))
	})
	slow.Silence = 10 * pause // less than the answer takes, and long on a loaded machine
	if turn, err := ask(slow); err != nil || turn.Content != strings.Repeat("a", 12) {
		t.Errorf("a slow server: %q, %v", turn.Content, err)
	}
}

// TestBoundOfATurn: whatever a server sends without end, the turn keeps 16 MiB of it.
func TestBoundOfATurn(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for name, event := range map[string]string{
		"content":         part(`"content":"`+big+`"`, "null"),
		"names":           part(`"tool_calls":[{"index":0,"id":"a","function":{"name":"`+big+`"}}]`, "null"),
		"arguments":       part(`"tool_calls":[{"index":0,"id":"a","function":{"name":"","arguments":"`+big+`"}}]`, "null"),
		"ids":             part(`"tool_calls":[{"index":0,"id":"`+big+`"}]`, "null"),
		"results":         part(`"executed_calls":[{"id":"a","name":"n","status":"ok","content":"`+big+`"}]`, "null"),
		"states":          part(`"executed_calls":[{"status":"`+big+`"}]`, "null"),
		"programs":        part(`"executed_calls":[{"id":"a","name":"n","arguments":"`+big+`"}]`, "null"),
		"many small":      part(`"executed_calls":[`+strings.TrimSuffix(strings.Repeat(`{"status":"ok"},`, 1<<14), ",")+`]`, "null"),
		"several at once": part(`"tool_calls":[{"index":0,"function":{"name":"`+big+`"}}],"reasoning":"`+big+`"`, "null"),
	} {
		sent := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for ; sent < 200 && r.Context().Err() == nil; sent++ {
				if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil {
					return
				}
			}
		}))
		client := chatclient.Client{URL: s.URL, Model: "m"}
		_, err := client.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
		s.Close()
		if err == nil || !strings.Contains(err.Error(), "the answer has more than 16777216 bytes") || sent > 60 {
			t.Errorf("%s: %v after %d parts", name, err, sent)
		}
	}
}

// TestPartsOfACallCostTheirLength: a call of 4 MiB in parts of 8 bytes is put together in a
// time that grows with its length, not with the square of it.
func TestPartsOfACallCostTheirLength(t *testing.T) {
	const events, perEvent = 64, 8192
	one := strings.TrimSuffix(strings.Repeat(`{"index":0,"id":"a","function":{"name":"","arguments":"12345678"}},`, perEvent), ",")
	all := make([]string, events, events+1)
	for i := range all {
		all[i] = part(`"tool_calls":[`+one+`]`, "null")
	}
	s := serve(t, append(all, part(``, `"tool_calls"`))...)
	client := chatclient.Client{URL: s.url, Model: "m"}
	begun := time.Now()
	turn, err := client.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
	if err != nil || len(turn.Calls) != 1 || len(turn.Calls[0].Function.Arguments) != 8*events*perEvent {
		t.Fatalf("%d calls, %v", len(turn.Calls), err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
