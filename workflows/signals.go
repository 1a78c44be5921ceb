package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Interceptors belong on every worker that serves the workflows. They keep the signals
// between a run and its stage out of the list from which the web UI lets people
// choose. Without them the workflows do the same, and the names are listed.
func Interceptors() []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&signalInterceptor{}}
}

type signalInterceptor struct {
	interceptor.WorkerInterceptorBase
}

// InterceptWorkflow gives each workflow a signalStore.
func (*signalInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	m := &signalStore{channels: map[string]workflow.Channel{}}
	m.Next = next
	return m
}

// signalStore holds the internal signals of one workflow.
type signalStore struct {
	interceptor.WorkflowInboundInterceptorBase
	channels map[string]workflow.Channel
}

type signalStoreKey struct{}

// signalStoreSize is the size of the SDK's own channels of signals.
const signalStoreSize = 100_000

// ExecuteWorkflow lets the workflow find its signalStore.
func (m *signalStore) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return m.Next.ExecuteWorkflow(workflow.WithValue(ctx, signalStoreKey{}, m), in)
}

// HandleSignal takes the internal signals. One may come before the workflow runs.
func (m *signalStore) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if !slices.Contains(internalSignals(), in.SignalName) {
		return m.Next.HandleSignal(ctx, in)
	}
	if !m.channel(ctx, in.SignalName).SendAsync(in.Arg) {
		return fmt.Errorf("more than %d signals %s wait", signalStoreSize, in.SignalName)
	}
	return nil
}

func (m *signalStore) channel(ctx workflow.Context, name string) workflow.Channel {
	if m.channels[name] == nil {
		m.channels[name] = workflow.NewNamedBufferedChannel(ctx, name, signalStoreSize)
	}
	return m.channels[name]
}

// internalChannel is where an internal signal arrives.
func internalChannel(ctx workflow.Context, name string) workflow.ReceiveChannel {
	if m, ok := ctx.Value(signalStoreKey{}).(*signalStore); ok {
		return m.channel(ctx, name)
	}
	return workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: "Between a run and its stage; not for people."})
}

// signalContent is the content of a signal before it is decoded. The SDK drops what it
// cannot decode without a word to the workflow, and leaves the part that it has
// decoded in the variable for the next signal.
type signalContent struct{ payload *common.Payload }

// receiveSignal takes the next signal, if there is one. Of several payloads the first
// counts.
func receiveSignal(from workflow.ReceiveChannel) (signalContent, bool) {
	var raw converter.RawValue
	if !from.ReceiveAsync(&raw) {
		return signalContent{}, false
	}
	return signalContent{raw.Payload()}, true
}

// decode reads the content. A signal without any leaves into as it is.
func (l signalContent) decode(into any) error {
	if l.payload == nil {
		return nil
	}
	if err := converter.GetDefaultDataConverter().FromPayload(l.payload, into); err != nil {
		return malformed(err)
	}
	return nil
}

// malformed says in the words of JSON what a message should have been.
func malformed(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("this is no JSON: %s", shorten(syntax.Error()))
	case errors.As(err, &kind) && kind.Type != nil:
		got, _, _ := strings.Cut(kind.Value, " ") // a number stands behind its kind
		field := kind.Field
		if field == "" {
			field = "the argument"
		}
		return fmt.Errorf("%s: want %s, got %s", shorten(field), formOf(kind.Type.Kind()), shorten(got))
	default:
		return errors.New(shorten(err.Error()))
	}
}

// formOf names a form of JSON.
func formOf(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}

// maxBrief bounds the text of an error that quotes a message: the server
// takes no message of more than a few megabytes, and a person reads less.
const maxBrief = 500

// shorten cuts a text where it is long.
func shorten(text string) string {
	if len(text) <= maxBrief {
		return text
	}
	cut := maxBrief
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + " ..."
}

// Register adds every workflow to a worker. The name of the function is the
// registered type.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflow(RLRun)
	r.RegisterWorkflow(RLStage)
	r.RegisterWorkflow(EvaluateRun)
	r.RegisterWorkflow(Retrain)
	r.RegisterWorkflow(Cluster)
	r.RegisterWorkflow(Ablate)
}
