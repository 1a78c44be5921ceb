package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/passes"
	"temper/trainer/weights/tensor"
)

// ErrRefused means that a hub refused this host. The text has the reason.
var ErrRefused = errors.New("the trainer refuses this host")

// Host makes passes for the trainer of a hub. All of its state is also at the hub.
type Host struct {
	Identity
	Token    string
	Patience time.Duration
	Log      *slog.Logger
	// OnJoin, when not nil, receives the rank.
	OnJoin func(rank int)

	epochs map[string]int64 // the highest of each run
}

// Serve works for the hub at the other end of a connection until either ends, or ctx.
// Errors: ErrRefused.
func (m *Host) Serve(ctx context.Context, raw net.Conn) error {
	if m.Patience == 0 {
		m.Patience = DefaultPatience
	}
	if m.epochs == nil {
		m.epochs = map[string]int64{}
	}
	c := &conn{Conn: raw, patience: m.Patience}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // ends a pending read
	defer stop()
	defer raw.Close() //nolint:errcheck // nothing is written after this
	rank, err := m.join(c)
	if err != nil {
		return err
	}
	if m.OnJoin != nil {
		m.OnJoin(rank)
	}
	w := &work{host: m, conn: c}
	defer w.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.running.Go(func() { c.beat(ctx) })
	for {
		msg, body, err := c.receive()
		if err == nil {
			err = w.do(msg, body)
		}
		if err != nil {
			return fmt.Errorf("trainer is gone: %w", err)
		}
	}
}

// join sends the hello and returns the rank of the host.
func (m *Host) join(c *conn) (rank int, err error) {
	if err := c.send(message{Kind: kindHello, Hello: &hello{Protocol: protocol, Token: m.Token, Identity: m.Identity}}, nil); err != nil {
		return 0, err
	}
	msg, _, err := c.receive()
	switch {
	case err != nil:
		return 0, err
	case msg.Kind == kindRefused:
		return 0, fmt.Errorf("%w: %s", ErrRefused, msg.Reason)
	case msg.Kind != kindWelcome:
		return 0, errFrame
	}
	return msg.Rank, nil
}

// work is the state of a connected host.
type work struct {
	host      *Host
	conn      *conn
	network   model.Config
	assistant *passes.Assistant // nil before the first setup
	running   sync.WaitGroup    // passes, and beats
	passes    sync.WaitGroup
}

// close waits for the passes and drops their results.
func (w *work) close() {
	_ = w.conn.Close() // ends pending sends
	w.running.Wait()
	w.release()
}

func (w *work) release() {
	w.passes.Wait()
	if w.assistant != nil {
		w.assistant.Close()
		w.assistant = nil
	}
}

// do carries out a request of the hub. Passes run concurrently.
func (w *work) do(m message, body []*tensors.Tensor) error {
	switch m.Kind {
	case kindBeat:
		return nil
	case kindSetup:
		return w.answer(m, nil, w.setUp(m.Setup))
	case kindWeights:
		return w.answer(m, nil, w.follow(m.Trained, body))
	case kindPass:
		a := w.assistant
		if a == nil {
			return errFrame
		}
		w.passes.Add(1)
		w.running.Go(func() {
			defer w.passes.Done()
			out, err := a.Make(m.Pass, m.Shape, body)
			defer device.Release(out...)
			device.Free(body...)
			if w.answer(m, out, err) != nil {
				_ = w.conn.Close() // ends the reader
			}
		})
		return nil
	default:
		return fmt.Errorf("%w: %q", errFrame, m.Kind)
	}
}

// setUp opens the device for the trainer of a run.
func (w *work) setUp(s *setup) error {
	if s == nil {
		return errFrame
	}
	if known := w.host.epochs[s.Run]; s.Epoch < known {
		return fmt.Errorf("epoch %d of run %s is over: a trainer of epoch %d holds the run", s.Epoch, s.Run, known)
	}
	if diff := kernels.Describe(s.Kernels.Choice).Differences(s.Kernels); len(diff) > 0 {
		return fmt.Errorf("this host would compute other bits: %s", strings.Join(diff, "; "))
	}
	w.release()
	a, err := passes.NewAssistant(s.config(w.host.Backend))
	if err != nil {
		return err
	}
	bits, err := device.Bits(w.host.Backend)
	if err == nil {
		err = sameDevice(bits, s.Device)
	}
	if err != nil {
		a.Close()
		return err
	}
	w.assistant, w.network, w.host.epochs[s.Run] = a, s.Network, s.Epoch
	w.conn.limit.Store(maxBytes(s.Network))
	w.host.Log.Info("host works for a run", "run_id", s.Run, "epoch", s.Epoch)
	return nil
}

// sameDevice returns an error that names the differences between two lines of device.Bits.
func sameDevice(own, hub string) error {
	if own == hub {
		return nil
	}
	ours, theirs := strings.Fields(own), strings.Fields(hub)
	var diff []string
	for i := range min(len(ours), len(theirs)) {
		if ours[i] != theirs[i] {
			diff = append(diff, ours[i]+", not "+theirs[i])
		}
	}
	if len(ours) != len(theirs) {
		diff = []string{own + ", not " + hub}
	}
	return fmt.Errorf("this host would compute other bits: %s", strings.Join(diff, "; "))
}

// follow receives the weights, in the order of the network's tensors.
func (w *work) follow(trained []string, body []*tensors.Tensor) error {
	specs := w.network.Tensors()
	if w.assistant == nil || len(body) != len(specs) {
		return fmt.Errorf("%w: %d tensors of weights, want %d", errFrame, len(body), len(specs))
	}
	defer device.Free(body...)
	named := make([]tensor.Named, len(specs))
	for i, spec := range specs {
		named[i] = tensor.Named{Name: spec.Name, Shape: body[i].Shape().Dimensions}
		if body[i].DType() != dtypes.Float32 {
			return fmt.Errorf("%w: %s is %v", errFrame, spec.Name, body[i].DType())
		}
		if err := tensors.ConstFlatData(body[i], func(flat []float32) { named[i].Data = flat }); err != nil { // until body is freed
			return err
		}
	}
	return w.assistant.Follow(named, trained)
}

// answer sends the hub the outcome of a request.
func (w *work) answer(m message, out []device.Value, err error) error {
	reply := message{Kind: kindReady, Seq: m.Seq}
	body := make([]blob, len(out))
	for i, v := range out {
		reply.Kind, body[i] = kindResult, blobOf(v.Tensor())
	}
	if err != nil {
		return w.conn.send(message{Kind: kindFailed, Seq: m.Seq, Reason: err.Error()}, nil)
	}
	return w.conn.send(reply, body)
}
