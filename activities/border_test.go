package activities_test

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run/replay"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// onStore is the four structs that are registered, on a store.
func onStore(store blob.Store) []any {
	return []any{
		&activities.Control{Store: store},
		&activities.Trainer{Learner: learner.NewService(learner.Config{Store: store, Now: runtest.Still})},
		&activities.Placement{},
		&activities.Rollouts{Sampling: sampling.New(sampling.Config{Store: store, Now: runtest.Still}), Mender: &replay.Bench{Store: store}},
	}
}

// TestJSONOfActivities: the names of activities, and the JSON of what goes in and
// comes out, are part of stored histories. A field may be added, never renamed.
func TestJSONOfActivities(t *testing.T) {
	var got strings.Builder
	for _, a := range onStore(nil) {
		v := reflect.ValueOf(a)
		for i := range v.NumMethod() {
			m := v.Method(i).Type()
			fmt.Fprintln(&got, v.Type().Method(i).Name)
			writeKeys(&got, "  in  ", m.In(1))
			if m.NumOut() == 2 {
				writeKeys(&got, "  out ", m.Out(0))
			}
		}
	}
	path := filepath.Join("testdata", "json.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.String(), string(want)); diff != "" {
		t.Errorf("%s: got -, want +\n%s", path, diff)
	}
}

// writeKeys writes the keys of a type's JSON, one line each, with the kinds of
// their values. Go's names of types do not matter.
func writeKeys(out *strings.Builder, prefix string, t reflect.Type) {
	switch {
	case t.Implements(reflect.TypeFor[json.Marshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		fmt.Fprintf(out, "%s %s\n", prefix, t)
	case t.Kind() == reflect.Pointer:
		writeKeys(out, prefix, t.Elem())
	case t.Kind() == reflect.Slice:
		writeKeys(out, prefix+"[]", t.Elem())
	case t.Kind() == reflect.Map:
		writeKeys(out, prefix+"{}", t.Elem())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				writeKeys(out, prefix, f.Type)
			case f.IsExported() && name == "":
				writeKeys(out, prefix+"."+f.Name, f.Type)
			case f.IsExported() && name != "-":
				writeKeys(out, prefix+"."+name, f.Type)
			}
		}
	default:
		fmt.Fprintf(out, "%s %s\n", prefix, t.Kind())
	}
}

// refusing is a store that refuses whoever asks.
type refusing struct{ blob.Store }

func (refusing) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, blob.ErrMisconfigured
}

func (refusing) Put(context.Context, string, io.Reader, blob.Condition) (blob.Ref, error) {
	return blob.Ref{}, blob.ErrMisconfigured
}

func (refusing) Stat(context.Context, string) (blob.Info, error) {
	return blob.Info{}, blob.ErrMisconfigured
}

func (refusing) List(context.Context, string) ([]blob.Info, error) { return nil, blob.ErrMisconfigured }

// TestEveryActivityNamesTheKindOfItsError, so that workflows can switch on it.
func TestEveryActivityNamesTheKindOfItsError(t *testing.T) {
	for _, a := range onStore(refusing{runtest.Fill(t, nil)}) {
		v := reflect.ValueOf(a)
		for i := range v.NumMethod() {
			name := v.Type().Method(i).Name
			_, err := execute(t, a, name, reflect.Zero(v.Method(i).Type().In(1)).Interface())
			var app *temporal.ApplicationError
			kinds := []fault.Kind{fault.Store, fault.InvalidConfig}
			if !errors.As(err, &app) || !slices.Contains(kinds, fault.Kind(app.Type())) || !app.NonRetryable() {
				t.Errorf("%s: error %v, want a final one of kind %s or %s", name, err, kinds[0], kinds[1])
			}
		}
	}
}

// execute calls an activity of a struct as a workflow does.
func execute(t *testing.T, structure, activity, in any) (converter.EncodedValue, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(structure)
	return env.ExecuteActivity(activity, in)
}
