package fleet

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// TestFramesBeforeAnError: what a node has sent of a log before its connection broke is shown.
func TestFramesBeforeAnError(t *testing.T) {
	for range 50 { // of two channels any one may be taken first
		frames, errs := make(chan *api.StreamFrame, 3), make(chan error, 1)
		for _, text := range []string{"why ", "it ", "failed"} {
			frames <- &api.StreamFrame{Data: []byte(text)}
		}
		broken := errors.New("broken connection")
		errs <- broken
		var out strings.Builder
		if err := copyFrames(frames, errs, &out); !errors.Is(err, broken) || out.String() != "why it failed" {
			t.Fatalf("%q (%v)", out.String(), err)
		}
	}
}
