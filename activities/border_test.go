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
	"maps"
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
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// onStore is the three structs that are registered, on a store.
func onStore(store blob.Store) []any {
	return []any{
		&activities.Control{Store: store},
		&activities.Trainer{Learner: learner.NewService(learner.Config{Store: store, Now: runtest.Still})},
		&activities.Rollouts{Sampling: sampling.New(sampling.Config{Store: store, Now: runtest.Still})},
	}
}

// TestJSONOfActivities: the names of activities, and the JSON of what goes in and
// comes out, are part of stored histories. A field may be added, never renamed.
func TestJSONOfActivities(t *testing.T) {
	var got strings.Builder
	types := map[string]reflect.Type{}
	for _, a := range onStore(nil) {
		v := reflect.ValueOf(a)
		for i := range v.NumMethod() {
			m := v.Method(i).Type()
			fmt.Fprintf(&got, "%s(%s)", v.Type().Method(i).Name, jsonType(m.In(1), types))
			if m.NumOut() == 2 {
				fmt.Fprintf(&got, " %s", jsonType(m.Out(0), types))
			}
			got.WriteString("\n")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fmt.Fprintf(&got, "\n%s\n", name)
		writeFields(&got, types[name], types)
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

// jsonType names the form of a type in JSON. It adds the structs in it to types,
// with those in them.
func jsonType(t reflect.Type, types map[string]reflect.Type) string {
	switch {
	case t.Implements(reflect.TypeFor[json.Marshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return t.String()
	case t.Kind() == reflect.Pointer:
		return jsonType(t.Elem(), types)
	case t.Kind() == reflect.Slice:
		return "[]" + jsonType(t.Elem(), types)
	case t.Kind() == reflect.Map:
		return "map of " + jsonType(t.Elem(), types)
	case t.Kind() == reflect.Struct:
		if types[t.String()] == nil {
			types[t.String()] = t
			writeFields(io.Discard, t, types)
		}
		return t.String()
	default:
		return t.Kind().String()
	}
}

// writeFields writes the keys of a struct in JSON, one line each.
func writeFields(out io.Writer, t reflect.Type, types map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			writeFields(out, f.Type, types)
		case f.IsExported() && name == "":
			fmt.Fprintf(out, "\t%s %s\n", f.Name, jsonType(f.Type, types))
		case f.IsExported() && name != "-":
			fmt.Fprintf(out, "\t%s %s\n", name, jsonType(f.Type, types))
		}
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
