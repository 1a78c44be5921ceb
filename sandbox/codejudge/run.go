package codejudge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
	"uuid"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// Pauses between attempts of one call.
const (
	overloadWait = time.Second // if the executor suggests no time
	longestWait  = 30 * time.Second
	firstBackoff = 100 * time.Millisecond // after an executor was not reached; doubles
	attempts     = 5
)

// outputSlack is the number of bytes that a program may print beyond the expected output, such
// as blanks at the end.
const (
	outputSlack = 64 << 10
	outputMost  = 16 << 20
)

// run executes one submission and returns its result. It returns an error if the executor
// could not be reached, or if the caller has gone.
func (h *handler) run(ctx context.Context, sub submission, from origin) (result, error) {
	if sub.language != languagePython {
		return failed(sub.id, reasonInternal, "type "+string(sub.language)+" is not supported: only python runs here"), nil
	}
	req := h.request(sub, from.key)
	res, err := sandbox.Result{}, h.acquireOutput(ctx, &req, from.host)
	if err == nil {
		defer h.cfg.Budget.Answers.Release(from.host, budget.OutputRoom(req.Limits.Output))
		res, err = h.execute(ctx, req)
	}
	if err == nil {
		return answer(sub, res), nil
	}
	late := failed(sub.id, reasonQueueTime, "")
	late.Cost = seconds(time.Since(from.start).Seconds())
	switch {
	case errors.Is(context.Cause(ctx), errTimeIsUp), ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return late, nil
	case ctx.Err() != nil:
		return result{}, ctx.Err()
	case errors.Is(err, sandbox.ErrUnavailable):
		return late, err
	default:
		h.cfg.Logger.Error("sandbox call", "err", err)
		return failed(sub.id, reasonInternal, ""), nil
	}
}

// acquireOutput waits for the bytes that the output of req may need, beyond the part that
// every call has. Other answers of the same caller cannot hold them for long: a caller that
// does not read its answers loses them.
func (h *handler) acquireOutput(ctx context.Context, req *sandbox.Request, caller string) error {
	answers := h.cfg.Budget.Answers
	// A budget that is too small for a long expected output limits the output.
	for budget.OutputRoom(req.Limits.Output) > answers.Half() {
		req.Limits.Output /= 2
	}
	need := budget.OutputRoom(req.Limits.Output)
	if need == 0 {
		return nil
	}
	inTime, cancel := context.WithTimeout(ctx, 2*stall)
	defer cancel()
	return answers.Acquire(inTime, caller, need)
}

// errTimeIsUp is the cause of a context that ends because the call has waited for too long,
// not because its caller has gone.
var errTimeIsUp = errors.New("the time of the call is over")

// request returns the request for the program of sub. Its ID is new: a client's sub_id is a
// position in the client's list and repeats from batch to batch.
func (h *handler) request(sub submission, key string) sandbox.Request {
	req := sandbox.Request{
		ID: uuid.NewV4().String(), Code: sub.solution, Stdin: sub.input, Run: key,
		Limits: sandbox.Limits{Wall: h.cfg.Execution, CPU: h.cfg.Execution, Memory: h.cfg.Memory},
	}
	if sub.expected != nil {
		req.Limits.Output = min(outputMost, int64(len(*sub.expected))+outputSlack)
	}
	return req
}

// execute runs req in its turn. It retries while the executor is overloaded, and a few
// times when the executor cannot be reached.
func (h *handler) execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	inLine, leave := h.waitingTime(ctx)
	defer leave()
	place := h.line.ticket(req.Run)
	backoff := firstBackoff
	for attempt := 1; ; {
		if err := h.line.enter(inLine, place); err != nil {
			return sandbox.Result{}, err
		}
		res, err := h.exec.Execute(ctx, req)
		refused := errors.Is(err, sandbox.ErrOverloaded)
		pause := h.line.leave(refused)
		var wait time.Duration
		switch {
		case err == nil, ctx.Err() != nil:
			return res, err
		case refused && !pause:
			continue
		case refused:
			wait = min(longestWait, sandbox.RetryAfter(err, overloadWait))
		case errors.Is(err, sandbox.ErrUnavailable) && attempt < attempts:
			attempt++
			wait, backoff = backoff, 2*backoff
		default:
			return sandbox.Result{}, err
		}
		if err := sleep(inLine, wait); err != nil {
			return sandbox.Result{}, err
		}
	}
}

// slack returns how much longer than Wait an accepted call may take, so that a program that
// waits for a core still gets its answer.
func (h *handler) slack() time.Duration { return sandbox.Slack(h.cfg.Execution) }

// waitingTime bounds the part of a call's time in which it may wait in the queue.
func (h *handler) waitingTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, end.Add(-h.slack()), errTimeIsUp)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// origin holds the common fields of the submissions of one request.
type origin struct {
	key   string // the key of fairness
	host  string // the caller that is charged
	start time.Time
}

// newOrigin returns the origin of a request. The protocol has no field for a run, so
// fairness is by client machine.
func newOrigin(r *http.Request) origin {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return origin{key: "codejudge/" + host, host: host, start: time.Now()}
}
