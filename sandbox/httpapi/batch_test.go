package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// much answers each call with a megabyte.
type much struct{}

func (much) Execute(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: strings.Repeat("x", 1<<20)}, nil
}

// TestABatchDoesNotWaitForItself: answers that wait for those before them hold the room that
// one of these needs.
func TestABatchDoesNotWaitForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(budget.Smallest)
		h := newHandler(much{}, Config{Budget: b})
		calls := make([]string, 20)
		for i := range calls {
			limit := 1 << 20
			if i == 0 {
				limit = 2 << 20
			}
			calls[i] = fmt.Sprintf(`{"id":"%d","code":"x","limits":{"output_bytes":%d}}`, i, limit)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", PathBatch, strings.NewReader(`{"calls":[`+strings.Join(calls, ",")+`]}`))
		w := httptest.NewRecorder()
		caller := callerOf(r)
		b.Answers.Add(caller, 1<<20) // so that the first call finds no room, and others do
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.batch(w, r)
		}()
		synctest.Wait()
		b.Answers.Release(caller, 1<<20)
		<-done
		var got BatchAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Answers) != len(calls) {
			t.Fatalf("%d answers, %v", len(got.Answers), err)
		}
		for i, a := range got.Answers {
			if a.Error != nil {
				t.Errorf("call %d: %+v", i, a.Error)
			}
		}
	})
}
